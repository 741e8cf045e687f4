r"""
# Flash attention, fast

The same attention as in the [lesson](../attention/flash_attention.py), with the same reference and arguments, and the
same bits on every call. What changes is how a tile gets to the tensor cores, and how little else is done between two
products.

[[eq: AT-O]]

What is slow about the lesson's kernel? Every tile is masked, though most need no mask. Threads compute addresses. And
between two products stands the softmax, during which the tensor cores wait. For a tile of 64 queries and 64 keys the
two products take about 500 cycles of the tensor cores. The loop of this page's kernel has some 330 instructions for
every warp, of which 230 are the softmax's.

[[figure: attention/softmax_and_tensor_cores]]

Timed with batch 4, 16 heads, 4096 tokens; causal first, then unmasked. These times are of the finished kernel with
parts of it switched off. The rungs of the ladder below are other, simpler kernels.

1. The card's TMA unit fetches the tiles. Exponentials are powers of 2, which the hardware has an instruction
   for, and the scale and the change of base are one factor. Tiles that every query sees as a whole have a loop of their
   own, without a mask: [[bench: flash_attention/ladder/nothing ahead/forward_ms]] and
   [[bench: flash_attention/ladder/nothing ahead/full_forward_ms]]. Each tile is waited for.
2. The next two tiles of keys and values are on their way while this one is computed. Tiles are small, 64 queries and 64
   keys, so that two programs fit on an SM: while one is at its softmax, the tensor cores work for the other.
   [[bench: flash_attention/ladder/two tiles ahead/forward_ms]] and
   [[bench: flash_attention/ladder/two tiles ahead/full_forward_ms]].
3. Under a causal mask the last queries see the most keys. So their tiles start first, and short ones fill the gaps.
   Heads run in batches whose keys and values fit in L2: eight here.
   [[bench: flash_attention/ladder/heads at a time/forward_ms]] and
   [[bench: flash_attention/ladder/heads at a time/full_forward_ms]].

Larger tiles fetch keys and values less often, but they leave room for fewer programs, and here they are slower: 128
queries in two halves and 128 keys take [[bench: flash_attention/ladder/two halves/forward_ms]] and
[[bench: flash_attention/ladder/two halves/full_forward_ms]], 128 queries by eight warps
[[bench: flash_attention/ladder/eight warps/forward_ms]] and
[[bench: flash_attention/ladder/eight warps/full_forward_ms]]. For heads of 64 numbers, whose tiles and sums are half as
large, the two halves are the fastest.

**Where it falls behind.** cuDNN took [[bench: flash_attention/ladder/cuDNN/forward_ms]] and
[[bench: flash_attention/ladder/cuDNN/full_forward_ms]] in that run. What is missing here is what FlashAttention-3 does:
it gives the loads to a warp of their own and lets two groups of warps take turns, one at the softmax and one at the
tensor cores. Triton's compiler waits for each product of queries and keys before the softmax begins, and only the other
programs fill the gap. So on
a Hopper card large calls with heads of 128 numbers go to [a kernel below Triton](../gluon/flash_attention.py). At 4096
tokens and with a causal mask it is level with cuDNN, and in longer calls it is ahead. In shorter ones it is behind:
1024 tokens take [[bench: flash_attention:causal/16x16x16x1024x128/forward/ms]] against
[[bench: flash_attention:causal/16x16x16x1024x128/forward/cuDNN (SDPA).ms]]. Without a mask it is level or ahead from
2048 tokens on.

The backward pass has [a page of its own](flash_attention_backward.py).

**What it costs.** As the lesson. Where the backward pass goes below Triton, it also needs memory for float32 sums of dQ
until it is over: 4 · D bytes for each query, twice what dQ itself takes.

**Contract.** As the lesson's. Tensors of float32, heads wider than 128, a scale that isn't positive, and strides that
no descriptor fits (a last stride other than 1, others that are no multiple of 16 bytes) are left to the lesson's
kernels.
"""

# ## The ladder
#
# [[ladder: flash_attention]]

