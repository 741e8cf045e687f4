# kind: lock released too early; fault: the lock is given back before the sums are stored (line 23)
# source: own, after the locks of Triton's layer norm tutorial

import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols"}


@triton.jit
def _locked_colsum(x_ptr, sum_ptr, lock_ptr, rows, cols, stride_r, stride_c, BR: tl.constexpr, BC: tl.constexpr):
    r = tl.program_id(0).to(tl.int64) * BR + tl.arange(0, BR)
    tile = tl.program_id(1)
    c = tile.to(tl.int64) * BC + tl.arange(0, BC)
    mask = (r[:, None] < rows) & (c[None, :] < cols)
    x = tl.load(x_ptr + r[:, None] * stride_r + c[None, :] * stride_c, mask=mask, other=0.0).to(tl.float32)
    part = tl.sum(x, axis=0)
    while tl.atomic_cas(lock_ptr + tile, 0, 1) == 1:
        pass
    total = tl.load(sum_ptr + c, mask=c < cols, other=0.0) + part
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr + tile, 0)
    tl.store(sum_ptr + c, total, mask=c < cols)


def column_sums(x):
    if x.dim() != 2 or x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("x must be a matrix of float16, bfloat16 or float32")
    if x.requires_grad:
        raise ValueError("no backward pass")
    rows, cols = x.shape
    tiles = triton.cdiv(cols, 64)
    if tiles > 65535:
        raise ValueError("too many columns")
    sums = torch.zeros(cols, dtype=torch.float32, device=x.device)
    if x.numel():
        locks = torch.zeros(tiles, dtype=torch.int32, device=x.device)
        grid = (triton.cdiv(rows, 4), tiles)
        _locked_colsum[grid](x, sums, locks, rows, cols, x.stride(0), x.stride(1), BR=4, BC=64)
    return sums.to(x.dtype)


def column_sums_reference(x):
    return x.sum(0)
