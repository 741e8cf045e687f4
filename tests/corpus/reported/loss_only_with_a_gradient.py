import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols"}


@triton.jit
def energy_kernel(x_ptr, loss_ptr, dx_ptr, n_cols, GRADIENT: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    mask = offs < n_cols
    x = tl.load(x_ptr + row * n_cols + offs, mask=mask, other=0.0).to(tl.float32)
    if GRADIENT:
        tl.store(dx_ptr + row * n_cols + offs, x, mask=mask)
        tl.store(loss_ptr + row, 0.5 * tl.sum(x * x, axis=0))


class Energy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gradient):
        x = x.contiguous()
        loss = torch.zeros(x.shape[0], dtype=x.dtype, device=x.device)
        dx = torch.zeros_like(x)
        if x.numel():
            block = triton.next_power_of_2(x.shape[1])
            energy_kernel[(x.shape[0],)](x, loss, dx, x.shape[1], GRADIENT=gradient, BLOCK=block)
        ctx.save_for_backward(dx)
        return loss

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dloss):
        return dloss[:, None] * ctx.saved_tensors[0], None


def energy(x):
    return Energy.apply(x, x.requires_grad)


def energy_reference(x):
    return 0.5 * x.square().sum(1)