from academy.runtime import device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.call_cache import remembered
from academy.runtime.launch import cdiv, launch
from academy.runtime.replay import replayed

import torch
import triton
import triton.language as tl

from annotated_examples.attention import flash_attention as lesson
from annotated_examples.attention.flash_attention import (
    attention, attention_varlen, flash_attention_reference, keys_seen,
)  # fmt: skip
from annotated_examples.common.attention import (
    OPEN, batches, contract, empty_like, head, new_rows, scale_and_cap, sequence, store_numbers, store_tile, strided,
    varlen_contract,
)  # fmt: skip
from annotated_examples.common.attention_tiles import (
    TileSizes, can_describe, constants, describe, key_ranges, load_rows, seen,
)  # fmt: skip
from annotated_examples.common.constants import LN2, LOG2E, LOWEST
from annotated_examples.common.opaque_attention import opaque_attention
from annotated_examples.common.tile_order import grouped_order
from annotated_examples.fast.flash_attention_backward import attention_backward


# ## One tile of scores, without a mask
#
# Start with the simplest call: no mask, and every sequence of the same length. Then all there is to do is this step,
# for each tile of keys. It is [[tag: AT-merge]], with three savings.
#
# - *Base 2.* $e^x$ is $2^{x \log_2 e}$, and the hardware has an instruction for powers of 2. The scale of the scores
#   and $\log_2 e$ are one number, `factor`.
# - *One instruction per score.* The scores arrive unscaled. `s * factor - new_max` is a fused multiply-add: scaling and
#   subtracting the maximum together. That needs a positive scale, so that the largest product is also the largest
#   score. And the launch asks for `enable_fp_fusion`, because [from Triton 3.10
#   on](../../docs/guides/numerics.md#one-rounding-or-two) nothing is fused unasked.
# - *Dividing later.* `p` is relative to the largest score so far, and the division waits for the end.
#
# What carries over from one tile to the next is a tuple: the sum of the weighted values, the largest score of each row
# and the sum of its exponentials.
#
# A soft cap is a curve, so there the scale has to come first. And `MASKED` is false in the loop over full tiles: then
# the two lines with the mask don't exist in the compiled code.
@triton.jit
def attend(state, q, k, v, mask, scale, factor, softcap: tl.constexpr, MASKED: tl.constexpr):
    acc, row_max, row_sum = state
    s = tl.dot(q, tl.trans(k), input_precision="ieee")
    if softcap != 0.0:
        s, _ = scale_and_cap(s, scale, softcap)
        factor = LOG2E
    if MASKED:
        s = tl.where(mask, s, -float("inf"))
    # In the example `factor` is 0.5 · log₂ e. The largest score of the first row is 17, which makes `pid=1: new_max[0]
    # = 12.26`.
    new_max = tl.maximum(row_max, tl.max(s, axis=1) * factor)
    p = tl.exp2(s * factor - new_max[:, None])
    alpha = tl.exp2(row_max - new_max)
    row_sum = row_sum * alpha + tl.sum(p, axis=1)
    return tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision="ieee"), new_max, row_sum


