r"""# Three passes

The formula as it is written. One program takes one row and goes over it three times: for the largest score, for the sum
of the exponentials, and to write the probabilities. Each pass loads the row again, in chunks: as a whole, one of a
vocabulary would take half of an SM's registers or more.

**Predict:** the matrix is read three times and written once. How much slower than a copy, which reads it once?
"""

from academy.runtime import device  # noqa: F401  before anything imports triton

import torch
import triton
import triton.language as tl

from annotated_examples.tutorials.softmax import block_size


@triton.jit
def softmax_forward_kernel(x_ptr, y_ptr, N, stride_xm, BLOCK_N: tl.constexpr):  # (M, N), y contiguous
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_xm
    y_ptr += row * N

    row_max = -float("inf")
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = offs_n < N
        x = tl.load(x_ptr + offs_n, mask=mask, other=-float("inf")).to(tl.float32)
        row_max = tl.maximum(row_max, tl.max(x, axis=0))

    row_sum = 0.0
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = offs_n < N
        x = tl.load(x_ptr + offs_n, mask=mask, other=-float("inf")).to(tl.float32)
        row_sum += tl.sum(tl.exp(x - row_max), axis=0)

    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = offs_n < N
        x = tl.load(x_ptr + offs_n, mask=mask, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - row_max) / row_sum
        tl.store(y_ptr + offs_n, y, mask=mask)


def softmax_forward(x):
    """Softmax of the rows of a matrix whose rows are contiguous."""
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    M, N = x.shape
    softmax_forward_kernel[(M,)](x, y, N, x.stride(0), BLOCK_N=block_size(N))
    return y
