import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows 64"}


@triton.jit
def turn_kernel(x_ptr, tmp_ptr, out_ptr, BLOCK: tl.constexpr):
    row, offsets = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    tl.store(tmp_ptr + row * BLOCK + offsets, tl.load(x_ptr + row * BLOCK + offsets))
    turned = tl.load(tmp_ptr + row * BLOCK + BLOCK - 1 - offsets)  # what other threads store
    tl.store(out_ptr + row * BLOCK + offsets, turned)


def turned(x):
    if x.dim() != 2 or x.shape[1] != 64 or x.requires_grad:
        raise ValueError("x must be a matrix with 64 columns that requires no gradient")
    x = x.contiguous()
    tmp, out = torch.empty_like(x), torch.empty_like(x)
    if x.numel():
        turn_kernel[(len(x),)](x, tmp, out, BLOCK=64)
    return out


def turned_reference(x):
    return x.flip(1)
