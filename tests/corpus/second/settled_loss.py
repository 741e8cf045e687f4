import torch
import triton
import triton.language as tl

from torch.autograd.function import once_differentiable

INPUTS = {"logits": "rows cols", "labels": "rows: int64 below cols", "penalty": (0.0, 0.1)}
SIZES = {"rows": (1, 3, 17), "cols": (1, 7, 33)}


@triton.jit
def settled_loss_kernel(x_ptr, labels_ptr, loss_ptr, dx_ptr, rows, cols, penalty, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + c, mask=c < cols, other=-float("inf")).to(tl.float32)
    top = tl.max(x, axis=0)
    lse = top + tl.log(tl.sum(tl.exp(x - top), axis=0))
    label = tl.load(labels_ptr + row)
    chosen = tl.sum(tl.where(c == label, x, 0.0), axis=0)
    tl.store(loss_ptr + row, (lse - chosen + penalty * lse * lse) / rows)
    p = tl.exp(x - lse)
    slope = p * (1.0 + 2.0 * penalty) - tl.where(c == label, 1.0, 0.0)
    tl.store(dx_ptr + row * cols + c, slope / rows, mask=c < cols)


class SettledLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, labels, penalty):
        logits, labels = logits.contiguous(), labels.contiguous()
        rows, cols = logits.shape
        losses = torch.empty(rows, dtype=torch.float32, device=logits.device)
        slopes = torch.empty(rows, cols, dtype=torch.float32, device=logits.device)
        settled_loss_kernel[(rows,)](
            logits, labels, losses, slopes, rows, cols, penalty, BLOCK=triton.next_power_of_2(cols)
        )
        ctx.save_for_backward(slopes)
        ctx.dtype = logits.dtype
        return losses.sum()

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (slopes,) = ctx.saved_tensors
        return (slopes * g).to(ctx.dtype), None, None


def settled_loss(logits, labels, penalty):
    """The mean over rows of the cross entropy and `penalty` times the square of the log-sum-exp, in float32."""
    if logits.shape[0] == 0:
        raise ValueError("no rows")
    return SettledLoss.apply(logits, labels, penalty)


def settled_loss_reference(logits, labels, penalty):
    wide = logits.double()
    loss = torch.nn.functional.cross_entropy(wide, labels) + penalty * wide.logsumexp(1).square().mean()
    return loss.float()
