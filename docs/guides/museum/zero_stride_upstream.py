"""`.sum().backward()` hands over one number, shown many times."""

from academy.runtime import device

import torch
import triton
import triton.language as tl

D = device.DEVICE


# --8<-- [start:exhibit]
@triton.jit
def scale_kernel(dy_ptr, dx_ptr, factor, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    dy = tl.load(dy_ptr + offsets, mask=offsets < n, other=0.0)
    tl.store(dx_ptr + offsets, factor * dy, mask=offsets < n)


class Broken(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 3 * x

    @staticmethod
    def backward(ctx, dy):
        dx = torch.empty(dy.shape, device=dy.device)
        scale_kernel[(1,)](dy, dx, 3.0, dy.numel(), BLOCK=8)  # every stride of dy is 0: it has one element of memory
        return dx


class Fixed(Broken):
    @staticmethod
    def backward(ctx, dy):
        dx = torch.empty(dy.shape, device=dy.device)
        scale_kernel[(1,)](dy.contiguous(), dx, 3.0, dy.numel(), BLOCK=8)
        return dx


# --8<-- [end:exhibit]


def run(function, x, upstream):
    """`upstream` lies in memory followed by other numbers, as memory usually does."""
    x = x.clone().requires_grad_()
    function.apply(x).backward(upstream)
    return x.grad


def broken(x, upstream):
    return run(Broken, x, upstream)


def fixed(x, upstream):
    return run(Fixed, x, upstream)


def inputs():
    memory = torch.arange(1.0, 9.0, device=D)
    return torch.ones(6, device=D), memory[:1].expand(6)


def right(x, upstream):
    return torch.full_like(x, 3.0)


def EXAMPLE():
    broken(*inputs())
