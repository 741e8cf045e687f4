r"""
# Choosing a token from few rows, fast

The functions of [the lesson](../sampling/sample.py), with its references, its contract and the same tokens for the same
seed. (Top-p adds up probabilities in another order. Where `p` of them is reached within a rounding error, it may keep a
token more or less.) What is slow about it? One program has a row. It reads the row several times, one block after the
other, and each time it waits. With filters, and rows for all SMs, that is the fastest way. For one row, 131 of 132
SMs have nothing to do.

Here a row is shared by many programs, one for each block of 2048 logits. They have to agree on the threshold,
[[tag: SA-k]] and [[tag: SA-p]], which is found digit by digit. So each digit is a launch of its own: a program weighs
its block against the 16 values that the next digit may have, and stores 16 numbers. The next launch begins by adding up
those of all programs. Each of them does that by itself, in the same order, so all come to the same digit. Nobody waits
for another program, and the same call gives the same bits.

[[figure: choosing/digits]]

What the lesson does for a row alone isn't needed any more: there is no list. A block is read from the L2 cache in each
round, by an SM that has nothing else to read.

With top-p alone one row of 151936 logits takes [[bench: sample/ladder/over programs/p_ms]] on an H200, the lesson
[[bench: sample/ladder/lesson/p_ms]], PyTorch's sort [[bench: sample/ladder/PyTorch/p_ms]], and compiled by
`torch.compile` [[bench: sample/ladder/torch.compile/p_ms]]. With top-k, too, it is
[[bench: sample/ladder/over programs/both_ms]], [[bench: sample/ladder/lesson/both_ms]],
[[bench: sample/ladder/PyTorch/both_ms]] and [[bench: sample/ladder/torch.compile/both_ms]]; without filters
[[bench: sample/ladder/over programs/all_ms]], [[bench: sample/ladder/lesson/all_ms]],
[[bench: sample/ladder/PyTorch/all_ms]] and [[bench: sample/ladder/torch.compile/all_ms]].

**What it costs.** A row is read from memory once, if the rows that are drawn from together fit into the L2 cache; else
each launch reads them again. A draw is 3 launches without filters, 11 with top-k or top-p, 19 with both. Each takes
four or five microseconds. The numbers in between are 64 bytes for each block.

**Where it falls behind.** A draw with both filters from one row of 151936 logits keeps the GPU busy for
[[bench: sample/ladder/over programs/both_ms]], but a host that is slow, or busy otherwise, may need longer for its 19
launches. More than two rows of that length with both filters, and more than 16 with one, go the lesson's way and gain
nothing.

**Contract.** The lesson's. Short rows, and with filters more than a few, go the lesson's way.
"""

from academy.runtime import checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.launch import cdiv, launch
from academy.runtime.replay import replayed

import torch
import triton
import triton.language as tl

from annotated_examples.common.choosing import load_chunk, logit_of, shifted
from annotated_examples.common.custom_operator import opaque
from annotated_examples.common.rows import as_rows
from annotated_examples.common.seeds import seeded
from annotated_examples.sampling import sample as lesson
from annotated_examples.sampling.sample import contract, draw_contract, noise_of_tokens, of_all_rows, sample_reference


# ## The largest of each block
#
# The first launch: a program stores the largest logit of its block, or NaN if there is one. All later launches read
# these numbers to find the row's largest.
@triton.jit
def peaks_kernel(
    x_ptr, peaks_ptr,  # (M, V); (M, blocks)
    V, stride_xm, BLOCK_V: tl.constexpr,
):  # fmt: skip
    row, block = tl.program_id(1).to(tl.int64), tl.program_id(0)
    offs_v = block * BLOCK_V + tl.arange(0, BLOCK_V)
    x = tl.load(x_ptr + row * stride_xm + offs_v, mask=offs_v < V, other=float("-inf")).to(tl.float32)
    nan = tl.max((x != x).to(tl.int32), axis=0) > 0
    # The example's first block has −1, 1.5, 2 and 1.5: `launch=0, pid=0: peak = 2`.
    peak = tl.max(tl.where(x == x, x, float("-inf")), axis=0)
    tl.store(peaks_ptr + row * tl.num_programs(0) + block, tl.where(nan, float("nan"), peak))


