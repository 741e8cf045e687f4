import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols"}


@triton.jit
def first_kernel(x_ptr, out_ptr, rows, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)  # no mask: behind the last row as well
    tl.store(out_ptr + offsets, x, mask=offsets < rows)


def first_column(x):
    if x.dim() != 2 or x.shape[1] == 0 or x.requires_grad:
        raise ValueError("x must be a matrix with a column that requires no gradient")
    out = torch.empty(len(x), dtype=x.dtype, device=x.device)
    if x.numel():
        column = x[:, 0].contiguous()
        first_kernel[(1,)](column, out, len(x), BLOCK=triton.next_power_of_2(len(x)))
    return out


def first_column_reference(x):
    return x[:, 0].clone()
