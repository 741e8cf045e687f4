import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols"}


@triton.jit
def energy_kernel(x_ptr, dloss_ptr, dx_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + offs, mask=offs < n_cols, other=0.0)
    tl.store(dx_ptr + row * n_cols + offs, x * tl.load(dloss_ptr), mask=offs < n_cols)


class Energy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return 0.5 * x.square().sum(1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dloss):
        x = ctx.saved_tensors[0].contiguous()
        dx = torch.empty_like(x)
        if x.numel():
            block = triton.next_power_of_2(x.shape[1])
            energy_kernel[(x.shape[0],)](x, dloss.contiguous(), dx, x.shape[1], BLOCK=block)
        return dx


def energy(x):
    return Energy.apply(x)


def energy_reference(x):
    return 0.5 * x.square().sum(1)
