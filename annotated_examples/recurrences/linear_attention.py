r"""
# Linear attention: a state instead of all keys

Attention keeps every key and every value, and compares each new query with all of them. Linear attention leaves out the
softmax. Then the values can be added up before the query is known: each token adds the outer product of its key and its
value to a matrix, the *state*, and a query reads from it.

[[eq: LA-S]]

[[eq: LA-O]]

The state has $D \times E$ numbers however long the text is. Before each token it may fade by $e^{g_t}$: $g_t$ is 0 or
negative, and $-\infty$ forgets everything. With one constant per head this is RetNet's layer or lightning attention;
with gates computed from the text it is the heart of Mamba-2 (q is its C, k its B, v its $x \Delta$, g its
$\Delta A$, the scale 1).

One step after the other would keep a GPU waiting. So the sequence is cut into chunks. Inside of a chunk the tokens
look at each other, as in [causal attention](../attention/causal_attention.py); what came before the chunk they read
from a state.

[[eq: LA-chunk]]

[[eq: LA-next]]

**What it costs.** Forward takes about $2 C D E + C^2 (D + E)$ multiplications for a chunk of $C$ tokens, and writes and
reads a state of $D E$ numbers. Short chunks mean many states, long ones many pairs of tokens. In bfloat16, at C = 64
and D = E = 128, the states alone, written and read, take as many bytes as q, k, v and o together. Backward computes the
states again instead of keeping them. [The fast version](../fast/linear_attention.py) stores none.

**Contract.** `q` and `k` are (B, T, Hk, D), `v` is (B, T, H, E), with any strides, in float32, float16 or bfloat16; H
is a multiple of Hk, D and E are at most 256. `g` is (B, T, H), in float32 or their dtype. States are float32, going in
and coming out. Sums and decays are float32. A NaN or an infinity in the key or value of token t reaches the tokens from
t on; as 0 · NaN is NaN, it may also reach earlier tokens of its chunk. One in a query stays in its row.
"""

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import math
from functools import partial

import torch
import triton
import triton.language as tl

from annotated_examples.common.attention import head, store_numbers
from annotated_examples.common.chunks import (
    chunk_at, chunks_of, contract, cut, decay_between, decay_between_transposed, decay_from_start, decay_of_all,
    decay_to_end, gate_gradient, load_block, load_gates, load_state, new_like, new_state, of_keys, of_queries,
    state_product, states_between, store_block, sums_from, tensor,
)  # fmt: skip
from annotated_examples.common.custom_operator import opaque
from annotated_examples.common.products import input_precision, multiply_add


