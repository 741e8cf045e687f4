"""Linear attention with a fixed decay a head, chunk by chunk, the state in float32: block pointers throughout.
o[t] = scale * sum over s <= t of decay**(t - s) * (q[t] . k[s]) v[s]"""
import math

import torch
import triton
import triton.language as tl

INPUTS = {"q": "batch time 2 16", "k": "batch time 2 16", "v": "batch time 2 vdim"}


@triton.jit
def _retention(q, k, v, o, sqb, sqt, sqh, skb, skt, skh, svb, svt, svh, T, V, scale,
               H: tl.constexpr, K: tl.constexpr, BT: tl.constexpr, BV: tl.constexpr):
    i_v = tl.program_id(0)
    i_bh = tl.program_id(1)
    i_b = (i_bh // H).to(tl.int64)
    i_h = (i_bh % H).to(tl.int64)
    lg = tl.log2(1.0 - tl.exp2(-5.0 - i_h.to(tl.float32)))
    t = tl.arange(0, BT)
    gap = (t[:, None] - t[None, :]).to(tl.float32)
    decay = tl.where(t[:, None] >= t[None, :], tl.exp2(gap * lg), 0.0)
    into = tl.exp2((t + 1).to(tl.float32) * lg)
    state = tl.zeros((K, BV), dtype=tl.float32)
    for c in range(0, tl.cdiv(T, BT)):
        pq = tl.make_block_ptr(q + i_b * sqb + i_h * sqh, (T, K), (sqt, 1), (c * BT, 0), (BT, K), (1, 0))
        pk = tl.make_block_ptr(k + i_b * skb + i_h * skh, (K, T), (1, skt), (0, c * BT), (K, BT), (0, 1))
        pv = tl.make_block_ptr(v + i_b * svb + i_h * svh, (T, V), (svt, 1), (c * BT, i_v * BV), (BT, BV), (1, 0))
        po = tl.make_block_ptr(o + (i_b * T * H + i_h) * V, (T, V), (H * V, 1), (c * BT, i_v * BV), (BT, BV), (1, 0))
        bq = tl.load(pq, boundary_check=(0,), padding_option="zero").to(tl.float32) * scale
        bk = tl.load(pk, boundary_check=(1,), padding_option="zero").to(tl.float32)
        bv = tl.load(pv, boundary_check=(0, 1), padding_option="zero").to(tl.float32)
        bs = tl.dot(bq, bk, input_precision="ieee") * decay
        bo = tl.dot(bs, bv, input_precision="ieee") + tl.dot(bq * into[:, None], state, input_precision="ieee")
        tl.store(po, bo.to(po.dtype.element_ty), boundary_check=(0, 1))
        # only whole chunks are followed by another, so a short last one may spoil the state
        out = tl.exp2((BT - 1 - t).to(tl.float32) * lg)
        state = state * tl.exp2(BT * lg) + tl.dot(bk * out[None, :], bv, input_precision="ieee")


def retention(q, k, v):
    B, T, H, K = q.shape
    if k.shape != q.shape or v.shape[:3] != q.shape[:3] or v.dim() != 4:
        raise ValueError("q, k: (batch, time, heads, dim), v: (batch, time, heads, vdim)")
    if not q.dtype == k.dtype == v.dtype:
        raise TypeError("one dtype")
    if torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v)):
        raise RuntimeError("forward only")
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    V = v.shape[3]
    o = torch.empty((B, T, H, V), dtype=v.dtype, device=v.device)
    if o.numel():
        _retention[(triton.cdiv(V, 16), B * H)](q, k, v, o, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], T, V,
                                               1.0 / math.sqrt(K), H=H, K=K, BT=16, BV=16)
    return o


def retention_reference(q, k, v):
    if k.shape != q.shape or v.shape[:3] != q.shape[:3]:
        raise ValueError("shapes")
    T, H = q.shape[1:3]
    g = torch.log2(1 - 2.0 ** (-5 - torch.arange(H, dtype=torch.float32, device=q.device)))
    t = torch.arange(T, device=q.device)
    gap = (t[:, None] - t[None, :]).float()
    decay = torch.where(gap >= 0, torch.exp2(gap * g[:, None, None]), torch.zeros(()))
    s = torch.einsum("bthd,bshd->bhts", q.float(), k.float()) * q.shape[3] ** -0.5 * decay
    return torch.einsum("bhts,bshv->bthv", s, v.float()).to(v.dtype)
