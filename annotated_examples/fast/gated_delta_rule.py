r"""
# The gated delta rule, fast

The same function as in the [lesson](../recurrences/gated_delta_rule.py), with the same reference and arguments.

[[eq: GD-U]]

What is slow about the lesson? It prepares two tensors, $W$ and $U^0$, so that the walk has little to do, and writes a
state for each chunk, so that the outputs wait for nobody. All of that is written and read again. With enough heads a
walk can do all of it on its way.

[[figure: chunks/corrections]]

1. *Only the inverses are prepared.* They need keys, gates and $\beta$ alone, and take 8 KB for each head and chunk of
   64 tokens, half of what its keys of 128 numbers take.
2. *One walk for the rest.* It asks the state, solves the chunk's system with the inverse, computes the outputs, and
   moves the state on. Nothing else is stored. Backward the same walk stores the states and the differences instead of
   the outputs.
3. *The TMA unit, and sums of gates*, as in [fast linear attention](linear_attention.py).
4. *Backward: two sides.* A key asks, and it was written. The lesson's kernel for both has more sums than registers.
   Here one kernel has the keys that ask: they read from the same state as queries do. The other has those that were
   written, to which queries and later keys come back.
5. *A long text of few heads is cut into parts*, which are walked along at the same time. What a part does to a state is
   a matrix, and that takes another walk: so it pays only where most of the card would be idle. On an H100 one text of
   16384 tokens takes [[bench: gated_delta_rule/ladder/parts/1x16384_ms]] that way, in one walk
   [[bench: gated_delta_rule/ladder/one walk/1x16384_ms]], and with flash-linear-attention
   [[bench: gated_delta_rule/ladder/fla/1x16384_ms]]. Eight of 4096 tokens, which aren't cut, take
   [[bench: gated_delta_rule/ladder/parts/8x4096_ms]], and with flash-linear-attention
   [[bench: gated_delta_rule/ladder/fla/8x4096_ms]].

**What it costs.** Per chunk of $C$ tokens and head, forward: $2 C^3$ multiplications for each doubling on the way to
the inverse, five of them for 64 tokens, and $C^2 (2 D + 2 E) + 3 C D E$ in products. The product of queries and keys is
made once for every `BLOCK_E` columns of the state. Inverses are written and read; backward states and differences, too.

**What is missing.** Packed sequences aren't cut: the host doesn't know how long they are. A single long one is walked
along by one program for each head and 64 columns.

**What was tried.** The inverses in float16, which has as many digits as TF32: with eight texts of 4096 tokens and 16
heads, on an H200, 18 % less time forward, and 4 % less backward. But keys longer than 1 may lead to numbers that
float16 doesn't have, and so to NaN.

**Contract.** As the lesson's. float32, heads wider than 128, and strides that no descriptor fits are left to the
lesson's kernels.
"""

from academy.runtime import checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.launch import launch
from academy.runtime.replay import replayed

from functools import partial

import torch
import triton
import triton.language as tl

from annotated_examples.common.attention import head, store_numbers
from annotated_examples.common.attention_tiles import describe, fitting, load_rows
from annotated_examples.common.chunks import (
    between_sums, chunk_at, chunks_of, contract, cut, decays_of_sums, gate_gradient, inverse_of_system, load_block,
    load_gates, load_state, new_like, new_state, stages_of, state_product, states_between, store_block, suits,
    sums_from, tensor,
)  # fmt: skip
from annotated_examples.common.custom_operator import opaque
from annotated_examples.common.delta_rule import attend, from_part_to_part, parts_of
from annotated_examples.recurrences import gated_delta_rule as lesson
from annotated_examples.recurrences.gated_delta_rule import gated_delta_rule_reference
from annotated_examples.recurrences.linear_attention import query_gradients_kernel


