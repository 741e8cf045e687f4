r"""
# Decode, fast

The same attention of one query over a long cache as in the [lesson](../attention/decode.py), with the same reference,
arguments and pages. Memory sets the pace: the cache has to be read, so the limit is the time of a copy that moves as
many bytes. (It reads half of them and writes the other half.) What keeps the lesson from reaching it? The times are
those of one sequence of 32768 keys, with 8 heads of 128 numbers that serve 32 heads of queries, in bfloat16. Such a
copy takes [[bench: decode/ladder/copy/forward_ms]].

1. The lesson masks every tile of keys. Here only the last tile of a part has a mask, exponentials are powers of 2, and
   the scale and the change of base are one factor. That takes it from [[bench: decode/ladder/lesson/forward_ms]] to
   [[bench: decode/ladder/no masks/forward_ms]].
2. The lesson makes 512 parts in all, whatever the card has room for. Three programs fit on each of the 132
   SMs, so the last parts only begin when others are done, and by then most of the card is idle. With 256
   parts all of them run at once: [[bench: decode/ladder/all at once/forward_ms]].
3. If the batch alone needs more programs than that, they run in several rounds. Then many short parts are better,
   because less work is left for the last round. With 64 sequences of 4096 keys 512 programs take
   [[bench: decode/ladder/512 programs/many_ms]], 1024 take [[bench: decode/ladder/1024 programs/many_ms]], and a copy
   [[bench: decode/ladder/copy/many_ms]].
4. The merge kernel loads all parts of a head at once. All of these times include its launch.

**Where it falls behind.** cuDNN's kernel is ahead where there are many sequences. PyTorch takes
[[bench: decode/ladder/flash-2/forward_ms]] and [[bench: decode/ladder/flash-2/many_ms]] with its flash kernel,
[[bench: decode/ladder/cuDNN/forward_ms]] and [[bench: decode/ladder/cuDNN/many_ms]] with cuDNN's. FlashInfer, from a
cache in pages of 64, takes [[bench: decode/1x32x8x32768x128/forward/FlashInfer.ms]] for one long sequence and
[[bench: decode/64x32x8x4096x128/forward/FlashInfer.ms]] for 64, where we take
[[bench: decode/1x32x8x32768x128/forward/ms]] and [[bench: decode/64x32x8x4096x128/forward/ms]]. What gained nothing
here: keys as the left factor of the products, which suits the faster instructions of the tensor cores; 32 or 128 keys
per tile; 8 warps; a merge kernel whose launch overlaps the end of the other.

**What it costs.** The same as the lesson.

**Contract.** The lesson's. float32, a scale that isn't positive, and more than 256 parts are left to its kernels.
"""

from academy.runtime import checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.call_cache import remembered
from academy.runtime.launch import launch
from academy.runtime.replay import replayed

import torch
import triton
import triton.language as tl

from annotated_examples.attention import decode as lesson
from annotated_examples.attention.decode import contract, decode_attention_reference, queries_of_group
from annotated_examples.common.attention import load_tile, scale_and_cap, store_tile
from annotated_examples.common.constants import LN2, LOG2E, LOWEST
from annotated_examples.common.opaque_attention import opaque_decode
from annotated_examples.common.paged import SHORTEST_PART, capacity_of, load_rows, part_of_keys, rows_of_cache


