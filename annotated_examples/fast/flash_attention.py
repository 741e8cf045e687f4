r"""
# Flash attention, fast

The same attention as in the [lesson](../attention/flash_attention.py), with the same reference, arguments and bits on
every call. What changes is how a tile gets to the tensor cores, and how little else is done between two products.

[[eq: AT-O]]

What is slow about the lesson's kernel? Every tile is masked, though most need no mask. Threads compute an address for
each element. And between two products stands the softmax, during which the tensor cores wait: for a tile of 64 queries
and 64 keys they need about 500 cycles, and the softmax nearly 350 instructions of every warp. The climb from there, in
times of 4 times 16 heads of 4096 tokens, causal and without a mask:

1. The card's copy unit (TMA) fetches the tiles, and exponentials are powers of 2, which the hardware has an instruction
   for. The scale and the change of base are one factor. Tiles that every query sees as a whole get a loop of their own,
   without a mask: [[bench: flash_attention/ladder/nothing ahead/forward_ms]] and
   [[bench: flash_attention/ladder/nothing ahead/full_forward_ms]]. Each tile is waited for.
2. The next two tiles of keys and values are on their way while this one is computed. Tiles are small, 64 queries and 64
   keys, so that two programs or three fit on a multiprocessor: while one is at its softmax, the tensor cores work for
   another. [[bench: flash_attention/ladder/two tiles ahead/forward_ms]] and
   [[bench: flash_attention/ladder/two tiles ahead/full_forward_ms]].
3. Under a causal mask the last queries see the most keys. Their tiles start first, of several heads at a time, so that
   the short ones fill the gaps at the end. Of as many heads as leave their keys and values in the L2 cache, eight here:
   [[bench: flash_attention/ladder/heads at a time/forward_ms]] and
   [[bench: flash_attention/ladder/heads at a time/full_forward_ms]].

Larger tiles fetch keys and values less often, but they leave room for fewer programs, and here they are slower: 128
queries in two halves and 128 keys take [[bench: flash_attention/ladder/two halves/forward_ms]] and
[[bench: flash_attention/ladder/two halves/full_forward_ms]], 128 queries by eight warps
[[bench: flash_attention/ladder/eight warps/forward_ms]] and
[[bench: flash_attention/ladder/eight warps/full_forward_ms]]. For heads of 64 numbers, whose tiles and sums are half as
large, the two halves are the fastest.

**Where it falls behind.** cuDNN took [[bench: flash_attention/ladder/cuDNN/forward_ms]] and
[[bench: flash_attention/ladder/cuDNN/full_forward_ms]] in that run. It gives the loads to a warp of their own and lets
two groups of warps take turns, one at the softmax and one at the tensor cores. Triton's compiler does not do that here:
it waits for each product of queries and keys before the softmax begins, and only the other programs fill the gap.

The backward pass, causal, in another run, in which cuDNN took
[[bench: flash_attention/ladder/cuDNN, backward/backward_ms]]:

1. The same steps, in two kernels as in the lesson: [[bench: flash_attention/ladder/numbers by pointer/backward_ms]].
2. The kernel for the keys needs two numbers of each query. Fetched by pointers, they take as many instructions as half
   of the softmax. The copy unit brings them for a whole tile at once. And a score is compared with the ends of what its
   row sees, which are computed once a row: [[bench: flash_attention/ladder/numbers by descriptor/backward_ms]].
3. Both kernels compute the scores and the gradients of the probabilities, so they make seven products where five would
   do. One kernel can make five, if each tile of keys adds its part of dQ to a sum in memory. The additions then come in
   any order, so the last bits differ from call to call. And they are slow: 32 KB for each tile of 64 queries and 128
   keys. It takes [[bench: flash_attention/ladder/one pass/backward_ms]]. So two kernels are not only the default
   because the same call gives the same bits; they are faster, too. `attention_backward(…, deterministic=False)` is
   there to be tried.

**What it costs.** As the lesson.

**Contract.** As the lesson's. Tensors of float32, heads wider than 128, a scale that isn't positive, and strides that
no descriptor fits (a last stride other than 1, others that are no multiple of 16 bytes) are left to the lesson's
kernels.
"""

