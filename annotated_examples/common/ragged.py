r"""
# Rows of one expert, fetched by the TMA unit

Since Hopper the TMA unit copies whole tiles by itself, see [the fast product](../fast/matmul.py). It reads zeros
outside of a matrix, and writes nothing there. But the rows of an expert end in the middle of a matrix, and the next
expert's follow. Where does a tile have to stop? Only the offsets say, in the GPU's memory, and these descriptors are
made by Python before the launch.

What the fast versions of the lessons on experts share stands here: a descriptor that stops at any row, which a kernel
names when it copies, and a table of all tiles.
"""

from academy.runtime import device  # noqa: F401  before anything imports triton
from academy.runtime.launch import Tiles, cdiv, launch

import torch
import triton
import triton.language as tl

# ## A matrix that ends where the kernel says
#
# The unit checks each coordinate against a size, and it adds up coordinates times strides for the address. Both have to
# be fixed before the launch, but nothing says that they belong to the same matrix. So the rows get a size that is far
# too large, `FAR = 2³⁰`, and a kernel counts them from *that* end: the last row of an expert is row `FAR - 1`, and what
# comes after it is outside.
#
# Then the address is too large by the rows that were added, `FAR - end` of them. Two more dimensions, in each of which
# a tile has one element, undo that. The second has the stride of a row, and the coordinate `end`. The first has the
# coordinate `FAR`, and the stride `2³⁴` less a row: together that adds `2⁶⁴` elements less `FAR` rows. Addresses have
# 64 bits. So `2⁶⁴` is nothing, and what is left is the row that was meant.
#
# (The idea is that of `triton.tools.ragged_tma`, which isn't made for the interpreter.)
FAR = tl.constexpr(2**30)
MOST_ROWS = FAR.value
LARGEST = 2**31 - 2**16


def ragged(x, tile):
    """The `Tiles` of a matrix, (R, C), whose rows belong to experts: for `load_rows` and `store_rows`."""
    (_, columns), row = x.shape, x.stride(0)
    return Tiles(x, (LARGEST, LARGEST, MOST_ROWS, columns), (2**34 - row, row, row, 1), (1, 1, *tile))


# A tile's first row, where its expert's rows end, and its first column. Rows from `end` on arrive as zeros. With an
# `end` that isn't past `first`, all of them do.
@triton.jit
def load_rows(desc, first, end, column):
    tile = desc.load([FAR, end, FAR - end + first, column])
    shape: tl.constexpr = (tile.shape[2], tile.shape[3])
    return tile.reshape(shape)


# Rows from `end` on aren't written.
@triton.jit
def store_rows(desc, block, first, end, column):
    shape: tl.constexpr = (1, 1, block.shape[0], block.shape[1])
    desc.store([FAR, end, FAR - end + first, column], block.to(desc.dtype).reshape(shape))


# A tile leaves in two halves of its columns, as in [the fast product](../fast/matmul.py): so it needs half the room in
# shared memory.
@triton.jit
def in_halves(block):
    rows: tl.constexpr = block.shape[0]
    half: tl.constexpr = block.shape[1] // 2
    left, right = tl.split(tl.permute(tl.reshape(block, (rows, 2, half)), (0, 2, 1)))
    return left, right


# ## A matrix for each expert
#
# The expert's number is a coordinate of its own. So a tile that reaches over the edge of its matrix gets zeros there,
# and nothing of the next one. An expert that doesn't exist has a matrix of zeros.
def stacked(w, tile):
    """The `Tiles` of (E, K, N), whose last stride is 1."""
    return Tiles(w, tuple(w.shape), tuple(w.stride()), (1, *tile))


@triton.jit
def load_matrix(desc, expert, row, column):
    tile = desc.load([expert, row, column])
    shape: tl.constexpr = (tile.shape[1], tile.shape[2])
    return tile.reshape(shape)


@triton.jit
def store_matrix_in_halves(desc, block, expert, row, column):
    left, right = in_halves(block)
    shape: tl.constexpr = (1, left.shape[0], left.shape[1])
    desc.store([expert, row, column], left.to(desc.dtype).reshape(shape))
    desc.store([expert, row, column + left.shape[1]], right.to(desc.dtype).reshape(shape))


# ## What a descriptor can describe
#
# 16-bit numbers, side by side in a row, and everything else at multiples of 16 bytes. Rows may not overlap.
def fits_rows(x):
    """Whether `ragged` can describe a matrix where it lies."""
    row, end = x.stride()
    aligned = end == 1 and row % 8 == 0 and row >= x.shape[1] and x.data_ptr() % 16 == 0
    return aligned and x.element_size() == 2 and 0 < len(x) <= MOST_ROWS and x.shape[1] > 0


