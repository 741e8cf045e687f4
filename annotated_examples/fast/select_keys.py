r"""
# Selecting keys, fast: a guess that can't do harm

[The lesson](../attention/select_keys.py) reads a row twice, makes a key of every score, both times, and keeps a list
with room for all of them. Here a row is read once, and a score that isn't among the best costs a comparison, its part
of a running sum, and a store that is masked.

A comparison with what? If somebody told us a *bound* that at least 2048 and at most 4096 scores of the row exceed, the
rest would be easy: write these to a short list, in order, and search in that. Nobody does, but we can guess. Of 2048
scores that are read here and there in a row of 65536, let the 96th largest be the bound. About 96/2048 of the row
exceed it, which are 3072 scores.

**Why the result is exact all the same.** At the end it is known how many scores have exceeded the bound. If `k` or more
have, the `k` best, [[tag: IX-keep]], are among them, whatever the guess was worth. If fewer have, the bound was too
high, and the row is read again without one. And when the list is full, it is cut down to its own `k` best. Of all that
was seen so far these are the best, so whatever comes later must exceed the last of them: of equal scores the earlier
one comes first. That is the next bound, and this one isn't a guess. So a sample that misleads costs time, and never a
key.

[[figure: indexer/plateau]]

**What it costs.** Each score is read from memory once, and of 65536 one of 32 a second time, for the sample. The loop
that reads them takes about 23 instructions for a score. On an H200 4096 rows of 65536 scores take
[[bench: select_keys/4096x65536/forward/ms]], half of the speed of a copy, where the lesson takes
[[bench: select_keys/4096x65536/forward/lesson.ms]] and `torch.topk`
[[bench: select_keys/4096x65536/forward/torch.topk.ms]]. For 64 rows it is [[bench: select_keys/64x65536/forward/ms]],
[[bench: select_keys/64x65536/forward/lesson.ms]] and [[bench: select_keys/64x65536/forward/torch.topk.ms]].

**What is left.** For the 4096 rows the loads alone take [[bench: select_keys/ladder/reading/forward_ms]], as long as
memory needs, and with the comparisons [[bench: select_keys/ladder/comparing/forward_ms]]. With the guess and the list
it is [[bench: select_keys/ladder/guess and list/forward_ms]], and with the search in the list
[[bench: select_keys/ladder/a quarter at a time/forward_ms]]. Registers matter: each thread holds 32 scores of the list,
and when it was cut down all at once the whole took [[bench: select_keys/ladder/all at once/forward_ms]]. Two or eight
warps for a row are slower than four, and so is a thread with 64 registers or 128 instead of 80.

It is no longer memory that decides. A row takes about 22,000 instructions of each of its threads, and if every
scheduler issued one in each cycle, that would be two thirds of the time. A search that interpolates, and counts ties
only where not all of them have a place, takes [[bench: select_keys/ladder/interpolating/forward_ms]] with 96 registers.
It isn't in this file: so far it has passed fewer tests. To keep scores and positions in two lists, or to draw a larger
sample, gained nothing.

**Contract.** That of the lesson.
"""

from academy.runtime import checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.launch import cdiv
from academy.runtime.replay import replayed

import torch
import triton
import triton.language as tl

from annotated_examples.attention.select_keys import contract, select_keys_reference
from annotated_examples.common.choosing import kept_of_chunk, key_of, logit_of
from annotated_examples.common.custom_operator import opaque
from annotated_examples.common.windows import bound, window_of

# ## A search in registers
#
# [Keys](../common/choosing.py) are whole numbers with the order of the scores, and a NaN has the largest. This is that
# of −∞, the smallest.
LOWEST_KEY = tl.constexpr(0x007FFFFF)


@triton.jit
def key_or_nan(x):
    return tl.where(x == x, key_of(x), 0xFFFFFFFF)


