"""Causal softmax over attention scores with ALiBi's linear bias, a slope for each head."""

import torch
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable

INPUTS = {"scores": "heads time time", "slopes": "heads: float32 positive"}


@triton.jit
def _alibi_fwd(s_ptr, slope_ptr, p_ptr, T, ssh, ssi, ssj, s_sl, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    h, i = row // T, row % T
    j = tl.arange(0, BLOCK).to(tl.int64)
    seen = j <= i
    slope = tl.load(slope_ptr + h * s_sl)
    s = tl.load(s_ptr + h * ssh + i * ssi + j * ssj, mask=seen, other=-float("inf")).to(tl.float32)
    s = tl.where(seen, s + slope * (j - i).to(tl.float32), -float("inf"))
    e = tl.exp(s - tl.max(s, axis=0))
    tl.store(p_ptr + row * T + j, e / tl.sum(e, axis=0), mask=j < T)


@triton.jit
def _alibi_bwd(dp_ptr, p_ptr, ds_ptr, T, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, BLOCK)
    live = j < T
    p = tl.load(p_ptr + row * T + j, mask=live, other=0.0).to(tl.float32)
    dp = tl.load(dp_ptr + row * T + j, mask=live, other=0.0).to(tl.float32)
    tl.store(ds_ptr + row * T + j, p * (dp - tl.sum(p * dp, axis=0)), mask=live)


class AlibiSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, scores, slopes):
        H, T, _ = scores.shape
        p = torch.empty((H, T, T), dtype=torch.float32, device=scores.device)
        block = triton.next_power_of_2(max(T, 1))
        if p.numel():
            _alibi_fwd[(H * T,)](scores, slopes, p, T, *scores.stride(), slopes.stride(0), BLOCK=block)
        ctx.save_for_backward(p)
        ctx.dtype, ctx.block = scores.dtype, block
        return p.to(scores.dtype, copy=True)

    @staticmethod
    @once_differentiable
    def backward(ctx, dp):
        (p,) = ctx.saved_tensors
        H, T, _ = p.shape
        ds = torch.empty(p.shape, dtype=ctx.dtype, device=p.device)
        if p.numel():
            _alibi_bwd[(H * T,)](dp.contiguous(), p, ds, T, BLOCK=ctx.block)
        return ds, None


def alibi_softmax(scores, slopes):
    """Slopes are constants of the model (geometric in the head): a tensor that requires a gradient is refused."""
    if scores.dim() != 3 or scores.shape[1] != scores.shape[2]:
        raise ValueError("scores must be (heads, time, time)")
    if slopes.shape != scores.shape[:1] or slopes.dtype != torch.float32:
        raise ValueError("slopes must be float32 (heads,)")
    if scores.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("scores must be float16, bfloat16 or float32")
    if slopes.requires_grad:
        raise ValueError("slopes has no gradient")
    if scores.shape[1] > 8192:
        raise ValueError("time may be at most 8192")
    return AlibiSoftmax.apply(scores, slopes)


def alibi_softmax_reference(scores, slopes):
    wide = torch.promote_types(scores.dtype, torch.float32)
    t = torch.arange(scores.shape[1], device=scores.device)
    bias = slopes.to(wide)[:, None, None] * (t[None, :] - t[:, None])
    s = (scores.to(wide) + bias).masked_fill(t[None, :] > t[:, None], -float("inf"))
    return torch.softmax(s, dim=-1).to(scores.dtype)
