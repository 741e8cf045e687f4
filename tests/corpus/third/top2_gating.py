"""The gate of a mixture: softmax over the experts, the two largest, equal ones by their number, weights renormalized."""
import torch
import triton
import triton.language as tl

INPUTS = {"logits": "tokens experts", "renormalize": (True, False)}
SIZES = {"experts": (2, 8, 13, 60)}


@triton.jit
def _gate(X, WOUT, IOUT, st, se, n, E, RENORM: tl.constexpr, BT: tl.constexpr, BE: tl.constexpr):
    t = tl.program_id(0).to(tl.int64) * BT + tl.arange(0, BT)
    e = tl.arange(0, BE)
    ok = (t[:, None] < n) & (e[None, :] < E)
    x = tl.load(X + t[:, None] * st + e[None, :] * se, mask=ok, other=-float("inf")).to(tl.float32)
    x0 = tl.max(x, axis=1)
    d = tl.sum(tl.exp(x - x0[:, None]), axis=1)
    # chosen by the logits: probabilities of unequal logits may be equal
    i0 = tl.min(tl.where(x == x0[:, None], e[None, :], BE), axis=1)
    x = tl.where(e[None, :] == i0[:, None], -float("inf"), x)
    x1 = tl.max(x, axis=1)
    i1 = tl.min(tl.where(x == x1[:, None], e[None, :], BE), axis=1)
    p0 = 1.0 / d
    p1 = tl.exp(x1 - x0) / d
    total = p0 * 0 + 1.0
    if RENORM:
        total = p0 + p1
    tl.store(WOUT + t * 2, p0 / total, mask=t < n)
    tl.store(WOUT + t * 2 + 1, p1 / total, mask=t < n)
    tl.store(IOUT + t * 2, i0, mask=t < n)
    tl.store(IOUT + t * 2 + 1, i1, mask=t < n)


def top2_gating(logits, renormalize):
    if logits.dim() != 2 or logits.shape[1] < 2:
        raise ValueError("logits: (tokens, experts), two experts at least")
    if torch.is_grad_enabled() and logits.requires_grad:
        raise RuntimeError("inference")
    if not torch.isfinite(logits).all():
        raise ValueError("logits must be finite")
    n, E = logits.shape
    w = torch.empty((n, 2), dtype=torch.float32, device=logits.device)
    i = torch.empty((n, 2), dtype=torch.int32, device=logits.device)
    if n:
        # in int64, as a stride may be large
        x = logits if logits.stride(1) == 1 else logits.contiguous()
        _gate[(triton.cdiv(n, 4),)](x, w, i, x.stride(0), x.stride(1), n, E, RENORM=renormalize, BT=4,
                                   BE=triton.next_power_of_2(E))
    return w, i


def top2_gating_reference(logits, renormalize):
    if not torch.isfinite(logits).all():
        raise ValueError("logits must be finite")
    i = torch.sort(logits, dim=-1, descending=True, stable=True).indices[:, :2]
    w = torch.softmax(logits.float(), -1).gather(1, i)
    if renormalize:
        w = w / w.sum(-1, keepdim=True)
    return w.contiguous(), i.to(torch.int32)