# ## Reference
#
# All pairs of tokens at once: attention without a softmax. The products are in the dtype of `q`, everything else is in
# float32 at least. In float64 it is what the kernels are measured against.
def linear_attention_reference(q, k, v, g=None, *, scale=None, initial_state=None, return_final_state=False):
    (B, T, Hk, D), (H, E), dtype = q.shape, v.shape[2:], q.dtype
    wide, scale = torch.promote_types(dtype, torch.float32), D**-0.5 if scale is None else scale
    q, k = (x.transpose(1, 2).repeat_interleave(H // Hk, dim=1) for x in (q, k))
    g = q.new_zeros(B, H, T, dtype=wide) if g is None else g.transpose(1, 2).to(wide)
    S = q.new_zeros(B, H, D, E, dtype=wide) if initial_state is None else initial_state.to(wide)
    G, v = g.cumsum(-1), v.transpose(1, 2)
    later = torch.ones(T, T, dtype=torch.bool, device=q.device).triu(1)
    decay = (G[..., :, None] - G[..., None, :]).masked_fill(later, -math.inf).exp()
    P = ((q @ k.mT).to(wide) * decay * scale).to(dtype)
    o = P @ v + ((q @ S.to(dtype)).to(wide) * G.exp()[..., None] * scale).to(dtype)
    whole = g.sum(-1, keepdim=True)
    kept = (k.to(wide) * (whole - G).exp()[..., None]).to(dtype)
    S = S * whole.exp()[..., None] + (kept.mT @ v).to(wide)
    return (o.transpose(1, 2), S) if return_final_state else o.transpose(1, 2)


# ## The walk: a state for every chunk
# [[figure: chunks/pairs]]


# A program has one head of one sequence and `BLOCK_E` columns of its state. It goes from chunk to chunk. Columns of a
# state never meet, so several programs can share a head.
#
# `sequences` says where the sequences and their chunks lie, and `chunks_of` looks it up. The grid
# has a single axis, which may have two billion programs. The other two end at 65,535, too few for many short sequences.
@triton.jit
def states_kernel(
    k_tensor, v_tensor,  # (pointer, four strides) of (B, Hk, T, D) and (B, H, T, E)
    g_tensor,  # the same, with (B, H, T), or None
    initial_tensor, states_tensor, final_tensor,  # the same: (sequences or chunks, H, D, E); the first may be None
    sequences, H, group, D: tl.constexpr, E: tl.constexpr, INPUT_PRECISION: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(E, BLOCK_E)
    b, h, tile = tl.program_id(0) // tiles // H, tl.program_id(0) // tiles % H, tl.program_id(0) % tiles
    start, length, first = chunks_of(sequences, b, BLOCK_T)
    k_head, v_head = head(k_tensor, b, h // group, start), head(v_tensor, b, h, start)
    offs_d, offs_e = tl.arange(0, BLOCK_D), tile * BLOCK_E + tl.arange(0, BLOCK_E)
    state = load_state(initial_tensor, b, h, offs_d, D, offs_e, E)
    for start_t in tl.range(0, length, BLOCK_T):
        # The state *before* the chunk is what the chunk's tokens read.
        store_block(head(states_tensor, first + start_t // BLOCK_T, h, 0), state, offs_d, D, offs_e, E)
        offs_t = start_t + tl.arange(0, BLOCK_T)
        k, v = load_block(k_head, offs_t, length, offs_d, D), load_block(v_head, offs_t, length, offs_e, E)
        g = load_gates(g_tensor, b, h, start, offs_t, length)
        # [[tag: LA-next]]: the later gates of the chunk decide how much of a token is left at its end. In the example
        # the first chunk's gates are `pid=0, start_t=0: g = [-1, -0.5]`. That leaves `pid=0, start_t=0: kept[0] =
        # 0.6065` of token 0, and all of token 1.
        kept = decay_to_end(g)
        state = multiply_add(tl.trans(k), (v * kept[:, None]).to(v.dtype), state * decay_of_all(g), INPUT_PRECISION)
    store_block(head(final_tensor, b, h, 0), state, offs_d, D, offs_e, E)


# ## The outputs: a chunk at a time
#
# Now all chunks are independent, and each has a program for every head and every `BLOCK_E` columns.
@triton.jit
def outputs_kernel(
    q_tensor, k_tensor, v_tensor, g_tensor, states_tensor, o_tensor,  # as above
    sequences, H, group, scale, D: tl.constexpr, E: tl.constexpr, INPUT_PRECISION: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(E, BLOCK_E)
    c, h, tile = tl.program_id(0) // tiles // H, tl.program_id(0) // tiles % H, tl.program_id(0) % tiles
    b, start, length, start_t = chunk_at(sequences, c, BLOCK_T)
    if start_t >= length:  # there was room for one more chunk
        return
    offs_d, offs_e = tl.arange(0, BLOCK_D), tile * BLOCK_E + tl.arange(0, BLOCK_E)
    offs_t = start_t + tl.arange(0, BLOCK_T)
    q = load_block(head(q_tensor, b, h // group, start), offs_t, length, offs_d, D)
    k = load_block(head(k_tensor, b, h // group, start), offs_t, length, offs_d, D)
    v = load_block(head(v_tensor, b, h, start), offs_t, length, offs_e, E)
    state = load_block(head(states_tensor, c, h, 0), offs_d, D, offs_e, E)
    g = load_gates(g_tensor, b, h, start, offs_t, length)
    # [[tag: LA-P]]: scores, each times what the gates between the two tokens leave, and 0 for a later token. The second
    # chunk of the example has `pid=1: decay = [[1, 0], [0.1353, 1]]`.
    decay = decay_between(g, q.dtype)
    p = tl.dot(q, tl.trans(k), input_precision=INPUT_PRECISION) * scale * decay
    # [[tag: LA-chunk]]: what came before the chunk, then the chunk itself.
    o = state_product(q, state, INPUT_PRECISION) * (decay_from_start(g) * scale)[:, None]
    o = multiply_add(p.to(v.dtype), v, o, INPUT_PRECISION)
    store_block(head(o_tensor, b, h, start), o, offs_t, length, offs_e, E)


# ## Backward, on paper
#
# A state is used by its chunk and by the next state. So the gradients of the states are a walk as well, from the last
# chunk to the first, [[tag: LA-dS]]. With both states at hand, that before the chunk and the gradient of that after it,
# $D'$, everything else happens inside of a chunk:
#
# | gradient | from the chunk's own tokens | through a state | tag |
# |---|---|---|---|
# | of $P$ | $dO \, V^T$ | | |
# | of $q_i$ | $s \sum_j dP_{ij} L_{ij} k_j$ | $s e^{G_i} S \, do_i$ | [[tag: LA-dq]] |
# | of $k_j$ | $s \sum_i dP_{ij} L_{ij} q_i$ | $e^{G_C - G_j} D' v_j$ | [[tag: LA-dk]] |
# | of $v_j$ | $\sum_i P_{ij} do_i$ | $e^{G_C - G_j} D'^T k_j$ | [[tag: LA-dv]] |
#
# and a gate gets a share of each, [[tag: LA-dg]].


# ## Backward: the walk back
#
# The same program as `states_kernel`, with q and the upstream gradient for k and v, and from the end.
@triton.jit
def state_gradients_kernel(
    do_tensor, q_tensor, g_tensor, dfinal_tensor, dstates_tensor, dinitial_tensor,  # as above
    sequences, H, group, scale, D: tl.constexpr, E: tl.constexpr, INPUT_PRECISION: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(E, BLOCK_E)
    b, h, tile = tl.program_id(0) // tiles // H, tl.program_id(0) // tiles % H, tl.program_id(0) % tiles
    start, length, first = chunks_of(sequences, b, BLOCK_T)
    q_head, do_head = head(q_tensor, b, h // group, start), head(do_tensor, b, h, start)
    offs_d, offs_e = tl.arange(0, BLOCK_D), tile * BLOCK_E + tl.arange(0, BLOCK_E)
    dstate = load_state(dfinal_tensor, b, h, offs_d, D, offs_e, E)
    chunks = tl.cdiv(length, BLOCK_T)
    for passed in tl.range(0, chunks):
        n = chunks - 1 - passed
        # The gradient of the state *after* chunk n.
        store_block(head(dstates_tensor, first + n, h, 0), dstate, offs_d, D, offs_e, E)
        offs_t = n * BLOCK_T + tl.arange(0, BLOCK_T)
        q, do = load_block(q_head, offs_t, length, offs_d, D), load_block(do_head, offs_t, length, offs_e, E)
        g = load_gates(g_tensor, b, h, start, offs_t, length)
        # [[tag: LA-dS]]
        read = (do * (decay_from_start(g) * scale)[:, None]).to(do.dtype)
        dstate = multiply_add(tl.trans(q), read, dstate * decay_of_all(g), INPUT_PRECISION)
    store_block(head(dinitial_tensor, b, h, 0), dstate, offs_d, D, offs_e, E)


# ## Backward: inside of a chunk
#
# Several heads of v share one head of q and k. A program takes a chunk and such a group, so that the gradients of q and
# k are summed in float32. Columns of v come `BLOCK_E` at a time: dP, and what goes through a state, are
# sums over them.
#
# dQ needs a row for each token that reads, dK and dV need one for each token that is read. So there are two kernels.
# In both each product has a *loaded* tile on its right, and what is transposed was loaded, too. One kernel for both
# would load q, k, v and dO once, but its sums don't fit in the registers, and it is much slower.
@triton.jit
def query_gradients_kernel(
    do_tensor, q_tensor, k_tensor, v_tensor, g_tensor, states_tensor, dstates_tensor,  # as above
    dq_tensor, dg_tensor,  # like q and g; dg in float32, or None
    sequences, heads, group, scale, D: tl.constexpr, E: tl.constexpr, INPUT_PRECISION: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    c, hk = tl.program_id(0) // heads, tl.program_id(0) % heads
    b, start, length, start_t = chunk_at(sequences, c, BLOCK_T)
    if start_t >= length:
        return
    offs_t, offs_d = start_t + tl.arange(0, BLOCK_T), tl.arange(0, BLOCK_D)
    dq = tl.zeros((BLOCK_T, BLOCK_D), tl.float32)
    for member in tl.range(0, group):
        h = hk * group + member
        g = load_gates(g_tensor, b, h, start, offs_t, length)
        dp, dq_state = tl.zeros((BLOCK_T, BLOCK_T), tl.float32), tl.zeros((BLOCK_T, BLOCK_D), tl.float32)
        through = tl.zeros((BLOCK_D,), tl.float32)
        for start_e in tl.range(0, E, BLOCK_E):
            offs_e = start_e + tl.arange(0, BLOCK_E)
            v = load_block(head(v_tensor, b, h, start), offs_t, length, offs_e, E)
            do = load_block(head(do_tensor, b, h, start), offs_t, length, offs_e, E)
            state = load_block(head(states_tensor, c, h, 0), offs_d, D, offs_e, E)
            dp = multiply_add(do, tl.trans(v), dp, INPUT_PRECISION)
            dq_state += state_product(do, tl.trans(state), INPUT_PRECISION)
            if dg_tensor[0] is not None:
                dstate = load_block(head(dstates_tensor, c, h, 0), offs_d, D, offs_e, E)
                through += tl.sum(state.to(tl.float32) * dstate, axis=1)
        # **dQ**, [[tag: LA-dq]]. What the loop doesn't need is loaded after it, when registers are free.
        q = load_block(head(q_tensor, b, hk, start), offs_t, length, offs_d, D)
        k = load_block(head(k_tensor, b, hk, start), offs_t, length, offs_d, D)
        dq_state *= (decay_from_start(g) * scale)[:, None]
        dq += multiply_add((dp * decay_between(g, k.dtype) * scale).to(k.dtype), k, dq_state, INPUT_PRECISION)
        # Two of the four sums for the gates, [[tag: LA-dg]]: what each token reads from the state before the chunk, and
        # what goes from there through the chunk.
        if dg_tensor[0] is not None:
            dg = sums_from(tl.sum(q * dq_state, axis=1)) + tl.sum(through, axis=0) * decay_of_all(g)
            store_numbers(head(dg_tensor, b, h, start), dg, offs_t, length)
    store_block(head(dq_tensor, b, hk, start), dq, offs_t, length, offs_d, D)


# The other side, and the other two sums for the gates: what each token leaves in the state after the chunk, and what
# goes from token to token.
@triton.jit
def key_gradients_kernel(
    do_tensor, q_tensor, k_tensor, v_tensor, g_tensor, dstates_tensor,  # as above
    dk_tensor, dv_tensor, dg_tensor,  # like k, v and g; the last two may be None
    sequences, heads, group, scale, D: tl.constexpr, E: tl.constexpr, INPUT_PRECISION: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    c, hk = tl.program_id(0) // heads, tl.program_id(0) % heads
    b, start, length, start_t = chunk_at(sequences, c, BLOCK_T)
    if start_t >= length:
        return
    offs_t, offs_d = start_t + tl.arange(0, BLOCK_T), tl.arange(0, BLOCK_D)
    dk = tl.zeros((BLOCK_T, BLOCK_D), tl.float32)
    for member in tl.range(0, group):
        h = hk * group + member
        q = load_block(head(q_tensor, b, hk, start), offs_t, length, offs_d, D)
        k = load_block(head(k_tensor, b, hk, start), offs_t, length, offs_d, D)
        g = load_gates(g_tensor, b, h, start, offs_t, length)
        kept = decay_to_end(g)
        # **Pᵀ**. The decay is computed again below: kept until then, it would take registers from the loop.
        p = tl.dot(k, tl.trans(q), input_precision=INPUT_PRECISION) * scale * decay_between_transposed(g, k.dtype)
        dp, dk_state = tl.zeros((BLOCK_T, BLOCK_T), tl.float32), tl.zeros((BLOCK_T, BLOCK_D), tl.float32)
        for start_e in tl.range(0, E, BLOCK_E):
            offs_e = start_e + tl.arange(0, BLOCK_E)
            v = load_block(head(v_tensor, b, h, start), offs_t, length, offs_e, E)
            do = load_block(head(do_tensor, b, h, start), offs_t, length, offs_e, E)
            dstate = load_block(head(dstates_tensor, c, h, 0), offs_d, D, offs_e, E)
            dp = multiply_add(v, tl.trans(do), dp, INPUT_PRECISION)
            dk_state += state_product(v, tl.trans(dstate), INPUT_PRECISION)
            # **dV = Pᵀ dO**, and through the state after the chunk, [[tag: LA-dv]]
            if dv_tensor[0] is not None:
                dv = state_product(k, dstate, INPUT_PRECISION) * kept[:, None]
                dv = multiply_add(p.to(do.dtype), do, dv, INPUT_PRECISION)
                store_block(head(dv_tensor, b, h, start), dv, offs_t, length, offs_e, E)
        # **dK**, [[tag: LA-dk]]
        dk_state *= kept[:, None]
        ds = dp * decay_between_transposed(g, k.dtype) * scale
        dk += multiply_add(ds.to(q.dtype), q, dk_state, INPUT_PRECISION)
        # All four sums: `pid=1, h=0: dg[1] = 0.08983`.
        if dg_tensor[0] is not None:
            others = load_gates(dg_tensor, b, h, start, offs_t, length)
            dg = others + gate_gradient(p * dp, tl.sum(k * dk_state, axis=1), k.dtype)
            store_numbers(head(dg_tensor, b, h, start), dg, offs_t, length)
    store_block(head(dk_tensor, b, hk, start), dk, offs_t, length, offs_d, D)


# ## The launchers
#
# Tensors come with heads before tokens, as views. Wide heads and float32 leave room for smaller tiles only.
def sizes(q, v, BLOCK_T, BLOCK_E):
    """The sizes of tiles, passed in or by default, and the other constants of a kernel."""
    checks.power_of_two(BLOCK_T=BLOCK_T, BLOCK_E=BLOCK_E)
    D, E = q.shape[-1], v.shape[-1]
    BLOCK_D, narrow = max(16, triton.next_power_of_2(D)), max(D, E) <= 128
    if q.dtype == torch.float32:
        T, most = (32, 32) if max(D, E) <= 64 else (16, 16)
    else:
        T, most = (64, 64) if narrow else (32, 32)
    # On Hopper four warps multiply together, `wgmma`, and find their tiles by descriptors. The assembler of Triton 3.6
    # and 3.7 gets those of tiles up to 32 wide wrong in kernels of several products. So such keys go to two warps, too
    # few for `wgmma`; beside wider ones values are padded to 64 columns. In float32, or wider than 128, they aren't:
    # there only the two walks, of one product each, have the 64 rows that `wgmma` needs.
    least = 16 if BLOCK_D <= 32 or q.dtype == torch.float32 else most
    return dict(
        D=D, E=E, INPUT_PRECISION=input_precision(), BLOCK_T=BLOCK_T or T, BLOCK_D=BLOCK_D,
        BLOCK_E=BLOCK_E or min(most, max(least, triton.next_power_of_2(E))),
        num_warps=2 if BLOCK_D <= 32 and q.dtype != torch.float32 else 4 if narrow else 8, num_stages=2,
    )  # fmt: skip


def chunk_states(k, v, g, initial_state, cu_seqlens, chunks, launch):
    """`(states, final_state)`: the state before each chunk, (chunks, H, D, E), and that after each sequence."""
    (Hk, H), E, final = (k.shape[1], v.shape[1]), v.shape[3], new_state(k, v, cu_seqlens)
    states = states_between(k, final, chunks)
    packed = partial(tensor, cu_seqlens=cu_seqlens)
    programs = chunks.batch * H * triton.cdiv(E, launch["BLOCK_E"])
    if programs:
        states_kernel[(programs,)](
            packed(k), packed(v), packed(g), tensor(initial_state), tensor(states), tensor(final),
            chunks.sequences, H, H // Hk, **launch,
        )  # fmt: skip
    return states, final


@opaque(
    "(Tensor q, Tensor k, Tensor v, Tensor? g, Tensor? initial_state, Tensor? cu_seqlens, *, float scale) "
    "-> (Tensor, Tensor)",
    lambda q, k, v, g, initial, cu_seqlens, **scale: (torch.empty_like(v), new_state(q, v, cu_seqlens)),
)
def linear_attention_forward(q, k, v, g, initial_state, cu_seqlens, *, scale, BLOCK_T=None, BLOCK_E=None):
    """`(o, final_state)`. q and k: (B, Hk, T, D), v and o: (B, H, T, E), g: (B, H, T) or None.

    With `cu_seqlens` B is 1, and all sequences lie along T.
    """
    launch, (Hk, H) = sizes(q, v, BLOCK_T, BLOCK_E), (q.shape[1], v.shape[1])
    chunks = cut(q, cu_seqlens, launch["BLOCK_T"])
    states, final = chunk_states(k, v, g, initial_state, cu_seqlens, chunks, launch)
    o, packed = new_like(v, cu_seqlens), partial(tensor, cu_seqlens=cu_seqlens)
    programs = chunks.count * H * triton.cdiv(v.shape[3], launch["BLOCK_E"])
    if programs and chunks.batch:
        outputs_kernel[(programs,)](
            packed(q), packed(k), packed(v), packed(g), tensor(states), packed(o),
            chunks.sequences, H, H // Hk, scale, **launch,
        )  # fmt: skip
    return o, final


@opaque(
    "(Tensor? do, Tensor? dfinal, Tensor q, Tensor k, Tensor v, Tensor? g, Tensor? initial_state, Tensor? cu_seqlens, "
    "*, float scale) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    lambda do, dfinal, q, k, v, g, initial, cu_seqlens, **scale: (
        *(torch.empty_like(x) for x in (q, k, v, v.new_empty(0) if g is None else g)), new_state(q, v, cu_seqlens)
    ),
)  # fmt: skip
def linear_attention_backward(do, dfinal, q, k, v, g, initial_state, cu_seqlens, *, scale, BLOCK_T=None, BLOCK_E=None):
    """`(dq, dk, dv, dg, dinitial)` from the upstream gradients of o and the final state, of which one may be None.

    Without gates dg has no elements.
    """
    launch, (Hk, H) = sizes(q, v, BLOCK_T, BLOCK_E), (q.shape[1], v.shape[1])
    chunks, packed = cut(q, cu_seqlens, launch["BLOCK_T"]), partial(tensor, cu_seqlens=cu_seqlens)
    do = v.new_zeros(()).expand(v.shape) if do is None else do
    states, dinitial = chunk_states(k, v, g, initial_state, cu_seqlens, chunks, launch)
    dstates = torch.empty_like(states)
    dq, dk, dv = (new_like(x, cu_seqlens) for x in (q, k, v))
    dg = None if g is None else new_like(g, cu_seqlens, torch.float32)
    tiles = triton.cdiv(v.shape[3], launch["BLOCK_E"])
    if chunks.batch * H:
        state_gradients_kernel[(chunks.batch * H * tiles,)](
            packed(do), packed(q), packed(g), tensor(dfinal), tensor(dstates), tensor(dinitial),
            chunks.sequences, H, H // Hk, scale, **launch,
        )  # fmt: skip
    if chunks.batch * chunks.count:
        inputs = [packed(x) for x in (do, q, k, v, g)]
        launch |= dict(sequences=chunks.sequences, heads=Hk, group=H // Hk, scale=scale)
        query_gradients_kernel[(chunks.count * Hk,)](
            *inputs, tensor(states), tensor(dstates), packed(dq), packed(dg), **of_queries(launch)
        )
        key_gradients_kernel[(chunks.count * Hk,)](
            *inputs, tensor(dstates), packed(dk), packed(dv), packed(dg), **of_keys(launch)
        )
    return dq, dk, dv, v.new_empty(0) if g is None else dg.to(g.dtype), dinitial


# ## Joining autograd
class LinearAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, g, initial_state, cu_seqlens, scale, launch_forward, launch_backward):
        ctx.save_for_backward(q, k, v, g, initial_state, cu_seqlens)
        ctx.scale, ctx.launch_backward = scale, launch_backward
        if not torch.compiler.is_compiling():  # Dynamo can't do this; it makes zeros for unused results
            ctx.set_materialize_grads(False)
        return launch_forward(q, k, v, g, initial_state, cu_seqlens, scale=scale)

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, do, dfinal):
        *gradients, dg, dinitial = ctx.launch_backward(do, dfinal, *ctx.saved_tensors, scale=ctx.scale)
        wanted = ctx.needs_input_grad
        return *gradients, dg if wanted[3] else None, dinitial if wanted[4] else None, None, None, None, None


def attend(
    q, k, v, g, initial_state, cu_seqlens, scale,
    launch_forward=linear_attention_forward, launch_backward=linear_attention_backward,
):  # fmt: skip
    """`(o, final_state)` of (B, H, T, …), through the autograd `Function` if something needs a gradient."""
    if not autograd.needs_frame(q, k, v, g, initial_state):
        return launch_forward(q, k, v, g, initial_state, cu_seqlens, scale=scale)
    return LinearAttention.apply(q, k, v, g, initial_state, cu_seqlens, scale, launch_forward, launch_backward)


@replayed
def linear_attention(q, k, v, g=None, *, scale=None, initial_state=None, return_final_state=False):
    r"""Causal attention without a softmax, with a state that may fade; differentiable in all tensors.

    Args:
        q, k: (B, T, Hk, D), float32, float16 or bfloat16, any strides, D at most 256. T may be 0.
        v: (B, T, H, E), dtype of `q`, any strides, E at most 256; H is a multiple of Hk.
        g: (B, T, H), float32 or the dtype of `q`: the natural logarithm of the decay before each token, 0 or negative;
            −∞ forgets everything. `constant.expand(B, T, H)` for one number per head. None: no decay. Values above 0
            are an error on the CPU and with `ACADEMY_DEBUG=1`; else they make the state grow.
        scale: of the queries, default $1/\sqrt{D}$.
        initial_state: (B, H, D, E), float32: what came before. None: nothing.
        return_final_state: whether to return the state after the last token as well.

    Returns:
        o, (B, T, H, E) in the dtype of `q`; or (o, state) with the state (B, H, D, E), float32.

    Raises:
        TypeError, ValueError: an argument has a wrong type, dtype, shape or device, or a number is out of range.

    Source: Dao and Gu, "Transformers are SSMs" (arXiv 2405.21060); Sun et al., "Retentive Network" (arXiv 2307.08621).
    """
    scale = contract(q, k, v, g, scale, initial_state, return_final_state)
    q, k, v, g = (None if x is None else x.transpose(1, 2) for x in (q, k, v, g))
    o, final = attend(q, k, v, g, initial_state, None, scale)
    return (o.transpose(1, 2), final) if return_final_state else o.transpose(1, 2)


@replayed
def linear_attention_varlen(q, k, v, cu_seqlens, g=None, *, scale=None, initial_state=None, return_final_state=False):
    """`linear_attention` of sequences of different lengths, packed one after another.

    Args:
        q, k: (total, Hk, D). v: (total, H, E), any strides. g: (total, H), or None.
        cu_seqlens: (sequences + 1,) int32: where each sequence begins, and where the last ends, rising from 0 to at
            most the total. Checked on the CPU and with `ACADEMY_DEBUG=1`. Rows of no sequence give 0.
        initial_state: (sequences, H, D, E), float32, or None.
        scale, return_final_state: as in `linear_attention`.

    Returns:
        o, (total, H, E); or (o, state) with the state (sequences, H, D, E), float32.

    Raises:
        TypeError, ValueError: as `linear_attention`; ValueError also for wrong offsets.

    Source: as `linear_attention`.
    """
    scale = contract(q, k, v, g, scale, initial_state, return_final_state, cu_seqlens, packed=True)
    q, k, v, g = (None if x is None else x.transpose(0, 1).unsqueeze(0) for x in (q, k, v, g))
    o, final = attend(q, k, v, g, initial_state, cu_seqlens, scale)
    o = o.squeeze(0).transpose(0, 1)
    return (o, final) if return_final_state else o


# ## A run small enough to watch
#
# Four tokens in chunks of two, one head, a state of 2 by 2.
def EXAMPLE():
    at = torch.arange(8, dtype=torch.float32, device=device.DEVICE)
    q, k, v = ((at * step % 5 - 2).view(1, 1, 4, 2) for step in (1, 3, 7))
    g = torch.tensor([[[-1.0, -0.5, -0.25, -2.0]]], device=device.DEVICE)
    how = dict(scale=1.0, BLOCK_T=2, BLOCK_E=2)
    linear_attention_forward(q, k, v, g, None, None, **how)
    linear_attention_backward(v.flip(2), None, q, k, v, g, None, None, **how)


if __name__ == "__main__":
    script.main(linear_attention, linear_attention_reference)
