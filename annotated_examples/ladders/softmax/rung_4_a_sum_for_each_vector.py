r"""# A sum for each vector

**What was slow?** The maximum and the sum of a chunk need all threads of the program. So the threads wait for each
other in every chunk, several times for each of the two.

**What changes?** Each vector of a chunk keeps its own largest score and its own sum. A vector belongs to one thread,
and no thread waits for another until the row is done. Then all sums are merged, once.

**Predict:** the bytes are the same. Does the waiting matter, when memory should be the limit?
"""

from academy.runtime import device  # noqa: F401  before anything imports triton

import triton
import triton.language as tl

from annotated_examples.fast.softmax import columns_of_edges, online_update, parts_of_row
from annotated_examples.ladders.softmax.rung_3_vectors import launch_in_vectors


@triton.jit
def softmax_forward_kernel(
    x_ptr,  # (M, N), rows stride_xm apart
    y_ptr,  # (M, N), contiguous
    N: tl.constexpr,
    stride_xm: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VECTOR: tl.constexpr,
    ALIGN: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    edge, whole = parts_of_row(row, N, VECTOR, ALIGN)
    x_ptr += tl.cdiv(row * stride_xm, ALIGN) * ALIGN
    y_ptr += tl.cdiv(row * N, ALIGN) * ALIGN

    edge_n, edge_mask = columns_of_edges(edge, whole, N, VECTOR)
    x_edge = tl.load(x_ptr + edge_n, mask=edge_mask, other=-float("inf")).to(tl.float32)
    vectors = tl.arange(0, BLOCK_N // VECTOR)[:, None] * VECTOR
    offs_n = vectors + tl.arange(0, VECTOR)[None, :]

    vector_max = tl.full((BLOCK_N // VECTOR,), -float("inf"), tl.float32)
    vector_sum = tl.zeros((BLOCK_N // VECTOR,), tl.float32)
    for start in range(0, N, BLOCK_N):
        mask = start + vectors < whole
        x = tl.load(x_ptr + start + offs_n, mask=mask, other=-float("inf")).to(tl.float32)
        vector_max, vector_sum = online_update(vector_max, vector_sum, x)

    row_max = tl.maximum(tl.max(vector_max, axis=0), tl.max(x_edge, axis=0))
    row_sum = tl.sum(vector_sum * tl.exp(vector_max - row_max), axis=0) + tl.sum(tl.exp(x_edge - row_max), axis=0)

    y_edge = tl.exp(x_edge - row_max) / row_sum
    tl.store(y_ptr + edge_n, y_edge, mask=edge_mask)
    for start in range(0, N, BLOCK_N):
        mask = start + vectors < whole
        x = tl.load(x_ptr + start + offs_n, mask=mask, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - row_max) / row_sum
        tl.store(y_ptr + start + offs_n, y, mask=mask)


def softmax_forward(x):
    """Softmax of the rows of a matrix whose rows are contiguous."""
    return launch_in_vectors(softmax_forward_kernel, x)
