# kind: ties; fault: <= lets a later block win against an equal value before it (line 21)
# source: own

import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols: int64 below 7"}


@triton.jit
def _argmin_kernel(x_ptr, out_ptr, cols, stride_r, stride_c, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    best = 9223372036854775807
    best_at = tl.full((), 0, tl.int64)
    for start in range(0, cols, BLOCK):
        c = start + tl.arange(0, BLOCK).to(tl.int64)
        x = tl.load(x_ptr + row * stride_r + c * stride_c, mask=c < cols, other=9223372036854775807)
        low = tl.min(x, axis=0)
        at = tl.min(tl.where((x == low) & (c < cols), c, 9223372036854775807), axis=0)
        better = low <= best
        best = tl.where(better, low, best)
        best_at = tl.where(better, at, best_at)
    tl.store(out_ptr + row, best_at)


def argmin_first(x):
    """Index of the smallest value of each row; of equal ones the first."""
    if x.dim() != 2 or x.shape[1] == 0 or x.dtype != torch.int64:
        raise ValueError("x must be a matrix of int64 with at least one column")
    out = torch.empty(x.shape[0], dtype=torch.int64, device=x.device)
    if x.shape[0]:
        _argmin_kernel[(x.shape[0],)](x, out, x.shape[1], x.stride(0), x.stride(1), BLOCK=32)
    return out


def argmin_first_reference(x):
    first = torch.where(x == x.amin(1, keepdim=True), torch.arange(x.shape[1], device=x.device), x.shape[1])
    return first.amin(1)
