r"""
# Softmax: one trip over each row

Softmax turns a row of numbers into probabilities: all positive, and one in sum. In the form that a computer can use:

[[eq: SM]]

Going back, the gradient of a row needs one number that depends on the whole row, the average of the upstream gradient
under these probabilities:

[[eq: SM-x]]

**What it costs.** Written with PyTorch's elementwise operations, every step (maximum, difference, exponential, sum,
quotient) reads the matrix from memory and most write it back: eight trips. The arithmetic is nothing beside that.
This kernel is *fused*: a row is loaded once, everything happens in registers, the result is stored once. That is 2
numbers moved per element forward and 3 backward, and the floor is `bytes / bandwidth`. (A row that comes in several
chunks is loaded twice, except for its last chunk, and the second time from the cache if it is still there. "Tile sizes"
says which rows do.) At 8192 x 32000 in bfloat16 the eight trips took
[[bench: softmax/ladder/elementwise/forward_ms]], this kernel takes [[bench: softmax/ladder/final/forward_ms]].

**Contract.** `x` has any shape, and rows of any length below 2³¹ − 2¹⁴ along its last dimension: float32, float16 or
bfloat16, any strides. The result has its dtype; inside, everything is float32. Nothing that comes in is written to. A
row of nothing but $-\infty$ has no probabilities and gives NaN, as in PyTorch.

**Two mistakes this kernel can't protect from.** `torch.nn.functional.cross_entropy` applies softmax itself: give it
the logits. Softmax before a loss that applies it again still trains, slowly and to a worse end, and nothing reports
an error. And `softmax(x).sum()` is the number of rows, whatever `x` is: its gradient is zero. A gradient check built
on it passes for any kernel that returns something small, so the tests use a random upstream gradient.
"""

if __name__ == "__main__":  # run as a script: make the repository importable
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from academy import checks, device

import functools
import operator

import torch
import triton
import triton.language as tl
from academy.autograd import once_differentiable


# ## Reference
#
# The same in PyTorch, step by step. Subtracting the largest number of the row changes nothing in exact arithmetic
# ([[tag: SM-shift]]), and it keeps every exponent at zero or below. Without it `exp(89)` is already infinite in
# float32.
def softmax_reference(x):
    exponentials = torch.exp(x - x.amax(dim=-1, keepdim=True))
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


# ## Forward: rows that fit in one block
#
# One program takes `BLOCK_M` whole rows; short rows are taken several at a time so that a program has enough to do.
# `N` and the stride are `tl.constexpr`: a compiler that knows them knows which masks are always true and how many
# neighbouring elements one instruction may load. The price is a compilation for each new length, and softmax runs over
# a few lengths (a vocabulary, a context).
@triton.jit
def softmax_forward_kernel(
    x_ptr,
    y_ptr,
    M,
    N: tl.constexpr,
    stride_xm: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    POLICY: tl.constexpr,
):
    # Which rows are mine? There are 3 in the example and `BLOCK_M = 2`, so the second program has one real row:
    # `pid=1: rows = [2, 3]` and `pid=1: row_mask = [1, 0]`.
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    row_mask = rows < M

    # Rows have 6 elements, blocks have to be a power of two: `column_mask = [1, 1, 1, 1, 1, 1, 0, 0]`.
    columns = tl.arange(0, BLOCK_N)
    column_mask = columns < N
    mask = row_mask[:, None] & column_mask[None, :]

    # What masked lanes read matters. A zero could be the largest number of a row of negative ones, and would count in
    # the sum. $-\infty$ is never the largest, and its exponential is zero: `pid=0: x[0, :6] = [1, 3, 2, 0, 4, 1]`.
    x_ptrs = x_ptr + rows[:, None] * stride_xm + columns[None, :]
    x = tl.load(x_ptrs, mask=mask, other=-float("inf"), eviction_policy=POLICY).to(tl.float32)

    # The largest of each row is subtracted before anything is exponentiated: `row_max[0] = 4`. So the largest
    # exponential is one, and the sum is at least one: it can neither overflow nor vanish.
    row_max = tl.max(x, axis=1)
    exponentials = tl.exp(x - row_max[:, None])

    # [[tag: SM]]. The masked lanes add nothing: `exponentials[0, 6] = 0` and `row_sum[0] = 1.621`.
    row_sum = tl.sum(exponentials, axis=1)
    # Probabilities: `y[0, :6] = [0.031, 0.227, 0.083, 0.011, 0.617, 0.031]`.
    y = exponentials / row_sum[:, None]
    y_ptrs = y_ptr + rows[:, None] * N + columns[None, :]
    tl.store(y_ptrs, y, mask=mask)


