import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols"}


@triton.jit
def to_codes_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.float32)
    x = tl.where(x == x, x, 0.0)
    x = tl.minimum(tl.maximum(x * 4.0, -128.0), 127.0)
    low = tl.floor(x)
    rest = x - low
    odd = low - 2.0 * tl.floor(low * 0.5)
    up = (rest > 0.5) | ((rest == 0.5) & (odd == 1.0))
    tl.store(out_ptr + at, (low + tl.where(up, 1.0, 0.0)).to(tl.int8), mask=at < n)


def to_codes(x):
    """Four times each number, rounded to int8, halves to even; what is too large is cut off, and NaN gives 0."""
    x = x.contiguous()
    out = torch.empty(x.shape, dtype=torch.int8, device=x.device)
    if x.numel():
        to_codes_kernel[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), BLOCK=128)
    return out


def to_codes_reference(x):
    return (x.double().nan_to_num(nan=0.0) * 4).clamp(-128, 127).round().to(torch.int8)
