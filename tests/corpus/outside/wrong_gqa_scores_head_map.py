# kind: head mapping of grouped queries; fault: neighbouring query heads must share a key head, here they take turns
# (line 19)
# source: own; right where each head has its own key head, and where there is one key head

import torch
import triton
import triton.language as tl

INPUTS = {"q": "tokens 2*kvheads dim", "k": "time kvheads dim"}


@triton.jit
def _scores(
    q_ptr, k_ptr, s_ptr, T, heads, kv_heads, group, dim, sqt, sqh, sqd, skt, skh, skd, scale,
    BT: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    h = tl.program_id(1).to(tl.int64)
    kvh = h % kv_heads
    d = tl.arange(0, BD).to(tl.int64)
    q = tl.load(q_ptr + token * sqt + h * sqh + d * sqd, mask=d < dim, other=0.0).to(tl.float32)
    for start in range(0, T, BT):
        t = start + tl.arange(0, BT).to(tl.int64)
        mask = (t[:, None] < T) & (d[None, :] < dim)
        k = tl.load(k_ptr + t[:, None] * skt + kvh * skh + d[None, :] * skd, mask=mask, other=0.0).to(tl.float32)
        s = tl.sum(k * q[None, :], axis=1) * scale
        tl.store(s_ptr + (token * heads + h) * T + t, s, mask=t < T)


def gqa_scores(q, k):
    """q (tokens, heads, dim), k (time, kv_heads, dim) → (tokens, heads, time); heads of a group are neighbours."""
    if q.dim() != 3 or k.dim() != 3 or q.shape[2] != k.shape[2]:
        raise ValueError("q must be (tokens, heads, dim) and k (time, kv_heads, dim)")
    tokens, heads, dim = q.shape
    T, kv_heads, _ = k.shape
    if kv_heads == 0 or heads % kv_heads or heads > 65535:
        raise ValueError("heads must be a multiple of kv_heads, and at most 65535")
    if dim == 0 or dim > 256:
        raise ValueError("dim must be from 1 to 256")
    if q.dtype not in (torch.float16, torch.bfloat16, torch.float32) or k.dtype != q.dtype:
        raise ValueError("q and k must both be float16, bfloat16 or float32")
    if q.requires_grad or k.requires_grad:
        raise ValueError("no backward pass")
    s = torch.empty((tokens, heads, T), dtype=q.dtype, device=q.device)
    if s.numel():
        _scores[(tokens, heads)](
            q, k, s, T, heads, kv_heads, heads // kv_heads, dim, *q.stride(), *k.stride(), dim**-0.5,
            BT=32, BD=triton.next_power_of_2(dim),
        )  # fmt: skip
    return s


def gqa_scores_reference(q, k):
    wide = torch.promote_types(q.dtype, torch.float32)
    k = k.to(wide).repeat_interleave(q.shape[1] // max(k.shape[1], 1), dim=1)
    return (torch.einsum("qhd,thd->qht", q.to(wide), k) * q.shape[2] ** -0.5).to(q.dtype)
