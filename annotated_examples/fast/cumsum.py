r"""
# A running sum, fast: short rows, long rows, and from the end

The contract and the results of [the lesson](../recurrences/cumsum.py), near the time that it takes to copy the tensor,
for many shapes. The formulas are the same, [[tag: CS]], [[tag: CS-exclusive]], [[tag: CS-reverse]] and their gradients,
each of which is the sum the other way round. What differs is who adds what.

**What it costs.** Each element is read once and written once. At 8192 x 32000 in bfloat16 that takes
[[bench: cumsum/8192x32000/forward/ms]], the lesson [[bench: cumsum/8192x32000/forward/lesson.ms]], and PyTorch
[[bench: cumsum/8192x32000/forward/eager.ms]]. A row that is cut into parts is read twice, the second time from the L2
cache.

**Where it falls behind.** At 65536 x 128 it takes [[bench: cumsum/65536x128/forward/ms]], and torch.compile
[[bench: cumsum/65536x128/forward/torch.compile.ms]].

**What is missing.** 16-byte loads need rows that begin at multiples of 16 bytes. In 16 bits, rows of another length are
loaded 2 to 8 bytes at a time, and exclusive sums, which load their neighbours, 2. In a trial on an H200, blocks that
take a stretch of memory, whatever rows lie in it, needed 0.6 times as long for rows of 33 numbers.

**Contract.** The lesson's. The order in which a row is added up depends on its length and on the number of rows.
"""

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.launch import cdiv, launch
from academy.runtime.replay import replayed

import functools
import math

import torch
import triton
import triton.language as tl

from annotated_examples.common.carried import carry_on
from annotated_examples.common.custom_operator import opaque
from annotated_examples.common.rows import as_rows
from annotated_examples.recurrences.cumsum import Cumsum, contract, cumsum_reference


# ## 1. A sum from the end, without turning anything round
#
# What was slow? The gradient of a running sum is the sum from the end, and it took twice as long as the sum from the
# start. `tl.cumsum(…, reverse=True)` turns the whole block round before it scans, and back again afterwards: for each
# number that is ten exchanges between the threads of a warp, where the scan itself needs fewer than one. (Triton 3.9
# turns it round with fewer.) The kernel was limited by exchanges, not by memory.
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
    return vectors[:, None, None] + tl.arange(0, VECTOR)[None, None, :]


# A block has three dimensions: vectors, rows, and the columns of a vector. The compiler deals it out to lanes from the
# right: a lane has a vector, the next lane one in the next row. In rows of 128 numbers of 16 bits a block has eight
# rows, and a warp loads four neighbouring vectors of each at once, 64 bytes. That is enough: 65536 such rows take
# [[bench: cumsum/65536x128/forward/ms]], which is what a copy takes.
#
# Is a row a multiple of 16 bytes long? A thread can load a whole vector if the compiler knows. But what it knows of a
# number is whether it's a multiple of 16, and rows of 1000 columns of 16 bits are not. So the launcher finds the
# largest `UNIT`, a vector at most, that divides the row's length and the distance of rows. To divide by it and to
# multiply again changes nothing, but shows it. With this and without the loop of section 4, 65536 rows of 1000 took
# half the time.
@triton.jit
def whole_units(number, UNIT: tl.constexpr):
    return number // UNIT * UNIT


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
def sums_inside(x, REVERSE: tl.constexpr, VECTORS: tl.constexpr, BLOCK_M: tl.constexpr, STEPS: tl.constexpr):
    sums, pieces = x, x
    first = (tl.arange(0, 2) == (1 if REVERSE else 0))[None, :]
    for step in tl.static_range(STEPS):
        pieces = tl.reshape(pieces, (VECTORS * BLOCK_M * 2 ** (STEPS - step - 1), 2))
        given = tl.sum(tl.where(first, pieces, 0.0), axis=1)
        sums = tl.reshape(sums, (VECTORS * BLOCK_M * 2 ** (STEPS - step - 1), 2, 2**step))
        sums += tl.where(first[:, :, None], 0.0, given[:, None, None])
        pieces = tl.sum(pieces, axis=1)
    return tl.reshape(sums, (VECTORS, BLOCK_M, 2**STEPS)), tl.trans(tl.reshape(pieces, (VECTORS, BLOCK_M)))


