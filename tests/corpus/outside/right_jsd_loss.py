"""Generalized Jensen-Shannon divergence of student and teacher (Liger's jsd), from log-probabilities."""

import torch
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable


@triton.jit
def _terms(q, p, beta):
    eq, ep = tl.exp(q), tl.exp(p)
    log_m = tl.log(beta * ep + (1.0 - beta) * eq)
    return beta * ep * (p - log_m), (1.0 - beta) * eq * (q - log_m)


@triton.jit
def _jsd_fwd(q_ptr, p_ptr, loss_ptr, vocab, sq_r, sq_v, sp_r, sp_v, beta, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    acc = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, vocab, BLOCK):
        v = start + tl.arange(0, BLOCK).to(tl.int64)
        q = tl.load(q_ptr + row * sq_r + v * sq_v, mask=v < vocab, other=0.0).to(tl.float32)
        p = tl.load(p_ptr + row * sp_r + v * sp_v, mask=v < vocab, other=0.0).to(tl.float32)
        a, b = _terms(q, p, beta)
        acc += tl.where(v < vocab, a + b, 0.0)
    tl.store(loss_ptr + row, tl.sum(acc, axis=0))


@triton.jit
def _jsd_bwd(
    g_ptr, q_ptr, p_ptr, dq_ptr, dp_ptr, rows, vocab, sq_r, sq_v, sp_r, sp_v, beta, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    g = tl.load(g_ptr).to(tl.float32) / rows
    for start in range(0, vocab, BLOCK):
        v = start + tl.arange(0, BLOCK).to(tl.int64)
        q = tl.load(q_ptr + row * sq_r + v * sq_v, mask=v < vocab, other=0.0).to(tl.float32)
        p = tl.load(p_ptr + row * sp_r + v * sp_v, mask=v < vocab, other=0.0).to(tl.float32)
        a, b = _terms(q, p, beta)
        # The derivative of log m cancels against those of the two weights.
        tl.store(dp_ptr + row * vocab + v, g * a, mask=v < vocab)
        tl.store(dq_ptr + row * vocab + v, g * b, mask=v < vocab)


class JSD(torch.autograd.Function):
    @staticmethod
    def forward(ctx, student, teacher, beta):
        rows, vocab = student.shape
        losses = torch.empty(rows, dtype=torch.float32, device=student.device)
        _jsd_fwd[(rows,)](student, teacher, losses, vocab, *student.stride(), *teacher.stride(), beta, BLOCK=256)
        ctx.save_for_backward(student, teacher)
        ctx.beta = beta
        return losses.mean().to(student.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        student, teacher = ctx.saved_tensors
        rows, vocab = student.shape
        dq = torch.empty((rows, vocab), dtype=student.dtype, device=student.device)
        dp = torch.empty_like(dq)
        _jsd_bwd[(rows,)](
            g, student, teacher, dq, dp, rows, vocab, *student.stride(), *teacher.stride(), ctx.beta, BLOCK=256
        )
        return dq, dp, None


def jsd_loss(student, teacher, beta=0.5):
    """Mean over rows. Log-probabilities below about -87 or above 88 leave the range of exp, here as in PyTorch."""
    if student.dim() != 2 or teacher.shape != student.shape:
        raise ValueError("student and teacher must be matrices of one shape")
    if student.numel() == 0:
        raise ValueError("student and teacher must not be empty")
    if student.dtype not in (torch.float16, torch.bfloat16, torch.float32) or teacher.dtype != student.dtype:
        raise ValueError("student and teacher must both be float16, bfloat16 or float32")
    if not 0.0 < beta < 1.0:
        raise ValueError("beta must be between 0 and 1")
    return JSD.apply(student, teacher, beta)


def jsd_loss_inputs(rows, vocab):
    student, teacher = torch.log_softmax(torch.randn(2, rows, vocab), dim=-1)
    return {"student": student, "teacher": teacher}


def jsd_loss_reference(student, teacher, beta=0.5):
    wide = torch.promote_types(student.dtype, torch.float32)
    q, p = student.to(wide), teacher.to(wide)
    log_m = torch.log(beta * p.exp() + (1 - beta) * q.exp())
    loss = beta * p.exp() * (p - log_m) + (1 - beta) * q.exp() * (q - log_m)
    return loss.sum(-1).mean().to(student.dtype)
