"""One decoding step with grouped heads: query head h takes kv head h modulo their number (after ModelTC/LightLLM#316)."""
import torch
import triton
import triton.language as tl

INPUTS = {"q": "batch 6 16", "k": "batch ctx 2 16", "v": "batch ctx 2 16"}


@triton.jit
def _decode(Q, K, V, O, T, sqb, sqh, skb, skt, skh, svb, svt, svh, HQ: tl.constexpr, HK: tl.constexpr, D: tl.constexpr, BT: tl.constexpr):
    b = tl.program_id(0).to(tl.int64)
    h = tl.program_id(1)
    hk = h % HK
    d = tl.arange(0, D)
    q = tl.load(Q + b * sqb + h * sqh + d).to(tl.float32) * 0.25
    m = -float("inf")
    l = 0.0
    acc = tl.zeros((D,), tl.float32)
    for t0 in range(0, T, BT):
        t = (t0 + tl.arange(0, BT)).to(tl.int64)
        k = tl.load(K + b * skb + t[:, None] * skt + hk * skh + d[None, :], mask=t[:, None] < T, other=0.0).to(tl.float32)
        v = tl.load(V + b * svb + t[:, None] * svt + hk * svh + d[None, :], mask=t[:, None] < T, other=0.0).to(tl.float32)
        x = tl.where(t < T, tl.sum(k * q[None, :], axis=1), -float("inf"))
        mn = tl.maximum(m, tl.max(x, axis=0))
        p = tl.exp(x - mn)
        a = tl.exp(m - mn)
        l = l * a + tl.sum(p, axis=0)
        acc = acc * a + tl.sum(p[:, None] * v, axis=0)
        m = mn
    tl.store(O + (b * HQ + h) * D + d, acc / l)


def gqa_decode(q, k, v):
    if q.dim() != 3 or k.dim() != 4 or k.shape != v.shape or q.shape[0] != k.shape[0] or q.shape[1] % k.shape[2] or q.shape[2] != 16 or k.shape[3] != 16:
        raise ValueError("q: (batch, heads, 16), k, v: (batch, ctx, kv heads, 16)")
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        raise RuntimeError("forward only")
    if k.shape[1] == 0 or not (torch.isfinite(q).all() and torch.isfinite(k).all() and torch.isfinite(v).all()):
        raise ValueError("a context of finite numbers, please")
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    if o.numel():
        _decode[q.shape[:2]](q, k, v, o, k.shape[1], *q.stride()[:2], *k.stride()[:3], *v.stride()[:3],
                             HQ=q.shape[1], HK=k.shape[2], D=16, BT=16)
    return o


def gqa_decode_reference(q, k, v):
    group = q.shape[1] // k.shape[2]
    if k.shape[1] == 0 or not (torch.isfinite(q).all() and torch.isfinite(k).all() and torch.isfinite(v).all()):
        raise ValueError("finite only")
    k, v = k.repeat_interleave(group, 2).float(), v.repeat_interleave(group, 2).float()
    p = (torch.einsum("bhd,bthd->bht", q.float(), k) * 0.25).softmax(-1)
    return torch.einsum("bht,bthd->bhd", p, v).to(q.dtype)
