import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols", "y": "rows cols"}


@triton.jit
def forward_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    out = x * tl.abs(y)
    tl.store(out_ptr + offs, out, mask=mask)


@triton.jit
def backward_kernel(g_ptr, x_ptr, y_ptr, dx_ptr, dy_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    g = tl.load(g_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    sign = tl.where(y < 0, -1.0, tl.where(y == 0, 0.0, 1.0))
    tl.store(dx_ptr + offs, g * tl.abs(y), mask=mask)
    tl.store(dy_ptr + offs, g * x * sign, mask=mask)


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        x, y = x.contiguous(), y.contiguous()
        out = torch.empty(x.shape, dtype=torch.promote_types(x.dtype, y.dtype), device=x.device)
        n = out.numel()
        forward_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
        ctx.save_for_backward(x.clone(), y)
        return out

    @staticmethod
    def backward(ctx, g):
        if torch.is_grad_enabled():
            raise RuntimeError("the gradients can't be differentiated again")
        x, y = ctx.saved_tensors
        g = g.contiguous()
        dx, dy = torch.empty_like(x), torch.empty_like(y)
        n = g.numel()
        backward_kernel[(triton.cdiv(n, 1024),)](g, x, y, dx, dy, n, BLOCK=1024)
        return dx, dy


def scaled(x, y):
    if x.shape != y.shape:
        raise ValueError("x and y must have one shape")
    return _Scaled.apply(x, y)


def scaled_reference(x, y):
    return x * y.abs()
