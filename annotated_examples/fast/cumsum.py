r"""
# A running sum, fast: short rows, long rows, and from the end

The contract and the results of [the lesson](../recurrences/cumsum.py), near the time that it takes to copy the tensor,
for many shapes. The formulas are the same, [[tag: CS]], [[tag: CS-exclusive]], [[tag: CS-reverse]] and their gradients,
each of which is the sum the other way round. What differs is who adds what.

**What it costs.** Each element is read once and written once. At 8192 x 32000 in bfloat16 that takes
[[bench: cumsum/8192x32000/forward/ms]], the lesson [[bench: cumsum/8192x32000/forward/lesson.ms]], and PyTorch
[[bench: cumsum/8192x32000/forward/eager.ms]]. A row that is cut into parts is read twice: at best it takes one and a
half times as long as a copy.

**What is missing.** The second read. A program could wait for the one before it and go on from its sum; then every part
hangs on a chain of all earlier ones. There is a way without a chain: each program publishes the sum of its part, which
stays in its registers, and then waits for all earlier sums. On an H200 that took as long as the two launches here. And
16-byte loads need rows that begin at multiples of 16 bytes: rows of another length, and exclusive sums, which load
their neighbours, are loaded 2 bytes at a time.

**Contract.** The lesson's. The order in which a row is added up depends on its length and on the number of rows.
"""

if __name__ == "__main__":  # run as a script: make the repository importable
    import pathlib
    import sys

    sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))

from academy import autograd, checks, device, script
from academy.launch import cdiv, launch

import functools

import torch
import triton
import triton.language as tl

from annotated_examples.common.opaque import opaque
from annotated_examples.common.rows import as_rows
from annotated_examples.recurrences.cumsum import Cumsum, contract, cumsum_reference


