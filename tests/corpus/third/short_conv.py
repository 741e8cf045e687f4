"""Depthwise convolution of width 2; the partial sums for the weight gradient have a slot a time block, but none a batch
(after fla-org/flash-linear-attention#955)."""
import torch
import triton
import triton.language as tl

INPUTS = {"x": "batch time chan", "weight": "2 chan"}


@triton.jit
def _fwd(X, W, Y, T, D, BT: tl.constexpr, BD: tl.constexpr):
    t = tl.program_id(0) * BT + tl.arange(0, BT)
    d = tl.arange(0, BD)
    b = tl.program_id(1).to(tl.int64)
    m = (t[:, None] < T) & (d[None, :] < D)
    cur = tl.load(X + (b * T + t[:, None]) * D + d[None, :], mask=m, other=0.0).to(tl.float32)
    prev = tl.load(X + (b * T + t[:, None] - 1) * D + d[None, :], mask=m & (t[:, None] > 0), other=0.0).to(tl.float32)
    w0 = tl.load(W + d, mask=d < D, other=0.0).to(tl.float32)
    w1 = tl.load(W + D + d, mask=d < D, other=0.0).to(tl.float32)
    tl.store(Y + (b * T + t[:, None]) * D + d[None, :], prev * w0[None, :] + cur * w1[None, :], mask=m)


@triton.jit
def _bwd(DY, X, W, DX, DWP, T, D, BT: tl.constexpr, BD: tl.constexpr):
    i_t = tl.program_id(0)
    t = i_t * BT + tl.arange(0, BT)
    d = tl.arange(0, BD)
    b = tl.program_id(1).to(tl.int64)
    m = (t[:, None] < T) & (d[None, :] < D)
    dy = tl.load(DY + (b * T + t[:, None]) * D + d[None, :], mask=m, other=0.0).to(tl.float32)
    nxt = tl.load(DY + (b * T + t[:, None] + 1) * D + d[None, :], mask=m & (t[:, None] + 1 < T), other=0.0).to(tl.float32)
    cur = tl.load(X + (b * T + t[:, None]) * D + d[None, :], mask=m, other=0.0).to(tl.float32)
    w0 = tl.load(W + d, mask=d < D, other=0.0).to(tl.float32)
    w1 = tl.load(W + D + d, mask=d < D, other=0.0).to(tl.float32)
    tl.store(DX + (b * T + t[:, None]) * D + d[None, :], nxt * w0[None, :] + dy * w1[None, :], mask=m)
    tl.store(DWP + (i_t * 2) * D + d, tl.sum(nxt * cur, axis=0), mask=d < D)
    tl.store(DWP + (i_t * 2 + 1) * D + d, tl.sum(dy * cur, axis=0), mask=d < D)


class _Conv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        x, w = x.contiguous(), w.contiguous()
        B, T, D = x.shape
        y = torch.empty_like(x)
        if x.numel():
            _fwd[(triton.cdiv(T, 32), B)](x, w, y, T, D, BT=32, BD=triton.next_power_of_2(D))
        ctx.save_for_backward(x, w)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        dy = dy.contiguous()
        B, T, D = x.shape
        dx = torch.empty_like(x)
        nt = triton.cdiv(T, 32)
        dwp = torch.zeros((nt, 2, D), dtype=torch.float32, device=x.device)
        if x.numel():
            _bwd[(nt, B)](dy, x, w, dx, dwp, T, D, BT=32, BD=triton.next_power_of_2(D))
        return dx, dwp.sum(0).to(w.dtype)


def short_conv(x, weight):
    if x.dim() != 3 or weight.shape != (2, x.shape[2]) or x.shape[0] > 65535:
        raise ValueError("x: (batch, time, chan), weight: (2, chan)")
    return _Conv.apply(x, weight)


def short_conv_reference(x, weight):
    prev = torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1]), 1)
    return prev * weight[0] + x * weight[1]
