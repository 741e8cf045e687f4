"""A masked lane takes part in the reduction."""

from academy.runtime import device

import torch
import triton
import triton.language as tl

D = device.DEVICE


# --8<-- [start:exhibit]
@triton.jit
def broken_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)  # fine for a sum
    tl.store(out_ptr, tl.max(x, axis=0))


@triton.jit
def fixed_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=-float("inf"))  # what a maximum ignores
    tl.store(out_ptr, tl.max(x, axis=0))


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
    return (torch.tensor([-3.0, -1.0, -2.0], device=D),)


def right(x):
    return x.max().view(1)


def EXAMPLE():
    broken(*inputs())
