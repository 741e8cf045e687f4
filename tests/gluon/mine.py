"""A Gluon file as a reader might write it, for the tests of `academy simulate` and `academy judge`."""

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

from academy.runtime import device  # noqa: F401  before triton
from annotated_examples.common.hopper import aligned, aligned_empty, described, tma_load, tma_store

INPUTS = {"x": "rows cols"}


@gluon.jit
def double_kernel(x_desc, y_desc):
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    x_s = gl.allocate_shared_memory(x_desc.dtype, x_desc.block_type.shape, x_desc.layout)
    y_s = gl.allocate_shared_memory(y_desc.dtype, y_desc.block_type.shape, y_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(full, count=1)
    at = [gl.program_id(0) * 16, gl.program_id(1) * 64]
    mbarrier.expect(full, x_desc.block_type.nbytes)
    tma_load(x_desc, at, full, x_s)
    mbarrier.wait(full, 0)
    y_s.store((x_s.load(layout).to(gl.float32) * 2).to(y_desc.dtype))
    fence_async_shared()
    tma_store(y_desc, at, y_s)
    tma.store_wait(0)


def double(x):
    x = aligned(x)
    y = aligned_empty(*x.shape, x.dtype, x.device)
    if x.numel():
        grid = triton.cdiv(x.shape[0], 16), triton.cdiv(x.shape[1], 64)
        double_kernel[grid](described(x, [16, 64]), described(y, [16, 64]), num_warps=4)
    return y


def double_reference(x):
    return x * 2


def EXAMPLE():
    double(torch.ones(40, 100))
