"""A row that is masked off entirely: minus infinity minus minus infinity."""

from academy.runtime import device

import torch
import triton
import triton.language as tl

D = device.DEVICE


# --8<-- [start:exhibit]
@triton.jit
def broken_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    biggest, total = -float("inf"), 0.0
    for start in range(0, n, BLOCK):
        x = tl.load(x_ptr + start + tl.arange(0, BLOCK))
        new = tl.maximum(biggest, tl.max(x, axis=0))
        total = total * tl.exp(biggest - new) + tl.sum(tl.exp(x - new), axis=0)
        biggest = new
    tl.store(out_ptr, biggest + tl.log(total))


@triton.jit
def fixed_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    biggest, total = -float("inf"), 0.0
    for start in range(0, n, BLOCK):
        x = tl.load(x_ptr + start + tl.arange(0, BLOCK))
        new = tl.maximum(biggest, tl.max(x, axis=0))
        shift = tl.where(new == -float("inf"), 0.0, new)  # nothing finite yet: nothing to subtract
        total = total * tl.exp(biggest - shift) + tl.sum(tl.exp(x - shift), axis=0)
        biggest = new
    tl.store(out_ptr, tl.where(biggest == -float("inf"), biggest, biggest + tl.log(total)))


# --8<-- [end:exhibit]


def run(kernel, x):
    out = torch.empty(1, device=D)
    kernel[(1,)](x, out, len(x), BLOCK=4)
    return out


def broken(x):
    return run(broken_kernel, x)


def fixed(x):
    return run(fixed_kernel, x)


def inputs():
    # The first chunk is all -inf, as a padded or causally masked row begins.
    return (torch.tensor([-float("inf")] * 4 + [1.0, 2.0, 3.0, 4.0], device=D),)


def right(x):
    return x.logsumexp(0).view(1)


def EXAMPLE():
    broken(*inputs())
