# kind: NaN hidden by a comparison; fault: a NaN is neither above nor below, and the lower bound takes its place
# (line 17)
# source: own

import torch
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable

INPUTS = {"x": "rows cols", "lo": -1.0, "hi": 1.0}


@triton.jit
def _fwd(x_ptr, y_ptr, n, lo, hi, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    y = tl.where(x > lo, x, lo)
    y = tl.where(y > hi, hi, y)
    tl.store(y_ptr + i, y, mask=i < n)


@triton.jit
def _bwd(dy_ptr, x_ptr, dx_ptr, n, lo, hi, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    tl.store(dx_ptr + i, tl.where((x <= lo) | (x >= hi), 0.0, dy), mask=i < n)


class Hardtanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, lo, hi):
        x = x.contiguous()
        y = torch.empty_like(x)
        if n := x.numel():
            _fwd[(triton.cdiv(n, 512),)](x, y, n, lo, hi, BLOCK=512)
        ctx.save_for_backward(x)
        ctx.bounds = lo, hi
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        dx = torch.empty_like(x)
        if n := x.numel():
            _bwd[(triton.cdiv(n, 512),)](dy.contiguous(), x, dx, n, *ctx.bounds, BLOCK=512)
        return dx, None, None


def hardtanh(x, lo=-1.0, hi=1.0):
    if x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("x must be float16, bfloat16 or float32")
    if not lo < hi:
        raise ValueError("lo must be below hi")
    return Hardtanh.apply(x, lo, hi)


def hardtanh_reference(x, lo=-1.0, hi=1.0):
    return torch.nn.functional.hardtanh(x, lo, hi)
