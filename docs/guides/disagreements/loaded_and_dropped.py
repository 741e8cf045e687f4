import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols"}


@triton.jit
def pad_kernel(x_ptr, tmp_ptr, cols, BLOCK: tl.constexpr):
    row, offsets = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    inside = offsets < cols
    x = tl.load(x_ptr + row * cols + offsets, mask=inside)
    tl.store(tmp_ptr + row * BLOCK + offsets, x, mask=inside)


@triton.jit
def sum_kernel(tmp_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row, offsets = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    x = tl.load(tmp_ptr + row * BLOCK + offsets).to(tl.float32)
    tl.store(out_ptr + row, tl.sum(tl.where(offsets < cols, x, 0.0)))


def row_sums(x):
    if x.dim() != 2 or x.requires_grad:
        raise ValueError("x must be a matrix that requires no gradient")
    x, block = x.contiguous(), triton.next_power_of_2(max(x.shape[1], 1))
    tmp = torch.empty((len(x), block), dtype=x.dtype, device=x.device)
    out = torch.zeros(len(x), dtype=x.dtype, device=x.device)
    if x.numel():
        pad_kernel[(len(x),)](x, tmp, x.shape[1], BLOCK=block)
        sum_kernel[(len(x),)](tmp, out, x.shape[1], BLOCK=block)
    return out


def row_sums_reference(x):
    return x.sum(-1)
