"""GEGLU on a packed (rows, 2 * cols) projection; the activation lives in another file."""

import torch
import triton
import triton.language as tl
from helpers_activations import gelu_erf, gelu_erf_grad
from torch.autograd.function import once_differentiable

INPUTS = {"x": "rows 2*cols"}


@triton.jit
def geglu_fwd(x_ptr, y_ptr, cols, stride_x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    row, col = i // cols, i % cols
    gate = tl.load(x_ptr + row * stride_x + col, mask=i < n, other=0.0).to(tl.float32)
    up = tl.load(x_ptr + row * stride_x + cols + col, mask=i < n, other=0.0).to(tl.float32)
    tl.store(y_ptr + i, gelu_erf(gate) * up, mask=i < n)


@triton.jit
def geglu_bwd(dy_ptr, x_ptr, dx_ptr, cols, stride_x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    row, col = i // cols, i % cols
    gate = tl.load(x_ptr + row * stride_x + col, mask=i < n, other=0.0).to(tl.float32)
    up = tl.load(x_ptr + row * stride_x + cols + col, mask=i < n, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    tl.store(dx_ptr + row * 2 * cols + col, dy * up * gelu_erf_grad(gate), mask=i < n)
    tl.store(dx_ptr + row * 2 * cols + cols + col, dy * gelu_erf(gate), mask=i < n)


class _Geglu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        rows, cols = x.shape[0], x.shape[1] // 2
        y = torch.empty((rows, cols), dtype=x.dtype, device=x.device)
        if y.numel():
            geglu_fwd[(triton.cdiv(y.numel(), 256),)](x, y, cols, x.stride(0), y.numel(), BLOCK=256)
        ctx.save_for_backward(x)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        dy = dy.contiguous()
        dx = torch.empty_like(x)
        if dy.numel():
            geglu_bwd[(triton.cdiv(dy.numel(), 256),)](dy, x, dx, dy.shape[1], x.stride(0), dy.numel(), BLOCK=256)
        return dx


def geglu(x):
    if x.dim() != 2 or x.shape[1] % 2:
        raise ValueError("x must be (rows, 2 * cols)")
    if x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("x must be float16, bfloat16 or float32")
    return _Geglu.apply(x)


def geglu_reference(x):
    gate, up = x.chunk(2, dim=-1)
    wide = torch.promote_types(x.dtype, torch.float32)
    return (torch.nn.functional.gelu(gate.to(wide)) * up.to(wide)).to(x.dtype)
