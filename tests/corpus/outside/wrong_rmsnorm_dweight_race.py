# kind: race between programs; fault: every program adds its part of the weight's gradient with a load and a store
# (line 38)
# source: own

import torch
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable

INPUTS = {"x": "rows cols", "weight": "cols"}
EPS = 1e-6


@triton.jit
def _fwd(x_ptr, w_ptr, y_ptr, rstd_ptr, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + n, mask=n < N, other=0.0).to(tl.float32)
    rstd = 1.0 / tl.sqrt(tl.sum(x * x, axis=0) / N + eps)
    tl.store(rstd_ptr + row, rstd)
    w = tl.load(w_ptr + n, mask=n < N, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * N + n, x * rstd * w, mask=n < N)


@triton.jit
def _bwd(dy_ptr, x_ptr, w_ptr, rstd_ptr, dx_ptr, dw_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, BLOCK)
    live = n < N
    dy = tl.load(dy_ptr + row * N + n, mask=live, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + row * N + n, mask=live, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + n, mask=live, other=0.0).to(tl.float32)
    rstd = tl.load(rstd_ptr + row)
    xhat = x * rstd
    dx = rstd * (dy * w - xhat * (tl.sum(dy * w * xhat, axis=0) / N))
    tl.store(dx_ptr + row * N + n, dx, mask=live)
    dw = tl.load(dw_ptr + n, mask=live, other=0.0)
    tl.store(dw_ptr + n, dw + dy * xhat, mask=live)


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        x, weight = x.contiguous(), weight.contiguous()
        M, N = x.shape
        y = torch.empty_like(x)
        rstd = torch.empty(M, dtype=torch.float32, device=x.device)
        ctx.block = triton.next_power_of_2(max(N, 1))
        if x.numel():
            _fwd[(M,)](x, weight, y, rstd, N, EPS, BLOCK=ctx.block)
        ctx.save_for_backward(x, weight, rstd)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, weight, rstd = ctx.saved_tensors
        M, N = x.shape
        dx = torch.empty_like(x)
        dw = torch.zeros(N, dtype=torch.float32, device=x.device)
        if x.numel():
            _bwd[(M,)](dy.contiguous(), x, weight, rstd, dx, dw, N, BLOCK=ctx.block)
        return dx, dw.to(weight.dtype)


def rms_norm(x, weight):
    if x.dim() != 2 or weight.shape != x.shape[1:]:
        raise ValueError("x must be (rows, cols) and weight (cols,)")
    if x.dtype not in (torch.float16, torch.bfloat16, torch.float32) or weight.dtype != x.dtype:
        raise ValueError("x and weight must both be float16, bfloat16 or float32")
    if x.shape[1] > 32768:
        raise ValueError("at most 32768 columns")
    return _RMSNorm.apply(x, weight)


def rms_norm_reference(x, weight):
    return torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps=EPS)
