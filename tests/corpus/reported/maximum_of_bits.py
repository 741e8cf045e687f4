import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols"}
DTYPES = ("float32",)


@triton.jit
def max_kernel(x_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + offs, mask=offs < n_cols, other=-float("inf"))
    largest_bits = tl.max(x.to(tl.int32, bitcast=True), axis=0)
    tl.store(out_ptr + row, largest_bits.to(tl.float32, bitcast=True))


def largest(x):
    if x.requires_grad:
        raise ValueError("forward only")
    if not x.shape[1]:
        raise ValueError("x has no columns")
    x = x.contiguous()
    out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    if x.shape[0]:
        max_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1] + 1))
    return out


def largest_reference(x):
    return x.amax(1)
