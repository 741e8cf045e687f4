import torch
import triton
import triton.language as tl

INPUTS = {"q": "heads queries width", "k": "heads keys width", "v": "heads keys width", "bias": "heads queries keys"}
SIZES = {"queries": (1, 5, 20), "keys": (1, 16, 20, 33), "width": (4, 16)}


@triton.jit
def biased_attention_kernel(
    q_ptr, k_ptr, v_ptr, bias_ptr, out_ptr, queries, keys, width, scale, BN: tl.constexpr, BD: tl.constexpr
):
    head = tl.program_id(0).to(tl.int64)
    row = head * queries + tl.program_id(1)
    d = tl.arange(0, BD)
    q = tl.load(q_ptr + row * width + d, mask=d < width, other=0.0).to(tl.float32) * (scale * 1.4426950408889634)
    top = -float("inf")
    total = 0.0
    acc = tl.zeros((BD,), dtype=tl.float32)
    for start in range(0, keys, BN):
        n = start + tl.arange(0, BN)
        inside = (n[:, None] < keys) & (d[None, :] < width)
        at = (head * keys + n[:, None]) * width + d[None, :]
        k = tl.load(k_ptr + at, mask=inside, other=0.0).to(tl.float32)
        v = tl.load(v_ptr + at, mask=inside, other=0.0).to(tl.float32)
        bias = tl.load(bias_ptr + row * keys + n, mask=n < keys, other=0.0).to(tl.float32)
        s = tl.sum(q[None, :] * k, axis=1) + bias
        s = tl.where(n < keys, s, -float("inf"))
        higher = tl.maximum(top, tl.max(s))
        p = tl.exp2(s - higher)
        old = tl.exp2(top - higher)
        acc = acc * old + tl.sum(p[:, None] * v, axis=0)
        total = total * old + tl.sum(p)
        top = higher
    tl.store(out_ptr + row * width + d, acc / total, mask=d < width)


def biased_attention(q, k, v, bias):
    """Attention with a bias that is added to the scaled scores."""
    q, k, v, bias = q.contiguous(), k.contiguous(), v.contiguous(), bias.contiguous()
    heads, queries, width = q.shape
    out = torch.empty_like(q)
    if out.numel():
        biased_attention_kernel[(heads, queries)](
            q, k, v, bias, out, queries, k.shape[1], width, width**-0.5, BN=16, BD=triton.next_power_of_2(width)
        )
    return out


def biased_attention_reference(q, k, v, bias):
    scores = q.double() @ k.double().transpose(1, 2) * q.shape[2] ** -0.5 + bias.double()
    return (torch.softmax(scores, -1) @ v.double()).to(q.dtype)
