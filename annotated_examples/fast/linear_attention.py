r"""
# Linear attention, fast

The same function as in the [lesson](../recurrences/linear_attention.py), with the same reference, arguments and
gradients. Forward is one kernel instead of two, and the backward pass walks faster.

[[eq: LA-chunk]]

[[eq: LA-next]]

What is slow about the lesson? It writes a state for every chunk and reads it again, so that the outputs of all chunks
can be computed at the same time. With heads of 128 numbers that moves as many bytes as q, k, v and o together in
bfloat16, and four times as many in float32. Where there are enough heads, no states are needed: there is work
for all SMs even if each head is walked from end to end.

1. *Outputs on the way.* The walk has the state before each chunk at hand. So it computes the chunk's outputs from it,
   and no state is stored. Of v and o each element moves once, of q and k once for every `BLOCK_E`
   columns of v.
2. *The TMA unit.* Tiles come by descriptor, those of the next chunk while this one is computed. Then no thread
   computes their addresses, and no register holds what is on its way.
3. *Sums of gates.* The lesson multiplies decays, which keeps all digits of float32. For 16-bit numbers a difference of
   two sums is exact enough, and a power of two is one instruction.
4. *A long text of few heads is cut into parts*, which are walked along at the same time, twice. On an H100 one text of
   16384 tokens takes [[bench: linear_attention/ladder/parts/1x16384_ms]] that way, in one walk
   [[bench: linear_attention/ladder/one walk/1x16384_ms]], and with flash-linear-attention
   [[bench: linear_attention/ladder/fla/1x16384_ms]]. Eight of 4096 tokens, which aren't cut, take
   [[bench: linear_attention/ladder/parts/8x4096_ms]], and with flash-linear-attention
   [[bench: linear_attention/ladder/fla/8x4096_ms]].

[[figure: chunks/pairs]]

**What it costs.** One walk takes about $2 C D E + C^2 (D + E)$ multiplications a chunk of $C$ tokens, as the lesson;
the product of queries and keys is made once for every `BLOCK_E` columns of the state.

**Backward** needs the state before each chunk and the gradient of the state after it, in memory. The walks that leave
them there are those of this file, cut into parts as well. What happens inside of a chunk is left to the lesson's two
kernels. Of one text of 16384 tokens on an H200 it takes
[[bench: linear_attention:backward/1x16384x16x128/backward/ms]], the lesson
[[bench: linear_attention:backward/1x16384x16x128/backward/lesson.ms]], and flash-linear-attention
[[bench: linear_attention:backward/1x16384x16x128/backward/fla, simple_gla.ms]].

**What is missing.** Packed sequences aren't cut: the host doesn't know how long they are. A single long one is walked
along by one program for each head and 64 columns.

**Contract.** As the lesson's. float32, heads wider than 128, and strides that no descriptor fits (a last stride other
than 1, others that are no multiple of 16 bytes) are left to the lesson's kernels.
"""

from academy.runtime import checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.launch import launch
from academy.runtime.replay import replayed

from functools import partial

import torch
import triton
import triton.language as tl

from annotated_examples.common.attention import head, sequence
from annotated_examples.common.attention_tiles import describe, fitting, load_rows
from annotated_examples.common.chunks import (
    between_sums, chunks_of, contract, cut, decays_of_sums, length_of_parts, load_block, load_gates, load_state,
    new_like, new_state, of_keys, of_queries, stages_of, state_product, states_between, store_block, suits, tensor,
)  # fmt: skip
from annotated_examples.common.custom_operator import opaque
from annotated_examples.recurrences import linear_attention as lesson
from annotated_examples.recurrences.linear_attention import (
    attend, key_gradients_kernel, linear_attention_reference, query_gradients_kernel,
)  # fmt: skip


