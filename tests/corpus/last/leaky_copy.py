import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols", "slope": (0.01, 1.0)}


@triton.jit
def leaky_copy_kernel(x_ptr, y_ptr, n, slope, BLOCK: tl.constexpr):
    start = tl.minimum(tl.program_id(0).to(tl.int64) * BLOCK, n - BLOCK)
    at = start + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at).to(tl.float32)
    tl.store(y_ptr + at, tl.where(x > 0.0, x, x * slope))


@triton.jit
def leaky_copy_short_kernel(x_ptr, y_ptr, n, slope, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(y_ptr + at, tl.where(x > 0.0, x, x * slope), mask=at < n)


def leaky_copy(x, slope):
    """Leaky ReLU in full blocks: the last one is moved back and writes some numbers for a second time."""
    x = x.contiguous()
    y = torch.empty_like(x)
    n = x.numel()
    if n >= 32:
        leaky_copy_kernel[(triton.cdiv(n, 32),)](x, y, n, slope, BLOCK=32)
    elif n:
        leaky_copy_short_kernel[(1,)](x, y, n, slope, BLOCK=32)
    return y


def leaky_copy_reference(x, slope):
    wide = x.float()
    return torch.where(wide > 0, wide, wide * slope).to(x.dtype)
