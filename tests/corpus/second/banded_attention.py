import torch
import triton
import triton.language as tl

INPUTS = {"q": "heads length width", "k": "heads length width", "v": "heads length width", "window": (1, 6, 40)}
SIZES = {"length": (1, 8, 16, 30, 50), "width": (4, 16)}


@triton.jit
def banded_attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, length, width, window, scale, BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr
):
    head = tl.program_id(0).to(tl.int64)
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    d = tl.arange(0, BD)
    rows = (head * length + m[:, None]) * width + d[None, :]
    inside = (m[:, None] < length) & (d[None, :] < width)
    q = tl.load(q_ptr + rows, mask=inside, other=0.0).to(tl.float32) * scale
    top = tl.full((BM,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BM,), dtype=tl.float32)
    acc = tl.zeros((BM, BD), dtype=tl.float32)
    first = tl.maximum(tl.program_id(1) * BM - window + 1, 0) // BN * BN
    for start in range(first, tl.minimum((tl.program_id(1) + 1) * BM, length), BN):
        n = start + tl.arange(0, BN)
        at = (head * length + n[:, None]) * width + d[None, :]
        there = (n[:, None] < length) & (d[None, :] < width)
        k = tl.load(k_ptr + at, mask=there, other=0.0).to(tl.float32)
        v = tl.load(v_ptr + at, mask=there, other=0.0).to(tl.float32)
        s = tl.sum(q[:, None, :] * k[None, :, :], axis=2)
        seen = (n[None, :] <= m[:, None]) & (m[:, None] - n[None, :] < window)
        s = tl.where(seen, s, -float("inf"))
        higher = tl.maximum(top, tl.max(s, axis=1))
        p = tl.exp(s - higher[:, None])
        old = tl.exp(top - higher)
        acc = acc * old[:, None] + tl.sum(p[:, :, None] * v[None, :, :], axis=1)
        total = total * old + tl.sum(p, axis=1)
        top = higher
    tl.store(out_ptr + rows, acc / total[:, None], mask=inside)


def banded_attention(q, k, v, window):
    """Causal attention, in which a query sees the last `window` keys up to its own."""
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    heads, length, width = q.shape
    out = torch.empty_like(q)
    if out.numel():
        banded_attention_kernel[(heads, triton.cdiv(length, 16))](
            q, k, v, out, length, width, window, width**-0.5, BM=16, BN=8, BD=triton.next_power_of_2(width)
        )
    return out


def banded_attention_reference(q, k, v, window):
    length = q.shape[1]
    scores = q.double() @ k.double().transpose(1, 2) * q.shape[2] ** -0.5
    away = torch.arange(length, device=q.device)[:, None] - torch.arange(length, device=q.device)[None]
    scores = scores.masked_fill((away < 0) | (away >= window), -float("inf"))
    return (torch.softmax(scores, -1) @ v.double()).to(q.dtype)