# ## 1. A sum from the end, without turning anything round
#
# What was slow? The gradient of a running sum is the sum from the end, and it took twice as long as the sum from the
# start. `tl.cumsum(…, reverse=True)` turns the whole block round before it scans, and back again afterwards: for each
# number that is ten exchanges between the threads of a warp, where the scan itself needs fewer than one. The kernel was
# limited by exchanges, not by memory.
#
# Here a chunk is a block of *vectors*, the 16 bytes that a thread loads at once: 8 columns of 16 bits, or 4 of 32. A
# sum from the end takes the vectors in the opposite order, so that the last one comes first. Their addresses say so,
# and nothing has to be moved. Inside of a vector the columns stay in the order of memory.
#
# [[figure: recurrences/tree]]
#
# The numbers in the notes come from a recorded run: a row of 11 columns, in chunks of 8, which are two vectors of 4.
@triton.jit
def columns_at(place, N, REVERSE: tl.constexpr, BLOCK_N: tl.constexpr, VECTOR: tl.constexpr):
    vectors = place + tl.arange(0, BLOCK_N // VECTOR) * VECTOR
    # From the end, the first chunk has the columns 7 to 10 and then 3 to 6. The second begins before the row, and its
    # lanes there are masked.
    if REVERSE:
        vectors = N - VECTOR - vectors
    return (vectors[:, None] + tl.arange(0, VECTOR)[None, :])[None, :, :]


# What these columns add: themselves, or in an exclusive sum their neighbours. Outside of the row there is 0.
@triton.jit
def load_chunk(rows_ptr, mask_m, columns, N, REVERSE: tl.constexpr, EXCLUSIVE: tl.constexpr):
    taken = (columns + 1 if REVERSE else columns - 1) if EXCLUSIVE else columns
    return tl.load(rows_ptr + taken, mask=mask_m & (taken >= 0) & (taken < N), other=0.0).to(tl.float32)


# ## 2. A vector belongs to one thread
#
# So the sums inside of it need no exchange at all. They take as many rounds as it has halvings. In each round every
# number belongs to one of two neighbouring pieces, and the sum of the piece that comes first is added to all numbers of
# the other. From the start the left piece comes first, from the end the right one. That is the tree of the lesson,
# read from the other side: pieces of 1, of 2, of 4.
#
# `tl.reshape` doesn't move numbers either: it only counts them differently. Nothing is ever subtracted, and `tl.where`
# keeps an infinity out of the sums that it isn't a part of.
@triton.jit
def sums_inside(x, REVERSE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STEPS: tl.constexpr):
    sums, pieces = x, x
    first = (tl.arange(0, 2) == (1 if REVERSE else 0))[None, None, :]
    for step in tl.static_range(STEPS):
        pieces = tl.reshape(pieces, (BLOCK_M, BLOCK_N // 2 ** (step + 1), 2))
        given = tl.sum(tl.where(first, pieces, 0.0), axis=2)
        sums = tl.reshape(sums, (BLOCK_M, BLOCK_N // 2 ** (step + 1), 2, 2**step))
        sums += tl.where(first[:, :, :, None], 0.0, given[:, :, None, None])
        pieces = tl.sum(pieces, axis=2)
    vectors = tl.reshape(pieces, (BLOCK_M, BLOCK_N // 2**STEPS))
    return tl.reshape(sums, (BLOCK_M, BLOCK_N // 2**STEPS, 2**STEPS)), vectors


# Only the vectors' own sums are scanned across threads. What each vector needs is the sum of those **before** it. The
# scan gets pairs: the sum of a stretch, and the sum of all of it but its last vector. Joining two stretches, the first
# is whole and the second keeps its last vector out.
@triton.jit
def join(total, before, other_total, other_before):
    return total + other_total, total + other_before


# ## 3. Long rows are cut into parts
#
# What was slow? One program took a row, whatever its length. A single row of 2²⁶ elements kept one SM busy, for
# [[bench: cumsum/1x67108864/forward/lesson.ms]]. Now it takes [[bench: cumsum/1x67108864/forward/ms]].
#
# A row is cut into parts of `LENGTH` columns. A first kernel adds up each part. Its loop has no scan and no store, and
# `loop_unroll_factor` writes it out four times, so that four loads are on their way. In the example the second row is
# cut into two parts.
@triton.jit
def part_sums_kernel(
    x_ptr, sums_ptr,  # (M, N), rows stride_xm apart; (M, parts)
    N, stride_xm, parts, LENGTH,
    REVERSE: tl.constexpr, EXCLUSIVE: tl.constexpr, BLOCK_N: tl.constexpr, VECTOR: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0) // parts).to(tl.int64)
    begin = tl.program_id(0) % parts * LENGTH
    total = tl.zeros((1, BLOCK_N // VECTOR, VECTOR), tl.float32)
    # The end is counted from `begin`: the sum of the two could pass 2³¹.
    for done in tl.range(0, tl.minimum(LENGTH, N - begin), BLOCK_N, num_stages=1, loop_unroll_factor=4):
        columns = columns_at(begin + done, N, REVERSE, BLOCK_N, VECTOR)
        total += load_chunk(x_ptr + row * stride_xm, True, columns, N, REVERSE, EXCLUSIVE)
    tl.store(sums_ptr + tl.program_id(0), tl.sum(tl.sum(tl.sum(total, axis=2), axis=1), axis=0))


# ## 4. The sum
#
# Parts start from the sum of the parts before them. Each program adds them up itself: they are at most 1024 numbers,
# and one launch less. Always in the same order, so the same call gives the same bits. It would not if a program took
# what its neighbours happen to have finished.
#
# What was just added up may still lie in the L2 cache, the last part with the greatest chance: so the last part is the
# first program's.
#
# Short rows are taken several at a time, `BLOCK_M` of them, so that a program has enough to load.
@triton.jit
def cumsum_kernel(
    x_ptr, y_ptr, sums_ptr,  # (M, N), rows stride_xm apart; (M, N), contiguous; (M, parts), or None
    M, N, stride_xm, parts, LENGTH,
    REVERSE: tl.constexpr, EXCLUSIVE: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, VECTOR: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    rows = (tl.program_id(0) // parts * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    part = parts - 1 - tl.program_id(0) % parts
    mask_m = (rows < M)[:, None, None]
    carry = tl.zeros((BLOCK_M,), tl.float32)
    # In the last launch the first program has the second part, and starts from the sum of the first:
    # `launch=3, pid=0: carry = [36]`.
    if sums_ptr is not None:
        earlier = tl.arange(0, BLOCK_P)[None, :]
        carry += tl.sum(tl.load(sums_ptr + rows[:, None] * parts + earlier, mask=earlier < part, other=0.0), axis=1)
    begin = part * LENGTH
    for done in tl.range(0, tl.minimum(LENGTH, N - begin), BLOCK_N, num_stages=3):
        # From the end, `launch=1, pid=0, done=0: columns = [[[7, 8, 9, 10], [3, 4, 5, 6]]]`.
        columns = columns_at(begin + done, N, REVERSE, BLOCK_N, VECTOR)
        x = load_chunk(x_ptr + (rows * stride_xm)[:, None, None], mask_m, columns, N, REVERSE, EXCLUSIVE)
        # The first vector, 1, 2, 3, 4, becomes `pid=0, done=0: inside[0, 0] = [1, 3, 6, 10]`. From the end it is 8, 9,
        # 10, 11, and becomes `launch=1, pid=0, done=0: inside[0, 0] = [38, 30, 21, 11]`.
        inside, vectors = sums_inside(x, REVERSE, BLOCK_M, BLOCK_N, STEPS)
        # The vectors add up to `pid=0, done=0: vectors = [[10, 26]]`, and what is before them is
        # `pid=0, done=0: before = [[0, 10]]`.
        _, before = tl.associative_scan((vectors, tl.zeros_like(vectors)), 1, join)
        y = inside + (before + carry[:, None])[:, :, None]
        tl.store(y_ptr + (rows * N)[:, None, None] + columns, y, mask=mask_m & (columns >= 0) & (columns < N))
        carry += tl.sum(vectors, axis=1)


# ## 5. Sizes
#
# Chunks of 2048 columns for four warps. Short rows make blocks of 1024 elements. A row is cut if fewer than 512 rows
# could keep the card busy and each part has at least four chunks. These sizes were the fastest on an H200, in bfloat16,
# at four shapes. They don't depend on the card, and so neither do the bits of the result.
MOST_PARTS = 1024


@functools.cache
def tiles(M, N, BLOCK_M, BLOCK_N, parts):
    """BLOCK_M, BLOCK_N, the number of parts, the length of each, and the number of warps."""
    BLOCK_N = BLOCK_N or min(triton.next_power_of_2(N), 2048)
    BLOCK_M = BLOCK_M or max(1, 1024 // BLOCK_N)
    if parts is None:
        parts = max(1, min(MOST_PARTS // M, N // (4 * BLOCK_N))) if BLOCK_M == 1 else 1
    length = cdiv(cdiv(N, parts), BLOCK_N) * BLOCK_N
    return BLOCK_M, BLOCK_N, cdiv(N, length), length, min(max(BLOCK_M * BLOCK_N // 512, 1), 4)


# ## Launchers
#
# As the lesson's. Backward is forward, the other way round.
@opaque(
    "(Tensor x, int dim, bool reverse, bool exclusive) -> Tensor",
    lambda x, dim=-1, reverse=False, exclusive=False: torch.empty(x.shape, dtype=x.dtype, device=x.device),
)
def cumsum_forward(x, dim=-1, reverse=False, exclusive=False, *, BLOCK_M=None, BLOCK_N=None, parts=None):
    """The running sum along `dim`. BLOCK_M, BLOCK_N: rows and columns of a block. parts: of a row, about.

    None stands for what was fastest. Several parts need a BLOCK_M of 1.
    """
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N)
    moved = x.movedim(dim, -1)
    y = torch.empty_like(moved, memory_format=torch.contiguous_format)
    if y.numel() > 0:
        rows = as_rows(moved)
        M, N = rows.shape
        BLOCK_M, BLOCK_N, parts, LENGTH, num_warps = tiles(M, N, BLOCK_M, BLOCK_N, parts)
        VECTOR, sums = min(16 // x.element_size(), BLOCK_N), None
        options = dict(REVERSE=reverse, EXCLUSIVE=exclusive, BLOCK_N=BLOCK_N, VECTOR=VECTOR, num_warps=num_warps)
        sizes = N, rows.stride(0), parts, LENGTH
        if parts > 1:
            sums = torch.empty(M, parts, device=x.device)
            launch(part_sums_kernel, (M * parts,), (rows, sums), sizes, **options)
        launch(
            cumsum_kernel, (cdiv(M, BLOCK_M) * parts,), (rows, y, sums), (M, *sizes), BLOCK_M=BLOCK_M,
            BLOCK_P=triton.next_power_of_2(parts), STEPS=VECTOR.bit_length() - 1, **options,
        )  # fmt: skip
    return y.movedim(-1, dim).contiguous()


def cumsum_backward(dy, dim=-1, reverse=False, exclusive=False, **sizes):
    """The gradient for `x`. dy: upstream gradient, any strides (also 0). The others: as in the forward pass."""
    return cumsum_forward(dy, dim, not reverse, exclusive, **sizes)


def cumsum(x, dim=-1, *, reverse=False, exclusive=False):
    """The running sum along a dimension, differentiable. The same as `annotated_examples.recurrences.cumsum.cumsum`,
    but faster.

    Args:
        x: tensor of at least one dimension, float32, float16 or bfloat16, any strides.
        dim: the dimension that is summed, shorter than 2³¹ − 2¹⁴.
        reverse: sum from the end: each element and what comes after it.
        exclusive: leave the element itself out, so that the first sum (in reverse, the last) is 0.

    Returns:
        A new tensor of the shape and dtype of `x`. Sums are formed in float32.

    Raises:
        TypeError: `x` isn't a tensor, its dtype isn't allowed, or `dim` isn't a whole number.
        ValueError: `x` has no dimension, or too long a one, or is on the wrong device; an option is no bool.
        IndexError: `x` has no dimension `dim`.

    Source: Blelloch, "Prefix Sums and Their Applications" (1990), for parts: reduce, then scan.
    """
    contract(x, dim, reverse, exclusive)
    if not autograd.needs_frame(x):
        return cumsum_forward(x, dim, reverse, exclusive)
    return Cumsum.apply(x, dim, reverse, exclusive, cumsum_forward, cumsum_backward)


# ## A run small enough to watch
#
# A row of the numbers from 1 to 11, in chunks of 8: its running sum, the one from the end, the gradient of the first
# one, and the running sum again in two parts.
def EXAMPLE():
    x = torch.arange(1.0, 12.0, device=device.DEVICE)[None]
    cumsum_forward(x, BLOCK_M=1, BLOCK_N=8)
    cumsum_forward(x, reverse=True, BLOCK_M=1, BLOCK_N=8)
    cumsum_backward(torch.ones_like(x), BLOCK_M=1, BLOCK_N=8)
    cumsum_forward(x, BLOCK_M=1, BLOCK_N=8, parts=2)


if __name__ == "__main__":
    sizes = (
        dict(x=(3, 64)),
        dict(x=(7, 1000), reverse=True),
        dict(x=(2, 30000), exclusive=True),
        dict(x=(2, 40, 3), dim=1),
    )
    script.main(cumsum, cumsum_reference, *sizes)