if __name__ == "__main__":  # run as a script: make the repository importable
    import pathlib
    import sys

    sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))

from academy import device, script

import torch
import triton
import triton.language as tl

from annotated_examples.attention import flash_attention as lesson
from annotated_examples.attention.flash_attention import (
    LOWEST, attention, attention_varlen, flash_attention_reference, keys_seen,
)  # fmt: skip
from annotated_examples.common.attention import (
    batches, contract, empty_like, head, new_rows, scale_and_cap, sequence, store_numbers, store_tile, strided,
    varlen_contract,
)  # fmt: skip
from annotated_examples.common.attention_tiles import (
    TileSizes, can_describe, constants, describe, key_ranges, load_rows, seen,
)  # fmt: skip
from annotated_examples.common.opaque_attention import opaque_attention
from annotated_examples.common.tile_order import grouped_order
from annotated_examples.fast.flash_attention_backward import attention_backward

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)


# ## Forward: one tile of scores
#
@triton.jit
def attend(state, q, k, v, mask, scale, factor, softcap: tl.constexpr, MASKED: tl.constexpr):
    acc, row_max, row_sum = state
    s = tl.dot(q, tl.trans(k), input_precision="ieee")
    if softcap != 0.0:
        s, _ = scale_and_cap(s, scale, softcap)
        factor = LOG2E
    if MASKED:
        s = tl.where(mask, s, -float("inf"))
    new_max = tl.maximum(row_max, tl.max(s, axis=1) * factor)
    p = tl.exp2(s * factor - new_max[:, None])
    alpha = tl.exp2(row_max - new_max)
    row_sum = row_sum * alpha + tl.sum(p, axis=1)
    return tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision="ieee"), new_max, row_sum


