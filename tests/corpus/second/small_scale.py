import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols", "power": (1.0, 2.0)}


@triton.jit
def small_scale_kernel(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(y_ptr + at, x * factor, mask=at < n)


def small_scale(x, power):
    """`x * 2**power` of at most 2**30 numbers."""
    n = x.numel()
    if n > 2**30:
        raise ValueError("more than 2**30 numbers")
    x = x.contiguous()
    y = torch.empty_like(x)
    if n:
        small_scale_kernel[(triton.cdiv(n, 128),)](x, y, n, 2.0**power, BLOCK=128)
    return y


def small_scale_reference(x, power):
    return (x.double() * 2.0**power).to(x.dtype)
