r"""
# Selecting keys: exactly k, always the same

[The indexer](indexer.py) has given each query a score for every key, and attention will read the `k` best: 2048 in
DeepSeek V3.2. The scores are thrown away afterwards. What matters is the *set*, [[tag: IX-keep]], and that it is the
same in every run, on every card and whatever else is in the batch.

That is harder than it sounds, because the scores tie. They are sums of what a ReLU has left, and where it leaves
nothing a score is exactly 0. A row may have thousands of zeros, and the `k`-th largest may be one of them. Who gets the
last places? Kernels that let threads race for a slot may give another answer each time, and those that keep candidates
in a buffer of a few thousand overflow. Here the rule is part of the contract: **of equal scores the earlier key comes
first**.

[[figure: indexer/plateau]]

Nothing is sorted. The threshold is found digit by digit, as when [a token is chosen](../sampling/sample.py). Then one
walk from left to right keeps what lies above it, and the first few of those at it.

**What it costs.** A row is read twice: once for a bound, once for the list of the keys that reach it. The list is short
as a rule. Its elements take 8 bytes, and there is room for as many as there are scores. It is read 17 times, from the
cache. Where nearly all scores are equal it holds nearly all of them, and nothing breaks but the speed. On an H200 4096
rows of 65536 scores take [[bench: select_keys/4096x65536/forward/lesson.ms]], and `torch.topk`, which has another rule
for equal scores, [[bench: select_keys/4096x65536/forward/torch.topk.ms]]. [The fast version](../fast/select_keys.py)
reads a row once and takes [[bench: select_keys/4096x65536/forward/ms]].

**Contract.** `logits` is (M, S), float32, float16 or bfloat16, any strides, S up to 2²¹; `k` is 1 to 4096. Only the
keys of a query's window, from `start` to before `end`, take part. A larger score comes first, of equal ones the lower
position; zeros of either sign are equal, and a NaN of either sign comes before everything, as in `torch.topk`. −∞
within the window is a score like others, and what is outside is none. The positions are written in ascending order,
and behind them −1. Forward only.
"""

from academy.runtime import checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch
import triton
import triton.language as tl

from annotated_examples.common.choosing import kept_of_chunk, load_chunk, search, write_list
from annotated_examples.common.custom_operator import opaque
from annotated_examples.common.windows import bound, window_contract, window_of

MOST_KEYS = 4096
WIDEST_ROW = 2**21


# ## Reference
#
# A stable sort leaves equal scores in the order of their positions. What isn't in the window goes behind everything
# that is.
def select_keys_reference(logits, k, *, start=None, end=None):
    at = torch.arange(logits.shape[1], device=logits.device)
    first, last = (x if x is None else x[:, None] for x in (start, end))
    inside = (at >= (0 if first is None else first)) & (at < (logits.shape[1] if last is None else last))
    inside = inside.expand(logits.shape)
    logits = torch.where(logits.isnan(), torch.nan, logits + 0.0)  # a sort on a card looks at the sign of a NaN
    by_score = torch.sort(logits, dim=1, descending=True, stable=True).indices
    order = by_score.gather(1, torch.sort(~inside.gather(1, by_score), dim=1, stable=True).indices)
    chosen = torch.zeros_like(inside).scatter(1, order[:, :k], True) & inside
    keys = torch.where(chosen, at, logits.shape[1]).sort(dim=1).values[:, :k]
    keys = torch.nn.functional.pad(keys, (0, k - keys.shape[1]), value=logits.shape[1])
    return torch.where(keys == logits.shape[1], -1, keys).int()


