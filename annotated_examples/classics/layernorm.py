r"""
# LayerNorm: normalise every row

Each row of `x` is shifted to mean zero and scaled to deviation one; then every column gets a learned scale `weight`
($\gamma$) and shift `bias` ($\beta$):

[[eq: LN-Y]]

Going back, the gradient of a row needs two averages over that row,

[[eq: LN-X]]

while the gradients of the parameters, `dgamma` and `dbeta` in other libraries, are sums over all **rows**:
[[tag: LN-gamma]] and [[tag: LN-beta]]. The first kind of sum stays inside a program. The second kind crosses all of
them, and that is what makes the backward pass interesting.

**What it costs.** Forward reads `x` and writes `y`. Backward reads `dy` and `x` and writes `dx`. In bfloat16 this is
4 and 6 bytes an element, for about ten and fifteen operations. By its data sheet an H200 does 56 operations in float32
while 4 bytes pass, so memory decides and the floor is `bytes / bandwidth`. Two things keep a kernel from it: moving a
row twice, and waiting for a row that could have been requested earlier. Everything below is about these two. At 32768
rows of 4096, on an H200, it reaches [[bench: layernorm/32768x4096/forward/share]] of that limit forward and
[[bench: layernorm/32768x4096/backward/share]] backward.

**Contract.** `x` has any shape, and rows of any length along its last dimension: float32, float16 or bfloat16, any
strides. `weight` and `bias` are optional vectors as long as a row; each may have another of these dtypes than `x`
(float32 parameters beside bfloat16 activations are common). The result has the dtype of `x`. All arithmetic is
float32. No input is ever written to, the upstream gradient included: in a pre-norm transformer the residual branch
still needs it.
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
from triton.language.extra import libdevice


# ## Reference
#
# The formula, spelled out in PyTorch. In float64 it is what the kernels are measured against. `eps` stands **inside**
# the root: it keeps a constant row, whose variance is zero, from being divided by zero.
def layernorm_reference(x, weight=None, bias=None, eps=1e-5):
    centred = x - x.mean(dim=-1, keepdim=True)
    rstd = 1 / torch.sqrt(centred.pow(2).mean(dim=-1, keepdim=True) + eps)
    y = centred * rstd
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


# ## Forward: rows that fit in one block
#
# One program takes `BLOCK_M` whole rows. A row is loaded once and stays in registers while three things are made of it:
# the mean, the deviation, the result. Short rows are taken several at a time, so that there is enough to load at once
# and `weight` and `bias` are fetched once for all of them.
#
# The row length `N` and the strides are `tl.constexpr`, unlike the length in the vector addition. A model has a handful
# of widths, so few versions get compiled; and each of them knows which masks are always true and how many neighbouring
# elements one instruction may load.
@triton.jit
def layernorm_forward_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    mean_ptr,
    rstd_ptr,
    M,
    N: tl.constexpr,
    stride_xm: tl.constexpr,
    eps,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    # Which rows are mine? In the example there are seven and `BLOCK_M = 2`: the last program owns
    # `pid=3: rows = [6, 7]`, the second of which doesn't exist: `pid=3: row_mask = [1, 0]`. int64, because a row
    # number gets multiplied by a stride: past 2³¹ elements a 32-bit offset would wrap around.
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    row_mask = rows < M

    # A row has six elements in a block of eight: `column_mask = [1, 1, 1, 1, 1, 1, 0, 0]`.
    columns = tl.arange(0, BLOCK_N)
    column_mask = columns < N
    mask = row_mask[:, None] & column_mask[None, :]

    # Load, and go to float32 at once: bfloat16 keeps 8 bits of a number, and a sum that reached 256 would ignore every
    # further 1. `other` puts zeros where there is no row, so that the sum below isn't disturbed:
    # `pid=0: x[0] = [2, 4, 2, 4, 8, 4, 0, 0]`.
    x = tl.load(x_ptr + rows[:, None] * stride_xm + columns[None, :], mask=mask, other=0.0).to(tl.float32)

    # [[tag: LN-mean]]: divide by the length of the row, not of the block: `mean[0] = 4`.
    mean = tl.sum(x, axis=1) / N

    # Masked lanes now hold 0 − 4. Put them back to zero before squaring, or each would add 16 to the sum of squares:
    # `centred[0] = [-2, 0, -2, 0, 4, 0, 0, 0]`.
    centred = tl.where(column_mask[None, :], x - mean[:, None], 0.0)

    # Rounding has left the mean slightly off. Centred numbers are small, so their own mean tells by how much. Here it
    # is nothing: `residual[0] = 0`. Around 10000 the neighbours in float32 are a thousandth apart: a mean off by half
    # of that would shift a whole row of deviation 1 by as much.
    residual = tl.sum(centred, axis=1) / N

    # [[tag: LN-shift]], the variance from numbers that are shifted to about zero: `variance[0] = 4.0`. The same
    # identity without the shift, $E[x^2] - E[x]^2$, saves nothing, since the row is in registers anyway. And for a row
    # around 10000 it subtracts two numbers near 10⁸, where float32 is spaced by 8: nothing of a variance of 1 would be
    # left.
    variance = tl.sum(centred * centred, axis=1) / N - residual * residual

    # [[tag: LN-rstd]], one over the standard deviation: `rstd[0] = 0.50`.
    rstd = 1.0 / tl.sqrt(variance + eps)

    # Backward needs both. Two numbers a row are cheap to keep; the normalised row isn't kept, it is made again.
    mean += residual
    tl.store(mean_ptr + rows, mean, mask=row_mask)
    tl.store(rstd_ptr + rows, rstd, mask=row_mask)

    # How many neighbours can one instruction load? Rows begin at multiples of the row length. The largest power of two
    # in it, `vector = 2` for rows of six, divides the place of every row. (`n & -n` is the lowest bit of `n`.) For a
    # row of 4097 it is 1: its elements come one at a time. Weight and bias begin at good addresses and could be loaded
    # eight at a time even then. But a thread would get other columns of them than it has of the rows, and the threads
    # would have to exchange them. So they are loaded as the rows are.
    vector: tl.constexpr = (N | stride_xm) & -(N | stride_xm)
    vector_columns = tl.max_contiguous(columns, vector)

    # [[tag: LN-Y]]. Weight and bias are optional. `None` is a compile-time constant, so a version without them holds no
    # trace of these lines.
    y = centred * rstd[:, None] - (residual * rstd)[:, None]
    if weight_ptr is not None:
        y *= tl.load(weight_ptr + vector_columns, mask=column_mask, other=0.0).to(tl.float32)[None, :]
    if bias_ptr is not None:
        y += tl.load(bias_ptr + vector_columns, mask=column_mask, other=0.0).to(tl.float32)[None, :]
    # The first row of the example: `pid=0: y[0, :6] = [-1.00, 0.00, 0.00, 0.00, 3.00, -1.00]`.
    y_ptrs = y_ptr + rows[:, None] * N + columns[None, :]
    tl.store(y_ptrs, y, mask=mask)


# ## Forward: rows longer than a block
#
# There is a limit to what the registers of one program hold. A longer row goes through in chunks, twice: once for
# mean and deviation, once for the result. The second time it comes from the L2 cache, because it has just been there.
#
# One row is left to one program. Mean and sum of squares of the row so far are merged with those of the next chunk by
# [[tag: LN-merge]], which needs no difference of large numbers. To be as exact as the kernel above, everything is
# counted from `shift`, a number near the mean ([[tag: LN-shift]] allows any): the mean of the first chunk.
@triton.jit
def layernorm_forward_chunked_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    mean_ptr,
    rstd_ptr,
    N: tl.constexpr,
    stride_xm: tl.constexpr,
    eps,
    BLOCK_N: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_xm
    y_ptr += row * N

    # In the example a row of 6 takes two chunks of 4; `shift = 3` is the mean of the first, which is always full.
    columns = tl.arange(0, BLOCK_N)
    shift = tl.sum(tl.load(x_ptr + columns, mask=columns < N, other=0.0).to(tl.float32), axis=0) / BLOCK_N

    # The row so far: its mean, counted from `shift`, and the sum of its squared deviations from that mean.
    mean = 0.0
    squares = 0.0
    for start in tl.range(0, N, BLOCK_N):
        # The second chunk is half full: `start=4: column_mask = [1, 1, 0, 0]` and `start=4: count = 2`.
        columns = start + tl.arange(0, BLOCK_N)
        column_mask = columns < N
        count = tl.minimum(N - start, BLOCK_N)
        # `evict_last` asks the L2 cache to keep these lines, since they will be needed again.
        x = tl.load(x_ptr + columns, mask=column_mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        shifted = tl.where(column_mask, x - shift, 0.0)

        # The chunk alone, in two steps: `start=0: chunk_mean = 0` and `start=4: chunk_mean = 3`, counted from `shift`.
        chunk_mean = tl.sum(shifted, axis=0) / count
        centred = tl.where(column_mask, shifted - chunk_mean, 0.0)
        # Then [[tag: LN-merge]]: `start=0: squares = 4` alone, and `start=4: squares = 24` with the second chunk.
        difference = chunk_mean - mean
        share = count / (start + count)
        squares += tl.sum(centred * centred, axis=0) + difference * difference * start * share
        # The mean moves towards the chunk's mean by the chunk's share: `start=0: mean = 0`, `start=4: mean = 1`.
        mean += difference * share

    rstd = 1.0 / tl.sqrt(squares / N + eps)
    tl.store(mean_ptr + row, shift + mean)
    tl.store(rstd_ptr + row, rstd)

    # Second trip over the row: [[tag: LN-Y]]. These lines won't be needed again, and say so with `evict_first`.
    for start in tl.range(0, N, BLOCK_N):
        columns = start + tl.arange(0, BLOCK_N)
        column_mask = columns < N
        x = tl.load(x_ptr + columns, mask=column_mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = (x - shift - mean) * rstd
        if weight_ptr is not None:
            y *= tl.load(weight_ptr + columns, mask=column_mask, other=0.0).to(tl.float32)
        if bias_ptr is not None:
            y += tl.load(bias_ptr + columns, mask=column_mask, other=0.0).to(tl.float32)
        tl.store(y_ptr + columns, y, mask=column_mask)


# ## Backward: one trip for all three gradients
#
# `dx` is a matter of one row. `dweight` and `dbias` are sums over all rows ([[tag: LN-gamma]], [[tag: LN-beta]]), so
# every program would have to add to the same numbers. Atomic additions would do that, in whatever order the programs
# happen to finish; floating-point sums depend on their order, and the same step would give other bits every time.
#
# Instead there are only as many programs as fit on the card at once, and each walks over many rows. It sums its share
# of `dweight` and `dbias` in registers and writes it once, at the end, into a row of its own. A second, small kernel
# adds up these partial sums. Nothing is zeroed, nothing is contended, and the same call gives the same bits.
#
# A program that walks must not wait for every row. Loading the next rows while this one is worked on took the backward
# pass from [[bench: layernorm/ladder/one trip/backward_ms]] to [[bench: layernorm/ladder/ahead/backward_ms]], and two
# programs on each multiprocessor, one loading while the other one sums, to
# [[bench: layernorm/ladder/final/backward_ms]].
@triton.jit
def layernorm_backward_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    dx_ptr,
    partial_dweight_ptr,
    partial_dbias_ptr,
    M,
    N: tl.constexpr,
    stride_dym: tl.constexpr,
    stride_xm: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    pid = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK_N)
    column_mask = columns < N

    # The weight is the same for all rows: it is fetched once and stays, in the threads that will have its columns.
    vector: tl.constexpr = (N | stride_dym | stride_xm) & -(N | stride_dym | stride_xm)
    vector_columns = tl.max_contiguous(columns, vector)
    if weight_ptr is not None:
        weight = tl.load(weight_ptr + vector_columns, mask=column_mask, other=0.0).to(tl.float32)
    # One accumulator per row of the tile. To add the rows of a tile up at every step, threads would have to exchange
    # numbers.
    dweight = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    dbias = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)

    # Every program starts with the tile of its own number and steps on by the number of programs: three of them share
    # four tiles here. The loop is software-pipelined: while one tile is worked on, the next `NUM_STAGES` − 1 are
    # already on their way from memory.
    for tile in tl.range(pid, tl.cdiv(M, BLOCK_M), tl.num_programs(0), num_stages=NUM_STAGES):
        # `pid=0, tile=3: rows = [6, 7]`: there are seven rows, so the second one is masked off.
        rows = (tile * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
        row_mask = rows < M
        mask = row_mask[:, None] & column_mask[None, :]
        dy = tl.load(dy_ptr + rows[:, None] * stride_dym + columns[None, :], mask=mask, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows[:, None] * stride_xm + columns[None, :], mask=mask, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + rows, mask=row_mask, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=row_mask, other=0.0)

        # The normalised row again: `pid=0, tile=0: normalised[0, :6] = [-1.00, 0.00, -1.00, 0.00, 2.00, 0.00]`.
        # Masked lanes hold rubbish here, but `dy` is zero there, and everything below is multiplied by it or masked.
        normalised = (x - mean[:, None]) * rstd[:, None]

        # [[tag: LN-gamma]] and [[tag: LN-beta]], the share of these rows. The first accumulator of the first program
        # sees the first row and the last one: `pid=0, tile=3: dbias[0, :6] = [2, 1, -1, 0, 1, 1]`.
        dweight += dy * normalised
        dbias += dy

        # [[tag: LN-X]]: what reaches the normalised row, then its two averages over the row. The first is what the mean
        # passes back, the second what the deviation does: `pid=0, tile=0: average[0] = 0.167`.
        dnormalised = dy
        if weight_ptr is not None:
            # `mul_rn` is a product that is rounded by itself. The compiler would fuse a plain one with the subtraction
            # below and round only the difference, while the average is made of rounded products. A row of one column
            # has the gradient 0: there the two must cancel, and `rstd`, in the hundreds, would magnify what is left.
            dnormalised = libdevice.mul_rn(dy, weight[None, :])
        average = tl.sum(dnormalised, axis=1) / N
        projection = tl.sum(dnormalised * normalised, axis=1) / N
        if dx_ptr is not None:
            # `pid=0, tile=0: dx[0, :6] = [0.333, -0.083, -0.167, -0.083, 0.083, -0.083]`.
            dx = rstd[:, None] * (dnormalised - average[:, None] - normalised * projection[:, None])
            dx_ptrs = dx_ptr + rows[:, None] * N + columns[None, :]
            tl.store(dx_ptrs, dx, mask=mask)

    # Now the rows of the tile are added up, once, and this program's share goes into row `pid` of the partial sums.
    dweight_sum = tl.sum(dweight, axis=0)
    dbias_sum = tl.sum(dbias, axis=0)
    if partial_dweight_ptr is not None:
        tl.store(partial_dweight_ptr + pid * N + columns, dweight_sum, mask=column_mask)
    if partial_dbias_ptr is not None:
        tl.store(partial_dbias_ptr + pid * N + columns, dbias_sum, mask=column_mask)


# ## Backward: rows longer than a block
#
# The accumulators of a long row don't fit in registers beside the row. So the work is split: this kernel makes `dx`
# row by row, in chunks, and the next one sums `dweight` and `dbias` column by column. The price is that the second
# kernel reads `dy` and `x` once more: at 16384 rows of 12288 the pass reaches
# [[bench: layernorm/16384x12288/backward/share]] of the limit.
@triton.jit
def layernorm_backward_chunked_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    dx_ptr,
    N: tl.constexpr,
    stride_dym: tl.constexpr,
    stride_xm: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * stride_dym
    x_ptr += row * stride_xm
    dx_ptr += row * N
    mean = tl.load(mean_ptr + row)
    rstd = tl.load(rstd_ptr + row)

    # First trip: the two sums of [[tag: LN-X]]. Each lane keeps its own, and the lanes are added up once, afterwards.
    average = tl.zeros((BLOCK_N,), tl.float32)
    projection = tl.zeros((BLOCK_N,), tl.float32)
    for start in tl.range(0, N, BLOCK_N):
        columns = start + tl.arange(0, BLOCK_N)
        column_mask = columns < N
        dy = tl.load(dy_ptr + columns, mask=column_mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        x = tl.load(x_ptr + columns, mask=column_mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        dnormalised = dy
        if weight_ptr is not None:
            dnormalised = dy * tl.load(weight_ptr + columns, mask=column_mask, other=0.0).to(tl.float32)
        average += dnormalised
        projection += dnormalised * (x - mean) * rstd
    # The same numbers as before: `pid=0: c_average = 0.167` and `pid=0: c_projection = -0.167`.
    c_average = tl.sum(average, axis=0) / N
    c_projection = tl.sum(projection, axis=0) / N

    # Second trip, out of the L2 cache: `pid=0, start=0: dx = [0.333, -0.083, -0.167, -0.083]`.
    for start in tl.range(0, N, BLOCK_N):
        columns = start + tl.arange(0, BLOCK_N)
        column_mask = columns < N
        dy = tl.load(dy_ptr + columns, mask=column_mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        x = tl.load(x_ptr + columns, mask=column_mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dnormalised = dy
        if weight_ptr is not None:
            dnormalised = dy * tl.load(weight_ptr + columns, mask=column_mask, other=0.0).to(tl.float32)
        dx = rstd * (dnormalised - c_average - (x - mean) * rstd * c_projection)
        tl.store(dx_ptr + columns, dx, mask=column_mask)


# A program of this kernel owns `BLOCK_N` columns and every `num_programs(1)`-th tile of rows. It sums down its columns;
# the result is a row of partial sums, as in the kernel for short rows. A row longer than 8192 has more than 64 times
# 128 columns; with 16 shares of the rows that is over a thousand programs, enough to fill the card.
@triton.jit
def layernorm_backward_columns_kernel(
    dy_ptr,
    x_ptr,
    mean_ptr,
    rstd_ptr,
    partial_dweight_ptr,
    partial_dbias_ptr,
    M,
    N: tl.constexpr,
    stride_dym: tl.constexpr,
    stride_xm: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    # The second block of columns is half empty: `pid=(1, 0): column_mask = [1, 1, 0, 0]`.
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    column_mask = columns < N
    share = tl.program_id(1).to(tl.int64)
    dweight = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    dbias = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for tile in tl.range(share, tl.cdiv(M, BLOCK_M), tl.num_programs(1)):
        rows = (tile * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
        row_mask = rows < M
        mask = row_mask[:, None] & column_mask[None, :]
        dy = tl.load(dy_ptr + rows[:, None] * stride_dym + columns[None, :], mask=mask, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows[:, None] * stride_xm + columns[None, :], mask=mask, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + rows, mask=row_mask, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=row_mask, other=0.0)
        # [[tag: LN-gamma]] and [[tag: LN-beta]] again, for a few columns and many rows.
        dweight += dy * (x - mean[:, None]) * rstd[:, None]
        dbias += dy
    dweight_sum = tl.sum(dweight, axis=0)
    dbias_sum = tl.sum(dbias, axis=0)
    if partial_dweight_ptr is not None:
        tl.store(partial_dweight_ptr + share * N + columns, dweight_sum, mask=column_mask)
    if partial_dbias_ptr is not None:
        tl.store(partial_dbias_ptr + share * N + columns, dbias_sum, mask=column_mask)


# ## Backward: adding up the partial sums
#
# One program per block of columns reads the partial sums of all `P` programs, tile after tile, always in the same
# order. They are few and have just been written, so they come from the L2 cache. The result is rounded to the dtype
# of the parameter here, once. Its blocks are narrow, 32 columns: a row of 4096 makes 128 programs, about one for each
# multiprocessor.
@triton.jit
def layernorm_backward_sum_kernel(
    partial_dweight_ptr,
    partial_dbias_ptr,
    dweight_ptr,
    dbias_ptr,
    P,
    N: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    column_mask = columns < N
    dweight = tl.zeros((BLOCK_P, BLOCK_N), tl.float32)
    dbias = tl.zeros((BLOCK_P, BLOCK_N), tl.float32)
    for start in tl.range(0, P, BLOCK_P):
        # Three programs left partial sums: `pid=0, start=0: share_mask = [1, 1, 1, 0]`.
        shares = start + tl.arange(0, BLOCK_P)
        share_mask = shares < P
        offsets = shares[:, None] * N + columns[None, :]
        mask = share_mask[:, None] & column_mask[None, :]
        if dweight_ptr is not None:
            dweight += tl.load(partial_dweight_ptr + offsets, mask=mask, other=0.0)
        if dbias_ptr is not None:
            dbias += tl.load(partial_dbias_ptr + offsets, mask=mask, other=0.0)
    dweight_sum = tl.sum(dweight, axis=0)
    dbias_sum = tl.sum(dbias, axis=0)
    if dweight_ptr is not None:
        tl.store(dweight_ptr + columns, dweight_sum, mask=column_mask)
    if dbias_ptr is not None:
        tl.store(dbias_ptr + columns, dbias_sum, mask=column_mask)


# ## Launchers
#
# The kernels see a matrix whose rows are contiguous. Leading dimensions are merged; a slice of wider rows, or one row
# expanded to many, is used where it lies, through its row stride. Anything else is copied first.
def as_rows(x):
    rows = x if x.dim() == 2 else x.reshape(-1, x.shape[-1])
    return rows if rows.stride(1) == 1 else rows.contiguous()


# The distance from one row to the next. For contiguous rows it is their width, which the caller knows. `stride` would
# say so too; but inside `torch.compile`, once the width has changed, it says it with a symbol, and Dynamo can't make
# that the constant which the kernels want.
def row_stride(rows, N):
    return N if rows.is_contiguous() else rows.stride(0)


# Rounded up, like `triton.cdiv`, but without the microseconds that its check for constexpr arguments takes. The time
# that Python needs before the GPU has anything to do is what a small call costs; so the tile sizes are remembered,
# too.
def cdiv(size, block):
    return -(-size // block)


# ### Tile sizes
#
# What makes a memory-bound kernel fast is having enough bytes on their way at any moment. The registers of a
# multiprocessor decide how many rows it works on at once, and a thread spends some of them whatever it does. So a
# thread gets many elements and a row few threads. Keeping the row in registers isn't enough: the forward pass with 16
# warps a row took [[bench: layernorm/ladder/one trip/forward_ms]], longer than in chunks and two trips,
# [[bench: layernorm/ladder/two trips/forward_ms]]. With more elements a thread it takes
# [[bench: layernorm/ladder/final/forward_ms]].


# Up to 48 elements a thread; more than that above 12288, where 8 warps are the most. `N` counts here rather than
# `BLOCK_N`: the compiler knows which registers would only hold masked lanes, and drops them. Up to 20480 elements at
# least two rows fit on a multiprocessor; from there on a row goes through in chunks.
@functools.cache
def forward_tiles(N, BLOCK_M, BLOCK_N, num_warps):
    BLOCK_N = BLOCK_N or (triton.next_power_of_2(N) if N <= 20480 else 4096)
    BLOCK_M = BLOCK_M or (1 if BLOCK_N > 4096 else max(2, 2048 // BLOCK_N))
    warps = triton.next_power_of_2(cdiv(BLOCK_M * min(N, BLOCK_N), 48 * 32))
    return BLOCK_M, BLOCK_N, num_warps or min(warps, 8)


# A multiprocessor has 65536 registers: 128 for each of 256 threads, if two rows are to fit. Above 16384 elements the
# compiler would take more, and one row would be all that fits. Told to get by with 128 it finds a way, and one row
# loads while the other one waits for its sums. (`torch.compile` can't pass on this option.)
def registers(N):
    return dict(maxnreg=128) if 16384 < N <= 20480 and not torch.compiler.is_compiling() else {}


# Backward holds a tile of `x`, one of `dy` and two accumulators. A thread has room for 32 elements of each, and the 8
# warps of a program for 8192. One exception: rows a little longer than 4096, such as 4097, that can only be loaded one
# or two elements at a time. Half of 8 warps would hold nothing but masked lanes, and loading ahead gains little. Two
# programs of 4 warps, one of which loads while the other one waits, are faster.
@functools.cache
def backward_tiles(N, BLOCK_M, BLOCK_N, num_warps):
    BLOCK_N = BLOCK_N or (triton.next_power_of_2(N) if N <= 8192 else 4096)
    BLOCK_M = BLOCK_M or max(1, 4096 // BLOCK_N)
    most = 4 if N % 4 and 4096 < N <= 33 * 128 else 8
    return BLOCK_M, BLOCK_N, num_warps or min(max(BLOCK_M * BLOCK_N // (32 * 32), 1), most)


# How many programs share the rows, and how many tiles each has under way. Small tiles leave room for two programs on a
# multiprocessor: while one waits for its sums, the other one loads. A tile that isn't full brings fewer bytes, so one
# more is requested ahead. All of them wait in shared memory, whose size is the limit.
@functools.cache
def backward_schedule(device_index, element_size, N, BLOCK_M, BLOCK_N, num_warps):
    if device.INTERPRET:
        return 4, 1
    card = torch.cuda.get_device_properties(device_index)
    per_multiprocessor = 2 if num_warps <= 4 else 1
    tile_bytes = per_multiprocessor * BLOCK_M * BLOCK_N * 2 * element_size
    num_stages = min(3 if N == BLOCK_N else 4, 1 + card.shared_memory_per_block_optin // tile_bytes)
    return per_multiprocessor * card.multi_processor_count, num_stages


# ### Forward
#
# Inside `torch.compile`, at a second width, a size of `x` may be a symbol that stands for any. Here it decides how many
# warps there are, which no symbol can: `operator.index` makes it a number, and a new width compiles anew.
def layernorm_forward(x, weight=None, bias=None, eps=1e-5, *, BLOCK_M=None, BLOCK_N=None, num_warps=None):
    """Returns `y` in the shape of `x`, and `mean` and `rstd` in float32, one number a row."""
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, num_warps=num_warps)
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    N = operator.index(x.shape[-1])
    M = x.numel() // max(N, 1)
    mean = torch.empty(M, dtype=torch.float32, device=x.device)
    rstd = torch.empty(M, dtype=torch.float32, device=x.device)
    if x.numel() == 0:
        return y, mean, rstd
    x = as_rows(x)
    weight = weight if weight is None else weight.contiguous()
    bias = bias if bias is None else bias.contiguous()
    BLOCK_M, BLOCK_N, num_warps = forward_tiles(N, BLOCK_M, BLOCK_N, num_warps)
    if N <= BLOCK_N:
        layernorm_forward_kernel[(cdiv(M, BLOCK_M),)](
            x, weight, bias, y, mean, rstd, M, N, row_stride(x, N), eps,
            BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, num_warps=num_warps, **registers(N),
        )  # fmt: skip
    else:
        layernorm_forward_chunked_kernel[(M,)](
            x, weight, bias, y, mean, rstd, N, row_stride(x, N), eps, BLOCK_N=BLOCK_N, num_warps=num_warps
        )
    return y, mean, rstd


# ### Backward
#
# It needs to know which gradients are wanted: `wanted` is a triple for x, weight and bias, and the others come back as
# `None`. Frozen parameters (a LoRA fine-tuning has almost nothing else) cost nothing that way.
def layernorm_backward(
    dy, x, weight, mean, rstd, *, wanted=(True, True, True), dtypes=(None, None),
    BLOCK_M=None, BLOCK_N=None, num_warps=None, num_programs=None, num_stages=None,
):  # fmt: skip
    """Returns `(dx, dweight, dbias)`.

    Args:
        dy: upstream gradient, shape and dtype of `x`, any strides (also stride 0, which `.sum().backward()` makes).
        x, weight: as they went into the forward pass. mean, rstd: as they came out of it.
        wanted: which of the three gradients to make.
        dtypes: of `dweight` and `dbias`; None: that of `x`.
    """
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, num_warps=num_warps)
    N, M = operator.index(x.shape[-1]), mean.numel()
    dx = torch.empty_like(x, memory_format=torch.contiguous_format) if wanted[0] else None
    dweight = torch.empty(N, dtype=dtypes[0] or x.dtype, device=x.device) if wanted[1] else None
    dbias = torch.empty(N, dtype=dtypes[1] or x.dtype, device=x.device) if wanted[2] else None
    if x.numel() == 0:
        return dx, *(g if g is None else g.zero_() for g in (dweight, dbias))
    dy, x = as_rows(dy), as_rows(x)
    weight = weight if weight is None else weight.contiguous()
    strides = row_stride(dy, N), row_stride(x, N)
    BLOCK_M, BLOCK_N, num_warps = backward_tiles(N, BLOCK_M, BLOCK_N, num_warps)
    programs, stages = backward_schedule(x.device.index, x.element_size(), N, BLOCK_M, BLOCK_N, num_warps)
    one_block = N <= BLOCK_N
    ROWS = BLOCK_M if one_block else 32 if BLOCK_N >= 128 else BLOCK_M  # rows of a tile in the kernel that sums columns
    P = min(num_programs or (programs if one_block else 16), cdiv(M, ROWS))
    partial_dweight = torch.empty((P, N), dtype=torch.float32, device=x.device) if wanted[1] else None
    partial_dbias = torch.empty((P, N), dtype=torch.float32, device=x.device) if wanted[2] else None
    if one_block:
        layernorm_backward_kernel[(P,)](
            dy, x, weight, mean, rstd, dx, partial_dweight, partial_dbias, M, N, *strides,
            BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, NUM_STAGES=num_stages or stages, num_warps=num_warps,
        )  # fmt: skip
    if not one_block and wanted[0]:
        layernorm_backward_chunked_kernel[(M,)](
            dy, x, weight, mean, rstd, dx, N, *strides, BLOCK_N=BLOCK_N, num_warps=num_warps
        )
    if not one_block and (wanted[1] or wanted[2]):
        COLUMNS = min(BLOCK_N, 128)
        layernorm_backward_columns_kernel[(cdiv(N, COLUMNS), P)](
            dy, x, mean, rstd, partial_dweight, partial_dbias, M, N, *strides,
            BLOCK_M=ROWS, BLOCK_N=COLUMNS, num_warps=4,
        )  # fmt: skip
    if wanted[1] or wanted[2]:
        COLUMNS = min(BLOCK_N, 32)
        layernorm_backward_sum_kernel[(cdiv(N, COLUMNS),)](
            partial_dweight, partial_dbias, dweight, dbias, P, N,
            BLOCK_P=min(triton.next_power_of_2(P), 32), BLOCK_N=COLUMNS,
        )  # fmt: skip
    return dx, dweight, dbias


# ## Joining autograd
#
# `x` itself is saved, not the normalised row: it is in memory already, and the other would be one tensor more.
# `once_differentiable` makes a second derivative raise. Without it a gradient penalty would silently lose its term
# here.
class LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        y, mean, rstd = layernorm_forward(x, weight, bias, eps)
        ctx.save_for_backward(x, weight, mean, rstd)
        ctx.dtypes = (None if weight is None else weight.dtype, None if bias is None else bias.dtype)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, weight, mean, rstd = ctx.saved_tensors
        wanted = ctx.needs_input_grad[:3]
        return *layernorm_backward(dy, x, weight, mean, rstd, wanted=wanted, dtypes=ctx.dtypes), None


def layernorm(x, weight=None, bias=None, eps=1e-5):
    """Layer normalisation over the last dimension, differentiable in `x`, `weight` and `bias`.

    The width is a constant of the kernel: inside `torch.compile`, too, each new width compiles anew.

    Args:
        x: tensor of shape (..., N), float32, float16 or bfloat16, any strides.
        weight: scale of each column, shape (N,), any of these dtypes, or None for ones.
        bias: shift of each column, shape (N,), any of these dtypes, or None for zeros.
        eps: added to the variance under the root, a finite number of at least 0.

    Returns:
        A new tensor of the shape and dtype of `x`.

    Raises:
        TypeError: an argument is no tensor (eps: no number), or has another dtype.
        ValueError: `x` has no dimension, weight or bias is not as long as a row, a tensor is on the wrong device, or
            eps is negative.

    Sources: Ba, Kiros and Hinton, "Layer Normalization" (2016); for the merging of means and sums of squares, Chan,
    Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances" (1979).
    """
    checks.tensors(x=x)
    checks.optional_tensors(weight=weight, bias=bias)
    checks.dtypes(x=x, weight=weight, bias=bias)
    if x.dim() == 0:
        checks.dimensions("x", x, range(1, 65), "rows lie along the last")
    N = x.shape[-1]
    if weight is not None and weight.shape != (N,):
        checks.shape("weight", weight, (N,), "the last dimension of x")
    if bias is not None and bias.shape != (N,):
        checks.shape("bias", bias, (N,), "the last dimension of x")
    checks.number("eps", eps, at_least=0)
    return LayerNorm.apply(x, weight, bias, eps)


# ## In the place of a module
#
# `apply_layernorm(module, x)` computes what `module(x)` does. A `normalized_shape` of several dimensions is one long
# row. Some models call their epsilon `variance_epsilon`.
def apply_layernorm(module, x):
    """`module(x)` for an `nn.LayerNorm`, or for any module with `weight`, `bias` and `eps` or `variance_epsilon`.

    Args:
        module: `weight` and `bias` may be None or missing. `normalized_shape` (default: the shape of the weight, or
            else the last dimension of `x`) says over how many trailing dimensions to normalise.
        x: tensor of shape (..., *normalized_shape).

    Raises:
        ValueError: `x` doesn't end in `normalized_shape`. TypeError: the module has no epsilon. And as `layernorm`.
    """
    checks.tensors(x=x)
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    eps = getattr(module, "variance_epsilon", None) if not hasattr(module, "eps") else module.eps
    if eps is None:
        raise TypeError(f"module must have eps or variance_epsilon, and {type(module).__name__} has neither")
    shape = getattr(module, "normalized_shape", x.shape[-1:] if weight is None else weight.shape)
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if not shape or tuple(x.shape[-len(shape) :]) != shape:
        raise ValueError(f"x must end in the module's normalized_shape, {shape}, got shape {tuple(x.shape)}")
    y = layernorm(
        x.flatten(-len(shape)),
        weight if weight is None else weight.flatten(),
        bias if bias is None else bias.flatten(),
        eps,
    )
    return y.view(x.shape)


# ## A run small enough to watch
#
# Seven rows of six, in blocks of two rows and eight columns; then the same rows in chunks of four. The upstream
# gradient is not the same everywhere: for a constant one (and no weight) `dx` is exactly zero, whatever the kernel
# does, because shifting a whole row changes nothing. An example like that could not show a mistake.
def EXAMPLE():
    make = lambda rows: torch.tensor(rows, dtype=torch.float32, device=device.DEVICE)  # noqa: E731
    x = make([[2, 4, 2, 4, 8, 4], [0, 1, 2, 3, 4, 8], [2, -2, 0, 1, -1, 0], [9, 7, 7, 5, 5, 3], [0, 0, 6, 6, 0, 0]])
    x = torch.cat([x, x[:2].flip(1)])
    weight, bias = make([1, 2, 1, 1, 1, 1]), make([0, 0, 1, 0, 1, -1])
    dy = make([[1, 0, 0, 0, 0, 0], [0, 2, 1, 0, 0, 1], [1, 0, 0, -1, 0, 0], [0, 0, 3, 0, 1, 0], [1, 1, -1, 0, 1, 1]])
    dy = torch.cat([dy, dy[3:]])
    for BLOCK_N in (8, 4):
        y, mean, rstd = layernorm_forward(x, weight, bias, BLOCK_M=2, BLOCK_N=BLOCK_N)
        layernorm_backward(dy, x, weight, mean, rstd, BLOCK_M=2, BLOCK_N=BLOCK_N, num_programs=3)
    return dict(shape=(7, 6), dtype=torch.float32)


# ## Cost and benchmark
#
# Bytes that must move and operations that must run, per pass, with weight and bias of the dtype of `x`. Mean and rstd
# are 4 bytes each a row. The partial sums of the backward pass are scratch and not counted.
def cost(shape, dtype):
    numel, N = torch.Size(shape).numel(), shape[-1]
    statistics = 2 * 4 * (numel // N)
    size = dtype.itemsize
    return {
        "forward": dict(
            bytes_read=(numel + 2 * N) * size, bytes_written=numel * size + statistics, operations=9 * numel
        ),
        "backward": dict(
            bytes_read=(2 * numel + N) * size + statistics, bytes_written=(numel + 2 * N) * size, operations=15 * numel
        ),
    }


def bench_inputs(shape, dtype, device):
    make = lambda *s: torch.randn(*s, dtype=dtype, device=device)  # noqa: E731
    return dict(x=make(*shape), weight=make(shape[-1]), bias=make(shape[-1]))


def eager(x, weight, bias):
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, 1e-5)


def liger():
    from liger_kernel.ops.layer_norm import LigerLayerNormFunction

    return lambda x, weight, bias: LigerLayerNormFunction.apply(x, weight, bias, 1e-5)


BENCH = dict(
    shapes=[(32768, 4096), (8192, 8192), (65536, 1024)]  # then widths of models, and two odd ones
    + [(16384, N) for N in (768, 1536, 2880, 5120, 12288, 18432, 1000, 4097)],
    dtypes=[torch.bfloat16],
    inputs=bench_inputs,
    ours=layernorm,
    eager=eager,
    peers={"liger-kernel": liger},
    passes=["forward", "backward"],
    differentiable=["x", "weight", "bias"],
)


def main():
    from academy import accuracy

    device.arguments(__doc__)
    report = accuracy.Report()
    for M, N in ((3, 64), (7, 1000), (2, 40000)):
        for dtype in checks.FLOATS:
            x, dy = (torch.randn(M, N, dtype=dtype, device=device.DEVICE) for _ in range(2))
            inputs = dict(x=x, weight=torch.randn_like(x[0]), bias=torch.randn_like(x[0]))
            compare(report, f"{M} x {N}", inputs, dy)
    status = report.print()
    if not device.INTERPRET:
        from academy import bench

        bench.print_speed(BENCH, cost)
    return status


def compare(report, case, inputs, dy):
    """Add `y`, `dx`, `dweight` and `dbias` to the report, each beside PyTorch's own and the float64 reference."""
    results = []
    for function, dtype in ((layernorm, None), (eager, None), (layernorm_reference, torch.float64)):
        leaves = {name: value.to(dtype or value.dtype).detach().requires_grad_() for name, value in inputs.items()}
        y = function(**leaves)
        results.append([y, *torch.autograd.grad(y, list(leaves.values()), dy.to(y.dtype))])
    for name, ours, pytorch, exact in zip(("y", "dx", "dweight", "dbias"), *results):
        report.compare(name, case, ours, pytorch, exact)


if __name__ == "__main__":
    sys.exit(main())
