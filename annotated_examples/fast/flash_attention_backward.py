r"""
# Flash attention backward, fast

The backward pass of [fast flash attention](flash_attention.py), with the results of the
[lesson's](../attention/flash_attention.py). It recomputes the scores tile by tile, one product, and has four more to
make of each tile, with the gradient of the probabilities inside dS:

[[eq: AT-dS]]

[[eq: AT-dQ]]

[[eq: AT-dK]]

[[eq: AT-dV]]

[[figure: fast/backward_walks]]

Forward keeps one sum in registers. Here the kernel for the keys keeps two, dK and dV, beside two tiles of scores, P and
dS. Registers decide what is possible: a thread has 255 of them.

The climb, causal, with batch 4, 16 heads and 4096 tokens:

| step | time |
|---|---:|
| 1. tiles as forward, numbers by pointer | [[bench: flash_attention/ladder/numbers by pointer/backward_ms]] |
| 2. numbers by descriptor | [[bench: flash_attention/ladder/numbers by descriptor/backward_ms]] |
| 3. one kernel, five products | [[bench: flash_attention/ladder/one pass/backward_ms]] |
| cuDNN | [[bench: flash_attention/ladder/cuDNN, backward/backward_ms]] |

1. As forward: tiles by descriptor, powers of 2, full tiles without a mask, the longest tiles first. (The factor log₂e
   is in the exponent only. P is the same number, and so are dS and all gradients.) There are two kernels as in the
   lesson, one for dQ and one for dK and dV.
2. The kernel for the keys needs two numbers of each query, its log-sum-exp and its D. Threads loaded them one by one;
   now the TMA unit brings them for a whole tile at once. And the mask compares a score's position with the first
   and the last one that its row sees, computed once per row.
3. Both kernels compute the scores and the gradients of the probabilities: seven products where five would do. One
   kernel makes five if each tile of keys adds its part of dQ to a sum in memory. The additions come in any order, so
   the last bits may differ from call to call. And they are slow: 32 KB for each tile of 64 queries and 128 keys. So two
   kernels are the default; `attention_backward(…, deterministic=False)` is there to be tried.
4. cuDNN stays ahead of two kernels. Without a mask it computes at
   [[bench: flash_attention:full/4x16x16x4096x128/backward/cuDNN (SDPA).rate]]. Seven products in its time would take
   1.4 times that rate, and cuBLAS, with two large matrices, reaches [[bench: device/matrix]]. So only five products can
   catch up. They are possible [below Triton](../gluon/flash_attention_backward.py), and in an order that is fixed: the
   TMA unit adds each part of dQ in memory, and a counter says whose turn it is. The bits are the same on every call. So
   on a Hopper card large dense calls with heads of 64 or 128 numbers go there. Other calls, and other cards, have the
   two kernels. [Its page](../gluon/flash_attention_backward.py) has the times of both.

**What it costs.** As the lesson.

**Contract.** As the lesson's launcher. What no descriptor fits is left to the lesson's kernels.
"""

from academy.runtime import device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.launch import Tiles, cdiv, launch

import torch
import triton
import triton.language as tl

from annotated_examples.attention import flash_attention as lesson
from annotated_examples.attention.flash_attention import attention, flash_attention_reference, keys_seen
from annotated_examples.common.attention import (
    batches, contract, empty_like, head, load_numbers, new_rows, scale_and_cap, sequence, sink_gradient,
    store_numbers, store_tile, strided, tile_offsets,
)  # fmt: skip
from annotated_examples.common.attention_tiles import (
    TileSizes, can_describe, constants, describe, fitting, key_ranges, load_rows, seen,
)  # fmt: skip
from annotated_examples.common.constants import LOG2E
from annotated_examples.common.tile_order import grouped_order


