r"""
# Decode: one query against a long cache

A model that writes text generates one token at a time. The token's key and value join those of all earlier tokens in a
*cache*, and its query attends to every one of them: [[tag: AT-O]] with a single row. How can more than a hundred SMs
share the work for one row?

By splitting the keys. Each program takes a stretch of the cache and computes attention over that part alone; a second
kernel merges the parts, weighted by their log-sum-exps:

[[eq: AT-parts]]

**What it costs.** Each key and each value is read once, and each of its elements serves one multiplication and one
addition per query. That is far too little to keep the tensor cores busy: the limit is a copy's speed. For 16 sequences
of 8192 tokens, with 8 heads of 128 in the cache and 32 of queries, this kernel reaches
[[bench: decode/16x32x8x8192x128/forward/lesson.share]] of it. Query heads that share a head of the cache are rows of
one tile, so that the cache is read once for all of them. (More than 64 take another tile, and another program.)

**Contract.** `q` is (B, H, D), float32, float16 or bfloat16. The caches are (B, S, Hk, D), or pages of a common pool,
(num_pages, page_size, Hk, D), with a table that says which ones belong to a sequence. Everything may have any strides.
`lengths` says how many keys of each cache count; what lies beyond them is never read, and may be NaN. A NaN among the
keys that count makes the rows of its own sequence and head NaN, one among the values its column of them. Forward only.
"""

from academy.runtime import checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import math

import torch
import triton
import triton.language as tl

from annotated_examples.common.attention import (
    group_contract, load_tile, options_contract, same_device, scale_and_cap, store_tile, window_bounds,
)  # fmt: skip
from annotated_examples.common.constants import LOWEST
from annotated_examples.common.opaque_attention import opaque_decode
from annotated_examples.common.paged import (
    cache_contract, capacity_of, decode_merge_kernel, default_splits, keys_of_tile, load_rows, part_of_keys,
    rows_of_cache,
)  # fmt: skip
from annotated_examples.common.products import input_precision, multiply_add


