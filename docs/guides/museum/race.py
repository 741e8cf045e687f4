"""Two programs add to one element without an atomic."""

from academy.runtime import device

import torch
import triton
import triton.language as tl

D = device.DEVICE


# --8<-- [start:exhibit]
@triton.jit
def broken_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x_ptr + offsets), axis=0)
    tl.store(out_ptr, tl.load(out_ptr) + total)  # another program may write between the load and the store


@triton.jit
def fixed_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x_ptr + offsets), axis=0)
    # `tl.atomic_add` adds to a number in memory in one step, which no other program can interrupt.
    tl.atomic_add(out_ptr, total)


# --8<-- [end:exhibit]


def run(kernel, x):
    out = torch.zeros(1, device=D)
    kernel[(len(x) // 4,)](x, out, BLOCK=4)
    return out


def broken(x):
    return run(broken_kernel, x)


def fixed(x):
    return run(fixed_kernel, x)


def inputs():
    return (torch.arange(8.0, device=D),)


def right(x):
    return x.sum().view(1)


def EXAMPLE():
    broken(*inputs())