# A threshold is enclosed between two numbers: `reach` keys, at least as many as are `wanted`, reach `low`, and fewer
# reach `high`. The one in the middle becomes one of them, until nothing lies between, or until `low` is reached by at
# most `most` keys: then it is good enough. If `most` is `wanted`, that is a number that exactly the `wanted` best keys
# reach. Between scores that differ there are many such numbers, and it takes about a dozen steps to hit one.
#
# Also returned is how many of those at `low` have a place: the first of them in the order of the list.
@triton.jit
def threshold_of(key, low, reach, wanted, most):
    low, high = low.to(tl.int64), tl.max(key, axis=0).to(tl.int64) + 1
    beyond = tl.cast(0, tl.int32)
    while (high - low > 1) & (reach > most):
        middle = (low + high) // 2
        count = tl.sum((key >= middle.to(tl.uint32)).to(tl.int32), axis=0)
        enough = count >= wanted
        low, reach = tl.where(enough, middle, low), tl.where(enough, count, reach)
        high, beyond = tl.where(enough, high, middle), tl.where(enough, beyond, count)
    return low.to(tl.uint32), tl.where(reach == wanted, wanted, wanted - beyond)


# What a score must exceed, as a float, from its key. Nothing but NaN exceeds infinity.
@triton.jit
def bound_of(key):
    x = logit_of(key)
    return tl.where(x == x, x, float("inf"))


