import torch
import triton
import triton.language as tl

INPUTS = {"q": "heads queries width", "k": "heads keys width", "v": "heads keys width", "scale": (0.125, 1.0)}
SIZES = {"queries": (1, 5, 16, 20), "keys": (1, 16, 20, 33), "width": (4, 16)}


@triton.jit
def causal_attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, queries, keys, width, scale, BN: tl.constexpr, BD: tl.constexpr
):
    head = tl.program_id(0).to(tl.int64)
    query = tl.program_id(1)
    d = tl.arange(0, BD)
    q = tl.load(q_ptr + (head * queries + query) * width + d, mask=d < width, other=0.0).to(tl.float32) * scale
    last = query + tl.maximum(keys - queries, 0)
    top = -float("inf")
    total = 0.0
    acc = tl.zeros((BD,), dtype=tl.float32)
    for start in range(0, last + 1, BN):
        n = start + tl.arange(0, BN)
        inside = (n[:, None] < keys) & (d[None, :] < width)
        at = (head * keys + n[:, None]) * width + d[None, :]
        k = tl.load(k_ptr + at, mask=inside, other=0.0).to(tl.float32)
        s = tl.where((n <= last) & (n < keys), tl.sum(q[None, :] * k, axis=1), -float("inf"))
        higher = tl.maximum(top, tl.max(s))
        shift = tl.where(higher == -float("inf"), 0.0, higher)
        p = tl.exp(s - shift)
        old = tl.exp(top - shift)
        v = tl.load(v_ptr + at, mask=inside & (n[:, None] <= last), other=0.0).to(tl.float32)
        acc = acc * old + tl.sum(p[:, None] * v, axis=0)
        total = total * old + tl.sum(p)
        top = higher
    y = tl.where(last < 0, 0.0, acc / total)
    tl.store(out_ptr + (head * queries + query) * width + d, y, mask=d < width)


def causal_attention(q, k, v, scale):
    """Causal attention whose last query sees all keys; queries that see none give zeros."""
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    heads, queries, width = q.shape
    out = torch.zeros_like(q)
    if out.numel() and k.numel():
        causal_attention_kernel[(heads, queries)](
            q, k, v, out, queries, k.shape[1], width, scale, BN=16, BD=triton.next_power_of_2(width)
        )
    return out


def causal_attention_reference(q, k, v, scale):
    queries, keys = q.shape[1], k.shape[1]
    scores = (q.float() * scale) @ k.float().transpose(1, 2)
    row = torch.arange(queries, device=q.device)[:, None]
    seen = torch.arange(keys, device=q.device)[None, :] <= row + keys - queries
    p = torch.softmax(scores.masked_fill(~seen, -float("inf")), -1)
    p = torch.where(seen.any(1)[:, None], p, torch.zeros_like(p))
    out = torch.zeros_like(q, dtype=torch.float32)
    for i in range(queries):
        n = int(seen[i].sum())
        if n:
            out[:, i] = (p[:, i, :n, None] * v[:, :n].float()).sum(1)
    return out.to(q.dtype)
