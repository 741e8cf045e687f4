"""Rotary embedding that rotates the tensor of its caller where that is contiguous (after unslothai/unsloth#5001)."""
import torch
import triton
import triton.language as tl

INPUTS = {"q": "tokens heads 8", "cos": "tokens 4: float32", "sin": "tokens 4: float32"}


@triton.jit
def _rope(Q, C, S, H, D: tl.constexpr):
    t = tl.program_id(0).to(tl.int64)
    h = tl.program_id(1)
    i = tl.arange(0, D // 2)
    base = Q + (t * H + h) * D
    a = tl.load(base + i).to(tl.float32)
    b = tl.load(base + D // 2 + i).to(tl.float32)
    c = tl.load(C + t * (D // 2) + i)
    s = tl.load(S + t * (D // 2) + i)
    tl.store(base + i, (a * c - b * s).to(Q.dtype.element_ty))
    tl.store(base + D // 2 + i, (b * c + a * s).to(Q.dtype.element_ty))


def rope(q, cos, sin):
    if q.dim() != 3 or q.shape[2] != 8 or cos.shape != (q.shape[0], 4) or sin.shape != cos.shape or q.shape[1] > 65535:
        raise ValueError("q: (tokens, heads, 8), cos, sin: (tokens, 4)")
    if torch.is_grad_enabled() and (q.requires_grad or cos.requires_grad or sin.requires_grad):
        raise RuntimeError("inference")
    out = q.contiguous()
    if out.numel():
        _rope[(q.shape[0], q.shape[1])](out, cos.contiguous(), sin.contiguous(), q.shape[1], D=8)
    return out


def rope_reference(q, cos, sin):
    a, b = q.float().chunk(2, -1)
    c, s = cos[:, None], sin[:, None]
    return torch.cat((a * c - b * s, b * c + a * s), -1).to(q.dtype)
