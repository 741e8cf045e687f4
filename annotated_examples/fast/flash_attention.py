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

from academy import checks, device, script

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from annotated_examples.attention import flash_attention as lesson
from annotated_examples.attention.flash_attention import (
    LOWEST, attention, attention_varlen, flash_attention_reference, keys_seen,
)  # fmt: skip
from annotated_examples.common.attention import (
    OPEN, batches, contract, empty_like, head, new_rows, scale_and_cap, sequence, sink_gradient, store_tile,
    strides, tile_offsets, varlen_contract,
)  # fmt: skip
from annotated_examples.common.opaque_attention import opaque_attention
from annotated_examples.common.tile_order import grouped_order

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)


# ## Tiles by descriptor
#
# Since Hopper a copy unit of the card, the TMA, fetches a tile by itself: a load names the corner of the tile, and past
# the end of the tensor come zeros. But where sequences lie one behind the other, the next one begins there. Its rows
# may hold anything, NaN too, and 0 · NaN is NaN. So a tile that crosses the end of a sequence has them replaced.
@triton.jit
def load_rows(desc, b, h, start, row, length, CLEAR: tl.constexpr, ROWS: tl.constexpr, BLOCK_D: tl.constexpr):
    tile = tl.reshape(desc.load([b, h, start + row, 0]), (ROWS, BLOCK_D))
    if CLEAR:
        tile = tl.where((row + tl.arange(0, ROWS) < length)[:, None], tile, 0.0)
    return tile


# ## Forward: one tile of scores
#
# [[tag: AT-merge]] in base 2. The scores come unscaled: `factor`, the scale times log₂ e, is joined with the maximum in
# one fused multiply-add per score. A soft cap is a curve, so there the scale comes first.
@triton.jit
def attend(acc, row_max, row_sum, q, k, v, mask, scale, factor, softcap: tl.constexpr, MASKED: tl.constexpr):
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


