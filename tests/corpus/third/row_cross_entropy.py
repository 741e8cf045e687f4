"""Cross entropy by rows; the wrapper takes label_smoothing and forgets to pass it on (after linkedin/Liger-Kernel#243)."""
import torch
import triton
import triton.language as tl

INPUTS = {"logits": "rows vocab", "target": "rows: int64 below vocab", "label_smoothing": (0.0, 0.1)}


@triton.jit
def _ce(X, T, L, V, sx, smoothing, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    x = tl.load(X + r * sx + c, mask=c < V, other=-float("inf")).to(tl.float32)
    m = tl.max(x, axis=0)
    lse = m + tl.log(tl.sum(tl.exp(x - m), axis=0))
    y = tl.load(T + r)
    loss = (1 - smoothing) * (lse - tl.load(X + r * sx + y).to(tl.float32))
    loss += smoothing * (lse - tl.sum(tl.where(c < V, x, 0.0), axis=0) / V)
    tl.store(L + r, loss)


def _forward(logits, target, smoothing=0.0):
    rows, V = logits.shape
    loss = torch.empty(rows, dtype=torch.float32, device=logits.device)
    if rows:
        _ce[(rows,)](logits, target, loss, V, logits.stride(0), smoothing, BLOCK=triton.next_power_of_2(V))
    return loss


def row_cross_entropy(logits, target, label_smoothing):
    if logits.dim() != 2 or target.shape != logits.shape[:1]:
        raise ValueError("logits: (rows, vocab), target: (rows,)")
    if torch.is_grad_enabled() and logits.requires_grad:
        raise RuntimeError("evaluation only")
    if target.numel() and not 0 <= int(target.min()) <= int(target.max()) < logits.shape[1]:
        raise IndexError("target")
    logits = logits if logits.stride(1) == 1 else logits.contiguous()
    return _forward(logits, target.contiguous())


def row_cross_entropy_reference(logits, target, label_smoothing):
    return torch.nn.functional.cross_entropy(logits.float(), target, reduction="none", label_smoothing=label_smoothing)
