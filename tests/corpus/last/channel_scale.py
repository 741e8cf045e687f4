import torch
import triton
import triton.language as tl

INPUTS = {"x": "... cols", "weight": "cols"}


@triton.jit
def channel_scale_kernel(x_ptr, w_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + c, mask=c < cols).to(tl.float32)
    w = tl.load(w_ptr + c, mask=c < cols).to(tl.float32)
    tl.store(y_ptr + row * cols + c, x * w, mask=c < cols)


@triton.jit
def channel_scale_backward_kernel(x_ptr, w_ptr, g_ptr, dx_ptr, part_ptr, rows, cols, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    mask = c < cols
    w = tl.load(w_ptr + c, mask=mask, other=0.0).to(tl.float32)
    dw = tl.zeros((BLOCK,), dtype=tl.float32)
    for row in range(program, rows, tl.num_programs(0)):
        at = row * cols + c
        x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
        g = tl.load(g_ptr + at, mask=mask, other=0.0).to(tl.float32)
        tl.store(dx_ptr + at, g * w, mask=mask)
        dw += g * x
    tl.store(part_ptr + program * cols + c, dw, mask=mask)


class ChannelScale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        x, weight = x.contiguous(), weight.contiguous()
        y = torch.empty_like(x)
        cols = x.shape[-1]
        if x.numel():
            channel_scale_kernel[(x.numel() // cols,)](x, weight, y, cols, BLOCK=triton.next_power_of_2(cols))
        ctx.save_for_backward(x, weight)
        return y

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        cols = x.shape[-1]
        dx = torch.empty_like(x)
        if x.numel() == 0:
            return dx, torch.zeros_like(weight)
        programs = 6
        parts = torch.empty(programs, cols, dtype=torch.float32, device=x.device)
        channel_scale_backward_kernel[(programs,)](
            x, weight, g.contiguous(), dx, parts, x.numel() // cols, cols, BLOCK=triton.next_power_of_2(cols)
        )
        return dx, parts.sum(0).to(weight.dtype)


def channel_scale(x, weight):
    """x * weight; six programs share the rows, and some of them may have none."""
    return ChannelScale.apply(x, weight)


def channel_scale_reference(x, weight):
    return (x.float() * weight.float()).to(x.dtype)
