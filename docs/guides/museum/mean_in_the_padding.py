"""Subtracting the mean fills the masked lanes again."""

from academy.runtime import device

import torch
import triton
import triton.language as tl

D = device.DEVICE


# --8<-- [start:exhibit]
@triton.jit
def broken_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    centred = x - tl.sum(x, axis=0) / n  # the masked lanes now hold minus the mean
    tl.store(out_ptr, tl.sum(centred * centred, axis=0) / n)


@triton.jit
def fixed_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    centred = tl.where(mask, x - tl.sum(x, axis=0) / n, 0.0)
    tl.store(out_ptr, tl.sum(centred * centred, axis=0) / n)


# --8<-- [end:exhibit]


def run(kernel, x):
    out = torch.empty(1, device=D)
    kernel[(1,)](x, out, len(x), BLOCK=8)
    return out


def broken(x):
    return run(broken_kernel, x)


def fixed(x):
    return run(fixed_kernel, x)


def inputs():
    return (torch.tensor([4.0, 5.0, 6.0, 7.0, 8.0], device=D),)


def right(x):
    return x.var(unbiased=False).view(1)


def EXAMPLE():
    broken(*inputs())
