import torch
import triton
import triton.language as tl

INPUTS = {"q": "batch width", "k": "batch keys width", "v": "batch keys width", "seen": "batch keys: bool"}
SIZES = {"width": (4, 8), "keys": (1, 7, 20)}


@triton.jit
def padded_attention_kernel(
    q_ptr, k_ptr, v_ptr, seen_ptr, out_ptr, keys, width, scale, BN: tl.constexpr, BD: tl.constexpr
):
    batch = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, BN)
    d = tl.arange(0, BD)
    q = tl.load(q_ptr + batch * width + d, mask=d < width, other=0.0).to(tl.float32)
    seen = tl.load(seen_ptr + batch * keys + n, mask=n < keys, other=0) != 0
    at = (batch * keys + n[:, None]) * width + d[None, :]
    inside = seen[:, None] & (d[None, :] < width)
    k = tl.load(k_ptr + at, mask=inside, other=0.0).to(tl.float32)
    v = tl.load(v_ptr + at, mask=inside, other=0.0).to(tl.float32)
    s = tl.sum(q[None, :] * k, axis=1) * scale
    s = tl.where(seen, s, -float("inf"))
    p = tl.exp(s - tl.max(s))
    p = p / tl.sum(p)
    tl.store(out_ptr + batch * width + d, tl.sum(p[:, None] * v, axis=0), mask=d < width)


def padded_attention(q, k, v, seen):
    """One query for each sequence, with the keys that `seen` marks; zeros where there are none."""
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    batch, keys, width = k.shape
    out = torch.zeros_like(q)
    if k.numel():
        padded_attention_kernel[(batch,)](
            q,
            k,
            v,
            seen.contiguous().view(torch.uint8),
            out,
            keys,
            width,
            width**-0.5,
            BN=triton.next_power_of_2(keys),
            BD=triton.next_power_of_2(width),
        )
    return out


def padded_attention_reference(q, k, v, seen):
    hidden = torch.zeros((), device=q.device)
    wide_k = torch.where(seen[:, :, None], k.float(), hidden)
    wide_v = torch.where(seen[:, :, None], v.float(), hidden)
    s = (q.float()[:, None, :] * wide_k).sum(2) * max(q.shape[1], 1) ** -0.5
    p = torch.softmax(s.masked_fill(~seen, -float("inf")), 1)
    p = torch.where(seen.any(1, keepdim=True), p, torch.zeros_like(p))
    return (p[:, :, None] * wide_v).sum(1).to(q.dtype)
