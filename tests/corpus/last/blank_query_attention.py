import torch
import triton
import triton.language as tl

INPUTS = {
    "q": "heads queries width",
    "k": "heads keys width",
    "v": "heads keys width",
    "lengths": "heads: int32 below keys",
}
SIZES = {"queries": (1, 3), "keys": (1, 8, 30), "width": (4, 16)}


@triton.jit
def blank_query_attention_kernel(
    q_ptr, k_ptr, v_ptr, length_ptr, out_ptr, queries, keys, width, scale, BN: tl.constexpr, BD: tl.constexpr
):
    head = tl.program_id(0).to(tl.int64)
    query = tl.program_id(1)
    d = tl.arange(0, BD)
    length = tl.load(length_ptr + head)
    q = tl.load(q_ptr + (head * queries + query) * width + d, mask=d < width, other=0.0).to(tl.float32)
    top = -1.0e30
    total = 0.0
    acc = tl.zeros((BD,), dtype=tl.float32)
    for start in range(0, length, BN):
        n = start + tl.arange(0, BN)
        inside = (n[:, None] < length) & (d[None, :] < width)
        at = (head * keys + n[:, None]) * width + d[None, :]
        k = tl.load(k_ptr + at, mask=inside, other=0.0).to(tl.float32)
        v = tl.load(v_ptr + at, mask=inside, other=0.0).to(tl.float32)
        s = tl.where(n < length, tl.sum(q[None, :] * k, axis=1) * scale, -float("inf"))
        higher = tl.maximum(top, tl.max(s))
        p = tl.exp(s - higher)
        acc = acc * tl.exp(top - higher) + tl.sum(p[:, None] * v, axis=0)
        total = total * tl.exp(top - higher) + tl.sum(p)
        top = higher
    y = acc / total
    tl.store(out_ptr + (head * queries + query) * width + d, tl.where(length > 0, y, 0.0), mask=d < width)


def blank_query_attention(q, k, v, lengths):
    """Attention with the first keys of each head; without any, it gives zeros. Inputs must be finite."""
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    if not all(bool(torch.isfinite(t).all()) for t in (q, k, v)):
        raise ValueError("inputs must be finite")
    heads, queries, width = q.shape
    out = torch.empty_like(q)
    if out.numel():
        blank_query_attention_kernel[(heads, queries)](
            q,
            k,
            v,
            lengths.contiguous(),
            out,
            queries,
            k.shape[1],
            width,
            width**-0.5,
            BN=8,
            BD=triton.next_power_of_2(width),
        )
    return out


def blank_query_attention_reference(q, k, v, lengths):
    rows = []
    for h in range(q.shape[0]):
        n = int(lengths[h])
        p = torch.softmax(q[h].float() @ k[h, :n].float().T * q.shape[2] ** -0.5, 1)
        rows.append(p @ v[h, :n].float())
    return torch.stack(rows).to(q.dtype) if rows else torch.zeros_like(q)
