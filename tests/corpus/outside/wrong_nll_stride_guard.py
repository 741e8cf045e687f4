# kind: wrong stride of the input; fault: a view with stride(-1) == 1 is taken for contiguous, rows are then read
# n_cols apart (line 32)
# source: report, NVIDIA/TransformerEngine#2734 (own code)

import torch
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable

INPUTS = {"logp": "rows classes", "target": "rows: int64 below classes"}


@triton.jit
def _nll_fwd(logp_ptr, t_ptr, loss_ptr, rows, classes, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    t = tl.load(t_ptr + r, mask=r < rows, other=0)
    x = tl.load(logp_ptr + r * classes + t, mask=r < rows).to(tl.float32)
    tl.store(loss_ptr + r, -x, mask=r < rows)


@triton.jit
def _nll_bwd(g_ptr, t_ptr, dx_ptr, rows, classes, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    t = tl.load(t_ptr + r, mask=r < rows, other=0)
    g = tl.load(g_ptr + r, mask=r < rows).to(tl.float32)
    tl.store(dx_ptr + r * classes + t, -g, mask=r < rows)


class _NLL(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logp, target):
        if logp.stride(-1) != 1:
            logp = logp.contiguous()
        target = target.contiguous()
        rows, classes = logp.shape
        loss = torch.empty(rows, dtype=logp.dtype, device=logp.device)
        if rows:
            _nll_fwd[(triton.cdiv(rows, 128),)](logp, target, loss, rows, classes, BLOCK=128)
        ctx.save_for_backward(target)
        ctx.shape = logp.shape
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (target,) = ctx.saved_tensors
        rows, classes = ctx.shape
        dx = torch.zeros((rows, classes), dtype=g.dtype, device=g.device)
        if rows:
            _nll_bwd[(triton.cdiv(rows, 128),)](g.contiguous(), target, dx, rows, classes, BLOCK=128)
        return dx, None


def nll(logp, target):
    """Loss of each row."""
    if logp.dim() != 2 or logp.shape[1] == 0:
        raise ValueError("logp must be (rows, classes) with at least one class")
    if target.shape != logp.shape[:1] or target.dtype != torch.int64:
        raise ValueError("target must be int64 (rows,)")
    if logp.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("logp must be float16, bfloat16 or float32")
    if target.numel() and (int(target.min()) < 0 or int(target.max()) >= logp.shape[1]):
        raise ValueError("a target is no class")
    return _NLL.apply(logp, target)


def nll_reference(logp, target):
    return -logp.gather(1, target[:, None])[:, 0]
