r"""
# What the fast attention kernels share

Tiles that the TMA fetches, the stretches of keys that need a mask and those that need none, and the sizes
of tiles.
"""

from academy.runtime import checks
from academy.runtime.launch import Tiles

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from annotated_examples.common.attention import OPEN


# ## A tile by descriptor
#
# Since Hopper each SM has a TMA unit. A load names the corner of a tile, and the unit fetches the whole of it: no
# thread computes an address. Past the end of the tensor it delivers zeros. But where sequences are packed, the next
# sequence begins there. Its rows may hold anything, NaN too, and 0 · NaN is NaN. So a tile that crosses the end of its
# sequence has them replaced by zeros.
@triton.jit
def load_rows(desc, b, h, start, row, length, CLEAR: tl.constexpr, ROWS: tl.constexpr, BLOCK_D: tl.constexpr, column=0):
    tile = tl.reshape(desc.load([b, h, start + row, column]), (ROWS, BLOCK_D))
    if CLEAR:
        tile = tl.where((row + tl.arange(0, ROWS) < length)[:, None], tile, 0.0)
    return tile


# ## The keys that need a mask
#
# A row sees the keys from `first` up to `last`, not included. Without a window there is one comparison fewer per score.
@triton.jit
def seen(offs_n, first, last, WINDOW: tl.constexpr):
    mask = offs_n < last
    if WINDOW:
        mask &= offs_n >= first
    return mask


# A tile of queries is at the positions from `low` to `high`. Which keys do some of them see, and which keys do all of
# them see? The keys in between are full: every score counts, and no mask is needed. `end` is where the last query's
# keys end, which may be anywhere. The other three are multiples of the tile, unless `end` cuts them off.
@triton.jit
def key_ranges(low, high, S, window, BLOCK_N: tl.constexpr):
    left, right = window
    begin = tl.maximum(low - left, 0) // BLOCK_N * BLOCK_N
    end = tl.maximum(tl.minimum(high + right + 1, S), begin)
    full_begin = tl.minimum(tl.cdiv(tl.maximum(high - left, 0), BLOCK_N) * BLOCK_N, end)
    full_end = tl.maximum(tl.minimum(low + right + 1, S), 0) // BLOCK_N * BLOCK_N
    return begin, full_begin, tl.maximum(full_end, full_begin), end


# ## Sizes of tiles
class TileSizes(NamedTuple):
    """BLOCK_M queries by BLOCK_N keys; STAGES: how many tiles the loop keeps in shared memory."""

    BLOCK_M: int
    BLOCK_N: int
    STAGES: int
    num_warps: int


# Programs that run at the same time read the keys and values of a few heads, or their queries and upstream gradients.
# These should stay in the L2 cache. For up to 8 heads we count on 2²⁵ bytes of it, 32 of an H100's 50 MiB and of an
# H200's 60. Of short sequences more heads are done at a time, up to 32 of 2²³ bytes together: then programs that run at
# the same time have tiles of nearly the same length. Forward that saves 3 to 4 % of the time, with 16 x 16 causal heads
# of 1024 tokens and 64 numbers on an H200. A power of two, so that few kernels are compiled.
def heads_at_a_time(rows, q):
    bytes_of_a_head = 2 * max(rows, 1) * q.shape[-1] * q.element_size()
    heads = max(min(2**25 // bytes_of_a_head, 8), min(2**23 // bytes_of_a_head, 32), 1)
    return 1 << heads.bit_length() - 1


def constants(table, q, options, BLOCK_M, BLOCK_N, rows):
    """Everything that is known when a kernel is compiled: the tiles that were asked for, or the best ones, and options.
    Scaling a score and subtracting from it are one instruction, which a compiler may have to be asked for.

    table: TileSizes for heads of up to 64 and of up to 128 numbers. rows: how many rows a program's loop reads at most.
    """
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N)
    D = q.shape[-1]
    best = table[64 if D <= 64 else 128]
    tiles = dict(BLOCK_M=BLOCK_M or best.BLOCK_M, BLOCK_N=BLOCK_N or best.BLOCK_N, STAGES=best.STAGES)
    return tiles | dict(
        softcap=options.softcap, D=D, BLOCK_D=max(16, triton.next_power_of_2(D)), WINDOW=options.left != OPEN,
        HEADS=heads_at_a_time(rows, q), num_warps=best.num_warps, num_stages=best.STAGES, enable_fp_fusion=True,
    )  # fmt: skip


# ## What a descriptor can describe
#
# An address and strides that are multiples of 16 bytes, and a last dimension without gaps. Along a dimension of one
# element nothing ever takes a step, so its stride doesn't matter.
ALIGNMENT = 16


def fits(x):
    """Whether a descriptor can describe this tensor of 16-bit numbers."""
    step = ALIGNMENT // x.element_size()
    strides_fit = all(size == 1 or stride > 0 and stride % step == 0 for size, stride in zip(x.shape, x.stride()[:-1]))
    return x.dtype != torch.float32 and x.stride(-1) == 1 and strides_fit and x.data_ptr() % ALIGNMENT == 0


# The tensor itself, or a copy that lies so. (`contiguous()` makes none of a contiguous tensor at an odd address.)
def fitting(x):
    return x if fits(x) else x.clone(memory_format=torch.contiguous_format)


def can_describe(options, *tensors):
    """Whether the fast kernels can take this call."""
    return options.scale > 0 and all(x.numel() and x.shape[-1] <= 128 and fits(x) for x in tensors)


def describe(x, rows, BLOCK_D):
    """A descriptor of x, (B, H, T, D), that loads tiles of `rows` tokens of one head."""
    step = ALIGNMENT // x.element_size()
    steps = [step if size == 1 else stride for size, stride in zip(x.shape, x.stride()[:-1])]
    return Tiles(x, tuple(x.shape), (*steps, 1), (1, 1, rows, BLOCK_D))
