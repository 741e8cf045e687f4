r"""
# Softmax, fast: a row is loaded once

The contract and the results of [the lesson](../tutorials/softmax.py), in about the time that it takes to copy the
matrix. The formulas are the same, [[tag: SM]] forward and [[tag: SM-x]] backward. What differs is when bytes are
requested, and what waits for what.

**What it costs.** The floor is `bytes / bandwidth`: 2 numbers moved per element forward, 3 backward. At 32768 x 4096 in
bfloat16 the forward pass takes [[bench: softmax/32768x4096/forward/ms]], the lesson
[[bench: softmax/32768x4096/forward/lesson.ms]], PyTorch [[bench: softmax/32768x4096/forward/eager.ms]].

**What is missing.** With rows of 128256 and more, both passes take a third to a half longer than a copy: so many rows
are in progress at once that some of their data has left the L2 cache before the second pass.

**Contract.** The lesson's. The width and the distance of rows are constants in the kernels, so each new one of them
triggers a compilation.
"""


# ## The ladder
#
# [[ladder: softmax]]

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.launch import cdiv, launch
from academy.runtime.replay import replayed

import functools
import operator

import torch
import triton
import triton.language as tl

from annotated_examples.common.exponential import exp_for
from annotated_examples.common.rows import as_rows, row_stride, rows_contract
from annotated_examples.tutorials.softmax import Softmax, softmax_reference


# ## 1. A row that fits is loaded once
#
# What was slow? The lesson reads every row twice. A row that fits into the registers of one program needs neither the
# second pass nor an online sum.
#
# [[figure: work/fusion]]
#
# One program takes `BLOCK_M` whole rows; short rows are taken several at a time so that a program has enough to do.
# `N` and the stride are `tl.constexpr`. So the compiler knows which masks are always true, and how many neighbouring
# elements one instruction may load. The price is a compilation for each new length or stride. A model has few of them:
# a vocabulary, a context.
@triton.jit
def softmax_forward_kernel(
    x_ptr,  # (M, N), rows stride_xm apart
    y_ptr,  # (M, N), contiguous
    M,
    N: tl.constexpr,
    stride_xm: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    POLICY: tl.constexpr,
):
    # Which rows are mine? There are 3 in the example and `BLOCK_M = 2`, so the second program has one real row:
    # `pid=1: offs_m = [2, 3]` and `pid=1: mask_m = [1, 0]`.
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    mask_m = offs_m < M

    # Rows have 6 elements, blocks have to be a power of two: `mask_n = [1, 1, 1, 1, 1, 1, 0, 0]`. A block with two axes
    # holds rows and columns: `[:, None]` makes a column of the row numbers, `[None, :]` a row of the column numbers,
    # and together they say for each element whether it exists.
    offs_n = tl.arange(0, BLOCK_N)
    mask_n = offs_n < N
    mask = mask_m[:, None] & mask_n[None, :]

    # Masked lanes read $-\infty$, as in the lesson: `pid=0: x[0, :6] = [1, 3, 2, 0, 4, 1]`.
    x_ptrs = x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :]
    x = tl.load(x_ptrs, mask=mask, other=-float("inf"), eviction_policy=POLICY).to(tl.float32)

    # The largest of each row, along axis 1, is subtracted before anything is exponentiated: `row_max[0] = 4`.
    row_max = tl.max(x, axis=1)
    exponentials = exp_for(x - row_max[:, None], y_ptr.dtype.element_ty)

    # [[tag: SM]]. The masked lanes add nothing: `exponentials[0, 6] = 0` and `row_sum[0] = 1.621`.
    row_sum = tl.sum(exponentials, axis=1)
    # Probabilities: `y[0, :6] = [0.031, 0.227, 0.083, 0.011, 0.617, 0.031]`.
    y = exponentials / row_sum[:, None]
    y_ptrs = y_ptr + offs_m[:, None] * N + offs_n[None, :]
    tl.store(y_ptrs, y, mask=mask)


