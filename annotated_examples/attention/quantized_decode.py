r"""
# Attention to a cache of few bits

[The cache](quantized_cache.py) holds codes, and attention wants numbers. To turn the cache back into bfloat16 first
would read the few bytes, write the many, and read those: slower than a cache that was never quantized. So codes are
decoded where they are used. And hardly anything has to be decoded, because a key's step and lowest value are the same
for all of its numbers, and leave the sum:

[[eq: KV-score]]

Codes are multiplied by the query as they are. The step is one multiplication for each *score*, and what the lowest
value adds is the sum of the query, computed once. On the other side of the softmax the step of a value belongs to its
weight:

[[eq: KV-o]]

$z$ is 8, which centres codes of four bits: half as large a number, half as large a mistake where weights are rounded.

[[figure: quantized/folded]]

**What it costs.** A key and a value of 128 numbers are 264 bytes with eight bits, 144 with four, and 512 in bfloat16.
While an H200 reads four-bit codes at full speed, it has time for about four instructions for each of them: there the
conversion of codes, and not the memory, sets the limit. On an H200 64 sequences of 4096 tokens take
[[bench: quantized_decode:int8/64x32x8x4096x128/forward/lesson.ms]] with eight bits, and
[[bench: quantized_decode:int4/64x32x8x4096x128/forward/lesson.ms]] with four. PyTorch, which decodes the cache first,
takes [[bench: quantized_decode:int8/64x32x8x4096x128/forward/PyTorch, decoded first.ms]] and
[[bench: quantized_decode:int4/64x32x8x4096x128/forward/PyTorch, decoded first.ms]], compiled
[[bench: quantized_decode:int8/64x32x8x4096x128/forward/torch.compile.ms]] and
[[bench: quantized_decode:int4/64x32x8x4096x128/forward/torch.compile.ms]].

**Where it falls behind.** [Decode](decode.py) reads a cache of bfloat16 with these sizes in
[[bench: decode/64x32x8x4096x128/forward/ms]]. So here fewer bytes are no gain in time but in memory. In
[the fast version](../fast/quantized_decode.py) they are both.

**Contract.** `q` is (B, H, D), float32, float16 or bfloat16. Caches are as `append_` writes them, (num_pages,
page_size, Hk, D) with a table, or (B, S, Hk, D) without; keys and values may have different formats. Everything may
have any strides. What lies beyond the lengths is never read, and may be NaN. The result is that of
[decode](decode.py) on the decoded cache. A NaN or an infinity among the scales that count makes the rows of its own
sequence and head NaN. Forward only.
"""

from academy.runtime import checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import math

import torch
import triton
import triton.language as tl

from annotated_examples.common.attention import (
    group_contract, head, load_tile, options_contract, same_device, scale_and_cap, store_tile, strided,
)  # fmt: skip
from annotated_examples.common.codes import (
    codes_contract, decoded, finite, load_codes, load_steps, rotated, rotation, signs_contract,
)  # fmt: skip
from annotated_examples.common.constants import LOWEST
from annotated_examples.common.custom_operator import opaque
from annotated_examples.common.paged import (
    cache_contract, capacity_of, decode_merge_kernel, default_splits, keys_of_tile, load_rows, part_of_keys,
    rows_of_cache,
)  # fmt: skip
from annotated_examples.common.products import input_precision, rows_by_rows


