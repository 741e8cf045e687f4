"""y = layernorm(s) with s = residual + keep * x / (1 - p), and both are returned; after flash-attn's fused layer."""

import torch
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable

P = 0.1


@triton.jit
def _fwd(x_ptr, keep_ptr, res_ptr, w_ptr, b_ptr, y_ptr, s_ptr, mean_ptr, rstd_ptr, N, eps, scale, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, BLOCK)
    live = n < N
    at = row * N + n
    x = tl.load(x_ptr + at, mask=live, other=0.0).to(tl.float32)
    keep = tl.load(keep_ptr + at, mask=live, other=0)
    s = tl.load(res_ptr + at, mask=live, other=0.0).to(tl.float32) + tl.where(keep != 0, x * scale, 0.0)
    s = s.to(s_ptr.dtype.element_ty)
    tl.store(s_ptr + at, s, mask=live)
    s = s.to(tl.float32)
    mean = tl.sum(tl.where(live, s, 0.0), 0) / N
    d = tl.where(live, s - mean, 0.0)
    rstd = tl.rsqrt(tl.sum(d * d, 0) / N + eps)
    w = tl.load(w_ptr + n, mask=live, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + n, mask=live, other=0.0).to(tl.float32)
    tl.store(y_ptr + at, d * rstd * w + b, mask=live)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


@triton.jit
def _bwd(
    dy_ptr, ds_ptr, s_ptr, keep_ptr, w_ptr, mean_ptr, rstd_ptr, dx_ptr, dres_ptr, dw_ptr, db_ptr, N, scale,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, BLOCK)
    live = n < N
    at = row * N + n
    dy = tl.load(dy_ptr + at, mask=live, other=0.0).to(tl.float32)
    s = tl.load(s_ptr + at, mask=live, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + n, mask=live, other=0.0).to(tl.float32)
    keep = tl.load(keep_ptr + at, mask=live, other=0)
    rstd = tl.load(rstd_ptr + row)
    xhat = tl.where(live, (s - tl.load(mean_ptr + row)) * rstd, 0.0)
    g = dy * w
    c1 = tl.sum(xhat * g, 0) / N
    c2 = tl.sum(g, 0) / N
    d = (g - xhat * c1 - c2) * rstd + tl.load(ds_ptr + at, mask=live, other=0.0).to(tl.float32)
    tl.store(dres_ptr + at, d, mask=live)
    tl.store(dx_ptr + at, tl.where(keep != 0, d * scale, 0.0), mask=live)
    tl.atomic_add(dw_ptr + n, dy * xhat, mask=live)
    tl.atomic_add(db_ptr + n, dy, mask=live)


class _DropoutAddLayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, keep, residual, weight, bias, eps):
        x, keep, residual = x.contiguous(), keep.contiguous(), residual.contiguous()
        weight, bias = weight.contiguous(), bias.contiguous()
        M, N = x.shape
        y, s = torch.empty_like(x), torch.empty_like(x)
        mean = torch.empty(M, dtype=torch.float32, device=x.device)
        rstd = torch.empty_like(mean)
        block = triton.next_power_of_2(max(N, 1))
        if x.numel():
            _fwd[(M,)](x, keep, residual, weight, bias, y, s, mean, rstd, N, eps, 1 / (1 - P), BLOCK=block)
        ctx.save_for_backward(s, keep, weight, mean, rstd)
        ctx.block = block
        return y, s

    @staticmethod
    @once_differentiable
    def backward(ctx, dy, ds):
        s, keep, weight, mean, rstd = ctx.saved_tensors
        M, N = s.shape
        dx, dres = torch.empty_like(s), torch.empty_like(s)
        dw = torch.zeros(N, dtype=torch.float32, device=s.device)
        db = torch.zeros_like(dw)
        if s.numel():
            dy, ds = dy.contiguous(), ds.contiguous()
            _bwd[(M,)](dy, ds, s, keep, weight, mean, rstd, dx, dres, dw, db, N, 1 / (1 - P), BLOCK=ctx.block)
        return dx, None, dres, dw.to(weight.dtype), db.to(weight.dtype), None


def dropout_add_layernorm(x, keep, residual, weight, bias, eps=1e-5):
    """x, residual (rows, cols); keep bool (rows, cols), what dropout with p = 0.1 keeps. Returns (y, s)."""
    if x.dim() != 2 or keep.shape != x.shape or residual.shape != x.shape:
        raise ValueError("x, keep and residual must be matrices of one shape")
    if weight.shape != x.shape[1:] or bias.shape != x.shape[1:]:
        raise ValueError("weight and bias must be (cols,)")
    if keep.dtype != torch.bool:
        raise ValueError("keep must be bool")
    if x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("x must be float16, bfloat16 or float32")
    if not x.dtype == residual.dtype == weight.dtype == bias.dtype:
        raise ValueError("x, residual, weight and bias must have one dtype")
    if x.shape[1] > 16384:
        raise ValueError("at most 16384 columns")
    return _DropoutAddLayerNorm.apply(x, keep, residual, weight, bias, eps)


def dropout_add_layernorm_inputs(rows, cols):
    return {
        "x": torch.randn(rows, cols),
        "keep": torch.rand(rows, cols) > P,
        "residual": torch.randn(rows, cols),
        "weight": torch.randn(cols),
        "bias": torch.randn(cols),
    }


def dropout_add_layernorm_reference(x, keep, residual, weight, bias, eps=1e-5):
    wide = torch.promote_types(x.dtype, torch.float32)
    s = (residual.to(wide) + torch.where(keep, x.to(wide) / (1 - P), 0.0)).to(x.dtype)
    return torch.nn.functional.layer_norm(s, s.shape[-1:], weight, bias, eps), s
