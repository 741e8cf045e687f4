"""RMSNorm whose backward pass returns None for the weight (after unslothai/unsloth#4533)."""
import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols", "w": "cols"}


@triton.jit
def _fwd(X, W, Y, R, n, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    x = tl.load(X + r * n + c, mask=c < n, other=0.0).to(tl.float32)
    rstd = tl.rsqrt(tl.sum(x * x, axis=0) / n + 1e-6)
    tl.store(R + r, rstd)
    w = tl.load(W + c, mask=c < n, other=0.0).to(tl.float32)
    tl.store(Y + r * n + c, x * rstd * w, mask=c < n)


@triton.jit
def _bwd(DY, X, W, R, DX, n, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    x = tl.load(X + r * n + c, mask=c < n, other=0.0).to(tl.float32)
    g = tl.load(DY + r * n + c, mask=c < n, other=0.0).to(tl.float32) * tl.load(W + c, mask=c < n, other=0.0).to(tl.float32)
    rstd = tl.load(R + r)
    xh = x * rstd
    tl.store(DX + r * n + c, rstd * (g - xh * (tl.sum(g * xh, axis=0) / n)), mask=c < n)


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        x, w = x.contiguous(), w.contiguous()
        y = torch.empty_like(x)
        r = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
        if x.numel():
            _fwd[(x.shape[0],)](x, w, y, r, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        ctx.save_for_backward(x, w, r)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        x, w, r = ctx.saved_tensors
        dx = torch.empty_like(x)
        if x.numel():
            _bwd[(x.shape[0],)](dy.contiguous(), x, w, r, dx, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return dx, None


def fast_rmsnorm(x, w):
    if x.dim() != 2 or w.shape != x.shape[1:] or w.dtype != x.dtype:
        raise ValueError("x: (rows, cols), w: (cols,)")
    return _Norm.apply(x, w)


def fast_rmsnorm_reference(x, w):
    xf = x.float()
    return (xf * torch.rsqrt(xf.square().mean(-1, keepdim=True) + 1e-6) * w.float()).to(x.dtype)
