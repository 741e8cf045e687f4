r"""
# Kimi delta attention, fast

The same function as in the [lesson](../recurrences/kda.py), with the same reference and arguments. The walks are those
of the [fast gated delta rule](gated_delta_rule.py), which should be read first. New is what a gate for each channel
makes of it.

[[eq: KDA-chunk]]

What is slow about the lesson? On each of its levels it multiplies decays along the tokens, once up to every reader and
once after every writer. A product along the rows of a tile is a round of exchanges between threads for each halving of
it, and there are more exchanges than anything else in its kernels: about 900 for each thread of the one that prepares.

[[figure: kda/factors]]

1. *Sums of gates, once.* With $G_t$ the sum of a channel's gates up to token $t$, and $l$ the last token of a first
   half, a reader has the factor $e^{G_i - G_l}$ and a writer $e^{G_l - G_j}$, neither above 1. On a level each token is
   one or the other, so it has *one* factor, for its query and its key alike. $G_l$ is a row of a tensor that was just
   written, at an address that is computed.
2. *Chunks of 64.* Products of 64 rows are for the tensor cores' wide instruction, which takes its factors from shared
   memory. A level more is two more such products, and there are half as many states.
3. *One walk.* Preparing leaves queries and keys decayed, as the walk wants them: a query and a key that asks by what is
   left since the chunk's start, a key that writes by what is left at its end. They take no more bytes than what they
   are made of, since a gate has 32 bits, and the walk has only products.
4. *A gate's gradient by a difference*, without products on each level: what is to cancel is the same on both sides.

**What it costs.** Per chunk of $C$ tokens and head, forward: $2 C^2 D \log_2 C$ multiplications for queries and keys on
all levels, $10 C^3$ for the inverse, and $3 C^2 E + 3 C D E$ in the walk. Written and read again are the decayed
queries and keys, twice, the sums, scores and inverses; backward states and differences, too. But neither products nor
bytes set the time: what prepares has about 15000 instructions for each warp and chunk of 64, and too few warps to hide
each other's waits. We counted on three quarters of the time forward for it, and so it is.

On an H200, beside flash-linear-attention: eight texts of 4096 tokens, with 16 heads of 128, take
[[bench: kda/8x4096x16x128/forward/ms]] and [[bench: kda/8x4096x16x128/forward/fla.ms]] forward,
[[bench: kda:backward/8x4096x16x128/backward/ms]] and
[[bench: kda:backward/8x4096x16x128/backward/fla.ms]] backward. The lesson takes
[[bench: kda/8x4096x16x128/forward/lesson.ms]] and
[[bench: kda:backward/8x4096x16x128/backward/lesson.ms]].
One text of 16384 tokens, which is cut into parts, takes [[bench: kda/1x16384x16x128/forward/ms]] and
[[bench: kda/1x16384x16x128/forward/fla.ms]] forward.

**Contract.** As the lesson's. float32, heads wider than 128, and strides that no descriptor fits are left to the
lesson's kernels. A gate below −100 counts as −100, which leaves 4 · 10⁻⁴⁴. As in the gated delta rule, packed sequences
aren't cut into parts.
"""

from academy.runtime import checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.launch import launch
from academy.runtime.replay import replayed

from functools import partial

import torch
import triton
import triton.language as tl

from annotated_examples.common.attention import head
from annotated_examples.common.attention_tiles import describe, fitting, load_rows
from annotated_examples.common.chunks import (
    chunk_at, chunks_of, contract, cut, inverse_of_system, load_block, load_gates, load_state, new_like, new_state,
    state_product, states_between, store_block, suits, tensor,
)  # fmt: skip
from annotated_examples.common.constants import LOG2E
from annotated_examples.common.custom_operator import opaque
from annotated_examples.common.delta_rule import attend, from_part_to_part, load_vector, parts_of
from annotated_examples.recurrences import kda as lesson
from annotated_examples.recurrences.kda import gates_of, kda_reference


# ## A level
#
# What a token keeps on a level: up to it, if it is in a second half, and after it, if it is in a first one. Level 0 has
# halves of one token, the next of two, and so on. `sums` are those of the tile's tokens, and `matrix` has those of the
# whole chunk: the last token of a first half is one of its rows.
@triton.jit
def faded_on_level(sums, matrix, place, offs_d, D, level):
    last = (((place >> level) | 1) << level) - 1
    border = load_block(matrix, last, sums.shape[0], offs_d, D)
    return tl.exp2(tl.where((place > last)[:, None], sums - border, border - sums))


# Where rounding a factor to 16 bits would make the result too wrong, what rounding leaves makes a product of its own.
@triton.jit
def in_two_terms(wide, dtype: tl.constexpr):
    coarse = wide.to(dtype)
    return coarse, (wide - coarse).to(dtype)


@triton.jit
def closely(factor, wide, sums):
    coarse, rest = in_two_terms(wide, factor.dtype)
    sums = tl.dot(factor, coarse, sums, input_precision="ieee")
    return tl.dot(factor, rest, sums, input_precision="ieee")


# A level's factors, rounded once: of queries, of keys, and of keys that ask, times β.
@triton.jit
def factors_on_level(q, k, beta, fade):
    return (q * fade).to(q.dtype), (k * fade).to(k.dtype), (k * fade * beta).to(k.dtype)


# Readers are in a second half, and the writers that they read on this level in the first half before it.
@triton.jit
def reads_on_level(reader, writer, level):
    half = reader >> level
    return tl.where(half % 2 == 1, half, -1) == (writer >> level) + 1