# ## Forward: rows longer than a block
#
# The longest rows don't fit in the registers of one program. They come in chunks, and the largest number isn't known
# until the last one. The *online* softmax doesn't wait. It keeps the largest number so far and the sum relative to
# it; when a larger one turns up, the old sum is scaled to the new reference by one factor, [[tag: SM-online]]. Flash
# attention rests on this line.
#
# A *vector* is what one instruction loads here: 16 bytes, or `VECTOR` neighbouring columns. Every vector of a chunk has
# its own largest number and its own sum. If they were the whole row's, all threads would have to wait for each other
# twice in every chunk. A thread has a few vectors to itself, and waits for nobody until the row is over.
@triton.jit
def online_update(vector_max, vector_sum, x):
    new_max = tl.maximum(vector_max, tl.max(x, axis=1))
    # Nothing but $-\infty$ so far? Then subtract zero: $-\infty - (-\infty)$ would be NaN, and the next chunk may yet
    # bring a number.
    reference = tl.where(new_max == -float("inf"), 0.0, new_max)
    # [[tag: SM-online]]
    vector_sum = vector_sum * tl.exp(vector_max - reference) + tl.sum(tl.exp(x - reference[:, None]), axis=1)
    return new_max, vector_sum


# **Rows that begin anywhere.** A vocabulary of 50257 is odd, so its rows begin at any multiple of 2 bytes. But 16 bytes
# can only be loaded from a multiple of 16. And a mask that could cut a vector in two makes all loads under it 2 bytes
# wide. So a row is taken as whole vectors, which lie at multiples of 16 bytes, and two *edges*: the few columns before
# the first vector and those behind the last one. Only the edges are loaded one by one.
#
# How many columns does the first edge have, and how many are in whole vectors?
@triton.jit
def parts_of_row(row, N: tl.constexpr, VECTOR: tl.constexpr, ALIGN: tl.constexpr):
    edge = ((ALIGN - row * N % ALIGN) % ALIGN).to(tl.int32)
    whole = (N - edge) // VECTOR * VECTOR
    return edge, whole


# Column 0 is from here on the first one of the first whole vector. Both edges together are a block of their own: the
# `VECTOR` columns before it and those behind the last vector, as far as they belong to the row.
@triton.jit
def columns_of_edges(edge, whole, N: tl.constexpr, VECTOR: tl.constexpr):
    index = tl.arange(0, 2 * VECTOR)
    columns = tl.where(index < VECTOR, index, whole + index) - VECTOR
    mask = (columns >= -edge) & (columns < N - edge)
    return columns, mask


