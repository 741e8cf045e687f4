import torch
import triton
import triton.language as tl

INPUTS = {"q": "heads width", "k": "length heads width", "v": "length heads width", "radius": (1, 7, 30)}
SIZES = {"length": (1, 2, 16, 21, 50), "width": (4, 16, 24)}


@triton.jit
def recent_keys_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, start, length, heads, width, scale, BN: tl.constexpr, BD: tl.constexpr
):
    head = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, BD)
    q = tl.load(q_ptr + head * width + d, mask=d < width, other=0.0).to(tl.float32) * scale
    top = -float("inf")
    total = 0.0
    acc = tl.zeros((BD,), dtype=tl.float32)
    for first in range(start, length, BN):
        n = first + tl.arange(0, BN)
        at = (n[:, None].to(tl.int64) * heads + head) * width + d[None, :]
        inside = (n[:, None] < length) & (d[None, :] < width)
        k = tl.load(k_ptr + at, mask=inside, other=0.0).to(tl.float32)
        v = tl.load(v_ptr + at, mask=inside, other=0.0).to(tl.float32)
        s = tl.where(n < length, tl.sum(q[None, :] * k, axis=1), -float("inf"))
        higher = tl.maximum(top, tl.max(s))
        p = tl.exp(s - higher)
        old = tl.exp(top - higher)
        acc = acc * old + tl.sum(p[:, None] * v, axis=0)
        total = total * old + tl.sum(p)
        top = higher
    tl.store(out_ptr + head * width + d, acc / total, mask=d < width)


def recent_keys(q, k, v, radius):
    """One query, that of the last key, sees this key and the `radius` keys before it."""
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    heads, width = q.shape
    length = k.shape[0]
    out = torch.empty_like(q)
    if out.numel():
        start = max(length - radius, 0)
        recent_keys_kernel[(heads,)](
            q, k, v, out, start, length, heads, width, width**-0.5, BN=16, BD=triton.next_power_of_2(width)
        )
    return out


def recent_keys_reference(q, k, v, radius):
    k, v = k[-1 - radius :].double(), v[-1 - radius :].double()
    scores = torch.einsum("hd,nhd->hn", q.double(), k) * q.shape[1] ** -0.5
    return torch.einsum("hn,nhd->hd", torch.softmax(scores, 1), v).to(q.dtype)
