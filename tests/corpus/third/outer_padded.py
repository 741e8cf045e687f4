"""Outer sum of two vectors into rows padded to 16 bytes (so that a later product can use descriptors); what is returned is
a view of the padded buffer, and a transposed view beside it."""
import torch
import triton
import triton.language as tl

INPUTS = {"u": "m", "w": "n", "op": ("add", "max")}


@triton.jit
def _outer(U, W, O, su, sw, so, M, N, OP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    r = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    c = tl.program_id(1).to(tl.int64) * BN + tl.arange(0, BN)
    u = tl.load(U + r * su, mask=r < M, other=0.0)
    w = tl.load(W + c * sw, mask=c < N, other=0.0)
    if OP == "add":
        o = u.to(tl.float32)[:, None] + w.to(tl.float32)[None, :]
    else:
        o = tl.maximum(u.to(tl.float32)[:, None], w.to(tl.float32)[None, :], propagate_nan=tl.PropagateNan.ALL)
    tl.store(O + r[:, None] * so + c[None, :], o, mask=(r[:, None] < M) & (c[None, :] < N))


def outer_padded(u, w, op):
    if u.dim() != 1 or w.dim() != 1 or u.dtype != w.dtype or op not in ("add", "max"):
        raise ValueError("two vectors of one dtype")
    if torch.is_grad_enabled() and (u.requires_grad or w.requires_grad):
        raise RuntimeError("no gradient")
    M, N = u.numel(), w.numel()
    step = 16 // u.element_size()
    buf = torch.zeros((M, triton.cdiv(N, step) * step), dtype=u.dtype, device=u.device)
    if M and N:
        _outer[(triton.cdiv(M, 8), triton.cdiv(N, 32))](u, w, buf, u.stride(0), w.stride(0), buf.stride(0), M, N, OP=op, BM=8, BN=32)
    out = buf[:, :N]
    return out, out.t()


def outer_padded_reference(u, w, op):
    out = u[:, None] + w[None, :] if op == "add" else torch.maximum(u[:, None], w[None, :])
    return out, out.t()
