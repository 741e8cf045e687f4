import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols"}


@triton.jit
def column_peak_kernel(x_ptr, peak_ptr, rows, cols, s_r, s_c, BLOCK: tl.constexpr):
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = c < cols
    peak = tl.zeros((BLOCK,), dtype=tl.float32)
    for row in range(rows):
        x = tl.load(x_ptr + row * s_r + c * s_c, mask=mask, other=0.0).to(tl.float32)
        x = tl.where(x == x, x, 0.0)
        peak = tl.maximum(peak, tl.abs(x))
    tl.store(peak_ptr + c, peak, mask=mask)


@triton.jit
def divide_kernel(x_ptr, peak_ptr, cols, s_r, s_c, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = c < cols
    peak = tl.load(peak_ptr + c, mask=mask, other=1.0)
    x = tl.load(x_ptr + row * s_r + c * s_c, mask=mask, other=0.0).to(tl.float32)
    tl.store(x_ptr + row * s_r + c * s_c, x / tl.where(peak > 0.0, peak, 1.0), mask=mask)


def two_launches(x):
    """Each column divided by its largest absolute value (NaN aside); a copy of x is worked on in place."""
    y = x.detach().clone(memory_format=torch.contiguous_format)
    rows, cols = y.shape
    if y.numel():
        peak = torch.empty(cols, dtype=torch.float32, device=y.device)
        block = 32
        column_peak_kernel[(triton.cdiv(cols, block),)](y, peak, rows, cols, *y.stride(), BLOCK=block)
        divide_kernel[(rows, triton.cdiv(cols, block))](y, peak, cols, *y.stride(), BLOCK=block)
    return y


def two_launches_reference(x):
    if x.numel() == 0:
        return x.clone()
    wide = x.float()
    peak = torch.where(wide.isnan(), torch.zeros_like(wide), wide.abs()).amax(0)
    return (wide / torch.where(peak > 0, peak, torch.ones_like(peak))).to(x.dtype)
