r"""
# Attention to a cache of few bits, fast

A key and a value of four bits are 144 bytes, and 512 in bfloat16. But [the lesson](../attention/quantized_decode.py)
takes longer for them than [decode](decode.py) does: bytes aren't what it waits for. While 144 bytes arrive from an
H200's memory, its 528 schedulers issue about 32 instructions for them, and the lesson needs 85. So here instructions
are what is saved.

1. *No conversion.* A code needn't be converted to a float, if its bits are one already, see below.
2. *No exchange.* The lesson puts the codes of a byte side by side, as the numbers were, and that sends those of values
   through shared memory. Here they stay where they are. A unit of 16 bits has four codes. Those in the first place make
   a tile of their own, and their product is with every fourth number of the query; so do the others. The sums of values
   go to every fourth column.
3. *Two units in a register.* Tensor cores want two numbers of 16 bits in the halves of a register. A mask works on both
   halves at once, and so does swapping the two bytes of each. Shifting both takes five instructions.
4. *Keys are rows.* A product of tensor cores has 16 rows and 8 columns at least. A group of four queries would fill a
   quarter of the rows, but fills half of the columns. So scores and sums are computed transposed, as $K Q^T$ and
   $V^T P^T$, with half as many products, exponentials and registers.
5. *No division.* The lesson divides weights by the largest, for float16. bfloat16 has a float32's range.
6. *A warp for each program.* Warps that share a tile wait for each other, to find the largest score and to exchange
   weights. A warp with a tile of 32 keys waits for nobody.

That leaves about 21 instructions for a key and a value. [[tag: KV-score]] and [[tag: KV-o]] are as in the lesson.

**What it costs.** The same bytes as the lesson. On an H200 64 sequences of 4096 tokens, 8 heads of 128 numbers each,
take [[bench: quantized_decode:int4/64x32x8x4096x128/forward/ms]] with four bits and
[[bench: quantized_decode:int8/64x32x8x4096x128/forward/ms]] with eight. The lesson takes
[[bench: quantized_decode:int4/64x32x8x4096x128/forward/lesson.ms]] and
[[bench: quantized_decode:int8/64x32x8x4096x128/forward/lesson.ms]], and what `torch.compile` makes of decoding first
[[bench: quantized_decode:int4/64x32x8x4096x128/forward/torch.compile.ms]] and
[[bench: quantized_decode:int8/64x32x8x4096x128/forward/torch.compile.ms]]. A cache of bfloat16 is read in
[[bench: decode/64x32x8x4096x128/forward/ms]]. One sequence of 32768 tokens takes
[[bench: quantized_decode:int4/1x32x8x32768x128/forward/ms]] and
[[bench: quantized_decode:int8/1x32x8x32768x128/forward/ms]], in bfloat16
[[bench: decode/1x32x8x32768x128/forward/ms]].

Shifts instead of swaps, with queries as rows, took [[bench: quantized_decode/ladder/shifts/int4_ms]], and swaps alone
[[bench: quantized_decode/ladder/swapped bytes/int4_ms]].

**Where it falls behind.** 28 % of the bytes take more than a third of the time. If every scheduler issued an
instruction in every cycle, instructions would take two thirds of the time that memory takes. But they wait, too: for
products, for the exponential, for the largest score. Nearly half of the instructions still make numbers of codes. What
gained nothing: two or four warps with 64 or 128 keys, a warp with 64, another stage or one less, more parts, fewer
registers so that more warps have room. And codes that are floats are left to the lesson, at its speed.

**Contract.** The lesson's. Its kernels do what these don't: other dtypes than bfloat16, codes that are floats, keys by
channel, rows that aren't whole units of 16 bits.
"""

from academy.runtime import checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch
import triton
import triton.language as tl

