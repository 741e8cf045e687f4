# kind: ignore_index counted in the mean; fault: the sum is divided by all rows, ignored ones too (line 39)
# source: report, qubvel-org/segmentation_models.pytorch#852 for the kind (own code)

import torch
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable

INPUTS = {"logits": "rows 4", "target": "rows: int64 below 4", "ignore_index": (-100, 1)}


@triton.jit
def _ce(x_ptr, t_ptr, loss_ptr, dx_ptr, V, stride_r, stride_v, ignore, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    v = tl.arange(0, BLOCK).to(tl.int64)
    t = tl.load(t_ptr + row)
    x = tl.load(x_ptr + row * stride_r + v * stride_v, mask=v < V, other=-float("inf")).to(tl.float32)
    x = x - tl.max(x, axis=0)
    e = tl.where(v < V, tl.exp(x), 0.0)
    d = tl.sum(e, axis=0)
    keep = t != ignore
    picked = tl.sum(tl.where(v == t, x, 0.0), axis=0)
    tl.store(loss_ptr + row, tl.where(keep, tl.log(d) - picked, 0.0))
    dx = tl.where(keep, e / d - tl.where(v == t, 1.0, 0.0), 0.0)
    tl.store(dx_ptr + row * V + v, dx, mask=v < V)


class _CE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target, ignore_index):
        rows, V = logits.shape
        loss = torch.empty(rows, dtype=torch.float32, device=logits.device)
        dx = torch.empty((rows, V), dtype=torch.float32, device=logits.device)
        if rows:
            _ce[(rows,)](
                logits, target.contiguous(), loss, dx, V, logits.stride(0), logits.stride(1), ignore_index,
                BLOCK=triton.next_power_of_2(V),
            )  # fmt: skip
        count = target.numel()
        ctx.save_for_backward(dx)
        ctx.count, ctx.dtype = count, logits.dtype
        return (loss.sum() / count).to(logits.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (dx,) = ctx.saved_tensors
        return (dx * (g.float() / ctx.count)).to(ctx.dtype), None, None


def cross_entropy_mean(logits, target, ignore_index=-100):
    if logits.dim() != 2 or target.shape != logits.shape[:1] or target.dtype != torch.int64:
        raise ValueError("logits must be (rows, classes) and target int64 (rows,)")
    if logits.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("logits must be float16, bfloat16 or float32")
    rows, V = logits.shape
    if rows == 0 or V == 0 or V > 16384:
        raise ValueError("there must be rows, and from 1 to 16384 classes")
    if bool(((target != ignore_index) & ((target < 0) | (target >= V))).any()):
        raise ValueError("a target is no class")
    return _CE.apply(logits, target, ignore_index)


def cross_entropy_mean_reference(logits, target, ignore_index=-100):
    return torch.nn.functional.cross_entropy(logits, target, ignore_index=ignore_index)
