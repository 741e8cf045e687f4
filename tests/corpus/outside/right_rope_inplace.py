"""Rotary embedding of q and k in place, halves rotated (NeoX), any number of query and key heads."""

import torch
import triton
import triton.language as tl

INPUTS = {"q": "tokens heads 2*half", "k": "tokens kvheads 2*half", "cos": "tokens half", "sin": "tokens half"}


@triton.jit
def _rotate(ptr, heads, half, stride_h, stride_d, cos, sin, BLOCK_H: tl.constexpr, BLOCK_D: tl.constexpr):
    d = tl.arange(0, BLOCK_D).to(tl.int64)
    for h0 in range(0, heads, BLOCK_H):
        h = h0 + tl.arange(0, BLOCK_H).to(tl.int64)
        mask = (h[:, None] < heads) & (d[None, :] < half)
        p1 = ptr + h[:, None] * stride_h + d[None, :] * stride_d
        p2 = p1 + tl.cast(half, tl.int64) * stride_d
        a = tl.load(p1, mask=mask, other=0.0).to(tl.float32)
        b = tl.load(p2, mask=mask, other=0.0).to(tl.float32)
        tl.store(p1, a * cos[None, :] - b * sin[None, :], mask=mask)
        tl.store(p2, b * cos[None, :] + a * sin[None, :], mask=mask)


@triton.jit
def _rope_kernel(
    q_ptr, k_ptr, cos_ptr, sin_ptr, q_heads, k_heads, half,
    q_st, q_sh, q_sd, k_st, k_sh, k_sd, c_st, c_sd, s_st, s_sd,
    BLOCK_H: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    t = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, BLOCK_D).to(tl.int64)
    cos = tl.load(cos_ptr + t * c_st + d * c_sd, mask=d < half, other=0.0).to(tl.float32)
    sin = tl.load(sin_ptr + t * s_st + d * s_sd, mask=d < half, other=0.0).to(tl.float32)
    _rotate(q_ptr + t * q_st, q_heads, half, q_sh, q_sd, cos, sin, BLOCK_H, BLOCK_D)
    _rotate(k_ptr + t * k_st, k_heads, half, k_sh, k_sd, cos, sin, BLOCK_H, BLOCK_D)


def _overlaps(x: torch.Tensor) -> bool:
    reach = 1
    for size, stride in sorted(((n, s) for n, s in zip(x.shape, x.stride()) if n > 1), key=lambda p: p[1]):
        if stride < reach:
            return True
        reach = stride * (size - 1) + reach
    return False


def rope_(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor):
    """q (tokens, heads, dim), k (tokens, kv_heads, dim), cos and sin (tokens, dim / 2). Writes and returns q and k."""
    if q.ndim != 3 or k.ndim != 3 or q.shape[0] != k.shape[0] or q.shape[2] != k.shape[2]:
        raise ValueError("q and k must be (tokens, heads, dim) with one number of tokens and one dim")
    tokens, _, dim = q.shape
    if dim % 2 or dim > 512:
        raise ValueError("dim must be even, and at most 512")
    if cos.shape != (tokens, dim // 2) or sin.shape != cos.shape:
        raise ValueError("cos and sin must be (tokens, dim / 2)")
    if q.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("q must be float16, bfloat16 or float32")
    if not q.dtype == k.dtype == cos.dtype == sin.dtype:
        raise ValueError("q, k, cos and sin must have one dtype")
    if any(t.requires_grad for t in (q, k, cos, sin)):
        raise ValueError("rope_ works in place and has no backward pass")
    if _overlaps(q) or _overlaps(k):
        raise ValueError("elements of q and k must not share memory")
    if tokens and dim:
        _rope_kernel[(tokens,)](
            q, k, cos, sin, q.shape[1], k.shape[1], dim // 2, *q.stride(), *k.stride(), *cos.stride(), *sin.stride(),
            BLOCK_H=4, BLOCK_D=triton.next_power_of_2(dim // 2),
        )  # fmt: skip
    return q, k


def rope__reference(q, k, cos, sin):
    wide = torch.promote_types(q.dtype, torch.float32)
    c, s = cos.to(wide)[:, None, :], sin.to(wide)[:, None, :]
    for x in (q, k):
        a, b = x.to(wide).chunk(2, dim=-1)
        x.copy_(torch.cat([a * c - b * s, b * c + a * s], dim=-1).to(x.dtype))
    return q, k
