r"""
# The gated delta rule: write the difference

[Linear attention](linear_attention.py) only ever adds to its state. If a key comes twice, asking for it gives the sum
of both values. The delta rule asks first what the state would answer, and writes the difference:

[[eq: GD-S]]

Without gates $g_t$ this is DeltaNet, with gates a layer of Qwen3-Next; Kimi Linear has a gate for each row of the state
instead. [The chapter](/learn/write_the_difference.py) works one chunk through with numbers, and has it as a kernel of
25 lines. Read that first. New here: all chunks are prepared at once, so that little is left to wait for; packed
sequences, heads that share keys, states at both ends; and the gradients.

[[figure: chunks/prepared]]

A chunk's differences solve a triangular system, [[tag: GD-U]]. Its inverse $T = (I + A)^{-1}$ is made of keys, gates
and $\beta$ alone, so the first kernel has it for all chunks at once. The second goes from state to state. The rest is
linear attention with differences for values, so [its kernels](linear_attention.py) are used again: one forward, two
backward.

**What it costs.** Per chunk of $C$ tokens and head, forward: $2 C^3$ multiplications for each doubling on the way to
the inverse, and $C^2 (3 D + 2 E) + 3 C D E$ in products. $W$ and $U$ are written and read, beside the states. Backward
computes all of that again instead of keeping it. Forward, [the fast version](../fast/gated_delta_rule.py) stores
neither $W$ nor the states.

**Contract.** As linear attention, and `beta` is (B, T, H), in float32 or the dtype of `q`, usually between 0 and 1, at
most 2. Keys should have length 1 at most: what a key holds is multiplied by $e^g (1 - \beta \|k\|^2)$ when it comes
again, and if that stays above 1 in size, the state grows without bound.
"""

from academy.runtime import device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import math
from functools import partial

import torch
import triton
import triton.language as tl

from annotated_examples.common.attention import head, store_numbers
from annotated_examples.common.chunks import (
    chunk_at, chunks_of, contract, cut, decay_between, decay_between_transposed, decay_from_start, decay_of_all,
    decay_to_end, gate_gradient, inverse_of_system, load_block, load_gates, load_state, new_like, new_state, of_keys,
    of_queries, state_product, states_between, store_block, sums_from, tensor,
)  # fmt: skip
from annotated_examples.common.custom_operator import opaque
from annotated_examples.common.delta_rule import attend
from annotated_examples.common.products import multiply_add
from annotated_examples.recurrences.linear_attention import (
    key_gradients_kernel, outputs_kernel, query_gradients_kernel, sizes,
)  # fmt: skip


