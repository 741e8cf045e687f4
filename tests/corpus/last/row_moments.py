import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols", "unbiased": (False, True)}


@triton.jit
def row_moments_kernel(x_ptr, mean_ptr, var_ptr, cols, stride_r, stride_c, correction, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    count = 0.0
    mean = 0.0
    squares = 0.0
    total = 0.0
    for start in range(0, cols, BLOCK):
        c = start + tl.arange(0, BLOCK)
        inside = c < cols
        x = tl.load(x_ptr + row * stride_r + c * stride_c, mask=inside, other=0.0).to(tl.float32)
        size = tl.minimum(cols - start, BLOCK).to(tl.float32)
        block_total = tl.sum(x)
        block_mean = block_total / size
        total += block_total
        d = tl.where(inside, x - block_mean, 0.0)
        block_squares = tl.sum(d * d)
        both = count + size
        delta = block_mean - mean
        mean += delta * size / both
        squares += block_squares + delta * delta * count * BLOCK / both
        count = both
    tl.store(mean_ptr + row, total / cols)
    tl.store(var_ptr + row, squares / (cols - correction))


def row_moments(x, unbiased=True):
    """Mean and variance of each row, merged from blocks."""
    rows, cols = x.shape
    mean = torch.empty(rows, dtype=torch.float32, device=x.device)
    variance = torch.empty_like(mean)
    if cols < 2:
        raise ValueError("a row needs two numbers")
    if rows:
        row_moments_kernel[(rows,)](x, mean, variance, cols, *x.stride(), 1 if unbiased else 0, BLOCK=16)
    return mean, variance


def row_moments_reference(x, unbiased=True):
    wide = x.double() if x.dtype == torch.float64 else x.float()
    return wide.mean(1), wide.var(1, correction=1 if unbiased else 0)