# ## A bound, a list, a threshold, a walk
#
# One program has a row. Floats become **keys** first, whole numbers with the same order (the word has two meanings on
# this page: these are numbers to compare). Each lane finds the largest of its own. There are up to 4096 lanes, and the
# `k`-th largest *of these* isn't larger than the `k`-th largest of the row. So what lies below it is out, and the rest
# goes to a list, with its position. Only that is searched, as a row of logits
# is here for its seven largest:
#
# [[figure: choosing/rounds]]
@triton.jit
def select_keys_kernel(
    logits_ptr, start, end,  # (M, S); (pointer, stride) of (M,), or None
    list_ptr, keys_ptr,  # (M, S) in int64; (M, k) in int32; both contiguous
    M, S, k, stride_m, BITS: tl.constexpr, BLOCK_V: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    first, last, _real = window_of(start, end, row, M, S)
    V = tl.maximum(last - first, 0)
    wanted = tl.minimum(k, V)
    row_ptr = logits_ptr + row.to(tl.int64) * stride_m + first
    list_ptr += row.to(tl.int64) * S
    keys_ptr += row.to(tl.int64) * k

    # The window of the example's second row has five scores, in chunks of four. The first lane has seen two of them.
    largest = tl.zeros((BLOCK_V,), tl.uint32)
    for chunk in range(0, V, BLOCK_V):
        _, _, key = load_chunk(row_ptr, None, chunk, V, BLOCK_V, True)
        largest = tl.maximum(largest, key)
    lanes, lane = tl.minimum(V, BLOCK_V), tl.arange(0, BLOCK_V)
    last_ptr = list_ptr + S - lanes
    tl.store(last_ptr + lane, largest.to(tl.int64) << 32, mask=lane < lanes)
    tl.debug_barrier()

    none, target = tl.cast(0, tl.uint32), wanted.to(tl.float32)
    least = search(last_ptr, lanes, target, none, 0.0, 1.0, False, BITS, BLOCK_V)[0]
    n = write_list(row_ptr, list_ptr, V, least, BLOCK_V, True)
    threshold, beyond = search(list_ptr, n, target, none, 0.0, 1.0, False, BITS, BLOCK_V)
    # [[tag: IX-keep]]: those beyond the threshold have a place for certain, and what is left of the places goes to the
    # first of those at it. The second row of the example has a 1, a 3 and zeros: `pid=1: left = 1`. The list is in
    # order, so a running sum of ones counts both, and tells where each is written.
    left, seen, at = wanted - beyond.to(tl.int32), 0, 0
    for chunk in range(0, n, BLOCK_V):
        offs_v, _, key = load_chunk(None, list_ptr, chunk, n, BLOCK_V)
        keep, seen = kept_of_chunk(key, threshold, left, seen)
        place = at + tl.cumsum(keep.to(tl.int32), axis=0) - 1
        tl.store(keys_ptr + place, first + offs_v, mask=keep)
        at += tl.sum(keep.to(tl.int32), axis=0)
    # A window with fewer than `k` keys leaves places, which every call has to fill: memory that is used again holds the
    # positions of an earlier one.
    for chunk in range(0, k, BLOCK_V):
        place = chunk + lane
        tl.store(keys_ptr + place, tl.full((BLOCK_V,), -1, tl.int32), mask=(place >= wanted) & (place < k))


# ## The launcher
@opaque(
    "(Tensor logits, int k, Tensor? start, Tensor? end) -> Tensor",
    lambda logits, k, start, end: logits.new_empty((len(logits), k), dtype=torch.int32),
)
def select_keys_forward(logits, k, start, end, *, BLOCK_V=None, BITS=2):
    """(M, k) int32. BITS: of a key that are found in a round, a power of two up to 8."""
    checks.power_of_two(BLOCK_V=BLOCK_V, BITS=BITS)
    M, S = logits.shape
    BLOCK_V = BLOCK_V or min(max(triton.next_power_of_2(S), 16), 4096)
    keys = logits.new_empty((M, k), dtype=torch.int32)
    rows = logits if logits.stride(1) == 1 else logits.contiguous()
    if M and not S:
        keys.fill_(-1)
    elif M:
        room = logits.new_empty((M, S), dtype=torch.int64)
        select_keys_kernel[(M,)](
            rows, bound(start), bound(end), room, keys, M, S, k, rows.stride(0), BITS=BITS, BLOCK_V=BLOCK_V,
            num_warps=max(1, min(BLOCK_V // 256, 16)),
        )  # fmt: skip
    return keys


def contract(logits, k, start, end):
    """Raises on bad arguments."""
    checks.tensors(logits=logits)
    checks.no_gradient("select_keys", logits=logits)
    checks.dtypes(logits=logits)
    checks.dimensions("logits", logits, 2, "M, S")
    if logits.shape[1] > WIDEST_ROW:
        raise ValueError(f"logits must have rows of at most {WIDEST_ROW} elements, got shape {tuple(logits.shape)}")
    checks.whole_number("k", k, at_least=1, at_most=MOST_KEYS)
    window_contract(logits, logits.shape[1], start, end)


@replayed
def select_keys(logits, k, *, start=None, end=None):
    """The positions of each query's k best keys, in ascending order. Forward only.

    Args:
        logits: (M, S) float32, float16 or bfloat16, any strides, S up to 2²¹.
        k: how many keys, 1 to 4096.
        start, end: (M,) int32, the window of each query: from `start` to before `end`, from 0 to S. None: from the
            first key, to the last.

    Returns:
        (M, k) int32: of the window the first k in the order "larger score, then lower position", written in ascending
        order. −1 behind them, where the window has fewer. A window that can't be has no keys.

    Raises:
        TypeError: an argument has a wrong type, or a tensor a wrong dtype.
        ValueError: a shape, a number or a device is wrong, `logits` requires a gradient, or, on the CPU and with
            `ACADEMY_DEBUG=1` in the environment, a window is out of range.

    Source: the selection of DeepSeek-AI, "DeepSeek-V3.2" (2025); radix selection: Alabi et al., "Fast k-selection
        algorithms for graphics processing units" (2012).
    """
    contract(logits, k, start, end)
    return select_keys_forward(logits, k, start, end)


# ## A run small enough to watch
#
# Two rows of six scores, of which ReLUs have made some 0. The first query sees four of its keys, and three of them are
# wanted; the second five.
def EXAMPLE():
    logits = torch.tensor([[0, 2, 0, 0, 9, 9], [0, 1, 0, 3, 0, 0]], dtype=torch.float32, device=device.DEVICE)
    start, end = (torch.tensor(each, dtype=torch.int32, device=device.DEVICE) for each in ([0, 1], [4, 6]))
    select_keys_forward(logits, 3, start, end, BLOCK_V=4, BITS=4)


if __name__ == "__main__":
    script.main(select_keys, select_keys_reference)