from annotated_examples.attention import quantized_decode as lesson
from annotated_examples.attention.quantized_decode import contract, decode_quantized_reference
from annotated_examples.common.attention import head, load_tile, store_tile, strided
from annotated_examples.common.codes import rotated
from annotated_examples.common.constants import LN2, LOG2E, LOWEST
from annotated_examples.common.custom_operator import opaque
from annotated_examples.common.paged import (
    SHORTEST_PART, capacity_of, decode_merge_kernel, load_rows, part_of_keys, rows_of_cache,
)  # fmt: skip

# ## Codes without a conversion
#
# A bfloat16 whose upper eight bits are 0 is a very small number: as many times 2⁻¹³³ as the lower eight say. So a mask
# makes a number of a code, and one multiply-add makes it as large as it should be, and centres it. Its factor may be
# 2¹²⁷ at most, which leaves 2⁻⁶ for a code of 1. Of four bits those in the second place are 16 times as large, and have
# a sixteenth of the factor. For those of the upper byte, the bytes are swapped first. Of eight bits the first is
# turned, so that −128 is 0 and 127 is 255.
#
# Sums over codes are 64 times too small, then, which a step makes up for. Each number here is exact.
#
# [[figure: quantized/unit]]
UNIT = tl.constexpr(2.0**-6)


@triton.jit
def numbers(units, i: tl.constexpr, CODES: tl.constexpr):
    if CODES == 4:
        bits = (units >> 8) | (units << 8) if i >= 2 else units
        if i % 2 == 0:
            x = (bits & 15).to(tl.bfloat16, bitcast=True) * 2.0**127 - 8 * UNIT
        else:
            x = (bits & 240).to(tl.bfloat16, bitcast=True) * 2.0**123 - 8 * UNIT
    else:
        bits = units ^ 0x8080
        bits = bits >> 8 if i == 1 else bits & 255
        x = bits.to(tl.bfloat16, bitcast=True) * 2.0**127 - 128 * UNIT
    return x


# Without a lowest value the offset is the step: what matters of it then is only whether it is finite.
@triton.jit
def load_steps(scale, hk, page, slot, mask, CODES: tl.constexpr):
    ptr, stride_p, stride_s, stride_h, stride_c = scale
    at = ptr + page.to(tl.int64) * stride_p + slot.to(tl.int64) * stride_s + tl.cast(hk, tl.int64) * stride_h
    step = tl.load(at, mask=mask, other=0.0)
    offset = step
    if CODES == 4:
        offset = tl.load(at + stride_c, mask=mask, other=0.0) + 8.0 * step
    return step, offset


# Values are loaded transposed, so that their keys are columns.
@triton.jit
def load_columns(cache, hk, page, slot, mask, D: tl.constexpr, BLOCK_D: tl.constexpr):
    ptr, stride_p, stride_s, stride_h, stride_d = cache
    rows = tl.arange(0, BLOCK_D)
    ptr += tl.cast(hk, tl.int64) * stride_h + rows.to(tl.int64)[:, None] * stride_d
    offsets = page.to(tl.int64) * stride_p + slot.to(tl.int64) * stride_s
    return tl.load(ptr + offsets[None, :], mask=mask[None, :] & (rows < D)[:, None], other=0.0)