@triton.jit
def peak_of_row(peaks_ptr, row, blocks, BLOCK_P: tl.constexpr):
    offs_p = tl.arange(0, BLOCK_P)
    # Two blocks of the example, `launch=1, pid=0: peaks = [2, 1]`.
    peaks = tl.load(peaks_ptr + row * blocks + offs_p, mask=offs_p < blocks, other=float("-inf"))
    nan = tl.max((peaks != peaks).to(tl.int32), axis=0) > 0
    return tl.max(tl.where(peaks == peaks, peaks, float("-inf")), axis=0), nan


# ## The search, between two launches
#
# What a search knows is the lesson's: the digits of the `threshold` so far, the weight that lies `beyond` it, the
# `target`, and what top-k has left, keys `above` a threshold and `left` of those at it. These five numbers go from
# launch to launch, floats and keys by their bits.
@triton.jit
def load_state(state_ptr, row):
    at = state_ptr + row * 5
    threshold, above = tl.load(at).to(tl.uint32, bitcast=True), tl.load(at + 3).to(tl.uint32, bitcast=True)
    beyond, target = tl.load(at + 1).to(tl.float32, bitcast=True), tl.load(at + 2).to(tl.float32, bitcast=True)
    return threshold, beyond, target, above, tl.load(at + 4)


@triton.jit
def store_state(state_ptr, row, state):
    threshold, beyond, target, above, left = state
    at = state_ptr + row * 5
    tl.store(at, threshold.to(tl.int32, bitcast=True))
    tl.store(at + 1, beyond.to(tl.int32, bitcast=True))
    tl.store(at + 2, target.to(tl.int32, bitcast=True))
    tl.store(at + 3, above.to(tl.int32, bitcast=True))
    tl.store(at + 4, left)