# ## The inverses
#
# [[tag: GD-T]], a program for each chunk of each head, by the lesson's function. TF32 is exact enough: the
# inverse is rounded to 16 bits when it is stored.
@triton.jit
def inverses_kernel(
    k_desc,  # a descriptor of (B, Hk, T, D)
    g_tensor, beta_tensor, inverse_tensor,  # (pointer, four strides) of (B, H, T) and (chunks, H, BLOCK_T, BLOCK_T)
    sequences, H, group, BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    c, h = tl.program_id(0) // H, tl.program_id(0) % H
    b, start, length, start_t = chunk_at(sequences, c, BLOCK_T)
    if start_t >= length:
        return
    PACKED: tl.constexpr = sequences[0] is not None
    place = tl.arange(0, BLOCK_T)
    offs_t = start_t + place
    k = load_rows(k_desc, 0 if PACKED else b, h // group, start, start_t, length, PACKED, BLOCK_T, BLOCK_D)
    g, beta = load_gates(g_tensor, b, h, start, offs_t, length), load_gates(beta_tensor, b, h, start, offs_t, length)
    sums, _, _, _ = decays_of_sums(g)
    overlap = tl.dot(k, tl.trans(k), input_precision="ieee") * between_sums(sums) * beta[:, None]
    # The example's third token has the key of the first, `pid=0: a[2] = [1, 0, 0, 0, 0, 0, 0, 0]`, and the fourth that
    # of the second, with a β of a half, `pid=0: a[3, 1] = 0.5`. So the inverse takes off what those had written,
    # `pid=0: inverse[2, 0] = -1` and `pid=0: inverse[3, 1] = -0.5`, without its ones, `pid=0: inverse[0, 0] = 0`.
    a = tl.where(place[:, None] > place[None, :], overlap, 0.0)
    inverse = inverse_of_system(a, BLOCK_T, "tf32")
    store_block(head(inverse_tensor, c, h, 0), inverse, place, BLOCK_T, place, BLOCK_T)


# ## The walk
#
# A program has one head of one sequence and `BLOCK_E` columns of its state. It asks the state before the chunk,
# and the inverse takes off what the chunk's own tokens had written, [[tag: GD-U]].
#
# Forward stores the outputs. Backward stores each state and the differences, for the kernels behind it.
@triton.jit
def walk_kernel(
    q_desc, k_desc, v_desc, inverse_desc,  # descriptors of (B, Hk, T, D), (B, H, T, E), (chunks, H, BLOCK_T, BLOCK_T)
    g_tensor, beta_tensor, initial_tensor,  # (pointer, four strides) of (B, H, T) and (sequences, H, D, E)
    o_tensor, u_tensor, states_tensor, final_tensor,  # the same: (B, H, T, E), and (chunks or sequences, H, D, E)
    sequences, sizes, H, group, scale,  # sizes: (parts of each sequence, their length, D, E)
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
    state = load_state(initial_tensor, part, h, offs_d, D, offs_e, E)
    for start_t in tl.range(begin, tl.minimum(length, begin + LENGTH), BLOCK_T, num_stages=STAGES):
        offs_t, c = start_t + tl.arange(0, BLOCK_T), first + start_t // BLOCK_T
        if states_tensor[0] is not None:
            store_block(head(states_tensor, c, h, 0), state, offs_d, D, offs_e, E)
        k = load_rows(k_desc, entry, h // group, start, start_t, length, PACKED, BLOCK_T, BLOCK_D)
        if v_desc is None:
            v = 0.0
        else:
            v = load_rows(v_desc, entry, h, start, start_t, length, PACKED, BLOCK_T, BLOCK_E, tile * BLOCK_E)
        inverse = load_rows(inverse_desc, c, h, 0, 0, BLOCK_T, False, BLOCK_T, BLOCK_T)
        beta = load_gates(beta_tensor, b, h, start, offs_t, length)
        sums, left, kept, whole = decays_of_sums(load_gates(g_tensor, b, h, start, offs_t, length))
        # What the state before the chunk would leave to be written, and then what is left of it beside the chunk's own
        # tokens, [[tag: GD-U]]. In the example the third token wants to write `pid=0, start_t=0: r[2, 1] = 4` where the
        # first has written `pid=0, start_t=0: u[0, 1] = 2`, so it writes `pid=0, start_t=0: u[2, 1] = 2`. The fourth
        # has a share of `pid=0, start_t=0: beta[3] = 0.5`.
        r = (v - state_product(k, state, "ieee") * left[:, None]) * beta[:, None]
        u = tl.dot(inverse, r.to(k.dtype), r, input_precision="ieee")
        if u_tensor[0] is not None:
            store_block(head(u_tensor, b, h, start), u, offs_t, length, offs_e, E)
        if o_tensor[0] is not None:
            q = load_rows(q_desc, entry, h // group, start, start_t, length, PACKED, BLOCK_T, BLOCK_D)
            # [[tag: GD-chunk]], which is linear attention with u for v. The second query takes
            # `pid=0, start_t=0: p[1, 0] = 2` of the first token, and `pid=0, start_t=0: p[1, 1] = 0` of its own.
            p = tl.dot(q, tl.trans(k), input_precision="ieee") * scale * between_sums(sums)
            o = state_product(q, state, "ieee") * (left * scale)[:, None]
            o = tl.dot(p.to(k.dtype), u.to(k.dtype), o, input_precision="ieee")
            store_block(head(o_tensor, b, h, start), o, offs_t, length, offs_e, E)
        state = tl.dot(tl.trans(k), (u * kept[:, None]).to(k.dtype), state * whole, input_precision="ieee")
    if final_tensor[0] is not None:
        store_block(head(final_tensor, part, h, 0), state, offs_d, D, offs_e, E)


# ## The walk back
#
# From the last chunk to the first, with the gradient of the state in registers: [[tag: GD-dU]], [[tag: GD-dR]] and
# [[tag: GD-dS]], as in the lesson.
@triton.jit
def walk_back_kernel(
    do_desc, q_desc, k_desc, inverse_desc, g_tensor, beta_tensor,  # as above
    dfinal_tensor, dr_tensor, dstates_tensor, dinitial_tensor,  # like the final state, v, the states, the initial state
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
        n = chunks - 1 - passed
        start_t = begin + n * BLOCK_T
        offs_t, c = start_t + tl.arange(0, BLOCK_T), first + start_t // BLOCK_T
        if dstates_tensor[0] is not None:
            store_block(head(dstates_tensor, c, h, 0), dstate, offs_d, D, offs_e, E)
        q = load_rows(q_desc, entry, h // group, start, start_t, length, PACKED, BLOCK_T, BLOCK_D)
        k = load_rows(k_desc, entry, h // group, start, start_t, length, PACKED, BLOCK_T, BLOCK_D)
        do = load_rows(do_desc, entry, h, start, start_t, length, PACKED, BLOCK_T, BLOCK_E, tile * BLOCK_E)
        inverse = load_rows(inverse_desc, c, h, 0, 0, BLOCK_T, False, BLOCK_T, BLOCK_T)
        beta = load_gates(beta_tensor, b, h, start, offs_t, length)
        sums, left, kept, whole = decays_of_sums(load_gates(g_tensor, b, h, start, offs_t, length))
        # A row for each token that was written, `pid=0, passed=0: p[0, 1] = 2`: the second query took 2 of the first.
        p = tl.dot(k, tl.trans(q), input_precision="ieee") * scale * between_sums(sums, True)
        du = state_product(k, dstate, "ieee") * kept[:, None]
        du = tl.dot(p.to(do.dtype), do, du, input_precision="ieee")
        dr = tl.dot(tl.trans(inverse), du.to(do.dtype), du, input_precision="ieee")
        if dr_tensor[0] is not None:
            store_block(head(dr_tensor, b, h, start), dr, offs_t, length, offs_e, E)
        # The first token's value gets a gradient of `pid=0, passed=0: dr[0, 1] = 8`, and the state that it asked the
        # opposite, `pid=0, passed=0: asked[0, 1] = -8`.
        asked, read = (dr * -(beta * left)[:, None]).to(k.dtype), (do * (left * scale)[:, None]).to(do.dtype)
        dstate = tl.dot(tl.trans(q), read, dstate * whole, input_precision="ieee")
        dstate = tl.dot(tl.trans(k), asked, dstate, input_precision="ieee")
    if dinitial_tensor[0] is not None:
        store_block(head(dinitial_tensor, part, h, 0), dstate, offs_d, D, offs_e, E)


# ## Keys that ask
#
# A row for each key that asks: it gets a gradient from every earlier key of its chunk, and from the state before it.
# The state's answer isn't computed again. A key times its gradient through the state is the same sum, as the lesson
# says: $dR_i \cdot (S^T k_i) = k_i \cdot (S \, dR_i)$.
#
# dq and linear attention's part of dg come from the lesson's kernel, with u for v. This one adds to dg.
@triton.jit
def asking_kernel(
    k_tensor, v_tensor, g_tensor, beta_tensor, u_tensor, dr_tensor, states_tensor,  # as above
    dk_tensor, dv_tensor, dg_tensor, dbeta_tensor,  # like k, v, g and beta
    sequences, heads, group, D: tl.constexpr, E: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    c, hk = tl.program_id(0) // heads, tl.program_id(0) % heads
    b, start, length, start_t = chunk_at(sequences, c, BLOCK_T)
    if start_t >= length:
        return
    place, offs_d = tl.arange(0, BLOCK_T), tl.arange(0, BLOCK_D)
    offs_t = start_t + place
    dk = tl.zeros((BLOCK_T, BLOCK_D), tl.float32)
    for member in tl.range(0, group):
        h = hk * group + member
        beta = load_gates(beta_tensor, b, h, start, offs_t, length)
        da, dk_state = tl.zeros((BLOCK_T, BLOCK_T), tl.float32), tl.zeros((BLOCK_T, BLOCK_D), tl.float32)
        dbeta = tl.zeros((BLOCK_T,), tl.float32)
        for start_e in tl.range(0, E, BLOCK_E):
            offs_e = start_e + tl.arange(0, BLOCK_E)
            u = load_block(head(u_tensor, b, h, start), offs_t, length, offs_e, E)
            dr = load_block(head(dr_tensor, b, h, start), offs_t, length, offs_e, E)
            state = load_block(head(states_tensor, c, h, 0), offs_d, D, offs_e, E)
            da = tl.dot(dr, tl.trans(u), da, input_precision="ieee")
            dk_state += state_product(dr, tl.trans(state), "ieee")
            # dV is a share of dR: of all of `pid=0, member=0, start_e=0: dr[0, 1] = 8` for the first token, and of half
            # of it for the fourth, `pid=0, member=0: beta[3] = 0.5`.
            v = load_block(head(v_tensor, b, h, start), offs_t, length, offs_e, E)
            dbeta += tl.sum(dr.to(tl.float32) * v, axis=1)
            store_block(head(dv_tensor, b, h, start), dr * beta[:, None], offs_t, length, offs_e, E)
        # [[tag: GD-dA]]
        k = load_block(head(k_tensor, b, hk, start), offs_t, length, offs_d, D)
        sums, left, _, _ = decays_of_sums(load_gates(g_tensor, b, h, start, offs_t, length))
        da = tl.where(place[:, None] > place[None, :], -da, 0.0) * between_sums(sums)
        asked = tl.dot(da.to(k.dtype), k, input_precision="ieee")
        dk_state *= left[:, None]
        answer = tl.sum(k * dk_state, axis=1)
        dbeta += tl.sum(k * asked, axis=1) - answer
        dk += (asked - dk_state) * beta[:, None]
        if dg_tensor[0] is not None:
            dg = sums_from(-beta * answer) + load_gates(dg_tensor, b, h, start, offs_t, length)
            store_numbers(head(dg_tensor, b, h, start), dg, offs_t, length)
        store_numbers(head(dbeta_tensor, b, h, start), dbeta, offs_t, length)
    store_block(head(dk_tensor, b, hk, start), dk, offs_t, length, offs_d, D)


# ## Keys that were written
#
# A row for each key that was written: gradients come back from queries, from later keys that asked, and from the state
# after the chunk. Both kinds of pairs count for the gates between them, and are added up in one product.
@triton.jit
def written_kernel(
    do_tensor, dr_tensor, q_tensor, k_tensor, g_tensor, beta_tensor, u_tensor, dstates_tensor,  # as above
    dk_tensor, dg_tensor,  # both are added to
    sequences, heads, group, scale, D: tl.constexpr, E: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    c, hk = tl.program_id(0) // heads, tl.program_id(0) % heads
    b, start, length, start_t = chunk_at(sequences, c, BLOCK_T)
    if start_t >= length:
        return
    place, offs_d = tl.arange(0, BLOCK_T), tl.arange(0, BLOCK_D)
    offs_t = start_t + place
    dk = tl.zeros((BLOCK_T, BLOCK_D), tl.float32)
    for member in tl.range(0, group):
        h = hk * group + member
        dp, da = tl.zeros((BLOCK_T, BLOCK_T), tl.float32), tl.zeros((BLOCK_T, BLOCK_T), tl.float32)
        dk_state = tl.zeros((BLOCK_T, BLOCK_D), tl.float32)
        for start_e in tl.range(0, E, BLOCK_E):
            offs_e = start_e + tl.arange(0, BLOCK_E)
            u = load_block(head(u_tensor, b, h, start), offs_t, length, offs_e, E)
            do = load_block(head(do_tensor, b, h, start), offs_t, length, offs_e, E)
            dr = load_block(head(dr_tensor, b, h, start), offs_t, length, offs_e, E)
            dstate = load_block(head(dstates_tensor, c, h, 0), offs_d, D, offs_e, E)
            # Both are products of what was written, such as `pid=0, member=0, start_e=0: u[2, 1] = 2`, and of the
            # gradient of an output, or of what a later key asked, `pid=0, member=0, start_e=0: dr[0, 1] = 8`.
            dp = tl.dot(u, tl.trans(do), dp, input_precision="ieee")
            da = tl.dot(u, tl.trans(dr), da, input_precision="ieee")
            dk_state += state_product(u, tl.trans(dstate), "ieee")
        # What isn't needed in the loop is loaded after it: four sums are all that fits in the registers.
        q = load_block(head(q_tensor, b, hk, start), offs_t, length, offs_d, D)
        k = load_block(head(k_tensor, b, hk, start), offs_t, length, offs_d, D)
        beta = load_gates(beta_tensor, b, h, start, offs_t, length)
        sums, _, kept, _ = decays_of_sums(load_gates(g_tensor, b, h, start, offs_t, length))
        decay = between_sums(sums, True)
        dp *= decay * scale
        da = tl.where(place[:, None] < place[None, :], -da, 0.0) * decay * beta[None, :]
        dk_state *= kept[:, None]
        if dg_tensor[0] is not None:
            passed = dp * tl.dot(k, tl.trans(q), input_precision="ieee")
            passed += da * tl.dot(k, tl.trans(k), input_precision="ieee")
            dg = gate_gradient(passed, tl.sum(k * dk_state, axis=1), k.dtype)
            dg += load_gates(dg_tensor, b, h, start, offs_t, length)
            store_numbers(head(dg_tensor, b, h, start), dg, offs_t, length)
        dk_state = tl.dot(dp.to(q.dtype), q, dk_state, input_precision="ieee")
        dk += tl.dot(da.to(k.dtype), k, dk_state, input_precision="ieee")
    dk += load_block(head(dk_tensor, b, hk, start), offs_t, length, offs_d, D)
    store_block(head(dk_tensor, b, hk, start), dk, offs_t, length, offs_d, D)


# ## The launchers
def tiles_of(q, v, BLOCK_T, BLOCK_E):
    checks.power_of_two(BLOCK_T=BLOCK_T, BLOCK_E=BLOCK_E)
    D, E = (max(16, triton.next_power_of_2(x.shape[3])) for x in (q, v))
    # Beside keys wider than 32, on four warps, values are padded to 64 columns: see the lesson of linear attention.
    E = min(64, E) if D <= 32 else 64
    return dict(BLOCK_T=BLOCK_T or 64, BLOCK_D=D, BLOCK_E=BLOCK_E or E, num_warps=2 if D <= 32 else 4)


# Two launches: the inverses of all chunks, and the walk. Forward fills `o`, backward `u` and `states`. With several
# parts there are three more: what each part does to a state, what it writes, and the walk over parts.
def walk(q, k, v, g, beta, initial_state, cu_seqlens, scale, chunks, tiles, sizes, *, o=None, u=None, states=None):
    """The inverses, (chunks, H, BLOCK_T, BLOCK_T), the states after all sequences, and what each part does to one."""
    packed, (Hk, H) = partial(tensor, cu_seqlens=cu_seqlens), (q.shape[1], v.shape[1])
    (T, D, E), final = (tiles[name] for name in ("BLOCK_T", "BLOCK_D", "BLOCK_E")), new_state(q, v, cu_seqlens)
    inverse, passed, nothing = k.new_empty(chunks.count, H, T, T), None, tensor(None)
    if chunks.batch:
        launch(
            inverses_kernel, (chunks.count * H,),
            (describe(k, T, D), packed(g), packed(beta), tensor(inverse), chunks.sequences), (H, H // Hk),
            BLOCK_T=T, BLOCK_D=D, num_warps=tiles["num_warps"],
        )  # fmt: skip

        def along(before, after, results=(nothing,) * 3, values=v):
            width = sizes[3] if values is not None else sizes[2]
            described = (
                describe(q, T, D),
                describe(k, T, D),
                describe(v, T, E) if values is not None else None,
                describe(inverse, T, T),
            )
            launch(
                walk_kernel, (chunks.batch * sizes[0] * H * triton.cdiv(width, E),),
                (*described, packed(g), packed(beta), before, *results, after, chunks.sequences, (*sizes[:3], width)),
                (H, H // Hk, scale), STAGES=stages_of(q, tiles, outputs=True), **tiles,
            )  # fmt: skip

        before, after = tensor(initial_state), tensor(final)
        if sizes[0] > 1:
            shape = chunks.batch * sizes[0], H, q.shape[3], q.shape[3]
            passed, ones = final.new_empty(shape), torch.eye(q.shape[3], device=q.device).expand(shape)
            along(tensor(ones), tensor(passed), values=None)
            before, after = from_part_to_part(along, passed, initial_state, final, False, tiles), nothing
        along(before, after, (packed(o), packed(u), tensor(states)))
    return inverse, final, passed


@opaque(
    "(Tensor q, Tensor k, Tensor v, Tensor? g, Tensor beta, Tensor? initial_state, Tensor? cu_seqlens, *, float scale) "
    "-> (Tensor, Tensor)",
    lambda q, k, v, g, beta, initial, cu_seqlens, **scale: (torch.empty_like(v), new_state(q, v, cu_seqlens)),
)
def gated_delta_rule_forward(
    q, k, v, g, beta, initial_state, cu_seqlens, *, scale, BLOCK_T=None, BLOCK_E=None, LENGTH=None
):
    """`(o, final_state)`, as the lesson's."""
    if not suits(q, k, v):
        given = dict(scale=scale, BLOCK_T=BLOCK_T, BLOCK_E=BLOCK_E)
        return lesson.gated_delta_rule_forward(q, k, v, g, beta, initial_state, cu_seqlens, **given)
    tiles, o = tiles_of(q, v, BLOCK_T, BLOCK_E), new_like(v, cu_seqlens)
    chunks = cut(q, cu_seqlens, tiles["BLOCK_T"])
    sizes = parts_of(q, v, cu_seqlens, chunks, tiles, LENGTH)
    return o, walk(q, k, v, g, beta, initial_state, cu_seqlens, scale, chunks, tiles, sizes, o=o)[1]


@opaque(
    "(Tensor? do, Tensor? dfinal, Tensor q, Tensor k, Tensor v, Tensor? g, Tensor beta, Tensor? initial_state, "
    "Tensor? cu_seqlens, *, float scale) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    lambda do, dfinal, q, k, v, g, beta, initial, cu_seqlens, **scale: (
        *(torch.empty_like(x) for x in (q, k, v, v.new_empty(0) if g is None else g, beta)), new_state(q, v, cu_seqlens)
    ),
)  # fmt: skip
def gated_delta_rule_backward(
    do, dfinal, q, k, v, g, beta, initial_state, cu_seqlens, *, scale, BLOCK_T=None, BLOCK_E=None, LENGTH=None
):
    """`(dq, dk, dv, dg, dbeta, dinitial)`, as the lesson's."""
    if not suits(q, k, v):
        given = dict(scale=scale, BLOCK_T=BLOCK_T, BLOCK_E=BLOCK_E)
        return lesson.gated_delta_rule_backward(do, dfinal, q, k, v, g, beta, initial_state, cu_seqlens, **given)
    packed, (Hk, H) = partial(tensor, cu_seqlens=cu_seqlens), (q.shape[1], v.shape[1])
    tiles = tiles_of(q, v, BLOCK_T, BLOCK_E)
    T, D, E = (tiles[name] for name in ("BLOCK_T", "BLOCK_D", "BLOCK_E"))
    chunks = cut(q, cu_seqlens, T)
    do = torch.zeros_like(v) if do is None else fitting(do)
    u, dr = new_like(v, cu_seqlens), new_like(v, cu_seqlens)
    states = states_between(k, new_state(q, v, cu_seqlens), chunks)
    sizes = parts_of(q, v, cu_seqlens, chunks, tiles, LENGTH)
    given = q, k, v, g, beta, initial_state, cu_seqlens, scale, chunks, tiles, sizes
    inverse, dinitial, passed = walk(*given, u=u, states=states)
    dstates, (dq, dk, dv, dbeta) = torch.empty_like(states), (new_like(x, cu_seqlens) for x in (q, k, v, beta))
    dg = None if g is None else new_like(g, cu_seqlens, torch.float32)
    if chunks.batch:
        described = describe(do, T, E), describe(q, T, D), describe(k, T, D), describe(inverse, T, T)
        nothing = tensor(None)

        def back(after, before, results=(nothing, nothing)):
            launch(
                walk_back_kernel, (chunks.batch * sizes[0] * H * triton.cdiv(v.shape[3], E),),
                (*described, packed(g), packed(beta), after, *results, before, chunks.sequences, sizes),
                (H, H // Hk, scale), STAGES=stages_of(q, tiles, outputs=True), **tiles,
            )  # fmt: skip

        after, before = tensor(dfinal), tensor(dinitial)
        if passed is not None:
            after, before = from_part_to_part(back, passed.mT, dfinal, dinitial, True, tiles), nothing
        back(after, before, (packed(dr), tensor(dstates)))
        # One stage: no tile is loaded before the last one was used. With two the second of these kernels gave other
        # bits from call to call, on an H200. Triton 3.6 and 3.7 keep a tile that is both multiplied and used number by
        # number, as dR is, in a single place, and copy the next one there while the tensor cores may still read it.
        grid, known = (chunks.count * Hk,), tiles | dict(D=q.shape[3], E=v.shape[3])
        read, results = (do, q, k, u, g), (dk, dv, dg, dbeta)
        launch(
            query_gradients_kernel, grid,
            (*map(packed, read), tensor(states), tensor(dstates), packed(dq), packed(dg), chunks.sequences),
            (Hk, H // Hk, scale), INPUT_PRECISION="ieee", num_stages=1, **known,
        )  # fmt: skip
        launch(
            asking_kernel, grid,
            (*map(packed, (k, v, g, beta, u, dr)), tensor(states), *map(packed, results), chunks.sequences),
            (Hk, H // Hk), num_stages=1, **known,
        )  # fmt: skip
        launch(
            written_kernel, grid,
            (*map(packed, (do, dr, q, k, g, beta, u)), tensor(dstates), packed(dk), packed(dg), chunks.sequences),
            (Hk, H // Hk, scale), num_stages=1, **known,
        )  # fmt: skip
    return dq, dk, dv, v.new_empty(0) if g is None else dg.to(g.dtype), dbeta, dinitial


# ## Public functions
LAUNCHERS = gated_delta_rule_forward, gated_delta_rule_backward


@replayed
def gated_delta_rule(q, k, v, g, beta, *, scale=None, initial_state=None, return_final_state=False):
    """The same as `annotated_examples.recurrences.gated_delta_rule.gated_delta_rule`, but faster.

    Args: as `annotated_examples.recurrences.gated_delta_rule.gated_delta_rule`.

    Returns:
        o, or (o, state), as the lesson's.

    Raises:
        TypeError, ValueError: as the lesson's.

    Source: Yang et al., "Gated Delta Networks" (arXiv 2412.06464) and "Parallelizing Linear Transformers with the Delta
    Rule over Sequence Length" (arXiv 2406.06484).
    """
    scale = contract(q, k, v, g, scale, initial_state, return_final_state, beta=beta)
    q, k, v, g, beta = (None if x is None else x.transpose(1, 2) for x in (q, k, v, g, beta))
    o, final = attend(q, k, v, g, beta, initial_state, None, scale, *LAUNCHERS)
    return (o.transpose(1, 2), final) if return_final_state else o.transpose(1, 2)


@replayed
def gated_delta_rule_varlen(q, k, v, g, beta, cu_seqlens, *, scale=None, initial_state=None, return_final_state=False):
    """The same as `annotated_examples.recurrences.gated_delta_rule.gated_delta_rule_varlen`, but faster.

    Args: as `annotated_examples.recurrences.gated_delta_rule.gated_delta_rule_varlen`.

    Returns:
        o, or (o, state), as the lesson's.

    Raises:
        TypeError, ValueError: as the lesson's.

    Source: as `gated_delta_rule`.
    """
    scale = contract(q, k, v, g, scale, initial_state, return_final_state, cu_seqlens, packed=True, beta=beta)
    q, k, v, g, beta = (None if x is None else x.transpose(0, 1).unsqueeze(0) for x in (q, k, v, g, beta))
    o, final = attend(q, k, v, g, beta, initial_state, cu_seqlens, scale, *LAUNCHERS)
    o = o.squeeze(0).transpose(0, 1)
    return (o, final) if return_final_state else o


# ## A run small enough to watch
#
# Four tokens in a chunk of eight. The keys are the first two columns of an identity, and both again: the third token
# replaces what the first wrote.
def EXAMPLE():
    at = torch.arange(32, device=device.DEVICE)
    k = torch.eye(8, device=device.DEVICE).half()[[0, 1, 0, 1]].view(1, 1, 4, 8)
    q, v = (at * 3 % 5 - 2).half().view(1, 1, 4, 8), (at * 7 % 5).half().view(1, 1, 4, 8)
    beta = torch.tensor([[[1.0, 1.0, 1.0, 0.5]]], device=device.DEVICE)
    how = dict(scale=1.0, BLOCK_T=8, BLOCK_E=8)
    gated_delta_rule_forward(q, k, v, None, beta, None, None, **how)
    gated_delta_rule_backward(v.flip(2), None, q, k, v, None, beta, None, None, **how)


if __name__ == "__main__":
    script.main(gated_delta_rule, gated_delta_rule_reference)