# ## A stretch of keys
#
# The loop that reads the cache. Everything beside the two loads has to fit into the time that they take.
#
# - *Base 2.* The step is [[tag: AT-merge]]. Its exponentials are powers of 2, which the hardware has an instruction
#   for.
# - *One instruction per score.* Scores arrive unscaled. Multiplying by `factor` and subtracting the maximum is one
#   fused multiply-add, which the launch asks for. A soft cap isn't linear, so there the scale comes first.
# - *Scores are masked only where needed.* `MASKED` is known when the kernel is compiled, and the loop over whole tiles
#   has no `tl.where` for the end. Its loads still have a mask, `offs_n >= 0`. It is always true, but the compiler
#   doesn't know that, and compares for each key that a thread loads.
#
# `num_stages` lets the loads of later tiles run ahead. What carries over from tile to tile is one tuple, `state`.
@triton.jit
def attend_range(
    state,  # (acc, row_max, row_sum) of the keys so far
    q, k_cache, v_cache, table, pages, b, hk, begin, end, scale,
    softcap: tl.constexpr, MASKED: tl.constexpr, D: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    acc, row_max, row_sum = state
    factor = tl.cast(scale, tl.float32) * LOG2E
    for start in tl.range(begin, end, BLOCK_N, num_stages=STAGES):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = (offs_n < end) if MASKED else (offs_n >= 0)
        # With a table each key has a page of its own. In the example, keys 8 to 10 lie at `pid=(0, 1), start=8: page =
        # [2, 3, 3, 0]`, `pid=(0, 1), start=8: slot = [2, 0, 1, 2]`; the last lane is masked.
        page, slot, inside = rows_of_cache(table, b, offs_n, mask, pages)
        wanted = (mask & inside) if table[0] is not None else mask
        k = load_rows(k_cache, hk, page, slot, wanted, D, BLOCK_D)
        v = load_rows(v_cache, hk, page, slot, wanted, D, BLOCK_D)
        s = tl.dot(q, tl.trans(k), input_precision="ieee")
        if softcap != 0.0:
            s, _ = scale_and_cap(s, scale, softcap)
            factor = LOG2E
        if table[0] is not None:
            # A page outside of the pool makes the result of its sequence NaN.
            s = tl.where(inside[None, :], s, float("nan"))
        if MASKED:
            s = tl.where(mask[None, :], s, -float("inf"))
        new_max = tl.maximum(row_max, tl.max(s, axis=1) * factor)
        p = tl.exp2(s * factor - new_max[:, None])
        alpha = tl.exp2(row_max - new_max)
        row_sum = row_sum * alpha + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision="ieee")
        row_max = new_max
    return acc, row_max, row_sum


