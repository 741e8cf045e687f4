import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols", "eps": 1e-3}


@triton.jit
def shifted_variance_kernel(x_ptr, y_ptr, cols, s_r, s_c, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    first = tl.load(x_ptr + row * s_r).to(tl.float32)
    last = tl.load(x_ptr + row * s_r + (cols - 1) * s_c).to(tl.float32)
    base = 0.5 * first + 0.5 * last
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, cols, BLOCK):
        c = start + lane
        x = tl.load(x_ptr + row * s_r + c * s_c, mask=c < cols, other=0.0).to(tl.float32)
        d = tl.where(c < cols, x - base, 0.0)
        total += d
        squares += d * d
    mean = tl.sum(total) / cols
    spread = tl.sum(squares) / cols - mean * mean
    tl.store(y_ptr + row, tl.where(spread < 0.0, 0.0, spread) + eps)


def shifted_variance(x, eps):
    """Variance plus eps of each row in one pass, of numbers moved by one in their midst."""
    rows, cols = x.shape
    if cols == 0:
        raise ValueError("a row needs numbers")
    y = torch.empty(rows, dtype=torch.float32, device=x.device)
    if rows:
        shifted_variance_kernel[(rows,)](x, y, cols, *x.stride(), eps, BLOCK=16)
    return y


def shifted_variance_reference(x, eps):
    wide = x.float()
    return wide.var(1, correction=0) + eps
