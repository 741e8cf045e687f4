"""Dropout by a hash of element and seed; the backward pass hashes other element numbers than the forward pass
(after state-spaces/mamba#1023)."""
import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols", "seed": (3, 77)}


@triton.jit
def _keep(o, seed):
    h = (o.to(tl.uint32) ^ (seed * 0x9E37)).to(tl.uint32) * 2654435769
    h = (h ^ (h >> 15)).to(tl.uint32) * 2246822519
    return ((h ^ (h >> 13)) & 3) != 0


@triton.jit
def _fwd(X, Y, n, seed, BLOCK: tl.constexpr):
    o = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + o, mask=o < n, other=0.0).to(tl.float32)
    tl.store(Y + o, tl.where(_keep(o, seed), x / 0.75, 0.0), mask=o < n)


@triton.jit
def _bwd(DY, DX, cols, seed, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    g = tl.load(DY + r * cols + c, mask=c < cols, other=0.0).to(tl.float32)
    tl.store(DX + r * cols + c, tl.where(_keep(r * BLOCK + c, seed), g / 0.75, 0.0), mask=c < cols)


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, seed):
        ctx.seed = seed
        x = x.contiguous()
        y = torch.empty_like(x)
        if x.numel():
            _fwd[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), seed, BLOCK=256)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        dy = dy.contiguous()
        dx = torch.empty_like(dy)
        if dy.numel():
            _bwd[(dy.shape[0],)](dy, dx, dy.shape[1], ctx.seed, BLOCK=triton.next_power_of_2(dy.shape[1]))
        return dx, None


def hash_dropout(x, seed):
    if x.dim() != 2 or x.numel() >= 2**31:
        raise ValueError("x: (rows, cols)")
    return _Dropout.apply(x, seed)


def hash_dropout_reference(x, seed):
    m32 = 0xFFFFFFFF
    o = torch.arange(x.numel(), device=x.device).view(x.shape)
    h = ((o ^ (seed * 0x9E37)) * (2654435769 - (1 << 32))) & m32
    h = ((h ^ (h >> 15)) * (2246822519 - (1 << 32))) & m32
    keep = ((h ^ (h >> 13)) & 3) != 0
    return torch.where(keep, x / 0.75, 0.0)
