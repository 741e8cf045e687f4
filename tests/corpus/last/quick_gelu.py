import torch
import triton
import triton.language as tl

INPUTS = {"x": "... cols"}


@triton.jit
def quick_gelu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.float32)
    lowest = tl.min(tl.where(x == x, x, 0.0))
    if lowest > 3.0:
        tl.store(y_ptr + at, x, mask=at < n)
    else:
        half = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
        y = tl.where(x == -float("inf"), float("nan"), half)
        tl.store(y_ptr + at, y, mask=at < n)


def quick_gelu(x):
    """GELU; blocks that lie in the straight part are copied."""
    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        block = 32
        quick_gelu_kernel[(triton.cdiv(x.numel(), block),)](x, y, x.numel(), BLOCK=block)
    return y


def quick_gelu_reference(x):
    wide = x.float()
    return (0.5 * wide * (1 + torch.erf(wide * 0.7071067811865476))).to(x.dtype)