# Backward holds two rows: the upstream gradient and the probabilities. One sum over a row, then [[tag: SM-x]].
@triton.jit
def softmax_backward_kernel(
    dy_ptr,  # (M, N), rows stride_dym apart
    y_ptr,  # (M, N), contiguous
    dx_ptr,  # (M, N), contiguous
    M,
    N: tl.constexpr,
    stride_dym: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    POLICY: tl.constexpr,
):
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    mask = (offs_m < M)[:, None] & (offs_n < N)[None, :]
    # The upstream gradient may have any row stride, including 0: if the loss uses `y.sum(0)`, all rows share one
    # gradient.
    dy_ptrs = dy_ptr + offs_m[:, None] * stride_dym + offs_n[None, :]
    dy = tl.load(dy_ptrs, mask=mask, other=0.0, eviction_policy=POLICY).to(tl.float32)
    y_ptrs = y_ptr + offs_m[:, None] * N + offs_n[None, :]
    y = tl.load(y_ptrs, mask=mask, other=0.0, eviction_policy=POLICY).to(tl.float32)

    # Here `pid=0: dy[0, :6] = [0, 1, 0, 0, -1, 0]`, so `pid=0: dot[0] = -0.390`, and
    # `pid=0: dx[0, :6] = [0.012, 0.315, 0.033, 0.004, -0.376, 0.012]`.
    dot = tl.sum(dy * y, axis=1)
    dx = y * (dy - dot[:, None])
    dx_ptrs = dx_ptr + offs_m[:, None] * N + offs_n[None, :]
    tl.store(dx_ptrs, dx, mask=mask)


# ## 2. Sixteen bytes at a time, wherever a row begins
#
# The longest rows don't fit in registers, so they are read in chunks, twice, as in the lesson. What is slow there? A
# *vector* is the most that one instruction loads: 16 bytes, or `VECTOR` neighbouring columns. A vocabulary of 50257
# is odd, so its rows begin at any multiple of 2 bytes. But 16 bytes can only be loaded from a multiple of 16. And a
# mask that could cut a vector in two makes all loads that use it 2 bytes wide. So the chunks begin at a multiple of 16
# bytes, not where the row begins.
#
# That works if the rows of both tensors have the same alignment. Logits that are sliced out of a padded vocabulary
# don't have the alignment of the result: then, and if a tensor itself doesn't begin at a multiple of 16 bytes, loads or
# stores stay narrow.
def alignment(N, stride, VECTOR):
    return VECTOR if (stride - N) % VECTOR == 0 else 1


