"""Cumulative sum from the right, as returns-to-go and gated linear attention need it; long rows go chunk by chunk."""

import torch
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable

INPUTS = {"x": "rows cols"}


@triton.jit
def _scan(x_ptr, y_ptr, cols, sx_r, sx_c, REVERSE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    chunks = tl.cdiv(cols, BLOCK)
    carry = 0.0
    for n in range(0, chunks):
        chunk = n
        if REVERSE:
            chunk = chunks - 1 - n
        c = chunk * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
        x = tl.load(x_ptr + row * sx_r + c * sx_c, mask=c < cols, other=0.0).to(tl.float32)
        y = tl.cumsum(x, axis=0, reverse=REVERSE) + carry
        carry += tl.sum(x, axis=0)
        tl.store(y_ptr + row * cols + c, y, mask=c < cols)


def _run(x, reverse):
    rows, cols = x.shape
    y = torch.empty((rows, cols), dtype=x.dtype, device=x.device)
    if y.numel():
        _scan[(rows,)](x, y, cols, x.stride(0), x.stride(1), REVERSE=reverse, BLOCK=128)
    return y


class ReverseCumsum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return _run(x, True)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        return _run(dy, False)


def reverse_cumsum(x):
    if x.dim() != 2:
        raise ValueError("x must be a matrix")
    if x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("x must be float16, bfloat16 or float32")
    return ReverseCumsum.apply(x)


def reverse_cumsum_reference(x):
    wide = torch.promote_types(x.dtype, torch.float32)
    return x.to(wide).flip(1).cumsum(1).flip(1).to(x.dtype)