def fits_matrices(w):
    """Whether `stacked` can describe (E, K, N) where it lies."""
    expert, row, end = w.stride()
    aligned = end == 1 and row % 8 == 0 and expert % 8 == 0 and w.data_ptr() % 16 == 0
    return aligned and w.element_size() == 2 and row >= w.shape[2] and expert > 0 and w.numel() > 0


# Rows that lie otherwise are copied: an upstream gradient that is one number everywhere, or a transposed matrix. That
# is a pass through memory, and still faster than pointers.
def as_rows(x):
    """`x`, or a copy that `ragged` can describe; None where a copy wouldn't help."""
    if fits_rows(x):
        return x
    if x.element_size() != 2 or x.shape[1] % 8 or not 0 < len(x) <= MOST_ROWS or not x.numel():
        return None
    return torch.empty(x.shape, dtype=x.dtype, device=x.device).copy_(x)


# ## A table of tiles
#
# [The lesson's programs](experts.py) walk along the offsets until they come to their tile. That is a chain of loads,
# each of which waits for the one before. A program that computes many tiles would walk again for each. So a small
# kernel writes down all tiles first: whose rows, the first one, and where they end. And how many tiles there are.
#
# Program e writes the lines of expert e, and one more program those of nobody's rows, expert `E`. How many lines come
# before, each adds up for itself: the offsets are few. `tl.associative_scan` with `larger` takes the largest offset so
# far, so offsets that run backwards can't make more tiles than there is room for. Python makes room for the most tiles
# that there can be, and lines that are left over get tiles without rows, which nobody asks for.
@triton.jit
def larger(x, y):
    return tl.maximum(x, y)


@triton.jit
def clamped(offsets_ptr, places, E, R):
    ends = tl.load(offsets_ptr + places, mask=(places >= 0) & (places < E), other=0).to(tl.int64)
    ends = tl.minimum(tl.maximum(tl.associative_scan(ends, 0, larger), 0), R)
    return tl.where(places < E, ends, R).to(tl.int32)


@triton.jit
def tiles_kernel(
    offsets_ptr, count_ptr, tiles_ptr,  # (E,), (1,), (most tiles, 3)
    R, E, most, BLOCK_M: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    expert = tl.program_id(0)
    experts = tl.arange(0, BLOCK_E)
    starts = clamped(offsets_ptr, experts - 1, E, R)
    ends = clamped(offsets_ptr, experts, E, R)
    counts = tl.where(experts <= E, tl.cdiv(ends - starts, BLOCK_M), 0)
    mine = experts == expert
    start = tl.sum(tl.where(mine, starts, 0), 0)
    end = tl.sum(tl.where(mine, ends, 0), 0)
    before = tl.sum(tl.where(experts < expert, counts, 0), 0)
    lines = tl.where(expert < E, tl.sum(tl.where(mine, counts, 0), 0), most - before)
    if expert == 0:
        tl.store(count_ptr, tl.sum(counts, 0))
    for number in range(0, lines, BLOCK):
        tile = number + tl.arange(0, BLOCK)
        mask = tile < lines
        tiles_ptrs = tiles_ptr + 3 * (before + tile)
        tl.store(tiles_ptrs, tl.zeros_like(tile) + expert, mask=mask)
        tl.store(tiles_ptrs + 1, start + tile * BLOCK_M, mask=mask)
        tl.store(tiles_ptrs + 2, tl.zeros_like(tile) + end, mask=mask)


def tiles_of_experts(offsets, R, BLOCK_M):
    """How many tiles there are, int32 (1,), and the table, int32 (the most that there can be, 3)."""
    E, device_of = len(offsets), offsets.device
    most = cdiv(R, BLOCK_M) + E
    count = torch.empty(1, dtype=torch.int32, device=device_of)
    tiles = torch.empty((most, 3), dtype=torch.int32, device=device_of)
    launch(
        tiles_kernel, (E + 1,), (offsets.contiguous(), count, tiles), (R, E, most),
        BLOCK_M=BLOCK_M, BLOCK_E=1 << E.bit_length(), BLOCK=128, num_warps=1 if E < 512 else 4,
    )  # fmt: skip
    return count, tiles


# A program asks for the tile of a row of tiles.
@triton.jit
def tile_of(tiles_ptr, number):
    line = tiles_ptr + 3 * number
    return tl.load(line), tl.load(line + 1), tl.load(line + 2)
