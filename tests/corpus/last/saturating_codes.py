import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols", "scale": (0.05, 0.5), "zero": (0, 10)}


@triton.jit
def saturating_codes_kernel(x_ptr, q_ptr, n, inverse, zero, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
    x = tl.where(x == x, x, 0.0)
    y = x * inverse
    y = tl.where(y > 127.0, 127.0, tl.where(y < -128.0, -128.0, y))
    q = tl.floor(y + 0.5).to(tl.int32) + zero
    tl.store(q_ptr + at, q.to(tl.int8), mask=mask)


def saturating_codes(x, scale, zero=0):
    """round(x / scale) + zero in 8 bits; what is beyond them becomes the nearest code."""
    x = x.contiguous()
    codes = torch.empty(x.shape, dtype=torch.int8, device=x.device)
    if x.numel():
        saturating_codes_kernel[(triton.cdiv(x.numel(), 64),)](x, codes, x.numel(), 1.0 / scale, zero, BLOCK=64)
    return codes.to(torch.float32) - zero


def saturating_codes_reference(x, scale, zero=0):
    wide = torch.nan_to_num(x.float(), nan=0.0) * (1.0 / scale)
    return torch.clamp(torch.floor(wide.clamp(-1000, 1000) + 0.5) + zero, -128, 127) - zero
