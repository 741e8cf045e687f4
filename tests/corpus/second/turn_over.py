import torch
import triton
import triton.language as tl

INPUTS = {"x": "size size"}


@triton.jit
def turn_over_kernel(x_ptr, size, stride_0, stride_1, BLOCK: tl.constexpr):
    i = tl.program_id(0)
    j = tl.program_id(1)
    if j <= i:
        r = i.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        c = j.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        upper = (r[:, None] < size) & (c[None, :] < size)
        lower = (c[:, None] < size) & (r[None, :] < size)
        here = x_ptr + r[:, None] * stride_0 + c[None, :] * stride_1
        there = x_ptr + c[:, None] * stride_0 + r[None, :] * stride_1
        a = tl.load(here, mask=upper)
        b = tl.load(there, mask=lower)
        tl.debug_barrier()
        tl.store(here, tl.trans(b), mask=upper)
        if j < i:
            tl.store(there, tl.trans(a), mask=lower)


def turn_over(x):
    """Transposes a square matrix in place, whatever its strides."""
    size = x.shape[0]
    if size:
        tiles = triton.cdiv(size, 16)
        turn_over_kernel[(tiles, tiles)](x, size, x.stride(0), x.stride(1), BLOCK=16)


def turn_over_reference(x):
    x.copy_(x.T.clone())