# ## The walk
#
# A program has one head of one sequence, and `BLOCK_E` columns of its state and of v. The state stays in registers.
#
# Packed sequences form one batch entry. There a tile that crosses the end of its sequence is cleaned, because 0 · NaN
# would be NaN. Elsewhere the descriptor delivers zeros behind the last token.
#
# For the backward pass the same kernel leaves the states before all chunks instead of outputs.
@triton.jit
def walk_kernel(
    q_desc, k_desc, v_desc,  # descriptors of (B, Hk, T, D) and (B, H, T, E)
    g_tensor, initial_tensor,  # (pointer, four strides) of (B, H, T) and (sequences, H, D, E), or None
    o_tensor, states_tensor, final_tensor,  # the same, or None: (B, H, T, E), and of each chunk, each sequence a state
    sequences, sizes, H, group, scale,  # where sequences begin; (parts of each, their length, D, E)
    BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    parts, LENGTH, D, E = sizes
    tiles = tl.cdiv(E, BLOCK_E)
    part, h, tile = tl.program_id(0) // tiles // H, tl.program_id(0) // tiles % H, tl.program_id(0) % tiles
    b, begin = part // parts, part % parts * LENGTH
    start, length = sequence(sequences[0], b, sequences[3])
    if states_tensor[0] is not None:
        _, _, first = chunks_of(sequences, b, BLOCK_T)
    PACKED: tl.constexpr = sequences[0] is not None
    entry = 0 if PACKED else b
    offs_d, offs_e = tl.arange(0, BLOCK_D), tile * BLOCK_E + tl.arange(0, BLOCK_E)
    state = load_state(initial_tensor, part, h, offs_d, D, offs_e, E)
    for start_t in tl.range(begin, tl.minimum(length, begin + LENGTH), BLOCK_T, num_stages=STAGES):
        if states_tensor[0] is not None:
            store_block(head(states_tensor, first + start_t // BLOCK_T, h, 0), state, offs_d, D, offs_e, E)
        offs_t = start_t + tl.arange(0, BLOCK_T)
        k = load_rows(k_desc, entry, h // group, start, start_t, length, PACKED, BLOCK_T, BLOCK_D)
        v = load_rows(v_desc, entry, h, start, start_t, length, PACKED, BLOCK_T, BLOCK_E, tile * BLOCK_E)
        sums, left, kept, whole = decays_of_sums(load_gates(g_tensor, b, h, start, offs_t, length))
        if o_tensor[0] is not None:
            q = load_rows(q_desc, entry, h // group, start, start_t, length, PACKED, BLOCK_T, BLOCK_D)
            # [[tag: LA-chunk]]: the scores inside of the chunk, what came before it, and both together.
            p = tl.dot(q, tl.trans(k), input_precision="ieee") * scale * between_sums(sums)
            o = state_product(q, state, "ieee") * (left * scale)[:, None]
            o = tl.dot(p.to(v.dtype), v, o, input_precision="ieee")
            store_block(head(o_tensor, b, h, start), o, offs_t, length, offs_e, E)
        # [[tag: LA-next]]: of the example's first token `pid=0, start_t=0: kept[0] = 0.6065` is left at its chunk's
        # end, and of the state before that chunk `pid=0, start_t=0: whole = 0.2231`.
        state = tl.dot(tl.trans(k), (v * kept[:, None]).to(v.dtype), state * whole, input_precision="ieee")
    if final_tensor[0] is not None:
        store_block(head(final_tensor, part, h, 0), state, offs_d, D, offs_e, E)


# ## The walk back
#
# Gradients of the states go from the last chunk to the first, [[tag: LA-dS]]. It is the same walk, with queries for
# keys and upstream gradients for values: what a token read from the state before its chunk flows back there.
@triton.jit
def walk_back_kernel(
    do_desc, q_desc,  # descriptors of (B, H, T, E) and (B, Hk, T, D)
    g_tensor, dfinal_tensor, dstates_tensor, dinitial_tensor,  # as above, with gradients of the states; None, too
    sequences, sizes, H, group, scale,
    BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    parts, LENGTH, D, E = sizes
    tiles = tl.cdiv(E, BLOCK_E)
    part, h, tile = tl.program_id(0) // tiles // H, tl.program_id(0) // tiles % H, tl.program_id(0) % tiles
    b, begin = part // parts, part % parts * LENGTH
    start, length, first = chunks_of(sequences, b, BLOCK_T)
    PACKED: tl.constexpr = sequences[0] is not None
    entry = 0 if PACKED else b
    offs_d, offs_e = tl.arange(0, BLOCK_D), tile * BLOCK_E + tl.arange(0, BLOCK_E)
    dstate = load_state(dfinal_tensor, part, h, offs_d, D, offs_e, E)
    chunks = tl.cdiv(tl.minimum(length - begin, LENGTH), BLOCK_T)
    for passed in tl.range(0, chunks, num_stages=STAGES):
        start_t = begin + (chunks - 1 - passed) * BLOCK_T
        # The gradient of the state *after* the chunk is what its keys and values need. The example begins with its last
        # two tokens, `pid=0, passed=0: start_t = 2`.
        if dstates_tensor[0] is not None:
            store_block(head(dstates_tensor, first + start_t // BLOCK_T, h, 0), dstate, offs_d, D, offs_e, E)
        q = load_rows(q_desc, entry, h // group, start, start_t, length, PACKED, BLOCK_T, BLOCK_D)
        do = load_rows(do_desc, entry, h, start, start_t, length, PACKED, BLOCK_T, BLOCK_E, tile * BLOCK_E)
        offs_t = start_t + tl.arange(0, BLOCK_T)
        _, left, _, whole = decays_of_sums(load_gates(g_tensor, b, h, start, offs_t, length))
        # Of the state before this chunk the first token has read `pid=0, passed=0: left[0] = 0.7788`. Of its upstream
        # gradient, `pid=0, passed=0: do[0, 0] = -1`, as much comes back, `pid=0, passed=0: read[0, 0] = -0.7788`.
        read = (do * (left * scale)[:, None]).to(do.dtype)
        dstate = tl.dot(tl.trans(q), read, dstate * whole, input_precision="ieee")
    if dinitial_tensor[0] is not None:
        store_block(head(dinitial_tensor, part, h, 0), dstate, offs_d, D, offs_e, E)


# ## A long text of few heads
#
# One program for each head would leave most of the card idle. So a long sequence is cut into parts, which are walked
# along at the same time. First each part starts from nothing, and leaves what its own tokens write. What came before a
# part fades by the product of all its gates. So the true states are a short walk over parts: [[tag: LA-next]] again,
# with a part for a chunk. Then every part is walked along once more, from its true state, and now the outputs are
# stored.
#
# This kernel is the walk over parts. A program has `BLOCK_D` rows of the states of one head. In the end `states_tensor`
# has the state *before* each part. Gradients go from the last part to the first, and fade by the same products: in the
# end `states_tensor` has that of the state *after* each part.
@triton.jit
def join_kernel(
    g_tensor, initial_tensor, states_tensor, final_tensor,  # (B, H, T), (B, H, D, E), (parts, H, D, E), (B, H, D, E)
    T, sizes, H, REVERSE: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    parts, LENGTH, D, E = sizes
    tiles = tl.cdiv(D, BLOCK_D)
    b, h = tl.program_id(0) // tiles // H, tl.program_id(0) // tiles % H
    offs_d, offs_e = tl.program_id(0) % tiles * BLOCK_D + tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_E)
    state = load_state(initial_tensor, b, h, offs_d, D, offs_e, E)
    for passed in tl.range(0, parts):
        n = parts - 1 - passed if REVERSE else passed
        part = head(states_tensor, b * parts + n, h, 0)
        own = load_block(part, offs_d, D, offs_e, E)
        store_block(part, state, offs_d, D, offs_e, E)
        for start_t in tl.range(n * LENGTH, n * LENGTH + LENGTH, BLOCK_T):
            _, _, _, whole = decays_of_sums(load_gates(g_tensor, b, h, 0, start_t + tl.arange(0, BLOCK_T), T))
            state *= whole
        # In the example `pid=0, passed=1, start_t=2: whole = 0.1054` is left of the first part's state after the
        # second, and what that wrote is added.
        state += own
    store_block(head(final_tensor, b, h, 0), state, offs_d, D, offs_e, E)


# ## The launchers
#
# With 64 columns a state takes 64 registers of each of 128 threads, and two programs fit on an SM: while one
# waits for a product, the tensor cores work for the other. With all 128 columns and eight warps only one program would
# fit. Narrower values than that are padded to 64 columns on four warps, see the lesson, whose sizes these are.
def tiles_of(q, v, BLOCK_T, BLOCK_E):
    chosen = lesson.sizes(q, v, BLOCK_T, BLOCK_E)
    return {name: chosen[name] for name in ("BLOCK_T", "BLOCK_D", "BLOCK_E", "num_warps")}


def parts_of(q, v, state, cu_seqlens, tiles, LENGTH):
    """What the walks get: how many parts a sequence has, their length, and the widths of q and v."""
    checks.power_of_two(LENGTH=LENGTH)
    T, programs = q.shape[2], state.shape[0] * state.shape[1] * triton.cdiv(v.shape[3], tiles["BLOCK_E"])
    LENGTH = LENGTH or length_of_parts(T, programs, cu_seqlens)
    return triton.cdiv(T, LENGTH), LENGTH, q.shape[3], v.shape[3]


# A walk goes from the states that it is handed to those that it fills. With several parts it is launched twice, and the
# walk over parts in between.
def walk(kernel, described, g, given, results, last, sequences, sizes, numbers, tiles, reverse=False):
    """Fills `results` and the states `last`, where the walk ends. given: where it begins, states; None: zeros."""
    (parts, LENGTH, D, E), (B, H), nothing = sizes, last.shape[:2], tensor(None)
    stages = stages_of(last, tiles, outputs=not reverse and results[0][0] is not None)

    def along(before, results, after):
        launch(
            kernel, (B * parts * H * triton.cdiv(E, tiles["BLOCK_E"]),),
            (*described, g, before, *results, after, sequences, sizes), numbers, STAGES=stages, **tiles,
        )  # fmt: skip

    before, after = tensor(given), tensor(last)
    if parts > 1:
        before = tensor(last.new_empty(B * parts, H, D, E))
        along(nothing, [nothing] * len(results), before)
        launch(
            join_kernel, (B * H * triton.cdiv(D, 16),), (g, tensor(given), before, after, sequences[3], sizes), (H,),
            REVERSE=reverse, BLOCK_T=min(LENGTH, 1024), BLOCK_D=16, BLOCK_E=triton.next_power_of_2(E),
        )  # fmt: skip
        after = nothing
    along(before, results, after)


@opaque(
    "(Tensor q, Tensor k, Tensor v, Tensor? g, Tensor? initial_state, Tensor? cu_seqlens, *, float scale) "
    "-> (Tensor, Tensor)",
    lambda q, k, v, g, initial, cu_seqlens, **scale: (torch.empty_like(v), new_state(q, v, cu_seqlens)),
)
def linear_attention_forward(q, k, v, g, initial_state, cu_seqlens, *, scale, BLOCK_T=None, BLOCK_E=None, LENGTH=None):
    """`(o, final_state)`, as the lesson's. LENGTH: tokens of a part; None: what was fastest."""
    if not suits(q, k, v):
        tiles = dict(BLOCK_T=BLOCK_T, BLOCK_E=BLOCK_E)
        return lesson.linear_attention_forward(q, k, v, g, initial_state, cu_seqlens, scale=scale, **tiles)
    tiles, o, final = tiles_of(q, v, BLOCK_T, BLOCK_E), new_like(v, cu_seqlens), new_state(q, v, cu_seqlens)
    T, D, E = (tiles[name] for name in ("BLOCK_T", "BLOCK_D", "BLOCK_E"))
    if final.numel():
        described = describe(q, T, D), describe(k, T, D), describe(v, T, E)
        sizes, H = parts_of(q, v, final, cu_seqlens, tiles, LENGTH), v.shape[1]
        shared = (cu_seqlens, None, None, q.shape[2]), sizes, (H, H // q.shape[1], scale), tiles
        results = tensor(o, cu_seqlens), tensor(None)
        walk(walk_kernel, described, tensor(g, cu_seqlens), initial_state, results, final, *shared)
    return o, final


# Backward takes both walks, once more for the states and once for their gradients, and then the lesson's two kernels
# for what happens inside of a chunk. They find the states where the lesson's walks leave them.
@opaque(
    "(Tensor? do, Tensor? dfinal, Tensor q, Tensor k, Tensor v, Tensor? g, Tensor? initial_state, Tensor? cu_seqlens, "
    "*, float scale) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    lambda do, dfinal, q, k, v, g, initial, cu_seqlens, **scale: (
        *(torch.empty_like(x) for x in (q, k, v, v.new_empty(0) if g is None else g)), new_state(q, v, cu_seqlens)
    ),
)  # fmt: skip
def linear_attention_backward(
    do, dfinal, q, k, v, g, initial_state, cu_seqlens, *, scale, BLOCK_T=None, BLOCK_E=None, LENGTH=None
):
    """`(dq, dk, dv, dg, dinitial)`, as the lesson's."""
    if not suits(q, k, v):
        given = dict(scale=scale, BLOCK_T=BLOCK_T, BLOCK_E=BLOCK_E)
        return lesson.linear_attention_backward(do, dfinal, q, k, v, g, initial_state, cu_seqlens, **given)
    constants, packed = lesson.sizes(q, v, BLOCK_T, BLOCK_E), partial(tensor, cu_seqlens=cu_seqlens)
    tiles, dinitial = tiles_of(q, v, BLOCK_T, BLOCK_E), new_state(q, v, cu_seqlens)
    T, D, E = (tiles[name] for name in ("BLOCK_T", "BLOCK_D", "BLOCK_E"))
    chunks, (Hk, H) = cut(q, cu_seqlens, T), (q.shape[1], v.shape[1])
    do = torch.zeros_like(v) if do is None else fitting(do)
    states = states_between(k, dinitial, chunks)
    dstates, (dq, dk, dv) = torch.empty_like(states), (new_like(x, cu_seqlens) for x in (q, k, v))
    dg = None if g is None else new_like(g, cu_seqlens, torch.float32)
    nothing = tensor(None)
    if dinitial.numel():
        sizes = parts_of(q, v, dinitial, cu_seqlens, tiles, LENGTH)
        shared = chunks.sequences, sizes, (H, H // Hk, scale), tiles
        # The states after the last tokens aren't needed. They go where the walk back will leave its own.
        described = describe(k, T, D), describe(k, T, D), describe(v, T, E)
        walk(walk_kernel, described, packed(g), initial_state, (nothing, tensor(states)), dinitial, *shared)
        described = describe(do, T, E), describe(q, T, D)
        walk(walk_back_kernel, described, packed(g), dfinal, (tensor(dstates),), dinitial, *shared, reverse=True)
        grid, inputs = (chunks.count * Hk,), [packed(x) for x in (do, q, k, v, g)]
        launch(
            query_gradients_kernel, grid,
            (*inputs, tensor(states), tensor(dstates), packed(dq), packed(dg), chunks.sequences),
            (Hk, H // Hk, scale), **of_queries(constants),
        )  # fmt: skip
        launch(
            key_gradients_kernel, grid,
            (*inputs, tensor(dstates), packed(dk), packed(dv), packed(dg), chunks.sequences),
            (Hk, H // Hk, scale), **of_keys(constants),
        )  # fmt: skip
    return dq, dk, dv, v.new_empty(0) if g is None else dg.to(g.dtype), dinitial


# ## Public functions
LAUNCHERS = (linear_attention_forward, linear_attention_backward)


@replayed
def linear_attention(q, k, v, g=None, *, scale=None, initial_state=None, return_final_state=False):
    """The same as `annotated_examples.recurrences.linear_attention.linear_attention`, but faster.

    Args: as `annotated_examples.recurrences.linear_attention.linear_attention`.

    Returns:
        o, or (o, state), as the lesson's.

    Raises:
        TypeError, ValueError: as the lesson's.

    Source: Dao and Gu, "Transformers are SSMs" (arXiv 2405.21060); Sun et al., "Retentive Network" (arXiv 2307.08621).
    """
    scale = contract(q, k, v, g, scale, initial_state, return_final_state)
    q, k, v, g = (None if x is None else x.transpose(1, 2) for x in (q, k, v, g))
    o, final = attend(q, k, v, g, initial_state, None, scale, *LAUNCHERS)
    return (o.transpose(1, 2), final) if return_final_state else o.transpose(1, 2)


@replayed
def linear_attention_varlen(q, k, v, cu_seqlens, g=None, *, scale=None, initial_state=None, return_final_state=False):
    """The same as `annotated_examples.recurrences.linear_attention.linear_attention_varlen`, but faster.

    Args: as `annotated_examples.recurrences.linear_attention.linear_attention_varlen`.

    Returns:
        o, or (o, state), as the lesson's.

    Raises:
        TypeError, ValueError: as the lesson's.

    Source: as `linear_attention`.
    """
    scale = contract(q, k, v, g, scale, initial_state, return_final_state, cu_seqlens, packed=True)
    q, k, v, g = (None if x is None else x.transpose(0, 1).unsqueeze(0) for x in (q, k, v, g))
    o, final = attend(q, k, v, g, initial_state, cu_seqlens, scale, *LAUNCHERS)
    o = o.squeeze(0).transpose(0, 1)
    return (o, final) if return_final_state else o


# ## A run small enough to watch
#
# Four tokens in chunks of two, one head of 8 numbers: a descriptor's rows have at least 16 bytes. Then the same in two
# parts, each of one chunk, and the gradients.
def EXAMPLE():
    at = torch.arange(32, device=device.DEVICE)
    q, k, v = ((at * step % 5 - 2).half().view(1, 1, 4, 8) for step in (1, 3, 7))
    g = torch.tensor([[[-1.0, -0.5, -0.25, -2.0]]], device=device.DEVICE)
    linear_attention_forward(q, k, v, g, None, None, scale=1.0, BLOCK_T=2, BLOCK_E=8)
    linear_attention_forward(q, k, v, g, None, None, scale=1.0, BLOCK_T=2, BLOCK_E=8, LENGTH=2)
    linear_attention_backward(v.flip(2), None, q, k, v, g, None, None, scale=1.0, BLOCK_T=2, BLOCK_E=8)


if __name__ == "__main__":
    script.main(linear_attention, linear_attention_reference)