# ## One tile of probabilities, and of their gradients
#
# Given the log-sum-exp, a probability is one power of 2, [[tag: AT-P]]. No score that counts is above its row's
# log-sum-exp, so this is at most 1, but for rounding, and no maximum is needed. The tile of scores has either a row or
# a column for each query, and the caller shapes `lse` to match.
#
# With a soft cap the gradient has one more factor, the slope of the cap, [[tag: AT-cap-dS]].
@triton.jit
def probabilities(s, lse, mask, scale, softcap: tl.constexpr, MASKED: tl.constexpr):
    factor = scale * LOG2E
    slope = 1.0
    if softcap != 0.0:
        s, slope = scale_and_cap(s, scale, softcap)
        factor = LOG2E
    # The example's first program has queries 8 to 11. To query 8 the first two keys have the probabilities
    # `pid=0: p[0, :2] = [0.0385, 0.06348]`.
    p = tl.exp2(s * factor - lse * LOG2E)
    if MASKED:
        p = tl.where(mask, p, 0.0)
    return p, slope


# **dS = P · (dP - D)**, [[tag: AT-dS]], without the scale, which dQ and dK get once at the end. Where the mask hides a
# pair, zero times a NaN would still be NaN, so the gradient is masked once more.
@triton.jit
def score_gradients(p, dp, delta, slope, mask, MASKED: tl.constexpr):
    # For the first of them that is 0.0385 · (17 − 5.976), `pid=0: ds[0, 0] = 0.4244`.
    ds = p * (dp - delta) * slope
    if MASKED:
        ds = tl.where(mask, ds, 0.0)
    return ds


# ## The number that a row shares
#
# [[tag: AT-D]], the dot product of the output's row and its gradient. It is computed where both tiles are at hand, and
# stored for the kernel of the keys.
@triton.jit
def row_gradient(
    do_desc, o_desc, dlse_tensor, delta_tensor, b, entry, h, start_q, start_m, T,
    BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    offs_m = start_m + tl.arange(0, BLOCK_M)
    o = load_rows(o_desc, entry, h, start_q, start_m, T, False, BLOCK_M, BLOCK_D)
    do = load_rows(do_desc, entry, h, start_q, start_m, T, False, BLOCK_M, BLOCK_D)
    dlse = load_numbers(head(dlse_tensor, b, h, start_q), offs_m, T)
    delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), axis=1) - dlse
    store_numbers(head(delta_tensor, b, h, start_q), delta, offs_m, T)
    return do, delta


