r"""
# Kimi delta attention: every row of the state fades at its own speed

[The gated delta rule](gated_delta_rule.py) has one gate for a whole state. Here each row of the state has its own, so a
head can keep some channels of a key for a long time and let others go:

[[eq: KDA-S]]

[[eq: KDA-O]]

This is the layer of Kimi Linear. One more index, and every trick of a chunk breaks: the decay between two tokens no
longer leaves the product of their keys, [[tag: KDA-A]]. What to do about that is the idea of this lesson. Everything
else is [the gated delta rule](gated_delta_rule.py), which should be read first.

[[figure: kda/levels]]

Each pair of different tokens lies in the two halves of exactly one block of 2, 4, 8, … tokens. There the gates between
them are those of the later half up to the reader, and those of the earlier half after the writer, [[tag: KDA-L]]:
a factor for a row and a factor for a column, and neither is ever above 1. So a chunk of $C$ tokens takes $\log_2 C$
masked products instead of one.

**What it costs.** Per chunk of $C$ tokens and head, forward: $2 C^2 D \log_2 C$ multiplications for queries and keys,
$C^2$ pairs on each level, though all levels together use only $C (C - 1) / 2$; then what the gated delta rule takes. A
gate for each channel is as many numbers as a key, in float32. $P$, $W$, $U^0$, $U$ and the states are written and read.
Backward computes all of that again instead of keeping it, and the inverses with it.

**Contract.** As the gated delta rule, but `g` is (B, T, H, D): a gate for each head of `v` and each number of a key.
−∞ is allowed, in one channel or in all. Where nothing is left but a far decayed initial state, it is exact to a
millionth of what it was. The layer computes its gates in PyTorch, before this function: as
`-A.exp() * softplus(f + bias)`, or, with a lower bound, as `lowest * sigmoid(A.exp() * (f + bias))`.
"""

from academy.runtime import checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import math
from functools import partial

import torch
import triton
import triton.language as tl

from annotated_examples.common.attention import head
from annotated_examples.common.chunks import (
    chunk_at, chunks_of, contract, cut, inverse_of_system, load_block, load_gates, load_state, new_like, new_state,
    state_product, states_between, store_block, tensor, turned,
)  # fmt: skip
from annotated_examples.common.custom_operator import opaque
from annotated_examples.common.delta_rule import attend
from annotated_examples.common.halves import faded_gradients, faded_products, left_of_all, sums_across, what_is_left
from annotated_examples.common.products import input_precision, multiply_add


