"""Rotary embedding in place, as inference servers do it: `rotary_` changes q and k and returns nothing. k may have fewer
heads. NeoX halves or interleaved pairs."""
import torch
import triton
import triton.language as tl

INPUTS = {"q": "tokens 4 16", "k": "tokens 2 16", "cos": "maxpos 8: float32", "sin": "maxpos 8: float32",
          "positions": "tokens: int64 below maxpos", "neox": (True, False)}


@triton.jit
def _rope(X, COS, SIN, POS, st, sh, sd, HEADS: tl.constexpr, HALF: tl.constexpr, NEOX: tl.constexpr):
    t = tl.program_id(0).to(tl.int64)
    p = tl.load(POS + t)
    i = tl.arange(0, HALF)
    c = tl.load(COS + p * HALF + i)
    s = tl.load(SIN + p * HALF + i)
    if NEOX:
        lo = i
        hi = i + HALF
    else:
        lo = 2 * i
        hi = 2 * i + 1
    for h in tl.static_range(HEADS):
        base = X + t * st + h * sh
        a = tl.load(base + lo * sd).to(tl.float32)
        b = tl.load(base + hi * sd).to(tl.float32)
        tl.store(base + lo * sd, (a * c - b * s).to(X.dtype.element_ty))
        tl.store(base + hi * sd, (b * c + a * s).to(X.dtype.element_ty))


def rotary(q, k, cos, sin, positions, neox):
    n = q.shape[0]
    if q.dim() != 3 or k.dim() != 3 or k.shape[0] != n or positions.shape != (n,) or q.shape[2] != k.shape[2]:
        raise ValueError("q, k: (tokens, heads, dim)")
    if cos.shape != sin.shape or cos.dim() != 2 or 2 * cos.shape[1] != q.shape[2]:
        raise ValueError("cos, sin: (positions, dim / 2)")
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or cos.requires_grad or sin.requires_grad):
        raise RuntimeError("in place: inference only")
    cos, sin, positions = cos.contiguous(), sin.contiguous(), positions.contiguous()
    if n == 0:
        return None
    for x in (q, k):
        _rope[(n,)](x, cos, sin, positions, *x.stride(), HEADS=x.shape[1], HALF=x.shape[2] // 2, NEOX=neox)


def rotary_reference(q, k, cos, sin, positions, neox):
    c, s = cos[positions][:, None], sin[positions][:, None]
    half = cos.shape[1]
    for x in (q, k):
        xf = x.float()
        lo, hi = (xf[..., :half], xf[..., half:]) if neox else (xf[..., 0::2], xf[..., 1::2])
        new_lo, new_hi = lo * c - hi * s, hi * c + lo * s
        out = torch.cat((new_lo, new_hi), -1) if neox else torch.stack((new_lo, new_hi), -1).flatten(-2)
        x.copy_(out.to(x.dtype))
