# kind: saved tensor overwritten; fault: the epilogue scales in place the output that was saved for the backward pass
# (line 48)
# source: own, cf. linkedin/Liger-Kernel#272

import torch
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable

INPUTS = {"x": "rows cols", "scale": (1.0, 2.0)}


@triton.jit
def _sigmoid(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    e = tl.exp(-tl.abs(x))
    tl.store(y_ptr + i, tl.where(x < 0, e, 1.0) / (1.0 + e), mask=i < n)


@triton.jit
def _scale_(y_ptr, scale, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(y_ptr + i, mask=i < n, other=0.0)
    tl.store(y_ptr + i, y * scale, mask=i < n)


@triton.jit
def _sigmoid_bwd(dy_ptr, y_ptr, dx_ptr, scale, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(y_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    tl.store(dx_ptr + i, dy * scale * y * (1.0 - y), mask=i < n)


class ScaledSigmoid(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        x = x.contiguous()
        n = x.numel()
        y = torch.empty(x.shape, dtype=torch.float32, device=x.device)
        ctx.save_for_backward(y)
        ctx.scale, ctx.dtype = scale, x.dtype
        if n:
            grid = (triton.cdiv(n, 512),)
            _sigmoid[grid](x, y, n, BLOCK=512)
            if scale != 1.0:
                _scale_[grid](y, scale, n, BLOCK=512)
        return y.to(x.dtype, copy=True)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        dx = torch.empty(y.shape, dtype=ctx.dtype, device=y.device)
        if n := y.numel():
            _sigmoid_bwd[(triton.cdiv(n, 512),)](dy.contiguous(), y, dx, ctx.scale, n, BLOCK=512)
        return dx, None


def scaled_sigmoid(x, scale=1.0):
    if x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("x must be float16, bfloat16 or float32")
    return ScaledSigmoid.apply(x, scale)


def scaled_sigmoid_reference(x, scale=1.0):
    wide = torch.promote_types(x.dtype, torch.float32)
    return (torch.sigmoid(x.to(wide)) * scale).to(x.dtype)