# ## Reference
#
# In float32 and float64 one token after the other, as [[tag: KDA-S]] says it. With 16 bits in chunks of 32 tokens, as
# everyone computes it: states and differences, and what they are multiplied by, are in the dtype of `q`, everything
# else is in float32. A chunk of one token is the first of the two. The decays have an entry for each pair of tokens and
# each channel, and are computed from differences of sums. That is what the kernels avoid: their float32 gradients of
# strong gates would be off by a thousandth.
def kda_reference(q, k, v, g, beta, *, scale=None, initial_state=None, return_final_state=False):
    (B, T, Hk, D), (H, E), dtype = q.shape, v.shape[2:], q.dtype
    wide, scale = torch.promote_types(dtype, torch.float32), D**-0.5 if scale is None else scale
    q, k = (x.transpose(1, 2).repeat_interleave(H // Hk, dim=1) for x in (q, k))
    g = q.new_zeros(B, H, T, D, dtype=wide) if g is None else g.transpose(1, 2).to(wide)
    S = q.new_zeros(B, H, D, E, dtype=wide) if initial_state is None else initial_state.to(wide)
    v, beta = v.transpose(1, 2), beta.transpose(1, 2).to(wide)[..., None]
    outs, C = [v[:, :, :0]], 1 if dtype == wide else 32
    for t in range(0, T, C):
        Q, K, V, b, gates = (x[:, :, t : t + C] for x in (q, k, v, beta, g))
        start = gates.cumsum(2)
        end = torch.nn.functional.pad(gates[:, :, 1:], (0, 0, 0, 1)).flip(2).cumsum(2).flip(2)
        earlier = torch.ones(Q.shape[2], Q.shape[2], dtype=torch.bool, device=q.device).tril(-1)[:, :, None]
        decay = (start[:, :, :, None] - start[:, :, None]).masked_fill(~earlier, -math.inf).exp()
        A = torch.einsum("bhid,bhjd,bhijd->bhij", K.to(wide), K.to(wide), decay) * b
        P = torch.einsum("bhid,bhjd,bhijd->bhij", Q.to(wide), K.to(wide), decay)
        P = ((P + torch.diag_embed((Q.to(wide) * K).sum(-1))) * scale).to(dtype)
        R = b * (V.to(wide) - ((K * start.exp()).to(dtype) @ S.to(dtype)).to(wide))
        U = torch.linalg.solve_triangular(A, R, upper=False, unitriangular=True).to(dtype)
        outs.append(P @ U + (((Q * start.exp()).to(dtype) @ S.to(dtype)).to(wide) * scale).to(dtype))
        S = S * start[:, :, -1].exp()[..., None] + ((K * end.exp()).to(dtype).mT @ U).to(wide)
    o = torch.cat(outs, 2).transpose(1, 2)
    return (o, S) if return_final_state else o


# ## Halves
#
# A chunk of four tokens, in numbers. In one channel the gates leave 1/2, 1/4, 1/8 and 1/16: their logarithms are −0.69,
# −1.39, −2.08 and −2.77. Token 3 reads token 0 through the gates of tokens 1, 2 and 3, which leave 1/512. The textbook
# multiplies up from the chunk's start, 1/2, 1/8, 1/64, 1/1024, and divides: 1/1024 by 1/2. As a factor for a row and a
# factor for a column that is 1/1024 times 2. The second factor is the trouble. Here it is small, but after 18 tokens
# with gates of −5 it is more than float32 can hold. Counting both from a token in the middle of the chunk only halves
# the trouble, and mixes in gates that come later than the reader.
#
# Now in halves. Each row is a reader on one level, and nothing in it is above 1.
#
# | halves | reader | writers | up to the reader | after the writer | together |
# |---|---|---|---|---|---|
# | of 1 token | 1 | 0 | 1/4 | 1 | 1/4 |
# | | 3 | 2 | 1/16 | 1 | 1/16 |
# | of 2 tokens | 2 | 0, 1 | 1/8 | 1/4, 1 | 1/32, 1/8 |
# | | 3 | 0, 1 | 1/128 | 1/4, 1 | 1/512, 1/128 |
#
# Nothing is divided, and no sum is subtracted from another. So a gate of −∞ is nothing special: it leaves exactly 0,
# and so does every product with it. `within_halves` computes the factors, `faded_products` the products of all levels.


# ## What a chunk needs to know before the state is known
#
# A program has one head of one chunk. Channels come `BLOCK_D` at a time: sums over channels are sums over such blocks.
# It leaves the scores [[tag: KDA-P]], $W$, and $U^0$, the differences as they would be with a state of 0, in float32:
# rounded to 16 bits, they would make the error of the result larger, in our trials by up to 30%.
@triton.jit
def kda_prepare_kernel(
    q_tensor, k_tensor, v_tensor,  # (pointer, four strides) of (B, Hk, T, D), twice, and (B, H, T, E)
    g_tensor, beta_tensor,  # the same, with (B, H, T, D) and (B, H, T)
    p_tensor, inverse_tensor,  # (chunks, H, BLOCK_T, BLOCK_T); the second may be None
    w_tensor, own_tensor,  # (B, H, T, D) and, in float32, (B, H, T, E)
    sequences, numbers, INPUT_PRECISION: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    H, group, scale, D, E = numbers
    c, h = tl.program_id(0) // H, tl.program_id(0) % H
    b, start, length, start_t = chunk_at(sequences, c, BLOCK_T)
    if start_t >= length:
        return
    place = tl.arange(0, BLOCK_T)
    offs_t, end = start_t + place, tl.minimum(length, start_t + BLOCK_T)
    q_head, k_head = head(q_tensor, b, h // group, start), head(k_tensor, b, h // group, start)
    g_head = head(g_tensor, b, h, start)
    beta = load_gates(beta_tensor, b, h, start, offs_t, length)[:, None]
    p, a = tl.zeros((BLOCK_T, BLOCK_T), tl.float32), tl.zeros((BLOCK_T, BLOCK_T), tl.float32)
    own = tl.zeros((BLOCK_T,), tl.float32)
    for start_d in tl.range(0, D, BLOCK_D):
        offs_d = start_d + tl.arange(0, BLOCK_D)
        q, k = load_block(q_head, offs_t, length, offs_d, D), load_block(k_head, offs_t, length, offs_d, D)
        # The example's first channel is that of the table: `pid=0: left[:, 0] = [0.5, 0.25, 0.125, 0.0625]`, and of the
        # next gates `pid=0: next_left[:, 0] = [0.25, 0.125, 0.0625, 1]`. The last token has none after it.
        left = what_is_left(load_block(g_head, offs_t, length, offs_d, D).to(tl.float32), k.dtype)
        next_left = what_is_left(load_block(g_head, offs_t + 1, end, offs_d, D).to(tl.float32), k.dtype)
        p_here, a_here = faded_products(q, k * beta, k, left, next_left, INPUT_PRECISION)
        p += p_here
        a += a_here
        own += tl.sum(q.to(tl.float32) * k, axis=1)
    # A token reads itself, and no gate is between.
    p = tl.where(place[:, None] == place[None, :], own[:, None], p) * scale
    store_block(head(p_tensor, c, h, 0), p, place, BLOCK_T, place, BLOCK_T)
    # [[tag: KDA-A]], and its inverse, [[tag: KDA-T]], without the ones on the diagonal. All keys of the example are
    # (1/2, 1/2), and β of token 3 is a half. It reads 1/512 of token 0 in one channel and all of it in the other, a
    # quarter of 1/512 + 1, times a half: `pid=0: a[3] = [0.1252, 0.126, 0.1328, 0]`.
    inverse = inverse_of_system(a, BLOCK_T, "ieee" if k_head[0].dtype.element_ty == tl.float32 else "tf32")
    if inverse_tensor[0] is not None:  # backward wants it
        store_block(head(inverse_tensor, c, h, 0), inverse, place, BLOCK_T, place, BLOCK_T)
    # [[tag: KDA-W]]
    for start_d in tl.range(0, D, BLOCK_D):
        offs_d = start_d + tl.arange(0, BLOCK_D)
        k = load_block(k_head, offs_t, length, offs_d, D)
        left = what_is_left(load_block(g_head, offs_t, length, offs_d, D).to(tl.float32), k.dtype)
        asked = k * beta * tl.cumprod(left, axis=0)
        w = multiply_add(inverse.to(k.dtype), asked.to(k.dtype), asked, INPUT_PRECISION)
        store_block(head(w_tensor, b, h, start), w, offs_t, length, offs_d, D)
    for start_e in tl.range(0, E, BLOCK_E):
        offs_e = start_e + tl.arange(0, BLOCK_E)
        v = load_block(head(v_tensor, b, h, start), offs_t, length, offs_e, E)
        told = v * beta
        u = multiply_add(inverse.to(v.dtype), told.to(v.dtype), told, INPUT_PRECISION)
        store_block(head(own_tensor, b, h, start), u, offs_t, length, offs_e, E)


# ## The walk
#
# From state to state, as in the gated delta rule. Each row of the state fades by its own factor. What each token writes
# fades by channels, too, so the key takes the decay, and not the difference. The keys are loaded with channels as rows,
# as their product with the differences wants them.
@triton.jit
def kda_states_kernel(
    k_tensor, g_tensor, w_tensor, own_tensor, u_tensor,  # as above; u like v
    initial_tensor, states_tensor, final_tensor,  # (sequences or chunks, H, D, E); the first may be None
    sequences, numbers, INPUT_PRECISION: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    H, group, _, D, E = numbers
    tiles = tl.cdiv(E, BLOCK_E)
    b, h, tile = tl.program_id(0) // tiles // H, tl.program_id(0) // tiles % H, tl.program_id(0) % tiles
    start, length, first = chunks_of(sequences, b, BLOCK_T)
    k_head, g_head = head(k_tensor, b, h // group, start), head(g_tensor, b, h, start)
    w_head, own_head, u_head = head(w_tensor, b, h, start), head(own_tensor, b, h, start), head(u_tensor, b, h, start)
    offs_d, offs_e = tl.arange(0, BLOCK_D), tile * BLOCK_E + tl.arange(0, BLOCK_E)
    state = load_state(initial_tensor, b, h, offs_d, D, offs_e, E)
    for start_t in tl.range(0, length, BLOCK_T):
        store_block(head(states_tensor, first + start_t // BLOCK_T, h, 0), state, offs_d, D, offs_e, E)
        offs_t, end = start_t + tl.arange(0, BLOCK_T), tl.minimum(length, start_t + BLOCK_T)
        w = load_block(w_head, offs_t, length, offs_d, D)
        # [[tag: KDA-U]]
        u = load_block(own_head, offs_t, length, offs_e, E) - state_product(w, state, INPUT_PRECISION)
        u = u.to(w.dtype)
        store_block(u_head, u, offs_t, length, offs_e, E)
        # [[tag: KDA-next]]
        k = load_block(turned(k_head), offs_d, D, offs_t, length)
        left = what_is_left(load_block(turned(g_head), offs_d, D, offs_t, length).to(tl.float32), k.dtype)
        next_left = what_is_left(load_block(turned(g_head), offs_d, D, offs_t + 1, end).to(tl.float32), k.dtype)
        # A half of what is left at the chunk's end, `pid=0, start_t=0: kept[0] = [0.0009766, 0.003906, 0.03125, 0.5]`.
        kept = (k * tl.cumprod(next_left, axis=1, reverse=True)).to(k.dtype)
        state = multiply_add(kept, u, state * left_of_all(left, 1)[:, None], INPUT_PRECISION)
    store_block(head(final_tensor, b, h, 0), state, offs_d, D, offs_e, E)


# ## The outputs
#
# All chunks at once: what the queries read of the state before the chunk, and of the chunk's differences.
@triton.jit
def kda_outputs_kernel(
    q_tensor, g_tensor, p_tensor, u_tensor, states_tensor, o_tensor,  # as above
    sequences, numbers, INPUT_PRECISION: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    H, group, scale, D, E = numbers
    tiles = tl.cdiv(E, BLOCK_E)
    c, h, tile = tl.program_id(0) // tiles // H, tl.program_id(0) // tiles % H, tl.program_id(0) % tiles
    b, start, length, start_t = chunk_at(sequences, c, BLOCK_T)
    if start_t >= length:  # there was room for one more chunk
        return
    place, offs_d, offs_e = tl.arange(0, BLOCK_T), tl.arange(0, BLOCK_D), tile * BLOCK_E + tl.arange(0, BLOCK_E)
    offs_t = start_t + place
    q = load_block(head(q_tensor, b, h // group, start), offs_t, length, offs_d, D)
    left = what_is_left(load_block(head(g_tensor, b, h, start), offs_t, length, offs_d, D).to(tl.float32), q.dtype)
    p = load_block(head(p_tensor, c, h, 0), place, BLOCK_T, place, BLOCK_T)
    u = load_block(head(u_tensor, b, h, start), offs_t, length, offs_e, E)
    state = load_block(head(states_tensor, c, h, 0), offs_d, D, offs_e, E)
    # [[tag: KDA-chunk]]
    reads = (q * tl.cumprod(left, axis=0)).to(q.dtype)
    o = multiply_add(p, u, state_product(reads, state, INPUT_PRECISION) * scale, INPUT_PRECISION)
    store_block(head(o_tensor, b, h, start), o, offs_t, length, offs_e, E)


# ## Backward: the walk back
#
# As in the gated delta rule: a difference gets what the outputs and the next state want of it, [[tag: KDA-dU]], the
# transposed inverse takes that to the right side of the system, [[tag: KDA-dR]], and the state before the chunk gets
# what queries read and keys asked of it, [[tag: KDA-dS]]. `dr` is float32 like $U^0$.
@triton.jit
def kda_state_gradients_kernel(
    do_tensor, q_tensor, k_tensor, g_tensor, beta_tensor, p_tensor, inverse_tensor,  # as above
    dr_tensor, dv_tensor,  # like v
    dfinal_tensor, dstates_tensor, dinitial_tensor,  # as the states
    sequences, numbers, INPUT_PRECISION: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    H, group, scale, D, E = numbers
    tiles = tl.cdiv(E, BLOCK_E)
    b, h, tile = tl.program_id(0) // tiles // H, tl.program_id(0) // tiles % H, tl.program_id(0) % tiles
    start, length, first = chunks_of(sequences, b, BLOCK_T)
    q_head, k_head = head(q_tensor, b, h // group, start), head(k_tensor, b, h // group, start)
    g_head, do_head = head(g_tensor, b, h, start), head(do_tensor, b, h, start)
    place, offs_d = tl.arange(0, BLOCK_T), tl.arange(0, BLOCK_D)
    offs_e = tile * BLOCK_E + tl.arange(0, BLOCK_E)
    dstate = load_state(dfinal_tensor, b, h, offs_d, D, offs_e, E)
    chunks = tl.cdiv(length, BLOCK_T)
    for passed in tl.range(0, chunks):
        n = chunks - 1 - passed
        store_block(head(dstates_tensor, first + n, h, 0), dstate, offs_d, D, offs_e, E)
        offs_t, end = n * BLOCK_T + place, tl.minimum(length, (n + 1) * BLOCK_T)
        do = load_block(do_head, offs_t, length, offs_e, E)
        beta = load_gates(beta_tensor, b, h, start, offs_t, length)
        # [[tag: KDA-dU]]
        k = load_block(k_head, offs_t, length, offs_d, D)
        next_left = what_is_left(load_block(g_head, offs_t + 1, end, offs_d, D).to(tl.float32), k.dtype)
        kept = (k * tl.cumprod(next_left, axis=0, reverse=True)).to(k.dtype)
        p = load_block(turned(head(p_tensor, first + n, h, 0)), place, BLOCK_T, place, BLOCK_T)
        du = multiply_add(p, do, state_product(kept, dstate, INPUT_PRECISION), INPUT_PRECISION)
        # [[tag: KDA-dR]]
        inverse = load_block(turned(head(inverse_tensor, first + n, h, 0)), place, BLOCK_T, place, BLOCK_T)
        dr = multiply_add(inverse, du.to(do.dtype), du, INPUT_PRECISION)
        store_block(head(dr_tensor, b, h, start), dr, offs_t, length, offs_e, E)
        # [[tag: KDA-dv]]
        store_block(head(dv_tensor, b, h, start), dr * beta[:, None], offs_t, length, offs_e, E)
        # [[tag: KDA-dS]]
        q = load_block(turned(q_head), offs_d, D, offs_t, length)
        k = load_block(turned(k_head), offs_d, D, offs_t, length)
        left = what_is_left(load_block(turned(g_head), offs_d, D, offs_t, length).to(tl.float32), k.dtype)
        fade = tl.cumprod(left, axis=1)
        dstate *= left_of_all(left, 1)[:, None]
        dstate = multiply_add((q * fade * scale).to(q.dtype), do, dstate, INPUT_PRECISION)
        asks = (k * fade * -beta[None, :]).to(k.dtype)
        dstate = multiply_add(asks, dr.to(k.dtype), dstate, INPUT_PRECISION)
    store_block(head(dinitial_tensor, b, h, 0), dstate, offs_d, D, offs_e, E)


# ## Backward: inside of a chunk
#
# The gradient of a masked product is two masked products, level by level. And a gate: it is between every pair of a
# level whose sums contain it. A gate of a second half is in the sums of all readers of that half that are not before
# it; a gate of a first half is in the sums of the writers of that half that are before it. So on each level the gate's
# gradient is a sum over part of a half, of what the level adds to the gradient of q, times q, and the same for k. $M$
# with its three indices is never formed, and still no difference is taken.
#
# `faded_gradients` does that. The rows of the system are keys times β, so what comes out beside dq and dk is the
# gradient of $\beta_i k_i$: it serves the key and β alike, and nothing is divided by β.
#
# A program has a chunk, `BLOCK_D` channels, and a head of keys with all heads of values that share it, so that the
# gradients of q and k are summed in one place. The gradients of $P$ and $A$ are sums over the columns of v, and every
# block of channels computes them anew. β has all channels, so each program writes its part of the gradient, and PyTorch
# adds the parts.
@triton.jit
def kda_gradients_kernel(
    do_tensor, q_tensor, k_tensor, v_tensor, g_tensor, beta_tensor, u_tensor, dr_tensor,  # as above
    states_tensor, dstates_tensor,  # (chunks, H, D, E)
    dq_tensor, dk_tensor, dg_tensor, dbeta_tensor,  # like q, k and g (or None); (B, H, T, blocks of channels)
    sequences, numbers, INPUT_PRECISION: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    Hk, group, scale, D, E = numbers
    blocks = tl.cdiv(D, BLOCK_D)
    c, hk, block = tl.program_id(0) // blocks // Hk, tl.program_id(0) // blocks % Hk, tl.program_id(0) % blocks
    b, start, length, start_t = chunk_at(sequences, c, BLOCK_T)
    if start_t >= length:
        return
    offs_d = block * BLOCK_D + tl.arange(0, BLOCK_D)
    offs_t, end = start_t + tl.arange(0, BLOCK_T), tl.minimum(length, start_t + BLOCK_T)
    rows, columns = tl.arange(0, BLOCK_T)[:, None], tl.arange(0, BLOCK_T)[None, :]
    q = load_block(head(q_tensor, b, hk, start), offs_t, length, offs_d, D)
    k = load_block(head(k_tensor, b, hk, start), offs_t, length, offs_d, D)
    square, tile = tl.zeros((BLOCK_T, BLOCK_T), tl.float32), tl.zeros((BLOCK_T, BLOCK_D), tl.float32)
    dq, dk = tile, tile
    for h in tl.range(hk * group, (hk + 1) * group):
        beta = load_gates(beta_tensor, b, h, start, offs_t, length)
        lam, lam_turned, alpha, alpha_turned = square, square, square, square
        read, asked, written = tile, tile, tile
        through, dbeta = tl.zeros((BLOCK_D,), tl.float32), tl.zeros((BLOCK_T,), tl.float32)
        for start_e in tl.range(0, E, BLOCK_E):
            offs_e = start_e + tl.arange(0, BLOCK_E)
            do = load_block(head(do_tensor, b, h, start), offs_t, length, offs_e, E)
            u = load_block(head(u_tensor, b, h, start), offs_t, length, offs_e, E)
            dr = load_block(head(dr_tensor, b, h, start), offs_t, length, offs_e, E)
            # [[tag: KDA-dA]], and the same for $P$, with a row for each reading token and for each token that is read
            lam = multiply_add(do, tl.trans(u), lam, INPUT_PRECISION)
            lam_turned = multiply_add(u, tl.trans(do), lam_turned, INPUT_PRECISION)
            rho = (-dr).to(u.dtype)
            alpha = multiply_add(rho, tl.trans(u), alpha, INPUT_PRECISION)
            alpha_turned = multiply_add(u, tl.trans(rho), alpha_turned, INPUT_PRECISION)
            # Y, Z and Ω, decayed below
            state = load_block(head(states_tensor, c, h, 0), offs_d, D, offs_e, E)
            dstate = load_block(head(dstates_tensor, c, h, 0), offs_d, D, offs_e, E)
            read += state_product(do, tl.trans(state), INPUT_PRECISION)
            asked += state_product(rho, tl.trans(state), INPUT_PRECISION)
            written += state_product(u, tl.trans(dstate), INPUT_PRECISION)
            through += tl.sum(state.to(tl.float32) * dstate, axis=1)
            if block == 0:  # of all channels together, so once
                v = load_block(head(v_tensor, b, h, start), offs_t, length, offs_e, E)
                dbeta += tl.sum(dr * v, axis=1)
        g_head = head(g_tensor, b, h, start)
        left = what_is_left(load_block(g_head, offs_t, length, offs_d, D).to(tl.float32), k.dtype)
        next_left = what_is_left(load_block(g_head, offs_t + 1, end, offs_d, D).to(tl.float32), k.dtype)
        fade = tl.cumprod(left, axis=0)
        read, asked = read * fade * scale, asked * fade
        written *= tl.cumprod(next_left, axis=0, reverse=True)
        # What is not below the diagonal takes part in no level.
        own_k, lam, lam_turned = k * beta[:, None], lam * scale, lam_turned * scale
        own = tl.sum(tl.where(rows == columns, lam, 0.0), axis=1)[:, None]
        dq_here, down, dk_here, dg = faded_gradients(
            lam, lam_turned, alpha, alpha_turned, q, own_k, k, left, next_left, INPUT_PRECISION
        )
        # [[tag: KDA-dbeta]], [[tag: KDA-dq]], [[tag: KDA-dk]]
        down += asked
        dbeta += tl.sum(k * down, axis=1)
        dq += dq_here + own * k + read
        dk += dk_here + own * q + written + beta[:, None] * down
        # [[tag: KDA-dg]]: from the state before the chunk, to the one after it, and from the one to the other
        dg += tl.cumsum(q * read + own_k * asked, axis=0, reverse=True)
        dg += sums_across((rows > columns).to(tl.float32), k * written, k.dtype)
        dg += (left_of_all(left, 0) * through)[None, :]
        if dg_tensor[0] is not None:
            store_block(head(dg_tensor, b, h, start), dg, offs_t, length, offs_d, D)
        store_block(head(dbeta_tensor, b, h, start), dbeta[:, None], offs_t, length, block + tl.arange(0, 1), blocks)
    store_block(head(dq_tensor, b, hk, start), dq, offs_t, length, offs_d, D)
    store_block(head(dk_tensor, b, hk, start), dk, offs_t, length, offs_d, D)


# ## The launchers
#
# Chunks have 32 tokens: with twice as many a level more, and twice the work on each. In float32 they have 16. With
# equal keys a token's gradient is the small difference of two large sums over later tokens, and a product rounds after
# each term: chains of 32 have more than twice the error of PyTorch, which goes from token to token. The walks and the
# outputs have all channels in a tile, because the state is asked as a whole; the kernels with levels take a part of
# them. Widths of values and warps are those of linear attention, for the reasons that are said there.
def sizes(q, v, BLOCK_T, BLOCK_D, BLOCK_E):
    """The constants of the walks and the outputs, and of the kernels with levels. q and v: (B, heads, T, width)."""
    checks.power_of_two(BLOCK_T=BLOCK_T, BLOCK_D=BLOCK_D, BLOCK_E=BLOCK_E)
    widest, whole = max(q.shape[-1], v.shape[-1]), max(16, triton.next_power_of_2(q.shape[-1]))
    if q.dtype == torch.float32:
        T, most = 16, 32 if widest <= 64 else 16
    else:
        T, most = 32, 64 if widest <= 128 else 32
    least = 16 if whole <= 32 or q.dtype == torch.float32 else most
    E = BLOCK_E or min(most, max(least, triton.next_power_of_2(v.shape[-1])))
    warps = 2 if whole <= 32 and q.dtype != torch.float32 else 4 if widest <= 128 else 8
    walk = dict(INPUT_PRECISION=input_precision(), BLOCK_T=BLOCK_T or T, BLOCK_D=whole, BLOCK_E=E)
    walk |= dict(num_warps=warps, num_stages=2)
    return walk, walk | dict(BLOCK_D=BLOCK_D or min(whole, 32 if q.dtype == torch.float32 else 64), num_stages=1)


# A call without gates has gates of 0: one number in memory, with strides of 0.
def gates_of(g, q, v):
    return q.new_zeros((), dtype=torch.float32).expand(*v.shape[:3], q.shape[3]) if g is None else g


def differences(q, k, v, g, beta, initial_state, cu_seqlens, chunks, scale, walk, part, inverse=None):
    """`(p, u, states, final_state)`: scores of each chunk, u like v, and the state before each chunk."""
    packed, H, T = partial(tensor, cu_seqlens=cu_seqlens), v.shape[1], walk["BLOCK_T"]
    final, u = new_state(k, v, cu_seqlens), new_like(v, cu_seqlens)
    states, p = states_between(k, final, chunks), k.new_empty(chunks.count, H, T, T)
    w, own = k.new_empty(k.shape[0], H, *k.shape[2:]), torch.empty_like(v, dtype=torch.float32)
    numbers = H, H // k.shape[1], scale, k.shape[3], v.shape[3]
    if chunks.batch * H:
        if chunks.count:
            kda_prepare_kernel[(chunks.count * H,)](
                packed(q), packed(k), packed(v), packed(g), packed(beta), tensor(p), tensor(inverse), packed(w),
                packed(own), chunks.sequences, numbers, **part,
            )  # fmt: skip
        kda_states_kernel[(chunks.batch * H * triton.cdiv(v.shape[3], walk["BLOCK_E"]),)](
            packed(k), packed(g), packed(w), packed(own), packed(u), tensor(initial_state), tensor(states),
            tensor(final), chunks.sequences, numbers, **walk,
        )  # fmt: skip
    return p, u, states, final


@opaque(
    "(Tensor q, Tensor k, Tensor v, Tensor? g, Tensor beta, Tensor? initial_state, Tensor? cu_seqlens, *, float scale) "
    "-> (Tensor, Tensor)",
    lambda q, k, v, g, beta, initial, cu_seqlens, **scale: (torch.empty_like(v), new_state(q, v, cu_seqlens)),
)
def kda_forward(q, k, v, g, beta, initial_state, cu_seqlens, *, scale, BLOCK_T=None, BLOCK_D=None, BLOCK_E=None):
    """`(o, final_state)`. q and k: (B, Hk, T, D), v and o: (B, H, T, E), g: (B, H, T, D) or None, beta: (B, H, T).

    With `cu_seqlens` B is 1, and all sequences lie along T.
    """
    walk, part = sizes(q, v, BLOCK_T, BLOCK_D, BLOCK_E)
    chunks, packed, H = cut(q, cu_seqlens, walk["BLOCK_T"]), partial(tensor, cu_seqlens=cu_seqlens), v.shape[1]
    g = gates_of(g, q, v)
    p, u, states, final = differences(q, k, v, g, beta, initial_state, cu_seqlens, chunks, scale, walk, part)
    o, programs = new_like(v, cu_seqlens), chunks.count * H * triton.cdiv(v.shape[3], walk["BLOCK_E"])
    if programs and chunks.batch:
        kda_outputs_kernel[(programs,)](
            packed(q), packed(g), tensor(p), packed(u), tensor(states), packed(o), chunks.sequences,
            (H, H // k.shape[1], scale, k.shape[3], v.shape[3]), **walk,
        )  # fmt: skip
    return o, final


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
    do, dfinal, q, k, v, g, beta, initial_state, cu_seqlens, *, scale, BLOCK_T=None, BLOCK_D=None, BLOCK_E=None
):
    """`(dq, dk, dv, dg, dbeta, dinitial)` from the upstream gradients of o and the final state, of which one may be
    None. Without gates dg has no elements."""
    walk, part = sizes(q, v, BLOCK_T, BLOCK_D, BLOCK_E)
    chunks, packed = cut(q, cu_seqlens, walk["BLOCK_T"]), partial(tensor, cu_seqlens=cu_seqlens)
    (Hk, D), (H, E) = (k.shape[1], k.shape[3]), (v.shape[1], v.shape[3])
    do = v.new_zeros(()).expand(v.shape) if do is None else do
    gates, inverse = gates_of(g, q, v), v.new_empty(chunks.count, H, walk["BLOCK_T"], walk["BLOCK_T"])
    p, u, states, dinitial = differences(
        q, k, v, gates, beta, initial_state, cu_seqlens, chunks, scale, walk, part, inverse
    )
    dstates, dr = torch.empty_like(states), torch.empty_like(u, dtype=torch.float32)
    dq, dk, dv = (new_like(x, cu_seqlens) for x in (q, k, v))
    dg, blocks = None if g is None else new_like(g, cu_seqlens), triton.cdiv(D, part["BLOCK_D"])
    dbeta = new_like(beta[..., None].expand(*beta.shape, blocks), cu_seqlens, torch.float32)
    if chunks.batch * H:
        kda_state_gradients_kernel[(chunks.batch * H * triton.cdiv(E, walk["BLOCK_E"]),)](
            packed(do), packed(q), packed(k), packed(gates), packed(beta), tensor(p), tensor(inverse), packed(dr),
            packed(dv), tensor(dfinal), tensor(dstates), tensor(dinitial), chunks.sequences, (H, H // Hk, scale, D, E),
            **walk,
        )  # fmt: skip
    if chunks.batch * chunks.count:
        kda_gradients_kernel[(chunks.count * Hk * blocks,)](
            packed(do), packed(q), packed(k), packed(v), packed(gates), packed(beta), packed(u), packed(dr),
            tensor(states), tensor(dstates), packed(dq), packed(dk), packed(dg), packed(dbeta), chunks.sequences,
            (Hk, H // Hk, scale, D, E), **part,
        )  # fmt: skip
    return dq, dk, dv, v.new_empty(0) if g is None else dg, dbeta.sum(-1).to(beta.dtype), dinitial


# ## The public functions
#
# The autograd `Function` is the one of [all delta rules](../common/delta_rule.py): it saves the inputs, and gets both
# launchers.
LAUNCHERS = kda_forward, kda_backward


@replayed
def kda(q, k, v, g, beta, *, scale=None, initial_state=None, return_final_state=False):
    r"""The delta rule with a state whose rows fade each at its own speed; differentiable in all tensors.

    Args:
        q, k: (B, T, Hk, D), float32, float16 or bfloat16, any strides, D at most 256. T may be 0. Keys should
            have length 1 at most; nothing is normalised here.
        v: (B, T, H, E), dtype of `q`, any strides, E at most 256; H is a multiple of Hk.
        g: (B, T, H, D), float32 or the dtype of `q`: the natural logarithm of the decay of each row of the state before
            each token, 0 or negative; −∞ forgets the row. None: no decay, the plain delta rule.
        beta: (B, T, H), float32 or the dtype of `q`: how much of the difference is written, usually 0 to 1.
        scale: of the queries, default $1/\sqrt{D}$.
        initial_state: (B, H, D, E), float32: what came before. None: nothing.
        return_final_state: whether to return the state after the last token as well.

    Returns:
        o, (B, T, H, E) in the dtype of `q`; or (o, state) with the state (B, H, D, E), float32.

    Raises:
        TypeError, ValueError: an argument has a wrong type, dtype, shape or device, or a number is out of range.

    Source: Kimi Team, "Kimi Linear: An Expressive, Efficient Attention Architecture" (arXiv 2510.26692).
    """
    scale = contract(q, k, v, g, scale, initial_state, return_final_state, per_channel=True, beta=beta)
    q, k, v, g, beta = (None if x is None else x.transpose(1, 2) for x in (q, k, v, g, beta))
    o, final = attend(q, k, v, g, beta, initial_state, None, scale, *LAUNCHERS)
    return (o.transpose(1, 2), final) if return_final_state else o.transpose(1, 2)


@replayed
def kda_varlen(q, k, v, g, beta, cu_seqlens, *, scale=None, initial_state=None, return_final_state=False):
    """`kda` of sequences of different lengths, packed one after another.

    Args:
        q, k: (total, Hk, D). v: (total, H, E), any strides. g: (total, H, D), or None. beta: (total, H).
        cu_seqlens: (sequences + 1,) int32: where each sequence begins, and where the last ends, rising from 0 to at
            most the total. Checked on the CPU and with `ACADEMY_DEBUG=1`. Rows of no sequence give 0.
        initial_state: (sequences, H, D, E), float32, or None.
        scale, return_final_state: as in `kda`.

    Returns:
        o, (total, H, E); or (o, state) with the state (sequences, H, D, E), float32.

    Raises:
        TypeError, ValueError: as `kda`; ValueError also for wrong offsets.

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
# The four tokens of the table above, in one chunk. The first channel has its gates, the second none.
def EXAMPLE():
    at = torch.arange(8, dtype=torch.float32, device=device.DEVICE)
    k = torch.full((1, 1, 4, 2), 0.5, device=device.DEVICE)
    q, v = (at * 3 % 5 - 2).view(1, 1, 4, 2), (at * 7 % 5).view(1, 1, 4, 2)
    g = torch.tensor([[0.5, 1], [0.25, 1], [0.125, 1], [0.0625, 1]], device=device.DEVICE).log()[None, None]
    beta = torch.tensor([[[1.0, 1.0, 1.0, 0.5]]], device=device.DEVICE)
    how = dict(scale=1.0, BLOCK_T=4, BLOCK_D=2, BLOCK_E=2)
    kda_forward(q, k, v, g, beta, None, None, **how)
    kda_backward(v.flip(2), None, q, k, v, g, beta, None, None, **how)


if __name__ == "__main__":
    script.main(kda, kda_reference)
