"""float32 → bfloat16 with stochastic rounding; the random bits are handed in, so that a run can be repeated."""

import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols: float32", "noise": "rows cols: int64 below 65536"}


@triton.jit
def _round(x_ptr, noise_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    r = tl.load(noise_ptr + i, mask=i < n, other=0).to(tl.int32) & 0xFFFF
    bits = x.to(tl.int32, bitcast=True)
    rounded = (bits + r) & -65536
    special = (bits & 0x7F800000) == 0x7F800000  # infinities and NaN are not rounded
    y = tl.where(special, x, rounded.to(tl.float32, bitcast=True))
    tl.store(y_ptr + i, y.to(tl.bfloat16), mask=i < n)


def stochastic_round_bf16(x, noise):
    """x float32, noise int64 with its low 16 bits at random, of one shape."""
    if x.dtype != torch.float32 or noise.dtype != torch.int64:
        raise ValueError("x must be float32 and noise int64")
    if x.shape != noise.shape or x.device != noise.device:
        raise ValueError("x and noise must have one shape and device")
    if x.requires_grad:
        raise ValueError("rounding has no gradient")
    y = torch.empty(x.shape, dtype=torch.bfloat16, device=x.device)
    if n := x.numel():
        _round[(triton.cdiv(n, 512),)](x.contiguous(), noise.contiguous(), y, n, BLOCK=512)
    return y


def stochastic_round_bf16_reference(x, noise):
    bits = x.float().contiguous().view(torch.int32)
    rounded = ((bits + (noise.to(torch.int32) & 0xFFFF)) & -65536).view(torch.float32)
    return torch.where(torch.isfinite(x), rounded, x.float()).to(torch.bfloat16)
