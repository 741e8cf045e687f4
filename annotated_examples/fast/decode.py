r"""
# Decode, fast

DOC
"""

if __name__ == "__main__":  # run as a script: make the repository importable
    import pathlib
    import sys

    sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))

from academy import checks, device, script

import torch
import triton
import triton.language as tl

from annotated_examples.attention import decode as lesson
from annotated_examples.attention.decode import (
    LOWEST, capacity_of, contract, decode_attention_reference, load_rows, part_of_keys, rows_of_cache,
)  # fmt: skip
from annotated_examples.common.attention import head, load_tile, scale_and_cap, store_tile

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def attend(
    acc, row_max, row_sum, q, k_ptr, v_ptr, table_ptr, stride_kp, stride_ks, stride_kd, stride_vp, stride_vs, stride_vd,
    stride_tb, stride_tp, b, begin, end, num_pages, page_size, scale, softcap: tl.constexpr, MASKED: tl.constexpr,
    KEYS_FIRST: tl.constexpr, D: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    factor = scale * LOG2E
    for start in tl.range(begin, end, BLOCK_N, num_stages=STAGES):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = offs_n < end
        page, slot, inside = rows_of_cache(table_ptr, stride_tb, stride_tp, b, offs_n, mask, page_size, num_pages)
        PAGED: tl.constexpr = table_ptr is not None
        wanted = mask
        if PAGED:
            wanted = mask & inside
        if MASKED or PAGED:
            k = load_rows(k_ptr, page, slot, wanted, stride_kp, stride_ks, stride_kd, D, BLOCK_D)
            v = load_rows(v_ptr, page, slot, wanted, stride_vp, stride_vs, stride_vd, D, BLOCK_D)
        else:
            offs_d = tl.arange(0, BLOCK_D)
            k = tl.load(k_ptr + b.to(tl.int64) * stride_kp + offs_n.to(tl.int64)[:, None] * stride_ks + offs_d[None, :] * stride_kd, mask=(offs_d < D)[None, :], other=0.0)
            v = tl.load(v_ptr + b.to(tl.int64) * stride_vp + offs_n.to(tl.int64)[:, None] * stride_vs + offs_d[None, :] * stride_vd, mask=(offs_d < D)[None, :], other=0.0)
        if KEYS_FIRST:
            s = tl.dot(k, tl.trans(q), input_precision="ieee")
        else:
            s = tl.dot(q, tl.trans(k), input_precision="ieee")
        if softcap != 0.0:
            s, _ = scale_and_cap(s, scale, softcap)
            factor = LOG2E
        if PAGED:
            s = tl.where(inside[:, None] if KEYS_FIRST else inside[None, :], s, float("nan"))
        if MASKED:
            s = tl.where(mask[:, None] if KEYS_FIRST else mask[None, :], s, -float("inf"))
        if KEYS_FIRST:
            new_max = tl.maximum(row_max, tl.max(s, axis=0) * factor)
            p = tl.exp2(s * factor - new_max[None, :])
            alpha = tl.exp2(row_max - new_max)
            row_sum = row_sum * alpha + tl.sum(p, axis=0)
            acc = tl.dot(tl.trans(v), p.to(v.dtype), acc * alpha[None, :], input_precision="ieee")
        else:
            new_max = tl.maximum(row_max, tl.max(s, axis=1) * factor)
            p = tl.exp2(s * factor - new_max[:, None])
            alpha = tl.exp2(row_max - new_max)
            row_sum = row_sum * alpha + tl.sum(p, axis=1)
            acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision="ieee")
        row_max = new_max
    return acc, row_max, row_sum


