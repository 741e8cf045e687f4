"""exp of a large logit is infinite, and infinity over infinity is NaN."""

from academy.runtime import device

import torch
import triton
import triton.language as tl

D = device.DEVICE


# --8<-- [start:exhibit]
@triton.jit
def broken_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + cols, mask=cols < n, other=-float("inf"))
    e = tl.exp(x)
    tl.store(out_ptr + cols, e / tl.sum(e, axis=0), mask=cols < n)


@triton.jit
def fixed_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + cols, mask=cols < n, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))  # the largest exponent is 0
    tl.store(out_ptr + cols, e / tl.sum(e, axis=0), mask=cols < n)


# --8<-- [end:exhibit]


def run(kernel, x):
    out = torch.empty_like(x)
    kernel[(1,)](x, out, len(x), BLOCK=8)
    return out


def broken(x):
    return run(broken_kernel, x)


def fixed(x):
    return run(fixed_kernel, x)


def inputs():
    return (torch.tensor([1000.0, 999.0, 1.0], device=D),)


def right(x):
    return x.softmax(0)


def EXAMPLE():
    broken(*inputs())
