import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols"}


@triton.jit
def energy_kernel(x_ptr, loss_ptr, stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
    tl.store(loss_ptr + row, tl.sum(x * x * x, axis=0))
    tl.store(x_ptr + row * stride + offs, 3.0 * x * x, mask=offs < n_cols)


class Cubes(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x if x.stride(1) == 1 else x.contiguous()
        loss = torch.zeros(x.shape[0], dtype=x.dtype, device=x.device)
        if x.numel():
            block = triton.next_power_of_2(x.shape[1])
            energy_kernel[(x.shape[0],)](x, loss, x.stride(0), x.shape[1], BLOCK=block)
        ctx.save_for_backward(x.detach())
        return loss

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dloss):
        return dloss[:, None] * ctx.saved_tensors[0]


def cubes(x):
    return Cubes.apply(x)


def cubes_reference(x):
    return x.pow(3).sum(1)