# A second trip over the row then writes the probabilities. It goes **backwards**: the last chunk is still in registers,
# and the ones before it are the likeliest to be in the L2 cache, which all rows that are worked on share. At
# 4096 x 50257 in bfloat16 the forward pass took
#
# - [[bench: softmax/ladder/one trip/rows_of_50257_forward_ms]] in chunks of 32768, loaded 2 bytes at a time
# - [[bench: softmax/ladder/16-byte loads/rows_of_50257_forward_ms]] with 16-byte loads between the first and last chunk
# - [[bench: softmax/ladder/a sum for each vector/rows_of_50257_forward_ms]] with a sum for each vector
# - [[bench: softmax/ladder/backwards/rows_of_50257_forward_ms]] with the second trip backwards
# - [[bench: softmax/ladder/edges/rows_of_50257_forward_ms]] with edges, and 32 warps for chunks of 8192
# - [[bench: softmax/ladder/final/rows_of_50257_forward_ms]] with four chunks requested at once
@triton.jit
def softmax_forward_chunked_kernel(
    x_ptr,
    y_ptr,
    N: tl.constexpr,
    stride_xm: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VECTOR: tl.constexpr,
    ALIGN: tl.constexpr,
):
    # In the example's second launch the second row begins 19 elements behind the first, one before a multiple of four:
    # `launch=1, pid=1: edge = 1`. Of the other 18, `launch=1, pid=1: whole = 16` are in whole vectors.
    row = tl.program_id(0).to(tl.int64)
    edge, whole = parts_of_row(row, N, VECTOR, ALIGN)
    # To the first whole vector. From the product the compiler learns that it lies at a multiple of 16 bytes.
    x_ptr += tl.cdiv(row * stride_xm, ALIGN) * ALIGN
    y_ptr += tl.cdiv(row * N, ALIGN) * ALIGN

    # The edges stay in registers: `launch=1, pid=1: edge_columns = [-4, -3, -2, -1, 16, 17, 18, 19]`, of which
    # `launch=1, pid=1: edge_mask = [0, 0, 0, 1, 1, 1, 0, 0]` are the row's.
    edge_columns, edge_mask = columns_of_edges(edge, whole, N, VECTOR)
    x_edge = tl.load(x_ptr + edge_columns, mask=edge_mask, other=-float("inf")).to(tl.float32)

    # The columns of a chunk, a vector in each row: `launch=1, pid=1: columns = [[0, 1, 2, 3], [4, 5, 6, 7]]`. And where
    # does the last chunk begin? `launch=1, pid=1: last = 8`.
    vectors = tl.arange(0, BLOCK_N // VECTOR)[:, None] * VECTOR
    columns = vectors + tl.arange(0, VECTOR)[None, :]
    last: tl.constexpr = (N // VECTOR * VECTOR - 1) // BLOCK_N * BLOCK_N

    # All chunks but the last: `launch=1, pid=1, start=0: vector_max = [5, 6]`. `evict_last` asks the L2 cache to keep
    # these lines for the second trip. Loads that are made ahead, into shared memory, would lose this hint, so there is
    # one stage. But the loop is written out four times, so that a thread has four loads to wait for.
    vector_max = tl.full((BLOCK_N // VECTOR,), -float("inf"), tl.float32)
    vector_sum = tl.zeros((BLOCK_N // VECTOR,), tl.float32)
    for start in tl.range(0, last, BLOCK_N, num_stages=1, loop_unroll_factor=4):
        x = tl.load(x_ptr + start + columns, eviction_policy="evict_last").to(tl.float32)
        vector_max, vector_sum = online_update(vector_max, vector_sum, x)

    # The last chunk stays in registers. Its mask has one answer for all columns of a vector, so it cuts none.
    mask = last + vectors < whole
    x = tl.load(x_ptr + last + columns, mask=mask, other=-float("inf")).to(tl.float32)
    vector_max, vector_sum = online_update(vector_max, vector_sum, x)

    # The same merge once more, of all vectors and the edges. The first launch has the row from above,
    # `pid=0: row_max = 4`, and comes to the same sum: `row_sum = 1.621`.
    row_max = tl.maximum(tl.max(vector_max, axis=0), tl.max(x_edge, axis=0))
    row_sum = tl.sum(vector_sum * tl.exp(vector_max - row_max), axis=0) + tl.sum(tl.exp(x_edge - row_max), axis=0)

    # Second trip, [[tag: SM]], beginning with what is at hand: `pid=0: y_edge[4:6] = [0.617, 0.031]`.
    y_edge = tl.exp(x_edge - row_max) / row_sum
    tl.store(y_ptr + edge_columns, y_edge, mask=edge_mask)
    y = tl.exp(x - row_max) / row_sum
    tl.store(y_ptr + last + columns, y, mask=mask)
    # The other chunks, backwards; `evict_first`, since nobody will need these lines again. There is a store between the
    # loads here, so they come one by one, however often the loop is written out. The backward pass shows a way around.
    for done in tl.range(0, last, BLOCK_N, num_stages=1, loop_unroll_factor=4):
        start = last - BLOCK_N - done
        x = tl.load(x_ptr + start + columns, eviction_policy="evict_first").to(tl.float32)
        y = tl.exp(x - row_max) / row_sum
        tl.store(y_ptr + start + columns, y)


# ## Backward
#
# The probabilities that came out of the forward pass are all that is needed; `x` need not be kept. Each row takes one
# sum, then [[tag: SM-x]].
@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    M,
    N: tl.constexpr,
    stride_dym: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    POLICY: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.arange(0, BLOCK_N)
    mask = (rows < M)[:, None] & (columns < N)[None, :]
    # The upstream gradient may have any row stride, also 0: behind `y.sum(0)` all rows have the same gradient.
    dy_ptrs = dy_ptr + rows[:, None] * stride_dym + columns[None, :]
    dy = tl.load(dy_ptrs, mask=mask, other=0.0, eviction_policy=POLICY).to(tl.float32)
    y_ptrs = y_ptr + rows[:, None] * N + columns[None, :]
    y = tl.load(y_ptrs, mask=mask, other=0.0, eviction_policy=POLICY).to(tl.float32)

    # The average of the upstream gradient under the probabilities. Here the loss wants less of element 1 and more of
    # element 4: `pid=0: dy[0, :6] = [0, 1, 0, 0, -1, 0]`, and on average `pid=0: average[0] = -0.390`.
    average = tl.sum(dy * y, axis=1)
    # Where `dy` lies above the average the gradient is positive, and descent lowers the score; below it, the other way.
    # Each is in proportion to the element's own probability:
    # `pid=0: dx[0, :6] = [0.012, 0.315, 0.033, 0.004, -0.376, 0.012]`. A row adds up to zero.
    dx = y * (dy - average[:, None])
    dx_ptrs = dx_ptr + rows[:, None] * N + columns[None, :]
    tl.store(dx_ptrs, dx, mask=mask)


# Rows longer than a block make the trip twice, as in the forward pass: once for the average, once for the result. At
# 4096 x 50257 this took [[bench: softmax/ladder/one trip/rows_of_50257_backward_ms]] with 2-byte loads and
# [[bench: softmax/ladder/edges/rows_of_50257_backward_ms]] with edges.
@triton.jit
def softmax_backward_chunked_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    N: tl.constexpr,
    stride_dym: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VECTOR: tl.constexpr,
    ALIGN: tl.constexpr,
    POLICY: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    edge, whole = parts_of_row(row, N, VECTOR, ALIGN)
    dy_ptr += tl.cdiv(row * stride_dym, ALIGN) * ALIGN
    y_ptr += tl.cdiv(row * N, ALIGN) * ALIGN
    dx_ptr += tl.cdiv(row * N, ALIGN) * ALIGN
    edge_columns, edge_mask = columns_of_edges(edge, whole, N, VECTOR)
    dy_edge = tl.load(dy_ptr + edge_columns, mask=edge_mask, other=0.0).to(tl.float32)
    y_edge = tl.load(y_ptr + edge_columns, mask=edge_mask, other=0.0).to(tl.float32)

    # Each vector keeps a sum of its own. They are added up once, after the last chunk, so that the threads need not
    # exchange numbers at every step.
    vectors = tl.arange(0, BLOCK_N // VECTOR)[:, None] * VECTOR
    columns = vectors + tl.arange(0, VECTOR)[None, :]
    vector_sum = tl.zeros((BLOCK_N // VECTOR,), tl.float32)
    last: tl.constexpr = (N // VECTOR * VECTOR - 1) // BLOCK_N * BLOCK_N
    for start in tl.range(0, last, BLOCK_N, num_stages=1):
        dy = tl.load(dy_ptr + start + columns, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_ptr + start + columns, eviction_policy="evict_last").to(tl.float32)
        vector_sum += tl.sum(dy * y, axis=1)
    mask = last + vectors < whole
    dy = tl.load(dy_ptr + last + columns, mask=mask, other=0.0, eviction_policy=POLICY).to(tl.float32)
    y = tl.load(y_ptr + last + columns, mask=mask, other=0.0, eviction_policy=POLICY).to(tl.float32)
    vector_sum += tl.sum(dy * y, axis=1)
    # The same as above: `pid=0: average = -0.390`.
    average = tl.sum(vector_sum, axis=0) + tl.sum(dy_edge * y_edge, axis=0)

    # [[tag: SM-x]], from the last chunk to the first: `pid=0: dx_edge[4:6] = [-0.376, 0.012]`.
    dx_edge = y_edge * (dy_edge - average)
    tl.store(dx_ptr + edge_columns, dx_edge, mask=edge_mask)
    dx = y * (dy - average)
    tl.store(dx_ptr + last + columns, dx, mask=mask)
    # The other chunks, backwards. Each is requested before the one in front of it is stored: the compiler can't know
    # that the two don't overlap, and wouldn't move a load across a store. With rows of 50257 it is
    # [[bench: softmax/ladder/final/rows_of_50257_backward_ms]] for that.
    if last > 0:
        dy = tl.load(dy_ptr + last - BLOCK_N + columns, eviction_policy="evict_first")
        y = tl.load(y_ptr + last - BLOCK_N + columns, eviction_policy="evict_first")
        for done in tl.range(BLOCK_N, last, BLOCK_N, num_stages=1):
            start = last - done
            dx = y.to(tl.float32) * (dy.to(tl.float32) - average)
            dy = tl.load(dy_ptr + start - BLOCK_N + columns, eviction_policy="evict_first")
            y = tl.load(y_ptr + start - BLOCK_N + columns, eviction_policy="evict_first")
            tl.store(dx_ptr + start + columns, dx)
        dx = y.to(tl.float32) * (dy.to(tl.float32) - average)
        tl.store(dx_ptr + columns, dx)


# ## Launchers
#
# The kernels see a matrix whose rows are contiguous. Leading dimensions are merged; a slice of wider rows, or one row
# expanded to many, is used where it lies, through its row stride. Anything else, a transposed matrix for one, is
# copied first.
def as_rows(x):
    rows = x if x.dim() == 2 else x.reshape(-1, x.shape[-1])
    return rows if rows.stride(1) == 1 else rows.contiguous()


# The distance from one row to the next. For contiguous rows it is their width, which the caller knows. `stride` would
# say so too; but inside `torch.compile`, once the width has changed, it says it with a symbol, and Dynamo can't make
# that the constant which the kernels want.
def row_stride(rows, N):
    return N if rows.is_contiguous() else rows.stride(0)


# Edges help where the rows of both tensors begin alike. In logits that are cut out of a padded vocabulary they don't:
# then, and where a tensor itself begins at no multiple of 16 bytes, loads or stores stay narrow.
def alignment(N, stride, VECTOR):
    return VECTOR if (stride - N) % VECTOR == 0 else 1


# Which lines may leave the L2 cache first? A small result stays there, and the next operation finds it. A large one has
# to leave anyway. If what is read is marked `evict_last`, then what is written leaves first, and early, and that is
# faster: at 32768 x 4096 in bfloat16 the forward pass took [[bench: softmax/ladder/no hint/rows_of_4096_forward_ms]]
# without this hint and takes [[bench: softmax/ladder/final/rows_of_4096_forward_ms]] with it. The limit, 256 MB for all
# tensors together, is about five times the L2 cache of an H200. (Rows of more than 32768 go without it backward: there
# it would push out what the second trip still needs.)
def read_policy(x, tensors):
    return "evict_last" if tensors * x.numel() * x.element_size() > 1 << 28 else ""


# ### Tile sizes
#
# What makes a memory-bound kernel fast is having enough bytes on their way at any moment, so every thread of a
# multiprocessor should have loads to wait for: sixteen elements each, or up to twice as many where the row is no power
# of two. Rows of 512 or less are taken several at a time. Backward, a row of 16385 to 28672 has the multiprocessor to
# itself, and there fewer threads are better, which wait for each other at every sum. The sizes are remembered: what
# Python does here is time that a small call waits for.
@functools.cache
def tiles(N, BLOCK_M, BLOCK_N, num_warps):
    BLOCK_N = BLOCK_N or triton.next_power_of_2(N)
    BLOCK_M = BLOCK_M or max(1, 1024 // BLOCK_N)
    warps = triton.next_power_of_2(BLOCK_M * min(N, BLOCK_N) // 512 + 1) // 2
    return BLOCK_M, BLOCK_N, num_warps or min(max(warps, 1), 32 if N <= 16384 else 16)


# In chunks come long rows, and rows from 1025 on whose length is no multiple of 16 bytes. A chunk is the largest power
# of two that the row holds, so that few lanes are masked off, up to 4096 elements, or 8192 from 28673 on. Where a row
# has many chunks a thread has one vector of each, if numbers have 16 bits. Where it has few, up to four. All these
# limits are what was fastest on an H200, in bfloat16, when widths from 1025 to 262144 were tried.
@functools.cache
def forward_tiles(N, VECTOR, BLOCK_M, BLOCK_N, num_warps):
    if BLOCK_N is None and (N >= 16384 or N > 1024 and N % VECTOR):
        BLOCK_N = min(triton.next_power_of_2(N + 1) // 2, 4096 if N <= 28672 else 8192)
        num_warps = num_warps or BLOCK_N // (1024 if N <= 8192 else 512 if N < 16384 else 256)
    return tiles(N, BLOCK_M, BLOCK_N, num_warps)


# Backward has two rows to hold, and larger chunks: up to 8192 elements, or 16384 from 18432 on. At 4096 elements twice
# the warps were a little better.
@functools.cache
def backward_tiles(N, VECTOR, BLOCK_M, BLOCK_N, num_warps):
    if BLOCK_N is None and (N > 28672 or N == 16384 or N > 1024 and N % VECTOR):
        BLOCK_N = min(triton.next_power_of_2(N + 1) // 2, 8192 if N < 18432 else 16384)
        num_warps = num_warps or min(BLOCK_N // 512, 16)
    elif N == 4096:
        num_warps = num_warps or 16
    return tiles(N, BLOCK_M, BLOCK_N, num_warps)


# ### Forward
#
# Inside `torch.compile`, at a second width, a size of `x` may be a symbol that stands for any. Here it decides how many
# warps there are, which no symbol can: `operator.index` makes it a number, and a new width compiles anew.
def softmax_forward(x, *, BLOCK_M=None, BLOCK_N=None, num_warps=None):
    """Softmax over the last dimension. Tile sizes: None for those that were found best."""
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, num_warps=num_warps)
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    if x.numel() == 0:
        return y
    x = as_rows(x)
    M, N, VECTOR = x.shape[0], operator.index(x.shape[1]), 16 // x.element_size()
    BLOCK_M, BLOCK_N, num_warps = forward_tiles(N, VECTOR, BLOCK_M, BLOCK_N, num_warps)
    stride = row_stride(x, N)
    if N > BLOCK_N:
        VECTOR = min(VECTOR, BLOCK_N)
        softmax_forward_chunked_kernel[(M,)](
            x, y, N, stride, BLOCK_N=BLOCK_N, VECTOR=VECTOR, ALIGN=alignment(N, stride, VECTOR), num_warps=num_warps
        )
    else:
        softmax_forward_kernel[(-(-M // BLOCK_M),)](
            x, y, M, N, stride, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, POLICY=read_policy(x, 2), num_warps=num_warps
        )
    return y


# ### Backward
def softmax_backward(dy, y, *, BLOCK_M=None, BLOCK_N=None, num_warps=None):
    """The gradient for `x`. dy: upstream gradient, any strides. y: what the forward pass returned, contiguous."""
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, num_warps=num_warps)
    dx = torch.empty_like(y, memory_format=torch.contiguous_format)
    if y.numel() == 0:
        return dx
    dy, y = as_rows(dy), as_rows(y)
    M, N, VECTOR = y.shape[0], operator.index(y.shape[1]), 16 // y.element_size()
    BLOCK_M, BLOCK_N, num_warps = backward_tiles(N, VECTOR, BLOCK_M, BLOCK_N, num_warps)
    stride = row_stride(dy, N)
    POLICY = read_policy(y, 3) if N <= 32768 else ""
    if N > BLOCK_N:
        VECTOR = min(VECTOR, BLOCK_N)
        softmax_backward_chunked_kernel[(M,)](
            dy, y, dx, N, stride, BLOCK_N=BLOCK_N, VECTOR=VECTOR, ALIGN=alignment(N, stride, VECTOR), POLICY=POLICY,
            num_warps=num_warps,
        )  # fmt: skip
    else:
        softmax_backward_kernel[(-(-M // BLOCK_M),)](
            dy, y, dx, M, N, stride, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, POLICY=POLICY, num_warps=num_warps
        )
    return dx


# Columns are counted in 32 bits, up to the end of the last chunk.
LONGEST_ROW = 2**31 - 2**14


# ## Joining autograd
#
# The output is saved for the backward pass. It is an output, so autograd knows when somebody overwrites it, and raises.
# `once_differentiable` makes a second derivative raise, too, instead of silently losing its term.
class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return softmax_backward(dy, y)


def softmax(x):
    """Softmax over the last dimension, differentiable.

    Don't put it before a loss that applies softmax itself, such as `torch.nn.functional.cross_entropy`.

    The width is a constant of the kernel: inside `torch.compile`, too, each new width compiles anew.

    Args:
        x: tensor of shape (..., N), N below 2**31 - 2**14, float32, float16 or bfloat16, any strides.

    Returns:
        A new tensor of the shape and dtype of `x`; each row adds up to one.

    Raises:
        TypeError: `x` is no tensor, or has another dtype.
        ValueError: `x` has no dimension, or too long a row, or is on the wrong device.

    Source: Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018), for rows longer than a block.
    """
    checks.tensors(x=x)
    checks.dtypes(x=x)
    if x.dim() == 0:
        checks.dimensions("x", x, range(1, 65), "rows lie along the last")
    if x.shape[-1] >= LONGEST_ROW:
        raise ValueError(f"x must have rows of fewer than {LONGEST_ROW} elements, got shape {tuple(x.shape)}")
    return Softmax.apply(x)


# ## A run small enough to watch
#
# Three rows of six, in blocks of two rows and eight columns; then the same rows in chunks of four. And two rows of 19
# elements in chunks of eight, of which the second begins at no multiple of four.
def EXAMPLE():
    make = lambda rows: torch.tensor(rows, dtype=torch.float32, device=device.DEVICE)  # noqa: E731
    x = make([[1, 3, 2, 0, 4, 1], [2, 2, 2, 2, 2, 2], [0, -1, 5, -2, 3, 1]])
    dy = make([[0, 1, 0, 0, -1, 0], [1, 0, 0, 0, 0, 0], [2, 0, 1, 0, 0, -1]])
    for BLOCK_N in (8, 4):
        y = softmax_forward(x, BLOCK_M=2, BLOCK_N=BLOCK_N)
        softmax_backward(dy, y, BLOCK_M=2, BLOCK_N=BLOCK_N)
    softmax_forward((torch.arange(38, device=device.DEVICE) * 5 % 7).reshape(2, 19).float(), BLOCK_N=8)
    return dict(shape=(3, 6), dtype=torch.float32)


# ## Cost and benchmark
#
# Bytes that must move and operations that must run, per pass.
#
# **What is missing.** With rows of 128256 and more both passes need a third to a half more than a copy: so many rows
# are worked on at once that a part of them has left the L2 cache before the second trip.
def cost(shape, dtype):
    numel = torch.Size(shape).numel()
    size = dtype.itemsize
    return {
        "forward": dict(bytes_read=numel * size, bytes_written=numel * size, operations=5 * numel),
        "backward": dict(bytes_read=2 * numel * size, bytes_written=numel * size, operations=4 * numel),
    }


def bench_inputs(shape, dtype, device):
    return dict(x=torch.randn(*shape, dtype=dtype, device=device))


def eager(x):
    return torch.softmax(x, dim=-1)


def liger():
    from liger_kernel.ops.softmax import LigerSoftmaxFunction

    return lambda x: LigerSoftmaxFunction.apply(x)


BENCH = dict(
    shapes=[(8192, 32000), (32768, 4096)]
    + [(16384, N) for N in (768, 1000, 1536, 2880, 4097, 5120, 8192, 12288, 16384, 18432)]
    + [(4096, vocabulary) for vocabulary in (50257, 50304, 128256, 151936, 201088)],
    dtypes=[torch.bfloat16],
    inputs=bench_inputs,
    ours=softmax,
    eager=eager,
    peers={"liger-kernel": liger},
    passes=["forward", "backward"],
    differentiable=["x"],
)


def main():
    from academy import accuracy

    device.arguments(__doc__)
    report = accuracy.Report()
    for M, N in ((3, 64), (7, 1000), (2, 40000)):
        for dtype in checks.FLOATS:
            x, dy = (torch.randn(M, N, dtype=dtype, device=device.DEVICE) for _ in range(2))
            compare(report, f"{M} x {N}", x, dy)
    status = report.print()
    if not device.INTERPRET:
        from academy import bench

        bench.print_speed(BENCH, cost)
    return status


def compare(report, case, x, dy):
    """Add `y` and `dx` to the report, each beside PyTorch's own and the float64 reference."""
    results = []
    for function, dtype in ((softmax, x.dtype), (eager, x.dtype), (softmax_reference, torch.float64)):
        leaf = x.to(dtype).detach().requires_grad_()
        y = function(leaf)
        results.append([y, *torch.autograd.grad(y, leaf, dy.to(dtype))])
    for name, ours, pytorch, exact in zip(("y", "dx"), *results):
        report.compare(name, case, ours, pytorch, exact)


if __name__ == "__main__":
    sys.exit(main())
