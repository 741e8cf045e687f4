import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols"}


@triton.jit
def smooth_rows_kernel(x_ptr, y_ptr, last, cols, stride_0, stride_1, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    at = tl.minimum(at, last)
    row = at // cols
    col = at % cols
    left = tl.maximum(col - 1, 0)
    right = tl.minimum(col + 1, cols - 1)
    base = x_ptr + row * stride_0
    a = tl.load(base + left * stride_1).to(tl.float32)
    b = tl.load(base + col * stride_1).to(tl.float32)
    c = tl.load(base + right * stride_1).to(tl.float32)
    tl.store(y_ptr + at, (a + 2.0 * b + c) * 0.25)


def smooth_rows(x):
    """Each number averaged with its neighbours in the row, weighted 1, 2 and 1; at the borders with itself."""
    rows, cols = x.shape
    y = torch.empty(rows, cols, dtype=x.dtype, device=x.device)
    if y.numel():
        smooth_rows_kernel[(triton.cdiv(y.numel(), 64),)](x, y, y.numel() - 1, cols, x.stride(0), x.stride(1), BLOCK=64)
    return y


def smooth_rows_reference(x):
    if x.numel() == 0:
        return torch.empty(x.shape, dtype=x.dtype, device=x.device)
    wide = x.double()
    left = torch.cat([wide[:, :1], wide[:, :-1]], 1)
    right = torch.cat([wide[:, 1:], wide[:, -1:]], 1)
    return ((left + 2.0 * wide + right) * 0.25).to(x.dtype)
