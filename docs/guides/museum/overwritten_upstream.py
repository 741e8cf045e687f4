"""A backward pass that reuses the upstream gradient's memory."""

from academy.runtime import device

import torch
import triton
import triton.language as tl

D = device.DEVICE


# --8<-- [start:exhibit]
@triton.jit
def scale_kernel(x_ptr, out_ptr, factor, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    tl.store(out_ptr + offsets, factor * x, mask=offsets < n)


class Broken(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 3 * x

    @staticmethod
    def backward(ctx, dy):
        scale_kernel[(1,)](dy, dy, 3.0, dy.numel(), BLOCK=8)  # saves an allocation, and ruins the residual path
        return dy


class Fixed(Broken):
    @staticmethod
    def backward(ctx, dy):
        dx = torch.empty_like(dy, memory_format=torch.contiguous_format)
        scale_kernel[(1,)](dy.contiguous(), dx, 3.0, dy.numel(), BLOCK=8)
        return dx


# --8<-- [end:exhibit]


def run(function, x):
    """The gradient of a residual block, f(x) + x: it must be 3 + 1 everywhere."""
    x = x.clone().requires_grad_()
    (function.apply(x) + x).backward(torch.ones_like(x))
    return x.grad


def broken(x):
    return run(Broken, x)


def fixed(x):
    return run(Fixed, x)


def inputs():
    return (torch.ones(6, device=D),)


def right(x):
    return torch.full_like(x, 4.0)


def EXAMPLE():
    broken(*inputs())
