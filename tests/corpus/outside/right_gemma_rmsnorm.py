"""RMSNorm of Gemma: x / rms(x) * (1 + w), everything in float32 until the store. Autotuned over warps."""

import torch
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable

INPUTS = {"x": "rows cols", "weight": "cols", "eps": 1e-6}
MAX_COLS = 32768


@triton.autotune(configs=[triton.Config({}, num_warps=w) for w in (1, 4, 8)], key=["n_cols"])
@triton.jit
def _fwd(X, W, Y, RSTD, stride_x, n_cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(X + row * stride_x + cols, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(W + cols, mask=mask, other=0.0).to(tl.float32)
    rstd = 1.0 / tl.sqrt(tl.sum(x * x, 0) / n_cols + eps)
    tl.store(RSTD + row, rstd)
    tl.store(Y + row * n_cols + cols, x * rstd * (1.0 + w), mask=mask)


@triton.autotune(configs=[triton.Config({}, num_warps=w) for w in (4, 8)], key=["n_cols"])
@triton.jit
def _bwd(DY, X, W, RSTD, DX, DW, n_rows, n_cols, rows_per_program, BLOCK: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    w = tl.load(W + cols, mask=mask, other=0.0).to(tl.float32) + 1.0
    dw = tl.zeros((BLOCK,), tl.float32)
    first = pid * rows_per_program
    last = min(first + rows_per_program, n_rows)
    for row in range(first, last):
        x = tl.load(X + row * n_cols + cols, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(DY + row * n_cols + cols, mask=mask, other=0.0).to(tl.float32)
        rstd = tl.load(RSTD + row)
        xhat = x * rstd
        dw += dy * xhat
        wdy = tl.where(mask, dy * w, 0.0)
        dx = (wdy - xhat * (tl.sum(wdy * xhat, 0) / n_cols)) * rstd
        tl.store(DX + row * n_cols + cols, dx, mask=mask)
    tl.store(DW + pid * n_cols + cols, dw, mask=mask)


class _GemmaRMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        x = x if x.stride(-1) == 1 else x.contiguous()
        weight = weight.contiguous()
        n_rows, n_cols = x.shape
        y = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
        rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
        BLOCK = triton.next_power_of_2(max(n_cols, 1))
        if y.numel():
            _fwd[(n_rows,)](x, weight, y, rstd, x.stride(0), n_cols, eps, BLOCK=BLOCK)
        ctx.save_for_backward(x, weight, rstd)
        ctx.BLOCK = BLOCK
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, weight, rstd = ctx.saved_tensors
        x, dy = x.contiguous(), dy.contiguous()
        n_rows, n_cols = x.shape
        if x.numel() == 0:
            return torch.zeros_like(x), torch.zeros_like(weight), None
        sms = torch.cuda.get_device_properties(x.device).multi_processor_count
        programs = min(sms, n_rows)
        per_program = triton.cdiv(n_rows, programs)
        dx = torch.empty_like(x)
        dw = torch.empty((programs, n_cols), device=x.device, dtype=torch.float32)
        _bwd[(programs,)](dy, x, weight, rstd, dx, dw, n_rows, n_cols, per_program, BLOCK=ctx.BLOCK)
        return dx, dw.sum(0).to(weight.dtype), None


def gemma_rmsnorm(x, weight, eps=1e-6):
    if x.dim() != 2 or weight.shape != x.shape[1:]:
        raise ValueError("x must be (rows, cols) and weight (cols,)")
    if x.shape[1] > MAX_COLS:
        raise ValueError(f"at most {MAX_COLS} columns")
    if x.dtype not in (torch.float16, torch.bfloat16, torch.float32) or weight.dtype != x.dtype:
        raise ValueError("x and weight must both be float16, bfloat16 or float32")
    if x.device != weight.device:
        raise ValueError("x and weight must be on one device")
    return _GemmaRMSNorm.apply(x, weight, eps)


def gemma_rmsnorm_reference(x, weight, eps=1e-6):
    x32 = x.float() if x.dtype != torch.float64 else x
    y = x32 * torch.rsqrt(x32.pow(2).mean(-1, keepdim=True) + eps)
    return (y * (1.0 + weight.to(x32.dtype))).to(x.dtype)
