import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols", "cap": (30.0, 1.0)}


@triton.jit
def bounded_kernel(x_ptr, y_ptr, n, cap, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.float32) / cap
    e = tl.exp(-2.0 * tl.abs(x))
    size = (1.0 - e) / (1.0 + e)
    q = x * x
    small = x * (1.0 - q * (1.0 / 3.0 - q * (2.0 / 15.0 - q * (17.0 / 315.0))))
    y = tl.where(tl.abs(x) < 0.1, small, tl.where(x < 0.0, -size, size))
    tl.store(y_ptr + at, cap * y, mask=at < n)


def bounded(x, cap):
    """`cap * tanh(x / cap)`, for a positive `cap`."""
    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        bounded_kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), cap, BLOCK=128)
    return y


def bounded_reference(x, cap):
    return (cap * torch.tanh(x.double() / cap)).to(x.dtype)
