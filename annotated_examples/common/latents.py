r"""
# Latents that are keys and values

What the kernels share that read [latents](../attention/mla_decode.py): a row holds a latent of up to 512 numbers and a
rotated part of up to 64. Both make the score of a key, and the latent is its value.
"""

from academy.runtime import checks, device  # before anything imports triton

import torch
import triton
import triton.language as tl

from annotated_examples.common.attention import load_tile, scale_and_cap, store_tile
from annotated_examples.common.paged import PROGRAMS, default_splits
from annotated_examples.common.products import multiply_add, rows_by_rows


# ## A score is a sum of two products
#
# Neither tile is as wide as both parts together: the width of a tile is a power of two, and 512 + 64 columns would
# take 1024. The result has a row for each row of `a` and a column for each row of `b`: queries come first where rows
# are queries, and keys come first where rows are keys. So nothing that was just computed has to be transposed.
@triton.jit
def latent_scores(a, a_pe, b, b_pe, scale, INPUT_PRECISION: tl.constexpr):
    # Up to 512 columns, which float32 has to sum in parts.
    s = rows_by_rows(a, b, INPUT_PRECISION)
    s, _ = scale_and_cap(multiply_add(a_pe, tl.trans(b_pe), s, INPUT_PRECISION), scale, 0.0)
    return s


# The same of two products that are added at the end, for [decoding](../attention/mla_decode.py), where neither product
# may lead to another one.
@triton.jit
def scores_apart(a, a_pe, b, b_pe, scale, INPUT_PRECISION: tl.constexpr):
    s = tl.fma(rows_by_rows(a_pe, b_pe, INPUT_PRECISION), 1.0, rows_by_rows(a, b, INPUT_PRECISION))
    s, _ = scale_and_cap(s, scale, 0.0)
    return s


# The two tiles of some rows of a matrix. The second one begins R columns further.
@triton.jit
def load_parts(
    matrix, rows, length, R: tl.constexpr, E: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_E: tl.constexpr
):  # fmt: skip
    latent = load_tile(matrix, rows, length, R, BLOCK_R)
    return latent, load_tile(rotated_part(matrix, R), rows, length, E, BLOCK_E)


@triton.jit
def rotated_part(matrix, R: tl.constexpr):
    ptr, stride_t, stride_d = matrix
    return ptr + tl.cast(stride_d, tl.int64) * R, stride_t, stride_d


@triton.jit
def store_parts(
    matrix, latent, rotated, rows, length, R: tl.constexpr, E: tl.constexpr, BLOCK_R: tl.constexpr,
    BLOCK_E: tl.constexpr,
):  # fmt: skip
    store_tile(matrix, latent, rows, length, R, BLOCK_R)
    store_tile(rotated_part(matrix, R), rotated, rows, length, E, BLOCK_E)


# ## Sizes of tiles
#
# A tile of latents is wide, so it has few keys.
def default_tiles(rows, rank, dtype, index):
    """(BLOCK_M, BLOCK_N, num_warps, num_stages) for so many rows of queries."""
    BLOCK_M = min(max(16, triton.next_power_of_2(rows)), 16 if dtype == torch.float32 else 64)
    narrow, room = rank <= 128, device.shared_memory(index)
    if dtype == torch.float32 or not narrow and room < 2**17:
        return 16, 16, 4, 1
    # Two stages of 64 wide keys beside 64 queries take 216 KB: a Hopper card has them, and waits less with them.
    many = narrow or BLOCK_M == 64 and room >= 227 * 2**10
    return BLOCK_M, 64 if many else 32, 4 if narrow or BLOCK_M < 64 else 8, 2


# ## Parts of the keys, when a token is decoded
#
# A program of 8 warps has an SM for itself, and a Hopper card has 132. So programs run in waves of 132, and a wave
# takes as long as one of its programs: its tiles of keys, and about 6 tiles' time more, in which it loads its queries,
# stores its part and has it merged. One sequence of 65536 keys with 128 heads took
# [[bench: mla_decode/ladder/many parts/forward_ms]] in 256 parts, and in 64
# [[bench: mla_decode/ladder/one wave/forward_ms]]. Of the numbers that fill up to four waves the best one is taken.
#
# Smaller programs share an SM, and where one waits another works. So there should be many, as where
# [keys and values are read](paged.py); even a short list is divided into 32 parts.
SMS, AROUND_A_PART = 132, 6


def latent_splits(programs, keys, BLOCK_N, num_warps):
    """How many parts, given how many `programs` run without splitting, and the most keys a sequence can have."""
    tiles, programs = max(1, triton.cdiv(keys, BLOCK_N)), max(programs, 1)
    if num_warps < 8:
        return max(default_splits(programs, keys), min(triton.cdiv(PROGRAMS, programs), triton.cdiv(keys, 64), 32))
    choices = [max(1, min(waves * SMS // programs, tiles)) for waves in range(1, 5)]
    return min(choices, key=lambda n: triton.cdiv(programs * n, SMS) * (triton.cdiv(tiles, n) + AROUND_A_PART))


# A short list of one token makes less than half as many programs, even in parts of a single tile. With 16 heads in a
# tile there are four times as many. Who says how many parts there are wants the same bits in any batch, and gets the
# same tiles in any: another size adds up in another order.
def decode_tiles(lists, rows, keys, num_splits, rank, dtype, index):
    """As `default_tiles`, for so many lists of keys, each for so many rows of queries."""
    few = num_splits is None and 2 * lists * triton.cdiv(rows, 64) * triton.cdiv(keys, 64) < SMS
    return default_tiles(min(rows, 16) if few else rows, rank, dtype, index)


# The widths of tiles: powers of two, of which the product needs 16 at least.
def widths(W, rank):
    sizes = {"R": rank, "E": W - rank}
    return sizes | {f"BLOCK_{name}": max(16, triton.next_power_of_2(size)) for name, size in sizes.items()}


# ## Arguments
LARGEST_RANK, LARGEST_ROTATED = 512, 64


def latent_contract(q, rank, scale):
    """Checks the width of the rows of q, the rank and the scale, and returns the scale."""
    W = q.shape[-1]
    checks.whole_number("rank", rank, at_least=1, at_most=LARGEST_RANK)
    if not 0 <= W - rank <= LARGEST_ROTATED:
        raise ValueError(f"q must have {rank} to {rank + LARGEST_ROTATED} columns with rank={rank}, got {W}")
    checks.number("scale", scale)
    return float(scale)