# ## One part of the keys
#
# [[figure: attention/decode]]
#
# A program takes one part of one sequence's keys, and the query heads that share a head of the cache, as in the lesson.
# It goes over its part in two stretches with the same loop: whole tiles, then what is left. `tl.static_range` repeats
# its body while compiling, so `PART` is a constant in each copy.
@triton.jit
def decode_split_kernel(
    q_tensor, k_cache, v_cache, lengths, table,  # tuples of a pointer and strides, as in the lesson
    parts_ptr, lse_ptr,  # (B, H, num_splits, D) and (B, H, num_splits), contiguous
    pages,  # (num_pages, page_size) of the caches
    heads, group, capacity, scale, left, softcap: tl.constexpr, D: tl.constexpr,
    BLOCK_G: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(group, BLOCK_G)
    b, hk = tl.program_id(0) // (heads * tiles), tl.program_id(0) // tiles % heads
    offs_g = tl.program_id(0) % tiles * BLOCK_G + tl.arange(0, BLOCK_G)
    split, num_splits = tl.program_id(1), tl.num_programs(1)
    q = load_tile(queries_of_group(q_tensor, b, hk * group), offs_g, group, D, BLOCK_D)
    lengths_ptr, stride_l = lengths
    length = tl.load(lengths_ptr + b.to(tl.int64) * stride_l)
    begin, end, possible = part_of_keys(length, capacity, left, split, num_splits, BLOCK_N)

    row_max = tl.full((BLOCK_G,), LOWEST, tl.float32)
    row_sum = tl.zeros((BLOCK_G,), tl.float32)
    state = (tl.zeros((BLOCK_G, BLOCK_D), tl.float32), row_max, row_sum)
    # The first part of the example's first sequence is two whole tiles of keys, `pid=(0, 0): edges = (0, 8, 8)`. The
    # second is short, `pid=(0, 1): edges = (8, 8, 11)`: no whole tile, and three keys. A part may also be empty, as the
    # second one of a sequence with one key: `pid=(1, 1): edges = (4, 4, 1)`.
    whole = begin + tl.maximum(end - begin, 0) // BLOCK_N * BLOCK_N
    edges = (begin, whole, end)
    for PART in tl.static_range(2):
        state = attend_range(
            state, q, k_cache, v_cache, table, pages, b, hk, edges[PART], edges[PART + 1], scale,
            softcap, PART == 1, D, BLOCK_N, BLOCK_D, STAGES if PART == 0 else 1,
        )  # fmt: skip
    acc, row_max, row_sum = state

    part = acc / tl.where(row_sum == 0.0, 1.0, row_sum)[:, None]
    # `tl.log2` gives the logarithm in base 2; the merge kernel expects natural logarithms, like the sinks.
    lse = tl.where(row_sum == 0.0, -float("inf"), (row_max + tl.log2(row_sum)) * LN2)
    lse = tl.where(possible, lse, float("nan"))
    row = ((b.to(tl.int64) * heads + hk) * group + offs_g) * num_splits + split
    tl.store(lse_ptr + row, lse, mask=offs_g < group)
    parts_ptr += (b.to(tl.int64) * heads + hk) * group * num_splits * D + split * D
    store_tile((parts_ptr, num_splits * D, 1), part, offs_g, group, D, BLOCK_D)


# ## Merging the parts
#
# [[tag: AT-parts]], with all parts of a head in one tile: no loop, and no rescaling, because the largest log-sum-exp is
# known at once. A part without keys has −∞ and weighs nothing; the lowest finite number keeps −∞ − (−∞) out. A sink is
# one more weight, in the sum only.
@triton.jit
def decode_merge_kernel(
    parts_ptr, lse_ptr,  # (B, H, num_splits, D) and (B, H, num_splits)
    sinks_ptr, o_ptr,  # (H,), or None; (B, H, D)
    H, num_splits, D: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    offs_s, offs_d = tl.arange(0, BLOCK_S), tl.arange(0, BLOCK_D)
    lse = tl.load(lse_ptr + row * num_splits + offs_s, mask=offs_s < num_splits, other=-float("inf"))
    parts = load_tile((parts_ptr + row * num_splits * D, D, 1), offs_s, num_splits, D, BLOCK_D)
    largest = tl.maximum(tl.max(lse, axis=0), LOWEST)
    total = 0.0
    if sinks_ptr is not None:
        sink = tl.load(sinks_ptr + row % H).to(tl.float32)
        largest = tl.maximum(largest, sink)
        total = tl.exp(sink - largest)
    # The two parts of the first head weigh `pid=0: weights = [1, 0.4509]`. Of the second sequence the second part is
    # empty: `pid=2: lse = [1, -inf]`, `weights = [1, 0]`.
    weights = tl.exp(lse - largest)
    total += tl.sum(weights, axis=0)
    o = tl.sum(weights[:, None] * parts, axis=0) / tl.where(total == 0.0, 1.0, total)
    tl.store(o_ptr + row * D + offs_d, o, mask=offs_d < D)


# ## The launcher
#
# There are as many parts as can run at once. If the batch alone needs more programs than that, there are enough parts
# that the last round matters little. As in the lesson, the number must not depend on the lengths, which are on the GPU.
ONE_ROUND, MANY = 256, 1024
MOST_PARTS = 256


def default_splits(programs, capacity):
    """How many parts, given how many `programs` run without splitting, and the most keys a sequence can have."""
    wanted = ONE_ROUND // max(programs, 1) if programs <= ONE_ROUND else triton.cdiv(MANY, programs)
    return max(1, min(wanted, triton.cdiv(capacity, SHORTEST_PART)))


# One query for each sequence is little work for the card, so Python's share of the time is large: the launcher is
# [replayed](../../docs/guides/what-a-call-costs.md).
@opaque_decode
def decode_forward(
    q, k_cache, v_cache, lengths, block_table, scale, left, softcap, sinks, num_splits=None, *, BLOCK_N=None
):
    """`o`, (B, H, D). A tile has BLOCK_N keys."""
    checks.power_of_two(BLOCK_N=BLOCK_N)
    (B, H, D), (_, _, Hk, _) = q.shape, k_cache.shape
    group, capacity = H // Hk, capacity_of(k_cache, block_table)
    BLOCK_G, BLOCK_D = (max(16, triton.next_power_of_2(size)) for size in (min(group, 64), D))
    programs = B * Hk * triton.cdiv(group, BLOCK_G)
    num_splits = default_splits(programs, capacity) if num_splits is None else num_splits
    if q.dtype == torch.float32 or scale <= 0 or num_splits > MOST_PARTS:
        tensors = q, k_cache, v_cache, lengths, block_table
        return lesson.decode_forward(*tensors, scale, left, softcap, sinks, num_splits, BLOCK_N=BLOCK_N)
    o = torch.empty_like(q, memory_format=torch.contiguous_format)
    if o.numel() == 0:
        return o
    # The parts and their log-sum-exps, (B, H, num_splits, D) and (B, H, num_splits), one behind the other.
    parts = torch.empty(B * H * num_splits * (D + 1), dtype=torch.float32, device=q.device)
    lse, STAGES = parts[B * H * num_splits * D :], 3 if D <= 128 else 2
    launch(
        decode_split_kernel, (programs, num_splits),
        (
            (q, *q.stride()), (k_cache, *k_cache.stride()), (v_cache, *v_cache.stride()), (lengths, lengths.stride(0)),
            (None, 0, 0) if block_table is None else (block_table, *block_table.stride()),
            parts, lse, tuple(k_cache.shape[:2]),
        ),
        (Hk, group, capacity, scale, left),
        softcap=softcap, D=D, BLOCK_G=BLOCK_G, BLOCK_N=BLOCK_N or lesson.keys_of_tile(D, q.dtype),
        BLOCK_D=BLOCK_D, STAGES=STAGES, num_warps=4, num_stages=STAGES, enable_fp_fusion=True,
    )  # fmt: skip
    launch(
        decode_merge_kernel, (B * H,), (parts, lse, None if sinks is None else sinks.contiguous(), o), (H, num_splits),
        D=D, BLOCK_S=triton.next_power_of_2(num_splits), BLOCK_D=BLOCK_D, num_warps=4,
    )  # fmt: skip
    return o


checked = remembered(contract, values=True)


@replayed
def decode_attention(
    q, k_cache, v_cache, lengths, *, block_table=None, scale=None, window=None, softcap=0.0, sinks=None, num_splits=None
):
    """The same as `annotated_examples.attention.decode.decode_attention`, but faster.

    Args: as `annotated_examples.attention.decode.decode_attention`.

    Returns:
        (B, H, D), as the lesson's.

    Raises:
        TypeError, ValueError: as the lesson's.

    Source: "Flash-Decoding" of Dao, Haziza, Massa and Sizov; paged caches: Kwon et al. (arXiv 2309.06180).
    """
    options = checked(q, k_cache, v_cache, lengths, block_table, scale, window, softcap, sinks, num_splits)
    return decode_forward(q, k_cache, v_cache, lengths, block_table, *options, sinks, num_splits)


# ## A run small enough to watch
#
# Two sequences, of 11 keys and of 1, two heads that share one of the cache, pages of 3 keys, and two parts.
def EXAMPLE():
    at = torch.arange(5 * 3 * 2, device=device.DEVICE)
    q = (at[:8] * 5 % 7 - 3).half().view(2, 2, 2)
    k_cache, v_cache = (at * 3 % 5 - 2).half().view(5, 3, 1, 2), (at * 7 % 11 - 5).half().view(5, 3, 1, 2)
    lengths = torch.tensor([11, 1], dtype=torch.int32, device=device.DEVICE)
    table = torch.tensor([[4, 0, 2, 3], [1, -1, -1, -1]], dtype=torch.int32, device=device.DEVICE)
    options = contract(q, k_cache, v_cache, lengths, table, 0.5, None, 0.0, None, 2)
    decode_forward(q, k_cache, v_cache, lengths, table, *options, None, 2, BLOCK_N=4)


if __name__ == "__main__":
    script.main(decode_attention, decode_attention_reference)
