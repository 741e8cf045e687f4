r"""
# A cache in pages, read in parts

What the kernels share that attend to a long cache: where a key lies, which keys a program takes, and how the parts that
several programs computed are merged.
"""

from academy.runtime import checks  # before anything imports triton

import torch
import triton
import triton.language as tl

from annotated_examples.common.attention import load_tile, same_device, tile_offsets
from annotated_examples.common.constants import LOWEST


# ## Where does a key lie?
#
# Key j of a sequence lies in its page number j // page_size. The table says which page of the pool that is. Without a
# table, each sequence has a single page. Both offsets are 64 bits wide: a pool of pages is the largest tensor there is.
#
# A number in the table that isn't a page of the pool must never become an address. Past a sequence's last page such
# entries are normal, and they aren't even read.
@triton.jit
def rows_of_cache(table, b, offs_n, mask, pages):
    table_ptr, stride_tb, stride_tp = table
    num_pages, page_size = pages
    page, slot = tl.zeros_like(offs_n) + b, offs_n
    if table_ptr is not None:
        entries = b.to(tl.int64) * stride_tb + (offs_n // page_size).to(tl.int64) * stride_tp
        page = tl.load(table_ptr + entries, mask=mask, other=0)
        slot = offs_n % page_size
    return page, slot, (page >= 0) & (page < num_pages)


@triton.jit
def load_rows(cache, hk, page, slot, mask, D: tl.constexpr, BLOCK_D: tl.constexpr):
    ptr, stride_p, stride_s, stride_h, stride_d = cache
    ptr += tl.cast(hk, tl.int64) * stride_h
    columns = tl.arange(0, BLOCK_D)
    rows = ptr + page.to(tl.int64)[:, None] * stride_p
    mask = mask[:, None] & (columns < D)[None, :]
    return tl.load(rows + tile_offsets(slot, stride_s, stride_d, BLOCK_D), mask=mask, other=0.0)


# ## Which keys are mine?
#
# If a length is negative or longer than the cache, the result will be NaN. The keys that the window leaves are divided
# among the parts in whole tiles.
@triton.jit
def part_of_keys(length, capacity, left, split, num_splits, BLOCK_N: tl.constexpr):
    possible = (length >= 0) & (length <= capacity)
    length = tl.where(possible, length, 0)
    # In a short sequence the last parts get no keys.
    first = tl.maximum(length - 1 - left, 0)
    share = tl.cdiv(tl.cdiv(length - first, num_splits), BLOCK_N) * BLOCK_N
    start_n = first + split * share
    end_n = tl.minimum(start_n + share, length)
    return start_n, end_n, possible


# ## Merging the parts
#
# One program per query head. Each part is already a mean of values; its weight is its share of the whole sum,
# [[tag: AT-parts]]. A sink is a part without values.
@triton.jit
def decode_merge_kernel(
    parts_ptr, lse_ptr,  # (B, H, num_splits, D) and (B, H, num_splits)
    sinks_ptr, o_ptr,  # (H,), or None; (B, H, D)
    H, num_splits, D: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    parts_ptr += row * num_splits * D
    lse_ptr += row * num_splits
    total_max, total = tl.full((), LOWEST, tl.float32), 0.0
    if sinks_ptr is not None:
        sink = tl.load(sinks_ptr + row % H).to(tl.float32)
        total_max = tl.maximum(sink, LOWEST)
        total = tl.exp(sink - total_max)
    acc = tl.zeros((BLOCK_D,), tl.float32)
    for start in tl.range(0, num_splits, BLOCK_S):
        offs_s = start + tl.arange(0, BLOCK_S)
        lse = tl.load(lse_ptr + offs_s, mask=offs_s < num_splits, other=-float("inf"))
        parts = load_tile((parts_ptr, D, 1), offs_s, num_splits, D, BLOCK_D)
        # The same step as in the loop over keys, and for the same reason: an empty part has −∞, and all parts may be
        # empty.
        new_max = tl.maximum(total_max, tl.max(lse, axis=0))
        weights = tl.exp(lse - new_max)
        alpha = tl.exp(total_max - new_max)
        total = total * alpha + tl.sum(weights, axis=0)
        acc = acc * alpha + tl.sum(weights[:, None] * parts, axis=0)
        total_max = new_max
    offs_d = tl.arange(0, BLOCK_D)
    tl.store(o_ptr + row * D + offs_d, acc / tl.where(total == 0.0, 1.0, total), mask=offs_d < D)


# ## How many parts?
#
# Enough programs to keep a large card busy, and of a full cache a few tiles for each. The number must not depend on the
# lengths: they are on the GPU, and reading them would mean waiting.
PROGRAMS = 512
SHORTEST_PART = 256


def default_splits(programs, capacity):
    """How many parts, given how many `programs` run without splitting, and the most keys a sequence can have."""
    return max(1, min(triton.cdiv(PROGRAMS, max(programs, 1)), triton.cdiv(capacity, SHORTEST_PART)))


# A tile of float32 numbers is twice as large as one of 16-bit numbers, so it has fewer keys.
def keys_of_tile(D, dtype):
    """How many keys a tile has, for heads of D numbers."""
    return (32 if D <= 64 else 16) if dtype == torch.float32 else (64 if D <= 128 else 32)


def capacity_of(cache, block_table):
    """The most keys a sequence can have."""
    return cache.shape[1] * (1 if block_table is None else block_table.shape[1])


# ## Arguments
#
# The cache is named as the caller names it, `k_cache=k_cache`, so that an error names the right argument. Its first two
# dimensions are sequences and keys, or pages and slots; what follows is up to the caller.
def cache_contract(q, lengths, block_table, num_splits, **cache):
    """Checks everything about the lengths, the pages and the parts."""
    [(name, rows)] = cache.items()
    checks.dtypes((torch.int32,), lengths=lengths, block_table=block_table)
    checks.shape("lengths", lengths, q.shape[:1], "one for each sequence")
    same_device(q=q, lengths=lengths, **cache)
    if block_table is not None:
        checks.dimensions("block_table", block_table, 2, "B, pages")
        checks.shape("block_table", block_table, (q.shape[0], block_table.shape[1]), "a row for each sequence")
        same_device(q=q, block_table=block_table)
    elif rows.shape[0] != q.shape[0]:
        raise ValueError(f"{name} must have the batch of q, {q.shape[0]}, got shape {tuple(rows.shape)}")
    if num_splits is not None:
        checks.whole_number("num_splits", num_splits, at_least=1, at_most=65_535)  # the grid's second axis ends there
    if checks.looks_at_values():
        check_values(rows, lengths, block_table)


# Looking at lengths and pages means waiting for the GPU. So this check runs on the CPU, and on a GPU on request.
def check_values(cache, lengths, block_table):
    capacity, (num_pages, page_size) = capacity_of(cache, block_table), cache.shape[:2]
    for b, length in enumerate(lengths.tolist()):
        if not 0 <= length <= capacity:
            raise ValueError(f"lengths must be in [0, {capacity}], got {length} in row {b}")
        if block_table is not None and length:
            pages = block_table[b, : -(-length // page_size)]
            if pages.min() < 0 or pages.max() >= num_pages:
                raise ValueError(f"block_table must hold pages in [0, {num_pages}), got {pages.tolist()} in row {b}")
