"""A sum kept in float16 stops growing."""

from academy.runtime import device

import torch
import triton
import triton.language as tl

D = device.DEVICE


# --8<-- [start:exhibit]
@triton.jit
def broken_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    acc = tl.zeros((1,), dtype=tl.float16)
    for start in range(0, n, BLOCK):
        acc += tl.sum(tl.load(x_ptr + start + tl.arange(0, BLOCK)), axis=0)
    tl.store(out_ptr + tl.arange(0, 1), acc)


@triton.jit
def fixed_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    acc = tl.zeros((1,), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        acc += tl.sum(tl.load(x_ptr + start + tl.arange(0, BLOCK)).to(tl.float32), axis=0)
    tl.store(out_ptr + tl.arange(0, 1), acc.to(tl.float16))  # rounded once, at the end


# --8<-- [end:exhibit]


def run(kernel, x):
    out = torch.empty(1, dtype=x.dtype, device=D)
    kernel[(1,)](x, out, len(x), BLOCK=1)
    return out


def broken(x):
    return run(broken_kernel, x)


def fixed(x):
    return run(fixed_kernel, x)


def inputs():
    return (torch.ones(3000, dtype=torch.float16, device=D),)


def right(x):
    return x.sum().view(1)


def EXAMPLE():
    broken(*inputs())
