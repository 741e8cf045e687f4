"""Group norm of (n, c, length) with an affine per channel; forward and backward."""

import torch
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable

INPUTS = {"x": "n 4*cg length", "weight": "4*cg", "bias": "4*cg", "groups": (1, 2, 4)}


@triton.jit
def _gn_fwd(x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, rstd_ptr, size, length, cg, groups, eps, BLOCK: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    g = pid % groups
    base = pid * size
    s = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, size, BLOCK):
        i = start + tl.arange(0, BLOCK)
        s += tl.load(x_ptr + base + i, mask=i < size, other=0.0).to(tl.float32)
    mean = tl.sum(s, 0) / size
    s = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, size, BLOCK):
        i = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + base + i, mask=i < size, other=0.0).to(tl.float32)
        d = tl.where(i < size, x - mean, 0.0)
        s += d * d
    rstd = 1.0 / tl.sqrt(tl.sum(s, 0) / size + eps)
    tl.store(mean_ptr + pid, mean)
    tl.store(rstd_ptr + pid, rstd)
    for start in range(0, size, BLOCK):
        i = start + tl.arange(0, BLOCK)
        c = g * cg + i // length
        x = tl.load(x_ptr + base + i, mask=i < size, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + c, mask=i < size, other=0.0).to(tl.float32)
        b = tl.load(b_ptr + c, mask=i < size, other=0.0).to(tl.float32)
        tl.store(y_ptr + base + i, (x - mean) * rstd * w + b, mask=i < size)


@triton.jit
def _gn_bwd_x(dy_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, dx_ptr, size, length, cg, groups, BLOCK: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    g = pid % groups
    base = pid * size
    mean = tl.load(mean_ptr + pid)
    rstd = tl.load(rstd_ptr + pid)
    s1 = tl.zeros((BLOCK,), tl.float32)
    s2 = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, size, BLOCK):
        i = start + tl.arange(0, BLOCK)
        live = i < size
        x = tl.load(x_ptr + base + i, mask=live, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + base + i, mask=live, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + g * cg + i // length, mask=live, other=0.0).to(tl.float32)
        s1 += tl.where(live, dy * w, 0.0)
        s2 += tl.where(live, dy * w * (x - mean) * rstd, 0.0)
    m1 = tl.sum(s1, 0) / size
    m2 = tl.sum(s2, 0) / size
    for start in range(0, size, BLOCK):
        i = start + tl.arange(0, BLOCK)
        live = i < size
        x = tl.load(x_ptr + base + i, mask=live, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + base + i, mask=live, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + g * cg + i // length, mask=live, other=0.0).to(tl.float32)
        dx = rstd * (dy * w - m1 - (x - mean) * rstd * m2)
        tl.store(dx_ptr + base + i, dx, mask=live)


@triton.jit
def _gn_bwd_wb(dy_ptr, x_ptr, mean_ptr, rstd_ptr, dw_ptr, db_ptr, N, C, length, cg, groups, BLOCK: tl.constexpr):
    c = tl.program_id(0).to(tl.int64)
    dw = tl.zeros((BLOCK,), tl.float32)
    db = tl.zeros((BLOCK,), tl.float32)
    for n in range(0, N):
        mean = tl.load(mean_ptr + n * groups + c // cg)
        rstd = tl.load(rstd_ptr + n * groups + c // cg)
        base = (tl.cast(n, tl.int64) * C + c) * length
        for start in range(0, length, BLOCK):
            i = start + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + base + i, mask=i < length, other=0.0).to(tl.float32)
            dy = tl.load(dy_ptr + base + i, mask=i < length, other=0.0).to(tl.float32)
            dw += dy * (x - mean) * rstd
            db += dy
    tl.store(dw_ptr + c, tl.sum(dw, 0))
    tl.store(db_ptr + c, tl.sum(db, 0))


class GroupNormFn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, groups, eps):
        x, weight, bias = x.contiguous(), weight.contiguous(), bias.contiguous()
        N, C, L = x.shape
        y = torch.empty_like(x)
        mean = torch.empty((N, groups), device=x.device, dtype=torch.float32)
        rstd = torch.empty_like(mean)
        cg = C // groups
        if x.numel():
            _gn_fwd[(N * groups,)](x, weight, bias, y, mean, rstd, cg * L, L, cg, groups, eps, BLOCK=256)
        ctx.save_for_backward(x, weight, mean, rstd)
        ctx.groups = groups
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, weight, mean, rstd = ctx.saved_tensors
        dy = dy.contiguous()
        N, C, L = x.shape
        cg = C // ctx.groups
        dx, dw, db = torch.empty_like(x), torch.zeros_like(weight), torch.zeros_like(weight)
        if x.numel():
            _gn_bwd_x[(N * ctx.groups,)](dy, x, weight, mean, rstd, dx, cg * L, L, cg, ctx.groups, BLOCK=256)
            _gn_bwd_wb[(C,)](dy, x, mean, rstd, dw, db, N, C, L, cg, ctx.groups, BLOCK=256)
        return dx, dw, db, None, None


def group_norm(x, weight, bias, groups, eps=1e-5):
    if x.dim() != 3:
        raise ValueError("x must be (n, c, length)")
    C = x.shape[1]
    if groups < 1 or C == 0 or C % groups:
        raise ValueError("c must be a positive multiple of groups")
    if weight.shape != (C,) or bias.shape != (C,):
        raise ValueError("weight and bias must be (c,)")
    if x.dtype not in (torch.float16, torch.bfloat16, torch.float32) or {weight.dtype, bias.dtype} != {x.dtype}:
        raise ValueError("x, weight and bias must have one dtype: float16, bfloat16 or float32")
    if C // groups * x.shape[2] >= 2**31:
        raise ValueError("a group must have fewer than 2**31 elements")
    return GroupNormFn.apply(x, weight, bias, groups, eps)


def group_norm_reference(x, weight, bias, groups, eps=1e-5):
    wide = torch.promote_types(x.dtype, torch.float32)
    parts = x.to(wide).reshape(x.shape[0], groups, x.shape[1] // groups * x.shape[2])
    centred = parts - parts.mean(-1, keepdim=True)
    y = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps)
    return (y.view(x.shape) * weight.to(wide)[:, None] + bias.to(wide)[:, None]).to(x.dtype)
