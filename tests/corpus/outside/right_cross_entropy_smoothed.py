"""Mean cross entropy with label smoothing and ignore_index; the gradient is recomputed in the backward pass."""

import torch
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable

INPUTS = {
    "logits": "rows vocab",
    "target": "rows: int64 below vocab",
    "ignore_index": (-100, 0),
    "smoothing": (0.0, 0.1),
}


@triton.jit
def _ce_forward(
    x_ptr, t_ptr, loss_ptr, max_ptr, logd_ptr, vocab, sx_r, sx_v, ignore, smoothing,
    SMOOTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * sx_r
    t = tl.load(t_ptr + row)
    m = -float("inf")
    for start in range(0, vocab, BLOCK):
        v = start + tl.arange(0, BLOCK).to(tl.int64)
        x = tl.load(x_ptr + v * sx_v, mask=v < vocab, other=-float("inf")).to(tl.float32)
        m = tl.maximum(m, tl.max(x, 0))
    d = 0.0
    total = 0.0
    for start in range(0, vocab, BLOCK):
        v = start + tl.arange(0, BLOCK).to(tl.int64)
        x = tl.load(x_ptr + v * sx_v, mask=v < vocab, other=-float("inf")).to(tl.float32) - m
        d += tl.sum(tl.where(v < vocab, tl.exp(x), 0.0), 0)
        if SMOOTH:
            total += tl.sum(tl.where(v < vocab, x, 0.0), 0)
    # log(d) and the maximum stay apart: their sum would round away what the loss is made of.
    logd = tl.log(d)
    tl.store(max_ptr + row, m)
    tl.store(logd_ptr + row, logd)
    if t == ignore:
        tl.store(loss_ptr + row, 0.0)
    else:
        loss = logd - (tl.load(x_ptr + t * sx_v).to(tl.float32) - m)
        if SMOOTH:
            loss = (1.0 - smoothing) * loss + smoothing * (logd - total / vocab)
        tl.store(loss_ptr + row, loss)


@triton.jit
def _ce_backward(
    g_ptr, n_ptr, x_ptr, t_ptr, max_ptr, logd_ptr, dx_ptr, vocab, sx_r, sx_v, ignore, smoothing, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    v = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    t = tl.load(t_ptr + row)
    if t == ignore:
        tl.store(dx_ptr + row * vocab + v, tl.zeros((BLOCK,), tl.float32), mask=v < vocab)
    else:
        x = tl.load(x_ptr + row * sx_r + v * sx_v, mask=v < vocab, other=-float("inf")).to(tl.float32)
        p = tl.exp((x - tl.load(max_ptr + row)) - tl.load(logd_ptr + row))
        goal = tl.where(v == t, 1.0 - smoothing, 0.0) + smoothing / vocab
        g = tl.load(g_ptr).to(tl.float32) / tl.load(n_ptr).to(tl.float32)
        tl.store(dx_ptr + row * vocab + v, (p - goal) * g, mask=v < vocab)


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target, ignore_index, smoothing):
        rows, vocab = logits.shape
        target = target.contiguous()
        losses = torch.zeros(rows, dtype=torch.float32, device=logits.device)
        top, logd = torch.empty_like(losses), torch.empty_like(losses)
        if rows:
            _ce_forward[(rows,)](
                logits, target, losses, top, logd, vocab, logits.stride(0), logits.stride(1), ignore_index, smoothing,
                SMOOTH=smoothing > 0, BLOCK=1024,
            )  # fmt: skip
        counted = (target != ignore_index).sum()
        ctx.save_for_backward(logits, target, top, logd, counted)
        ctx.ignore_index, ctx.smoothing = ignore_index, smoothing
        return (losses.sum() / counted).to(logits.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        logits, target, top, logd, counted = ctx.saved_tensors
        rows, vocab = logits.shape
        dx = torch.empty((rows, vocab), dtype=logits.dtype, device=logits.device)
        if rows:
            _ce_backward[(rows, triton.cdiv(vocab, 1024))](
                grad, counted, logits, target, top, logd, dx, vocab, logits.stride(0), logits.stride(1),
                ctx.ignore_index, ctx.smoothing, BLOCK=1024,
            )  # fmt: skip
        return dx, None, None, None


def cross_entropy(logits, target, ignore_index=-100, smoothing=0.0):
    if logits.dim() != 2 or target.shape != logits.shape[:1] or target.dtype != torch.int64:
        raise ValueError("logits must be (rows, vocab) and target int64 (rows,)")
    if logits.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("logits must be float16, bfloat16 or float32")
    if not 0.0 <= smoothing <= 1.0:
        raise ValueError("smoothing must be between 0 and 1")
    vocab = logits.shape[1]
    if vocab == 0 or vocab > 65535 * 1024:
        raise ValueError("vocab must be between 1 and 65535 * 1024")
    wrong = (target != ignore_index) & ((target < 0) | (target >= vocab))
    if bool(wrong.any()):
        raise ValueError("a target is neither a class nor ignore_index")
    return _CrossEntropy.apply(logits, target, ignore_index, smoothing)


def cross_entropy_reference(logits, target, ignore_index=-100, smoothing=0.0):
    return torch.nn.functional.cross_entropy(logits, target, ignore_index=ignore_index, label_smoothing=smoothing)