# The keys from `begin` to `end`, for one half of the queries or for both. Each half waits for its own product only.
#
# What a row sees is counted from the beginning of the tile, one subtraction a row. The columns are then the same in
# every tile: constants in the instructions, not numbers in registers, for which there was no room.
@triton.jit
def attend_range(
    acc0, max0, sum0, acc1, max1, sum1, q0, q1, begin, end, k_desc, v_desc, b, hk, start_k, start_m, T, S, left, right,
    scale, softcap: tl.constexpr, WINDOW: tl.constexpr, MASKED: tl.constexpr, VARLEN: tl.constexpr,
    HALVES: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    factor = scale * LOG2E
    first0, last0 = keys_seen(start_m + tl.arange(0, ROWS), T, S, left, right)
    first1, last1 = keys_seen(start_m + ROWS + tl.arange(0, ROWS), T, S, left, right)
    columns = tl.arange(0, BLOCK_N)[None, :]
    for start in tl.range(begin, end, BLOCK_N, num_stages=STAGES):
        k = load_rows(k_desc, b, hk, start_k, start, S, False, BLOCK_N, BLOCK_D)
        v = load_rows(v_desc, b, hk, start_k, start, S, MASKED and VARLEN, BLOCK_N, BLOCK_D)
        mask = seen(columns, (first0 - start)[:, None], (last0 - start)[:, None], WINDOW)
        acc0, max0, sum0 = attend(acc0, max0, sum0, q0, k, v, mask, scale, factor, softcap, MASKED)
        if HALVES == 2:
            mask = seen(columns, (first1 - start)[:, None], (last1 - start)[:, None], WINDOW)
            acc1, max1, sum1 = attend(acc1, max1, sum1, q1, k, v, mask, scale, factor, softcap, MASKED)
    return acc0, max0, sum0, acc1, max1, sum1


# A comparison less for each score where no window cuts off the first keys.
@triton.jit
def seen(offs_n, first, last, WINDOW: tl.constexpr):
    mask = offs_n < last
    if WINDOW:
        mask &= offs_n >= first
    return mask


# Which stretch of keys do the positions from `low` to `high` see: some of them, and all of them? Both begin and end at
# a multiple of the tile, but for the end of the keys. What all of them see needs no mask.
@triton.jit
def key_ranges(low, high, S, left, right, BLOCK_N: tl.constexpr):
    begin = tl.maximum(low - left, 0) // BLOCK_N * BLOCK_N
    end = tl.maximum(tl.minimum(high + right + 1, S), begin)
    full_begin = tl.minimum(tl.cdiv(tl.maximum(high - left, 0), BLOCK_N) * BLOCK_N, end)
    full_end = tl.maximum(tl.minimum(low + right + 1, S), 0) // BLOCK_N * BLOCK_N
    return begin, full_begin, tl.maximum(full_end, full_begin), end


@triton.jit
def store_half(
    o_ptr, lse_ptr, acc, row_max, row_sum, start_m, T, stride_t, stride_d, D: tl.constexpr, ROWS: tl.constexpr,
    BLOCK_D: tl.constexpr,
):  # fmt: skip
    offs_m = start_m + tl.arange(0, ROWS)
    factor = 1.0 / tl.where(row_sum == 0.0, 1.0, row_sum)
    store_tile(o_ptr, acc * factor[:, None], offs_m, T, stride_t, stride_d, D, BLOCK_D)
    # `tl.log2` gives the logarithm in base 2; [[tag: AT-lse]] is promised as a natural one.
    lse = tl.where(row_sum == 0.0, -float("inf"), (row_max + tl.log2(row_sum)) * LN2)
    tl.store(lse_ptr + offs_m, lse, mask=offs_m < T)


@triton.jit
def attention_forward_kernel(
    q_desc, k_desc, v_desc, sinks_ptr, cu_q_ptr, cu_k_ptr, o_ptr, lse_ptr,
    stride_ob, stride_oh, stride_ot, stride_od, stride_lb, stride_lh, T, S, longest, B, H, group, scale, left, right,
    softcap: tl.constexpr, D: tl.constexpr, WINDOW: tl.constexpr, HEADS: tl.constexpr, HALVES: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    # Down a group of `HEADS` heads first, then to the next tile, from the last tile of queries to the first.
    tiles = tl.cdiv(longest, BLOCK_M)
    head_number, tile = grouped_order(tl.program_id(0), B * H, tiles, HEADS)
    b, h, start_m = head_number // H, head_number % H, (tiles - 1 - tile) * BLOCK_M
    start_q, T = sequence(cu_q_ptr, b, T)
    start_k, S = sequence(cu_k_ptr, b, S)
    if start_m >= T:
        return
    VARLEN: tl.constexpr = cu_q_ptr is not None
    entry = 0 if VARLEN else b
    ROWS: tl.constexpr = BLOCK_M // HALVES
    q0 = load_rows(q_desc, entry, h, start_q, start_m, T, False, ROWS, BLOCK_D)
    q1 = q0
    if HALVES == 2:
        q1 = load_rows(q_desc, entry, h, start_q, start_m + ROWS, T, False, ROWS, BLOCK_D)

    max0 = tl.full((ROWS,), LOWEST, tl.float32)
    sum0 = tl.zeros((ROWS,), tl.float32)
    if sinks_ptr is not None:
        sink = tl.load(sinks_ptr + h).to(tl.float32) * LOG2E
        max0 = tl.maximum(max0, sink)
        sum0 = tl.exp2(sink - max0)
    acc0 = tl.zeros((ROWS, BLOCK_D), tl.float32)
    acc1, max1, sum1 = acc0, max0, sum0

    low, high = start_m + (S - T), tl.minimum(start_m + BLOCK_M, T) - 1 + (S - T)
    begin, full_begin, full_end, end = key_ranges(low, high, S, left, right, BLOCK_N)
    FEW: tl.constexpr = 1 if STAGES == 1 else 2
    if WINDOW:
        acc0, max0, sum0, acc1, max1, sum1 = attend_range(
            acc0, max0, sum0, acc1, max1, sum1, q0, q1, begin, full_begin, k_desc, v_desc, entry, h // group, start_k,
            start_m, T, S, left, right, scale, softcap, WINDOW, True, VARLEN, HALVES, ROWS, BLOCK_N, BLOCK_D, FEW,
        )  # fmt: skip
    acc0, max0, sum0, acc1, max1, sum1 = attend_range(
        acc0, max0, sum0, acc1, max1, sum1, q0, q1, full_begin, full_end, k_desc, v_desc, entry, h // group, start_k,
        start_m, T, S, left, right, scale, softcap, WINDOW, False, VARLEN, HALVES, ROWS, BLOCK_N, BLOCK_D, STAGES,
    )  # fmt: skip
    acc0, max0, sum0, acc1, max1, sum1 = attend_range(
        acc0, max0, sum0, acc1, max1, sum1, q0, q1, full_end, end, k_desc, v_desc, entry, h // group, start_k,
        start_m, T, S, left, right, scale, softcap, WINDOW, True, VARLEN, HALVES, ROWS, BLOCK_N, BLOCK_D, FEW,
    )  # fmt: skip

    o_ptr = head(o_ptr, b, h, start_q, stride_ob, stride_oh, stride_ot)
    lse_ptr = head(lse_ptr, b, h, start_q, stride_lb, stride_lh, 1)
    store_half(o_ptr, lse_ptr, acc0, max0, sum0, start_m, T, stride_ot, stride_od, D, ROWS, BLOCK_D)
    if HALVES == 2:
        store_half(o_ptr, lse_ptr, acc1, max1, sum1, start_m + ROWS, T, stride_ot, stride_od, D, ROWS, BLOCK_D)


# ## Backward: one tile of probabilities and of their gradients
#
# [[tag: AT-P]] in base 2, and [[tag: AT-dS]] without the scale, which dQ and dK get once at the end. `s`, `lse` and the
# rest may stand either way round: with a row for each query, or with one for each key.
@triton.jit
def probabilities(s, lse, mask, scale, softcap: tl.constexpr, MASKED: tl.constexpr):
    factor = scale * LOG2E
    slope = 1.0
    if softcap != 0.0:
        s, slope = scale_and_cap(s, scale, softcap)
        factor = LOG2E
    p = tl.exp2(s * factor - lse * LOG2E)
    if MASKED:
        p = tl.where(mask, p, 0.0)
    return p, slope


# Where the mask hides a pair, zero times a NaN would still be NaN, so it masks the gradient once more.
@triton.jit
def score_gradients(p, dp, delta, slope, mask, MASKED: tl.constexpr):
    ds = p * (dp - delta) * slope
    if MASKED:
        ds = tl.where(mask, ds, 0.0)
    return ds


# [[tag: AT-D]], where the tiles of dO and O are needed or cheap, and stored for the kernel of the keys.
@triton.jit
def row_gradient(
    do_desc, o_desc, dlse_ptr, delta_ptr, b, entry, h, start_q, start_m, T, stride_glb, stride_glh, stride_glt,
    stride_lb, stride_lh, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    offs_m = start_m + tl.arange(0, BLOCK_M)
    o = load_rows(o_desc, entry, h, start_q, start_m, T, False, BLOCK_M, BLOCK_D)
    do = load_rows(do_desc, entry, h, start_q, start_m, T, False, BLOCK_M, BLOCK_D)
    dlse_ptr = head(dlse_ptr, b, h, start_q, stride_glb, stride_glh, stride_glt)
    dlse = tl.load(dlse_ptr + offs_m.to(tl.int64) * stride_glt, mask=offs_m < T, other=0.0)
    delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), axis=1) - dlse
    tl.store(head(delta_ptr, b, h, start_q, stride_lb, stride_lh, 1) + offs_m, delta, mask=offs_m < T)
    return do, delta


# ## Backward for the queries
@triton.jit
def query_gradient_range(
    dq, q, do, lse, delta, begin, end, k_desc, v_desc, b, hk, start_k, first, last, S, scale,
    softcap: tl.constexpr, WINDOW: tl.constexpr, MASKED: tl.constexpr, VARLEN: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    CLEAR: tl.constexpr = MASKED and VARLEN
    for start in tl.range(begin, end, BLOCK_N, num_stages=STAGES):
        k = load_rows(k_desc, b, hk, start_k, start, S, CLEAR, BLOCK_N, BLOCK_D)
        v = load_rows(v_desc, b, hk, start_k, start, S, CLEAR, BLOCK_N, BLOCK_D)
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = seen(offs_n[None, :], first[:, None], last[:, None], WINDOW)
        p, slope = probabilities(
            tl.dot(q, tl.trans(k), input_precision="ieee"), lse[:, None], mask, scale, softcap, MASKED
        )
        dp = tl.dot(do, tl.trans(v), input_precision="ieee")
        ds = score_gradients(p, dp, delta[:, None], slope, mask, MASKED)
        dq = tl.dot(ds.to(k.dtype), k, dq, input_precision="ieee")
    return dq


@triton.jit
def attention_backward_queries_kernel(
    do_desc, dlse_ptr, q_desc, k_desc, v_desc, cu_q_ptr, cu_k_ptr, o_desc, lse_ptr, delta_ptr, dq_ptr,
    stride_glb, stride_glh, stride_glt, stride_ob, stride_oh, stride_ot, stride_od, stride_lb, stride_lh,
    T, S, longest, B, H, group, scale, left, right, softcap: tl.constexpr, D: tl.constexpr, WINDOW: tl.constexpr,
    HEADS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(longest, BLOCK_M)
    head_number, tile = grouped_order(tl.program_id(0), B * H, tiles, HEADS)
    b, h, start_m = head_number // H, head_number % H, (tiles - 1 - tile) * BLOCK_M
    start_q, T = sequence(cu_q_ptr, b, T)
    start_k, S = sequence(cu_k_ptr, b, S)
    if start_m >= T:
        return
    VARLEN: tl.constexpr = cu_q_ptr is not None
    entry = 0 if VARLEN else b
    offs_m = start_m + tl.arange(0, BLOCK_M)
    do, delta = row_gradient(
        do_desc, o_desc, dlse_ptr, delta_ptr, b, entry, h, start_q, start_m, T, stride_glb, stride_glh, stride_glt,
        stride_lb, stride_lh, BLOCK_M, BLOCK_D,
    )  # fmt: skip
    q = load_rows(q_desc, entry, h, start_q, start_m, T, False, BLOCK_M, BLOCK_D)
    lse = tl.load(head(lse_ptr, b, h, start_q, stride_lb, stride_lh, 1) + offs_m, mask=offs_m < T, other=0.0)
    dq = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)

    first, last = keys_seen(offs_m, T, S, left, right)
    low, high = start_m + (S - T), tl.minimum(start_m + BLOCK_M, T) - 1 + (S - T)
    begin, full_begin, full_end, end = key_ranges(low, high, S, left, right, BLOCK_N)
    if WINDOW:
        dq = query_gradient_range(
            dq, q, do, lse, delta, begin, full_begin, k_desc, v_desc, entry, h // group, start_k, first, last, S,
            scale, softcap, WINDOW, True, VARLEN, BLOCK_N, BLOCK_D, 2,
        )  # fmt: skip
    dq = query_gradient_range(
        dq, q, do, lse, delta, full_begin, full_end, k_desc, v_desc, entry, h // group, start_k, first, last, S,
        scale, softcap, WINDOW, False, VARLEN, BLOCK_N, BLOCK_D, STAGES,
    )  # fmt: skip
    dq = query_gradient_range(
        dq, q, do, lse, delta, full_end, end, k_desc, v_desc, entry, h // group, start_k, first, last, S,
        scale, softcap, WINDOW, True, VARLEN, BLOCK_N, BLOCK_D, 2,
    )  # fmt: skip
    dq_ptr = head(dq_ptr, b, h, start_q, stride_ob, stride_oh, stride_ot)
    store_tile(dq_ptr, dq * scale, offs_m, T, stride_ot, stride_od, D, BLOCK_D)


# ## Backward for the keys and values
#
# The scores have a row for each key here, so every thread needs the numbers of many queries. That is 16 loads of four
# bytes, if they come by pointer. The copy unit fetches those of a tile at once, provided that the numbers of a head
# begin  at a multiple of 16 bytes.
@triton.jit
def load_numbers(rows, row, start, length, MASKED: tl.constexpr, BY_DESCRIPTOR: tl.constexpr, ROWS: tl.constexpr):
    offs = start + tl.arange(0, ROWS)
    if BY_DESCRIPTOR:
        numbers = rows.load([row + start])
        if MASKED:
            numbers = tl.where(offs < length, numbers, 0.0)
    else:
        numbers = tl.load(rows + row + offs, mask=offs < length, other=0.0)
    return numbers


# The order of the four products matters to the compiler, which has to hold two sums and two tiles of scores in 255
# registers a thread. With heads of 128 dV comes as soon as its tile is there. With heads of 64 there is room to start
# both products of loaded tiles first.
@triton.jit
def key_gradient_range(
    dk, dv, k, v, begin, end, q_desc, do_desc, lse_rows, delta_rows, dq_ptr, b, h, start_q, row, first, last, T, scale,
    softcap: tl.constexpr, MASKED: tl.constexpr, VARLEN: tl.constexpr, BY_DESCRIPTOR: tl.constexpr,
    DV_FIRST: tl.constexpr, BLOCK_M: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    CLEAR: tl.constexpr = MASKED and VARLEN
    for start in tl.range(begin, end, BLOCK_M, num_stages=STAGES):
        offs_m = start + tl.arange(0, BLOCK_M)
        q = load_rows(q_desc, b, h, start_q, start, T, CLEAR, BLOCK_M, BLOCK_D)
        lse = load_numbers(lse_rows, row, start, T, MASKED, BY_DESCRIPTOR, BLOCK_M)
        do = load_rows(do_desc, b, h, start_q, start, T, CLEAR, BLOCK_M, BLOCK_D)
        delta = load_numbers(delta_rows, row, start, T, MASKED, BY_DESCRIPTOR, BLOCK_M)
        s = tl.dot(k, tl.trans(q), input_precision="ieee")
        if not DV_FIRST:
            dp = tl.dot(v, tl.trans(do), input_precision="ieee")
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


@triton.jit
def attention_backward_keys_kernel(
    do_desc, q_desc, k_desc, v_desc, cu_q_ptr, cu_k_ptr, lse_rows, delta_rows, dq_ptr, dk_ptr, dv_ptr,
    stride_db, stride_dh, stride_dt, stride_dd, T, S, longest, B, Hk, group, scale, left, right,
    softcap: tl.constexpr, D: tl.constexpr, WINDOW: tl.constexpr, HEADS: tl.constexpr, BY_DESCRIPTOR: tl.constexpr,
    DV_FIRST: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    # The first keys are seen by the most queries: their tiles come first.
    head_number, tile = grouped_order(tl.program_id(0), B * Hk, tl.cdiv(longest, BLOCK_N), HEADS)
    b, hk, start_n, total = head_number // Hk, head_number % Hk, tile * BLOCK_N, T
    start_q, T = sequence(cu_q_ptr, b, T)
    start_k, S = sequence(cu_k_ptr, b, S)
    if start_n >= S:
        return
    VARLEN: tl.constexpr = cu_q_ptr is not None
    entry = 0 if VARLEN else b
    # In one pass the rows past the last key count in the sum over the keys, so they must be zeros, and masked.
    CLEAR: tl.constexpr = VARLEN and dq_ptr is not None
    offs_n = start_n + tl.arange(0, BLOCK_N)
    k = load_rows(k_desc, entry, hk, start_k, start_n, S, CLEAR, BLOCK_N, BLOCK_D)
    v = load_rows(v_desc, entry, hk, start_k, start_n, S, CLEAR, BLOCK_N, BLOCK_D)
    dk = tl.zeros((BLOCK_N, BLOCK_D), tl.float32)
    dv = tl.zeros((BLOCK_N, BLOCK_D), tl.float32)

    # The condition solved for the query: key j is seen from j − (S − T) − right to j − (S − T) + left. In other words,
    # queries and keys change places, and so do the two sides of the window.
    first, last = keys_seen(offs_n, S, T, right, left)
    low, high = start_n - (S - T), tl.minimum(start_n + BLOCK_N, S) - 1 - (S - T)
    begin, full_begin, full_end, end = key_ranges(low, high, T, right, left, BLOCK_M)
    if dq_ptr is not None:
        full_end = tl.where(start_n + BLOCK_N > S, full_begin, full_end)
    for h in range(hk * group, hk * group + group):
        row = (entry * Hk * group + h) * total + start_q
        dk, dv = key_gradient_range(
            dk, dv, k, v, begin, full_begin, q_desc, do_desc, lse_rows, delta_rows, dq_ptr, entry, h, start_q, row,
            first, last, T, scale, softcap, True, VARLEN, BY_DESCRIPTOR, DV_FIRST, BLOCK_M, D, BLOCK_D, 2,
        )  # fmt: skip
        dk, dv = key_gradient_range(
            dk, dv, k, v, full_begin, full_end, q_desc, do_desc, lse_rows, delta_rows, dq_ptr, entry, h, start_q, row,
            first, last, T, scale, softcap, False, VARLEN, BY_DESCRIPTOR, DV_FIRST, BLOCK_M, D, BLOCK_D, STAGES,
        )  # fmt: skip
        dk, dv = key_gradient_range(
            dk, dv, k, v, full_end, end, q_desc, do_desc, lse_rows, delta_rows, dq_ptr, entry, h, start_q, row, first,
            last, T, scale, softcap, True, VARLEN, BY_DESCRIPTOR, DV_FIRST, BLOCK_M, D, BLOCK_D, 2,
        )  # fmt: skip
    dk_ptr = head(dk_ptr, b, hk, start_k, stride_db, stride_dh, stride_dt)
    dv_ptr = head(dv_ptr, b, hk, start_k, stride_db, stride_dh, stride_dt)
    store_tile(dk_ptr, dk * scale, offs_n, S, stride_dt, stride_dd, D, BLOCK_D)
    store_tile(dv_ptr, dv, offs_n, S, stride_dt, stride_dd, D, BLOCK_D)


# ## All gradients in one pass
#
# With a pointer to the sums for dQ the kernel above adds each tile's part to them, [[tag: AT-dQ]], and the kernel for
# the queries isn't needed. What is left of it is D, and somebody has to set the sums to zero: that is done here. The
# sums are float32, so there is one more tensor as long as the sequences. The scale comes at the end, with the
# conversion.
@triton.jit
def attention_delta_kernel(
    do_desc, dlse_ptr, o_desc, cu_q_ptr, delta_ptr, dq_ptr, stride_glb, stride_glh, stride_glt, stride_lb, stride_lh,
    T, longest, H, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    tiles, total = tl.cdiv(longest, BLOCK_M), T
    head_number, start_m = tl.program_id(0) // tiles, tl.program_id(0) % tiles * BLOCK_M
    b, h = head_number // H, head_number % H
    start_q, T = sequence(cu_q_ptr, b, T)
    if start_m >= T:
        return
    entry = 0 if cu_q_ptr is not None else b
    row_gradient(
        do_desc, o_desc, dlse_ptr, delta_ptr, b, entry, h, start_q, start_m, T, stride_glb, stride_glh, stride_glt,
        stride_lb, stride_lh, BLOCK_M, BLOCK_D,
    )  # fmt: skip
    rows = head(dq_ptr, entry, h, start_q, H * total * D, total * D, D)
    store_tile(rows, tl.zeros((BLOCK_M, BLOCK_D), tl.float32), start_m + tl.arange(0, BLOCK_M), T, D, 1, D, BLOCK_D)


# ## The launchers
#
# What was fastest on the card for heads of up to 64 and up to 128 numbers. Each of them leaves room for two programs on
# an SM, or three: in registers, and in shared memory for `STAGES` tiles of keys and of values.
class Tiles(NamedTuple):
    BLOCK_M: int
    BLOCK_N: int
    STAGES: int
    num_warps: int


FORWARD = {64: Tiles(128, 128, 3, 4), 128: Tiles(64, 64, 3, 4)}
QUERIES = {64: Tiles(128, 64, 3, 4), 128: Tiles(128, 64, 3, 8)}
KEYS = {64: Tiles(64, 64, 3, 4), 128: Tiles(64, 64, 2, 4)}
ONE_PASS = {64: Tiles(128, 128, 2, 8), 128: Tiles(64, 128, 2, 8)}


# Programs that run at the same time read the keys and values of a few heads, or their queries and upstream gradients.
# These should stay in the L2 cache; 2²⁵ bytes of it are counted on, about half. A power of two, so that few kernels are
# compiled.
def heads_at_a_time(rows, q):
    bytes_of_a_head = 2 * max(rows, 1) * q.shape[-1] * q.element_size()
    return 1 << max(min(2**25 // bytes_of_a_head, 8), 1).bit_length() - 1


def launch_options(table, q, options, BLOCK_M, BLOCK_N, rows):
    """The tiles that were asked for, or the best ones, and what else is known when a kernel is compiled. `rows`: how
    many rows the loop of a program reads at most."""
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N)
    D = q.shape[-1]
    best = table[64 if D <= 64 else 128]
    tiles = dict(BLOCK_M=BLOCK_M or best.BLOCK_M, BLOCK_N=BLOCK_N or best.BLOCK_N, STAGES=best.STAGES)
    return tiles | dict(
        softcap=options.softcap, D=D, BLOCK_D=max(16, triton.next_power_of_2(D)), WINDOW=options.left != OPEN,
        HEADS=heads_at_a_time(rows, q), num_warps=best.num_warps, num_stages=best.STAGES,
    )  # fmt: skip


# A descriptor holds an address and strides that are multiples of 16 bytes, and the last dimension lies together. Along
# a dimension of one element nothing is ever stepped.
ALIGNMENT = 16


def fits(x):
    step = ALIGNMENT // x.element_size()
    strides_fit = all(size == 1 or stride > 0 and stride % step == 0 for size, stride in zip(x.shape, x.stride()[:-1]))
    return x.dtype != torch.float32 and x.stride(-1) == 1 and strides_fit and x.data_ptr() % ALIGNMENT == 0


def can_describe(options, *tensors):
    return options.scale > 0 and all(x.numel() and x.shape[-1] <= 128 and fits(x) for x in tensors)


def describe(x, rows, BLOCK_D):
    step = ALIGNMENT // x.element_size()
    steps = [step if size == 1 else stride for size, stride in zip(x.shape, x.stride()[:-1])]
    return TensorDescriptor(x, list(x.shape), [*steps, 1], [1, 1, rows, BLOCK_D])


def attention_forward(
    q, k, v, sinks, cu_seqlens_q, cu_seqlens_k, options, *, BLOCK_M=None, BLOCK_N=None, HALVES=None
):  # fmt: skip
    """`(o, lse)`, as the lesson's launcher."""
    if not can_describe(options, q, k, v):
        return lesson.attention_forward(
            q, k, v, sinks, cu_seqlens_q, cu_seqlens_k, options, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N
        )  # fmt: skip
    launch = launch_options(FORWARD, q, options, BLOCK_M, BLOCK_N, options.max_seqlen_k)
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
            sinks, cu_seqlens_q, cu_seqlens_k, o, lse, *strides(o, cu_seqlens_q), *strides(lse, cu_seqlens_q)[:2],
            T, S, options.max_seqlen_q, B, H, H // Hk, options.scale, options.left, options.right, **launch,
        )  # fmt: skip
    return o, lse


def attention_backward(
    do, dlse, q, k, v, sinks, cu_seqlens_q, cu_seqlens_k, o, lse, options, *, BLOCK_M=None, BLOCK_N=None,
    deterministic=True,
):  # fmt: skip
    """`(dq, dk, dv, dsinks)`, as the lesson's launcher. An upstream gradient that no descriptor fits is copied."""
    if not can_describe(options, q, k, v, o):
        return lesson.attention_backward(
            do, dlse, q, k, v, sinks, cu_seqlens_q, cu_seqlens_k, o, lse, options, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N
        )  # fmt: skip
    do = torch.zeros_like(o) if do is None else do if fits(do) else do.clone(memory_format=torch.contiguous_format)
    dlse = lse.new_zeros(()).expand(lse.shape) if dlse is None else dlse
    dq, dk, dv = empty_like(o, cu_seqlens_q), empty_like(k, cu_seqlens_k), empty_like(k, cu_seqlens_k)
    delta = empty_like(lse, cu_seqlens_q)
    (H, T, _), (Hk, S) = q.shape[1:], k.shape[1:3]
    B, of_lse = batches(q, cu_seqlens_q), strides(lse, cu_seqlens_q)[:2]
    numbers = H // Hk, options.scale, options.left, options.right
    launch = launch_options(QUERIES, q, options, BLOCK_M, BLOCK_N, options.max_seqlen_k)
    M, N, BLOCK_D = launch["BLOCK_M"], launch["BLOCK_N"], launch["BLOCK_D"]
    grid = (triton.cdiv(options.max_seqlen_q, M) * B * H,)
    sums = None if deterministic else new_rows(q, q.shape, cu_seqlens_q)
    if grid[0] and deterministic:
        attention_backward_queries_kernel[grid](
            describe(do, M, BLOCK_D), dlse, describe(q, M, BLOCK_D), describe(k, N, BLOCK_D), describe(v, N, BLOCK_D),
            cu_seqlens_q, cu_seqlens_k, describe(o, M, BLOCK_D), lse, delta, dq, *strides(dlse, cu_seqlens_q),
            *strides(dq, cu_seqlens_q), *of_lse, T, S, options.max_seqlen_q, B, H, *numbers, **launch,
        )  # fmt: skip
    elif grid[0]:
        attention_delta_kernel[grid](
            describe(do, M, BLOCK_D), dlse, describe(o, M, BLOCK_D), cu_seqlens_q, delta, sums,
            *strides(dlse, cu_seqlens_q), *of_lse, T, options.max_seqlen_q, H, D=q.shape[-1], BLOCK_M=M,
            BLOCK_D=BLOCK_D,
        )  # fmt: skip
    launch = launch_options(KEYS if deterministic else ONE_PASS, q, options, BLOCK_M, BLOCK_N, options.max_seqlen_q)
    M, N = launch["BLOCK_M"], launch["BLOCK_N"]
    grid = (triton.cdiv(options.max_seqlen_k, N) * B * Hk,)
    if grid[0]:
        by_descriptor = cu_seqlens_q is None and T % 4 == 0
        rows = [TensorDescriptor(x, [x.numel()], [1], [M]) if by_descriptor else x for x in (lse, delta)]
        attention_backward_keys_kernel[grid](
            describe(do, M, BLOCK_D), describe(q, M, BLOCK_D), describe(k, N, BLOCK_D), describe(v, N, BLOCK_D),
            cu_seqlens_q, cu_seqlens_k, *rows, sums, dk, dv, *strides(dk, cu_seqlens_k), T, S, options.max_seqlen_k,
            B, Hk, *numbers, BY_DESCRIPTOR=by_descriptor, DV_FIRST=q.shape[-1] > 64, **launch,
        )  # fmt: skip
    if not deterministic:
        torch.mul(sums, options.scale, out=dq)
    return dq, dk, dv, sink_gradient(sinks, lse, delta)


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
    q, k, v, do = ((at * step % 7 - 3).half().view(1, 1, 12, 8) for step in (1, 3, 5, 2))
    options = contract(q, k, v, True, 0.5, None, 0.0, None, True)
    o, lse = attention_forward(q, k, v, None, None, None, options, BLOCK_M=4, BLOCK_N=4, HALVES=2)
    attention_backward(do, None, q, k, v, None, None, None, o, lse, options, BLOCK_M=4, BLOCK_N=4)


if __name__ == "__main__":
    shapes = dict(q=(1, 4, 33, 64), k=(1, 2, 70, 64), v=(1, 2, 70, 64))
    script.main(flash_attention, flash_attention_reference, shapes | dict(causal=True), shapes | dict(softcap=5.0))