# Only the vectors' own sums are scanned across threads. For that the rows come first again. What each vector needs is
# the sum of those **before** it. The scan gets pairs: the sum of a stretch, and the sum of all of it but its last
# vector. Joining two stretches, the first is whole and the second keeps its last vector out.
@triton.jit
def join(total, before, other_total, other_before):
    return total + other_total, total + other_before


# ## 3. Long rows are cut into parts
#
# What was slow? One program took a row, whatever its length. A single row of 2²⁶ elements kept one SM busy, for
# [[bench: cumsum/1x67108864/forward/lesson.ms]]. Now it takes [[bench: cumsum/1x67108864/forward/ms]].
#
# A row is cut into parts of `LENGTH` columns, one for each program. First the program adds up its part. That loop has
# no scan and no store. `loop_unroll_factor` writes it out four times, eight loads for each thread, and up to three of
# them are on their way at once. It walks from the end: what was read last is needed first. In the example's last launch
# the row is cut into two parts.
@triton.jit
def part_sum(
    row_ptr, begin, LENGTH, N,
    REVERSE: tl.constexpr, EXCLUSIVE: tl.constexpr, BLOCK_N: tl.constexpr, VECTOR: tl.constexpr,
):  # fmt: skip
    total = tl.zeros((BLOCK_N // VECTOR, 1, VECTOR), tl.float32)
    # The end is counted from `begin`: the sum of the two could pass 2³¹.
    chunks = tl.cdiv(tl.minimum(LENGTH, N - begin), BLOCK_N)
    for later in tl.range(0, chunks, num_stages=1, loop_unroll_factor=4):
        columns = columns_at(begin + (chunks - 1 - later) * BLOCK_N, N, REVERSE, BLOCK_N, VECTOR)
        total += load_chunk(row_ptr, True, columns, N, REVERSE, EXCLUSIVE)
    return tl.sum(tl.sum(tl.sum(total, axis=2), axis=1), axis=0)


# Then it tells the others. A sum has 32 bits, and a word of 64 has room for a flag beside it. `tl.atomic_xchg` writes
# the word in one step: both are there, or neither. With two stores another program could see the flag, and an old sum.
@triton.jit
def publish(word_ptr, total):
    tl.atomic_xchg(word_ptr, total.to(tl.uint32, bitcast=True).to(tl.int64) | 2**32, sem="relaxed")


# And it waits for `count` others. A flag is never taken back, so words may be read until all of them have one.
# `volatile` makes each read pass by the L1 cache. The sums are added up when all are there, always in the same order:
# the same call gives the same bits. It might not if a program took what its neighbours happen to have finished.
@triton.jit
def sum_of_words(words_ptr, count, GROUP: tl.constexpr):
    total = 0.0
    for start in range(0, count, GROUP):
        lanes = start + tl.arange(0, GROUP)
        words = tl.load(words_ptr + lanes, mask=lanes < count, other=2**32, volatile=True)
        while tl.min(words, axis=0) == 0:
            words = tl.load(words_ptr + lanes, mask=lanes < count, other=2**32, volatile=True)
        total += tl.sum(words.to(tl.int32).to(tl.float32, bitcast=True), axis=0)
    return total


# A row may have thousands of parts, too many for each program to wait for. The last program of a *group* of parts
# publishes what the group adds up to. So a part waits for the parts of its own group and for the groups before, and no
# group waits for another.
@triton.jit
def sum_before(words_ptr, part, parts, total, GROUP: tl.constexpr):
    publish(words_ptr + part, total)
    before = sum_of_words(words_ptr + part // GROUP * GROUP, part % GROUP, GROUP)
    if part % GROUP == GROUP - 1:
        publish(words_ptr + parts + part // GROUP, before + total)
    return before + sum_of_words(words_ptr + parts, part // GROUP, GROUP)


# ## 4. The sum
#
# Which part is a program's? Not its number's: programs needn't start in the order of their numbers. If one waited for
# another that can't start before it ends, both would wait forever. So each draws a *ticket* when it starts. Whoever has
# a lower one has started, too, and waits only for lower ones.
#
# Now the part is scanned. It is read a second time, shortly after the first, and still lies in the L2 cache. On an H200
# this was faster than to keep it in registers, of which it takes so many that few programs fit on an SM, and faster
# than two launches, one for the sums of all parts and one for the scan: a row of 2²⁶ numbers in 16 bits doesn't fit
# into the cache.
#
# Short rows are taken several at a time, `BLOCK_M` of them, so that a program has enough to load. If a row is a single
# chunk, the loop's end is known when the kernel is compiled, `ONE`: it is no loop then, and nothing goes through shared
# memory to be there for the next round. With a loop, 65536 rows of 128 took 1.8 times as long on an H200.
@triton.jit
def cumsum_kernel(
    x_ptr, y_ptr, words_ptr,  # (M, N), rows stride_xm apart; (M, N), contiguous; a ticket and words of parts, or None
    M, N, stride_xm, parts, LENGTH,
    REVERSE: tl.constexpr, EXCLUSIVE: tl.constexpr, ONE: tl.constexpr, UNIT: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, VECTOR: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    N, stride_xm = whole_units(N, UNIT), whole_units(stride_xm, UNIT)
    ticket = tl.program_id(0)
    if words_ptr is not None:
        ticket = tl.atomic_add(words_ptr, 1, sem="relaxed").to(tl.int32)
    row, part = ticket // parts, ticket % parts
    rows = (row * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    mask_m = (rows < M)[None, :, None]
    begin = part * LENGTH
    carry, lost = tl.zeros((BLOCK_M,), tl.float32), tl.zeros((BLOCK_M,), tl.float32)
    # In the last launch the second program has the second part, and starts from the sum of the first:
    # `launch=3, pid=1: carry = [36]`.
    if words_ptr is not None:
        row = row.to(tl.int64)
        total = part_sum(x_ptr + row * stride_xm, begin, LENGTH, N, REVERSE, EXCLUSIVE, BLOCK_N, VECTOR)
        carry += sum_before(words_ptr + 1 + row * (parts + parts // GROUP), part, parts, total, GROUP)
    end = BLOCK_N if ONE else tl.minimum(LENGTH, N - begin)
    for done in tl.range(0, end, BLOCK_N, num_stages=3):
        # From the end, `launch=1, pid=0, done=0: columns = [[[7, 8, 9, 10]], [[3, 4, 5, 6]]]`.
        columns = columns_at(begin + done, N, REVERSE, BLOCK_N, VECTOR)
        x = load_chunk(x_ptr + (rows * stride_xm)[None, :, None], mask_m, columns, N, REVERSE, EXCLUSIVE)
        # The first vector, 1, 2, 3, 4, becomes `pid=0, done=0: inside[0, 0] = [1, 3, 6, 10]`. From the end it is 8, 9,
        # 10, 11, and becomes `launch=1, pid=0, done=0: inside[0, 0] = [38, 30, 21, 11]`.
        inside, vectors = sums_inside(x, REVERSE, BLOCK_N // VECTOR, BLOCK_M, STEPS)
        # The vectors add up to `pid=0, done=0: vectors = [[10, 26]]`, and what is before them is
        # `pid=0, done=0: before = [[0, 10]]`.
        _, before = tl.associative_scan((vectors, tl.zeros_like(vectors)), 1, join)
        y = inside + tl.trans((before + lost[:, None]) + carry[:, None])[:, :, None]
        tl.store(y_ptr + (rows * N)[None, :, None] + columns, y, mask=mask_m & (columns >= 0) & (columns < N))
        carry, rounded = carry_on(carry, tl.sum(vectors, axis=1))
        lost += rounded


# ## 5. Sizes
#
# Chunks of 2048 columns for four warps. Short rows make blocks of 1024 elements, for two. A row of eight chunks or more
# is cut if there are 512 or fewer, and then a part has four: for one row of 2²⁶ eight chunks took 10 % longer on an
# H200, sixteen 18 %. These sizes were the fastest there, in bfloat16. They don't depend on the card, and so neither do
# the bits of the result.
FEW_ROWS = 512
PART = 4


@functools.cache
def tiles(M, N, BLOCK_M, BLOCK_N, parts):
    """BLOCK_M, BLOCK_N, the number of parts, the length of each, and the number of warps."""
    BLOCK_N = BLOCK_N or min(triton.next_power_of_2(N), 2048)
    BLOCK_M = BLOCK_M or max(1, 1024 // BLOCK_N)
    if parts is None:
        cut = BLOCK_M == 1 and M <= FEW_ROWS and N >= 2 * PART * BLOCK_N
        parts = cdiv(N, PART * BLOCK_N) if cut else 1
    length = cdiv(cdiv(N, parts), BLOCK_N) * BLOCK_N
    return BLOCK_M, BLOCK_N, cdiv(N, length), length, min(max(BLOCK_M * BLOCK_N // 512, 1), 4)


# ## Launchers
#
# As the lesson's. Backward is forward, the other way round.
@opaque(
    "(Tensor x, int dim, bool reverse, bool exclusive) -> Tensor",
    lambda x, dim=-1, reverse=False, exclusive=False: torch.empty(x.shape, dtype=x.dtype, device=x.device),
)
def cumsum_forward(x, dim=-1, reverse=False, exclusive=False, *, BLOCK_M=None, BLOCK_N=None, parts=None, GROUP=128):
    """The running sum along `dim`. BLOCK_M, BLOCK_N: rows and columns of a block. parts: of a row, about. GROUP: parts
    that are summed up together.

    None stands for what was fastest. Several parts need a BLOCK_M of 1.
    """
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, GROUP=GROUP)
    moved = x.movedim(dim, -1)
    y = torch.empty_like(moved, memory_format=torch.contiguous_format)
    if y.numel() > 0:
        rows = as_rows(moved)
        M, N = rows.shape
        BLOCK_M, BLOCK_N, parts, LENGTH, num_warps = tiles(M, N, BLOCK_M, BLOCK_N, parts)
        VECTOR, words = min(16 // x.element_size(), BLOCK_N), None
        if parts > 1:
            words = torch.zeros(1 + M * (parts + parts // GROUP), dtype=torch.int64, device=x.device)
        launch(
            cumsum_kernel, (cdiv(M, BLOCK_M) * parts,), (rows, y, words), (M, N, rows.stride(0), parts, LENGTH),
            REVERSE=reverse, EXCLUSIVE=exclusive, ONE=N <= BLOCK_N, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, VECTOR=VECTOR,
            UNIT=math.gcd(N, rows.stride(0), VECTOR), GROUP=GROUP, STEPS=VECTOR.bit_length() - 1, num_warps=num_warps,
        )  # fmt: skip
    return y.movedim(-1, dim).contiguous()


def cumsum_backward(dy, dim=-1, reverse=False, exclusive=False, **sizes):
    """The gradient for `x`. dy: upstream gradient, any strides (also 0). The others: as in the forward pass."""
    return cumsum_forward(dy, dim, not reverse, exclusive, **sizes)


@replayed
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

    Source: Merrill and Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back" (2016), for parts that
    publish their sums.
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
    script.main(cumsum, cumsum_reference)
