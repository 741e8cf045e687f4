"""Causal attention with a window over packed sequences; a program for a token and a head. Empty sequences are fine."""

import torch
import triton
import triton.language as tl


@triton.jit
def _attend(
    q_ptr, k_ptr, v_ptr, begin_ptr, o_ptr, sqt, sqh, skt, skh, svt, svh, H, dim, window, scale,
    BN: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64)
    h = tl.program_id(1).to(tl.int64)
    d = tl.arange(0, BD)
    q = tl.load(q_ptr + i * sqt + h * sqh + d, mask=d < dim, other=0.0).to(tl.float32) * scale
    first = tl.maximum(tl.load(begin_ptr + i), i - window + 1)
    m = -float("inf")
    norm = 0.0
    acc = tl.zeros((BD,), tl.float32)
    for start in range(first, i + 1, BN):
        j = start + tl.arange(0, BN).to(tl.int64)
        mask = (j[:, None] <= i) & (d[None, :] < dim)
        k = tl.load(k_ptr + j[:, None] * skt + h * skh + d[None, :], mask=mask, other=0.0).to(tl.float32)
        s = tl.where(j <= i, tl.sum(q[None, :] * k, axis=1), -float("inf"))
        m_new = tl.maximum(m, tl.max(s, axis=0))
        p = tl.exp(s - m_new)
        v = tl.load(v_ptr + j[:, None] * svt + h * svh + d[None, :], mask=mask, other=0.0).to(tl.float32)
        acc = acc * tl.exp(m - m_new) + tl.sum(p[:, None] * v, axis=0)
        norm = norm * tl.exp(m - m_new) + tl.sum(p, axis=0)
        m = m_new
    tl.store(o_ptr + (i * H + h) * dim + d, acc / norm, mask=d < dim)


def varlen_window_attention(q, k, v, cu_seqlens, window):
    """q, k, v (tokens, heads, dim), cu_seqlens int32 (sequences + 1,). A token sees `window` tokens with itself."""
    assert q.is_cuda, "q must be on a GPU"
    if q.ndim != 3 or k.shape != q.shape or v.shape != q.shape:
        raise ValueError("q, k and v must be (tokens, heads, dim)")
    if q.dtype not in (torch.float16, torch.bfloat16, torch.float32) or {k.dtype, v.dtype} != {q.dtype}:
        raise ValueError("q, k and v must have one dtype: float16, bfloat16 or float32")
    if cu_seqlens.ndim != 1 or cu_seqlens.dtype != torch.int32 or cu_seqlens.numel() < 1:
        raise ValueError("cu_seqlens must be a vector of int32")
    tokens, heads, dim = q.shape
    if int(cu_seqlens[0]) != 0 or int(cu_seqlens[-1]) != tokens or bool((cu_seqlens.diff() < 0).any()):
        raise ValueError("cu_seqlens must rise from 0 to the number of tokens")
    if window < 1:
        raise ValueError("window must be at least 1")
    if dim > 256 or heads > 65535:
        raise ValueError("dim may be at most 256, heads at most 65535")
    if q.requires_grad or k.requires_grad or v.requires_grad:
        raise ValueError("varlen_window_attention has no backward pass")
    o = torch.empty((tokens, heads, dim), dtype=q.dtype, device=q.device)
    if o.numel():
        q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
        lengths = cu_seqlens.diff().long()
        begin = torch.repeat_interleave(cu_seqlens[:-1].long(), lengths)
        with torch.cuda.device(q.device):
            _attend[(tokens, heads)](
                q, k, v, begin, o, q.stride(0), q.stride(1), k.stride(0), k.stride(1), v.stride(0), v.stride(1),
                heads, dim, window, dim**-0.5, BN=32, BD=triton.next_power_of_2(dim),
            )  # fmt: skip
    return o


def varlen_window_attention_inputs(tokens, heads, dim):
    cuts = torch.sort(torch.randint(0, tokens + 1, (3,))).values
    cuts[1] = cuts[0]  # an empty sequence
    cu = torch.cat([torch.tensor([0]), cuts, torch.tensor([tokens])]).to(torch.int32)
    q, k, v = torch.randn(3, tokens, heads, dim)
    return {"q": q, "k": k, "v": v, "cu_seqlens": cu, "window": 5}


def varlen_window_attention_reference(q, k, v, cu_seqlens, window):
    wide = torch.promote_types(q.dtype, torch.float32)
    outs = []
    for a, b in zip(cu_seqlens.tolist(), cu_seqlens.tolist()[1:]):
        for i in range(a, b):
            lo = max(a, i - window + 1)
            s = torch.einsum("hd,thd->ht", q[i].to(wide), k[lo : i + 1].to(wide)) * q.shape[2] ** -0.5
            outs.append(torch.einsum("ht,thd->hd", torch.softmax(s, -1), v[lo : i + 1].to(wide)))
    return torch.stack(outs).to(q.dtype) if outs else torch.empty_like(q)
