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
numbers moved per element forward and 3 backward, and the floor is `bytes / bandwidth`. (Only a row of more than 32768
elements is loaded twice, the second time from the cache if it is still there.) At 8192 x 32000 in bfloat16 the
eight trips took [[bench: softmax/ladder/elementwise/forward_ms]], this kernel takes
[[bench: softmax/ladder/final/forward_ms]].

**Contract.** `x` has any shape, and rows of any length below 2³¹ − 8 along its last dimension: float32, float16 or
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
    x_ptr, y_ptr, M, N: tl.constexpr, stride_xm: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
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
    x = tl.load(x_ptrs, mask=mask, other=-float("inf")).to(tl.float32)

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


# ## Forward: rows that fill a multiprocessor
#
# Up to 16384 elements, several rows share a multiprocessor, and while one program computes another one loads. A
# longer row fills the registers alone, and while it is worked on nothing would be loaded. So only as many programs
# are started as there are multiprocessors, each walks over many rows, and the loop is *software-pipelined*: the next
# `NUM_STAGES` − 1 rows are already on their way, into shared memory. At 8192 x 32000 in bfloat16 this took
# [[bench: softmax/ladder/one trip/forward_ms]] down to [[bench: softmax/ladder/final/forward_ms]].
@triton.jit
def softmax_forward_pipelined_kernel(
    x_ptr,
    y_ptr,
    M,
    N: tl.constexpr,
    stride_xm: tl.constexpr,
    BLOCK_N: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    columns = tl.arange(0, BLOCK_N)
    mask = columns < N
    first = tl.program_id(0).to(tl.int64)
    # Two programs share three rows here; the first one takes `pid=0, row=0: row = 0` and `pid=0, row=2: row = 2`.
    for row in tl.range(first, M, tl.num_programs(0), num_stages=NUM_STAGES):
        x = tl.load(x_ptr + row * stride_xm + columns, mask=mask, other=-float("inf")).to(tl.float32)
        # [[tag: SM]] as above: `pid=0, row=2: row_max = 5`.
        row_max = tl.max(x, axis=0)
        exponentials = tl.exp(x - row_max)
        y = exponentials / tl.sum(exponentials, axis=0)
        tl.store(y_ptr + row * N + columns, y, mask=mask)


# ## Forward: rows longer than a block
#
# A long row doesn't fit in the registers of one program, so it comes in chunks, and the largest number isn't known
# until the last one. The *online* softmax doesn't wait. It keeps the largest number so far and the sum relative to
# it; when a larger one turns up, the old sum is scaled to the new reference by one factor, [[tag: SM-online]]. Flash
# attention rests on this line.
#
# A *lane* is here what one instruction loads, 16 bytes, or `WIDTH` neighbouring columns. Every lane keeps a largest
# number and a sum of its own. If they were the whole row's, all threads would have to wait for each other twice in
# every chunk. A thread has a few lanes to itself, and waits for nobody until the row is over.
@triton.jit
def online(lane_max, lane_sum, x):
    new_max = tl.maximum(lane_max, tl.max(x, axis=1))
    # Nothing but $-\infty$ so far? Then subtract zero: $-\infty - (-\infty)$ would be NaN, and the next chunk may yet
    # bring a number.
    reference = tl.where(new_max == -float("inf"), 0.0, new_max)
    # [[tag: SM-online]]
    lane_sum = lane_sum * tl.exp(lane_max - reference) + tl.sum(tl.exp(x - reference[:, None]), axis=1)
    return new_max, lane_sum


# **Rows that begin anywhere.** A vocabulary of 50257 is odd, so its rows begin at any multiple of 2 bytes. But 16 bytes
# can only be loaded from a multiple of 16. So a program goes back to the last such place before its row, and counts
# its chunks from there. Masks are needed in the first chunk and in the last one. In all others there is nothing to
# mask, and they are loaded 16 bytes at a time. A mask would forbid that wherever it could cut such a piece in two.
#
# A second trip over the row then writes the probabilities. It goes **backwards**: the last chunk is still in registers,
# and the ones before it are the likeliest to be in the L2 cache, which all rows that are worked on share. At
# 4096 x 50257 in bfloat16 the forward pass took
#
# - [[bench: softmax/ladder/one trip/rows_of_50257_forward_ms]] in chunks of 32768, each loaded 2 bytes at a time
# - [[bench: softmax/ladder/16-byte loads/rows_of_50257_forward_ms]] in chunks of 4096 from a multiple of 16
# - [[bench: softmax/ladder/a sum for each lane/rows_of_50257_forward_ms]] with a sum for each lane, loading ahead
# - [[bench: softmax/ladder/final/rows_of_50257_forward_ms]] with the second trip backwards
@triton.jit
def softmax_forward_chunked_kernel(
    x_ptr,
    y_ptr,
    N: tl.constexpr,
    stride_xm: tl.constexpr,
    BLOCK_N: tl.constexpr,
    WIDTH: tl.constexpr,
    ALIGN: tl.constexpr,
):
    # How far back is the last multiple of `ALIGN` elements? In the example's second launch the second row begins 19
    # elements behind the first, three behind a multiple of four: `launch=1, pid=1: shift = 3`. From `// ALIGN * ALIGN`
    # the compiler learns that both addresses are such multiples.
    row = tl.program_id(0).to(tl.int64)
    shift = (row * N % ALIGN).to(tl.int32)
    x_ptr += row * stride_xm // ALIGN * ALIGN
    y_ptr += row * N // ALIGN * ALIGN

    # From there the row ends after 22 elements, `launch=1, pid=1: end = 22`, and the last of the chunks of eight begins
    # at `launch=1, pid=1: last = 16`.
    end = shift + N
    last = (end - 1) // BLOCK_N * BLOCK_N

    # The columns of two lanes, four in each: `launch=1, pid=1: lanes = [[0, 1, 2, 3], [4, 5, 6, 7]]`.
    lanes = tl.arange(0, BLOCK_N // WIDTH)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]

    # The first chunk, without what lies before the row: `launch=1, pid=1: head[0] = [0, 0, 0, 1]`. `evict_last` asks
    # the L2 cache to keep these lines for the second trip. (From loads that are made ahead, as those of the loop below,
    # the compiler drops such a hint.)
    head = lanes >= shift
    x = tl.load(x_ptr + lanes, mask=head, other=-float("inf"), eviction_policy="evict_last").to(tl.float32)
    lane_max = tl.full((BLOCK_N // WIDTH,), -float("inf"), tl.float32)
    lane_sum = tl.zeros((BLOCK_N // WIDTH,), tl.float32)
    lane_max, lane_sum = online(lane_max, lane_sum, x)

    # Whole chunks. The first lane finds a larger number than it had, and scales its sum:
    # `launch=1, pid=1, start=8: lane_max = [6, 5]`. Two further chunks are on their way meanwhile.
    for start in tl.range(BLOCK_N, last, BLOCK_N, num_stages=3):
        x = tl.load(x_ptr + start + lanes, eviction_policy="evict_last").to(tl.float32)
        lane_max, lane_sum = online(lane_max, lane_sum, x)

    # The last chunk: `launch=1, pid=1: tail[1] = [1, 1, 0, 0]`.
    tail = last + lanes < end
    x = tl.load(x_ptr + last + lanes, mask=tail, other=-float("inf"), eviction_policy="evict_last").to(tl.float32)
    lane_max, lane_sum = online(lane_max, lane_sum, x)

    # The same merge once more, of all lanes. The first launch has the row from above, `pid=0: row_max = 4`, and comes
    # to the same sum: `row_sum = 1.621`.
    row_max = tl.max(lane_max, axis=0)
    row_sum = tl.sum(lane_sum * tl.exp(lane_max - row_max), axis=0)

    # Second trip, [[tag: SM]], beginning with the chunk that is at hand: `pid=0: y[0, :2] = [0.617, 0.031]`.
    y = tl.exp(x - row_max) / row_sum
    tl.store(y_ptr + last + lanes, y, mask=tail)
    # The others, backwards; `evict_first`, since nobody will need these lines again.
    for done in tl.range(BLOCK_N, last, BLOCK_N, num_stages=3):
        start = last - done
        x = tl.load(x_ptr + start + lanes, eviction_policy="evict_first").to(tl.float32)
        y = tl.exp(x - row_max) / row_sum
        tl.store(y_ptr + start + lanes, y)
    x = tl.load(x_ptr + lanes, mask=head, other=-float("inf"), eviction_policy="evict_first").to(tl.float32)
    # `pid=0: y = [[0.031, 0.227, 0.083, 0.011]]`.
    y = tl.exp(x - row_max) / row_sum
    tl.store(y_ptr + lanes, y, mask=head)


# ## Backward
#
# The probabilities that came out of the forward pass are all that is needed; `x` need not be kept. Each row takes one
# sum, then [[tag: SM-x]].
@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, M, N: tl.constexpr, stride_dym: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.arange(0, BLOCK_N)
    mask = (rows < M)[:, None] & (columns < N)[None, :]
    # The upstream gradient may have any row stride, also 0: `.sum().backward()` passes one number, expanded.
    dy_ptrs = dy_ptr + rows[:, None] * stride_dym + columns[None, :]
    dy = tl.load(dy_ptrs, mask=mask, other=0.0).to(tl.float32)
    y_ptrs = y_ptr + rows[:, None] * N + columns[None, :]
    y = tl.load(y_ptrs, mask=mask, other=0.0).to(tl.float32)

    # The average of the upstream gradient under the probabilities. Here the loss wants less of element 1 and more of
    # element 4: `pid=0: dy[0, :6] = [0, 1, 0, 0, -1, 0]`, and on average `pid=0: average[0] = -0.390`.
    average = tl.sum(dy * y, axis=1)
    # Where `dy` lies above the average the gradient is positive, and descent lowers the score; below it, the other way.
    # Each is in proportion to the element's own probability:
    # `pid=0: dx[0, :6] = [0.012, 0.315, 0.033, 0.004, -0.376, 0.012]`. A row adds up to zero.
    dx = y * (dy - average[:, None])
    dx_ptrs = dx_ptr + rows[:, None] * N + columns[None, :]
    tl.store(dx_ptrs, dx, mask=mask)


# Rows longer than a block make the trip twice: once for the average, once for the result. So do rows of a few shorter
# lengths, see `backward_tiles`. Here every chunk has a mask, and rows that begin anywhere are loaded 2 bytes at a time:
# those of 50257 elements take [[bench: softmax/4096x50257/backward/ms]], those of 50304
# [[bench: softmax/4096x50304/backward/ms]].
@triton.jit
def softmax_backward_chunked_kernel(
    dy_ptr, y_ptr, dx_ptr, N: tl.constexpr, stride_dym: tl.constexpr, BLOCK_N: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * stride_dym
    y_ptr += row * N
    dx_ptr += row * N

    # Each lane keeps a sum of its own. They are added up once, after the loop, so that the threads need not exchange
    # numbers at every step.
    products = tl.zeros((BLOCK_N,), tl.float32)
    for start in tl.range(0, N, BLOCK_N):
        columns = start + tl.arange(0, BLOCK_N)
        mask = columns < N
        dy = tl.load(dy_ptr + columns, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_ptr + columns, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        products += dy * y
    # The same as above: `pid=0: average = -0.390`.
    average = tl.sum(products, axis=0)

    for start in tl.range(0, N, BLOCK_N):
        columns = start + tl.arange(0, BLOCK_N)
        mask = columns < N
        dy = tl.load(dy_ptr + columns, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_ptr + columns, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        # [[tag: SM-x]], `pid=0, start=4: dx[:2] = [-0.376, 0.012]`.
        dx = y * (dy - average)
        tl.store(dx_ptr + columns, dx, mask=mask)


# ## Launchers
#
# The kernels see a matrix whose rows are contiguous. Leading dimensions are merged; a slice of wider rows, or one row
# expanded to many, is used where it lies, through its row stride. Anything else, a transposed matrix for one, is
# copied first.
def as_rows(x):
    rows = x if x.dim() == 2 else x.reshape(-1, x.shape[-1])
    return rows if rows.stride(1) == 1 else rows.contiguous()


# ### Tile sizes
#
# What makes a memory-bound kernel fast is having enough bytes on their way at any moment, so every thread of a
# multiprocessor should have loads to wait for: sixteen elements each, or up to twice as many where the row is no power
# of two. Rows of 512 or less are taken several at a time. A row of more than 16384 has the multiprocessor to itself,
# and there fewer threads are better: all of them wait for each other at every sum. The backward pass of 8192 x 32000
# took [[bench: softmax/ladder/one trip/backward_ms]] with 32 warps and
# [[bench: softmax/ladder/final/backward_ms]] with 16. The sizes are remembered: what Python does here is time that a
# small call waits for.
@functools.cache
def tiles(N, BLOCK_M, BLOCK_N, num_warps):
    BLOCK_N = BLOCK_N or min(triton.next_power_of_2(N), 32768)
    BLOCK_M = BLOCK_M or max(1, 1024 // BLOCK_N)
    warps = triton.next_power_of_2(BLOCK_M * min(N, BLOCK_N) // 512 + 1) // 2
    num_warps = num_warps or min(max(warps, 1), 16 if 16384 < N <= 32768 else 32)
    return BLOCK_M, BLOCK_N, num_warps


# A row in chunks needs few registers, so several programs can share a multiprocessor again, if the chunks are small.
# With rows of 50257 chunks of 4096 took [[bench: softmax/ladder/final/rows_of_50257_forward_ms]] and chunks of 8192
# [[bench: softmax/ladder/chunks of 8192/rows_of_50257_forward_ms]]; with rows of 128256 and more it was the other way
# round.
@functools.cache
def forward_tiles(N, BLOCK_M, BLOCK_N, num_warps):
    if BLOCK_N is None and N > 32768:
        BLOCK_N = 4096 if N <= 65536 else 8192
    return tiles(N, BLOCK_M, BLOCK_N, num_warps)


# Backward has two rows to hold, and the registers of a program that holds 16384 elements of each are those of a whole
# multiprocessor. Reading both a second time, in halves and out of the cache, takes fewer, so that the next row can be
# on its way meanwhile. It pays where two blocks fill a row exactly.
@functools.cache
def backward_tiles(N, BLOCK_M, BLOCK_N, num_warps):
    if BLOCK_N is None and N in (4096, 8192, 16384):
        BLOCK_N, num_warps = N // 2, num_warps or (16 if N <= 8192 else 32)
    return tiles(N, BLOCK_M, BLOCK_N, num_warps)


# How many programs walk over the rows, and how many rows each has under way: as far as shared memory reaches. `None`
# where a program for each tile is better.
@functools.cache
def pipeline(device_index, element_size, BLOCK_N):
    if device.INTERPRET or BLOCK_N <= 16384:
        return None
    card = torch.cuda.get_device_properties(device_index)
    return card.multi_processor_count, min(4, 1 + card.shared_memory_per_block_optin // (BLOCK_N * element_size))


# ### Forward
#
# Inside `torch.compile`, at a second width, a size of `x` may be a symbol that stands for any. Here it decides how many
# warps there are, which no symbol can: `operator.index` makes it a number, and a new width compiles anew.
def softmax_forward(x, *, BLOCK_M=None, BLOCK_N=None, num_warps=None, pipelined=None):
    """Softmax over the last dimension. pipelined: (programs, stages) of the kernel that loads ahead; None: tuned."""
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, num_warps=num_warps)
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    if x.numel() == 0:
        return y
    x = as_rows(x)
    M, N = x.shape[0], operator.index(x.shape[1])
    BLOCK_M, BLOCK_N, num_warps = forward_tiles(N, BLOCK_M, BLOCK_N, num_warps)
    pipelined = pipelined or pipeline(x.device.index, x.element_size(), BLOCK_N)
    if N > BLOCK_N:
        WIDTH, stride = min(16 // x.element_size(), BLOCK_N), operator.index(x.stride(0))
        # Going back helps where rows begin anywhere, if those of x and y begin alike. In logits that are cut out of a
        # padded vocabulary they don't: then, and where x itself begins at no multiple of 16 bytes, loads or stores stay
        # narrow.
        ALIGN = WIDTH if N % WIDTH and (stride - N) % WIDTH == 0 else 1
        softmax_forward_chunked_kernel[(M,)](
            x, y, N, stride, BLOCK_N=BLOCK_N, WIDTH=WIDTH, ALIGN=ALIGN, num_warps=num_warps
        )
    elif pipelined:
        programs, stages = pipelined
        softmax_forward_pipelined_kernel[(min(programs, M),)](
            x, y, M, N, x.stride(0), BLOCK_N=BLOCK_N, NUM_STAGES=stages, num_warps=num_warps
        )
    else:
        softmax_forward_kernel[(-(-M // BLOCK_M),)](
            x, y, M, N, x.stride(0), BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, num_warps=num_warps
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
    M, N = y.shape[0], operator.index(y.shape[1])
    BLOCK_M, BLOCK_N, num_warps = backward_tiles(N, BLOCK_M, BLOCK_N, num_warps)
    if N <= BLOCK_N:
        softmax_backward_kernel[(-(-M // BLOCK_M),)](
            dy, y, dx, M, N, dy.stride(0), BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, num_warps=num_warps
        )
    else:
        softmax_backward_chunked_kernel[(M,)](dy, y, dx, N, dy.stride(0), BLOCK_N=BLOCK_N, num_warps=num_warps)
    return dx


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

    The width is a constant of the kernel: inside `torch.compile` each new width compiles anew. If it changes while the
    number of rows stays, and gradients are wanted, pass `torch.compile` either `dynamic=True` or `dynamic=False`; told
    neither, PyTorch 2.11 to 2.13 can't trace the backward pass.

    Args:
        x: tensor of shape (..., N), N below 2**31 - 8, float32, float16 or bfloat16, any strides.

    Returns:
        A new tensor of the shape and dtype of `x`; each row adds up to one.

    Raises:
        TypeError: `x` is no tensor, or has another dtype.
        ValueError: `x` has no dimension, or is on the wrong device.

    Source: Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018), for rows longer than a block.
    """
    checks.tensors(x=x)
    checks.dtypes(x=x)
    if x.dim() == 0:
        checks.dimensions("x", x, range(1, 65), "rows lie along the last")
    return Softmax.apply(x)


# ## A run small enough to watch
#
# Three rows of six, in blocks of two rows and eight columns; then the same rows in chunks of four; then by two programs
# that load ahead; and two rows of 19 in chunks of eight, the second of which begins at no multiple of four.
def EXAMPLE():
    make = lambda rows: torch.tensor(rows, dtype=torch.float32, device=device.DEVICE)  # noqa: E731
    x = make([[1, 3, 2, 0, 4, 1], [2, 2, 2, 2, 2, 2], [0, -1, 5, -2, 3, 1]])
    dy = make([[0, 1, 0, 0, -1, 0], [1, 0, 0, 0, 0, 0], [2, 0, 1, 0, 0, -1]])
    for BLOCK_N in (8, 4):
        y = softmax_forward(x, BLOCK_M=2, BLOCK_N=BLOCK_N)
        softmax_backward(dy, y, BLOCK_M=2, BLOCK_N=BLOCK_N)
    softmax_forward(x, BLOCK_N=8, pipelined=(2, 2))
    softmax_forward((torch.arange(38, device=device.DEVICE) * 5 % 7).reshape(2, 19).float(), BLOCK_N=8)
    return dict(shape=(3, 6), dtype=torch.float32)


# ## Cost and benchmark
#
# Bytes that must move and operations that must run, per pass.
#
# **Where it stays behind.** With rows of 768 the backward pass takes [[bench: softmax/16384x768/backward/ms]] and that
# of `torch.compile` [[bench: softmax/16384x768/backward/torch.compile.ms]], in the run that is shown. In others it was
# the other way round: so short a time changes by more than that from run to run.
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
