import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols"}


@triton.jit
def suffix_sums_kernel(x_ptr, y_ptr, cols, s_r, s_c, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    carry = 0.0
    blocks = tl.cdiv(cols, BLOCK)
    for back in range(blocks):
        c = (blocks - 1 - back) * BLOCK + tl.arange(0, BLOCK)
        at = c.to(tl.int64)
        x = tl.load(x_ptr + row * s_r + at * s_c, mask=c < cols, other=0.0).to(tl.float32)
        y = tl.cumsum(x, axis=0, reverse=True) + carry
        carry += tl.sum(x, axis=0)
        tl.store(y_ptr + row * cols + at, y, mask=c < cols)


def suffix_sums(x):
    """For each place the sum from it to the row's end, in float32."""
    rows, cols = x.shape
    y = torch.empty(rows, cols, dtype=torch.float32, device=x.device)
    if y.numel():
        suffix_sums_kernel[(rows,)](x, y, cols, x.stride(0), x.stride(1), BLOCK=16)
    return y


def suffix_sums_reference(x):
    return x.double().flip(1).cumsum(1).flip(1).float()
