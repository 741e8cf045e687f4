"""The kernel believes that every matrix is contiguous."""

from academy.runtime import device

import torch
import triton
import triton.language as tl

D = device.DEVICE


# --8<-- [start:exhibit]
@triton.jit
def row_sum(x_ptr, out_ptr, n, stride_m, stride_n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_m + cols * stride_n, mask=cols < n, other=0.0)
    tl.store(out_ptr + row, tl.sum(x, axis=0))


def broken(x):
    out = torch.empty(x.shape[0], device=x.device)
    row_sum[(x.shape[0],)](x, out, x.shape[1], x.shape[1], 1, BLOCK=8)  # the strides that x ought to have
    return out


def fixed(x):
    out = torch.empty(x.shape[0], device=x.device)
    row_sum[(x.shape[0],)](x, out, x.shape[1], *x.stride(), BLOCK=8)  # the strides that it has
    return out


# --8<-- [end:exhibit]


def inputs():
    return (torch.arange(12.0, device=D).view(3, 4).T,)


def right(x):
    return x.sum(1)


def EXAMPLE():
    broken(*inputs())
