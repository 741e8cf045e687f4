# kind: second backward pass wrong; fault: the gradient made in the forward pass is scaled in place, once more for
# each backward pass (line 29)
# source: report, linkedin/Liger-Kernel#272 and axolotl-ai-cloud/axolotl#3892 for the kind (own code)

import torch
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable

INPUTS = {"pred": "rows cols", "goal": "rows cols"}


@triton.jit
def _mse(p_ptr, t_ptr, part_ptr, grad_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    i = pid * BLOCK + tl.arange(0, BLOCK)
    p = tl.load(p_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    t = tl.load(t_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    d = tl.where(i < n, p - t, 0.0)
    tl.store(part_ptr + pid, tl.sum(d * d, axis=0))
    tl.store(grad_ptr + i, 2.0 * d / n, mask=i < n)


@triton.jit
def _mul_(grad_ptr, g_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(g_ptr).to(tl.float32)
    x = tl.load(grad_ptr + i, mask=i < n, other=0.0)
    tl.store(grad_ptr + i, x * g, mask=i < n)


class MSE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, pred, goal):
        pred, goal = pred.contiguous(), goal.contiguous()
        n = pred.numel()
        blocks = triton.cdiv(n, 512)
        parts = torch.empty(blocks, dtype=torch.float32, device=pred.device)
        grad = torch.empty(pred.shape, dtype=torch.float32, device=pred.device)
        _mse[(blocks,)](pred, goal, parts, grad, n, BLOCK=512)
        ctx.save_for_backward(grad)
        ctx.dtype = pred.dtype
        return (parts.sum() / n).to(pred.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (grad,) = ctx.saved_tensors
        n = grad.numel()
        _mul_[(triton.cdiv(n, 512),)](grad, g.contiguous(), n, BLOCK=512)
        return grad.to(ctx.dtype, copy=True), (-grad).to(ctx.dtype)


def mse(pred, goal):
    if pred.shape != goal.shape or pred.dtype != goal.dtype:
        raise ValueError("pred and goal must have one shape and dtype")
    if pred.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("pred must be float16, bfloat16 or float32")
    if pred.numel() == 0:
        raise ValueError("pred must not be empty")
    return MSE.apply(pred, goal)


def mse_reference(pred, goal):
    wide = torch.promote_types(pred.dtype, torch.float32)
    return (pred.to(wide) - goal.to(wide)).square().mean().to(pred.dtype)