# ## Along the keys
#
# The loop loads a tile of keys and one of values, and does the step. With `num_stages` the compiler lets loads run
# ahead: with three stages the tiles of the next two rounds are on their way while this one is computed.
#
# **Two halves.** A program may have 128 queries, which it treats as two tiles of 64. Each half waits for its own
# product only: while one is at its softmax, the tensor cores can be busy with the other.
#
# **The mask.** What a row sees is counted from the beginning of the tile, one subtraction per row. The columns are then
# the same numbers in every tile, 0 to `BLOCK_N` - 1: constants in the instructions, and not numbers in registers, for
# which there was no room.
@triton.jit
def attend_range(
    states, queries,  # (state of a half, state of the other), and their queries
    k_desc, v_desc, place, begin, end,  # place: (b, hk, start_k) of the keys
    start_m, T, S, window, scale, softcap: tl.constexpr, WINDOW: tl.constexpr, MASKED: tl.constexpr,
    VARLEN: tl.constexpr, HALVES: tl.constexpr, BLOCK_N: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    state0, state1 = states
    q0, q1 = queries
    b, hk, start_k = place
    ROWS: tl.constexpr = q0.shape[0]
    BLOCK_D: tl.constexpr = q0.shape[1]
    factor = scale * LOG2E
    first0, last0 = keys_seen(start_m + tl.arange(0, ROWS), T, S, window)
    first1, last1 = keys_seen(start_m + ROWS + tl.arange(0, ROWS), T, S, window)
    columns = tl.arange(0, BLOCK_N)[None, :]
    # In the tile that begins at key 4, query 4 sees one key and query 5 sees two, `pid=1, start=4: last0 - start = [1,
    # 2]`. So the mask of that half is `pid=1, start=4: mask0 = [[1, 0, 0, 0], [1, 1, 0, 0]]`.
    for start in tl.range(begin, end, BLOCK_N, num_stages=STAGES):
        k = load_rows(k_desc, b, hk, start_k, start, S, False, BLOCK_N, BLOCK_D)
        v = load_rows(v_desc, b, hk, start_k, start, S, MASKED and VARLEN, BLOCK_N, BLOCK_D)
        mask0 = seen(columns, (first0 - start)[:, None], (last0 - start)[:, None], WINDOW)
        state0 = attend(state0, q0, k, v, mask0, scale, factor, softcap, MASKED)
        if HALVES == 2:
            mask1 = seen(columns, (first1 - start)[:, None], (last1 - start)[:, None], WINDOW)
            state1 = attend(state1, q1, k, v, mask1, scale, factor, softcap, MASKED)
    return state0, state1


# At the end of the walk the sum is divided, once, and the log-sum-exp goes back to base e. A row that saw nothing has a
# sum of 0.
@triton.jit
def store_half(o_head, lse_head, state, start_m, T, D: tl.constexpr, ROWS: tl.constexpr, BLOCK_D: tl.constexpr):
    acc, row_max, row_sum = state
    offs_m = start_m + tl.arange(0, ROWS)
    factor = 1.0 / tl.where(row_sum == 0.0, 1.0, row_sum)
    store_tile(o_head, acc * factor[:, None], offs_m, T, D, BLOCK_D)
    # `tl.log2` gives the logarithm in base 2; [[tag: AT-lse]] is promised as a natural one. The
    # largest score of query 4, 17 · 0.5, stands nearly alone: `pid=1: lse[0] = 8.52` is little more.
    lse = tl.where(row_sum == 0.0, -float("inf"), (row_max + tl.log2(row_sum)) * LN2)
    store_numbers(lse_head, lse, offs_m, T)


# ## The kernel
#
# **Three stretches of keys.** `key_ranges` says where the full tiles begin and end. Before them lie the keys at the
# left edge of a window, behind them those on the diagonal: both need the mask. The same loop runs over all three, one
# stretch after the other, with the state as a tuple. `tl.static_range` repeats its body while compiling, so in each
# copy `PART` is a constant, and the copy for full tiles has no mask in it. Without a window the first stretch is never
# there.
#
# **The order of programs.** [grouped_order](../tutorials/matmul_grouped.py) numbers the tiles down a group of `HEADS`
# heads first, and then to the next tile. The last queries come first.
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
    # The example has three tiles of one head. Its first program takes the last four queries, `pid=0: start_m = 8`.
    tiles = tl.cdiv(longest, BLOCK_M)
    head_number, tile = grouped_order(tl.program_id(0), B * H, tiles, HEADS)
    b, h, start_m = head_number // H, head_number % H, (tiles - 1 - tile) * BLOCK_M
    start_q, T = sequence(cu_q_ptr, b, T)
    start_k, S = sequence(cu_k_ptr, b, S)
    if start_m >= T:
        return
    # Packed sequences form one batch entry. Then a tile of values that crosses the end of its sequence is cleaned.
    VARLEN: tl.constexpr = lengths[0] is not None
    entry = 0 if VARLEN else b
    ROWS: tl.constexpr = BLOCK_M // HALVES
    q0 = load_rows(q_desc, entry, h, start_q, start_m, T, False, ROWS, BLOCK_D)
    q1 = q0
    if HALVES == 2:
        q1 = load_rows(q_desc, entry, h, start_q, start_m + ROWS, T, False, ROWS, BLOCK_D)

    # As in the lesson: the lowest finite number, and a sink is one more score that every row begins with.
    row_max = tl.full((ROWS,), LOWEST, tl.float32)
    row_sum = tl.zeros((ROWS,), tl.float32)
    if sinks_ptr is not None:
        sink = tl.load(sinks_ptr + h).to(tl.float32) * LOG2E
        row_max = tl.maximum(row_max, sink)
        row_sum = tl.exp2(sink - row_max)
    state = (tl.zeros((ROWS, BLOCK_D), tl.float32), row_max, row_sum)
    states = (state, state)

    # Queries 4 to 7 see some of the keys before `pid=1: edges[3] = 8`, and all of those before `pid=1: edges[2] = 4`.
    # So one tile of keys is full and one is masked. A loop over masked tiles is short, and two stages are enough for
    # it.
    low, high = start_m + (S - T), tl.minimum(start_m + BLOCK_M, T) - 1 + (S - T)
    edges = key_ranges(low, high, S, window, BLOCK_N)
    FEW: tl.constexpr = 1 if STAGES == 1 else 2
    for PART in tl.static_range(3):
        if PART > 0 or WINDOW:
            states = attend_range(
                states, (q0, q1), k_desc, v_desc, (entry, h // group, start_k), edges[PART], edges[PART + 1],
                start_m, T, S, window, scale, softcap, WINDOW, PART != 1, VARLEN, HALVES, BLOCK_N,
                STAGES if PART == 1 else FEW,
            )  # fmt: skip

    o_head, lse_head = head(o_tensor, b, h, start_q), head(lse_tensor, b, h, start_q)
    store_half(o_head, lse_head, states[0], start_m, T, D, ROWS, BLOCK_D)
    if HALVES == 2:
        store_half(o_head, lse_head, states[1], start_m + ROWS, T, D, ROWS, BLOCK_D)


# ## The launcher
#
# What was fastest on the card for heads of up to 64 and of up to 128 numbers. Each leaves room for two programs on an
# SM, `SHORT` for three with heads of 64: in registers, and in shared memory for `STAGES` tiles of keys and of values.
# The descriptors are made here, one per tensor; what they can't describe goes to the lesson's kernels.
FORWARD = {64: TileSizes(128, 128, 3, 4), 128: TileSizes(64, 64, 3, 4)}
# Under a causal mask a good part of a short sequence's tiles lies on the diagonal, where half of 128 keys is masked.
SHORT = FORWARD | {64: TileSizes(128, 64, 3, 4)}


def attention_forward(
    q, k, v, sinks, cu_seqlens_q, cu_seqlens_k, options, *, BLOCK_M=None, BLOCK_N=None, HALVES=None
):  # fmt: skip
    """`(o, lse)`, as the lesson's launcher."""
    if not can_describe(options, q, k, v):
        return lesson.attention_forward(
            q, k, v, sinks, cu_seqlens_q, cu_seqlens_k, options, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N
        )  # fmt: skip
    table = SHORT if options.max_seqlen_k <= 1024 else FORWARD
    known = constants(table, q, options, BLOCK_M, BLOCK_N, options.max_seqlen_k)
    known["HALVES"] = HALVES or (2 if known["BLOCK_M"] > 64 else 1)
    (H, T, _), (Hk, S) = q.shape[1:], k.shape[1:3]
    B = batches(q, cu_seqlens_q)
    rows, columns, BLOCK_D = known["BLOCK_M"] // known["HALVES"], known["BLOCK_N"], known["BLOCK_D"]
    o, lse = empty_like(q, cu_seqlens_q), new_rows(q, q.shape[:3], cu_seqlens_q)
    if programs := cdiv(options.max_seqlen_q, known["BLOCK_M"]) * B * H:
        launch(
            attention_forward_kernel, (programs,),
            (
                describe(q, rows, BLOCK_D), describe(k, columns, BLOCK_D), describe(v, columns, BLOCK_D),
                strided(o, cu_seqlens_q), strided(lse, cu_seqlens_q), sinks,
                (cu_seqlens_q, cu_seqlens_k, T, S, options.max_seqlen_q), (B, H, H // Hk),
                (options.left, options.right),
            ),
            (options.scale,), **known,
        )  # fmt: skip
    return o, lse


# ## Below Triton
#
# On a Hopper card [the kernel that overlaps softmax and products by hand](../gluon/flash_attention.py) is faster for
# dense heads of 128 numbers. For heads of 64 this one is. Backward, [its
# counterpart](../gluon/flash_attention_backward.py) makes five products instead of seven, and takes both widths. It
# pays with memory, for float32 sums of dQ. The first launches of these kernels cost Python more, because they make
# their descriptors. So a call has to be large: the card spends about as long on `2**28` scores as Python on those.
WORTHWHILE = 2**28
FORWARD_WIDTHS, BACKWARD_WIDTHS = (128,), (64, 128)


def goes_below_triton(q, k, v, sinks, cu_seqlens_q, options, widths):
    """Whether the Gluon kernel for heads of these widths takes this call."""
    (B, H, T, D), S = q.shape, k.shape[2]
    dense = sinks is None and cu_seqlens_q is None and options.softcap == 0.0 and options.left == OPEN
    full_or_causal = options.right == OPEN or options.right == 0 and T == S
    return (
        dense and full_or_causal and D in widths and B * H * T * S >= WORTHWHILE and can_describe(options, q, k, v)
        and not device.INTERPRET and device.has("gluon", q.device.index)
    )  # fmt: skip


def forward(q, k, v, sinks, cu_seqlens_q, cu_seqlens_k, options):
    """`(o, lse)`, by the kernel that is fastest for the call."""
    if goes_below_triton(q, k, v, sinks, cu_seqlens_q, options, FORWARD_WIDTHS):
        from annotated_examples.gluon import flash_attention as below_triton  # only a Hopper card needs it

        return below_triton.attention_forward(q, k, v, sinks, cu_seqlens_q, cu_seqlens_k, options)
    return attention_forward(q, k, v, sinks, cu_seqlens_q, cu_seqlens_k, options)


def backward(do, dlse, q, k, v, sinks, cu_seqlens_q, cu_seqlens_k, o, lse, options):
    """`(dq, dk, dv, dsinks)`, likewise."""
    saved = q, k, v, sinks, cu_seqlens_q, cu_seqlens_k, o, lse, options
    if goes_below_triton(q, k, v, sinks, cu_seqlens_q, options, BACKWARD_WIDTHS):
        from annotated_examples.gluon import flash_attention_backward as below_triton

        return below_triton.attention_backward(do, dlse, *saved)
    return attention_backward(do, dlse, *saved)


# ## Joining autograd
#
# The frame is the lesson's, with these launchers. Inside `torch.compile` both are operators: the compiler can't look
# into a launch whose arguments are tuples.
launchers = opaque_attention(forward, backward)
checked = remembered(contract)


@replayed
def flash_attention(q, k, v, *, causal=False, scale=None, window=None, softcap=0.0, sinks=None, return_lse=False):
    r"""As `annotated_examples.attention.flash_attention.flash_attention`, faster.

    Args: as `annotated_examples.attention.flash_attention.flash_attention`.

    Returns:
        o, or (o, lse), as the lesson's.

    Raises:
        TypeError, ValueError: as the lesson's.

    Source: Dao, "FlashAttention-2" (arXiv 2307.08691). Longest tiles first: "FlashAttention-3" (2407.08608).
    """
    options = checked(q, k, v, causal, scale, window, softcap, sinks, return_lse)
    o, lse = attention(q, k, v, sinks, None, None, options, *launchers)
    return (o, lse) if return_lse else o


@replayed
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
    script.main(flash_attention, flash_attention_reference)