# ## Reference
#
# One sequence after the other, in any dtype.
def decode_attention_reference(
    q, k_cache, v_cache, lengths, *, block_table=None, scale=None, window=None, softcap=0.0, sinks=None, num_splits=None
):
    (H, D), left = q.shape[1:], window_bounds(True, window)[0]
    scale = 1 / math.sqrt(D) if scale is None else scale
    outputs = [q.new_zeros(0, H, D)]
    for b, length in enumerate(lengths.tolist()):
        if block_table is None:
            k, v = k_cache[b], v_cache[b]
        else:
            pages = block_table[b, : -(-length // k_cache.shape[1])].long()
            k, v = k_cache[pages].flatten(0, 1), v_cache[pages].flatten(0, 1)
        k, v = (x[max(length - 1 - left, 0) : length].repeat_interleave(H // x.shape[1], dim=1) for x in (k, v))
        s = torch.einsum("hd,nhd->hn", q[b], k) * scale
        s = softcap * torch.tanh(s / softcap) if softcap else s
        sink = s.new_full((H, 1), -math.inf) if sinks is None else sinks.to(s.dtype)[:, None]
        p = torch.softmax(torch.cat([s, sink], dim=1), dim=1)[:, :-1]
        outputs.append(torch.einsum("hn,nhd->hd", p, v)[None])
    return torch.cat(outputs)


# ## One part of the keys
#
# [[figure: attention/decode]]
#
# The tile of queries has a row for each head of a group, though all of them are at the same position. Rows are padded
# to 16, as many as the smallest product of the tensor cores has.
@triton.jit
def queries_of_group(q_tensor, b, h):
    # Pointer and strides of a matrix whose rows are heads, from head `h` on.
    ptr, stride_b, stride_h, stride_d = q_tensor
    return ptr + tl.cast(b, tl.int64) * stride_b + tl.cast(h, tl.int64) * stride_h, stride_h, stride_d


@triton.jit
def decode_split_kernel(
    q_tensor,  # (pointer, three strides): (B, H, D)
    k_cache, v_cache,  # (pointer, four strides): (B, S, Hk, D), or (num_pages, page_size, Hk, D) with a table
    lengths,  # (pointer, stride): (B,)
    table,  # (pointer, two strides): (B, pages); or None and zeros
    parts_ptr, lse_ptr,  # (B, H, num_splits, D) and (B, H, num_splits), contiguous
    pages,  # (num_pages, page_size) of the caches
    heads, group, capacity, scale, left, softcap: tl.constexpr, D: tl.constexpr,
    INPUT_PRECISION: tl.constexpr, BLOCK_G: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    # Which sequence, which head of the cache, which part? Large groups take several tiles.
    tiles = tl.cdiv(group, BLOCK_G)
    b, hk = tl.program_id(0) // (heads * tiles), tl.program_id(0) // tiles % heads
    offs_g = tl.program_id(0) % tiles * BLOCK_G + tl.arange(0, BLOCK_G)
    split, num_splits = tl.program_id(1), tl.num_programs(1)
    q = load_tile(queries_of_group(q_tensor, b, hk * group), offs_g, group, D, BLOCK_D)
    lengths_ptr, stride_l = lengths
    length = tl.load(lengths_ptr + b.to(tl.int64) * stride_l)
    # Sequence 0 has 8 keys, and its second part begins at `pid=(0, 1): start_n = 4`. In a short sequence the last parts
    # get no keys, as in sequence 1, which has one key: `pid=(1, 1): end_n - start_n = -3`.
    start_n, end_n, possible = part_of_keys(length, capacity, left, split, num_splits, BLOCK_N)

    row_max = tl.full((BLOCK_G,), LOWEST, tl.float32)
    row_sum = tl.zeros((BLOCK_G,), tl.float32)
    acc = tl.zeros((BLOCK_G, BLOCK_D), tl.float32)
    for start in tl.range(start_n, end_n, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = offs_n < end_n
        # Pages of 3: keys 4 to 7 lie in the second and third page of the table, `pid=(0, 1), start=4: page = [0, 0, 2,
        # 2]`, at `pid=(0, 1), start=4: slot = [1, 2, 0, 1]`.
        page, slot, inside = rows_of_cache(table, b, offs_n, mask, pages)
        k = load_rows(k_cache, hk, page, slot, mask & inside, D, BLOCK_D)
        v = load_rows(v_cache, hk, page, slot, mask & inside, D, BLOCK_D)
        s, _ = scale_and_cap(tl.dot(q, tl.trans(k), input_precision=INPUT_PRECISION), scale, softcap)
        # A page outside of the pool makes the whole result NaN.
        s = tl.where(inside[None, :], s, float("nan"))
        s = tl.where(mask[None, :], s, -float("inf"))
        # [[tag: AT-merge]], as in flash attention.
        new_max = tl.maximum(row_max, tl.max(s, axis=1))
        p = tl.exp(s - new_max[:, None])
        alpha = tl.exp(row_max - new_max)
        row_sum = row_sum * alpha + tl.sum(p, axis=1)
        acc = multiply_add(p.to(v.dtype), v, acc * alpha[:, None], INPUT_PRECISION)
        row_max = new_max

    # An empty part is stored too: 0, with a log-sum-exp of −∞.
    part = acc / tl.where(row_sum == 0.0, 1.0, row_sum)[:, None]
    lse = tl.where(row_sum == 0.0, -float("inf"), row_max + tl.log(row_sum))
    lse = tl.where(possible, lse, float("nan"))
    row = ((b.to(tl.int64) * heads + hk) * group + offs_g) * num_splits + split
    tl.store(lse_ptr + row, lse, mask=offs_g < group)
    parts_ptr += (b.to(tl.int64) * heads + hk) * group * num_splits * D + split * D
    store_tile((parts_ptr, num_splits * D, 1), part, offs_g, group, D, BLOCK_D)


# ## The launcher
@opaque_decode
def decode_forward(
    q, k_cache, v_cache, lengths, block_table, scale, left, softcap, sinks, num_splits=None, *, BLOCK_N=None, BLOCK_S=16
):
    """`o`, (B, H, D). A tile has BLOCK_N keys; BLOCK_S parts are merged at a time."""
    checks.power_of_two(BLOCK_N=BLOCK_N, BLOCK_S=BLOCK_S)
    (B, H, D), (num_pages, page_size, Hk, _) = q.shape, k_cache.shape
    group, capacity = H // Hk, capacity_of(k_cache, block_table)
    BLOCK_G, BLOCK_D = (max(16, triton.next_power_of_2(size)) for size in (min(group, 64), D))
    programs = B * Hk * triton.cdiv(group, BLOCK_G)
    num_splits = default_splits(programs, capacity) if num_splits is None else num_splits
    o = torch.empty((B, H, D), dtype=q.dtype, device=q.device)
    parts = torch.empty((B, H, num_splits, D), dtype=torch.float32, device=q.device)
    lse = torch.empty((B, H, num_splits), dtype=torch.float32, device=q.device)
    if o.numel():
        decode_split_kernel[(programs, num_splits)](
            (q, *q.stride()), (k_cache, *k_cache.stride()), (v_cache, *v_cache.stride()), (lengths, lengths.stride(0)),
            (None, 0, 0) if block_table is None else (block_table, *block_table.stride()), parts, lse,
            (num_pages, page_size), Hk, group, capacity, scale, left, softcap=softcap, D=D,
            INPUT_PRECISION=input_precision(), BLOCK_G=BLOCK_G, BLOCK_N=BLOCK_N or keys_of_tile(D, q.dtype),
            BLOCK_D=BLOCK_D, num_warps=4, num_stages=3 if D <= 128 and q.dtype != torch.float32 else 2,
        )  # fmt: skip
        sinks = None if sinks is None else sinks.contiguous()
        decode_merge_kernel[(B * H,)](parts, lse, sinks, o, H, num_splits, D=D, BLOCK_S=BLOCK_S, BLOCK_D=BLOCK_D)
    return o


# ## Arguments
def contract(q, k_cache, v_cache, lengths, block_table, scale, window, softcap, sinks, num_splits):
    """Checks the arguments, and returns `(scale, left, softcap)`."""
    checks.tensors(q=q, k_cache=k_cache, v_cache=v_cache, lengths=lengths)
    checks.optional_tensors(block_table=block_table)
    checks.no_gradient("decode_attention", q=q, k_cache=k_cache, v_cache=v_cache)
    checks.dtypes(q=q)
    checks.same_dtype(q=q, k_cache=k_cache, v_cache=v_cache)
    checks.dimensions("q", q, 3, "B, H, D")
    checks.dimensions("k_cache", k_cache, 4, "B, S, Hk, D or num_pages, page_size, Hk, D")
    checks.same_shape(k_cache=k_cache, v_cache=v_cache)
    same_device(q=q, v_cache=v_cache)
    group_contract(q, k_cache, 2, "k_cache")
    if k_cache.shape[-1] != q.shape[-1]:
        raise ValueError(f"k_cache must have the head dimension of q, {q.shape[-1]}, got {tuple(k_cache.shape)}")
    scale = options_contract(q, scale, softcap, sinks)
    checks.no_gradient("decode_attention", sinks=sinks)
    left, _ = window_bounds(True, window)
    cache_contract(q, lengths, block_table, num_splits, k_cache=k_cache)
    return scale, left, float(softcap)


@replayed
def decode_attention(
    q, k_cache, v_cache, lengths, *, block_table=None, scale=None, window=None, softcap=0.0, sinks=None, num_splits=None
):
    r"""Attention of one query per sequence over its cache of keys and values. Forward only.

    Args:
        q: (B, H, D), float32, float16 or bfloat16, D at most 256.
        k_cache, v_cache: (B, S, Hk, D), dtype of `q`; H is a multiple of Hk. With `block_table`: (num_pages, page_size,
            Hk, D), page_size any number. Any strides.
        lengths: (B,) int32: how many keys of each sequence count, 0 to S or to the size of its pages.
        block_table: (B, pages) int32: the pages of each sequence, in order. Past the last one it may hold anything.
        scale: of the scores, default $1/\sqrt{D}$.
        window: an int w: the last w keys. A pair (left, right): the last left + 1 keys, or all with a left of −1; right
            has no effect, as no key comes after the query.
        softcap: t in $t \tanh(s / t)$, after the scale. 0.0 turns it off.
        sinks: (H,), dtype of `q` or float32: one more score for each head, without a value.
        num_splits: how many parts the keys of a sequence are divided into. The default depends on the shapes only.

    Returns:
        (B, H, D) in the dtype of `q`; 0 for a sequence of length 0. A length that the cache doesn't have, or a page
        that the pool doesn't have, gives NaN for that sequence; nothing outside is read.

    Raises:
        TypeError: an argument has a wrong type, or a tensor a wrong dtype.
        ValueError: shapes don't fit, a number is out of range, an input requires a gradient, or, on the CPU and with
            `ACADEMY_DEBUG=1` in the environment, a length or a page is out of range.

    Source: "Flash-Decoding" of Dao, Haziza, Massa and Sizov; paged caches: Kwon et al. (arXiv 2309.06180).
    """
    options = contract(q, k_cache, v_cache, lengths, block_table, scale, window, softcap, sinks, num_splits)
    return decode_forward(q, k_cache, v_cache, lengths, block_table, *options, sinks, num_splits)


# ## A run small enough to watch
#
# Two sequences, of 8 keys and of 1, two heads that share one of the cache, pages of 3 keys, and two parts.
def EXAMPLE():
    at = torch.arange(5 * 3 * 2, dtype=torch.float32, device=device.DEVICE)
    q = (at[:8] * 5 % 7 - 3).view(2, 2, 2)
    k_cache, v_cache = (at * 3 % 5 - 2).view(5, 3, 1, 2), (at * 7 % 11 - 5).view(5, 3, 1, 2)
    lengths = torch.tensor([8, 1], dtype=torch.int32, device=device.DEVICE)
    table = torch.tensor([[4, 0, 2], [1, -1, -1]], dtype=torch.int32, device=device.DEVICE)
    options = contract(q, k_cache, v_cache, lengths, table, 0.5, None, 0.0, None, 2)
    decode_forward(q, k_cache, v_cache, lengths, table, *options, None, 2, BLOCK_N=4, BLOCK_S=2)


if __name__ == "__main__":
    script.main(decode_attention, decode_attention_reference)