# ## What a chunk needs to know before the state is known
#
# A program has a chunk of a head. What other threads wrote may be read after a barrier.
@triton.jit
def kda_prepare_kernel(
    q_tensor, k_tensor, g_tensor, beta_tensor,  # (pointer, four strides) of (B, Hk, T, D), (B, H, T, D) and (B, H, T)
    reads_tensor, asks_tensor, keeps_tensor,  # (chunks, H, BLOCK_T, D), in the dtype of q
    sums_tensor, p_tensor, inverse_tensor,  # the same, in float32, and (chunks, H, BLOCK_T or 2 BLOCK_T, BLOCK_T)
    sequences, H, group, scale, D: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr, LEVELS: tl.constexpr,
):  # fmt: skip
    c, h = tl.program_id(0) // H, tl.program_id(0) % H
    b, start, length, start_t = chunk_at(sequences, c, BLOCK_T)
    if start_t >= length:
        return
    place = tl.arange(0, BLOCK_T)
    rows, columns, offs_t = place[:, None], place[None, :], start_t + place
    q_head, k_head = head(q_tensor, b, h // group, start), head(k_tensor, b, h // group, start)
    sums_head = head(sums_tensor, c, h, 0)
    p, a = tl.zeros((BLOCK_T, BLOCK_T), tl.float32), tl.zeros((BLOCK_T, BLOCK_T), tl.float32)
    own = tl.zeros((BLOCK_T,), tl.float32)
    for start_d in tl.range(0, D, BLOCK_D):
        offs_d = start_d + tl.arange(0, BLOCK_D)
        q, k = load_block(q_head, offs_t, length, offs_d, D), load_block(k_head, offs_t, length, offs_d, D)
        g = load_block(head(g_tensor, b, h, start), offs_t, length, offs_d, D).to(tl.float32)
        # As powers of two, the gates of the example's first channel leave 2⁻¹, 2⁻², 2⁻³ and 2⁻⁴. So the sums are
        # `pid=0: sums[:4, 0] = [-1, -3, -6, -10]`. Past the text's end nothing fades, `pid=0: sums[7, 0] = -10`, and at
        # the chunk's end 2⁻¹⁰ of the state is left, `pid=0: whole[0, 0] = -10`.
        g = tl.where(g < -100.0, -100.0, g) * LOG2E
        sums = tl.cumsum(g, axis=0)
        store_block(sums_head, sums, place, BLOCK_T, offs_d, D)
        tl.debug_barrier()
        fade, whole = tl.exp2(sums), load_vector(head(sums_tensor, c, h, BLOCK_T - 1), offs_d, D)[None, :]
        store_block(head(reads_tensor, c, h, 0), q * (fade * scale), place, BLOCK_T, offs_d, D)
        store_block(head(asks_tensor, c, h, 0), k * fade, place, BLOCK_T, offs_d, D)
        store_block(head(keeps_tensor, c, h, 0), k * tl.exp2(whole - sums), place, BLOCK_T, offs_d, D)
        own += tl.sum(q.to(tl.float32) * k, axis=1)
        # On level 1 the first half ends with token 1. A quarter of token 0 is left there, an eighth of that at token 2,
        # `pid=0, level=1: fade[:4, 0] = [0.25, 1, 0.125, 0.007812]`. Token 2 reads tokens 0 and 1 on this level,
        # `pid=0, level=1: pair[2] = [1, 1, 0, 0, 0, 0, 0, 0]`, and none on level 0, where it is in a first half:
        # `pid=0, level=0: pair[2] = [0, 0, 0, 0, 0, 0, 0, 0]`.
        # The next level's rows are on their way while this level's products are made.
        border = load_block(sums_head, (place | 1) - 1, BLOCK_T, offs_d, D)
        for level in tl.range(0, LEVELS):
            pair = reads_on_level(rows, columns, level)
            fade = tl.exp2(tl.where((place >> level) % 2 == 1, 1.0, -1.0)[:, None] * (sums - border))
            last = (((place >> (level + 1)) | 1) << (level + 1)) - 1
            border = load_block(sums_head, last, BLOCK_T, offs_d, D)
            query, key = (q * fade).to(q.dtype), (k * fade).to(k.dtype)
            p += tl.where(pair, tl.dot(query, tl.trans(key), input_precision="ieee"), 0.0)
            a += tl.where(pair, tl.dot(key, tl.trans(key), input_precision="ieee"), 0.0)
    # A token reads itself, and no gate is between: `pid=0: own[:4] = [-1, 0, 1, -0.5]`.
    p = tl.where(rows == columns, own[:, None], p) * scale
    store_block(head(p_tensor, c, h, 0), p, place, BLOCK_T, place, BLOCK_T)
    # [[tag: KDA-A]]. Token 3, with a β of a half, reads seven channels that don't fade and one that does:
    # `pid=0: a[3, :3] = [0.8752, 0.876, 0.8828]`. The inverse takes off what token 1 reads of token 0,
    # `pid=0: inverse[1, 0] = -1.8125`.
    a *= load_gates(beta_tensor, b, h, start, offs_t, length)[:, None]
    inverse = inverse_of_system(a, BLOCK_T, "tf32")
    # Of all that is rounded to 16 bits, the inverse would add most to the error. Its second term is stored below it.
    coarse, rest = in_two_terms(inverse, k_tensor[0].dtype.element_ty)
    store_block(head(inverse_tensor, c, h, 0), coarse, place, BLOCK_T, place, BLOCK_T)
    store_block(head(inverse_tensor, c, h, BLOCK_T), rest, place, BLOCK_T, place, BLOCK_T)


# ## The walk
#
# As in the gated delta rule, but everything that depends on gates comes ready made. Only the state still fades here,
# each row by its own factor.
@triton.jit
def kda_walk_kernel(
    reads_desc, asks_desc, keeps_desc, p_desc, inverse_desc,  # descriptors of what was prepared
    v_desc, beta_tensor, sums_tensor, initial_tensor,  # a descriptor of (B, H, T, E), or None; pointers and strides
    o_tensor, u_tensor, states_tensor, final_tensor,  # like v, and (chunks or sequences, H, D, E)
    sequences, sizes, H,  # sizes: (parts of each sequence, their length, D, E)
    BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    parts, LENGTH, D, E = sizes
    tiles = tl.cdiv(E, BLOCK_E)
    part, h, tile = tl.program_id(0) // tiles // H, tl.program_id(0) // tiles % H, tl.program_id(0) % tiles
    b, begin = part // parts, part % parts * LENGTH
    start, length, first = chunks_of(sequences, b, BLOCK_T)
    PACKED: tl.constexpr = sequences[0] is not None
    entry, offs_d, offs_e = 0 if PACKED else b, tl.arange(0, BLOCK_D), tile * BLOCK_E + tl.arange(0, BLOCK_E)
    state = load_state(initial_tensor, part, h, offs_d, D, offs_e, E)
    for start_t in tl.range(begin, tl.minimum(length, begin + LENGTH), BLOCK_T, num_stages=STAGES):
        offs_t, c = start_t + tl.arange(0, BLOCK_T), first + start_t // BLOCK_T
        if states_tensor[0] is not None:
            store_block(head(states_tensor, c, h, 0), state, offs_d, D, offs_e, E)
        asks = load_rows(asks_desc, c, h, 0, 0, BLOCK_T, False, BLOCK_T, BLOCK_D)
        if v_desc is None:
            v = 0.0
        else:
            v = load_rows(v_desc, entry, h, start, start_t, length, PACKED, BLOCK_T, BLOCK_E, tile * BLOCK_E)
        inverse = load_rows(inverse_desc, c, h, 0, 0, BLOCK_T, False, BLOCK_T, BLOCK_T)
        rest = load_rows(inverse_desc, c, h, 0, BLOCK_T, BLOCK_T, False, BLOCK_T, BLOCK_T)
        # [[tag: KDA-U]]. The example's state is 0 before the chunk, so token 1 would write its value,
        # `pid=0, start_t=0: r[1, 1] = 3`. Token 0 has written 2, and token 1 takes 1.8125 times that off:
        # `pid=0, start_t=0: u[1, 1] = -0.625`.
        r = (v - state_product(asks, state, "ieee")) * load_gates(beta_tensor, b, h, start, offs_t, length)[:, None]
        u = tl.dot(inverse, r.to(asks.dtype), r, input_precision="ieee")
        u = tl.dot(rest, r.to(asks.dtype), u, input_precision="ieee").to(asks.dtype)
        if u_tensor[0] is not None:
            store_block(head(u_tensor, b, h, start), u, offs_t, length, offs_e, E)
        if o_tensor[0] is not None:
            reads = load_rows(reads_desc, c, h, 0, 0, BLOCK_T, False, BLOCK_T, BLOCK_D)
            p = load_rows(p_desc, c, h, 0, 0, BLOCK_T, False, BLOCK_T, BLOCK_T)
            # [[tag: KDA-chunk]]. The second query reads only token 0: `pid=0, start_t=0: o[1, 1] = -1.5`
            o = tl.dot(p, u, state_product(reads, state, "ieee"), input_precision="ieee")
            store_block(head(o_tensor, b, h, start), o, offs_t, length, offs_e, E)
        # [[tag: KDA-next]]. Keys are half of what is left of their channel at the end, 2⁻⁹ after token 0:
        # `pid=0, start_t=0: keeps[:4, 0] = [0.0009766, 0.003906, 0.03125, 0.5]`.
        keeps = load_rows(keeps_desc, c, h, 0, 0, BLOCK_T, False, BLOCK_T, BLOCK_D)
        whole = tl.exp2(load_vector(head(sums_tensor, c, h, BLOCK_T - 1), offs_d, D))
        state = tl.dot(tl.trans(keeps), u, state * whole[:, None], input_precision="ieee")
    if final_tensor[0] is not None:
        store_block(head(final_tensor, part, h, 0), state, offs_d, D, offs_e, E)


# ## The walk back
#
# Likewise: [[tag: KDA-dU]], [[tag: KDA-dR]], [[tag: KDA-dv]] and [[tag: KDA-dS]].
@triton.jit
def kda_walk_back_kernel(
    reads_desc, asks_desc, keeps_desc, p_desc, inverse_desc, do_desc, beta_tensor, sums_tensor,  # as above
    dfinal_tensor, dr_tensor, dv_tensor,  # (sequences, H, D, E), and twice like v, dr in float32
    dstates_tensor, dinitial_tensor,  # (chunks or sequences, H, D, E)
    sequences, sizes, H,
    BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    parts, LENGTH, D, E = sizes
    tiles = tl.cdiv(E, BLOCK_E)
    part, h, tile = tl.program_id(0) // tiles // H, tl.program_id(0) // tiles % H, tl.program_id(0) % tiles
    b, begin = part // parts, part % parts * LENGTH
    start, length, first = chunks_of(sequences, b, BLOCK_T)
    PACKED: tl.constexpr = sequences[0] is not None
    entry, offs_d, offs_e = 0 if PACKED else b, tl.arange(0, BLOCK_D), tile * BLOCK_E + tl.arange(0, BLOCK_E)
    dstate = load_state(dfinal_tensor, part, h, offs_d, D, offs_e, E)
    chunks = tl.cdiv(tl.minimum(length - begin, LENGTH), BLOCK_T)
    for passed in tl.range(0, chunks, num_stages=STAGES):
        start_t = begin + (chunks - 1 - passed) * BLOCK_T
        offs_t, c = start_t + tl.arange(0, BLOCK_T), first + start_t // BLOCK_T
        if dstates_tensor[0] is not None:
            store_block(head(dstates_tensor, c, h, 0), dstate, offs_d, D, offs_e, E)
        keeps = load_rows(keeps_desc, c, h, 0, 0, BLOCK_T, False, BLOCK_T, BLOCK_D)
        do = load_rows(do_desc, entry, h, start, start_t, length, PACKED, BLOCK_T, BLOCK_E, tile * BLOCK_E)
        p = load_rows(p_desc, c, h, 0, 0, BLOCK_T, False, BLOCK_T, BLOCK_T)
        inverse = load_rows(inverse_desc, c, h, 0, 0, BLOCK_T, False, BLOCK_T, BLOCK_T)
        rest = load_rows(inverse_desc, c, h, 0, BLOCK_T, BLOCK_T, False, BLOCK_T, BLOCK_T)
        beta = load_gates(beta_tensor, b, h, start, offs_t, length)[:, None]
        # Three factors are in two terms. What a chunk adds to the error, the chunks before it shrink. PyTorch goes 32
        # tokens at a time; with 64 and a single term the first state's gradient would have more than twice its error.
        if do.dtype == tl.float16:
            du = state_product(keeps, dstate, "ieee")
        else:
            du = closely(keeps, dstate, tl.zeros((BLOCK_T, BLOCK_E), tl.float32))
        du = tl.dot(tl.trans(p), do, du, input_precision="ieee")
        # What the outputs want of token 0's difference, `pid=0, passed=0: du[0, 0] = -3.984`, isn't what its value
        # gets, `pid=0, passed=0: dr[0, 0] = -3.533`: later tokens have taken some of it off.
        dr = closely(tl.trans(inverse), du, du)
        dr = tl.dot(tl.trans(rest), du.to(do.dtype), dr, input_precision="ieee")
        if dr_tensor[0] is not None:
            store_block(head(dr_tensor, b, h, start), dr, offs_t, length, offs_e, E)
            store_block(head(dv_tensor, b, h, start), dr * beta, offs_t, length, offs_e, E)
        reads = load_rows(reads_desc, c, h, 0, 0, BLOCK_T, False, BLOCK_T, BLOCK_D)
        asks = load_rows(asks_desc, c, h, 0, 0, BLOCK_T, False, BLOCK_T, BLOCK_D)
        whole = tl.exp2(load_vector(head(sums_tensor, c, h, BLOCK_T - 1), offs_d, D))
        dstate = tl.dot(tl.trans(reads), do, dstate * whole[:, None], input_precision="ieee")
        dstate = closely(tl.trans(asks), dr * -beta, dstate)
    if dinitial_tensor[0] is not None:
        store_block(head(dinitial_tensor, part, h, 0), dstate, offs_d, D, offs_e, E)


# ## Backward: tokens that read and ask
#
# Level by level, as in the lesson, with one factor for each token. And in two sides, as in the gated delta rule: one
# kernel has the tokens that read and ask, the other those that are written. Together they have more sums than there are
# registers. A program has a chunk, a head and `BLOCK_D` channels. Where heads of values share keys, PyTorch adds up.
#
# A pair's term counts for all gates after the writer up to the reader, [[tag: KDA-dg]]. The lesson takes no difference,
# at the price of a product on each level. Here a reader's terms are added for all gates up to it, and a writer's are
# taken off for all gates up to *it*. Pairs on the same side of a gate have to cancel, and do: both kernels multiply the
# same rounded numbers, so a term is the same in both, but for float32's own rounding.
@triton.jit
def kda_asking_kernel(
    do_tensor, q_tensor, k_tensor, v_tensor, beta_tensor, u_tensor, dr_tensor,  # (pointer, four strides), as above
    sums_tensor, states_tensor, dstates_tensor,  # (chunks, H, BLOCK_T, D), in float32, and (chunks, H, D, E)
    dq_tensor, dk_tensor, dg_tensor, dbeta_tensor,  # like q and k; (B, H, T, D) in float32, or None; (B, H, T, blocks)
    sequences, numbers, BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr, LEVELS: tl.constexpr,
):  # fmt: skip
    heads, group, scale, D, E = numbers
    blocks = tl.cdiv(D, BLOCK_D)
    c, h, block = tl.program_id(0) // blocks // heads, tl.program_id(0) // blocks % heads, tl.program_id(0) % blocks
    b, start, length, start_t = chunk_at(sequences, c, BLOCK_T)
    if start_t >= length:
        return
    place, offs_d = tl.arange(0, BLOCK_T), block * BLOCK_D + tl.arange(0, BLOCK_D)
    rows, columns, offs_t = place[:, None], place[None, :], start_t + place
    lam, alpha = tl.zeros((BLOCK_T, BLOCK_T), tl.float32), tl.zeros((BLOCK_T, BLOCK_T), tl.float32)
    read, down = tl.zeros((BLOCK_T, BLOCK_D), tl.float32), tl.zeros((BLOCK_T, BLOCK_D), tl.float32)
    through, dbeta = tl.zeros((BLOCK_D,), tl.float32), tl.zeros((BLOCK_T,), tl.float32)
    for start_e in tl.range(0, E, BLOCK_E):
        offs_e = start_e + tl.arange(0, BLOCK_E)
        do = load_block(head(do_tensor, b, h, start), offs_t, length, offs_e, E)
        u = load_block(head(u_tensor, b, h, start), offs_t, length, offs_e, E)
        dr = load_block(head(dr_tensor, b, h, start), offs_t, length, offs_e, E)
        # [[tag: KDA-dA]], without its sign, and the same for $P$
        lam = tl.dot(do, tl.trans(u), lam, input_precision="ieee")
        alpha = tl.dot(dr.to(u.dtype), tl.trans(u), alpha, input_precision="ieee")
        state = load_block(head(states_tensor, c, h, 0), offs_d, D, offs_e, E)
        read += state_product(do, tl.trans(state), "ieee")
        down += state_product(dr.to(u.dtype), tl.trans(state), "ieee")
        dstate = load_block(head(dstates_tensor, c, h, 0), offs_d, D, offs_e, E)
        through += tl.sum(state.to(tl.float32) * dstate, axis=1)
        if block == 0:  # of all channels together, so once
            v = load_block(head(v_tensor, b, h, start), offs_t, length, offs_e, E)
            dbeta += tl.sum(dr * v, axis=1)
    q = load_block(head(q_tensor, b, h // group, start), offs_t, length, offs_d, D)
    k = load_block(head(k_tensor, b, h // group, start), offs_t, length, offs_d, D)
    beta = load_gates(beta_tensor, b, h, start, offs_t, length)[:, None]
    sums_head = head(sums_tensor, c, h, 0)
    sums = load_block(sums_head, place, BLOCK_T, offs_d, D)
    own = tl.sum(tl.where(rows == columns, lam, 0.0), axis=1)[:, None] * scale
    lam, alpha = (lam * scale).to(q.dtype), (-alpha).to(k.dtype)
    fade = tl.exp2(sums)
    read, down = read * (fade * scale), down * -fade
    # [[tag: KDA-dg]]. What passes all gates of the chunk, from the one state to the other, counts as the last token's;
    # the example's first state is 0, `pid=0: through[0] = 0`.
    passed = tl.exp2(load_vector(head(sums_tensor, c, h, BLOCK_T - 1), offs_d, D)) * through
    last = tl.minimum(length, start_t + BLOCK_T) - 1
    dg = q * read + k * (beta * down) + tl.where((offs_t == last)[:, None], passed[None, :], 0.0)
    # [[tag: KDA-dq]], [[tag: KDA-dk]]. Token 2 is no reader on level 0: `pid=0, level=0: read[2, 0] = 0`.
    dq = read + own * k
    for level in tl.range(0, LEVELS):
        fade, pair = faded_on_level(sums, sums_head, place, offs_d, D, level), reads_on_level(rows, columns, level)
        query, key, asks = factors_on_level(q, k, beta, fade)
        read = tl.dot(tl.where(pair, lam, 0.0), key, input_precision="ieee")
        asked = tl.dot(tl.where(pair, alpha, 0.0), key, input_precision="ieee")
        dg += query * read + asks * asked
        dq += read * fade
        down += asked * fade
    # [[tag: KDA-dbeta]]: what the chunk's tokens and the state answer, and the value. `pid=0: dbeta[3] = 23.517`
    dbeta += tl.sum(k * down, axis=1)
    if dg_tensor[0] is not None:
        store_block(head(dg_tensor, b, h, start), dg, offs_t, length, offs_d, D)
    store_block(head(dbeta_tensor, b, h, start), dbeta[:, None], offs_t, length, block + tl.arange(0, 1), blocks)
    store_block(head(dq_tensor, b, h, start), dq, offs_t, length, offs_d, D)
    store_block(head(dk_tensor, b, h, start), beta * down + own * q, offs_t, length, offs_d, D)


# ## Backward: tokens that are written
#
# What is told to a token by those that read it, and by the state after the chunk.
@triton.jit
def kda_written_kernel(
    do_tensor, q_tensor, k_tensor, beta_tensor, u_tensor, dr_tensor, sums_tensor, dstates_tensor,  # as above
    dk_tensor, dg_tensor,  # both are added to
    sequences, numbers, BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr, LEVELS: tl.constexpr,
):  # fmt: skip
    heads, group, scale, D, E = numbers
    blocks = tl.cdiv(D, BLOCK_D)
    c, h, block = tl.program_id(0) // blocks // heads, tl.program_id(0) // blocks % heads, tl.program_id(0) % blocks
    b, start, length, start_t = chunk_at(sequences, c, BLOCK_T)
    if start_t >= length:
        return
    place, offs_d = tl.arange(0, BLOCK_T), block * BLOCK_D + tl.arange(0, BLOCK_D)
    rows, columns, offs_t = place[:, None], place[None, :], start_t + place
    lam, alpha = tl.zeros((BLOCK_T, BLOCK_T), tl.float32), tl.zeros((BLOCK_T, BLOCK_T), tl.float32)
    written = tl.zeros((BLOCK_T, BLOCK_D), tl.float32)
    for start_e in tl.range(0, E, BLOCK_E):
        offs_e = start_e + tl.arange(0, BLOCK_E)
        do = load_block(head(do_tensor, b, h, start), offs_t, length, offs_e, E)
        u = load_block(head(u_tensor, b, h, start), offs_t, length, offs_e, E)
        dr = load_block(head(dr_tensor, b, h, start), offs_t, length, offs_e, E)
        # The same products with rows and columns swapped: what comes out of a product is never transposed.
        lam = tl.dot(u, tl.trans(do), lam, input_precision="ieee")
        alpha = tl.dot(u, tl.trans(dr.to(u.dtype)), alpha, input_precision="ieee")
        dstate = load_block(head(dstates_tensor, c, h, 0), offs_d, D, offs_e, E)
        written += state_product(u, tl.trans(dstate), "ieee")
    # A row for token 0, with what its own query and those of tokens 1 to 3 want of their score with it,
    # `pid=0: lam[0, :4] = [23, 27, 26, 50]`. What is loaded only now takes no registers before.
    q = load_block(head(q_tensor, b, h // group, start), offs_t, length, offs_d, D)
    k = load_block(head(k_tensor, b, h // group, start), offs_t, length, offs_d, D)
    beta = load_gates(beta_tensor, b, h, start, offs_t, length)[:, None]
    sums_head = head(sums_tensor, c, h, 0)
    sums = load_block(sums_head, place, BLOCK_T, offs_d, D)
    lam, alpha = (lam * scale).to(q.dtype), (-alpha).to(k.dtype)
    written *= tl.exp2(load_vector(head(sums_tensor, c, h, BLOCK_T - 1), offs_d, D)[None, :] - sums)
    dk, terms = written, tl.zeros((BLOCK_T, BLOCK_D), tl.float32)
    for level in tl.range(0, LEVELS):
        fade, pair = faded_on_level(sums, sums_head, place, offs_d, D, level), reads_on_level(columns, rows, level)
        query, key, asks = factors_on_level(q, k, beta, fade)
        # On level 1 tokens 2 and 3 read token 1, `pid=0, level=1: pair[1, :4] = [0, 0, 1, 1]`.
        told = tl.dot(tl.where(pair, lam, 0.0), query, input_precision="ieee")
        told = tl.dot(tl.where(pair, alpha, 0.0), asks, told, input_precision="ieee")
        terms += key * told
        dk += told * fade
    if dg_tensor[0] is not None:
        # Sums are products with zeros and ones. A gate gets all terms from its token on,
        # `pid=0: from_here[1, :4] = [0, 1, 1, 1]`, and what is written to the state before it.
        dg = load_block(head(dg_tensor, b, h, start), offs_t, length, offs_d, D) - terms
        from_here = columns >= rows
        dg = closely(from_here.to(tl.bfloat16), dg, tl.zeros((BLOCK_T, BLOCK_D), tl.float32))
        dg = closely((columns < rows).to(tl.bfloat16), k * written, dg)
        store_block(head(dg_tensor, b, h, start), dg, offs_t, length, offs_d, D)
    dk += load_block(head(dk_tensor, b, h, start), offs_t, length, offs_d, D)
    store_block(head(dk_tensor, b, h, start), dk, offs_t, length, offs_d, D)


# ## The launchers
def tiles_of(q, v, BLOCK_T, BLOCK_D, BLOCK_E):
    """The constants of the kernel that prepares, of both walks, and of the gradients inside of a chunk."""
    checks.power_of_two(BLOCK_T=BLOCK_T, BLOCK_D=BLOCK_D, BLOCK_E=BLOCK_E)
    D, E = (max(16, triton.next_power_of_2(x.shape[3])) for x in (q, v))
    # Beside keys wider than 32, on four warps, values are padded to 64 columns: see the lesson of linear attention.
    E, T = BLOCK_E or (min(64, E) if D <= 32 else 64), BLOCK_T or 64
    # Two tiles of everything take up to 197 KB.
    STAGES = 2 if device.shared_memory(q.device.index) > 200_000 else 1
    walk = dict(BLOCK_T=T, BLOCK_D=D, BLOCK_E=E, STAGES=STAGES, num_warps=2 if D <= 32 else 4)
    prepare = dict(BLOCK_T=T, BLOCK_D=BLOCK_D or 32, LEVELS=T.bit_length() - 1, num_warps=4, num_stages=1)
    return prepare, walk, prepare | dict(BLOCK_D=BLOCK_D or 64, BLOCK_E=BLOCK_E or 64, num_warps=8)


# Two launches: what is prepared for all chunks, and the walk. Forward fills `o`, backward `u` and `states`. With parts
# there are three more, as in the gated delta rule.
def walk(q, k, v, g, beta, initial_state, cu_seqlens, scale, chunks, tiles, sizes, *, o=None, u=None, states=None):
    """What was prepared, with (chunks, H) in front; the states after all sequences; what each part does to one."""
    packed, (Hk, H), D = partial(tensor, cu_seqlens=cu_seqlens), (q.shape[1], v.shape[1]), q.shape[3]
    (prepare, walks, _), final = tiles, new_state(q, v, cu_seqlens)
    T, BLOCK_D, BLOCK_E = (walks[name] for name in ("BLOCK_T", "BLOCK_D", "BLOCK_E"))
    prepared = [k.new_empty(chunks.count, H, T, D) for _ in range(3)]
    prepared += [k.new_empty(chunks.count, H, rows, T) for rows in (T, 2 * T)]
    sums, passed, nothing = final.new_empty(chunks.count, H, T, D), None, tensor(None)
    if chunks.batch:
        reads, asks, keeps, p, inverse = map(tensor, prepared)
        launch(
            kda_prepare_kernel, (chunks.count * H,),
            (*map(packed, (q, k, g, beta)), reads, asks, keeps, tensor(sums), p, inverse, chunks.sequences),
            (H, H // Hk, scale), D=D, **prepare,
        )  # fmt: skip

        def along(before, after, results=(nothing,) * 3, values=v):
            width = sizes[3] if values is not None else sizes[2]
            described = *described_of(prepared, T, BLOCK_D), None if values is None else describe(v, T, BLOCK_E)
            launch(
                kda_walk_kernel, (chunks.batch * sizes[0] * H * triton.cdiv(width, BLOCK_E),),
                (*described, packed(beta), tensor(sums), before, *results, after, chunks.sequences,
                 (*sizes[:3], width)), (H,), **walks,
            )  # fmt: skip

        before, after = tensor(initial_state), tensor(final)
        if sizes[0] > 1:
            shape = chunks.batch * sizes[0], H, D, D
            passed, ones = final.new_empty(shape), torch.eye(D, device=q.device).expand(shape)
            along(tensor(ones), tensor(passed), values=None)
            before, after = from_part_to_part(along, passed, initial_state, final, False, walks), nothing
        along(before, after, (packed(o), packed(u), tensor(states)))
    return prepared, sums, final, passed


def described_of(prepared, T, BLOCK_D):
    return [describe(x, T, BLOCK_D) for x in prepared[:3]] + [describe(x, T, T) for x in prepared[3:]]


@opaque(
    "(Tensor q, Tensor k, Tensor v, Tensor? g, Tensor beta, Tensor? initial_state, Tensor? cu_seqlens, *, float scale) "
    "-> (Tensor, Tensor)",
    lambda q, k, v, g, beta, initial, cu_seqlens, **scale: (torch.empty_like(v), new_state(q, v, cu_seqlens)),
)
def kda_forward(
    q, k, v, g, beta, initial_state, cu_seqlens, *, scale, BLOCK_T=None, BLOCK_D=None, BLOCK_E=None, LENGTH=None
):
    """`(o, final_state)`, as the lesson's."""
    if not suits(q, k, v):
        given = dict(scale=scale, BLOCK_T=BLOCK_T, BLOCK_D=BLOCK_D, BLOCK_E=BLOCK_E)
        return lesson.kda_forward(q, k, v, g, beta, initial_state, cu_seqlens, **given)
    tiles, o = tiles_of(q, v, BLOCK_T, BLOCK_D, BLOCK_E), new_like(v, cu_seqlens)
    chunks = cut(q, cu_seqlens, tiles[1]["BLOCK_T"])
    sizes, g = parts_of(q, v, cu_seqlens, chunks, tiles[1], LENGTH), gates_of(g, q, v)
    return o, walk(q, k, v, g, beta, initial_state, cu_seqlens, scale, chunks, tiles, sizes, o=o)[2]


@opaque(
    "(Tensor? do, Tensor? dfinal, Tensor q, Tensor k, Tensor v, Tensor? g, Tensor beta, Tensor? initial_state, "
    "Tensor? cu_seqlens, *, float scale) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    lambda do, dfinal, q, k, v, g, beta, initial, cu_seqlens, **scale: (
        *(torch.empty_like(x) for x in (q, k, v, v.new_empty(0) if g is None else g)),
        beta.new_empty(beta.shape),  # a sum is contiguous, however β lies in memory
        new_state(q, v, cu_seqlens),
    ),
)  # fmt: skip
def kda_backward(
    do, dfinal, q, k, v, g, beta, initial_state, cu_seqlens, *, scale, BLOCK_T=None, BLOCK_D=None, BLOCK_E=None,
    LENGTH=None,
):  # fmt: skip
    """`(dq, dk, dv, dg, dbeta, dinitial)`, as the lesson's."""
    if not suits(q, k, v):
        given = dict(scale=scale, BLOCK_T=BLOCK_T, BLOCK_D=BLOCK_D, BLOCK_E=BLOCK_E)
        return lesson.kda_backward(do, dfinal, q, k, v, g, beta, initial_state, cu_seqlens, **given)
    packed, (Hk, H), (D, E) = partial(tensor, cu_seqlens=cu_seqlens), (q.shape[1], v.shape[1]), (q.shape[3], v.shape[3])
    tiles = tiles_of(q, v, BLOCK_T, BLOCK_D, BLOCK_E)
    (_, walks, inside), T = tiles, tiles[1]["BLOCK_T"]
    chunks = cut(q, cu_seqlens, T)
    do = torch.zeros_like(v) if do is None else fitting(do)
    u, dv, dr = new_like(v, cu_seqlens), new_like(v, cu_seqlens), new_like(v, cu_seqlens, torch.float32)
    states = states_between(k, new_state(q, v, cu_seqlens), chunks)
    sizes, gates = parts_of(q, v, cu_seqlens, chunks, walks, LENGTH), gates_of(g, q, v)
    given = q, k, v, gates, beta, initial_state, cu_seqlens, scale, chunks, tiles, sizes
    prepared, sums, dinitial, passed = walk(*given, u=u, states=states)
    dstates, group = torch.empty_like(states), H // Hk
    heads = (q, k) if H == Hk else (x.float().repeat_interleave(group, 1) for x in (q, k))
    dq, dk = (new_like(x, cu_seqlens) for x in heads)
    dg, blocks = None if g is None else new_like(g, cu_seqlens, torch.float32), triton.cdiv(D, inside["BLOCK_D"])
    dbeta = new_like(beta[..., None].expand(*beta.shape, blocks), cu_seqlens, torch.float32)
    if chunks.batch:
        described, nothing = described_of(prepared, T, walks["BLOCK_D"]), tensor(None)
        described.append(describe(do, T, walks["BLOCK_E"]))

        def back(after, before, results=(nothing,) * 3):
            launch(
                kda_walk_back_kernel, (chunks.batch * sizes[0] * H * triton.cdiv(E, walks["BLOCK_E"]),),
                (*described, packed(beta), tensor(sums), after, *results, before, chunks.sequences, sizes), (H,),
                **walks,
            )  # fmt: skip

        after, before = tensor(dfinal), tensor(dinitial)
        if passed is not None:
            after, before = from_part_to_part(back, passed.mT, dfinal, dinitial, True, walks), nothing
        back(after, before, (packed(dr), packed(dv), tensor(dstates)))
        grid, numbers = (chunks.count * H * blocks,), (H, group, scale, D, E)
        sums, before, after = map(tensor, (sums, states, dstates))
        launch(
            kda_asking_kernel, grid,
            (*map(packed, (do, q, k, v, beta, u, dr)), sums, before, after, *map(packed, (dq, dk, dg, dbeta)),
             chunks.sequences, numbers), **inside,
        )  # fmt: skip
        launch(
            kda_written_kernel, grid,
            (*map(packed, (do, q, k, beta, u, dr)), sums, after, *map(packed, (dk, dg)), chunks.sequences, numbers),
            **inside,
        )  # fmt: skip
    if H > Hk:
        dq, dk = (torch.empty_like(x).copy_(d.unflatten(1, (Hk, group)).sum(2)) for x, d in ((q, dq), (k, dk)))
    return dq, dk, dv, v.new_empty(0) if g is None else dg.to(g.dtype), dbeta.sum(-1).to(beta.dtype), dinitial


# ## Public functions
LAUNCHERS = kda_forward, kda_backward


@replayed
def kda(q, k, v, g, beta, *, scale=None, initial_state=None, return_final_state=False):
    """The same as `annotated_examples.recurrences.kda.kda`, but faster.

    Args: as `annotated_examples.recurrences.kda.kda`.

    Returns:
        o, or (o, state), as the lesson's.

    Raises:
        TypeError, ValueError: as the lesson's.

    Source: Kimi Team, "Kimi Linear: An Expressive, Efficient Attention Architecture" (arXiv 2510.26692).
    """
    scale = contract(q, k, v, g, scale, initial_state, return_final_state, per_channel=True, beta=beta)
    q, k, v, g, beta = (None if x is None else x.transpose(1, 2) for x in (q, k, v, g, beta))
    o, final = attend(q, k, v, g, beta, initial_state, None, scale, *LAUNCHERS)
    return (o.transpose(1, 2), final) if return_final_state else o.transpose(1, 2)


@replayed
def kda_varlen(q, k, v, g, beta, cu_seqlens, *, scale=None, initial_state=None, return_final_state=False):
    """The same as `annotated_examples.recurrences.kda.kda_varlen`, but faster.

    Args: as `annotated_examples.recurrences.kda.kda_varlen`.

    Returns:
        o, or (o, state), as the lesson's.

    Raises:
        TypeError, ValueError: as the lesson's.

    Source: as `kda`.
    """
    scale = contract(
        q, k, v, g, scale, initial_state, return_final_state, cu_seqlens, packed=True, per_channel=True, beta=beta
    )
    q, k, v, g, beta = (None if x is None else x.transpose(0, 1).unsqueeze(0) for x in (q, k, v, g, beta))
    o, final = attend(q, k, v, g, beta, initial_state, cu_seqlens, scale, *LAUNCHERS)
    o = o.squeeze(0).transpose(0, 1)
    return (o, final) if return_final_state else o


# ## A run small enough to watch
#
# The four tokens of the lesson's table, in a chunk of eight. The first channel has its gates, the others none.
def EXAMPLE():
    at = torch.arange(32, device=device.DEVICE)
    k = torch.full((1, 1, 4, 8), 0.5, device=device.DEVICE).half()
    q, v = (at * 3 % 5 - 2).half().view(1, 1, 4, 8), (at * 7 % 5).half().view(1, 1, 4, 8)
    g = torch.zeros(1, 1, 4, 8, device=device.DEVICE)
    g[..., 0] = torch.tensor([0.5, 0.25, 0.125, 0.0625]).log()
    beta = torch.tensor([[[1.0, 1.0, 1.0, 0.5]]], device=device.DEVICE)
    how = dict(scale=1.0, BLOCK_T=8, BLOCK_D=8, BLOCK_E=8)
    kda_forward(q, k, v, g, beta, None, None, **how)
    kda_backward(v.flip(2), None, q, k, v, g, beta, None, None, **how)


if __name__ == "__main__":
    script.main(kda, kda_reference)
