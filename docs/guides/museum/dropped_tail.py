"""A grid that is rounded down leaves the tail to nobody."""

# --8<-- [start:imports]
from academy.runtime import device

import torch
import triton
import triton.language as tl

D = device.DEVICE
# --8<-- [end:imports]


# --8<-- [start:exhibit]
@triton.jit
def double(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, 2 * tl.load(x_ptr + offsets, mask=mask, other=0.0), mask=mask)


def broken(x):
    out = torch.zeros_like(x)
    double[(len(x) // 4,)](x, out, len(x), BLOCK=4)  # 10 // 4 is 2
    return out


def fixed(x):
    out = torch.zeros_like(x)
    double[(triton.cdiv(len(x), 4),)](x, out, len(x), BLOCK=4)  # cdiv(10, 4) is 3
    return out


# --8<-- [end:exhibit]


def inputs():
    return (torch.arange(1.0, 11.0, device=D),)


def right(x):
    return 2 * x


def EXAMPLE():
    broken(*inputs())
