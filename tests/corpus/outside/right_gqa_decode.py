"""Decoding attention with grouped heads over caches of different lengths: a program for a sequence and a query head."""

import torch
import triton
import triton.language as tl


@triton.jit
def _decode(
    q_ptr, k_ptr, v_ptr, lens_ptr, o_ptr, sqb, sqh, sqd, skb, skt, skh, skd, svb, svt, svh, svd,
    heads, group, dim, scale, BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0).to(tl.int64)
    h = tl.program_id(1).to(tl.int64)
    kvh = h // group
    length = tl.load(lens_ptr + b).to(tl.int32)
    d = tl.arange(0, BLOCK_D).to(tl.int64)
    q = tl.load(q_ptr + b * sqb + h * sqh + d * sqd, mask=d < dim, other=0.0).to(tl.float32)
    m = -float("inf")
    l = 0.0  # noqa: E741
    acc = tl.zeros((BLOCK_D,), tl.float32)
    for start in range(0, length, BLOCK_T):
        t = start + tl.arange(0, BLOCK_T).to(tl.int64)
        mask = (t[:, None] < length) & (d[None, :] < dim)
        k = tl.load(k_ptr + b * skb + t[:, None] * skt + kvh * skh + d[None, :] * skd, mask=mask, other=0.0)
        s = tl.sum(q[None, :] * k.to(tl.float32), axis=1) * scale
        s = tl.where(t < length, s, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, axis=0))
        p = tl.exp(s - m_new)
        alpha = tl.exp(m - m_new)
        v = tl.load(v_ptr + b * svb + t[:, None] * svt + kvh * svh + d[None, :] * svd, mask=mask, other=0.0)
        acc = acc * alpha + tl.sum(p[:, None] * v.to(tl.float32), axis=0)
        l = l * alpha + tl.sum(p, axis=0)  # noqa: E741
        m = m_new
    out = tl.where(length > 0, acc / tl.where(length > 0, l, 1.0), 0.0)
    tl.store(o_ptr + (b * heads + h) * dim + d, out, mask=d < dim)


@torch.no_grad()
def gqa_decode(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """q (batch, heads, dim), k and v (batch, time, kv_heads, dim), lengths int32 (batch,). A length of 0 gives zeros.

    Inputs must be finite.
    """
    if q.dim() != 3 or k.dim() != 4 or v.shape != k.shape:
        raise ValueError("q must be (batch, heads, dim), k and v (batch, time, kv_heads, dim)")
    batch, heads, dim = q.shape
    if k.shape[0] != batch or k.shape[3] != dim or k.shape[2] == 0 or heads % k.shape[2]:
        raise ValueError("k doesn't fit q: heads must be a multiple of kv_heads")
    if dim > 256 or heads > 65535:
        raise ValueError("dim may be at most 256, heads at most 65535")
    if lengths.shape != (batch,) or lengths.dtype != torch.int32:
        raise ValueError("lengths must be int32 (batch,)")
    if batch and (int(lengths.min()) < 0 or int(lengths.max()) > k.shape[1]):
        raise ValueError("a length is longer than the cache")
    if q.dtype not in (torch.float16, torch.bfloat16, torch.float32) or {k.dtype, v.dtype} != {q.dtype}:
        raise ValueError("q, k and v must have one dtype: float16, bfloat16 or float32")
    if q.requires_grad or k.requires_grad or v.requires_grad:
        raise ValueError("gqa_decode has no backward pass")
    if not all(bool(torch.isfinite(t).all()) for t in (q, k, v)):
        raise ValueError("q, k and v must be finite")
    o = torch.empty((batch, heads, dim), dtype=q.dtype, device=q.device)
    if o.numel():
        _decode[(batch, heads)](
            q, k, v, lengths.contiguous(), o, *q.stride(), *k.stride(), *v.stride(), heads, heads // k.shape[2], dim,
            dim**-0.5, BLOCK_T=32, BLOCK_D=triton.next_power_of_2(dim),
        )  # fmt: skip
    return o


def gqa_decode_inputs(batch, time, kv_heads, dim):
    lengths = torch.randint(0, time + 1, (batch,), dtype=torch.int32)
    if batch:
        lengths[-1] = time
    return {
        "q": torch.randn(batch, 3 * kv_heads, dim),
        "k": torch.randn(batch, time, kv_heads, dim),
        "v": torch.randn(batch, time, kv_heads, dim),
        "lengths": lengths,
    }


def gqa_decode_reference(q, k, v, lengths):
    wide = torch.promote_types(q.dtype, torch.float32)
    group = q.shape[1] // max(k.shape[2], 1)
    out = torch.zeros(q.shape, dtype=wide, device=q.device)
    for b, n in enumerate(lengths.tolist()):
        if n:
            kb, vb = (x[b, :n].to(wide).repeat_interleave(group, dim=1) for x in (k, v))
            p = torch.softmax(torch.einsum("hd,thd->ht", q[b].to(wide), kb) * q.shape[2] ** -0.5, dim=-1)
            out[b] = torch.einsum("ht,thd->hd", p, vb)
    return out.to(q.dtype)
