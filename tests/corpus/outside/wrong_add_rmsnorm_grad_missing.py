# kind: gradient missing; fault: what comes back through the second output, the sum, isn't added (line 60)
# source: own

import torch
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable

INPUTS = {"x": "rows cols", "residual": "rows cols"}
EPS = 1e-6


@triton.jit
def _fwd(x_ptr, r_ptr, y_ptr, s_ptr, rstd_ptr, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, BLOCK)
    at = row * N + n
    s = tl.load(x_ptr + at, mask=n < N, other=0.0).to(tl.float32)
    s += tl.load(r_ptr + at, mask=n < N, other=0.0).to(tl.float32)
    s = s.to(s_ptr.dtype.element_ty)
    tl.store(s_ptr + at, s, mask=n < N)
    s = s.to(tl.float32)
    rstd = 1.0 / tl.sqrt(tl.sum(s * s, axis=0) / N + eps)
    tl.store(rstd_ptr + row, rstd)
    tl.store(y_ptr + at, s * rstd, mask=n < N)


@triton.jit
def _bwd(dy_ptr, s_ptr, rstd_ptr, ds_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, BLOCK)
    at = row * N + n
    dy = tl.load(dy_ptr + at, mask=n < N, other=0.0).to(tl.float32)
    rstd = tl.load(rstd_ptr + row)
    xhat = tl.load(s_ptr + at, mask=n < N, other=0.0).to(tl.float32) * rstd
    ds = rstd * (dy - xhat * (tl.sum(dy * xhat, axis=0) / N))
    tl.store(ds_ptr + at, ds, mask=n < N)


class AddRMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, residual):
        x, residual = x.contiguous(), residual.contiguous()
        M, N = x.shape
        y, s = torch.empty_like(x), torch.empty_like(x)
        rstd = torch.empty(M, dtype=torch.float32, device=x.device)
        ctx.block = triton.next_power_of_2(max(N, 1))
        if x.numel():
            _fwd[(M,)](x, residual, y, s, rstd, N, EPS, BLOCK=ctx.block)
        ctx.save_for_backward(s, rstd)
        return y, s

    @staticmethod
    @once_differentiable
    def backward(ctx, dy, dsum):
        s, rstd = ctx.saved_tensors
        ds = torch.empty_like(s)
        if s.numel():
            _bwd[(s.shape[0],)](dy.contiguous(), s, rstd, ds, s.shape[1], BLOCK=ctx.block)
        return ds, ds.clone()


def add_rmsnorm(x, residual):
    """(rms_norm(x + residual), x + residual)"""
    if x.dim() != 2 or residual.shape != x.shape or residual.dtype != x.dtype:
        raise ValueError("x and residual must be matrices of one shape and dtype")
    if x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("x must be float16, bfloat16 or float32")
    if x.shape[1] > 32768:
        raise ValueError("at most 32768 columns")
    return AddRMSNorm.apply(x, residual)


def add_rmsnorm_reference(x, residual):
    s = x + residual
    return torch.nn.functional.rms_norm(s, s.shape[-1:], eps=EPS), s
