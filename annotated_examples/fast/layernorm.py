r"""
# LayerNorm, fast: every byte once

The same functions as [the lesson](../classics/layernorm.py), with its reference, its contract and its autograd
function. Only the kernels are new. What keeps the lesson from the floor, `bytes / bandwidth`? It moves a row more than
once, and it waits for rows that it could have requested earlier. Each rung of the climb removes a part of that.

At 32768 x 4096 in bfloat16 the forward pass takes [[bench: layernorm/32768x4096/forward/ms]], the lesson
[[bench: layernorm/32768x4096/forward/lesson.ms]]. Backward takes [[bench: layernorm/32768x4096/backward/ms]] and
[[bench: layernorm/32768x4096/backward/lesson.ms]].

**What it costs.** Where a row fits into registers it moves little more than the bytes that have to move, which [the
lesson](../classics/layernorm.py) counts. That reaches [[bench: layernorm/32768x4096/forward/share]] of the limit
forward and [[bench: layernorm/32768x4096/backward/share]] backward.

**Contract.** The lesson's. In one respect it does more: the mean is corrected for its own rounding, so a row may be far
from zero, as long as float32 can still tell its numbers apart.
"""


# ## The ladder
#
# [[ladder: layernorm]]


# ## The ladder of the backward pass
#
# [[ladder: layernorm_backward]]

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.call_cache import remembered
from academy.runtime.launch import cdiv, launch
from academy.runtime.replay import replayed

import functools
import operator

import torch
import triton
import triton.language as tl

from annotated_examples.classics.layernorm import LayerNorm, contract, layernorm_reference
from annotated_examples.common.norms import (
    backward_schedule, forward_tiles, module_arguments, partial_sums_kernel, register_limit, sums_launch,
)  # fmt: skip
from annotated_examples.common.rows import as_rows, row_stride


# ## The row stays in registers
#
# The lesson loads its row three times. The second and third time it comes from the cache, but the program still waits
# for it. Here one program takes `BLOCK_M` whole rows. A row is loaded once and stays in registers while three things
# are computed from it: the mean, the standard deviation, the result. Short rows are taken several at a time, so that
# there is enough to load at once and `weight` and `bias` are fetched once for all of them.
#
# The row length `N` and the strides are `tl.constexpr`, which they are not in the lesson. A model has a handful of
# widths, so few versions get compiled; and each of them knows which masks are always true and how many neighbouring
# elements one instruction may load.
@triton.jit
def layernorm_forward_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, mean_ptr, rstd_ptr,  # as in the lesson: (M, N), (N,), (N,), (M, N), (M,), (M,)
    M, N: tl.constexpr, stride_xm: tl.constexpr, eps: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    # In the example there are seven rows and `BLOCK_M = 2`: the last program owns `pid=3: offs_m = [6, 7]`, the second
    # of which doesn't exist: `pid=3: mask_m = [1, 0]`.
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    mask_m = offs_m < M
    # A row has six elements in a block of eight: `mask_n = [1, 1, 1, 1, 1, 1, 0, 0]`.
    offs_n = tl.arange(0, BLOCK_N)
    mask_n = offs_n < N
    mask = mask_m[:, None] & mask_n[None, :]

    # The only pass: `pid=0: x[0] = [2, 4, 2, 4, 8, 4, 0, 0]`. Then [[tag: LN-mean]], `mean[0] = 4`, and the row without
    # it: `centred[0] = [-2, 0, -2, 0, 4, 0, 0, 0]`.
    x = tl.load(x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :], mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=1) / N
    centred = tl.where(mask_n[None, :], x - mean[:, None], 0.0)

    # Rounding has left the mean slightly off. The centred numbers are small, so their own mean shows by how much. Here
    # it is nothing: `residual[0] = 0`. Around 10000, neighbouring float32 numbers are a thousandth apart: a mean that
    # is off by half of that would shift the whole normalised row, if its standard deviation is 1, by as much.
    residual = tl.sum(centred, axis=1) / N
    # [[tag: LN-shift]], the variance from numbers that are shifted to about zero: `variance[0] = 4.0`. Then
    # [[tag: LN-rstd]]: `rstd[0] = 0.50`.
    variance = tl.sum(centred * centred, axis=1) / N - residual * residual
    rstd = 1.0 / tl.sqrt(variance + eps)
    mean += residual
    # For the backward pass; without one there is nowhere to store them.
    if mean_ptr is not None:
        tl.store(mean_ptr + offs_m, mean, mask=mask_m)
        tl.store(rstd_ptr + offs_m, rstd, mask=mask_m)

    # How many neighbours can one instruction load? Rows begin at multiples of the row length. The largest power of two
    # in it, `vector = 2` for rows of six, divides the offset of every row. (`n & -n` is the lowest bit of `n`.) For a
    # row of 4097 it is 1: its elements come one at a time. Weight and bias begin at aligned addresses, so of them the
    # compiler would give a thread eight neighbours even then. Those are other columns than it holds of the rows, and
    # threads would have to exchange them. So they are loaded in the same way as the rows.
    vector: tl.constexpr = (N | stride_xm) & -(N | stride_xm)
    vector_n = tl.max_contiguous(offs_n, vector)

    # [[tag: LN-Y]].
    y = centred * rstd[:, None] - (residual * rstd)[:, None]
    if weight_ptr is not None:
        y *= tl.load(weight_ptr + vector_n, mask=mask_n, other=0.0).to(tl.float32)[None, :]
    if bias_ptr is not None:
        y += tl.load(bias_ptr + vector_n, mask=mask_n, other=0.0).to(tl.float32)[None, :]
    # The first row of the example: `pid=0: y[0, :6] = [-1.00, 0.00, 0.00, 0.00, 3.00, -1.00]`.
    y_ptrs = y_ptr + offs_m[:, None] * N + offs_n[None, :]
    tl.store(y_ptrs, y, mask=mask)


