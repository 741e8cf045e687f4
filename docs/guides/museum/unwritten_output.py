"""The kernel adds to memory that nobody has set to zero."""

from academy.runtime import device

import torch
import triton
import triton.language as tl

D = device.DEVICE


# --8<-- [start:exhibit]
@triton.jit
def add_into(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(out_ptr + offsets) + tl.load(x_ptr + offsets))


def broken(x):
    out = torch.empty_like(x)  # whatever was there before
    add_into[(len(x) // 4,)](x, out, BLOCK=4)
    return out


def fixed(x):
    out = torch.zeros_like(x)
    add_into[(len(x) // 4,)](x, out, BLOCK=4)
    return out


# --8<-- [end:exhibit]


def inputs():
    return (torch.arange(8.0, device=D),)


def right(x):
    return x


def EXAMPLE():
    broken(*inputs())