# ## Backward for the queries
#
# Without a mask and with one length for all, this is the whole loop. A program keeps four things of its queries, and
# for each tile of keys makes three products: **S = Q Kᵀ**, **dP = dO Vᵀ**, **dQ = dS K**. The first two don't depend on
# each other, so the tensor cores have work while P is computed.
#
# With packed sequences, a tile that crosses the end of its sequence holds rows of the next one. In dQ every key counts,
# so those rows have to be zeros: `CLEAR`.
@triton.jit
def query_gradient_range(
    dq, queries,  # queries: (q, do, lse, delta), tiles that a program loads once
    k_desc, v_desc, place, begin, end,  # place: (b, hk, start_k) of the keys
    bounds,  # (first, last): what each row sees
    S, scale, softcap: tl.constexpr, WINDOW: tl.constexpr, MASKED: tl.constexpr, VARLEN: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    q, do, lse, delta = queries
    b, hk, start_k = place
    first, last = bounds
    CLEAR: tl.constexpr = MASKED and VARLEN
    for start in tl.range(begin, end, BLOCK_N, num_stages=STAGES):
        k = load_rows(k_desc, b, hk, start_k, start, S, CLEAR, BLOCK_N, BLOCK_D)
        v = load_rows(v_desc, b, hk, start_k, start, S, CLEAR, BLOCK_N, BLOCK_D)
        # The tile on the diagonal begins at key 8, the only one of it that query 8 sees: `pid=0, start=8: mask[0] =
        # [1, 0, 0, 0]`. What the other three would give is masked away, `pid=0, start=8: ds[0] = [-0.9506, 0, 0, 0]`.
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = seen(offs_n[None, :], first[:, None], last[:, None], WINDOW)
        s = tl.dot(q, tl.trans(k), input_precision="ieee")
        p, slope = probabilities(s, lse[:, None], mask, scale, softcap, MASKED)
        dp = tl.dot(do, tl.trans(v), input_precision="ieee")
        ds = score_gradients(p, dp, delta[:, None], slope, mask, MASKED)
        dq = tl.dot(ds.to(k.dtype), k, dq, input_precision="ieee")
    return dq


@triton.jit
def attention_backward_queries_kernel(
    do_desc, q_desc, o_desc, k_desc, v_desc,  # descriptors of (B, H, T, D) and (B, Hk, S, D)
    numbers,  # of each query: those of dlse, lse and delta, each (pointer, four strides) of (B, H, T)
    dq_tensor,  # (pointer, four strides): (B, H, T, D)
    lengths,  # (cu_q_ptr, cu_k_ptr, T, S, longest)
    heads,  # (B, H, group)
    window,  # (left, right)
    scale, softcap: tl.constexpr, D: tl.constexpr, WINDOW: tl.constexpr, HEADS: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    dlse_tensor, lse_tensor, delta_tensor = numbers
    cu_q_ptr, cu_k_ptr, T, S, longest = lengths
    B, H, group = heads
    tiles = tl.cdiv(longest, BLOCK_M)
    head_number, tile = grouped_order(tl.program_id(0), B * H, tiles, HEADS)
    b, h, start_m = head_number // H, head_number % H, (tiles - 1 - tile) * BLOCK_M
    start_q, T = sequence(cu_q_ptr, b, T)
    start_k, S = sequence(cu_k_ptr, b, S)
    if start_m >= T:
        return
    VARLEN: tl.constexpr = lengths[0] is not None
    entry = 0 if VARLEN else b
    # Everything that doesn't change from one tile of keys to the next. The first of the example's programs has the last
    # four queries, whose D is `pid=0: delta = [5.976, 4.018, 12.08, 6.643]`.
    offs_m = start_m + tl.arange(0, BLOCK_M)
    do, delta = row_gradient(
        do_desc, o_desc, dlse_tensor, delta_tensor, b, entry, h, start_q, start_m, T, BLOCK_M, BLOCK_D
    )
    q = load_rows(q_desc, entry, h, start_q, start_m, T, False, BLOCK_M, BLOCK_D)
    lse = load_numbers(head(lse_tensor, b, h, start_q), offs_m, T)
    dq = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)

    # As forward: the keys at the left edge of a window, then the full tiles without a mask, then those on the diagonal.
    # For queries 8 to 11, `pid=0: start_m = 8`, these are no keys at all, keys 0 to 7, and 8 to 11:
    # `pid=0: edges = (0, 0, 8, 12)`.
    bounds = keys_seen(offs_m, T, S, window)
    low, high = start_m + (S - T), tl.minimum(start_m + BLOCK_M, T) - 1 + (S - T)
    edges = key_ranges(low, high, S, window, BLOCK_N)
    for PART in tl.static_range(3):
        if PART > 0 or WINDOW:
            dq = query_gradient_range(
                dq, (q, do, lse, delta), k_desc, v_desc, (entry, h // group, start_k), edges[PART], edges[PART + 1],
                bounds, S, scale, softcap, WINDOW, PART != 1, VARLEN, BLOCK_N, BLOCK_D, STAGES if PART == 1 else 2,
            )  # fmt: skip
    # [[tag: AT-dQ]]
    store_tile(head(dq_tensor, b, h, start_q), dq * scale, offs_m, T, D, BLOCK_D)


# ## Backward for the keys and values
#
# Why do the scores have a row for each key here? In dV = PᵀdO and dK = dSᵀQ the left factors are Pᵀ and dSᵀ. Computed
# this way round, they lie in registers as the next product wants its left factor. Out of QKᵀ they would have to be
# transposed first.
#
# With a row for each key, every thread needs the numbers of 16 of the 64 queries of a tile. The TMA unit fetches those
# of a tile at once. The launcher asks it where the numbers of every head begin at a multiple of 16 bytes. Past the last
# query it brings the numbers of the next head. The mask hides whatever comes of them.
@triton.jit
def load_by_column(rows, row, start, length, BY_DESCRIPTOR: tl.constexpr, ROWS: tl.constexpr):
    if BY_DESCRIPTOR:
        numbers = rows.load([row + start])
    else:
        offs = start + tl.arange(0, ROWS)
        numbers = tl.load(rows + row + offs, mask=offs < length, other=0.0)
    # The last ones that the example's second program loads are those of queries 8 to 11, the same D as above:
    # `pid=1: numbers = [5.976, 4.018, 12.08, 6.643]`.
    return numbers


# Four products for each tile of queries: **Sᵀ = K Qᵀ**, **dPᵀ = V dOᵀ**, **dV = Pᵀ dO** and **dK = dSᵀ Q**. Their order
# matters to the compiler, which has to hold two sums and two tiles of scores in 255 registers per thread. With heads of
# 128, dV follows as soon as P is there, so the registers of P's 16-bit copy are free again before dP needs any. With
# heads of 64 there is room to start both products of loaded tiles first.
#
# In the pass with atomics a fifth product follows, **dQ = dS K**, which is added to the sums in memory.
@triton.jit
def key_gradient_range(
    sums, keys,  # (dk, dv) so far, and the tiles (k, v) that a program loads once
    q_desc, do_desc, lse_rows, delta_rows, dq_ptr,
    place, begin, end,  # place: (b, h, start_q, row) of the queries
    bounds,  # (first, last): the queries that see each key
    T, scale, softcap: tl.constexpr, MASKED: tl.constexpr, VARLEN: tl.constexpr, BY_DESCRIPTOR: tl.constexpr,
    BLOCK_M: tl.constexpr, D: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    dk, dv = sums
    k, v = keys
    BLOCK_D: tl.constexpr = k.shape[1]
    b, h, start_q, row = place
    first, last = bounds
    CLEAR: tl.constexpr = MASKED and VARLEN
    DV_FIRST: tl.constexpr = D > 64
    for start in tl.range(begin, end, BLOCK_M, num_stages=STAGES):
        offs_m = start + tl.arange(0, BLOCK_M)
        q = load_rows(q_desc, b, h, start_q, start, T, CLEAR, BLOCK_M, BLOCK_D)
        lse = load_by_column(lse_rows, row, start, T, BY_DESCRIPTOR, BLOCK_M)
        do = load_rows(do_desc, b, h, start_q, start, T, CLEAR, BLOCK_M, BLOCK_D)
        delta = load_by_column(delta_rows, row, start, T, BY_DESCRIPTOR, BLOCK_M)
        s = tl.dot(k, tl.trans(q), input_precision="ieee")
        if not DV_FIRST:
            dp = tl.dot(v, tl.trans(do), input_precision="ieee")
        # A column is a query now, and a row is a key. Key 4 is seen by queries 4 to 7, `pid=1, start=4: mask[0] =
        # [1, 1, 1, 1]`, key 7 by the last of them only: `pid=1, start=4: mask[3] = [0, 0, 0, 1]`.
        mask = seen(offs_m[None, :], first[:, None], last[:, None], True)
        p, slope = probabilities(s, lse[None, :], mask, scale, softcap, MASKED)
        if DV_FIRST:
            dv = tl.dot(p.to(do.dtype), do, dv, input_precision="ieee")
            dp = tl.dot(v, tl.trans(do), input_precision="ieee")
        ds = score_gradients(p, dp, delta[None, :], slope, mask, MASKED).to(q.dtype)
        if not DV_FIRST:
            dv = tl.dot(p.to(do.dtype), do, dv, input_precision="ieee")
        dk = tl.dot(ds, q, dk, input_precision="ieee")
        if dq_ptr is not None:
            part = tl.dot(tl.trans(ds), k, input_precision="ieee")
            mask = (offs_m < T)[:, None] & (tl.arange(0, BLOCK_D) < D)[None, :]
            rows = dq_ptr + tile_offsets(row + offs_m, D, 1, BLOCK_D)
            tl.atomic_add(rows, part, mask=mask, sem="relaxed")
    return dk, dv


# A program has a tile of keys, and walks along the queries that see it, for every head of its group. Queries and keys
# change places, and so do the two sides of the window. Solved for the query: queries j − (S − T) − right to
# j − (S − T) + left see key j.
@triton.jit
def attention_backward_keys_kernel(
    do_desc, q_desc, k_desc, v_desc,  # descriptors of (B, H, T, D) and (B, Hk, S, D)
    lse_rows, delta_rows,  # B · H · T numbers, one after the other: descriptors, or pointers
    gradients,  # dk and dv, (pointer, four strides) of (B, Hk, S, D); sums for dq (B, H, T, D), contiguous, or None
    lengths, heads, window, scale,  # as above, with heads: (B, Hk, group)
    softcap: tl.constexpr, D: tl.constexpr, WINDOW: tl.constexpr, HEADS: tl.constexpr, BY_DESCRIPTOR: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    dk_tensor, dv_tensor, dq_ptr = gradients
    cu_q_ptr, cu_k_ptr, T, S, longest = lengths
    B, Hk, group = heads
    # Under a causal mask the first keys are seen by the most queries: their tiles come first.
    head_number, tile = grouped_order(tl.program_id(0), B * Hk, tl.cdiv(longest, BLOCK_N), HEADS)
    b, hk, start_n, total = head_number // Hk, head_number % Hk, tile * BLOCK_N, T
    start_q, T = sequence(cu_q_ptr, b, T)
    start_k, S = sequence(cu_k_ptr, b, S)
    if start_n >= S:
        return
    VARLEN: tl.constexpr = lengths[0] is not None
    entry = 0 if VARLEN else b
    # In one pass, rows past the last key would add to dQ: so they are zeroed, and masked for all queries. (A score of 0
    # makes P = exp(−lse), which may be infinite, and infinity · 0 is NaN.) With two kernels these rows aren't stored.
    CLEAR: tl.constexpr = VARLEN and dq_ptr is not None
    offs_n = start_n + tl.arange(0, BLOCK_N)
    k = load_rows(k_desc, entry, hk, start_k, start_n, S, CLEAR, BLOCK_N, BLOCK_D)
    v = load_rows(v_desc, entry, hk, start_k, start_n, S, CLEAR, BLOCK_N, BLOCK_D)
    sums = (tl.zeros((BLOCK_N, BLOCK_D), tl.float32), tl.zeros((BLOCK_N, BLOCK_D), tl.float32))

    # Keys 4 to 7 of the example, `pid=1: start_n = 4`, are seen by all queries from `pid=1: full_begin = 8` on, and by
    # some from `pid=1: begin = 4` on: one masked tile, then a full one.
    left, right = window
    bounds = keys_seen(offs_n, S, T, (right, left))
    low, high = start_n - (S - T), tl.minimum(start_n + BLOCK_N, S) - 1 - (S - T)
    begin, full_begin, full_end, end = key_ranges(low, high, T, (right, left), BLOCK_M)
    if dq_ptr is not None:
        full_end = tl.where(start_n + BLOCK_N > S, full_begin, full_end)
    edges = (begin, full_begin, full_end, end)
    for h in range(hk * group, hk * group + group):
        row = (entry * Hk * group + h) * total + start_q
        for PART in tl.static_range(3):
            sums = key_gradient_range(
                sums, (k, v), q_desc, do_desc, lse_rows, delta_rows, dq_ptr, (entry, h, start_q, row),
                edges[PART], edges[PART + 1], bounds, T, scale, softcap, PART != 1, VARLEN, BY_DESCRIPTOR,
                BLOCK_M, D, STAGES if PART == 1 else 2,
            )  # fmt: skip
    # [[tag: AT-dK]] and [[tag: AT-dV]]. Of key 4 they begin with `pid=1: dk[0, 0] = 1.978`, not yet scaled, and
    # `pid=1: dv[0, 0] = 1.689`.
    dk, dv = sums
    store_tile(head(dk_tensor, b, hk, start_k), dk * scale, offs_n, S, D, BLOCK_D)
    store_tile(head(dv_tensor, b, hk, start_k), dv, offs_n, S, D, BLOCK_D)


# ## All gradients in one pass
#
# With a pointer to the sums for dQ the kernel above adds each tile's part to them, [[tag: AT-dQ]], and the kernel for
# the queries isn't needed. What is left of it is D, and somebody has to set the sums to zero: that is done here. The
# sums are float32, so there is one more tensor as long as the sequences. The scale comes at the end, with the
# conversion.
@triton.jit
def attention_delta_kernel(
    do_desc, o_desc,  # descriptors of (B, H, T, D)
    dlse_tensor, delta_tensor,  # (pointer, four strides): (B, H, T)
    dq_ptr,  # (B, H, T, D) in float32, contiguous
    lengths,  # (cu_q_ptr, T, longest)
    H, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    cu_q_ptr, T, longest = lengths
    tiles, total = tl.cdiv(longest, BLOCK_M), T
    head_number, start_m = tl.program_id(0) // tiles, tl.program_id(0) % tiles * BLOCK_M
    b, h = head_number // H, head_number % H
    start_q, T = sequence(cu_q_ptr, b, T)
    if start_m >= T:
        return
    entry = 0 if lengths[0] is not None else b
    row_gradient(do_desc, o_desc, dlse_tensor, delta_tensor, b, entry, h, start_q, start_m, T, BLOCK_M, BLOCK_D)
    rows = head((dq_ptr, H * total * D, total * D, D, 1), entry, h, start_q)
    store_tile(rows, tl.zeros((BLOCK_M, BLOCK_D), tl.float32), start_m + tl.arange(0, BLOCK_M), T, D, BLOCK_D)


# ## The launcher
#
# The sizes that were fastest on the card, as in forward. The keys' kernel has two sums, so its tiles are smaller and it
# has fewer stages with wide heads.
QUERIES = {64: TileSizes(128, 64, 3, 4), 128: TileSizes(128, 64, 3, 8)}
KEYS = {64: TileSizes(64, 64, 3, 4), 128: TileSizes(64, 64, 2, 4)}
ONE_PASS = {64: TileSizes(128, 128, 2, 8), 128: TileSizes(64, 128, 2, 8)}


def attention_backward(
    do, dlse, q, k, v, sinks, cu_seqlens_q, cu_seqlens_k, o, lse, options, *, BLOCK_M=None, BLOCK_N=None,
    deterministic=True,
):  # fmt: skip
    """`(dq, dk, dv, dsinks)`, as the lesson's launcher. An upstream gradient that no descriptor fits is copied."""
    if not can_describe(options, q, k, v, o):
        return lesson.attention_backward(
            do, dlse, q, k, v, sinks, cu_seqlens_q, cu_seqlens_k, o, lse, options, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N
        )  # fmt: skip
    do = torch.zeros_like(o) if do is None else fitting(do)
    dlse = lse.new_zeros(()).expand(lse.shape) if dlse is None else dlse
    dq, dk, dv = empty_like(o, cu_seqlens_q), empty_like(k, cu_seqlens_k), empty_like(k, cu_seqlens_k)
    delta = empty_like(lse, cu_seqlens_q)
    upstream, rows = (do, dlse), (lse, delta)
    tensors = (q, k, v), (cu_seqlens_q, cu_seqlens_k), (batches(q, cu_seqlens_q), options)
    sizes = BLOCK_M, BLOCK_N
    if deterministic:
        launch_queries(upstream, o, rows, dq, *tensors, constants(QUERIES, q, options, *sizes, options.max_seqlen_k))
        launch_keys(do, rows, (dk, dv, None), *tensors, constants(KEYS, q, options, *sizes, options.max_seqlen_q))
    else:
        sums = new_rows(q, q.shape, cu_seqlens_q)
        launch_delta(upstream, o, delta, sums, *tensors, constants(ONE_PASS, q, options, *sizes, options.max_seqlen_k))
        launch_keys(do, rows, (dk, dv, sums), *tensors, constants(ONE_PASS, q, options, *sizes, options.max_seqlen_q))
        torch.mul(sums, options.scale, out=dq)
    return dq, dk, dv, sink_gradient(sinks, lse, delta)


def launch_queries(upstream, o, rows, dq, qkv, cu_seqlens, batch, sizes):
    (do, dlse), (q, k, v), (B, options) = upstream, qkv, batch
    (H, T, _), (Hk, S) = q.shape[1:], k.shape[1:3]
    M, N, BLOCK_D = sizes["BLOCK_M"], sizes["BLOCK_N"], sizes["BLOCK_D"]
    if programs := cdiv(options.max_seqlen_q, M) * B * H:
        launch(
            attention_backward_queries_kernel, (programs,),
            (
                *(describe(x, M, BLOCK_D) for x in (do, q, o)), *(describe(x, N, BLOCK_D) for x in (k, v)),
                tuple(strided(x, cu_seqlens[0]) for x in (dlse, *rows)), strided(dq, cu_seqlens[0]),
                (*cu_seqlens, T, S, options.max_seqlen_q), (B, H, H // Hk), (options.left, options.right),
            ),
            (options.scale,), **sizes,
        )  # fmt: skip


def launch_delta(upstream, o, delta, sums, qkv, cu_seqlens, batch, sizes):
    (do, dlse), (B, options), of_queries = upstream, batch, cu_seqlens[0]
    H, T, D = qkv[0].shape[1:]
    M, BLOCK_D = sizes["BLOCK_M"], sizes["BLOCK_D"]
    if programs := cdiv(options.max_seqlen_q, M) * B * H:
        launch(
            attention_delta_kernel, (programs,),
            (
                describe(do, M, BLOCK_D), describe(o, M, BLOCK_D), strided(dlse, of_queries),
                strided(delta, of_queries), sums, (of_queries, T, options.max_seqlen_q),
            ),
            (H,), D=D, BLOCK_M=M, BLOCK_D=BLOCK_D,
        )  # fmt: skip


def launch_keys(do, rows, gradients, qkv, cu_seqlens, batch, sizes):
    """gradients: dK, dV, and the sums of dQ in the pass with atomics."""
    (q, k, v), (B, options), (dk, dv, sums) = qkv, batch, gradients
    (H, T, _), (Hk, S) = q.shape[1:], k.shape[1:3]
    M, N, BLOCK_D = sizes["BLOCK_M"], sizes["BLOCK_N"], sizes["BLOCK_D"]
    by_descriptor = cu_seqlens[0] is None and T % 4 == 0
    if programs := cdiv(options.max_seqlen_k, N) * B * Hk:
        launch(
            attention_backward_keys_kernel, (programs,),
            (
                *(describe(x, M, BLOCK_D) for x in (do, q)), *(describe(x, N, BLOCK_D) for x in (k, v)),
                *(Tiles(x, (x.numel(),), (1,), (M,)) if by_descriptor else x for x in rows),
                (strided(dk, cu_seqlens[1]), strided(dv, cu_seqlens[1]), sums),
                (*cu_seqlens, T, S, options.max_seqlen_k), (B, Hk, H // Hk), (options.left, options.right),
            ),
            (options.scale,), BY_DESCRIPTOR=by_descriptor, **sizes,
        )  # fmt: skip


# ## A run small enough to watch
#
# A head with twelve queries and twelve keys of 8 numbers, causal, in tiles of four queries and four keys.
def EXAMPLE():
    at = torch.arange(12 * 8, device=device.DEVICE)
    q, k, v, do = ((at * step % 7 - 3).half().view(1, 1, 12, 8) for step in (1, 3, 5, 2))
    options = contract(q, k, v, True, 0.5, None, 0.0, None, True)
    o, lse = flash_attention_reference(q.float(), k.float(), v.float(), causal=True, scale=0.5, return_lse=True)
    attention_backward(do, None, q, k, v, None, None, None, o.half(), lse, options, BLOCK_M=4, BLOCK_N=4)


if __name__ == "__main__":

    def flash_attention(q, k, v, causal=False, softcap=0.0):
        options = contract(q, k, v, causal, None, None, softcap, None, False)
        return attention(q, k, v, None, None, None, options, lesson.attention_forward, attention_backward)[0]

    shapes = dict(q=(1, 4, 33, 64), k=(1, 2, 70, 64), v=(1, 2, 70, 64))
    script.main(flash_attention, flash_attention_reference, shapes | dict(causal=True), shapes | dict(softcap=5.0))
