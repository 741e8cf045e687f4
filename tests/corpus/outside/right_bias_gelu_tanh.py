"""gelu(x + bias), the tanh form, with both gradients (Megatron's bias_gelu, in Triton)."""

import torch
import triton
import triton.language as tl
from helpers_activations import tanh
from torch.autograd.function import once_differentiable

INPUTS = {"x": "batch time dim", "bias": "dim"}
K = tl.constexpr(0.7978845608028654)  # sqrt(2 / pi)
C = tl.constexpr(0.044715)


@triton.jit
def _fwd(x_ptr, b_ptr, y_ptr, n, dim, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    x += tl.load(b_ptr + i % dim, mask=i < n, other=0.0).to(tl.float32)
    y = 0.5 * x * (1.0 + tanh((x + x * x * x * C) * K))
    tl.store(y_ptr + i, y, mask=i < n)


@triton.jit
def _bwd(dy_ptr, x_ptr, b_ptr, dx_ptr, n, dim, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    x += tl.load(b_ptr + i % dim, mask=i < n, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    t = tanh((x + x * x * x * C) * K)
    slope = 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * K * (1.0 + x * x * C * 3.0)
    tl.store(dx_ptr + i, dy * slope, mask=i < n)


class _BiasGelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, bias):
        x, bias = x.contiguous(), bias.contiguous()
        y = torch.empty_like(x)
        if x.numel():
            _fwd[(triton.cdiv(x.numel(), 512),)](x, bias, y, x.numel(), x.shape[-1], BLOCK=512)
        ctx.save_for_backward(x, bias)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, bias = ctx.saved_tensors
        dx = torch.empty(x.shape, dtype=torch.float32, device=x.device)
        if x.numel():
            _bwd[(triton.cdiv(x.numel(), 512),)](dy.contiguous(), x, bias, dx, x.numel(), x.shape[-1], BLOCK=512)
        return dx.to(x.dtype), dx.flatten(0, -2).sum(0).to(bias.dtype)


def bias_gelu(x, bias):
    if x.dim() < 2 or bias.shape != x.shape[-1:]:
        raise ValueError("x needs two dims or more, and bias one value for each of its columns")
    if x.dtype not in (torch.float16, torch.bfloat16, torch.float32) or bias.dtype != x.dtype:
        raise ValueError("x and bias must both be float16, bfloat16 or float32")
    return _BiasGelu.apply(x, bias)


def bias_gelu_reference(x, bias):
    wide = torch.promote_types(x.dtype, torch.float32)
    return torch.nn.functional.gelu(x.to(wide) + bias.to(wide), approximate="tanh").to(x.dtype)
