"""Mean cross entropy that divides by all rows, also by those that ignore_index leaves out."""
import torch
import triton
import triton.language as tl


def mean_cross_entropy_inputs(rows, vocab):
    g = torch.Generator().manual_seed(rows + 1000 * vocab)
    rows, vocab = max(rows, 1), max(vocab, 1)
    t = torch.randint(0, vocab, (rows,), generator=g)
    t[1::4] = -100
    return {"logits": torch.randn(rows, vocab, generator=g), "target": t}


@triton.jit
def _ce(X, T, L, V, sx, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    y = tl.load(T + r)
    if y == -100:
        tl.store(L + r, 0.0)
        return
    c = tl.arange(0, BLOCK)
    x = tl.load(X + r * sx + c, mask=c < V, other=-float("inf")).to(tl.float32)
    m = tl.max(x, axis=0)
    tl.store(L + r, m + tl.log(tl.sum(tl.exp(x - m), axis=0)) - tl.load(X + r * sx + y).to(tl.float32))


def mean_cross_entropy(logits, target):
    if logits.dim() != 2 or target.shape != logits.shape[:1] or logits.numel() == 0:
        raise ValueError("logits: (rows, vocab), target: (rows,)")
    if torch.is_grad_enabled() and logits.requires_grad:
        raise RuntimeError("evaluation")
    real = target[target != -100]
    if real.numel() == 0 or not 0 <= int(real.min()) <= int(real.max()) < logits.shape[1]:
        raise IndexError("target")
    logits = logits if logits.stride(1) == 1 else logits.contiguous()
    rows, V = logits.shape
    loss = torch.empty(rows, dtype=torch.float32, device=logits.device)
    _ce[(rows,)](logits, target.contiguous(), loss, V, logits.stride(0), BLOCK=triton.next_power_of_2(V))
    return loss.mean()


def mean_cross_entropy_reference(logits, target):
    if logits.numel() == 0 or not bool((target != -100).any()):
        raise ValueError("nothing to average")
    return torch.nn.functional.cross_entropy(logits.float(), target)