@triton.jit
def attend_range(
    states, queries,  # (state of a half, state of the other), and their queries
    k_desc, v_desc, place, begin, end,  # place: (b, hk, start_k) of the keys
    start_m, T, S, window, scale, softcap: tl.constexpr, WINDOW: tl.constexpr, MASKED: tl.constexpr,
    VARLEN: tl.constexpr, HALVES: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    state0, state1 = states
    q0, q1 = queries
    b, hk, start_k = place
    factor = scale * LOG2E
    first0, last0 = keys_seen(start_m + tl.arange(0, ROWS), T, S, window)
    first1, last1 = keys_seen(start_m + ROWS + tl.arange(0, ROWS), T, S, window)
    columns = tl.arange(0, BLOCK_N)[None, :]
    for start in tl.range(begin, end, BLOCK_N, num_stages=STAGES):
        k = load_rows(k_desc, b, hk, start_k, start, S, False, BLOCK_N, BLOCK_D)
        v = load_rows(v_desc, b, hk, start_k, start, S, MASKED and VARLEN, BLOCK_N, BLOCK_D)
        mask = seen(columns, (first0 - start)[:, None], (last0 - start)[:, None], WINDOW)
        state0 = attend(state0, q0, k, v, mask, scale, factor, softcap, MASKED)
        if HALVES == 2:
            mask = seen(columns, (first1 - start)[:, None], (last1 - start)[:, None], WINDOW)
            state1 = attend(state1, q1, k, v, mask, scale, factor, softcap, MASKED)
    return state0, state1


@triton.jit
def store_half(o_head, lse_head, state, start_m, T, D: tl.constexpr, ROWS: tl.constexpr, BLOCK_D: tl.constexpr):
    acc, row_max, row_sum = state
    offs_m = start_m + tl.arange(0, ROWS)
    factor = 1.0 / tl.where(row_sum == 0.0, 1.0, row_sum)
    store_tile(o_head, acc * factor[:, None], offs_m, T, D, BLOCK_D)
    # `tl.log2` gives the logarithm in base 2; [[tag: AT-lse]] is promised as a natural one.
    lse = tl.where(row_sum == 0.0, -float("inf"), (row_max + tl.log2(row_sum)) * LN2)
    store_numbers(lse_head, lse, offs_m, T)


@triton.jit
def attention_forward_kernel(
    q_desc, k_desc, v_desc,  # descriptors of (B, H, T, D) and (B, Hk, S, D)
    o_tensor, lse_tensor, sinks_ptr,  # (pointer, four strides): (B, H, T, D), (B, H, T); (H,) or None
    lengths,  # (cu_q_ptr, cu_k_ptr, T, S, longest): where packed sequences begin, or None; the lengths
    heads,  # (B, H, group)
    window,  # (left, right)
    scale, softcap: tl.constexpr, D: tl.constexpr, WINDOW: tl.constexpr, HEADS: tl.constexpr, HALVES: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    cu_q_ptr, cu_k_ptr, T, S, longest = lengths
    B, H, group = heads
    # Down a group of `HEADS` heads first, then to the next tile, from the last tile of queries to the first.
    tiles = tl.cdiv(longest, BLOCK_M)
    head_number, tile = grouped_order(tl.program_id(0), B * H, tiles, HEADS)
    b, h, start_m = head_number // H, head_number % H, (tiles - 1 - tile) * BLOCK_M
    start_q, T = sequence(cu_q_ptr, b, T)
    start_k, S = sequence(cu_k_ptr, b, S)
    if start_m >= T:
        return
    VARLEN: tl.constexpr = lengths[0] is not None
    entry = 0 if VARLEN else b
    ROWS: tl.constexpr = BLOCK_M // HALVES
    q0 = load_rows(q_desc, entry, h, start_q, start_m, T, False, ROWS, BLOCK_D)
    q1 = q0
    if HALVES == 2:
        q1 = load_rows(q_desc, entry, h, start_q, start_m + ROWS, T, False, ROWS, BLOCK_D)

    row_max = tl.full((ROWS,), LOWEST, tl.float32)
    row_sum = tl.zeros((ROWS,), tl.float32)
    if sinks_ptr is not None:
        sink = tl.load(sinks_ptr + h).to(tl.float32) * LOG2E
        row_max = tl.maximum(row_max, sink)
        row_sum = tl.exp2(sink - row_max)
    state = (tl.zeros((ROWS, BLOCK_D), tl.float32), row_max, row_sum)
    states = (state, state)

    low, high = start_m + (S - T), tl.minimum(start_m + BLOCK_M, T) - 1 + (S - T)
    edges = key_ranges(low, high, S, window, BLOCK_N)
    FEW: tl.constexpr = 1 if STAGES == 1 else 2
    for PART in tl.static_range(3):
        if PART > 0 or WINDOW:
            states = attend_range(
                states, (q0, q1), k_desc, v_desc, (entry, h // group, start_k), edges[PART], edges[PART + 1],
                start_m, T, S, window, scale, softcap, WINDOW, PART != 1, VARLEN, HALVES, ROWS, BLOCK_N, BLOCK_D,
                STAGES if PART == 1 else FEW,
            )  # fmt: skip

    o_head, lse_head = head(o_tensor, b, h, start_q), head(lse_tensor, b, h, start_q)
    store_half(o_head, lse_head, states[0], start_m, T, D, ROWS, BLOCK_D)
    if HALVES == 2:
        store_half(o_head, lse_head, states[1], start_m + ROWS, T, D, ROWS, BLOCK_D)


# ## The launcher
FORWARD = {64: TileSizes(128, 128, 3, 4), 128: TileSizes(64, 64, 3, 4)}


def attention_forward(
    q, k, v, sinks, cu_seqlens_q, cu_seqlens_k, options, *, BLOCK_M=None, BLOCK_N=None, HALVES=None
):  # fmt: skip
    """`(o, lse)`, as the lesson's launcher."""
    if not can_describe(options, q, k, v):
        return lesson.attention_forward(
            q, k, v, sinks, cu_seqlens_q, cu_seqlens_k, options, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N
        )  # fmt: skip
    launch = constants(FORWARD, q, options, BLOCK_M, BLOCK_N, options.max_seqlen_k)
    launch["HALVES"] = HALVES or (2 if launch["BLOCK_M"] > 64 else 1)
    (H, T, _), (Hk, S) = q.shape[1:], k.shape[1:3]
    o = empty_like(q, cu_seqlens_q)
    lse = new_rows(q, q.shape[:3], cu_seqlens_q)
    B = batches(q, cu_seqlens_q)
    grid = (triton.cdiv(options.max_seqlen_q, launch["BLOCK_M"]) * B * H,)
    if grid[0]:
        rows, BLOCK_D = launch["BLOCK_M"] // launch["HALVES"], launch["BLOCK_D"]
        attention_forward_kernel[grid](
            describe(q, rows, BLOCK_D), *(describe(x, launch["BLOCK_N"], BLOCK_D) for x in (k, v)),
            strided(o, cu_seqlens_q), strided(lse, cu_seqlens_q), sinks,
            (cu_seqlens_q, cu_seqlens_k, T, S, options.max_seqlen_q), (B, H, H // Hk), (options.left, options.right),
            options.scale, **launch,
        )  # fmt: skip
    return o, lse


# Inside `torch.compile` both are operators: the compiler can't look into a launch with descriptors.
launchers = opaque_attention(attention_forward, attention_backward)


def flash_attention(q, k, v, *, causal=False, scale=None, window=None, softcap=0.0, sinks=None, return_lse=False):
    r"""As `annotated_examples.attention.flash_attention.flash_attention`, faster.

    Args: as `annotated_examples.attention.flash_attention.flash_attention`.

    Returns:
        o, or (o, lse), as the lesson's.

    Raises:
        TypeError, ValueError: as the lesson's.

    Source: Dao, "FlashAttention-2" (arXiv 2307.08691). Longest tiles first: "FlashAttention-3" (2407.08608).
    """
    options = contract(q, k, v, causal, scale, window, softcap, sinks, return_lse)
    o, lse = attention(q, k, v, sinks, None, None, options, *launchers)
    return (o, lse) if return_lse else o


def flash_attention_varlen(
    q, k, v, cu_seqlens_q, cu_seqlens_k, *, causal=False, scale=None, window=None, softcap=0.0, sinks=None,
    return_lse=False, max_seqlen_q=None, max_seqlen_k=None,
):  # fmt: skip
    """As `annotated_examples.attention.flash_attention.flash_attention_varlen`, faster.

    Args: as `annotated_examples.attention.flash_attention.flash_attention_varlen`.

    Returns:
        o, or (o, lse), as the lesson's.

    Raises:
        TypeError, ValueError: as the lesson's.

    Source: as `flash_attention`.
    """
    options = contract(q, k, v, causal, scale, window, softcap, sinks, return_lse, layout="total, H, D")
    options = varlen_contract(q, k, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, options)
    cu_seqlens = cu_seqlens_q, cu_seqlens_k
    o, lse = attention_varlen(q, k, v, sinks, *cu_seqlens, options, *launchers)
    return (o, lse) if return_lse else o


# ## A run small enough to watch
#
# A head with twelve queries and twelve keys of 8 numbers, causal, in tiles of two times two queries and four keys.
def EXAMPLE():
    at = torch.arange(12 * 8, device=device.DEVICE)
    q, k, v = ((at * step % 7 - 3).half().view(1, 1, 12, 8) for step in (1, 3, 5))
    options = contract(q, k, v, True, 0.5, None, 0.0, None, True)
    attention_forward(q, k, v, None, None, None, options, BLOCK_M=4, BLOCK_N=4, HALVES=2)


if __name__ == "__main__":
    shapes = dict(q=(1, 4, 33, 64), k=(1, 2, 70, 64), v=(1, 2, 70, 64))
    script.main(flash_attention, flash_attention_reference, shapes | dict(causal=True), shapes | dict(softcap=5.0))
