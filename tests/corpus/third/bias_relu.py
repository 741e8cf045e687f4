"""Bias and ReLU: each block of rows stores its part of the bias gradient over that of the others (backward of a broadcast)."""
import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols", "bias": "cols"}


@triton.jit
def _fwd(X, B, Y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    r = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    c = tl.program_id(1).to(tl.int64) * BN + tl.arange(0, BN)
    m = (r[:, None] < M) & (c[None, :] < N)
    x = tl.load(X + r[:, None] * N + c[None, :], mask=m, other=0.0).to(tl.float32)
    y = x + tl.load(B + c, mask=c < N, other=0.0).to(tl.float32)[None, :]
    tl.store(Y + r[:, None] * N + c[None, :], tl.where(y < 0, 0.0, y), mask=m)


@triton.jit
def _bwd(DY, Y, DX, DB, M, N, BM: tl.constexpr, BN: tl.constexpr):
    r = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    c = tl.program_id(1).to(tl.int64) * BN + tl.arange(0, BN)
    m = (r[:, None] < M) & (c[None, :] < N)
    g = tl.load(DY + r[:, None] * N + c[None, :], mask=m, other=0.0).to(tl.float32)
    y = tl.load(Y + r[:, None] * N + c[None, :], mask=m, other=0.0)
    g = tl.where(y > 0, g, 0.0)
    tl.store(DX + r[:, None] * N + c[None, :], g, mask=m)
    tl.store(DB + c, tl.sum(g, axis=0), mask=c < N)


class _BiasReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, b):
        x, b = x.contiguous(), b.contiguous()
        M, N = x.shape
        y = torch.empty_like(x)
        if x.numel():
            _fwd[(triton.cdiv(M, 64), triton.cdiv(N, 32))](x, b, y, M, N, BM=64, BN=32)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        M, N = y.shape
        dx, db = torch.empty_like(y), torch.zeros(N, dtype=y.dtype, device=y.device)
        if y.numel():
            _bwd[(triton.cdiv(M, 64), triton.cdiv(N, 32))](dy.contiguous(), y, dx, db, M, N, BM=64, BN=32)
        return dx, db


def bias_relu(x, bias):
    if x.dim() != 2 or bias.shape != x.shape[1:] or bias.dtype != x.dtype:
        raise ValueError("x: (rows, cols), bias: (cols,)")
    return _BiasReLU.apply(x, bias)


def bias_relu_reference(x, bias):
    return torch.relu(x + bias)