# ## Reference
#
# One sequence after the other: decode the keys and values that count, then attention in the dtype of q.
def decode_quantized_reference(
    q, k_cache, v_cache, k_scale, v_scale, lengths, *, granularity="token", block_table=None, signs=None, recent=None,
    scale=None, num_splits=None,
):  # fmt: skip
    (_, H, D), dtype, page_size = q.shape, q.dtype, k_cache.shape[1]
    turn = torch.eye(D, dtype=dtype, device=q.device) if signs is None else rotation(signs, dtype)
    scale, outputs = 1 / math.sqrt(D) if scale is None else scale, [q.new_zeros(0, H, D)]
    for b, length in enumerate(lengths.tolist()):
        pages = slice(b, b + 1) if block_table is None else block_table[b, : -(-length // page_size)].long()
        k = decoded(k_cache[pages], k_scale[pages], granularity, dtype).flatten(0, 1)[:length]
        v = decoded(v_cache[pages], v_scale[pages], "token", dtype).flatten(0, 1)[:length]
        if recent is not None and length % page_size:
            k = torch.cat([k[: length - length % page_size], recent[b, : length % page_size].to(dtype)])
        k, v = (x.repeat_interleave(H // x.shape[1], dim=1) for x in (k, v))
        p = torch.softmax(torch.einsum("hd,nhd->hn", q[b] @ turn, k) * scale, dim=-1)
        outputs.append((torch.einsum("hn,nhd->hd", p, v) @ turn.T)[None])
    return torch.cat(outputs)


# ## A tile of values
#
# The step of the online softmax, [[tag: AT-merge]], as in [flash attention](flash_attention.py), with codes for values.
#
# A weight times a step can be a very small number: a five-thousandth of a step of 0.02 has only seven bits left in
# float16, which begins to lose digits below 6·10⁻⁵. So each row is divided by its largest such product before it is
# rounded, and the sum is multiplied by it. What is lost then is small beside that row's own result.
@triton.jit
def in_range(x, dtype: tl.constexpr):
    largest = tl.max(tl.abs(x), axis=1)
    largest = tl.where(largest > 0.0, largest, 1.0)
    return (x / largest[:, None]).to(dtype), largest


@triton.jit
def add_values(state, s, v, step, offset, INPUT_PRECISION: tl.constexpr, FOUR_BITS: tl.constexpr):
    row_max, row_sum, acc = state
    new_max = tl.maximum(row_max, tl.max(s, axis=1))
    p = tl.exp(s - new_max[:, None])
    alpha = tl.exp(row_max - new_max)
    # [[tag: KV-o]]
    weights, largest = in_range(p * step[None, :], v.dtype)
    acc = acc * alpha[:, None] + tl.dot(weights, v, input_precision=INPUT_PRECISION) * largest[:, None]
    if FOUR_BITS:
        acc += tl.sum(p * offset[None, :], axis=1)[:, None]
    return new_max, row_sum * alpha + tl.sum(p, axis=1), acc


# A part without a key is stored too: 0, with a log-sum-exp of −∞.
@triton.jit
def store_part(parts_ptr, lse_ptr, state, possible, first, offs_g, group, D: tl.constexpr, BLOCK_D: tl.constexpr):
    row_max, row_sum, acc = state
    split, num_splits = tl.program_id(1), tl.num_programs(1)
    part = acc / tl.where(row_sum == 0.0, 1.0, row_sum)[:, None]
    lse = tl.where(row_sum == 0.0, -float("inf"), row_max + tl.log(row_sum))
    lse = tl.where(possible, lse, float("nan"))
    first = first * num_splits + split
    tl.store(lse_ptr + first + offs_g * num_splits, lse, mask=offs_g < group)
    store_tile((parts_ptr + first * D, num_splits * D, 1), part, offs_g, group, D, BLOCK_D)


# ## One part of the keys
#
# The tile of queries, the parts and the pages are those of [decode](decode.py). Keys and values are codes, which
# `load_codes` gives as numbers of q's dtype: all of them are exact in sixteen bits.
@triton.jit
def quantized_split_kernel(
    q_tensor,  # (pointer, four strides): (B, Hk, group, D)
    k_cache, v_cache, k_scale, v_scale,  # the same: (num_pages, page_size, Hk, D or D / 2), and (…, 1 or 2)
    lengths, table,  # (pointer, stride): (B,); (pointer, two strides): (B, pages), or None and zeros
    parts_ptr, lse_ptr,  # (B, H, num_splits, D) and (B, H, num_splits), contiguous
    pages, sizes, scale,  # (num_pages, page_size) of the caches; (heads, group, capacity)
    K_FOUR: tl.constexpr, V_FOUR: tl.constexpr, D: tl.constexpr, INPUT_PRECISION: tl.constexpr, BLOCK_G: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    heads, group, capacity = sizes
    tiles = tl.cdiv(group, BLOCK_G)
    b, hk = tl.program_id(0) // (heads * tiles), tl.program_id(0) // tiles % heads
    offs_g = tl.program_id(0) % tiles * BLOCK_G + tl.arange(0, BLOCK_G)
    q = load_tile(head(q_tensor, b, hk, 0), offs_g, group, D, BLOCK_D)
    # The whole query's sum, for the lowest values: `pid=(0, 0): q_sum[0] = 3`.
    q_sum = tl.sum(q.to(tl.float32), axis=1)
    lengths_ptr, stride_l = lengths
    length = tl.load(lengths_ptr + b.to(tl.int64) * stride_l)
    start_n, end_n, possible = part_of_keys(length, capacity, capacity, tl.program_id(1), tl.num_programs(1), BLOCK_N)
    row_max, row_sum = tl.full((BLOCK_G,), LOWEST, tl.float32), tl.zeros((BLOCK_G,), tl.float32)
    acc = tl.zeros((BLOCK_G, BLOCK_D), tl.float32)
    for start in tl.range(start_n, end_n, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = offs_n < end_n
        page, slot, inside = rows_of_cache(table, b, offs_n, mask, pages)
        k = load_codes(k_cache, hk, page, slot, mask & inside, q.dtype, K_FOUR, D, BLOCK_D)
        v = load_codes(v_cache, hk, page, slot, mask & inside, q.dtype, V_FOUR, D, BLOCK_D)
        step, offset = load_steps(k_scale, hk, page, slot, mask & inside, K_FOUR)
        # [[tag: KV-score]]
        s = rows_by_rows(q, k, INPUT_PRECISION) * step[None, :]
        if K_FOUR:
            s += q_sum[:, None] * offset[None, :]
        s, _ = scale_and_cap(s, scale, 0.0)
        # A page outside of the pool makes the result NaN.
        s = tl.where(inside[None, :], s, float("nan"))
        s = tl.where(mask[None, :], s, -float("inf"))
        step, offset = load_steps(v_scale, hk, page, slot, mask & inside, V_FOUR)
        row_max, row_sum, acc = add_values((row_max, row_sum, acc), s, v, step, offset, INPUT_PRECISION, V_FOUR)
    first = (b.to(tl.int64) * heads + hk) * group
    store_part(parts_ptr, lse_ptr, (row_max, row_sum, acc), possible, first, offs_g, group, D, BLOCK_D)


# ## Keys by channel
#
# [[tag: KV-channel]]: steps of columns go into the query, once a page, and the lowest values of all columns become one
# number for each query. Parts are whole pages, and the tiles of a page have the same steps.
#
# A page that isn't full yet has no codes. Its keys are in `recent`, in the dtype of q, and are multiplied by the query
# itself. (Its values are codes already: those have a step for each token.) `UNIT` is the size of a page then, and 1
# where all keys have codes.
@triton.jit
def steps_of_page(scale, table, b, hk, number, num_pages, D: tl.constexpr, BLOCK_D: tl.constexpr):
    table_ptr, stride_tb, stride_tp = table
    page = tl.load(table_ptr + b.to(tl.int64) * stride_tb + tl.cast(number, tl.int64) * stride_tp)
    ptr, stride_p, stride_h, stride_d, stride_c = scale
    offs_d = tl.arange(0, BLOCK_D).to(tl.int64)
    ptrs = ptr + page.to(tl.int64) * stride_p + tl.cast(hk, tl.int64) * stride_h + offs_d * stride_d
    mask = (offs_d < D) & (page >= 0) & (page < num_pages)
    step = finite(tl.load(ptrs, mask=mask, other=0.0))
    return step, finite(tl.load(ptrs + stride_c, mask=mask, other=0.0)) + 8.0 * step


@triton.jit
def channel_split_kernel(
    q_tensor, k_cache, v_cache, k_scale, v_scale,  # as above, but k_scale: (num_pages, Hk, D, 2)
    recent,  # (pointer, four strides): (B, page_size, Hk, D); or anything, if UNIT is 1
    lengths, table,  # as above
    parts_ptr, lse_ptr,  # (B, H, num_splits, D) and (B, H, num_splits), contiguous
    sizes, scale,  # (num_pages, heads, group, capacity)
    PAGE: tl.constexpr, UNIT: tl.constexpr,
    V_FOUR: tl.constexpr, D: tl.constexpr, INPUT_PRECISION: tl.constexpr, BLOCK_G: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    num_pages, heads, group, capacity = sizes
    tiles = tl.cdiv(group, BLOCK_G)
    b, hk = tl.program_id(0) // (heads * tiles), tl.program_id(0) // tiles % heads
    offs_g = tl.program_id(0) % tiles * BLOCK_G + tl.arange(0, BLOCK_G)
    q = load_tile(head(q_tensor, b, hk, 0), offs_g, group, D, BLOCK_D)
    lengths_ptr, stride_l = lengths
    length = tl.load(lengths_ptr + b.to(tl.int64) * stride_l)
    start_n, end_n, possible = part_of_keys(length, capacity, capacity, tl.program_id(1), tl.num_programs(1), PAGE)
    row_max, row_sum = tl.full((BLOCK_G,), LOWEST, tl.float32), tl.zeros((BLOCK_G,), tl.float32)
    acc = tl.zeros((BLOCK_G, BLOCK_D), tl.float32)
    for start_page in tl.range(start_n, end_n, PAGE):
        end_page = tl.minimum(start_page + PAGE, end_n)
        step, offset = steps_of_page(k_scale, table, b, hk, start_page // PAGE, num_pages, D, BLOCK_D)
        q_page, largest = in_range(q.to(tl.float32) * step[None, :], q.dtype)
        rest = tl.sum(q.to(tl.float32) * offset[None, :], axis=1)
        for start in tl.range(start_page, end_page, BLOCK_N):
            offs_n = start + tl.arange(0, BLOCK_N)
            mask = offs_n < end_page
            page, slot, inside = rows_of_cache(table, b, offs_n, mask, (num_pages, PAGE))
            if start_page < length // UNIT * UNIT:
                k = load_codes(k_cache, hk, page, slot, mask & inside, q.dtype, True, D, BLOCK_D)
                s = rows_by_rows(q_page, k, INPUT_PRECISION) * largest[:, None] + rest[:, None]
            else:
                k = load_rows(recent, hk, tl.zeros_like(slot) + b, slot, mask, D, BLOCK_D)
                s = rows_by_rows(q, k, INPUT_PRECISION)
            s, _ = scale_and_cap(s, scale, 0.0)
            s = tl.where(inside[None, :], s, float("nan"))
            s = tl.where(mask[None, :], s, -float("inf"))
            v = load_codes(v_cache, hk, page, slot, mask & inside, q.dtype, V_FOUR, D, BLOCK_D)
            step_v, offset_v = load_steps(v_scale, hk, page, slot, mask & inside, V_FOUR)
            row_max, row_sum, acc = add_values((row_max, row_sum, acc), s, v, step_v, offset_v, INPUT_PRECISION, V_FOUR)
    first = (b.to(tl.int64) * heads + hk) * group
    store_part(parts_ptr, lse_ptr, (row_max, row_sum, acc), possible, first, offs_g, group, D, BLOCK_D)


# ## The launcher
#
# The parts are merged by the kernel that decode has.
#
# Where keys are **rotated**, the query has to be, too, and then all scores are as before. The mean of rotated values is
# the rotated mean, so the result is turned back, [[tag: KV-O-rotated]]. Both are done once, by a kernel of their own.
# With the query alone, or with the cache alone, products would be taken between two different spaces. What is turned
# back is in float32, so that it is rounded once only.
@opaque(
    "(Tensor q, Tensor k_cache, Tensor v_cache, Tensor k_scale, Tensor v_scale, Tensor lengths, str granularity, "
    "Tensor? block_table, Tensor? signs, Tensor? recent, float scale, int? num_splits) -> Tensor",
    lambda q, *rest: q.new_empty(q.shape),
)
def quantized_forward(
    q, k_cache, v_cache, k_scale, v_scale, lengths, granularity, block_table, signs, recent, scale, num_splits,
    *, BLOCK_N=None, BLOCK_S=16,
):  # fmt: skip
    """`o`, (B, H, D). A tile has BLOCK_N keys; BLOCK_S parts are merged at a time."""
    checks.power_of_two(BLOCK_N=BLOCK_N, BLOCK_S=BLOCK_S)
    (B, H, D), (num_pages, page_size, Hk, _) = q.shape, k_cache.shape
    group, capacity = H // Hk, capacity_of(k_cache, block_table)
    BLOCK_G = max(16, triton.next_power_of_2(min(group, 64)))
    BLOCK_N, BLOCK_D = BLOCK_N or keys_of_tile(D, q.dtype), max(32, triton.next_power_of_2(D))
    programs = B * Hk * triton.cdiv(group, BLOCK_G)
    num_splits = default_splits(programs, capacity) if num_splits is None else num_splits
    o = torch.empty((B, H, D), dtype=q.dtype, device=q.device)
    if not o.numel():
        return o
    parts = torch.empty((B, H, num_splits, D), dtype=torch.float32, device=q.device)
    lse = torch.empty((B, H, num_splits), dtype=torch.float32, device=q.device)
    merged = o if signs is None else torch.empty_like(o, dtype=torch.float32)
    if signs is not None:
        signs = signs.contiguous()
        q = rotated(q, signs, False, q.dtype)
    q = strided(q.unflatten(1, (Hk, group)))
    caches = [strided(x) for x in (k_cache, v_cache, k_scale, v_scale)]
    table = (None, 0, 0) if block_table is None else (block_table, *block_table.stride())
    options = dict(
        V_FOUR=v_cache.dtype == torch.uint8, D=D, INPUT_PRECISION=input_precision(), BLOCK_G=BLOCK_G, BLOCK_N=BLOCK_N,
        BLOCK_D=BLOCK_D, num_warps=4, num_stages=2,
    )  # fmt: skip
    if granularity == "channel":
        channel_split_kernel[(programs, num_splits)](
            q, *caches, q if recent is None else strided(recent), (lengths, lengths.stride(0)), table, parts, lse,
            (num_pages, Hk, group, capacity), scale, PAGE=page_size,
            UNIT=1 if recent is None else page_size, **options,
        )  # fmt: skip
    else:
        quantized_split_kernel[(programs, num_splits)](
            q, *caches, (lengths, lengths.stride(0)), table, parts, lse, (num_pages, page_size),
            (Hk, group, capacity), scale, K_FOUR=k_cache.dtype == torch.uint8, **options,
        )  # fmt: skip
    decode_merge_kernel[(B * H,)](parts, lse, None, merged, H, num_splits, D=D, BLOCK_S=BLOCK_S, BLOCK_D=BLOCK_D)
    return o if signs is None else rotated(merged, signs, True, o.dtype)


# ## Arguments
def contract(
    q, k_cache, v_cache, k_scale, v_scale, lengths, granularity, block_table, signs, recent, scale, num_splits
):
    """Checks the arguments, and returns the scale."""
    caches = dict(k_cache=k_cache, v_cache=v_cache, k_scale=k_scale, v_scale=v_scale)
    checks.tensors(q=q, **caches, lengths=lengths)
    checks.optional_tensors(block_table=block_table, signs=signs, recent=recent)
    checks.no_gradient("decode_quantized", q=q, k_scale=k_scale, v_scale=v_scale, recent=recent)
    checks.dtypes(q=q)
    checks.dimensions("q", q, 3, "B, H, D")
    for name in ("k_cache", "v_cache"):
        checks.dimensions(name, caches[name], 4, "B, S, Hk, D or num_pages, page_size, Hk, D")
    checks.shape("v_cache", v_cache, (*k_cache.shape[:3], v_cache.shape[3]), "the pages and heads of k_cache")
    group_contract(q, k_cache, 2, "k_cache")
    scale, D = options_contract(q, scale, 0.0, None), q.shape[2]
    codes_contract("decode_quantized", D, granularity, k_cache=k_cache, k_scale=k_scale)
    codes_contract("decode_quantized", D, v_cache=v_cache, v_scale=v_scale)
    same_device(q=q, **caches)
    signs_contract(signs, D)
    if granularity == "channel" and block_table is None:
        raise ValueError("block_table must be given where granularity is 'channel'")
    if granularity == "channel" and signs is not None:
        raise ValueError("signs must be None where granularity is 'channel'")
    if recent is not None:
        if granularity != "channel":
            raise ValueError(f"recent must be None where granularity is {granularity!r}")
        checks.same_dtype(q=q, recent=recent)
        checks.shape("recent", recent, (len(q), *k_cache.shape[1:3], D), "a page of each sequence")
        same_device(q=q, recent=recent)
    cache_contract(q, lengths, block_table, num_splits, k_cache=k_cache)
    return scale


@replayed
def decode_quantized(
    q, k_cache, v_cache, k_scale, v_scale, lengths, *, granularity="token", block_table=None, signs=None, recent=None,
    scale=None, num_splits=None,
):  # fmt: skip
    r"""Attention of one query per sequence over its cache of codes. Forward only.

    Args:
        q: (B, H, D), float32, float16 or bfloat16, D at most 256.
        k_cache, v_cache: (B, S, Hk, D) int8 or float8_e4m3fn, or (B, S, Hk, D / 2) uint8, as `append_` writes them; H
            is a multiple of Hk. With `block_table`: (num_pages, page_size, Hk, …), page_size any number. Any strides.
        k_scale, v_scale: float32, the caches' first three dimensions and one more: the step of each row, for uint8 step
            and lowest value.
        lengths: (B,) int32: how many keys of each sequence count, 0 to S or to the size of its pages.
        granularity: what shares a step among the keys: "token", or "channel" for pages that `quantize_key_pages_` has
            written. Then `k_cache` is uint8, `k_scale` (num_pages, Hk, D, 2), and there must be a table.
        block_table: (B, pages) int32: the pages of each sequence, in order. Past the last one it may hold anything.
        signs: (D,) float32, with which both caches were rotated.
        recent: (B, page_size, Hk, D), dtype of `q`, with "channel": the keys of each sequence's last page, if that
            isn't full. At a length that is a multiple of page_size it isn't read. None: that page has codes, too.
        scale: of the scores, default $1/\sqrt{D}$.
        num_splits: how many parts the keys of a sequence are divided into. The default depends on the shapes only.

    Returns:
        (B, H, D) in the dtype of `q`; 0 for a sequence of length 0. A length that the cache doesn't have, or a page
        that the pool doesn't have, gives NaN for that sequence; nothing outside is read.

    Raises:
        TypeError: an argument has a wrong type, or a tensor a wrong dtype.
        ValueError: shapes don't fit, a number is out of range, an input requires a gradient, or, on the CPU and with
            `ACADEMY_DEBUG=1` in the environment, a length, a page or a sign is out of range.
        RuntimeError: a cache is e4m3, and the card is older than compute capability 8.9.

    Source: Liu et al., "KIVI" (arXiv 2402.02750); Ashkboos et al., "QuaRot" (arXiv 2404.00456).
    """
    options = granularity, block_table, signs, recent
    scale = contract(q, k_cache, v_cache, k_scale, v_scale, lengths, *options, scale, num_splits)
    return quantized_forward(q, k_cache, v_cache, k_scale, v_scale, lengths, *options, scale, num_splits)


# ## A run small enough to watch
#
# One sequence of five keys in pages of three, two heads that share one of the cache, codes of four bits, two parts.
# Then the same query over two pages by channel, with one recent key.
def EXAMPLE():
    at = torch.arange(24, dtype=torch.int32, device=device.DEVICE)
    q = torch.tensor([[[1.0, 2, 0, 0], [0, -1, 1, 1]]], device=device.DEVICE)
    k_cache, v_cache = ((at[:18] * by % 251).to(torch.uint8).view(3, 3, 1, 2) for by in (37, 91))
    k_scale, v_scale = ((at[:18] * by % 4 / 4 + 0.25).view(3, 3, 1, 2) for by in (3, 5))
    lengths, table = at[5:6], at[:3:2].flip(0)[None]
    tiles = dict(BLOCK_N=4, BLOCK_S=2)
    caches = k_cache, v_cache, k_scale, v_scale
    quantized_forward(q, *caches, lengths, "token", table, None, None, 0.5, 2, **tiles)
    channels, recent = (at % 4 / 4 + 0.25).view(3, 1, 4, 2), (at[:12] % 5 - 2.0).view(1, 3, 1, 4)
    caches = k_cache, v_cache, channels, v_scale
    quantized_forward(q, *caches, lengths - 1, "channel", table, None, recent, 0.5, 1, **tiles)


if __name__ == "__main__":
    script.main(decode_quantized, decode_quantized_reference)
