import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols", "p": "rows cols: positive"}


@triton.jit
def loss_kernel(x_ptr, p_ptr, loss_ptr, dx_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    mask = offs < n_cols
    x = tl.load(x_ptr + row * n_cols + offs, mask=mask, other=-float("inf")).to(tl.float32)
    p = tl.load(p_ptr + row * n_cols + offs, mask=mask, other=0.0).to(tl.float32)
    m = tl.max(x, axis=0)
    lse = m + tl.log(tl.sum(tl.exp(x - m), axis=0))
    tl.store(loss_ptr + row, tl.sum(tl.where(mask, p * (lse - x), 0.0), axis=0))
    tl.store(dx_ptr + row * n_cols + offs, tl.exp(x - lse) - p, mask=mask)


class Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, p):
        x, p = x.contiguous(), p.contiguous()
        loss = torch.zeros(x.shape[0], dtype=x.dtype, device=x.device)
        dx = torch.empty(x.shape, dtype=torch.float32, device=x.device)
        if x.numel():
            loss_kernel[(x.shape[0],)](x, p, loss, dx, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        ctx.save_for_backward(dx)
        ctx.dtype = x.dtype
        return loss

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dloss):
        (dx,) = ctx.saved_tensors
        return (dloss[:, None].float() * dx).to(ctx.dtype), None


def soft_loss(x, p):
    if p.requires_grad:
        p = p.detach()
    return Loss.apply(x, p)


def soft_loss_reference(x, p):
    return -(p.detach() * torch.log_softmax(x, 1)).sum(1)
