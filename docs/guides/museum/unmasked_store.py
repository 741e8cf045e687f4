"""Without a mask the last program writes past the end."""

from academy.runtime import device

import torch
import triton
import triton.language as tl

D = device.DEVICE


# --8<-- [start:exhibit]
@triton.jit
def broken_kernel(out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, 1.0)


@triton.jit
def fixed_kernel(out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, 1.0, mask=offsets < n)


# --8<-- [end:exhibit]


def run(kernel, memory):
    """The output is the first 6 of 8 elements; the last two belong to somebody else."""
    kernel[(2,)](memory, 6, BLOCK=4)
    return memory


def broken(memory):
    return run(broken_kernel, memory.clone())


def fixed(memory):
    return run(fixed_kernel, memory.clone())


def inputs():
    return (torch.zeros(8, device=D),)


def right(memory):
    return torch.tensor([1.0] * 6 + [0.0] * 2, device=D)


def EXAMPLE():
    out = torch.empty(6, device=D)
    broken_kernel[(2,)](out, 6, BLOCK=4)