# ## The guess
#
# The sample are lines of 32 neighbours. Memory comes in sectors of 32 bytes, eight float32 scores, so scores that are
# read one by one would cost eight times as many bytes. The lines lie evenly in the window.
# If it isn't longer than the list, there is nothing to guess: no score is at most NaN, so all of them exceed it.
@triton.jit
def guess(row, first, V, wanted, ROOM: tl.constexpr, SAMPLE: tl.constexpr, LINE: tl.constexpr):
    bound, least = tl.cast(float("nan"), tl.float32), tl.cast(LOWEST_KEY, tl.uint32)
    if V > ROOM:
        offs = tl.arange(0, SAMPLE)
        apart = V // (SAMPLE // LINE)
        x = tl.load(row[0] + row[1] + first + offs // LINE * apart + offs % LINE).to(tl.float32)
        # The example's sample is `pid=0: x = [80, 81, 82, 83, 80, 81, 82, 83]`, in two lines with a distance of
        # `pid=0: apart = 48`. The rank lies in the middle between too few and too many. It needn't be exact: a few
        # steps of the search will do. Of eight it is `pid=0: rank = 2`, so the bound is between 82 and 83,
        # `pid=0: bound = 82.242`.
        rank = tl.maximum((wanted + ROOM) // 2 * SAMPLE // V, 1)
        low, _ = threshold_of(key_or_nan(x), least, tl.cast(SAMPLE, tl.int32), rank, rank + rank // 8)
        bound = bound_of(low)
        least = key_of(bound) + 1
    return bound, least


# ## A tile of the row
#
# A thread loads *strips* of four neighbours, each with one instruction, and a warp 32 of them, a *line*. The compiler
# gives the first lines of a tile to the warps in turn, then the next ones, four to each. Where they lie in the row is
# up to us: a warp's lines are neighbours, too. So its sums need no other warp.
#
# A tile begins where an address is divisible by a strip, up to three columns before the window.
@triton.jit
def columns_of(lanes, LINE: tl.constexpr, WARPS: tl.constexpr):
    # One warp with lines of two strips has them one behind the other: `pid=0: line = [0, 0, 1, 1, 2, 2, 3, 3]`.
    line = lanes // LINE
    return (line % WARPS * 4 + line // WARPS) * LINE + lanes % LINE


@triton.jit
def load_tile(row, column, first, last, WARPS: tl.constexpr, THREADS: tl.constexpr):
    logits_ptr, row_start = row
    TILE: tl.constexpr = 16 * WARPS * THREADS
    offs = columns_of(tl.arange(0, TILE), 4 * THREADS, WARPS)
    x_ptrs = logits_ptr + tl.multiple_of(row_start + column, 4) + offs
    # A tile that lies in the window needs no mask.
    if (column >= first) & (column + TILE <= last):
        x = tl.load(x_ptrs)
    else:
        x = tl.load(x_ptrs, mask=(column + offs >= first) & (column + offs < last), other=0.0)
    return x.to(tl.float32)


# The first, the second, the third, the fourth of each strip.
@triton.jit
def neighbours(x, TILE: tl.constexpr):
    even, odd = tl.split(tl.reshape(x, (TILE // 4, 2, 2)))
    x0, x2 = tl.split(even)
    x1, x3 = tl.split(odd)
    return x0, x1, x2, x3


# Whether the scores at `column` are in the window and exceed the bound.
@triton.jit
def exceeding(x, column, V, bound):
    return ((column.to(tl.uint32, bitcast=True) < V.to(tl.uint32, bitcast=True)) & ~(x <= bound)).to(tl.int32)


@triton.jit
def append(list_ptr, place, x, column, exceeds):
    both = (x.to(tl.int32, bitcast=True).to(tl.int64) << 32) | column.to(tl.uint32, bitcast=True).to(tl.int64)
    tl.store(list_ptr + place, both, mask=exceeds == 1)
    return place + exceeds


@triton.jit
def score_of(both):
    return (both >> 32).to(tl.int32).to(tl.float32, bitcast=True)


# ## The walk
#
# From column `at` on, all scores that exceed the bound go to the list, until a tile is too much for it. An element of
# the list has a score's bits in its upper half, and in the lower one how far behind the window's first it stands.
# Returned are how many there are now, and the column before which all have been seen.
@triton.jit
def walk(
    row, list_ptr,  # (pointer, offset) of (S,); (ROOM + TILE,) in int64
    at, first, last, n, bound, ROOM: tl.constexpr, WARPS: tl.constexpr, THREADS: tl.constexpr,
):  # fmt: skip
    TILE: tl.constexpr = 16 * WARPS * THREADS
    V, added, line = last - first, tl.cast(0, tl.int32), tl.arange(0, 4)[:, None, None]
    strips = columns_of(tl.arange(0, TILE // 4), THREADS, WARPS) * 4
    x_next = load_tile(row, at, first, last, WARPS, THREADS)
    while (at < last) & (n <= ROOM):
        # The next tile is on its way while this one is looked at. The last neighbours in the example's first two strips
        # are `pid=0: x3[:2] = [83, 46]`.
        x0, x1, x2, x3 = neighbours(x_next, TILE)
        x_next = load_tile(row, at + TILE, first, last, WARPS, THREADS)
        # In the example's first tile one score exceeds the bound, the last one of a strip: `pid=0: one3[:2] = [1, 0]`.
        column = at - first + strips
        one0, one1 = exceeding(x0, column, V, bound), exceeding(x1, column + 1, V, bound)
        one2, one3 = exceeding(x2, column + 2, V, bound), exceeding(x3, column + 3, V, bound)
        # A running sum tells where each is written. Of 128 scores at most 128 exceed, a number of eight bits: so a
        # thread's four strips are counted in one word, and the threads of a warp sum them up together. With the counts
        # of the example's threads, `pid=0: packed = [[1, 0]]`, the sums of the first line are `pid=0: running[0, 0] =
        # [1, 1]`.
        count = tl.reshape(one0 + one1 + one2 + one3, (4, WARPS, THREADS))
        packed = tl.sum(count << line * 8, axis=0)
        running = (tl.cumsum(packed, axis=1)[None, :, :] >> line * 8) & 255
        # Before a line lie the earlier ones of its warp, and all of the warps before. This one has `pid=0: of_warp =
        # [1]`.
        lines = tl.sum(packed, axis=1)
        of_line0, of_line1, of_line2 = lines & 255, (lines >> 8) & 255, (lines >> 16) & 255
        of_warp = of_line0 + of_line1 + of_line2 + ((lines >> 24) & 255)
        place = (n + tl.cumsum(of_warp, axis=0) - of_warp)[None, :, None] + running - count
        place += tl.where(line > 0, of_line0[None, :, None], 0) + tl.where(line > 1, of_line1[None, :, None], 0)
        place = tl.reshape(place + tl.where(line > 2, of_line2[None, :, None], 0), (TILE // 4,))
        place = append(list_ptr, place, x0, column, one0)
        place = append(list_ptr, place, x1, column + 1, one1)
        place = append(list_ptr, place, x2, column + 2, one2)
        append(list_ptr, place, x3, column + 3, one3)
        added = tl.sum(of_warp, axis=0)
        n += added
        at = tl.where(n <= ROOM, at + TILE, at)
    # A tile that was too much doesn't count.
    return tl.where(n <= ROOM, n, n - added), at


# ## What is best of a list
#
# A list fits into registers. Walks and searches take turns, until the whole window has been seen. Then the columns of
# the best are the result, in order.
@triton.jit
def select_row(
    row, list_ptr, keys_ptr,  # as above; (k,) in int32
    begin, at, first, last, n, bound, least, wanted, k,
    ROOM: tl.constexpr, WARPS: tl.constexpr, THREADS: tl.constexpr,
):  # fmt: skip
    CHUNK: tl.constexpr = ROOM // 4
    more, lane = True, tl.arange(0, ROOM)
    while more:
        # The example's first walk comes to the end, `pid=0: at = 96`, with `pid=0: n = 2` scores, and three are wanted.
        # So the second one has no bound. After two tiles its list is full.
        n, at = walk(row, list_ptr, at, first, last, n, bound, ROOM, WARPS, THREADS)
        more = (at < last) | (n < wanted)
        # What one thread has stored another one loads, so threads wait for each other.
        tl.debug_barrier()
        if n < wanted:
            # Too high a guess: once more, and everything exceeds NaN.
            n, at, bound = tl.cast(0, tl.int32), begin, tl.cast(float("nan"), tl.float32)
            least = tl.cast(LOWEST_KEY, tl.uint32)
        else:
            key = key_or_nan(score_of(tl.load(list_ptr + lane, mask=lane < n, other=0)))
            key = tl.where(lane < n, key, 0)
            # Of 64 scores two have a place for certain, 83 and 83, and of those at 82 it is `pid=0: left = 1`, the
            # first: three in all. Nothing in the third tile exceeds 82.
            least, left = threshold_of(key, least, n, wanted, wanted)
            # The list is cut down in place, a quarter of its room at a time: what is kept moves forward only. (All at
            # once, keys, places and elements would take more registers than a thread may have.)
            kept, seen = tl.cast(0, tl.int32), tl.cast(0, tl.int32)
            for done in range(0, n, CHUNK):
                some = done + tl.arange(0, CHUNK)
                both = tl.load(list_ptr + some, mask=some < n, other=0)
                keys = tl.where(some < n, key_or_nan(score_of(both)), 0)
                keep, seen = kept_of_chunk(keys, least, left, seen)
                place = kept + tl.cumsum(keep.to(tl.int32), axis=0) - 1
                tl.debug_barrier()
                if more:
                    tl.store(list_ptr + place, both, mask=keep)
                else:
                    tl.store(keys_ptr + place, first + both.to(tl.int32), mask=keep)
                kept += tl.sum(keep.to(tl.int32), axis=0)
            # (After `wanted` NaNs all further ones come to the list, too, and the next search drops them.)
            n, bound = wanted, bound_of(least)
        tl.debug_barrier()
    tl.store(keys_ptr + lane, tl.full((ROOM,), -1, tl.int32), mask=(lane >= wanted) & (lane < k))


# Where a row begins and its window; and the column from which tiles go, at or before the window's first.
@triton.jit
def row_of(logits, start, end, row, M, S):
    logits_ptr, stride_m = logits
    first, last, _possible = window_of(start, end, row, M, S)
    return (logits_ptr, row.to(tl.int64) * stride_m), first, tl.maximum(first, last)


@triton.jit
def aligned(row, first):
    return first - ((row[1] + first) % 4).to(tl.int32)


# ## Many rows: a program each
@triton.jit
def select_keys_kernel(
    logits, start, end,  # (pointer, stride) of (M, S); of (M,), or None
    list_ptr, keys_ptr,  # (M, ROOM + TILE) in int64; (M, k) in int32
    M, S, k, ROOM: tl.constexpr, WARPS: tl.constexpr, THREADS: tl.constexpr,
    SAMPLE: tl.constexpr, LINE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    x, first, last = row_of(logits, start, end, row, M, S)
    wanted, begin = tl.minimum(k, last - first), aligned(x, first)
    bound, least = guess(x, first, last - first, wanted, ROOM, SAMPLE, LINE)
    list_ptr, keys_ptr = list_ptr + row.to(tl.int64) * (ROOM + 16 * WARPS * THREADS), keys_ptr + row.to(tl.int64) * k
    nothing = tl.cast(0, tl.int32)
    select_row(x, list_ptr, keys_ptr, begin, begin, first, last, nothing, bound, least, wanted, k, ROOM, WARPS, THREADS)


# ## Few rows: a program for each part of a row
#
# When a server decodes, there are few rows, and most SMs would have nothing to do. So a row is cut. The programs of a
# row all make the same guess, for they take the same sample. Each has a list of its own, with room for its whole part.
@triton.jit
def parts_kernel(
    logits, start, end,  # as above
    lists_ptr, counts_ptr,  # (M, parts, PART) in int64; (M, parts) in int32
    M, S, k, PART: tl.constexpr, ROOM: tl.constexpr, WARPS: tl.constexpr, THREADS: tl.constexpr,
    SAMPLE: tl.constexpr, LINE: tl.constexpr,
):  # fmt: skip
    part, row = tl.program_id(0), tl.program_id(1)
    x, first, last = row_of(logits, start, end, row, M, S)
    bound, _ = guess(x, first, last - first, tl.minimum(k, last - first), ROOM, SAMPLE, LINE)
    first, last = tl.maximum(first, part * PART), tl.minimum(last, (part + 1) * PART)
    which = row.to(tl.int64) * tl.num_programs(0) + part
    nothing = tl.cast(0, tl.int32)
    n, _ = walk(x, lists_ptr + which * PART, aligned(x, first), first, last, nothing, bound, PART, WARPS, THREADS)
    tl.store(counts_ptr + which, n)


# A second launch has a program for each row. It puts the lists one behind the other, if that is no longer than one list
# may be. If it is, or if the guess was too high, this program walks through the row alone.
@triton.jit
def merge_kernel(
    logits, start, end, lists_ptr, counts_ptr, list_ptr, keys_ptr,  # as above
    M, S, k, parts, PARTS: tl.constexpr,  # a power of two, at least `parts`
    PART: tl.constexpr, ROOM: tl.constexpr, WARPS: tl.constexpr, THREADS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    x, first, last = row_of(logits, start, end, row, M, S)
    wanted, begin = tl.minimum(k, last - first), aligned(x, first)
    list_ptr, keys_ptr = list_ptr + row.to(tl.int64) * (ROOM + 16 * WARPS * THREADS), keys_ptr + row.to(tl.int64) * k
    part = tl.arange(0, PARTS)
    which = row.to(tl.int64) * parts + part
    counts = tl.load(counts_ptr + which, mask=part < parts, other=0)
    n, at, place = tl.sum(counts, axis=0), last, tl.cumsum(counts, axis=0) - counts
    if n > ROOM:
        n, at = tl.cast(0, tl.int32), begin
    else:
        slot, behind = tl.arange(0, ROOM // PARTS), tl.maximum(part * PART - first, 0).to(tl.int64)
        for done in range(0, tl.max(counts, axis=0), ROOM // PARTS):
            offs = (done + slot)[None, :]
            mask = offs < counts[:, None]
            both = tl.load(lists_ptr + (which * PART)[:, None] + offs, mask=mask, other=0)
            tl.store(list_ptr + place[:, None] + offs, both + behind[:, None], mask=mask)
    nan, least = tl.cast(float("nan"), tl.float32), tl.cast(LOWEST_KEY, tl.uint32)
    select_row(x, list_ptr, keys_ptr, begin, at, first, last, n, nan, least, wanted, k, ROOM, WARPS, THREADS)


# ## The launcher
#
# Registers are limited, so that six programs share an SM: while one waits for the others of its warps, or for memory,
# another one works.
FEW_ROWS, LONG_ROW, PROGRAMS, MOST_PARTS, REGISTERS = 256, 2**14, 512, 128, 80


def part_of(M, S):
    """How many columns a program has, a power of two, or None for all."""
    if M > FEW_ROWS or S < LONG_ROW:
        return None
    return max(2048, triton.next_power_of_2(cdiv(M * S, PROGRAMS)), triton.next_power_of_2(cdiv(S, MOST_PARTS)))


@opaque(
    "(Tensor logits, int k, Tensor? start, Tensor? end) -> Tensor",
    lambda logits, k, start, end: logits.new_empty((len(logits), k), dtype=torch.int32),
)
def select_keys_forward(
    logits, k, start, end, *, WARPS=None, THREADS=32, SAMPLE=None, ROOM=None, PART=None, registers=REGISTERS
):  # fmt: skip
    """(M, k) int32. WARPS: of a program. THREADS: of a warp, each with 16 scores of a tile. SAMPLE: scores that are
    read for a guess. ROOM: of a list. PART: columns of a program; if neither WARPS nor PART is given, few rows are cut.
    """
    checks.power_of_two(WARPS=WARPS, THREADS=THREADS, SAMPLE=SAMPLE, ROOM=ROOM, PART=PART)
    M, S = logits.shape
    if WARPS is None and PART is None:
        PART = part_of(M, S)
    # A row of parts has but one program that searches: twice as many warps, and room for a guess that is twice as low.
    WARPS, more = WARPS or 4, 2 if PART else 1
    SAMPLE = SAMPLE or min(max(triton.next_power_of_2(S) // 32 * more, 2048), 16384)
    parts, TILE = cdiv(S, PART or max(S, 1)), 16 * WARPS * THREADS
    PARTS, least = triton.next_power_of_2(parts), max(k + TILE * more, SAMPLE, parts)
    ROOM = ROOM or triton.next_power_of_2(least)
    if ROOM < least:
        raise ValueError(f"ROOM must be at least {least}, got {ROOM}")
    keys = logits.new_empty((M, k), dtype=torch.int32)
    if not M or not S:
        return keys.fill_(-1)
    rows = logits if logits.stride(1) == 1 else logits.contiguous()
    sample = dict(SAMPLE=SAMPLE, LINE=min(32, SAMPLE // 2))
    tiles = dict(ROOM=ROOM, THREADS=THREADS, maxnreg=registers)
    given, numbers = (bound(rows), bound(start), bound(end)), (M, S, k)
    room = logits.new_empty((M, ROOM + TILE * more), dtype=torch.int64)
    if PART is None:
        select_keys_kernel[(M,)](*given, room, keys, *numbers, WARPS=WARPS, num_warps=WARPS, **sample, **tiles)
    else:
        lists = logits.new_empty((M, parts, PART), dtype=torch.int64)
        counts = logits.new_empty((M, parts), dtype=torch.int32)
        warps = dict(WARPS=WARPS, num_warps=WARPS)
        parts_kernel[(parts, M)](*given, lists, counts, *numbers, PART=PART, **warps, **sample, **tiles)
        warps = dict(WARPS=2 * WARPS, num_warps=2 * WARPS)
        merge_kernel[(M,)](*given, lists, counts, room, keys, *numbers, parts, PARTS=PARTS, PART=PART, **warps, **tiles)
    return keys


@replayed
def select_keys(logits, k, *, start=None, end=None):
    """The same as `annotated_examples.attention.select_keys.select_keys`, but faster. Forward only.

    Args: as `annotated_examples.attention.select_keys.select_keys`.

    Returns:
        As the lesson's.

    Raises:
        TypeError, ValueError: as the lesson's.

    Source: as the lesson's.
    """
    contract(logits, k, start, end)
    return select_keys_forward(logits, k, start, end)


# ## A run small enough to watch
#
# The three best of a row of 96 scores, in tiles of 32. The largest stand where the sample looks, so the guess is too
# high.
def EXAMPLE():
    at = torch.arange(96, device=device.DEVICE)
    logits = torch.where(at % 48 < 4, 80 + at % 48, at * 37 % 71).float()[None]
    select_keys_forward(logits, 3, None, None, WARPS=1, THREADS=2, SAMPLE=8)


if __name__ == "__main__":
    script.main(select_keys, select_keys_reference)