# ## Few threads, many elements each
#
# A memory-bound kernel is fast if enough bytes are in flight at any moment. The registers of an SM decide how many rows
# it works on at once, and every thread costs some of them, whatever it does. So a thread gets many
# elements and a row few threads. `forward_tiles` says how many of each, and `register_limit` what happens at the widest
# rows: both are [shared with RMSNorm](../common/norms.py).


# ## Two passes for a long row
#
# A row too long for registers is read in chunks, as in the lesson, but twice instead of three times: once for mean and
# standard deviation, once for the result.
#
# Mean and sum of squares of the row so far are merged with those of the next chunk by [[tag: LN-merge]], which needs no
# difference of large squares. To be as exact as the kernel above, everything is counted from `shift`, a number near the
# mean ([[tag: LN-shift]] allows any): the mean of the first chunk.
@triton.jit
def layernorm_forward_chunked_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, mean_ptr, rstd_ptr,  # as above: (M, N), (N,), (N,), (M, N), (M,), (M,)
    N: tl.constexpr, stride_xm: tl.constexpr, eps: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_xm
    y_ptr += row * N

    # In the example a row of 6 takes two chunks of 4; `shift = 3` is the mean of the first, which is always full.
    offs_n = tl.arange(0, BLOCK_N)
    shift = tl.sum(tl.load(x_ptr + offs_n, mask=offs_n < N, other=0.0).to(tl.float32), axis=0) / BLOCK_N

    # The row so far: its mean, counted from `shift`, and the sum of its squared deviations from that mean.
    mean = 0.0
    squares = 0.0
    for start in tl.range(0, N, BLOCK_N):
        # The second chunk is half full: `start=4: mask = [1, 1, 0, 0]` and `start=4: count = 2`.
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = offs_n < N
        count = tl.minimum(N - start, BLOCK_N)
        # `evict_last` asks the L2 cache to keep these lines, since they will be needed again.
        x = tl.load(x_ptr + offs_n, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        shifted = tl.where(mask, x - shift, 0.0)

        # The chunk alone, in two steps: `start=0: chunk_mean = 0` and `start=4: chunk_mean = 3`, counted from `shift`.
        chunk_mean = tl.sum(shifted, axis=0) / count
        centred = tl.where(mask, shifted - chunk_mean, 0.0)
        # Then [[tag: LN-merge]]: `start=0: squares = 4` alone, and `start=4: squares = 24` with the second chunk.
        difference = chunk_mean - mean
        fraction = count / (start + count)
        squares += tl.sum(centred * centred, axis=0) + difference * difference * start * fraction
        # The mean moves towards the chunk's, by the chunk's fraction of the row: `start=0: mean = 0` and
        # `start=4: mean = 1`.
        mean += difference * fraction

    rstd = 1.0 / tl.sqrt(squares / N + eps)
    if mean_ptr is not None:
        tl.store(mean_ptr + row, shift + mean)
        tl.store(rstd_ptr + row, rstd)

    # Second pass over the row: [[tag: LN-Y]]. These lines won't be needed again, and say so with `evict_first`.
    for start in tl.range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = offs_n < N
        x = tl.load(x_ptr + offs_n, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = (x - shift - mean) * rstd
        if weight_ptr is not None:
            y *= tl.load(weight_ptr + offs_n, mask=mask, other=0.0).to(tl.float32)
        if bias_ptr is not None:
            y += tl.load(bias_ptr + offs_n, mask=mask, other=0.0).to(tl.float32)
        tl.store(y_ptr + offs_n, y, mask=mask)


# ## All three gradients in one pass
#
# The lesson reads `dy` and `x` once along the rows, for `dx`, and once more down the columns, for `dweight` and
# `dbias`. One pass is enough if a program takes many rows and keeps its sums of columns in registers from row to row.
#
# So there are only as many programs as fit on the card at once, and each walks over many rows. It sums its share of
# `dweight` and `dbias` in registers and writes it once, at the end, into a row of its own. A second, small kernel,
# [shared with RMSNorm](../common/norms.py), adds up these partial sums. Nothing is zeroed, nothing is contended, and
# the same call gives the same bits.
#
# ## Rows are loaded ahead
#
# A program that loops over rows must not wait for each of them. The loop is software-pipelined: while one tile is
# processed, the next `NUM_STAGES` − 1 are already in flight.
@triton.jit
def layernorm_backward_kernel(
    dy_ptr, x_ptr, weight_ptr, mean_ptr, rstd_ptr, dx_ptr,  # (M, N), (M, N), (N,) or None, (M,), (M,), (M, N)
    partial_dweight_ptr, partial_dbias_ptr,  # (programs, N) in float32, or None
    M, N: tl.constexpr, stride_dym: tl.constexpr, stride_xm: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, NUM_STAGES: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0).to(tl.int64)
    offs_n = tl.arange(0, BLOCK_N)
    mask_n = offs_n < N

    # The weight is the same for all rows: it is fetched once and stays in registers, in the threads that hold its
    # columns of the rows.
    vector: tl.constexpr = (N | stride_dym | stride_xm) & -(N | stride_dym | stride_xm)
    vector_n = tl.max_contiguous(offs_n, vector)
    if weight_ptr is not None:
        weight = tl.load(weight_ptr + vector_n, mask=mask_n, other=0.0).to(tl.float32)
    # One accumulator per row of the tile. To add the rows of a tile up at every step, threads would have to exchange
    # numbers.
    dweight = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    dbias = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)

    # A grid-stride loop, tile by tile: three programs share four tiles here.
    for tile in tl.range(pid, tl.cdiv(M, BLOCK_M), tl.num_programs(0), num_stages=NUM_STAGES):
        # `pid=0, tile=3: offs_m = [6, 7]`: there are seven rows, so the second one is masked off.
        offs_m = (tile * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
        mask_m = offs_m < M
        mask = mask_m[:, None] & mask_n[None, :]
        dy = tl.load(dy_ptr + offs_m[:, None] * stride_dym + offs_n[None, :], mask=mask, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :], mask=mask, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + offs_m, mask=mask_m, other=0.0)
        rstd = tl.load(rstd_ptr + offs_m, mask=mask_m, other=0.0)

        # The normalised row again: `pid=0, tile=0: x_hat[0, :6] = [-1.00, 0.00, -1.00, 0.00, 2.00, 0.00]`. Masked lanes
        # hold meaningless values here, but `dy` is zero there, and everything below is multiplied by it or masked.
        x_hat = (x - mean[:, None]) * rstd[:, None]

        # [[tag: LN-gamma]] and [[tag: LN-beta]], the share of these rows. The first accumulator of the first program
        # sees the first row and the last one: `pid=0, tile=3: dbias[0, :6] = [8, 0, 0, 0, 0, 0]`.
        dweight += dy * x_hat
        dbias += dy

        # [[tag: LN-X]]: what reaches the normalised row, then its two averages over the row. The first is what the mean
        # passes back, the second what the deviation does: `pid=0, tile=0: mean_g[0] = 0.167`.
        g = dy
        if weight_ptr is not None:
            # With a zero to add, `tl.fma` is a product that is rounded by itself. The compiler would fuse a plain
            # product with the subtraction below and round only the difference, while the average is computed from
            # rounded products. A row of one column has the gradient 0: there the two must cancel, and `rstd`, in the
            # hundreds, would magnify what is left.
            g = tl.fma(dy, weight[None, :], 0.0)
        mean_g = tl.div_rn(tl.sum(g, axis=1), tl.cast(N, tl.float32))
        mean_gx = tl.sum(g * x_hat, axis=1) / N
        if dx_ptr is not None:
            # `pid=0, tile=0: dx[0, :6] = [0.333, -0.083, -0.167, -0.083, 0.083, -0.083]`.
            dx = rstd[:, None] * (g - mean_g[:, None] - x_hat * mean_gx[:, None])
            dx_ptrs = dx_ptr + offs_m[:, None] * N + offs_n[None, :]
            tl.store(dx_ptrs, dx, mask=mask)

    # Now the rows of the tile are added up, once, and this program's share goes into row `pid` of the partial sums.
    dweight_sum = tl.sum(dweight, axis=0)
    dbias_sum = tl.sum(dbias, axis=0)
    if partial_dweight_ptr is not None:
        tl.store(partial_dweight_ptr + pid * N + offs_n, dweight_sum, mask=mask_n)
    if partial_dbias_ptr is not None:
        tl.store(partial_dbias_ptr + pid * N + offs_n, dbias_sum, mask=mask_n)


# ## Two programs on each SM
#
# A tile of `x`, one of `dy` and two accumulators have to fit. A thread has room for 32 elements of each, so the 8 warps
# of a program have room for 8192. One exception: rows a little longer than 4096 that are loaded one or two elements at
# a time, such as 4097. Half of what 8 warps have room for would be masked, and loading ahead gains little. Two programs
# of 4 warps are faster there: one loads while the other one waits.
#
# [[figure: hardware/occupancy]]
@functools.cache
def backward_tiles(N, BLOCK_M, BLOCK_N, num_warps):
    BLOCK_N = BLOCK_N or (triton.next_power_of_2(N) if N <= 8192 else 4096)
    BLOCK_M = BLOCK_M or max(1, 4096 // BLOCK_N)
    half_masked = 4096 < N <= 33 * 128 and N % 4
    most = 4 if half_masked else 8
    return BLOCK_M, BLOCK_N, num_warps or min(max(BLOCK_M * BLOCK_N // (32 * 32), 1), most)


# `backward_schedule` says how many programs share the rows, and how many tiles each has in flight. Small tiles leave
# room for two programs on an SM: while one waits for its sums, the other one loads.


# ## Backward for long rows
#
# The accumulators of a long row don't fit in registers beside the row. So the work is split as in the lesson: this
# kernel computes `dx` row by row, in chunks, and the next one sums `dweight` and `dbias` column by column. What
# is new is what the compiler is told: the width, which cache lines to keep for the second pass, and which to drop after
# it. The split still costs a second reading. At 16384 rows of 18432 the pass reaches
# [[bench: layernorm/16384x18432/backward/share]] of the limit.
@triton.jit
def layernorm_backward_chunked_kernel(
    dy_ptr, x_ptr, weight_ptr, mean_ptr, rstd_ptr, dx_ptr,  # (M, N), (M, N), (N,) or None, (M,), (M,), (M, N)
    N: tl.constexpr, stride_dym: tl.constexpr, stride_xm: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * stride_dym
    x_ptr += row * stride_xm
    dx_ptr += row * N
    mean = tl.load(mean_ptr + row)
    rstd = tl.load(rstd_ptr + row)

    # First pass: the two averages of [[tag: LN-X]].
    acc_g = tl.zeros((BLOCK_N,), tl.float32)
    acc_gx = tl.zeros((BLOCK_N,), tl.float32)
    for start in tl.range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = offs_n < N
        dy = tl.load(dy_ptr + offs_n, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        x = tl.load(x_ptr + offs_n, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        g = dy
        if weight_ptr is not None:
            g = dy * tl.load(weight_ptr + offs_n, mask=mask, other=0.0).to(tl.float32)
        acc_g += g
        acc_gx += g * (x - mean) * rstd
    # The same numbers as before: `pid=0: mean_g = 0.167` and `pid=0: mean_gx = -0.167`.
    mean_g = tl.div_rn(tl.sum(acc_g, axis=0), tl.cast(N, tl.float32))
    mean_gx = tl.sum(acc_gx, axis=0) / N

    # Second pass, out of the L2 cache: `pid=0, start=0: dx = [0.333, -0.083, -0.167, -0.083]`.
    for start in tl.range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = offs_n < N
        dy = tl.load(dy_ptr + offs_n, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        x = tl.load(x_ptr + offs_n, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        g = dy
        if weight_ptr is not None:
            g = dy * tl.load(weight_ptr + offs_n, mask=mask, other=0.0).to(tl.float32)
        dx = rstd * (g - mean_g - (x - mean) * rstd * mean_gx)
        tl.store(dx_ptr + offs_n, dx, mask=mask)


# A program of this kernel owns `BLOCK_N` columns and every `num_programs(1)`-th tile of rows. A row longer than 8192
# has more than 64 times 128 columns; with 16 programs for each block of columns that is over a thousand, enough to fill
# the card.
@triton.jit
def layernorm_backward_columns_kernel(
    dy_ptr, x_ptr, mean_ptr, rstd_ptr, partial_dweight_ptr, partial_dbias_ptr,  # (M, N), (M, N); (M,); (programs, N)
    M, N: tl.constexpr, stride_dym: tl.constexpr, stride_xm: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    # The second block of columns is half empty: `pid=(1, 0): mask_n = [1, 1, 0, 0]`.
    offs_n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_n = offs_n < N
    pid_m = tl.program_id(1).to(tl.int64)
    dweight = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    dbias = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for tile in tl.range(pid_m, tl.cdiv(M, BLOCK_M), tl.num_programs(1)):
        offs_m = (tile * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
        mask_m = offs_m < M
        mask = mask_m[:, None] & mask_n[None, :]
        dy = tl.load(dy_ptr + offs_m[:, None] * stride_dym + offs_n[None, :], mask=mask, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :], mask=mask, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + offs_m, mask=mask_m, other=0.0)
        rstd = tl.load(rstd_ptr + offs_m, mask=mask_m, other=0.0)
        # [[tag: LN-gamma]] and [[tag: LN-beta]] again, for a few columns and many rows.
        dweight += dy * (x - mean[:, None]) * rstd[:, None]
        dbias += dy
    dweight_sum = tl.sum(dweight, axis=0)
    dbias_sum = tl.sum(dbias, axis=0)
    if partial_dweight_ptr is not None:
        tl.store(partial_dweight_ptr + pid_m * N + offs_n, dweight_sum, mask=mask_n)
    if partial_dbias_ptr is not None:
        tl.store(partial_dbias_ptr + pid_m * N + offs_n, dbias_sum, mask=mask_n)


# ## Launchers
#
# Inside `torch.compile`, after a second width, a size of `x` may be a symbol that stands for any number. The number of
# warps, which is computed from it here, can't be a symbol: `operator.index` turns the size into a number, and a new
# width triggers a compilation.
@replayed
def layernorm_forward(x, weight=None, bias=None, eps=1e-5, *, save=True, BLOCK_M=None, BLOCK_N=None, num_warps=None):
    """Returns `y` in the shape of `x`, and `mean` and `rstd` in float32, one number per row; None if not `save`."""
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, num_warps=num_warps)
    N = operator.index(x.shape[-1])
    M = x.numel() // max(N, 1)
    y, mean, rstd = torch.empty_like(x, memory_format=torch.contiguous_format), None, None
    if save:
        mean = torch.empty(M, dtype=torch.float32, device=x.device)
        rstd = torch.empty_like(mean)
    if x.numel() == 0:
        return y, mean, rstd
    BLOCK_M, BLOCK_N, num_warps = forward_tiles(N, BLOCK_M, BLOCK_N, num_warps)
    rows = as_rows(x)
    tensors = rows, *(p if p is None else p.contiguous() for p in (weight, bias)), y, mean, rstd
    sizes = N, row_stride(rows, N), eps
    if N <= BLOCK_N:
        options = dict(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, num_warps=num_warps, **register_limit(N))
        launch(layernorm_forward_kernel, (cdiv(M, BLOCK_M),), tensors, (M, *sizes), **options)
    else:
        launch(layernorm_forward_chunked_kernel, (M,), tensors, sizes, BLOCK_N=BLOCK_N, num_warps=num_warps)
    return y, mean, rstd


# Going back, a call is a few launches: one pass or two directions, and then the partial sums. Those are a matrix for
# `dweight` and one for `dbias`, with a row for each program that shares the rows, in one piece of memory. A single
# program has nothing to share: it stores `dweight` and `dbias` themselves, and the second launch is saved. So where
# there are few tiles, one program takes them all. What is None isn't computed.
#
# On a Hopper card rows of 8193 to 16384 16-bit numbers, if that is a multiple of 64, go [below
# Triton](../gluon/layernorm_backward.py), where a row waits in shared memory and is read from there twice. There must
# be enough of them: each program's sums of columns have to be added up in the end.
FEW_TILES = 8
ENOUGH_ROWS = 1024


def goes_below_triton(rows, N, weight, index):
    """Whether these rows (M, N) have a kernel of their own. (`torch.compile` can't look into its launch.)"""
    if torch.compiler.is_compiling() or device.INTERPRET or not device.has("gluon", index):
        return False
    halves = rows.element_size() == 2 and (weight is None or weight.element_size() == 2)
    return halves and 8192 < N <= 16384 and N % 64 == 0 and len(rows) >= ENOUGH_ROWS


@replayed
def layernorm_backward(
    dy, x, weight, bias, mean, rstd, *, needs=(True, True, True),
    BLOCK_M=None, BLOCK_N=None, COLUMNS=None, num_warps=None, num_programs=None, num_stages=None,
):  # fmt: skip
    """Returns `(dx, dweight, dbias)`, None for what isn't in `needs` or has no parameter.

    Args: as the lesson's. num_programs: how many programs share the rows, at most. num_stages: how many tiles each of
    them has in flight, if rows fit in one block.
    """
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, COLUMNS=COLUMNS, num_warps=num_warps)
    N, wanted = operator.index(x.shape[-1]), (needs[0], needs[1] and weight is not None, needs[2] and bias is not None)
    M = x.numel() // max(N, 1)
    if BLOCK_N is None and goes_below_triton(as_rows(x), N, weight, x.device.index):
        from annotated_examples.gluon import layernorm_backward as below_triton  # only a Hopper card needs it

        dx, *sums = below_triton.layernorm_backward(as_rows(dy), as_rows(x), weight, bias, mean, rstd, needs=needs)
        return None if dx is None else dx.view(x.shape), *sums
    like = torch.empty_like if x.numel() else torch.zeros_like
    dx = torch.empty_like(x, memory_format=torch.contiguous_format) if wanted[0] else None
    dweight = like(weight, memory_format=torch.contiguous_format) if wanted[1] else None
    dbias = like(bias, memory_format=torch.contiguous_format) if wanted[2] else None
    if x.numel() == 0:
        return dx, dweight, dbias
    BLOCK_M, BLOCK_N, num_warps = backward_tiles(N, BLOCK_M, BLOCK_N, num_warps)
    if one_trip := N <= BLOCK_N:
        programs, stages = backward_schedule(x.device.index, x.element_size(), N, BLOCK_M, BLOCK_N, num_warps)
        tiles = cdiv(M, BLOCK_M)
        P = min(num_programs or (1 if tiles <= FEW_TILES else programs), tiles)
    else:
        columns_M = 32 if BLOCK_N >= 128 else BLOCK_M  # fewer where a caller asks for small blocks
        P = min(num_programs or 16, cdiv(M, columns_M))
    sums = dweight, dbias
    if shared := P > 1 and any(wanted[1:]):
        partial = torch.empty((sum(wanted[1:]), P, N), dtype=torch.float32, device=x.device)
        sums = partial[0] if wanted[1] else None, partial[-1] if wanted[2] else None

    dy, x, weight = as_rows(dy), as_rows(x), weight if weight is None else weight.contiguous()
    strides = row_stride(dy, N), row_stride(x, N)
    if one_trip:
        launch(
            layernorm_backward_kernel, (P,), (dy, x, weight, mean, rstd, dx, *sums), (M, N, *strides),
            BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, NUM_STAGES=num_stages or stages, num_warps=num_warps,
        )  # fmt: skip
    else:  # longer rows: `dx` along the rows, then `dweight` and `dbias` down the columns
        if wanted[0]:
            options = dict(BLOCK_N=BLOCK_N, num_warps=num_warps)
            tensors = dy, x, weight, mean, rstd, dx
            launch(layernorm_backward_chunked_kernel, (M,), tensors, (N, *strides), **options)
        if any(wanted[1:]):
            COLUMNS = COLUMNS or min(BLOCK_N, 128)
            launch(
                layernorm_backward_columns_kernel, (cdiv(N, COLUMNS), P), (dy, x, mean, rstd, *sums), (M, N, *strides),
                BLOCK_M=columns_M, BLOCK_N=COLUMNS, num_warps=4,
            )  # fmt: skip
    if shared:
        grid, sizes, blocks = sums_launch(P, N, min(BLOCK_N, 32))
        launch(partial_sums_kernel, grid, (*sums, dweight, dbias), sizes, **blocks)
    return dx, dweight, dbias


# ## Public functions
#
# What the check of the arguments finds out is [the same for all tensors of one
# geometry](../../docs/guides/what-a-call-costs.md).
checked = remembered(contract)


@replayed
def layernorm(x, weight=None, bias=None, eps=1e-5):
    """The same as `annotated_examples.classics.layernorm.layernorm`, but faster.

    The width is a constant of the kernel: inside `torch.compile`, too, each new width triggers a compilation.

    Args: as `annotated_examples.classics.layernorm.layernorm`.

    Returns:
        A new tensor of the shape and dtype of `x`.

    Raises:
        TypeError, ValueError: as the lesson's.

    Sources: Ba, Kiros and Hinton, "Layer Normalization" (2016); for the merging of means and sums of squares, Chan,
    Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances" (1979).
    """
    checked(x, weight, bias, eps)
    if not autograd.needs_frame(x, weight, bias):
        return layernorm_forward(x, weight, bias, eps, save=False)[0]
    return LayerNorm.apply(x, weight, bias, eps, layernorm_forward, layernorm_backward)


def apply_layernorm(module, x):
    """The same as `annotated_examples.classics.layernorm.apply_layernorm`, but faster.

    Args: as `annotated_examples.classics.layernorm.apply_layernorm`.

    Returns:
        A new tensor of the shape and dtype of `x`.

    Raises:
        TypeError, ValueError: as the lesson's.

    Source: PyTorch's documentation, `torch.nn.LayerNorm`.
    """
    return layernorm(*module_arguments(module, x)).view(x.shape)


# ## A run small enough to watch
#
# Seven rows of six, in blocks of two rows and eight columns; then the same rows in chunks of four.
def EXAMPLE():
    make = lambda *numbers: torch.tensor(numbers, dtype=torch.float32, device=device.DEVICE)  # noqa: E731
    row, upstream = make(2, 4, 2, 4, 8, 4), make(1, 0, 0, 0, 0, 0)
    x = torch.stack([row.roll(i) + i for i in range(7)])
    dy = torch.stack([upstream.roll(i) * (i + 1) for i in range(7)])
    weight, bias = make(1, 2, 1, 1, 1, 1), make(0, 0, 1, 0, 1, -1)
    for BLOCK_N in (8, 4):
        y, mean, rstd = layernorm_forward(x, weight, bias, BLOCK_M=2, BLOCK_N=BLOCK_N)
        layernorm_backward(dy, x, weight, bias, mean, rstd, BLOCK_M=2, BLOCK_N=BLOCK_N, num_programs=3)


if __name__ == "__main__":
    eager = lambda x, weight, bias: torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias)  # noqa: E731
    script.main(layernorm, layernorm_reference, pytorch=eager)