# ## A stretch of keys
#
# As in [decode](decode.py): only the last tile of a part has a mask that can be false, and exponentials are powers
# of 2. Scale and change of base are part of each key's step.
#
# An infinite step mustn't be lost where its weight is 0. Zero times a number is 0, but zero times infinity is NaN; so
# both offsets, times zero, are added to the value's step.
@triton.jit
def attend_range(
    state,  # (sums of values, row_max, row_sum, sum of offsets) of the keys so far
    q, q_sum, caches, table, pages, b, hk, begin, end, factor,
    K_CODES: tl.constexpr, V_CODES: tl.constexpr, MASKED: tl.constexpr, D: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    accs, row_max, row_sum, rest = state
    k_cache, v_cache, k_scale, v_scale = caches
    for start in tl.range(begin, end, BLOCK_N, num_stages=STAGES):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = (offs_n < end) if MASKED else (offs_n >= 0)
        # In the example the first keys lie at `pid=(0, 0), start=0: page = [3, 3, 3, 2]`, `pid=(0, 0), start=0: slot =
        # [0, 1, 2, 0]`. The first unit of the first key is `pid=(0, 0), start=0: k[0, 0] = 29261`, in base 16 it is
        # 724D: the codes 13, 4, 2 and 7. Its step is `pid=(0, 0), start=0: k_step[0] = 0.75`.
        page, slot, inside = rows_of_cache(table, b, offs_n, mask, pages)
        wanted = (mask & inside) if table[0] is not None else mask
        k = load_rows(k_cache, hk, page, slot, wanted, D // K_CODES, BLOCK_D // K_CODES)
        v = load_columns(v_cache, hk, page, slot, wanted, D // V_CODES, BLOCK_D // V_CODES)
        k_step, k_offset = load_steps(k_scale, hk, page, slot, wanted, K_CODES)
        v_step, v_offset = load_steps(v_scale, hk, page, slot, wanted, V_CODES)
        # [[tag: KV-score]], a row for each key.
        s = tl.dot(numbers(k, 0, K_CODES), q[0], input_precision="ieee")
        for i in tl.static_range(1, K_CODES):
            s = tl.dot(numbers(k, i, K_CODES), q[i], s, input_precision="ieee")
        s *= (k_step * (factor / UNIT))[:, None]
        if K_CODES == 4:
            s += (k_offset * factor)[:, None] * q_sum[None, :]
        if table[0] is not None:
            # A page outside of the pool makes the whole result NaN.
            s = tl.where(inside[:, None], s, float("nan"))
        if MASKED:
            s = tl.where(mask[:, None], s, -float("inf"))
        # [[tag: AT-merge]]: after four keys the first head has `pid=(0, 0), start=0: row_sum[0] = 1.0002`.
        new_max = tl.maximum(row_max, tl.max(s, axis=0))
        p = tl.exp2(s - new_max[None, :])
        alpha = tl.exp2(row_max - new_max)
        row_sum = row_sum * alpha + tl.sum(p, axis=0)
        # [[tag: KV-o]]
        weights = (p * tl.fma(k_offset, 0.0, tl.fma(v_offset, 0.0, v_step))[:, None]).to(tl.bfloat16)
        if V_CODES == 4:
            rest = rest * alpha + tl.sum(p * v_offset[:, None], axis=0)
        sums = ()
        for i in tl.static_range(V_CODES):
            sums += (tl.dot(numbers(v, i, V_CODES), weights, accs[i] * alpha[None, :], input_precision="ieee"),)
        accs = sums
        row_max = new_max
    return accs, row_max, row_sum, rest


# ## One part of the keys
#
# The query is loaded in as many tiles as there are codes in a unit, and the sums of values are as many. A `()` is an
# empty tuple, which grows while the kernel is compiled.
@triton.jit
def quantized_split_kernel(
    q_tensor, k_cache, v_cache, k_scale, v_scale, lengths, table,  # tuples of a pointer and strides, as in the lesson
    parts_ptr, lse_ptr,  # (B, H, num_splits, D) and (B, H, num_splits), contiguous
    pages, sizes, scale,  # (num_pages, page_size) of the caches; (heads, group, capacity)
    K_CODES: tl.constexpr, V_CODES: tl.constexpr, D: tl.constexpr, BLOCK_G: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    heads, group, capacity = sizes
    tiles = tl.cdiv(group, BLOCK_G)
    b, hk = tl.program_id(0) // (heads * tiles), tl.program_id(0) // tiles % heads
    offs_g = tl.program_id(0) % tiles * BLOCK_G + tl.arange(0, BLOCK_G)
    split, num_splits = tl.program_id(1), tl.num_programs(1)
    q_ptr, stride_g, stride_d = head(q_tensor, b, hk, 0)
    q = ()
    q_sum = tl.zeros((BLOCK_G,), tl.float32)
    for i in tl.static_range(K_CODES):
        # The first numbers of both heads are `pid=(0, 0), i=0: part[0, 0] = -3` and `pid=(0, 0), i=0: part[1, 0] = 2`.
        columns = (q_ptr + i * stride_d, stride_g, K_CODES * stride_d)
        part = load_tile(columns, offs_g, group, D // K_CODES, BLOCK_D // K_CODES)
        q += (tl.trans(part),)
        q_sum += tl.sum(part.to(tl.float32), axis=1)
    lengths_ptr, stride_l = lengths
    length = tl.load(lengths_ptr + b.to(tl.int64) * stride_l)
    begin, end, possible = part_of_keys(length, capacity, capacity, split, num_splits, BLOCK_N)

    accs = ()
    for _ in tl.static_range(V_CODES):
        accs += (tl.zeros((BLOCK_D // V_CODES, BLOCK_G), tl.float32),)
    row_sum = tl.zeros((BLOCK_G,), tl.float32)
    state = (accs, tl.full((BLOCK_G,), LOWEST, tl.float32), row_sum, row_sum)
    # The first part is two whole tiles, `pid=(0, 0): edges = (0, 8, 8)`, the second three keys, `pid=(0, 1): edges =
    # (8, 8, 11)`.
    whole = begin + tl.maximum(end - begin, 0) // BLOCK_N * BLOCK_N
    edges = (begin, whole, end)
    factor = tl.cast(scale, tl.float32) * LOG2E
    for PART in tl.static_range(2):
        state = attend_range(
            state, q, q_sum, (k_cache, v_cache, k_scale, v_scale), table, pages, b, hk, edges[PART], edges[PART + 1],
            factor, K_CODES, V_CODES, PART == 1, D, BLOCK_N, BLOCK_D, STAGES if PART == 0 else 1,
        )  # fmt: skip
    accs, row_max, row_sum, rest = state

    lse = tl.where(row_sum == 0.0, -float("inf"), (row_max + tl.log2(row_sum)) * LN2)
    lse = tl.where(possible, lse, float("nan"))
    total = tl.where(row_sum == 0.0, 1.0, row_sum)
    first = (b.to(tl.int64) * heads + hk) * group * num_splits + split
    tl.store(lse_ptr + first + offs_g * num_splits, lse, mask=offs_g < group)
    for i in tl.static_range(V_CODES):
        columns = (parts_ptr + first * D + i, num_splits * D, V_CODES)
        part = (tl.trans(accs[i]) / UNIT + rest[:, None]) / total[:, None]
        store_tile(columns, part, offs_g, group, D // V_CODES, BLOCK_D // V_CODES)


# ## The launcher
#
# A cache is seen as units of 16 bits, if its rows are whole ones. A program is a single warp, so there are as many
# parts as make a thousand programs.
CODES = {torch.uint8: 4, torch.int8: 2}
MANY = 1024


def in_units(cache):
    """The cache in units of 16 bits; None if that isn't possible."""
    *steps, last = cache.stride()
    even = all(size % 2 == 0 for size in (*steps, cache.storage_offset(), cache.shape[3]))
    return cache.view(torch.uint16) if even and last == 1 and cache.dtype in CODES else None


@opaque(
    "(Tensor q, Tensor k_cache, Tensor v_cache, Tensor k_scale, Tensor v_scale, Tensor lengths, str granularity, "
    "Tensor? block_table, Tensor? signs, Tensor? recent, float scale, int? num_splits) -> Tensor",
    lambda q, *rest: q.new_empty(q.shape),
)
def quantized_forward(
    q, k_cache, v_cache, k_scale, v_scale, lengths, granularity, block_table, signs, recent, scale, num_splits,
    *, BLOCK_N=None, STAGES=3,
):  # fmt: skip
    """`o`, (B, H, D). A tile has BLOCK_N keys."""
    checks.power_of_two(BLOCK_N=BLOCK_N)
    tensors = q, k_cache, v_cache, k_scale, v_scale, lengths, granularity, block_table, signs, recent
    k_units, v_units = in_units(k_cache), in_units(v_cache)
    if q.dtype != torch.bfloat16 or granularity != "token" or k_units is None or v_units is None:
        return lesson.quantized_forward(*tensors, scale, num_splits, BLOCK_N=BLOCK_N)
    (B, H, D), (num_pages, page_size, Hk, _) = q.shape, k_cache.shape
    group, capacity = H // Hk, capacity_of(k_cache, block_table)
    BLOCK_G = max(8, triton.next_power_of_2(min(group, 64)))
    BLOCK_D, BLOCK_N = max(64, triton.next_power_of_2(D)), BLOCK_N or 32
    programs = B * Hk * triton.cdiv(group, BLOCK_G)
    if num_splits is None:
        num_splits = max(1, min(triton.cdiv(MANY, max(programs, 1)), triton.cdiv(capacity, SHORTEST_PART)))
    o = torch.empty((B, H, D), dtype=q.dtype, device=q.device)
    if not o.numel():
        return o
    parts = torch.empty((B, H, num_splits, D), dtype=torch.float32, device=q.device)
    lse = torch.empty((B, H, num_splits), dtype=torch.float32, device=q.device)
    merged = o if signs is None else torch.empty_like(o, dtype=torch.float32)
    if signs is not None:
        signs = signs.contiguous()
        q = rotated(q, signs, False, q.dtype)
    quantized_split_kernel[(programs, num_splits)](
        strided(q.unflatten(1, (Hk, group))), *(strided(x) for x in (k_units, v_units, k_scale, v_scale)),
        (lengths, lengths.stride(0)), (None, 0, 0) if block_table is None else (block_table, *block_table.stride()),
        parts, lse, (num_pages, page_size), (Hk, group, capacity), scale, K_CODES=CODES[k_cache.dtype],
        V_CODES=CODES[v_cache.dtype], D=D, BLOCK_G=BLOCK_G, BLOCK_N=BLOCK_N, BLOCK_D=BLOCK_D, STAGES=STAGES,
        num_warps=1, num_stages=STAGES, enable_fp_fusion=True,
    )  # fmt: skip
    decode_merge_kernel[(B * H,)](parts, lse, None, merged, H, num_splits, D=D, BLOCK_S=16, BLOCK_D=BLOCK_D)
    return o if signs is None else rotated(merged, signs, True, o.dtype)


@replayed
def decode_quantized(
    q, k_cache, v_cache, k_scale, v_scale, lengths, *, granularity="token", block_table=None, signs=None, recent=None,
    scale=None, num_splits=None,
):  # fmt: skip
    """The same as `annotated_examples.attention.quantized_decode.decode_quantized`, but faster.

    Args: as `annotated_examples.attention.quantized_decode.decode_quantized`.

    Returns:
        (B, H, D), as the lesson's.

    Raises:
        TypeError, ValueError, RuntimeError: as the lesson's.

    Source: as the lesson's.
    """
    options = granularity, block_table, signs, recent
    scale = contract(q, k_cache, v_cache, k_scale, v_scale, lengths, *options, scale, num_splits)
    return quantized_forward(q, k_cache, v_cache, k_scale, v_scale, lengths, *options, scale, num_splits)


# ## A run small enough to watch
#
# One sequence of 11 keys in pages of three, two heads that share one of the cache, codes of four bits, two parts.
def EXAMPLE():
    at = torch.arange(48, device=device.DEVICE)
    q = (at[:16] * 5 % 7 - 3).bfloat16().view(1, 2, 8)
    k_cache, v_cache = ((at * by % 251).to(torch.uint8).view(4, 3, 1, 4) for by in (37, 91))
    k_scale, v_scale = ((at[:24] * by % 4 / 4 + 0.25).view(4, 3, 1, 2) for by in (3, 5))
    lengths, table = at[11:12].int(), at[:4].int().flip(0)[None]
    tensors = q, k_cache, v_cache, k_scale, v_scale, lengths
    quantized_forward(*tensors, "token", table, None, None, 0.5, 2, BLOCK_N=4)


if __name__ == "__main__":
    script.main(decode_quantized, decode_quantized_reference)
