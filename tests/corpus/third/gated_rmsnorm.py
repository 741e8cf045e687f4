"""RMS-normalized output with a SiLU gate; the backward pass reads the saved output with the strides of its gradient
(after fla-org/flash-linear-attention#1138)."""
import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols", "gate": "rows cols"}


@triton.jit
def _fwd(X, G, Y, R, n, sx, sg, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    x = tl.load(X + r * sx + c, mask=c < n, other=0.0).to(tl.float32)
    g = tl.load(G + r * sg + c, mask=c < n, other=0.0).to(tl.float32)
    rstd = tl.rsqrt(tl.sum(x * x, axis=0) / n + 1e-6)
    tl.store(R + r, rstd)
    tl.store(Y + r * n + c, x * rstd * g * tl.sigmoid(g), mask=c < n)


@triton.jit
def _bwd(DY, X, G, R, DX, DG, n, sdy, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    m = c < n
    dy = tl.load(DY + r * sdy + c, mask=m, other=0.0).to(tl.float32)
    x = tl.load(X + r * sdy + c, mask=m, other=0.0).to(tl.float32)
    g = tl.load(G + r * sdy + c, mask=m, other=0.0).to(tl.float32)
    rstd = tl.load(R + r)
    s = tl.sigmoid(g)
    xh = x * rstd
    tl.store(DG + r * n + c, dy * xh * (s + g * s * (1 - s)), mask=m)
    dxh = dy * g * s
    tl.store(DX + r * n + c, rstd * (dxh - xh * (tl.sum(dxh * xh, axis=0) / n)), mask=m)


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gate):
        x, gate = x.contiguous(), gate.contiguous()
        rows, n = x.shape
        y = torch.empty_like(x)
        r = torch.empty(rows, dtype=torch.float32, device=x.device)
        if x.numel():
            _fwd[(rows,)](x, gate, y, r, n, x.stride(0), gate.stride(0), BLOCK=triton.next_power_of_2(n))
        ctx.save_for_backward(x, gate, r)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        x, gate, r = ctx.saved_tensors
        rows, n = x.shape
        if dy.stride(-1) != 1:
            dy = dy.contiguous()
        dx, dg = torch.empty_like(x), torch.empty_like(gate)
        if x.numel():
            _bwd[(rows,)](dy, x, gate, r, dx, dg, n, dy.stride(0), BLOCK=triton.next_power_of_2(n))
        return dx, dg


def gated_rmsnorm(x, gate):
    if x.dim() != 2 or x.shape != gate.shape or x.dtype != gate.dtype:
        raise ValueError("one shape, one dtype")
    return _Gated.apply(x, gate)


def gated_rmsnorm_reference(x, gate):
    xf, g = x.float(), gate.float()
    return (xf * torch.rsqrt(xf.square().mean(-1, keepdim=True) + 1e-6) * torch.nn.functional.silu(g)).to(x.dtype)
