r"""
# Flash attention backward, fast

TODO
"""

if __name__ == "__main__":  # run as a script: make the repository importable
    import pathlib
    import sys

    sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))

from academy import device, script

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from annotated_examples.attention import flash_attention as lesson
from annotated_examples.attention.flash_attention import attention, flash_attention_reference, keys_seen
from annotated_examples.common.attention import (
    batches, contract, empty_like, head, load_numbers, new_rows, scale_and_cap, sequence, sink_gradient,
    store_numbers, store_tile, strided, tile_offsets,
)  # fmt: skip
from annotated_examples.common.attention_tiles import (
    TileSizes, can_describe, constants, describe, fits, key_ranges, load_rows, seen,
)  # fmt: skip
from annotated_examples.common.tile_order import grouped_order

LOG2E = tl.constexpr(1.4426950408889634)


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
    dlse_tensor, lse_tensor, delta_tensor, dq_tensor,  # (pointer, four strides): (B, H, T) and (B, H, T, D)
    lengths,  # (cu_q_ptr, cu_k_ptr, T, S, longest)
    heads,  # (B, H, group)
    window,  # (left, right)
    scale, softcap: tl.constexpr, D: tl.constexpr, WINDOW: tl.constexpr, HEADS: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
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
    offs_m = start_m + tl.arange(0, BLOCK_M)
    do, delta = row_gradient(
        do_desc, o_desc, dlse_tensor, delta_tensor, b, entry, h, start_q, start_m, T, BLOCK_M, BLOCK_D
    )
    q = load_rows(q_desc, entry, h, start_q, start_m, T, False, BLOCK_M, BLOCK_D)
    lse = load_numbers(head(lse_tensor, b, h, start_q), offs_m, T)
    dq = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)

    bounds = keys_seen(offs_m, T, S, window)
    low, high = start_m + (S - T), tl.minimum(start_m + BLOCK_M, T) - 1 + (S - T)
    edges = key_ranges(low, high, S, window, BLOCK_N)
    for PART in tl.static_range(3):
        if PART > 0 or WINDOW:
            dq = query_gradient_range(
                dq, (q, do, lse, delta), k_desc, v_desc, (entry, h // group, start_k), edges[PART], edges[PART + 1],
                bounds, S, scale, softcap, WINDOW, PART != 1, VARLEN, BLOCK_N, BLOCK_D, STAGES if PART == 1 else 2,
            )  # fmt: skip
    store_tile(head(dq_tensor, b, h, start_q), dq * scale, offs_m, T, D, BLOCK_D)


# ## Backward for the keys and values
@triton.jit
def load_by_column(rows, row, start, length, BY_DESCRIPTOR: tl.constexpr, ROWS: tl.constexpr):
    if BY_DESCRIPTOR:
        numbers = rows.load([row + start])
    else:
        offs = start + tl.arange(0, ROWS)
        numbers = tl.load(rows + row + offs, mask=offs < length, other=0.0)
    return numbers


@triton.jit
def key_gradient_range(
    sums, keys,  # (dk, dv) so far, and the tiles (k, v) that a program loads once
    q_desc, do_desc, lse_rows, delta_rows, dq_ptr,
    place, begin, end,  # place: (b, h, start_q, row) of the queries
    bounds,  # (first, last): the queries that see each key
    T, scale, softcap: tl.constexpr, MASKED: tl.constexpr, VARLEN: tl.constexpr, BY_DESCRIPTOR: tl.constexpr,
    BLOCK_M: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    dk, dv = sums
    k, v = keys
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
    do_desc, q_desc, k_desc, v_desc,  # descriptors of (B, H, T, D) and (B, Hk, S, D)
    lse_rows, delta_rows,  # B · H · T numbers, one after the other: descriptors, or pointers
    dq_ptr,  # (B, H, T, D) in float32, contiguous: sums of the pass with atomics, else None
    dk_tensor, dv_tensor,  # (pointer, four strides): (B, Hk, S, D)
    lengths, heads, window, scale,  # as above, with heads: (B, Hk, group)
    softcap: tl.constexpr, D: tl.constexpr, WINDOW: tl.constexpr, HEADS: tl.constexpr, BY_DESCRIPTOR: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    cu_q_ptr, cu_k_ptr, T, S, longest = lengths
    B, Hk, group = heads
    # The first keys are seen by the most queries: their tiles come first.
    head_number, tile = grouped_order(tl.program_id(0), B * Hk, tl.cdiv(longest, BLOCK_N), HEADS)
    b, hk, start_n, total = head_number // Hk, head_number % Hk, tile * BLOCK_N, T
    start_q, T = sequence(cu_q_ptr, b, T)
    start_k, S = sequence(cu_k_ptr, b, S)
    if start_n >= S:
        return
    VARLEN: tl.constexpr = lengths[0] is not None
    entry = 0 if VARLEN else b
    # In one pass the rows past the last key count in the sum over the keys, so they must be zeros, and masked.
    CLEAR: tl.constexpr = VARLEN and dq_ptr is not None
    offs_n = start_n + tl.arange(0, BLOCK_N)
    k = load_rows(k_desc, entry, hk, start_k, start_n, S, CLEAR, BLOCK_N, BLOCK_D)
    v = load_rows(v_desc, entry, hk, start_k, start_n, S, CLEAR, BLOCK_N, BLOCK_D)
    sums = (tl.zeros((BLOCK_N, BLOCK_D), tl.float32), tl.zeros((BLOCK_N, BLOCK_D), tl.float32))

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
                BLOCK_M, D, BLOCK_D, STAGES if PART == 1 else 2,
            )  # fmt: skip
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
    do = torch.zeros_like(o) if do is None else do if fits(do) else do.clone(memory_format=torch.contiguous_format)
    dlse = lse.new_zeros(()).expand(lse.shape) if dlse is None else dlse
    dq, dk, dv = empty_like(o, cu_seqlens_q), empty_like(k, cu_seqlens_k), empty_like(k, cu_seqlens_k)
    delta = empty_like(lse, cu_seqlens_q)
    (H, T, _), (Hk, S) = q.shape[1:], k.shape[1:3]
    B = batches(q, cu_seqlens_q)
    packed, window = (cu_seqlens_q, cu_seqlens_k, T, S), (options.left, options.right)
    launch = constants(QUERIES, q, options, BLOCK_M, BLOCK_N, options.max_seqlen_k)
    M, N, BLOCK_D = launch["BLOCK_M"], launch["BLOCK_N"], launch["BLOCK_D"]
    grid = (triton.cdiv(options.max_seqlen_q, M) * B * H,)
    numbers = [strided(x, cu_seqlens_q) for x in (dlse, lse, delta)]
    sums = None if deterministic else new_rows(q, q.shape, cu_seqlens_q)
    if grid[0] and deterministic:
        attention_backward_queries_kernel[grid](
            *(describe(x, M, BLOCK_D) for x in (do, q, o)), *(describe(x, N, BLOCK_D) for x in (k, v)),
            *numbers, strided(dq, cu_seqlens_q), (*packed, options.max_seqlen_q), (B, H, H // Hk), window,
            options.scale, **launch,
        )  # fmt: skip
    elif grid[0]:
        dlse, _, delta_tensor = numbers
        attention_delta_kernel[grid](
            describe(do, M, BLOCK_D), describe(o, M, BLOCK_D), dlse, delta_tensor, sums,
            (cu_seqlens_q, T, options.max_seqlen_q), H, D=q.shape[-1], BLOCK_M=M, BLOCK_D=BLOCK_D,
        )  # fmt: skip
    launch = constants(KEYS if deterministic else ONE_PASS, q, options, BLOCK_M, BLOCK_N, options.max_seqlen_q)
    M, N = launch["BLOCK_M"], launch["BLOCK_N"]
    grid = (triton.cdiv(options.max_seqlen_k, N) * B * Hk,)
    if grid[0]:
        by_descriptor = cu_seqlens_q is None and T % 4 == 0
        rows = [TensorDescriptor(x, [x.numel()], [1], [M]) if by_descriptor else x for x in (lse, delta)]
        attention_backward_keys_kernel[grid](
            *(describe(x, M, BLOCK_D) for x in (do, q)), *(describe(x, N, BLOCK_D) for x in (k, v)),
            *rows, sums, strided(dk, cu_seqlens_k), strided(dv, cu_seqlens_k),
            (*packed, options.max_seqlen_k), (B, Hk, H // Hk), window, options.scale,
            BY_DESCRIPTOR=by_descriptor, **launch,
        )  # fmt: skip
    if not deterministic:
        torch.mul(sums, options.scale, out=dq)
    return dq, dk, dv, sink_gradient(sinks, lse, delta)


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
