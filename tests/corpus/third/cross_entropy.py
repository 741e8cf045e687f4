"""Cross entropy whose forward pass computes the gradient as well, in the manner of fused loss packages, into a buffer of
its own: ignore_index, label smoothing, a z-loss, and three reductions."""
import torch
import triton
import triton.language as tl


def cross_entropy_inputs(rows, vocab):
    g = torch.Generator().manual_seed(rows * 101 + vocab)
    vocab = max(vocab, 1)
    t = torch.randint(0, vocab, (rows,), generator=g)
    t[::5] = -100
    return {"logits": torch.randn(rows, vocab, generator=g) * 3, "target": t, "smoothing": 0.1 if rows % 2 else 0.0,
            "lse_square_scale": 1e-2 if vocab % 2 else 0.0, "reduction": ("mean", "sum", "none")[(rows + vocab) % 3]}


@triton.jit
def _ce(X, T, LOSS, DX, sr, sc, V, smoothing, lse_scale, norm, ignore, BLOCK: tl.constexpr, GRAD: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    y = tl.load(T + row)
    X += row * sr
    DX += row * V
    if y == ignore:
        tl.store(LOSS + row, 0.0)
        if GRAD:
            for i in range(0, V, BLOCK):
                c = i + tl.arange(0, BLOCK)
                tl.store(DX + c, tl.zeros((BLOCK,), tl.float32), mask=c < V)
        return
    m = -float("inf")
    d = 0.0
    total = 0.0
    for i in range(0, V, BLOCK):
        c = i + tl.arange(0, BLOCK)
        x = tl.load(X + c.to(tl.int64) * sc, mask=c < V, other=-float("inf")).to(tl.float32)
        mn = tl.maximum(m, tl.max(x, axis=0))
        ms = tl.where(mn == -float("inf"), 0.0, mn)
        d = d * tl.exp(m - ms) + tl.sum(tl.exp(x - ms), axis=0)
        m = mn
        total += tl.sum(tl.where(c < V, x, 0.0), axis=0)
    lse = m + tl.log(d)
    xy = tl.load(X + y * sc).to(tl.float32)
    loss = (1 - smoothing) * (lse - xy) + lse_scale * lse * lse
    if smoothing > 0:
        loss += smoothing * (lse - total / V)
    tl.store(LOSS + row, loss * norm)
    if GRAD:
        for i in range(0, V, BLOCK):
            c = i + tl.arange(0, BLOCK)
            x = tl.load(X + c.to(tl.int64) * sc, mask=c < V, other=-float("inf")).to(tl.float32)
            p = tl.exp(x - lse)
            g = p * (1 + 2 * lse_scale * lse) - smoothing / V
            g = tl.where(c == y, g - (1 - smoothing), g)
            tl.store(DX + c, g * norm, mask=c < V)


@triton.jit
def _scale_rows(DX, DL, OUT, V, sdl, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    g = tl.load(DL + row * sdl).to(tl.float32)
    for i in range(0, V, BLOCK):
        c = i + tl.arange(0, BLOCK)
        tl.store(OUT + row * V + c, tl.load(DX + row * V + c, mask=c < V, other=0.0) * g, mask=c < V)


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, t, smoothing, lse_scale, reduction):
        rows, V = x.shape
        t = t.contiguous()
        norm = 1.0
        if reduction == "mean":
            n = int((t != -100).sum())
            norm = 1.0 / n if n else float("nan")
        loss = torch.empty(rows, dtype=torch.float32, device=x.device)
        grad = x.requires_grad
        dx = torch.empty((rows, V), dtype=torch.float32, device=x.device) if grad else loss
        if rows:
            _ce[(rows,)](x, t, loss, dx, x.stride(0), x.stride(1), V, smoothing, lse_scale, norm, -100, BLOCK=128, GRAD=grad)
        if grad:
            ctx.save_for_backward(dx)
            ctx.dtype, ctx.reduction = x.dtype, reduction
        if reduction == "none":
            return loss.to(x.dtype)
        if reduction == "mean" and norm != norm:
            return torch.full((), float("nan"), dtype=x.dtype, device=x.device)
        return loss.sum().to(x.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dl):
        (dx,) = ctx.saved_tensors
        rows, V = dx.shape
        out = torch.empty((rows, V), dtype=ctx.dtype, device=dx.device)
        if rows:
            _scale_rows[(rows,)](dx, dl, out, V, dl.stride(0) if dl.dim() else 0, BLOCK=128)
        return out, None, None, None, None


def cross_entropy(logits, target, smoothing, lse_square_scale, reduction):
    if logits.dim() != 2 or target.shape != logits.shape[:1] or reduction not in ("mean", "sum", "none"):
        raise ValueError("logits: (rows, vocab), target: (rows,)")
    real = target[target != -100]
    if real.numel() and not (0 <= int(real.min()) and int(real.max()) < logits.shape[1]):
        raise IndexError("a target out of range")
    return _CrossEntropy.apply(logits, target, smoothing, lse_square_scale, reduction)


def cross_entropy_reference(logits, target, smoothing, lse_square_scale, reduction):
    x = logits.float()
    real = target != -100
    loss = torch.nn.functional.cross_entropy(x, target, reduction="none", label_smoothing=smoothing)
    loss = torch.where(real, loss + lse_square_scale * torch.logsumexp(x, -1) ** 2, 0.0)
    if reduction == "mean":
        return (loss.sum() / real.sum()).to(logits.dtype)
    return (loss.sum() if reduction == "sum" else loss).to(logits.dtype)
