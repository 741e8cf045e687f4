# kind: wrong device function in another file; fault: the slope of x * sigmoid(beta * x) lacks the factor beta, which
# only beta != 1 shows (helpers_gates.py, line 21)
# source: own

import torch
import triton
import triton.language as tl
from helpers_gates import swish, swish_grad
from torch.autograd.function import once_differentiable

INPUTS = {"x": "rows cols", "beta": (1.0, 1.5)}


@triton.jit
def _swish_fwd(x_ptr, y_ptr, n, beta, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    tl.store(y_ptr + i, swish(x, beta), mask=i < n)


@triton.jit
def _swish_bwd(dy_ptr, x_ptr, dx_ptr, n, beta, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    tl.store(dx_ptr + i, dy * swish_grad(x, beta), mask=i < n)


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, beta):
        x = x.contiguous()
        y = torch.empty_like(x)
        if n := x.numel():
            _swish_fwd[(triton.cdiv(n, 512),)](x, y, n, beta, BLOCK=512)
        ctx.save_for_backward(x)
        ctx.beta = beta
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        dx = torch.empty_like(x)
        if n := x.numel():
            _swish_bwd[(triton.cdiv(n, 512),)](dy.contiguous(), x, dx, n, ctx.beta, BLOCK=512)
        return dx, None


def swish_beta(x, beta=1.0):
    if x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("x must be float16, bfloat16 or float32")
    return Swish.apply(x, beta)


def swish_beta_reference(x, beta=1.0):
    wide = torch.promote_types(x.dtype, torch.float32)
    return (x.to(wide) * torch.sigmoid(beta * x.to(wide))).to(x.dtype)