@triton.jit
def decode_split_kernel(
    q_ptr, k_ptr, v_ptr, lengths_ptr, table_ptr, parts_ptr, lse_ptr,
    stride_qb, stride_qh, stride_qd, stride_kp, stride_ks, stride_kh, stride_kd,
    stride_vp, stride_vs, stride_vh, stride_vd, stride_l, stride_tb, stride_tp,
    heads, group, num_pages, page_size, capacity, scale, left,
    softcap: tl.constexpr, D: tl.constexpr, KEYS_FIRST: tl.constexpr, PDL: tl.constexpr,
    BLOCK_G: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(group, BLOCK_G)
    b, hk = tl.program_id(0) // (heads * tiles), tl.program_id(0) // tiles % heads
    offs_g = tl.program_id(0) % tiles * BLOCK_G + tl.arange(0, BLOCK_G)
    split, num_splits = tl.program_id(1), tl.num_programs(1)
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    q_ptr = head(q_ptr, b, hk * group, 0, stride_qb, stride_qh, 0)
    q = load_tile(q_ptr, offs_g, group, stride_qh, stride_qd, D, BLOCK_D)
    k_ptr += tl.cast(hk, tl.int64) * stride_kh
    v_ptr += tl.cast(hk, tl.int64) * stride_vh
    length = tl.load(lengths_ptr + b.to(tl.int64) * stride_l)
    begin, end, possible = part_of_keys(length, capacity, left, split, num_splits, BLOCK_N)

    row_max = tl.full((BLOCK_G,), LOWEST, tl.float32)
    row_sum = tl.zeros((BLOCK_G,), tl.float32)
    if KEYS_FIRST:
        acc = tl.zeros((BLOCK_D, BLOCK_G), tl.float32)
    else:
        acc = tl.zeros((BLOCK_G, BLOCK_D), tl.float32)
    whole = begin + tl.maximum(end - begin, 0) // BLOCK_N * BLOCK_N
    acc, row_max, row_sum = attend(
        acc, row_max, row_sum, q, k_ptr, v_ptr, table_ptr, stride_kp, stride_ks, stride_kd, stride_vp, stride_vs,
        stride_vd, stride_tb, stride_tp, b, begin, whole, num_pages, page_size, scale, softcap, False, KEYS_FIRST, D,
        BLOCK_N, BLOCK_D, STAGES,
    )  # fmt: skip
    acc, row_max, row_sum = attend(
        acc, row_max, row_sum, q, k_ptr, v_ptr, table_ptr, stride_kp, stride_ks, stride_kd, stride_vp, stride_vs,
        stride_vd, stride_tb, stride_tp, b, whole, end, num_pages, page_size, scale, softcap, True, KEYS_FIRST, D,
        BLOCK_N, BLOCK_D, 1,
    )  # fmt: skip
    inverse = 1.0 / tl.where(row_sum == 0.0, 1.0, row_sum)
    if KEYS_FIRST:
        part = tl.trans(acc * inverse[None, :])
    else:
        part = acc * inverse[:, None]
    lse = tl.where(row_sum == 0.0, -float("inf"), (row_max + tl.log2(row_sum)) * LN2)
    lse = tl.where(possible, lse, float("nan"))
    row = ((b.to(tl.int64) * heads + hk) * group + offs_g) * num_splits + split
    tl.store(lse_ptr + row, lse, mask=offs_g < group)
    parts_ptr += (b.to(tl.int64) * heads + hk) * group * num_splits * D + split * D
    store_tile(parts_ptr, part, offs_g, group, num_splits * D, 1, D, BLOCK_D)


@triton.jit
def decode_merge_kernel(
    parts_ptr, lse_ptr, sinks_ptr, o_ptr, H, num_splits,
    D: tl.constexpr, PDL: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    offs_s, offs_d = tl.arange(0, BLOCK_S), tl.arange(0, BLOCK_D)
    if PDL:
        tl.extra.cuda.gdc_wait()
    parts = load_tile(parts_ptr + row * num_splits * D, offs_s, num_splits, D, 1, D, BLOCK_D)
    lse = tl.load(lse_ptr + row * num_splits + offs_s, mask=offs_s < num_splits, other=-float("inf"))
    largest = tl.maximum(tl.max(lse, axis=0), LOWEST)
    total = 0.0
    if sinks_ptr is not None:
        sink = tl.load(sinks_ptr + row % H).to(tl.float32)
        largest = tl.maximum(largest, sink)
        total = tl.exp(sink - largest)
    weights = tl.exp(lse - largest)
    total += tl.sum(weights, axis=0)
    o = tl.sum(weights[:, None] * parts, axis=0) / tl.where(total == 0.0, 1.0, total)
    tl.store(o_ptr + row * D + offs_d, o, mask=offs_d < D)


CONFIG = dict(N=64, STAGES=3, warps=4, KEYS_FIRST=False, PDL=False, merge_warps=4)


def decode_forward(
    q, k_cache, v_cache, lengths, block_table, scale, left, softcap, sinks, num_splits=None, *, BLOCK_N=None
):
    """`o`, (B, H, D). A tile has BLOCK_N keys."""
    c = CONFIG
    (B, H, D), (num_pages, page_size, Hk, _) = q.shape, k_cache.shape
    group, capacity = H // Hk, capacity_of(k_cache, block_table)
    BLOCK_G, BLOCK_D = (max(16, triton.next_power_of_2(size)) for size in (min(group, 64), D))
    programs = B * Hk * triton.cdiv(group, BLOCK_G)
    num_splits = lesson.default_splits(programs, capacity) if num_splits is None else num_splits
    o = torch.empty((B, H, D), dtype=q.dtype, device=q.device)
    parts = torch.empty((B, H, num_splits, D), dtype=torch.float32, device=q.device)
    lse = torch.empty((B, H, num_splits), dtype=torch.float32, device=q.device)
    decode_split_kernel[(programs, num_splits)](
        q, k_cache, v_cache, lengths, block_table, parts, lse, *q.stride(), *k_cache.stride(), *v_cache.stride(),
        lengths.stride(0), *((0, 0) if block_table is None else block_table.stride()),
        Hk, group, num_pages, page_size, capacity, scale, left, softcap=softcap, D=D, KEYS_FIRST=c["KEYS_FIRST"],
        PDL=c["PDL"], BLOCK_G=BLOCK_G, BLOCK_N=BLOCK_N or c["N"], BLOCK_D=BLOCK_D, STAGES=c["STAGES"],
        num_warps=c["warps"], num_stages=c["STAGES"],
    )  # fmt: skip
    decode_merge_kernel[(B * H,)](parts, lse, sinks, o, H, num_splits, D=D, PDL=c["PDL"], BLOCK_S=triton.next_power_of_2(num_splits), BLOCK_D=BLOCK_D, num_warps=c["merge_warps"], **(dict(launch_pdl=True) if c["PDL"] else {}))
    return o
