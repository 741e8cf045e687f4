# Exercise: recurrences/exclusive

from academy import device

import torch
import triton
import triton.language as tl


@triton.jit
def exclusive_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs - 1, mask=(offs >= 1) & (offs < n), other=0.0)
    tl.store(y_ptr + offs, tl.minimum(tl.cumsum(x, axis=0), 1000.0), mask=offs < n)


def exclusive(x):
    y = torch.empty_like(x)
    exclusive_kernel[(1,)](x, y, len(x), BLOCK=64)
    return y


