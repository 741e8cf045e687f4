"""A 32-bit offset wraps around after 2^31 elements."""

from academy.runtime import device

import torch
import triton
import triton.language as tl

D = device.DEVICE


# --8<-- [start:exhibit]
@triton.jit
def broken_kernel(out_ptr, stride):
    row = tl.program_id(0)  # int32, and so is the product
    tl.store(out_ptr + row, (row * stride).to(tl.int64))


@triton.jit
def fixed_kernel(out_ptr, stride):
    row = tl.program_id(0).to(tl.int64)
    tl.store(out_ptr + row, row * stride)


# --8<-- [end:exhibit]


def run(kernel, stride):
    """The offset at which each of five rows starts."""
    out = torch.empty(5, dtype=torch.int64, device=D)
    kernel[(5,)](out, stride)
    return out


def broken(stride):
    return run(broken_kernel, stride)


def fixed(stride):
    return run(fixed_kernel, stride)


def inputs():
    return (2**30,)


def right(stride):
    return torch.arange(5, device=D) * stride


def EXAMPLE():
    broken(*inputs())
