"""Attention with a causal sliding window that is one key too wide (after vllm-project/vllm#30887 and its window edges)."""
import torch
import triton
import triton.language as tl

INPUTS = {"q": "time 16", "k": "time 16", "v": "time 16", "window": (1, 4)}


@triton.jit
def _attn(Q, K, V, O, T, sq, sk, sv, scale, window, D: tl.constexpr, BT: tl.constexpr):
    t = tl.program_id(0).to(tl.int64) * BT + tl.arange(0, BT)
    d = tl.arange(0, D)
    q = tl.load(Q + t[:, None] * sq + d[None, :], mask=t[:, None] < T, other=0.0).to(tl.float32) * scale
    m = tl.full((BT,), -float("inf"), tl.float32)
    l = tl.zeros((BT,), tl.float32)
    acc = tl.zeros((BT, D), tl.float32)
    lo = tl.maximum(tl.program_id(0) * BT - window, 0)
    for s0 in range(lo // BT * BT, (tl.program_id(0) + 1) * BT, BT):
        s = (s0 + tl.arange(0, BT)).to(tl.int64)
        k = tl.load(K + s[:, None] * sk + d[None, :], mask=s[:, None] < T, other=0.0).to(tl.float32)
        v = tl.load(V + s[:, None] * sv + d[None, :], mask=s[:, None] < T, other=0.0).to(tl.float32)
        ok = (s[None, :] <= t[:, None]) & (t[:, None] - s[None, :] <= window) & (s[None, :] < T)
        x = tl.where(ok, tl.dot(q, tl.trans(k), input_precision="ieee"), -float("inf"))
        mn = tl.maximum(m, tl.max(x, axis=1))
        ms = tl.where(mn == -float("inf"), 0.0, mn)
        p = tl.exp(x - ms[:, None])
        a = tl.exp(m - ms)
        l = l * a + tl.sum(p, axis=1)
        acc = acc * a[:, None] + tl.dot(p, v, input_precision="ieee")
        m = mn
    tl.store(O + t[:, None] * D + d[None, :], acc / l[:, None], mask=t[:, None] < T)


def window_attention(q, k, v, window):
    if q.dim() != 2 or not q.shape == k.shape == v.shape or q.shape[1] != 16 or not q.dtype == k.dtype == v.dtype:
        raise ValueError("q, k, v: (time, 16)")
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        raise RuntimeError("forward only")
    if not (torch.isfinite(q).all() and torch.isfinite(k).all() and torch.isfinite(v).all()):
        raise ValueError("finite only")
    q, k, v = (x if x.stride(1) == 1 else x.contiguous() for x in (q, k, v))
    T, D = q.shape
    o = torch.empty((T, D), dtype=q.dtype, device=q.device)
    if T:
        _attn[(triton.cdiv(T, 16),)](q, k, v, o, T, q.stride(0), k.stride(0), v.stride(0), D**-0.5, window, D=D, BT=16)
    return o


def window_attention_reference(q, k, v, window):
    """Each token sees itself and the window - 1 tokens before it."""
    if not (torch.isfinite(q).all() and torch.isfinite(k).all() and torch.isfinite(v).all()):
        raise ValueError("finite only")
    t = torch.arange(q.shape[0])
    gap = t[:, None] - t[None, :]
    s = (q.float() @ k.float().T) * q.shape[1] ** -0.5
    return (s.masked_fill((gap < 0) | (gap >= window), -float("inf")).softmax(-1) @ v.float()).to(q.dtype)
