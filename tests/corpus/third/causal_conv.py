"""Depthwise causal convolution with SiLU, as before a state space layer: y[t] = silu(b + sum over w of W[w] x[t - 3 + w])."""
import torch
import triton
import triton.language as tl

INPUTS = {"x": "batch time chan", "weight": "chan 4", "bias": "chan", "activation": ("silu", None)}


@triton.jit
def _conv_fwd(X, W, B, Y, sb, st, sc, T, D, WIDTH: tl.constexpr, SILU: tl.constexpr, BT: tl.constexpr, BD: tl.constexpr):
    t = tl.program_id(0) * BT + tl.arange(0, BT)
    d = tl.program_id(1) * BD + tl.arange(0, BD)
    b = tl.program_id(2).to(tl.int64)
    acc = tl.zeros((BT, BD), dtype=tl.float32) + tl.load(B + d, mask=d < D, other=0.0).to(tl.float32)[None, :]
    for i in tl.static_range(WIDTH):
        ti = t - (WIDTH - 1) + i
        m = (ti[:, None] >= 0) & (ti[:, None] < T) & (d[None, :] < D)
        x = tl.load(X + b * sb + ti[:, None].to(tl.int64) * st + d[None, :].to(tl.int64) * sc, mask=m, other=0.0)
        w = tl.load(W + d * WIDTH + i, mask=d < D, other=0.0)
        acc += x.to(tl.float32) * w.to(tl.float32)[None, :]
    if SILU:
        acc = acc * tl.sigmoid(acc)
    tl.store(Y + (b * T + t[:, None]) * D + d[None, :], acc, mask=(t[:, None] < T) & (d[None, :] < D))


@triton.jit
def _conv_pre(X, W, B, DY, G, sb, st, sc, T, D, WIDTH: tl.constexpr, SILU: tl.constexpr, BT: tl.constexpr, BD: tl.constexpr):
    # G: the gradient in front of the activation, float32
    t = tl.program_id(0) * BT + tl.arange(0, BT)
    d = tl.program_id(1) * BD + tl.arange(0, BD)
    b = tl.program_id(2).to(tl.int64)
    here = (t[:, None] < T) & (d[None, :] < D)
    g = tl.load(DY + (b * T + t[:, None]) * D + d[None, :], mask=here, other=0.0).to(tl.float32)
    if SILU:
        acc = tl.zeros((BT, BD), dtype=tl.float32) + tl.load(B + d, mask=d < D, other=0.0).to(tl.float32)[None, :]
        for i in tl.static_range(WIDTH):
            ti = t - (WIDTH - 1) + i
            m = (ti[:, None] >= 0) & (ti[:, None] < T) & (d[None, :] < D)
            x = tl.load(X + b * sb + ti[:, None].to(tl.int64) * st + d[None, :].to(tl.int64) * sc, mask=m, other=0.0)
            w = tl.load(W + d * WIDTH + i, mask=d < D, other=0.0)
            acc += x.to(tl.float32) * w.to(tl.float32)[None, :]
        s = tl.sigmoid(acc)
        g = g * (s + acc * s * (1 - s))
    tl.store(G + (b * T + t[:, None]) * D + d[None, :], g, mask=here)


@triton.jit
def _conv_bwd(X, W, G, DX, DWP, DBP, sb, st, sc, T, D, NT, WIDTH: tl.constexpr, BT: tl.constexpr, BD: tl.constexpr):
    i_t = tl.program_id(0)
    t = i_t * BT + tl.arange(0, BT)
    d = tl.program_id(1) * BD + tl.arange(0, BD)
    b = tl.program_id(2).to(tl.int64)
    here = (t[:, None] < T) & (d[None, :] < D)
    x = tl.load(X + b * sb + t[:, None].to(tl.int64) * st + d[None, :].to(tl.int64) * sc, mask=here, other=0.0).to(tl.float32)
    dx = tl.zeros((BT, BD), dtype=tl.float32)
    part = b * NT + i_t
    for i in tl.static_range(WIDTH):
        # x[t] went into y[t + WIDTH - 1 - i] with the weight i
        to = t + (WIDTH - 1) - i
        m = (to[:, None] < T) & (d[None, :] < D)
        g = tl.load(G + (b * T + to[:, None]) * D + d[None, :], mask=m, other=0.0)
        w = tl.load(W + d * WIDTH + i, mask=d < D, other=0.0).to(tl.float32)
        dx += g * w[None, :]
        tl.store(DWP + (part * D + d) * WIDTH + i, tl.sum(g * x, axis=0), mask=d < D)
        if i == WIDTH - 1:
            tl.store(DBP + part * D + d, tl.sum(g, axis=0), mask=d < D)
    tl.store(DX + (b * T + t[:, None]) * D + d[None, :], dx, mask=here)


class _CausalConv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, silu):
        weight, bias = weight.contiguous(), bias.contiguous()
        Bn, T, D = x.shape
        y = torch.empty((Bn, T, D), dtype=x.dtype, device=x.device)
        grid = (triton.cdiv(T, 16), triton.cdiv(D, 16), Bn)
        if y.numel():
            _conv_fwd[grid](x, weight, bias, y, *x.stride(), T, D, WIDTH=4, SILU=silu, BT=16, BD=16)
        ctx.save_for_backward(x, weight, bias)
        ctx.silu, ctx.grid = silu, grid
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        x, weight, bias = ctx.saved_tensors
        Bn, T, D = x.shape
        dx = torch.empty((Bn, T, D), dtype=x.dtype, device=x.device)
        if dx.numel() == 0:
            return dx, torch.zeros_like(weight), torch.zeros_like(bias), None
        dy = dy.contiguous()
        g = torch.empty((Bn, T, D), dtype=torch.float32, device=x.device)
        nt = ctx.grid[0]
        dwp = torch.empty((Bn * nt, D, 4), dtype=torch.float32, device=x.device)
        dbp = torch.empty((Bn * nt, D), dtype=torch.float32, device=x.device)
        _conv_pre[ctx.grid](x, weight, bias, dy, g, *x.stride(), T, D, WIDTH=4, SILU=ctx.silu, BT=16, BD=16)
        _conv_bwd[ctx.grid](x, weight, g, dx, dwp, dbp, *x.stride(), T, D, nt, WIDTH=4, BT=16, BD=16)
        return dx, dwp.sum(0).to(weight.dtype), dbp.sum(0).to(bias.dtype), None


def causal_conv(x, weight, bias, activation):
    if x.dim() != 3 or weight.shape != (x.shape[2], 4) or bias.shape != (x.shape[2],):
        raise ValueError("x: (batch, time, chan), weight: (chan, 4), bias: (chan,)")
    if x.shape[0] > 65535:
        raise ValueError("the batch is an axis of the grid")
    return _CausalConv.apply(x, weight, bias, activation == "silu")


def causal_conv_reference(x, weight, bias, activation):
    xt = torch.nn.functional.pad(x.transpose(1, 2), (3, 0))
    if xt.numel() == 0 or x.shape[1] == 0:
        y = x + 0 * (weight.sum() + bias.sum())
    else:
        y = torch.nn.functional.conv1d(xt, weight[:, None], bias, groups=x.shape[2]).transpose(1, 2)
    return torch.nn.functional.silu(y) if activation == "silu" else y
