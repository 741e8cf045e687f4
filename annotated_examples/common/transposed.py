r"""
# A matrix, turned

Some kernels need a matrix along its columns that lies in memory along its rows. Read against its order, each number
lies in a sector of 32 bytes of its own, and nearly all of what memory delivers is dropped. So a square at a time is
read along its rows, turned in shared memory, and written along its columns. At 8192 x 8192 that takes
[[bench: linear/ladder/transposed/numbers_ms]] in bfloat16, a copy [[bench: linear/ladder/copy/numbers_ms]], and
PyTorch's copy of a transposed view [[bench: linear/ladder/torch, transposed/numbers_ms]]. With eight bits it is
[[bench: linear/ladder/transposed/codes_ms]] instead of [[bench: linear/ladder/torch, transposed/codes_ms]].
"""

from academy.runtime import checks, device  # noqa: F401  before anything imports triton
from academy.runtime.launch import cdiv, launch

import torch
import triton
import triton.language as tl


# `tl.trans` changes nothing but the order in which the square is stored. The compiler moves it through shared memory,
# so that loads and stores both go along the rows of what they touch.
@triton.jit
def transpose_kernel(
    x_ptr, y_ptr,  # (M, N); (N, M)
    M, N, stride_m, stride_n, stride_yn, BLOCK: tl.constexpr,
):  # fmt: skip
    tile_m = tl.program_id(0) // tl.cdiv(N, BLOCK)
    tile_n = tl.program_id(0) % tl.cdiv(N, BLOCK)
    offs_m = tile_m.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tile_n.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask_m, mask_n = offs_m < M, offs_n < N
    x_ptrs = x_ptr + offs_m[:, None] * stride_m + offs_n[None, :] * stride_n
    x = tl.load(x_ptrs, mask=mask_m[:, None] & mask_n[None, :], other=0.0)
    y_ptrs = y_ptr + offs_n[:, None] * stride_yn + offs_m[None, :]
    tl.store(y_ptrs, tl.trans(x), mask=mask_n[:, None] & mask_m[None, :])


def transposed(x, out=None, *, BLOCK=128):
    """`x.t()`, contiguous; or in `out`, whose rows may lie further apart."""
    checks.power_of_two(BLOCK=BLOCK)
    if out is None and x.t().is_contiguous():
        return x.t()
    (M, N), y = x.shape, torch.empty(x.shape[::-1], dtype=x.dtype, device=x.device) if out is None else out
    if x.numel() > 0:
        bits = [v.view(torch.uint8) if v.element_size() == 1 else v for v in (x, y)]
        grid = (cdiv(M, BLOCK) * cdiv(N, BLOCK),)
        launch(transpose_kernel, grid, bits, (M, N, *x.stride(), y.stride(0)), BLOCK=BLOCK, num_warps=8)
    return y
