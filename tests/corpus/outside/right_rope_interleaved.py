"""Rotary embedding of neighbouring pairs (GPT-J), out of place, with gradients for x only."""

import torch
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable

INPUTS = {"x": "batch seq heads 2*half", "positions": "seq: int64 below 100"}


@triton.jit
def _pairs(
    x_ptr, cos_ptr, sin_ptr, y_ptr, seq, heads, half, sxb, sxs, sxh, sxd, n_pairs,
    CONJ: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n_pairs
    d = i % half
    h = (i // half) % heads
    s = (i // half // heads) % seq
    b = i // half // heads // seq
    x0 = x_ptr + b * sxb + s * sxs + h * sxh + 2 * d * sxd
    re = tl.load(x0, mask=mask, other=0.0).to(tl.float32)
    im = tl.load(x0 + sxd, mask=mask, other=0.0).to(tl.float32)
    c = tl.load(cos_ptr + s * half + d, mask=mask, other=0.0)
    sn = tl.load(sin_ptr + s * half + d, mask=mask, other=0.0)
    if CONJ:
        sn = -sn
    tl.store(y_ptr + 2 * i, re * c - im * sn, mask=mask)
    tl.store(y_ptr + 2 * i + 1, im * c + re * sn, mask=mask)


def _table(positions, half, theta=10000.0):
    inv = theta ** -(torch.arange(half, dtype=torch.float64, device=positions.device) / max(half, 1))
    angle = positions.double()[:, None] * inv
    return angle.cos(), angle.sin()


def _launch(x, cos, sin, conj):
    y = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    pairs = y.numel() // 2
    if pairs:
        _pairs[(triton.cdiv(pairs, 256),)](
            x, cos, sin, y, x.shape[1], x.shape[2], x.shape[3] // 2, *x.stride(), pairs, CONJ=conj, BLOCK=256
        )
    return y


class ApplyRotaryPairs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, cos, sin):
        ctx.save_for_backward(cos, sin)
        return _launch(x, cos, sin, False)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        return _launch(dy, *ctx.saved_tensors, True), None, None


def rope_interleaved(x, positions):
    if x.dim() != 4 or x.shape[-1] % 2:
        raise ValueError("x must be (batch, seq, heads, dim) with an even dim")
    if positions.shape != x.shape[1:2] or positions.dtype != torch.int64 or positions.device != x.device:
        raise ValueError("positions must be int64 of shape (seq,) on the device of x")
    if x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("x must be float16, bfloat16 or float32")
    cos, sin = (t.float().contiguous() for t in _table(positions, x.shape[-1] // 2))
    return ApplyRotaryPairs.apply(x, cos, sin)


def rope_interleaved_reference(x, positions):
    wide = torch.promote_types(x.dtype, torch.float32)
    c, s = (t.to(wide)[None, :, None] for t in _table(positions, x.shape[-1] // 2))
    re, im = x.to(wide)[..., 0::2], x.to(wide)[..., 1::2]
    return torch.stack([re * c - im * s, im * c + re * s], dim=-1).flatten(-2).to(x.dtype)