# ## 3. A sum for each vector
#
# What was slow? The maximum of a chunk needs all threads of the program, and so does the sum. So they wait for each
# other in every chunk, several times for each of the two. Here every vector of a chunk has its own largest number so
# far and its own sum, merged online, [[tag: SM-online]], as the lesson does for the whole row. A thread has a few
# vectors to itself, and doesn't wait for other threads until the end of the row.
@triton.jit
def online_update(vector_max, vector_sum, x):
    new_max = tl.maximum(vector_max, tl.max(x, axis=1))
    # Nothing but $-\infty$ so far? Then subtract zero: $-\infty - (-\infty)$ would be NaN, and the next chunk may yet
    # bring a number.
    shift = tl.where(new_max == -float("inf"), 0.0, new_max)
    # [[tag: SM-online]]
    vector_sum = vector_sum * tl.exp(vector_max - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
    return new_max, vector_sum


# ## 4. The second pass goes backwards
#
# What was slow? By the second pass the first chunks may have left the L2 cache, which all rows in progress share. The
# last chunk is still in registers, and the ones before it are the most likely to be in the cache. So the second pass
# begins at the end.
#
# ## 5. Edges
#
# What was slow? The first chunk and the last one: the ends of the row cut vectors in two there, so all of each of these
# chunks was loaded 2 bytes at a time. Now a row is taken as whole vectors, which lie at multiples of 16 bytes, and two
# *edges*: the few columns before the first vector and those after the last one. The edges are a small block of their
# own, and only they are loaded one by one.
#
# How many columns does the first edge have, and how many are in whole vectors?
@triton.jit
def parts_of_row(row, N: tl.constexpr, VECTOR: tl.constexpr, ALIGN: tl.constexpr):
    edge = ((ALIGN - row * N % ALIGN) % ALIGN).to(tl.int32)
    whole = (N - edge) // VECTOR * VECTOR
    return edge, whole


# From here on, column 0 is the first column of the first whole vector. Both edges share a block: the `VECTOR` columns
# before column 0 and as many after the last vector, masked to those that belong to the row.
@triton.jit
def columns_of_edges(edge, whole, N: tl.constexpr, VECTOR: tl.constexpr):
    index = tl.arange(0, 2 * VECTOR)
    offs_n = tl.where(index < VECTOR, index, whole + index) - VECTOR
    mask = (offs_n >= -edge) & (offs_n < N - edge)
    return offs_n, mask


# ## Forward, for rows longer than a block
#
# Sections 2 to 5 together, and a part of the sixth.
@triton.jit
def softmax_forward_chunked_kernel(
    x_ptr,  # (M, N), rows stride_xm apart
    y_ptr,  # (M, N), contiguous
    N: tl.constexpr,
    stride_xm: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VECTOR: tl.constexpr,
    ALIGN: tl.constexpr,
):
    # In the example's second launch the second row begins 19 elements after the first, one before a multiple of four:
    # `launch=1, pid=1: edge = 1`. Of the other 18, `launch=1, pid=1: whole = 16` are in whole vectors.
    row = tl.program_id(0).to(tl.int64)
    edge, whole = parts_of_row(row, N, VECTOR, ALIGN)
    # Move on to the first whole vector. The multiplication by `ALIGN` tells the compiler that it is at a multiple of 16
    # bytes.
    x_ptr += tl.cdiv(row * stride_xm, ALIGN) * ALIGN
    y_ptr += tl.cdiv(row * N, ALIGN) * ALIGN

    # The edges stay in registers: `launch=1, pid=1: edge_n = [-4, -3, -2, -1, 16, 17, 18, 19]`, of which
    # `launch=1, pid=1: edge_mask = [0, 0, 0, 1, 1, 1, 0, 0]` are the row's.
    edge_n, edge_mask = columns_of_edges(edge, whole, N, VECTOR)
    x_edge = tl.load(x_ptr + edge_n, mask=edge_mask, other=-float("inf")).to(tl.float32)

    # The columns of a chunk, a vector in each row: `launch=1, pid=1: offs_n = [[0, 1, 2, 3], [4, 5, 6, 7]]`. And where
    # does the last chunk begin? `launch=1, pid=1: last = 8`.
    vectors = tl.arange(0, BLOCK_N // VECTOR)[:, None] * VECTOR
    offs_n = vectors + tl.arange(0, VECTOR)[None, :]
    last: tl.constexpr = (N // VECTOR * VECTOR - 1) // BLOCK_N * BLOCK_N

    # All chunks but the last: `launch=1, pid=1, start=0: vector_max = [5, 6]`. `evict_last` asks the L2 cache to keep
    # these lines for the second pass. Loads that are prefetched into shared memory would lose this hint, so there is
    # only one stage. Instead (section 6) `loop_unroll_factor` writes the loop out four times. Then a thread has two of
    # the four loads in flight; the compiler puts the others behind arithmetic.
    vector_max = tl.full((BLOCK_N // VECTOR,), -float("inf"), tl.float32)
    vector_sum = tl.zeros((BLOCK_N // VECTOR,), tl.float32)
    for start in tl.range(0, last, BLOCK_N, num_stages=1, loop_unroll_factor=4):
        x = tl.load(x_ptr + start + offs_n, eviction_policy="evict_last").to(tl.float32)
        vector_max, vector_sum = online_update(vector_max, vector_sum, x)

    # The last chunk stays in registers. Its mask is the same for all columns of a vector, so it cuts no vector in two.
    mask = last + vectors < whole
    x = tl.load(x_ptr + last + offs_n, mask=mask, other=-float("inf")).to(tl.float32)
    vector_max, vector_sum = online_update(vector_max, vector_sum, x)

    # The same merge again, now of all vectors and the edges. The first launch has the row from above,
    # `pid=0: row_max = 4`, and comes to the same sum: `row_sum = 1.621`.
    row_max = tl.maximum(tl.max(vector_max, axis=0), tl.max(x_edge, axis=0))
    row_sum = tl.sum(vector_sum * tl.exp(vector_max - row_max), axis=0) + tl.sum(tl.exp(x_edge - row_max), axis=0)

    # Second pass, [[tag: SM]], beginning with what is still in registers: `pid=0: y_edge[4:6] = [0.617, 0.031]`.
    y_edge = exp_for(x_edge - row_max, y_ptr.dtype.element_ty) / row_sum
    tl.store(y_ptr + edge_n, y_edge, mask=edge_mask)
    y = exp_for(x - row_max, y_ptr.dtype.element_ty) / row_sum
    tl.store(y_ptr + last + offs_n, y, mask=mask)
    # The other chunks, backwards; `evict_first`, since these lines won't be needed again. There is a store between the
    # loads here, so they are issued one by one, however far the loop is unrolled. The backward pass shows a way around
    # this.
    for done in tl.range(0, last, BLOCK_N, num_stages=1, loop_unroll_factor=4):
        start = last - BLOCK_N - done
        x = tl.load(x_ptr + start + offs_n, eviction_policy="evict_first").to(tl.float32)
        y = exp_for(x - row_max, y_ptr.dtype.element_ty) / row_sum
        tl.store(y_ptr + start + offs_n, y)


# ## 6. Backward, for rows longer than a block: request the next chunk before this one is stored
#
# Backward over long rows uses the same steps: vectors and edges, a sum for each vector, the second pass backwards.
#
# What was slow? In the second pass each chunk is loaded, used and stored, and the next load waits for that store: the
# compiler can't know that the two don't overlap, and wouldn't move a load across a store. So the kernel does it itself.
# Before it stores a chunk it has requested the next.
@triton.jit
def softmax_backward_chunked_kernel(
    dy_ptr,  # (M, N), rows stride_dym apart
    y_ptr,  # (M, N), contiguous
    dx_ptr,  # (M, N), contiguous
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
    edge_n, edge_mask = columns_of_edges(edge, whole, N, VECTOR)
    dy_edge = tl.load(dy_ptr + edge_n, mask=edge_mask, other=0.0).to(tl.float32)
    y_edge = tl.load(y_ptr + edge_n, mask=edge_mask, other=0.0).to(tl.float32)

    # Each vector keeps a sum of its own. They are added up once, after the last chunk.
    vectors = tl.arange(0, BLOCK_N // VECTOR)[:, None] * VECTOR
    offs_n = vectors + tl.arange(0, VECTOR)[None, :]
    vector_dot = tl.zeros((BLOCK_N // VECTOR,), tl.float32)
    last: tl.constexpr = (N // VECTOR * VECTOR - 1) // BLOCK_N * BLOCK_N
    for start in tl.range(0, last, BLOCK_N, num_stages=1):
        dy = tl.load(dy_ptr + start + offs_n, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_ptr + start + offs_n, eviction_policy="evict_last").to(tl.float32)
        vector_dot += tl.sum(dy * y, axis=1)
    mask = last + vectors < whole
    dy = tl.load(dy_ptr + last + offs_n, mask=mask, other=0.0, eviction_policy=POLICY).to(tl.float32)
    y = tl.load(y_ptr + last + offs_n, mask=mask, other=0.0, eviction_policy=POLICY).to(tl.float32)
    vector_dot += tl.sum(dy * y, axis=1)
    # The same as above: `pid=0: dot = -0.390`.
    dot = tl.sum(vector_dot, axis=0) + tl.sum(dy_edge * y_edge, axis=0)

    # [[tag: SM-x]], from the last chunk to the first: `pid=0: dx_edge[4:6] = [-0.376, 0.012]`.
    dx_edge = y_edge * (dy_edge - dot)
    tl.store(dx_ptr + edge_n, dx_edge, mask=edge_mask)
    dx = y * (dy - dot)
    tl.store(dx_ptr + last + offs_n, dx, mask=mask)
    # The other chunks, backwards, each requested before the one just computed is stored.
    if last > 0:
        dy = tl.load(dy_ptr + last - BLOCK_N + offs_n, eviction_policy="evict_first")
        y = tl.load(y_ptr + last - BLOCK_N + offs_n, eviction_policy="evict_first")
        for done in tl.range(BLOCK_N, last, BLOCK_N, num_stages=1):
            start = last - done
            dx = y.to(tl.float32) * (dy.to(tl.float32) - dot)
            dy = tl.load(dy_ptr + start - BLOCK_N + offs_n, eviction_policy="evict_first")
            y = tl.load(y_ptr + start - BLOCK_N + offs_n, eviction_policy="evict_first")
            tl.store(dx_ptr + start + offs_n, dx)
        dx = y.to(tl.float32) * (dy.to(tl.float32) - dot)
        tl.store(dx_ptr + offs_n, dx)


# ## 7. Which lines may leave the L2 cache first?
#
# A small result stays there, and the next operation finds it. A large one is evicted anyway, and the earlier the
# better. So what is read is marked `evict_last`, and what is written leaves first. At 32768 x 4096 in bfloat16 the
# forward pass took [[bench: softmax/ladder/no hint/rows_of_4096_forward_ms]] without this hint and takes
# [[bench: softmax/ladder/final/rows_of_4096_forward_ms]] with it. The limit, 256 MiB for all tensors together, is more
# than four times the L2 cache of an H200. (In the backward pass over rows of more than 32768 elements the last chunk
# does without the hint: it stays in registers, and would evict what the second pass still needs.)
def read_policy(x, tensors):
    return "evict_last" if tensors * x.numel() * x.element_size() > 1 << 28 else ""


# ## 8. Tile sizes
#
# What makes a memory-bound kernel fast is having enough bytes in flight at any moment, so every thread of an SM should
# have loads in flight: sixteen elements each, or up to twice as many if the row length isn't a power of two. Rows of
# 512 or less are taken several at a time. In the backward pass, a row of 16385 to 28672 has the SM to itself, and there
# fewer threads are better, since they wait for each other at every sum. The sizes are cached: a small call would have
# to wait for what Python computes here.
@functools.cache
def tiles(N, BLOCK_M, BLOCK_N, num_warps):
    BLOCK_N = BLOCK_N or triton.next_power_of_2(N)
    BLOCK_M = BLOCK_M or max(1, 1024 // BLOCK_N)
    warps = triton.next_power_of_2(BLOCK_M * min(N, BLOCK_N) // 512 + 1) // 2
    return BLOCK_M, BLOCK_N, num_warps or min(max(warps, 1), 32 if N <= 16384 else 16)


# Long rows are processed in chunks, and so are rows of 1025 or more whose length isn't a multiple of 16 bytes. A chunk
# is the largest power of two that the row holds, so that few lanes are masked off, up to 4096 elements, or 8192 from
# 28673 on. With 16-bit numbers, a thread has one vector of each chunk if the row has many chunks, and up to four if it
# has few. All these limits are those that were fastest on an H200, in bfloat16, when widths from 1025 to 262144 were
# tried.
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


# ## Launchers
#
# Inside `torch.compile`, after a second width, a size of `x` may be a symbol that stands for any number. The number of
# warps, which is computed from it here, can't be a symbol: `operator.index` turns the size into a number, and a new
# width triggers a compilation.
@replayed
def softmax_forward(x, *, BLOCK_M=None, BLOCK_N=None, num_warps=None):
    """Softmax over the last dimension. Tile sizes: None for those that were fastest."""
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
        launch(
            softmax_forward_chunked_kernel, (M,), (x, y), (N, stride),
            BLOCK_N=BLOCK_N, VECTOR=VECTOR, ALIGN=alignment(N, stride, VECTOR), num_warps=num_warps,
        )  # fmt: skip
    else:
        launch(
            softmax_forward_kernel, (cdiv(M, BLOCK_M),), (x, y), (M, N, stride),
            BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, POLICY=read_policy(x, 2), num_warps=num_warps,
        )  # fmt: skip
    return y


@replayed
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
        launch(
            softmax_backward_chunked_kernel, (M,), (dy, y, dx), (N, stride),
            BLOCK_N=BLOCK_N, VECTOR=VECTOR, ALIGN=alignment(N, stride, VECTOR), POLICY=POLICY, num_warps=num_warps,
        )  # fmt: skip
    else:
        launch(
            softmax_backward_kernel, (cdiv(M, BLOCK_M),), (dy, y, dx), (M, N, stride),
            BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, POLICY=POLICY, num_warps=num_warps,
        )  # fmt: skip
    return dx


@replayed
def softmax(x):
    """Softmax over the last dimension, differentiable. The same as `annotated_examples.tutorials.softmax.softmax`, but
    faster.

    The width is a constant of the kernel: inside `torch.compile`, too, each new width triggers a compilation.

    Args:
        x: tensor of shape (..., N), N below 2³¹ − 2¹⁴, float32, float16 or bfloat16, any strides.

    Returns:
        A new tensor of the shape and dtype of `x`; each row adds up to one.

    Raises:
        TypeError: `x` isn't a tensor, or its dtype isn't allowed.
        ValueError: `x` has no dimension, or too long a row, or is on the wrong device.

    Source: Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018), for rows longer than a block.
    """
    rows_contract(x)
    if not autograd.needs_frame(x):
        return softmax_forward(x)
    return Softmax.apply(x, softmax_forward, softmax_backward)


# ## A run small enough to watch
#
# Three rows of six, in blocks of two rows and eight columns; then the same rows in chunks of four. And two rows of 19
# elements in chunks of eight; the second row doesn't begin at a multiple of four.
def EXAMPLE():
    make = lambda rows: torch.tensor(rows, dtype=torch.float32, device=device.DEVICE)  # noqa: E731
    x = make([[1, 3, 2, 0, 4, 1], [2, 2, 2, 2, 2, 2], [0, -1, 5, -2, 3, 1]])
    dy = make([[0, 1, 0, 0, -1, 0], [1, 0, 0, 0, 0, 0], [2, 0, 1, 0, 0, -1]])
    for BLOCK_N in (8, 4):
        y = softmax_forward(x, BLOCK_M=2, BLOCK_N=BLOCK_N)
        softmax_backward(dy, y, BLOCK_M=2, BLOCK_N=BLOCK_N)
    softmax_forward((torch.arange(38, device=device.DEVICE) * 5 % 7).reshape(2, 19).float(), BLOCK_N=8)


if __name__ == "__main__":
    script.main(softmax, softmax_reference, pytorch=lambda x: torch.softmax(x, -1))