# How a round ends. The weights of all blocks are added up, and the digit is the number of its values that reach the
# target, less one. Of top-p's first round the value 0, which always counts as reached, has another weight: that of
# everything that top-k has left. `p` of it is the target.
@triton.jit
def settled(
    state, parts_ptr, row, blocks, shift, p, row_max, temperature,  # parts: (M, blocks, values of a digit)
    ROUND: tl.constexpr, BITS: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    threshold, beyond, target, above, left = state
    values, offs_p = tl.arange(0, 1 << BITS), tl.arange(0, BLOCK_P)
    parts_ptrs = parts_ptr + ((row * blocks + offs_p)[:, None] << BITS) + values[None, :]
    weight = tl.sum(tl.load(parts_ptrs, mask=(offs_p < blocks)[:, None], other=0.0), axis=0)
    if ROUND == "first of top-p":
        # Top-k has left 2 and two times 1.5. Together they weigh `launch=8, pid=0: whole = 2.213`, and 0.8 of that is
        # `launch=8, pid=0: target = 1.77`.
        tied = left * tl.exp(shifted(logit_of(above), row_max, temperature))
        whole = tl.sum(tl.where(values == 0, weight, 0.0), axis=0) + tl.where(left > 0, tied, 0.0)
        target = tl.cast(p, tl.float32) * whole
    candidates = threshold + (values.to(tl.uint32) << tl.cast(shift, tl.uint32))
    reached = (weight >= target) | (candidates <= above)
    beyond = tl.maximum(beyond, tl.max(tl.where(reached, 0.0, weight), axis=0))
    # Of the three largest the third is 1.5. Its key is `BFC00000`, which begins with `launch=0, pid=0: digit = 11`. One
    # logit has a larger first digit: `launch=0, pid=0: beyond = 1`.
    digit = tl.sum(reached.to(tl.int32), axis=0) - 1
    return threshold + (digit.to(tl.uint32) << tl.cast(shift, tl.uint32)), beyond, target, above, left


# What a launch begins with. `BEFORE` names the round before it: "" if there was none, "top-k", "first of top-p" or
# "top-p". With `SWITCH` a search for `p` begins where one for `k` has ended. It has counted the logits `beyond` its
# threshold, and the rest of the `k` places is left for those at it, [[tag: SA-tie]].
@triton.jit
def state_of(
    state_ptr, parts_ptr, k_ptr, row, V, blocks, stride_k, shift, p, row_max, temperature,
    BEFORE: tl.constexpr, SWITCH: tl.constexpr, BITS: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    if BEFORE == "":
        nothing, target = tl.cast(0, tl.uint32), tl.cast(0.0, tl.float32)
        if k_ptr is not None:
            target = tl.minimum(tl.maximum(tl.load(k_ptr + row * stride_k), 1), V).to(tl.float32)
        state = nothing, tl.cast(0.0, tl.float32), target, nothing, tl.cast(0, tl.int32)
    else:
        state = load_state(state_ptr, row)
        state = settled(state, parts_ptr, row, blocks, shift, p, row_max, temperature, BEFORE, BITS, BLOCK_P)
        if SWITCH:
            # Above 1.5, whose key is 3217031168, is one logit, and two places are left for those at it:
            # `launch=8, pid=0: state = (0, 0, 3, 3217031168, 2)`.
            threshold, beyond, target, above, left = state
            state = above, tl.cast(0.0, tl.float32), target, threshold, (target - beyond).to(tl.int32)
    return state


# ## A round
#
# A block's weight for each value of the next digit: logits are counted, or their $e^z$ is added up. The last round also
# counts, block by block, the logits that *equal* each candidate. One of the candidates becomes the threshold, and then
# each program knows how many of those at the threshold lie before its block.
@triton.jit
def round_kernel(
    x_ptr, k_ptr, peaks_ptr,  # (M, V); (M,) or None; (M, blocks)
    states, parts, equal_ptr,  # of the round before and of this one: (M, 5), (M, blocks, values of a digit); as parts
    V, p, temperature, stride_xm, stride_k, shift_before, shift,
    BEFORE: tl.constexpr, SWITCH: tl.constexpr, ROUND: tl.constexpr, LAST: tl.constexpr,
    BITS: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    row, block, blocks = tl.program_id(1).to(tl.int64), tl.program_id(0), tl.num_programs(0)
    temperature = tl.cast(temperature, tl.float32)
    row_max, _ = peak_of_row(peaks_ptr, row, blocks, BLOCK_P)
    _, x, key = load_chunk(x_ptr + row * stride_xm, None, block * BLOCK_V, V, BLOCK_V)
    state = state_of(
        states[0], parts[0], k_ptr, row, V, blocks, stride_k, shift_before, p, row_max, temperature, BEFORE, SWITCH,
        BITS, BLOCK_P,
    )  # fmt: skip
    if block == 0:
        store_state(states[1], row, state)
    threshold, _, _, above, _ = state
    values = tl.arange(0, 1 << BITS)
    candidates = threshold + (values.to(tl.uint32) << tl.cast(shift, tl.uint32))
    weight = tl.full((BLOCK_V,), 1.0, tl.float32)
    if ROUND != "top-k":
        weight = tl.exp(shifted(x, row_max, temperature))
    counts = key[None, :] >= candidates[:, None]
    if ROUND == "first of top-p":
        counts = tl.where((values == 0)[:, None], (key > above)[None, :], counts)
    # Three logits of the first block have a first digit of 11 or more, one has 12: `launch=0, pid=0: part[10:14] =
    # [3, 3, 1, 0]`.
    part = tl.sum(tl.where(counts, weight[None, :], 0.0), axis=1)
    at = ((row * blocks + block) << BITS) + values
    tl.store(parts[1] + at, part)
    if LAST:
        tl.store(equal_ptr + at, tl.sum((key[None, :] == candidates[:, None]).to(tl.int32), axis=1))


# ## What is kept of a block
#
# After the last round. Of the logits at the threshold the first `left` are kept: those of earlier blocks come first.
@triton.jit
def kept_of_block(
    key, state_ptr, parts_ptr, equal_ptr, k_ptr, row, block, V, blocks, stride_k, p, row_max, temperature,
    BEFORE: tl.constexpr, BITS: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    keep = key > 0
    if BEFORE != "":
        threshold, beyond, target, above, left = state_of(
            state_ptr, parts_ptr, k_ptr, row, V, blocks, stride_k, tl.cast(0, tl.int32), p, row_max, temperature,
            BEFORE, False, BITS, BLOCK_P,
        )  # fmt: skip
        if BEFORE == "top-k":
            left = (target - beyond).to(tl.int32)
        else:
            each = tl.exp(shifted(logit_of(threshold), row_max, temperature))
            needed = tl.maximum(tl.ceil((target - beyond) / each).to(tl.int32), 1)
            left = tl.where(threshold > above, needed, tl.minimum(needed, left))
        offs_p, digit = tl.arange(0, BLOCK_P), (threshold & ((1 << BITS) - 1)).to(tl.int32)
        earlier = tl.load(equal_ptr + ((row * blocks + offs_p) << BITS) + digit, mask=offs_p < block, other=0)
        tie = (key == threshold).to(tl.int32)
        keep = (key > threshold) | ((tie == 1) & (tl.sum(earlier, axis=0) + tl.cumsum(tie, axis=0) <= left))
    return keep


@triton.jit
def filter_kernel(
    x_ptr, y_ptr, k_ptr, peaks_ptr, state_ptr, parts_ptr, equal_ptr,  # as above; y: (M, V), contiguous
    V, p, stride_xm, stride_k, BEFORE: tl.constexpr, BITS: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    row, block, blocks = tl.program_id(1).to(tl.int64), tl.program_id(0), tl.num_programs(0)
    row_max, nan = peak_of_row(peaks_ptr, row, blocks, BLOCK_P)
    offs_v, x, key = load_chunk(x_ptr + row * stride_xm, None, block * BLOCK_V, V, BLOCK_V)
    keep = kept_of_block(
        key, state_ptr, parts_ptr, equal_ptr, k_ptr, row, block, V, blocks, stride_k, p, row_max, 1.0, BEFORE, BITS,
        BLOCK_P,
    )  # fmt: skip
    # The likeliest with 0.6 of all: `launch=0, pid=0: y = [-inf, 1.5, 2, 1.5]`.
    y = tl.where(nan, float("nan"), tl.where(keep, x, float("-inf")))
    tl.store(y_ptr + row * V + offs_v, y, mask=offs_v < V)


# ## The draw
#
# The race of the lesson, with the same noise. Each block has a winner, and a last small launch has the winner of those.
@triton.jit
def draw_kernel(
    x_ptr, k_ptr, seed_ptr, peaks_ptr, state_ptr, parts_ptr, equal_ptr, best_ptr, place_ptr,  # the last: (M, blocks)
    V, p, temperature, stride_xm, stride_k,
    BEFORE: tl.constexpr, BITS: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    row, block, blocks = tl.program_id(1).to(tl.int64), tl.program_id(0), tl.num_programs(0)
    seed, temperature = tl.load(seed_ptr), tl.cast(temperature, tl.float32)
    row_max, _ = peak_of_row(peaks_ptr, row, blocks, BLOCK_P)
    offs_v, x, key = load_chunk(x_ptr + row * stride_xm, None, block * BLOCK_V, V, BLOCK_V)
    keep = kept_of_block(
        key, state_ptr, parts_ptr, equal_ptr, k_ptr, row, block, V, blocks, stride_k, p, row_max, temperature, BEFORE,
        BITS, BLOCK_P,
    )  # fmt: skip
    # Of the first block all but −1 are in the race: `launch=1, pid=0: keep = [0, 1, 1, 1]`.
    score = shifted(x, row_max, temperature) + noise_of_tokens(seed, row, offs_v, V)
    score = tl.where(keep, score, float("-inf"))
    best = tl.max(score, axis=0)
    tl.store(best_ptr + row * blocks + block, best)
    tl.store(place_ptr + row * blocks + block, tl.min(tl.where(score == best, offs_v, V), axis=0))


@triton.jit
def pick_kernel(
    peaks_ptr, best_ptr, place_ptr, token_ptr,  # (M, blocks); (M,) in int64
    V, blocks, BLOCK_P: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    offs_p = tl.arange(0, BLOCK_P)
    row_max, nan = peak_of_row(peaks_ptr, row, blocks, BLOCK_P)
    best = tl.load(best_ptr + row * blocks + offs_p, mask=offs_p < blocks, other=float("-inf"))
    place = tl.load(place_ptr + row * blocks + offs_p, mask=offs_p < blocks, other=V)
    # Without filters the first block's winner has `launch=0, pid=0: best[0] = 2.11`: it is the token,
    # `launch=0, pid=0: token = 2`.
    token = tl.min(tl.where(best == tl.max(best, axis=0), place, V), axis=0)
    token = tl.where(nan | (row_max == float("-inf")), -1, token)
    tl.store(token_ptr + row, token)


# ## The launchers
#
# The rounds of both searches, top-k's first. State and parts have two places each, which take turns: while some
# programs of a launch still read those of the round before, others already store theirs.
def searched(rows, places, stride_k, top_p, temperature, BLOCK_V, BITS):
    """The largest of each block, what the last round leaves, and its name; and how launches are cut."""
    (M, V), known = rows.shape, dict(BITS=BITS, BLOCK_V=BLOCK_V, num_warps=max(1, min(BLOCK_V // 256, 8)))
    blocks = cdiv(V, BLOCK_V)
    grid, known["BLOCK_P"] = (blocks, M), triton.next_power_of_2(blocks)
    peaks = torch.empty((M, blocks), dtype=torch.float32, device=rows.device)
    launch(peaks_kernel, grid, (rows, peaks), (V, rows.stride(0)), BLOCK_V=BLOCK_V, num_warps=known["num_warps"])
    state, parts, equal = (None, None), (None, None), None
    if places is not None or top_p is not None:
        state = torch.empty((2, M, 5), dtype=torch.int32, device=rows.device).unbind()
        parts = torch.empty((2, M, blocks, 1 << BITS), dtype=torch.float32, device=rows.device).unbind()
        equal = torch.empty((M, blocks, 1 << BITS), dtype=torch.int32, device=rows.device)
    before, first = "", 32 - BITS
    for search in ["top-k"] * (places is not None) + ["top-p"] * (top_p is not None):
        for shift in range(first, -1, -BITS):
            name = "first of top-p" if search == "top-p" and shift == first else search
            launch(
                round_kernel, grid, (rows, places, peaks, state, parts, equal),
                (V, top_p or 1.0, temperature, rows.stride(0), stride_k, (shift + BITS) % 32, shift),
                BEFORE=before, SWITCH=before == "top-k" and search == "top-p", ROUND=name, LAST=shift == 0, **known,
            )  # fmt: skip
            before, state, parts = name, state[::-1], parts[::-1]
    return (peaks, state[0], parts[0], equal), before, grid, known


# When does that pay? For long rows: a launch costs the host some microseconds, and a program reads a short row in the
# time of a few launches. And for few rows. A single search is shared by up to 16 rows, two by up to two: with top-k the
# lesson's list is short. Without filters there are only three launches, so any number of rows is shared.
#
# Rows that aren't shared have a program each: that is the lesson's kernel. If they aren't longer than 32768, smaller
# blocks suit them. With top-k and top-p 512 rows of 32000 take [[bench: sample/ladder/blocks of 1024/many_ms]], in the
# lesson's blocks of 4096 [[bench: sample/ladder/lesson/many_ms]], and with `torch.topk`
# [[bench: sample/ladder/PyTorch/many_ms]].
BLOCK, LONG_ROW, FEW_ROWS = 2048, 16384, 16


def shared(rows, top_k, top_p, BLOCK_V, BITS):
    """How to cut rows into blocks: `(BLOCK_V, BITS)`, or None if each has a program. Sizes that are passed are used.

    top_k, top_p: whether they are given.
    """
    checks.power_of_two(BLOCK_V=BLOCK_V, BITS=BITS)
    few = 2 if top_k and top_p else FEW_ROWS if top_k or top_p else checks.MOST_PROGRAMS  # of the grid's second axis
    if BLOCK_V is None and (len(rows) > few or rows.shape[1] < LONG_ROW):
        return None
    return BLOCK_V or BLOCK, BITS or 4


def block_of_a_program(rows):
    """The lesson's BLOCK_V for rows that aren't shared."""
    return 1024 if 1024 < rows.shape[1] <= 2**15 else None


@opaque(
    "(Tensor logits, Tensor? places, int stride_k, float? top_p) -> Tensor",
    lambda logits, places, stride_k, top_p: torch.empty(logits.shape, dtype=logits.dtype, device=logits.device),
)
def filter_forward(logits, places, stride_k, top_p, *, BLOCK_V=None, BITS=None):
    """`logits` with −∞ outside of the set. BITS: of a key that are found in a round, a power of two up to 8."""
    if logits.numel() == 0:
        return torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
    rows = as_rows(logits)
    blocks = shared(rows, places is not None, top_p is not None, BLOCK_V, BITS)
    if blocks is None:
        return lesson.filter_forward(logits, places, stride_k, top_p, BLOCK_V=block_of_a_program(rows))
    y = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
    (peaks, *left), before, grid, known = searched(rows, places, stride_k, top_p, 1.0, *blocks)
    launch(
        filter_kernel, grid, (rows, y, places, peaks, *left),
        (rows.shape[1], top_p or 1.0, rows.stride(0), stride_k), BEFORE=before, **known,
    )  # fmt: skip
    return y


@opaque(
    "(Tensor logits, Tensor seed, float temperature, Tensor? places, int stride_k, float? top_p) -> Tensor",
    lambda logits, *rest: torch.empty(logits.shape[:-1], dtype=torch.int64, device=logits.device),
)
def sample_forward(logits, seed, temperature, places, stride_k, top_p, *, BLOCK_V=None, BITS=None):
    """A token for each row."""
    token = torch.empty(logits.shape[:-1], dtype=torch.int64, device=logits.device)
    if logits.numel() == 0:
        return token.fill_(-1)
    rows = as_rows(logits)
    blocks = shared(rows, places is not None, top_p is not None, BLOCK_V, BITS)
    if blocks is None:
        block = block_of_a_program(rows)
        return lesson.sample_forward(logits, seed, temperature, places, stride_k, top_p, BLOCK_V=block)
    (peaks, *left), before, grid, known = searched(rows, places, stride_k, top_p, temperature, *blocks)
    best, place = torch.empty_like(peaks), torch.empty_like(peaks, dtype=torch.int32)
    launch(
        draw_kernel, grid, (rows, places, seed, peaks, *left, best, place),
        (rows.shape[1], top_p or 1.0, temperature, rows.stride(0), stride_k), BEFORE=before, **known,
    )  # fmt: skip
    launch(pick_kernel, (len(rows),), (peaks, best, place, token), (rows.shape[1], grid[0]), BLOCK_P=known["BLOCK_P"])
    return token


# ## The public functions
@replayed
def filter_logits(logits, *, top_k=None, top_p=None):
    """The same as `annotated_examples.sampling.sample.filter_logits`, and faster for few rows. Forward only.

    Args: as `annotated_examples.sampling.sample.filter_logits`.

    Returns:
        As the lesson's.

    Raises:
        TypeError, ValueError: as the lesson's.

    Source: as the lesson's.
    """
    contract(logits, top_k, top_p)
    checks.no_gradient("filter_logits", logits=logits)
    return filter_forward(logits, *of_all_rows(logits, top_k, top_p))


@seeded
@replayed
def sample(logits, seed, *, temperature=1.0, top_k=None, top_p=None):
    """The same as `annotated_examples.sampling.sample.sample`, and faster for few rows. Forward only.

    Args: as `annotated_examples.sampling.sample.sample`.

    Returns:
        As the lesson's.

    Raises:
        TypeError, ValueError: as the lesson's.

    Source: as the lesson's.
    """
    return sample_forward(logits, seed, *draw_contract(logits, seed, temperature, top_k, top_p))


# ## A run small enough to watch
#
# The lesson's six logits in two blocks of four, and keys of eight digits: a draw from all, and one from the likeliest
# of the three largest.
def EXAMPLE():
    logits = torch.tensor([[-1, 1.5, 2, 1.5, 0, 1]], device=device.DEVICE)
    seed = torch.tensor(7, device=device.DEVICE)
    sample_forward(logits, seed, 1.0, *of_all_rows(logits, None, None), BLOCK_V=4)
    sample_forward(logits, seed, 1.0, *of_all_rows(logits, 3, 0.8), BLOCK_V=4)
    filter_forward(logits, *of_all_rows(logits, None, 0.6), BLOCK_V=4)


if __name__ == "__main__":
    # Rows that are long enough to be shared.
    cases = dict(logits=(2, 20000), seed=7, top_k=50, top_p=0.9), dict(logits=(3, 17000), seed=7, temperature=0.7)
    script.main(sample, sample_reference, *cases, differentiable=False)