# ## Reference
#
# All pairs of tokens at once, and one large triangular system. The products are in the dtype of `q`, everything else is
# in float32 at least. In float64 it is what the kernels are measured against.
def gated_delta_rule_reference(q, k, v, g, beta, *, scale=None, initial_state=None, return_final_state=False):
    (B, T, Hk, D), (H, E), dtype = q.shape, v.shape[2:], q.dtype
    wide, scale = torch.promote_types(dtype, torch.float32), D**-0.5 if scale is None else scale
    q, k = (x.transpose(1, 2).repeat_interleave(H // Hk, dim=1) for x in (q, k))
    g = q.new_zeros(B, H, T, dtype=wide) if g is None else g.transpose(1, 2).to(wide)
    S = q.new_zeros(B, H, D, E, dtype=wide) if initial_state is None else initial_state.to(wide)
    G, v, beta = g.cumsum(-1), v.transpose(1, 2), beta.transpose(1, 2).to(wide)[..., None]
    later = torch.ones(T, T, dtype=torch.bool, device=q.device).triu(1)
    decay = (G[..., :, None] - G[..., None, :]).masked_fill(later, -math.inf).exp()
    # What the state before the first token leaves to be written, and what the tokens then take from each other.
    R = beta * (v.to(wide) - G.exp()[..., None] * (k @ S.to(dtype)).to(wide))
    A = ((k @ k.mT).to(wide) * decay * beta).tril(-1)
    u = torch.linalg.solve_triangular(A, R, upper=False, unitriangular=True).to(dtype)
    P = ((q @ k.mT).to(wide) * decay * scale).to(dtype)
    o = P @ u + ((q @ S.to(dtype)).to(wide) * G.exp()[..., None] * scale).to(dtype)
    kept = (k.to(wide) * (g.sum(-1, keepdim=True) - G).exp()[..., None]).to(dtype)
    S = S * g.sum(-1).exp()[..., None, None] + (kept.mT @ u).to(wide)
    return (o.transpose(1, 2), S) if return_final_state else o.transpose(1, 2)


# ## What a chunk needs to know before the state is known
#
# A program has one head of one chunk. It computes the two parts of the differences, $U = U^0 - W S$: `u` holds $U^0$
# here, and `w` is what will be asked of the state.
@triton.jit
def wy_kernel(
    k_tensor, v_tensor,  # (pointer, four strides) of (B, Hk, T, D) and (B, H, T, E)
    g_tensor, beta_tensor,  # the same, with (B, H, T); the first may be None
    inverse_tensor, w_tensor, u_tensor,  # (chunks, H, BLOCK_T, BLOCK_T) or None, (B, H, T, D) and (B, H, T, E)
    sequences, H, group, D: tl.constexpr, E: tl.constexpr, INPUT_PRECISION: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    c, h = tl.program_id(0) // H, tl.program_id(0) % H
    b, start, length, start_t = chunk_at(sequences, c, BLOCK_T)
    if start_t >= length:
        return
    place, offs_d = tl.arange(0, BLOCK_T), tl.arange(0, BLOCK_D)
    offs_t = start_t + place
    k = load_block(head(k_tensor, b, h // group, start), offs_t, length, offs_d, D)
    g, beta = load_gates(g_tensor, b, h, start, offs_t, length), load_gates(beta_tensor, b, h, start, offs_t, length)
    overlap = tl.dot(k, tl.trans(k), input_precision=INPUT_PRECISION) * decay_between(g, k.dtype) * beta[:, None]
    # How much of what token j (column) wrote token i (row) takes back, [[tag: GD-A]]. Tokens 2 and 3 have the keys of
    # tokens 0 and 1, and β of the last is a half:
    # `pid=0: a = [[0, 0, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0], [0, 0.5, 0, 0]]`.
    a = tl.where(place[:, None] > place[None, :], overlap, 0.0)
    inverse = inverse_of_system(a, BLOCK_T, "ieee" if k.dtype == tl.float32 else "tf32")
    if inverse_tensor[0] is not None:  # backward wants it
        store_block(head(inverse_tensor, c, h, 0), inverse, place, BLOCK_T, place, BLOCK_T)
    # [[tag: GD-W]]
    scaled = k * (beta * decay_from_start(g))[:, None]
    w = multiply_add(inverse.to(k.dtype), scaled.to(k.dtype), scaled, INPUT_PRECISION)
    store_block(head(w_tensor, b, h, start), w, offs_t, length, offs_d, D)
    for start_e in tl.range(0, E, BLOCK_E):
        offs_e = start_e + tl.arange(0, BLOCK_E)
        v = load_block(head(v_tensor, b, h, start), offs_t, length, offs_e, E)
        own = v * beta[:, None]
        u = multiply_add(inverse.to(v.dtype), own.to(v.dtype), own, INPUT_PRECISION)
        store_block(head(u_tensor, b, h, start), u, offs_t, length, offs_e, E)


# ## The walk
#
# As in linear attention, but each chunk asks the state first: $U = U^0 - W S$. The differences replace $U^0$ in memory.
@triton.jit
def delta_states_kernel(
    k_tensor, g_tensor, w_tensor, u_tensor,  # as above
    initial_tensor, states_tensor, final_tensor,  # (sequences or chunks, H, D, E); the first may be None
    sequences, H, group, D: tl.constexpr, E: tl.constexpr, INPUT_PRECISION: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(E, BLOCK_E)
    b, h, tile = tl.program_id(0) // tiles // H, tl.program_id(0) // tiles % H, tl.program_id(0) % tiles
    start, length, first = chunks_of(sequences, b, BLOCK_T)
    k_head, w_head = head(k_tensor, b, h // group, start), head(w_tensor, b, h, start)
    u_head = head(u_tensor, b, h, start)
    offs_d, offs_e = tl.arange(0, BLOCK_D), tile * BLOCK_E + tl.arange(0, BLOCK_E)
    state = load_state(initial_tensor, b, h, offs_d, D, offs_e, E)
    for start_t in tl.range(0, length, BLOCK_T):
        store_block(head(states_tensor, first + start_t // BLOCK_T, h, 0), state, offs_d, D, offs_e, E)
        offs_t = start_t + tl.arange(0, BLOCK_T)
        k, w = load_block(k_head, offs_t, length, offs_d, D), load_block(w_head, offs_t, length, offs_d, D)
        # [[tag: GD-U]]
        u = load_block(u_head, offs_t, length, offs_e, E).to(tl.float32) - state_product(w, state, INPUT_PRECISION)
        store_block(u_head, u, offs_t, length, offs_e, E)
        g = load_gates(g_tensor, b, h, start, offs_t, length)
        # [[tag: LA-next]], with u for v. Token 2's value is (3, 0), and its key holds token 0's value (0, 2), so it
        # writes the difference: `pid=0, start_t=0: written = [[0, 2], [4, 1], [3, -2], [-1, 1.5]]`.
        written = (u * decay_to_end(g)[:, None]).to(k.dtype)
        state = multiply_add(tl.trans(k), written, state * decay_of_all(g), INPUT_PRECISION)
    store_block(head(final_tensor, b, h, 0), state, offs_d, D, offs_e, E)


# ## Backward: the walk back
#
# A difference is used by the outputs of its chunk and by the state after it, [[tag: GD-dU]]. From there the gradient
# goes to the right side of the system, and that takes the transposed inverse,
#
# [[eq: GD-dR]]
#
# From it follow the gradients of all that went into $R$ and $A$. $R$ also asked the state before the chunk. So the walk
# back has one more term than linear attention's, [[tag: GD-dS]], and solves each chunk's system.
@triton.jit
def delta_state_gradients_kernel(
    do_tensor, q_tensor, k_tensor, g_tensor, beta_tensor, inverse_tensor,  # as above
    dr_tensor, dfinal_tensor, dstates_tensor, dinitial_tensor,  # dr like v
    sequences, H, group, scale, D: tl.constexpr, E: tl.constexpr, INPUT_PRECISION: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(E, BLOCK_E)
    b, h, tile = tl.program_id(0) // tiles // H, tl.program_id(0) // tiles % H, tl.program_id(0) % tiles
    start, length, first = chunks_of(sequences, b, BLOCK_T)
    q_head, k_head = head(q_tensor, b, h // group, start), head(k_tensor, b, h // group, start)
    do_head, dr_head = head(do_tensor, b, h, start), head(dr_tensor, b, h, start)
    place, offs_d = tl.arange(0, BLOCK_T), tl.arange(0, BLOCK_D)
    offs_e = tile * BLOCK_E + tl.arange(0, BLOCK_E)
    dstate = load_state(dfinal_tensor, b, h, offs_d, D, offs_e, E)
    chunks = tl.cdiv(length, BLOCK_T)
    for passed in tl.range(0, chunks):
        n = chunks - 1 - passed
        store_block(head(dstates_tensor, first + n, h, 0), dstate, offs_d, D, offs_e, E)
        offs_t = n * BLOCK_T + place
        q, k = load_block(q_head, offs_t, length, offs_d, D), load_block(k_head, offs_t, length, offs_d, D)
        do = load_block(do_head, offs_t, length, offs_e, E)
        inverse = load_block(head(inverse_tensor, first + n, h, 0), place, BLOCK_T, place, BLOCK_T)
        g = load_gates(g_tensor, b, h, start, offs_t, length)
        beta, left = load_gates(beta_tensor, b, h, start, offs_t, length), decay_from_start(g)
        # [[tag: GD-dU]], which is [[tag: LA-dv]]; then [[tag: GD-dR]]
        p = tl.dot(k, tl.trans(q), input_precision=INPUT_PRECISION) * scale * decay_between_transposed(g, k.dtype)
        du = state_product(k, dstate, INPUT_PRECISION) * decay_to_end(g)[:, None]
        du = multiply_add(p.to(do.dtype), do, du, INPUT_PRECISION)
        # From the last token to the first: what a token gets, less A times what later ones got. Token 0 has the
        # gradient `pid=0, passed=0: du[0] = [-7, -6]`, and token 2, which took all of it back, (0, 2):
        # `pid=0, passed=0: dr[0] = [-7, -8]`.
        dr = multiply_add(tl.trans(inverse), du.to(do.dtype), du, INPUT_PRECISION)
        store_block(dr_head, dr, offs_t, length, offs_e, E)
        # [[tag: GD-dS]]
        asked = (dr * -(beta * left)[:, None]).to(k.dtype)
        read = (do * (left * scale)[:, None]).to(do.dtype)
        dstate = multiply_add(tl.trans(q), read, dstate * decay_of_all(g), INPUT_PRECISION)
        dstate = multiply_add(tl.trans(k), asked, dstate, INPUT_PRECISION)
    store_block(head(dinitial_tensor, b, h, 0), dstate, offs_d, D, offs_e, E)


# ## Backward: what went into the system
#
# The key is in $A$ twice: it asks in its own row, and it has written in its column. Both gradients are products of
# loaded tiles, as in linear attention, and the sum over a group of heads stays in one program. Linear attention's part
# of dk and dg is there already, and this kernel adds to it.
@triton.jit
def wy_backward_kernel(
    k_tensor, v_tensor, g_tensor, beta_tensor, u_tensor, dr_tensor, states_tensor,  # as above
    dk_part_tensor, dk_tensor, dv_tensor, dg_tensor, dbeta_tensor,  # like k, v, g and beta; part and dg in float32
    sequences, heads,  # the last: (heads of k, heads of v for each of them)
    D: tl.constexpr, E: tl.constexpr, INPUT_PRECISION: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    Hk, group = heads
    c, hk = tl.program_id(0) // Hk, tl.program_id(0) % Hk
    b, start, length, start_t = chunk_at(sequences, c, BLOCK_T)
    if start_t >= length:
        return
    place, offs_d = tl.arange(0, BLOCK_T), tl.arange(0, BLOCK_D)
    offs_t = start_t + place
    earlier, later = place[:, None] > place[None, :], place[:, None] < place[None, :]
    k = load_block(head(k_tensor, b, hk, start), offs_t, length, offs_d, D)
    overlap = tl.dot(k, tl.trans(k), input_precision=INPUT_PRECISION)
    dk = tl.zeros((BLOCK_T, BLOCK_D), tl.float32)
    for member in tl.range(0, group):
        h = hk * group + member
        g = load_gates(g_tensor, b, h, start, offs_t, length)
        beta = load_gates(beta_tensor, b, h, start, offs_t, length)
        left = decay_from_start(g)
        decay, decay_transposed = decay_between(g, k.dtype), decay_between_transposed(g, k.dtype)
        da, da_transposed = tl.zeros((BLOCK_T, BLOCK_T), tl.float32), tl.zeros((BLOCK_T, BLOCK_T), tl.float32)
        dk_state = tl.zeros((BLOCK_T, BLOCK_D), tl.float32)
        dbeta = tl.zeros((BLOCK_T,), tl.float32)
        for start_e in tl.range(0, E, BLOCK_E):
            offs_e = start_e + tl.arange(0, BLOCK_E)
            v = load_block(head(v_tensor, b, h, start), offs_t, length, offs_e, E)
            u = load_block(head(u_tensor, b, h, start), offs_t, length, offs_e, E)
            dr = load_block(head(dr_tensor, b, h, start), offs_t, length, offs_e, E)
            state = load_block(head(states_tensor, c, h, 0), offs_d, D, offs_e, E)
            da = multiply_add(dr, tl.trans(u), da, INPUT_PRECISION)
            da_transposed = multiply_add(u, tl.trans(dr), da_transposed, INPUT_PRECISION)
            dk_state += state_product(dr, tl.trans(state), INPUT_PRECISION)
            dbeta += tl.sum(dr.to(tl.float32) * v, axis=1)
            # **dV**, [[tag: GD-dv]]
            store_block(head(dv_tensor, b, h, start), dr * beta[:, None], offs_t, length, offs_e, E)
        # [[tag: GD-dA]], once with a row for each asking token and once with a row for each token that had written.
        da = tl.where(earlier, -da, 0.0) * decay
        da_transposed = tl.where(later, -da_transposed, 0.0) * decay_transposed * beta[None, :]
        # What each key asked of earlier keys, and of the state before the chunk. A key's product with the second is how
        # much the state's answer counts: the answer itself isn't needed.
        asked = tl.dot(da.to(k.dtype), k, input_precision=INPUT_PRECISION)
        dk_state *= left[:, None]
        answer = tl.sum(k * dk_state, axis=1)
        # [[tag: GD-dbeta]]; nothing is divided by β, which may be 0.
        dbeta += tl.sum(k * asked, axis=1) - answer
        # [[tag: GD-dk]]
        dk += multiply_add(da_transposed.to(k.dtype), k, (asked - dk_state) * beta[:, None], INPUT_PRECISION)
        # [[tag: GD-dg]], beside linear attention's part
        if dg_tensor[0] is not None:
            dg = gate_gradient(da_transposed * overlap, tl.zeros((BLOCK_T,), tl.float32), k.dtype)
            dg += sums_from(-beta * answer) + load_gates(dg_tensor, b, h, start, offs_t, length)
            store_numbers(head(dg_tensor, b, h, start), dg, offs_t, length)
        store_numbers(head(dbeta_tensor, b, h, start), dbeta, offs_t, length)
    dk += load_block(head(dk_part_tensor, b, hk, start), offs_t, length, offs_d, D)
    store_block(head(dk_tensor, b, hk, start), dk, offs_t, length, offs_d, D)


# ## The launchers
def warps_of_system(launch):
    """Of `wy_backward_kernel`: eight for 64 tokens with heads wider than 32, for which two have too few registers (on
    an H200 it took eleven times as long); otherwise two."""
    return 8 if launch["BLOCK_T"] == 64 and launch["BLOCK_D"] > 32 else 2


def differences(k, v, g, beta, initial_state, cu_seqlens, chunks, launch, inverse=None):
    """`(u, states, final_state)`: u like v, and the state before each chunk. The inverses are written to `inverse`."""
    packed, (Hk, H) = partial(tensor, cu_seqlens=cu_seqlens), (k.shape[1], v.shape[1])
    final, u = new_state(k, v, cu_seqlens), new_like(v, cu_seqlens)
    states = states_between(k, final, chunks)
    w = k.new_empty(k.shape[0], H, *k.shape[2:])
    if chunks.batch * H:
        if chunks.count:
            wy_kernel[(chunks.count * H,)](
                packed(k), packed(v), packed(g), packed(beta), tensor(inverse), packed(w), packed(u),
                chunks.sequences, H, H // Hk, **launch,
            )  # fmt: skip
        delta_states_kernel[(chunks.batch * H * triton.cdiv(v.shape[3], launch["BLOCK_E"]),)](
            packed(k), packed(g), packed(w), packed(u), tensor(initial_state), tensor(states), tensor(final),
            chunks.sequences, H, H // Hk, **launch,
        )  # fmt: skip
    return u, states, final


@opaque(
    "(Tensor q, Tensor k, Tensor v, Tensor? g, Tensor beta, Tensor? initial_state, Tensor? cu_seqlens, *, float scale) "
    "-> (Tensor, Tensor)",
    lambda q, k, v, g, beta, initial, cu_seqlens, **scale: (torch.empty_like(v), new_state(q, v, cu_seqlens)),
)
def gated_delta_rule_forward(q, k, v, g, beta, initial_state, cu_seqlens, *, scale, BLOCK_T=None, BLOCK_E=None):
    """`(o, final_state)`, as `linear_attention_forward`; beta is (B, H, T)."""
    launch, (Hk, H) = sizes(q, v, BLOCK_T, BLOCK_E), (q.shape[1], v.shape[1])
    chunks, packed = cut(q, cu_seqlens, launch["BLOCK_T"]), partial(tensor, cu_seqlens=cu_seqlens)
    u, states, final = differences(k, v, g, beta, initial_state, cu_seqlens, chunks, launch)
    o, programs = new_like(v, cu_seqlens), chunks.count * H * triton.cdiv(v.shape[3], launch["BLOCK_E"])
    if programs and chunks.batch:
        outputs_kernel[(programs,)](
            packed(q), packed(k), packed(u), packed(g), tensor(states), packed(o),
            chunks.sequences, H, H // Hk, scale, **launch,
        )  # fmt: skip
    return o, final


@opaque(
    "(Tensor? do, Tensor? dfinal, Tensor q, Tensor k, Tensor v, Tensor? g, Tensor beta, Tensor? initial_state, "
    "Tensor? cu_seqlens, *, float scale) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    lambda do, dfinal, q, k, v, g, beta, initial, cu_seqlens, **scale: (
        *(torch.empty_like(x) for x in (q, k, v, v.new_empty(0) if g is None else g, beta)), new_state(q, v, cu_seqlens)
    ),
)  # fmt: skip
def gated_delta_rule_backward(
    do, dfinal, q, k, v, g, beta, initial_state, cu_seqlens, *, scale, BLOCK_T=None, BLOCK_E=None
):
    """`(dq, dk, dv, dg, dbeta, dinitial)`, as `linear_attention_backward`."""
    launch, (Hk, H) = sizes(q, v, BLOCK_T, BLOCK_E), (q.shape[1], v.shape[1])
    chunks, packed = cut(q, cu_seqlens, launch["BLOCK_T"]), partial(tensor, cu_seqlens=cu_seqlens)
    do = v.new_zeros(()).expand(v.shape) if do is None else do
    inverse = v.new_empty(chunks.count, H, launch["BLOCK_T"], launch["BLOCK_T"])
    u, states, dinitial = differences(k, v, g, beta, initial_state, cu_seqlens, chunks, launch, inverse)
    dstates, dr = torch.empty_like(states), torch.empty_like(u)
    dq, dk, dv, dbeta = (new_like(x, cu_seqlens) for x in (q, k, v, beta))
    dk_part, dg = (None if x is None else new_like(x, cu_seqlens, torch.float32) for x in (k, g))
    if chunks.batch * H:
        delta_state_gradients_kernel[(chunks.batch * H * triton.cdiv(v.shape[3], launch["BLOCK_E"]),)](
            packed(do), packed(q), packed(k), packed(g), packed(beta), tensor(inverse), packed(dr),
            tensor(dfinal), tensor(dstates), tensor(dinitial), chunks.sequences, H, H // Hk, scale, **launch,
        )  # fmt: skip
    if chunks.batch * chunks.count:
        inputs = [packed(x) for x in (do, q, k, u, g)]
        more = launch | dict(sequences=chunks.sequences, heads=Hk, group=H // Hk, scale=scale)
        query_gradients_kernel[(chunks.count * Hk,)](
            *inputs, tensor(states), tensor(dstates), packed(dq), packed(dg), **of_queries(more)
        )
        key_gradients_kernel[(chunks.count * Hk,)](
            *inputs, tensor(dstates), packed(dk_part), tensor(None), packed(dg), **of_keys(more)
        )
        # On Hopper kernels like this one were compiled wrongly with four warps: flash-linear-attention, issue 984. One
        # stage, as in linear attention's first kernel: dR and U are multiplied and used number by number, too.
        wy_backward_kernel[(chunks.count * Hk,)](
            packed(k), packed(v), packed(g), packed(beta), packed(u), packed(dr), tensor(states),
            packed(dk_part), packed(dk), packed(dv), packed(dg), packed(dbeta),
            chunks.sequences, (Hk, H // Hk), **launch | dict(num_warps=warps_of_system(launch), num_stages=1),
        )  # fmt: skip
    return dq, dk, dv, v.new_empty(0) if g is None else dg.to(g.dtype), dbeta, dinitial


# ## The public functions
#
# The autograd `Function` is the one of [all delta rules](../common/delta_rule.py): it saves the inputs, and gets both
# launchers.
LAUNCHERS = gated_delta_rule_forward, gated_delta_rule_backward


@replayed
def gated_delta_rule(q, k, v, g, beta, *, scale=None, initial_state=None, return_final_state=False):
    r"""Linear attention that replaces what a key held before; differentiable in all tensors.

    Args:
        q, k: (B, T, Hk, D), float32, float16 or bfloat16, any strides, D at most 256. T may be 0. Keys should
            have length 1 at most; nothing is normalised here.
        v: (B, T, H, E), dtype of `q`, any strides, E at most 256; H is a multiple of Hk.
        g: (B, T, H), float32 or the dtype of `q`: the natural logarithm of the decay before each token, 0 or negative;
            −∞ forgets everything. None: no decay, the plain delta rule.
        beta: (B, T, H), float32 or the dtype of `q`: how much of the difference is written, usually 0 to 1.
        scale: of the queries, default $1/\sqrt{D}$.
        initial_state: (B, H, D, E), float32: what came before. None: nothing.
        return_final_state: whether to return the state after the last token as well.

    Returns:
        o, (B, T, H, E) in the dtype of `q`; or (o, state) with the state (B, H, D, E), float32.

    Raises:
        TypeError, ValueError: an argument has a wrong type, dtype, shape or device, or a number is out of range.

    Source: Yang et al., "Gated Delta Networks" (arXiv 2412.06464) and "Parallelizing Linear Transformers with the Delta
    Rule over Sequence Length" (arXiv 2406.06484).
    """
    scale = contract(q, k, v, g, scale, initial_state, return_final_state, beta=beta)
    q, k, v, g, beta = (None if x is None else x.transpose(1, 2) for x in (q, k, v, g, beta))
    o, final = attend(q, k, v, g, beta, initial_state, None, scale, *LAUNCHERS)
    return (o.transpose(1, 2), final) if return_final_state else o.transpose(1, 2)


@replayed
def gated_delta_rule_varlen(q, k, v, g, beta, cu_seqlens, *, scale=None, initial_state=None, return_final_state=False):
    """`gated_delta_rule` of sequences of different lengths, packed one after another.

    Args:
        q, k: (total, Hk, D). v: (total, H, E), any strides. g: (total, H), or None. beta: (total, H).
        cu_seqlens: (sequences + 1,) int32: where each sequence begins, and where the last ends, rising from 0 to at
            most the total. Checked on the CPU and with `ACADEMY_DEBUG=1`. Rows of no sequence give 0.
        initial_state: (sequences, H, D, E), float32, or None.
        scale, return_final_state: as in `gated_delta_rule`.

    Returns:
        o, (total, H, E); or (o, state) with the state (sequences, H, D, E), float32.

    Raises:
        TypeError, ValueError: as `gated_delta_rule`; ValueError also for wrong offsets.

    Source: as `gated_delta_rule`.
    """
    scale = contract(q, k, v, g, scale, initial_state, return_final_state, cu_seqlens, packed=True, beta=beta)
    q, k, v, g, beta = (None if x is None else x.transpose(0, 1).unsqueeze(0) for x in (q, k, v, g, beta))
    o, final = attend(q, k, v, g, beta, initial_state, cu_seqlens, scale, *LAUNCHERS)
    o = o.squeeze(0).transpose(0, 1)
    return (o, final) if return_final_state else o


# ## A run small enough to watch
#
# Four tokens in one chunk. The keys are (1, 0), (0, 1), and both again: the third token replaces what the first wrote.
def EXAMPLE():
    at = torch.arange(8, dtype=torch.float32, device=device.DEVICE)
    k = torch.eye(2, device=device.DEVICE).repeat(2, 1).view(1, 1, 4, 2)
    q, v = (at * 3 % 5 - 2).view(1, 1, 4, 2), (at * 7 % 5).view(1, 1, 4, 2)
    beta = torch.tensor([[[1.0, 1.0, 1.0, 0.5]]], device=device.DEVICE)
    gated_delta_rule_forward(q, k, v, None, beta, None, None, scale=1.0, BLOCK_T=4, BLOCK_E=2)
    gated_delta_rule_backward(v.flip(2), None, q, k, v, None, beta, None, None, scale=1.0, BLOCK_T=4, BLOCK_E=2)


if __name__ == "__main__":
    script.main(gated_delta_rule, gated_delta_rule_reference)
