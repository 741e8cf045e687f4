"""Small kernels for the comparison without rounding: a frame that does the memory, and what it computes as a helper.

`each` applies a helper element by element, `row` to whole rows. A helper gets x and w, for rows also the lanes' mask
and the number of columns, and returns what is stored. A table of helpers is a table of kernels.
"""

# ruff: noqa: I001  academy.runtime.device must come before triton

from academy.runtime import device  # noqa: F401

import torch
import triton
import triton.language as tl


@triton.jit
def each_kernel(x_ptr, w_ptr, y_ptr, function: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offs, function(tl.load(x_ptr + offs), tl.load(w_ptr + offs)))


@triton.jit
def row_kernel(x_ptr, w_ptr, y_ptr, N, function: tl.constexpr, BLOCK: tl.constexpr):
    row, offs = tl.program_id(0), tl.arange(0, BLOCK)
    mask = offs < N
    x = tl.load(x_ptr + row * N + offs, mask=mask, other=0.0)
    w = tl.load(w_ptr + offs, mask=mask, other=0.0)
    tl.store(y_ptr + row * N + offs, function(x, w, mask, N), mask=mask)


def each(function, x, w):
    y = torch.empty_like(x)
    each_kernel[(x.numel() // 16,)](x, w, y, function, BLOCK=16)
    return y


def row(function, x, w):
    y = torch.empty_like(x)
    row_kernel[(len(x),)](x, w, y, x.shape[1], function, BLOCK=triton.next_power_of_2(x.shape[1]))
    return y


@triton.jit
def several_kernel(x_ptr, y_ptr, N, function: tl.constexpr, RESULTS: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    made = function(tl.load(x_ptr + offs, mask=offs < N, other=0.0))
    if RESULTS == 1:
        tl.store(y_ptr + offs, made, mask=offs < N)
    else:
        for i in tl.static_range(RESULTS):
            tl.store(y_ptr + i * N + offs, made[i], mask=offs < N)


def several(function, x, results):
    """The results of a helper of one block, which is all of x."""
    y = x.new_empty(results, len(x))
    several_kernel[(1,)](x, y, len(x), function, results, BLOCK=triton.next_power_of_2(len(x)))
    return y
