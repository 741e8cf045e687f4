r"""
# Matrix multiplication, fast

The product of [matmul_autotuned](../tutorials/matmul_autotuned.py), at many sizes about as fast as cuBLAS, the vendor's
library. At 4096 in each direction it takes [[bench: matmul_autotuned/4096x4096x4096/forward/ms]], cuBLAS
[[bench: matmul_autotuned/4096x4096x4096/forward/cuBLAS.ms]]. The library can apply a ReLU or a GELU on the way. For
other activations it needs a second kernel: with a `leaky_relu` it takes
[[bench: matmul_autotuned:leaky_relu/4096x4096x4096/forward/cuBLAS + leaky_relu.ms]], this file
[[bench: matmul_autotuned:leaky_relu/4096x4096x4096/forward/ms]].

[[eq: MM-Z]]

What is slow about the lesson's kernel? Its threads spend registers and time on addresses and masks. Each program begins
with a wait for its first loads, and ends with a store. Meanwhile its tensor cores have nothing to do.

**What it costs.** As in the lesson: `2 · M · N · K` operations, and at best the inputs and the result are moved once
each. A new shape is searched for, which takes seconds, unless its [last wave](#the-last-wave) is cut.

**Contract.** As the lesson's: any strides, any K, float32, float16 or bfloat16. float32, and matrices that no
descriptor can describe, are left to the lesson's kernel.
"""


# ## The ladder
#
# [[ladder: matmul]]


# ## The ladder of the backward pass
#
# Behind a ReLU, both gradients together.
#
# [[ladder: matmul_backward]]

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.launch import Tiles, cdiv, launch
from academy.runtime.replay import replayed

import functools
import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from annotated_examples.common.activations import ACTIVATIONS
from annotated_examples.common.products import Product, contract, opaque, product_gradients
from annotated_examples.common.tile_order import grouped_order
from annotated_examples.tutorials.matmul_autotuned import configuration, matmul_reference
from annotated_examples.tutorials.matmul_autotuned import matmul_forward as multiply_by_pointers


# ## Let the card copy the tiles
#
# Since Hopper a unit of the GPU, the tensor memory accelerator (TMA), copies a tile into shared memory by itself. A
# tensor descriptor tells it where the matrix lies; a load names the corner of a tile. Threads compute no addresses and
# need no masks: what lies outside is filled with zeros. The registers that held pointers are free for more sums.
# `a_desc.load([row, column])` loads the tile whose upper left corner is there, and `c_desc.store` stores one. The
# launcher makes the descriptor: `TensorDescriptor` takes a tensor, its shape and strides, and the shape of the tile.
# Here they are passed to [`launch`](../../docs/guides/what-a-call-costs.md) as `Tiles`, and it makes the descriptors
# that it hasn't cached.
#
# A transposed matrix is described as it is stored, and its tiles are transposed after the load. The tensor cores read
# both orders, so that costs nothing.
@triton.jit
def load_columns(b_desc, start_k, start_n, B_TRANSPOSED: tl.constexpr):
    if B_TRANSPOSED:
        b = b_desc.load([start_n, start_k]).T
    else:
        b = b_desc.load([start_k, start_n])
    return b


# The TMA can store only from shared memory, so a tile of sums has to go through it too. Stored in two halves it needs
# only half the room there, and the rest is left for loads. `tl.split` divides a last dimension of two. `tl.reshape` and
# `tl.permute` make it out of the left and the right half of the columns, as in PyTorch.
@triton.jit
def store_in_halves(desc, block, start_m, start_n):
    rows: tl.constexpr = block.shape[0]
    half: tl.constexpr = block.shape[1] // 2
    left, right = tl.split(tl.permute(tl.reshape(block, (rows, 2, half)), (0, 2, 1)))
    desc.store([start_m, start_n], left.to(desc.dtype))
    desc.store([start_m, start_n + half], right.to(desc.dtype))


# ## One program for each SM
#
# The kernel is **persistent**: there are only as many programs as the GPU has SMs, and each computes one
# tile after the other. `flatten` joins the loop over tiles and the loop along K, so that the next tile's loads are
# already in flight while this one is stored. The tensor cores don't wait for a first load at the start of each tile.
#
# [[figure: hardware/waves]]
#
# In the example C is 6 x 24, in 2 x 2 tiles of 4 x 16, and there are two programs.
#
# `WAVES`, `PIECES` and `OVERLAP` are for [the last wave](#the-last-wave), further below. There `gdc_launch_dependents`
# lets the next launch begin before this one has ended, and `gdc_wait` waits for the end of the one before.
@triton.jit
def matmul_descriptor_kernel(
    a_desc,  # of (M, K), or of its transpose (K, M)
    b_desc,  # of (K, N), or of its transpose (N, K)
    c_desc,  # of (M, N)
    z_desc,  # of (M, N)
    M, N, K, A_TRANSPOSED: tl.constexpr, B_TRANSPOSED: tl.constexpr, NUM_PROGRAMS: tl.constexpr, WAVES: tl.constexpr,
    PIECES: tl.constexpr, OVERLAP: tl.constexpr, ACTIVATION: tl.constexpr, SAVE_Z: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_n = tl.cdiv(N, PIECES * BLOCK_N)
    first, last = 0, num_pid_m * num_pid_n
    if WAVES == "whole":
        last = last // NUM_PROGRAMS * NUM_PROGRAMS
    elif WAVES == "last":
        first = last // NUM_PROGRAMS * NUM_PROGRAMS
    if OVERLAP:
        gdc_launch_dependents()
    for tile in tl.range(first * PIECES + tl.program_id(0), last * PIECES, NUM_PROGRAMS, flatten=True):
        # Program 1 begins with the tile at `pid=1: start_m = 4`, `pid=1: start_n = 0`, and comes to its second, at
        # `pid=1, tile=3: start_m = 4` and `pid=1, tile=3: start_n = 16`. Its last rows and columns lie outside of C. A
        # store through a descriptor stops at the edges automatically.
        pid_m, pid_n = grouped_order(tile // PIECES, num_pid_m, num_pid_n, GROUP_M)
        start_m = pid_m * BLOCK_M
        start_n = (pid_n * PIECES + tile % PIECES) * BLOCK_N
        # [[tag: MM-Z]]. A tile of `a` may have to be transposed, too. The inputs are 16-bit here, so the sum needs no
        # `multiply_add`.
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, tl.cdiv(K, BLOCK_K)):
            start_k = k * BLOCK_K
            if A_TRANSPOSED:
                a = a_desc.load([start_k, start_m]).T
            else:
                a = a_desc.load([start_m, start_k])
            b = load_columns(b_desc, start_k, start_n, B_TRANSPOSED)
            acc = tl.dot(a, b, acc)
        store_in_halves(c_desc, ACTIVATION(acc), start_m, start_n)
        if SAVE_Z:
            store_in_halves(z_desc, acc, start_m, start_n)
    if OVERLAP:
        gdc_wait()


# A descriptor has to know the tile's shape, which depends on the configuration. A `pre_hook` is called with all
# arguments of the launch, before each trial and before each real run.
def tile_shapes(arguments):
    """The shapes of a tile of A, of B and of the result."""
    rows, columns, inner = (arguments[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K"))
    b_shape = [columns, inner] if arguments["B_TRANSPOSED"] else [inner, columns]
    if "PHASES" in arguments:  # the other kernel of this file, further below
        return [1, rows, inner], b_shape, [1, rows, columns]
    return [inner, rows] if arguments["A_TRANSPOSED"] else [rows, inner], b_shape, [rows, columns // 2]


def set_block_shapes(arguments):
    a_shape, b_shape, c_shape = tile_shapes(arguments)
    for name, shape in dict(a_desc=a_shape, b_desc=b_shape, c_desc=c_shape, z_desc=c_shape).items():
        if arguments[name] is not None:
            arguments[name].block_shape = shape


# What to try, with groups of 4 to 32 rows of tiles. Stages are limited by shared memory, of which a program may have
# 227 KB: a step along K of 128 x 256 tiles takes 48 KB. Small tiles take longer steps: each has to wait for its copies.
#
# The last five are for few rows. Then the product is as fast as B arrives from memory, and what counts is how many
# bytes are on their way at any time. Tiles of 16 rows leave nearly all of the shared memory to B: at 16 x 8192 x 8192
# each of 128 programs waits for 128 KB of it at once. Tensor cores could do more than these 16 rows in that time.
DESCRIPTOR_CONFIGURATIONS = [
    configuration(128, 128, 64, 8, 8, 4, set_block_shapes),
    configuration(128, 256, 64, 8, 8, 3, set_block_shapes),
    configuration(128, 256, 64, 32, 8, 3, set_block_shapes),
    configuration(128, 256, 64, 16, 8, 4, set_block_shapes),
    configuration(128, 256, 64, 4, 8, 4, set_block_shapes),
    configuration(256, 128, 64, 8, 8, 3, set_block_shapes),
    configuration(128, 128, 64, 8, 4, 3, set_block_shapes),
    configuration(64, 128, 64, 8, 4, 4, set_block_shapes),
    configuration(64, 64, 64, 8, 4, 4, set_block_shapes),
    configuration(64, 64, 128, 8, 4, 3, set_block_shapes),
    configuration(64, 128, 128, 8, 4, 4, set_block_shapes),
    configuration(64, 256, 64, 8, 4, 4, set_block_shapes),
    configuration(64, 64, 256, 8, 4, 3, set_block_shapes),
    configuration(16, 64, 256, 8, 4, 5, set_block_shapes),
    configuration(16, 128, 128, 8, 4, 5, set_block_shapes),
    configuration(16, 128, 256, 8, 4, 3, set_block_shapes),
    configuration(16, 32, 512, 8, 4, 4, set_block_shapes),
]


# No need to try what can't win: tiles of 16 rows for many rows, or of 128 for few. Or anything but groups of 32 for the
# logits of a vocabulary: with 8192 rows groups of 8 read the weights 8 times, these twice. A search, whose trials
# leave the card cool, chose what takes [[bench: matmul_autotuned/ladder/vocabulary, as searched for/vocabulary_ms]].
# These take [[bench: matmul_autotuned/ladder/vocabulary, groups of 32/vocabulary_ms]], and cuBLAS
# [[bench: matmul_autotuned/ladder/vocabulary, cuBLAS/vocabulary_ms]].
def with_fitting_rows(configurations, arguments, **options):
    rows, columns = arguments["M"], arguments["N"]
    if rows >= 4096 and rows * columns >= 2**29:
        return [c for c in configurations if c.kwargs["GROUP_M"] == 32]
    tallest, lowest = (16, 16) if rows <= 32 else (64, 64) if rows <= 64 else (256, 64)
    return [c for c in configurations if lowest <= c.kwargs["BLOCK_M"] <= tallest]


# ## A search for each order of storage
#
# The key includes the storage orders, as the lesson's includes the strides. With square matrices the three products of
# a training step have the same M, N and K, but the best tiles for the first may not be the best for the others. When
# the choice for the forward pass served all three, the backward pass at 2048 in each direction took
# [[bench: matmul_autotuned/ladder/one search for all layouts/backward_of_2048_ms]] on one day and
# [[bench: matmul_autotuned/ladder/one search, another day/backward_of_2048_ms]] on another. With a search for each it
# takes [[bench: matmul_autotuned:backward/2048x2048x2048/backward/ms]], cuBLAS
# [[bench: matmul_autotuned:backward/2048x2048x2048/backward/cuBLAS.ms]]. The price is three searches for such a step
# instead of one.
SIZES = ["M", "N", "K"]
tuned_descriptor_kernel = device.autotune(
    DESCRIPTOR_CONFIGURATIONS, key=[*SIZES, "A_TRANSPOSED", "B_TRANSPOSED"],
    prune_configs_by=dict(early_config_prune=with_fitting_rows),
)(matmul_descriptor_kernel)  # fmt: skip


# ## The last wave
#
# At 3072 in each direction C has 24 x 12 tiles of 128 x 256. These are two waves of 132 and 24 tiles more, which take
# as long as a whole wave, because 108 SMs have nothing to do. So the large tiles are used for whole waves
# only (`WAVES` is "whole"). A second launch of the same kernel computes what is left (`WAVES` is "last"): it cuts each
# of these tiles into two or four `PIECES`, so that more SMs share the work. In pieces of 128 x 64 the 24
# tiles are 96. A piece takes more than a quarter of the time of its tile, though, because small tiles use the tensor
# cores worse, and the second launch has to fill its buffers anew.
#
# The pieces don't depend on what the first launch computes. Usually a launch begins when all programs before it have
# ended. `gdc_launch_dependents` says that the next one may begin as soon as there is room, if it was launched with
# `launch_pdl` (programmatic dependent launch). So an SM that is done with its tiles takes a piece at once.
# At its end each piece waits for the first launch, `gdc_wait`: whatever comes next relies on all of C.
#
# On an H200 it pays for 1 to 10 whole waves and sums of some 2000 terms and more. Elsewhere the search decides.
WHOLE_WAVES = configuration(128, 256, 64, 8, 8, 4)
PIECES = {2: configuration(128, 128, 64, 8, 4, 4), 4: configuration(128, 64, 128, 8, 4, 4)}


def pieces_of_the_last_wave(M, N, K, programs):
    """Into how many pieces to cut each tile of the last wave: 2 or 4, or 1 if that doesn't pay."""
    waves, rest = divmod(cdiv(M, 128) * cdiv(N, 256), programs)
    possible = [pieces for pieces in PIECES if 0 < rest * pieces <= programs]
    return max(possible, default=1) if 1 <= waves <= 10 and K >= 2048 else 1


def options_of(configuration):
    return dict(configuration.kwargs, num_warps=configuration.num_warps, num_stages=configuration.num_stages)


# ## Rows that begin inside a cache line
#
# Caches store memory in lines of 128 bytes. At 1000 x 3000 x 5000 a row of `a` has 10000 bytes: 78 lines and 16 bytes.
# So each row begins 16 bytes further into a line than the one before it. A tile is one line wide, 64 numbers. But in
# seven of eight rows these lie in two lines. The L2 cache looks up nearly twice as many lines as it delivers, and at
# this shape the tensor cores wait for it.
#
# Every eighth row has the same alignment, though. This kernel takes a tile's rows from one of these **phases**: rows 3,
# 11, 19 … It starts along K not at column 0 but at the beginning of the line that contains it. From there on, every
# copy consists of whole lines. What lies to the left of the matrix is filled with zeros, as on the right.
#
# Nothing has to be rearranged in memory for that. A descriptor with three dimensions presents the same memory as one
# matrix per phase.
#
# The tiles are smaller, too. Of tiles of 128 x 256, C has 8 x 12. An H200 has 132 SMs, so 36 of them would
# have nothing to do. With 192 columns there are 8 x 16 tiles. As 192 isn't a power of two, a program keeps three
# accumulators side by side, each `BLOCK_N` columns wide.
@triton.jit
def store_three(desc, left, middle, right, phase, start_m, start_n):
    width: tl.constexpr = left.shape[1]
    shape: tl.constexpr = (1, left.shape[0], width)
    desc.store([phase, start_m, start_n], left.to(desc.dtype).reshape(shape))
    desc.store([phase, start_m, start_n + width], middle.to(desc.dtype).reshape(shape))
    desc.store([phase, start_m, start_n + 2 * width], right.to(desc.dtype).reshape(shape))


@triton.jit
def matmul_interleaved_kernel(
    a_desc,  # of (PHASES, M // PHASES, K)
    b_desc,  # of (K, N), or of its transpose (N, K)
    c_desc,  # of (PHASES, M // PHASES, N)
    z_desc,  # of (PHASES, M // PHASES, N)
    M, N, K, stride_am, PHASES: tl.constexpr, LINE: tl.constexpr, B_TRANSPOSED: tl.constexpr, ACTIVATION: tl.constexpr,
    SAVE_Z: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    # The phases alternate from one row of tiles to the next. The example's `a` has 4 rows of 96 numbers, a line and a
    # half each, so there are two phases of two rows.
    num_pid_m = tl.cdiv(M // PHASES, BLOCK_M) * PHASES
    num_pid_n = tl.cdiv(N, 3 * BLOCK_N)
    pid_m, pid_n = grouped_order(tl.program_id(0), num_pid_m, num_pid_n, GROUP_M)
    phase = pid_m % PHASES
    start_m = pid_m // PHASES * BLOCK_M
    start_n = pid_n * 3 * BLOCK_N
    # The first row of a phase is row number `phase` of `a`. It begins `skew` numbers after the start of a line: for the
    # rows 0 and 2 `pid=0: skew = 0`, for 1 and 3 `pid=1: skew = 32`.
    skew = phase * (stride_am % LINE) % LINE

    # [[tag: MM-Z]]. One tile of `a` serves all three sums. The copy itself drops the first dimension, of size 1: the
    # tile arrives in the layout that the tensor cores need. Program 1 starts left of the matrix, at
    # `pid=1, k=0: start_k = -32`, and goes on at the start of the next line, `pid=1, k=1: start_k = 32`.
    left = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    middle = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    right = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K + skew, BLOCK_K)):
        start_k = k * BLOCK_K - skew
        a = a_desc.load([phase, start_m, start_k]).reshape((BLOCK_M, BLOCK_K))
        left = tl.dot(a, load_columns(b_desc, start_k, start_n, B_TRANSPOSED), left)
        middle = tl.dot(a, load_columns(b_desc, start_k, start_n + BLOCK_N, B_TRANSPOSED), middle)
        right = tl.dot(a, load_columns(b_desc, start_k, start_n + 2 * BLOCK_N, B_TRANSPOSED), right)
    store_three(c_desc, ACTIVATION(left), ACTIVATION(middle), ACTIVATION(right), phase, start_m, start_n)
    if SAVE_Z:
        store_three(z_desc, left, middle, right, phase, start_m, start_n)


INTERLEAVED_CONFIGURATIONS = [
    configuration(128, 64, 64, 4, 4, 4, set_block_shapes),
    configuration(128, 64, 64, 1, 4, 4, set_block_shapes),
    configuration(128, 64, 64, 2, 4, 4, set_block_shapes),
]
tuned_interleaved_kernel = device.autotune(INTERLEAVED_CONFIGURATIONS, key=[*SIZES, "B_TRANSPOSED"])(
    matmul_interleaved_kernel
)


# At this shape the lesson takes [[bench: matmul_autotuned/1000x3000x5000/forward/lesson.ms]]: the stride of 5000 isn't
# a multiple of 16, so its threads load every number of `a` separately. This kernel takes
# [[bench: matmul_autotuned/1000x3000x5000/forward/ms]], cuBLAS
# [[bench: matmul_autotuned/1000x3000x5000/forward/cuBLAS.ms]]. Both ideas were needed. Narrower tiles alone gained
# nothing: they read more, and the cache was the limit. Interleaving alone left a quarter of the SMs idle.
# Two other attempts failed: copying `a` into padded rows first cost more than it gained, and dividing K among the
# programs, so that all are busy, lost more in adding up the parts than it gained.


# ## What a descriptor can describe
#
# How to multiply depends on how the matrices lie in memory and on nothing else: `Stored` says that of one.
class Stored(NamedTuple):
    shape: tuple
    strides: tuple
    dtype: torch.dtype
    address: int  # in bytes, from the beginning of a cache line


def stored(x):
    return Stored(x.shape, x.stride(), x.dtype, x.data_ptr() % (2 * LINE))


# One stride must be 1, the other a multiple of 16 bytes, and so must the address. Rows may not overlap. The result is
# None if only pointers will do. float32 is left to the kernel that can multiply it in full precision.
def storage_order(x):
    rows, columns = x.shape
    stride_row, stride_column = x.strides
    if x.dtype == torch.float32 or rows == 0 or columns == 0 or x.address % 16:
        return None
    if stride_column == 1 and stride_row >= columns and stride_row % 8 == 0:
        return "rows"
    if stride_row == 1 and stride_column >= rows and stride_column % 8 == 0:
        return "columns"
    return None


def described(x, order):
    """Shape and strides for the descriptor of a matrix in this order."""
    (rows, columns), (stride_row, stride_column) = x.shape, x.strides
    return ((columns, rows), (stride_column, 1)) if order == "columns" else ((rows, columns), (stride_row, 1))


# A cache line holds 64 of the 16-bit numbers. If 64 divides the stride, all rows have the same alignment within a line;
# otherwise there are up to eight different ones.
LINE = 64


def row_phases(x):
    """How many different alignments within a cache line the rows of the 16-bit matrix `x` have: 1, 2, 4 or 8."""
    return LINE // math.gcd(x.strides[0], LINE)


def described_by_phases(x, phases):
    (rows, columns), stride = x.shape, x.strides[0]
    return (phases, rows // phases, columns), (stride, phases * stride, 1)


def can_interleave(a, a_order):
    return a_order == "rows" and a.shape[0] % row_phases(a) == 0


@functools.cache
def multiprocessors(device_index):
    """How many SMs the GPU has, or 0 if it has no TMA. The interpreter counts as a GPU with two."""
    if device.INTERPRET:
        return 2
    properties = torch.cuda.get_device_properties(device_index)
    return properties.multi_processor_count if properties.major >= 9 else 0


@functools.cache
def can_overlap(device_index):
    return device.has("gluon", device_index)


# ## Which kernel?
#
# Descriptors where possible. Does interleaving pay? A product is done when the busiest SM has computed all
# of its tiles. Tiles with 192 columns reuse less than wider ones. So they have to give that SM considerably
# less to do than tiles with 256, and no more than tiles with 128. Where all rows begin with a line, there is nothing to
# interleave, and pieces in the last wave are faster than narrower tiles.
def interleaving_pays(M, N, phases, programs):
    def columns_of_the_busiest(width, rows):
        return cdiv(rows * cdiv(N, width), programs) * width

    whole, interleaved = cdiv(M, 128), phases * cdiv(M // phases, 128)
    columns = columns_of_the_busiest(192, interleaved)
    return columns <= 0.8 * columns_of_the_busiest(256, whole) and columns <= columns_of_the_busiest(128, whole)


# That is decided once for two matrices that lie like this: a small product shouldn't wait for Python to work out the
# same plan again. The tile that comes with it is a placeholder until the search has chosen; then `set_block_shapes`
# replaces it.
class Plan(NamedTuple):
    kernel: object
    tuned_kernel: object
    a: tuple  # shape, strides and tile for the descriptor of A, and so on
    b: tuple
    c: tuple
    grid: object
    numbers: tuple
    options: dict
    pieces: int = 1


def plan_descriptors(a, b, a_order, b_order, programs, pieces):
    (M, K), N = a.shape, b.shape[1]
    tile = (16, 16)

    def grid(tiles):
        count = cdiv(M, tiles["BLOCK_M"]) * cdiv(N, tiles["PIECES"] * tiles["BLOCK_N"])
        if tiles["WAVES"] == "last":
            count = count % programs * tiles["PIECES"]
        return (min(programs, count),)

    return Plan(
        matmul_descriptor_kernel, tuned_descriptor_kernel,
        (*described(a, a_order), tile), (*described(b, b_order), tile), ((M, N), (N, 1), tile),
        grid, (M, N, K),
        dict(
            A_TRANSPOSED=a_order == "columns", B_TRANSPOSED=b_order == "columns", NUM_PROGRAMS=programs,
            WAVES="all", PIECES=1, OVERLAP=False,
        ),
        pieces,
    )  # fmt: skip


def plan_interleaved(a, b, b_order):
    (M, K), N, phases, tile = a.shape, b.shape[1], row_phases(a), (1, 16, 16)
    return Plan(
        matmul_interleaved_kernel, tuned_interleaved_kernel,
        (*described_by_phases(a, phases), tile), (*described(b, b_order), (16, 16)),
        ((phases, M // phases, N), (N, phases * N, 1), tile),
        lambda tiles: (phases * cdiv(M // phases, tiles["BLOCK_M"]) * cdiv(N, 3 * tiles["BLOCK_N"]),),
        (M, N, K, a.strides[0]),
        dict(PHASES=phases, LINE=LINE, B_TRANSPOSED=b_order == "columns"),
    )  # fmt: skip


@functools.lru_cache(1024)
def plan(a, b, programs, interleaved, pieces):
    """How to multiply two matrices that are `Stored` like this by descriptors, or None where only pointers will do.

    interleaved: whether to interleave, None to choose. pieces: of each tile of the last wave, None to choose.
    """
    (M, K), N = a.shape, b.shape[1]
    a_order, b_order = storage_order(a), storage_order(b)
    if not (a_order and b_order and programs and N % 8 == 0):
        return None
    if interleaved and not can_interleave(a, a_order):
        raise ValueError("interleaving needs rows of a, as many of them in each phase")
    pieces = pieces or pieces_of_the_last_wave(M, N, K, programs)
    if interleaved is None and can_interleave(a, a_order) and a.address == 0:
        phases = row_phases(a)
        interleaved = (phases > 1 or pieces == 1) and interleaving_pays(M, N, phases, programs)
    if interleaved:
        return plan_interleaved(a, b, b_order)
    return plan_descriptors(a, b, a_order, b_order, programs, pieces)


# One launch or two: what each gets beside the plan's own options. The interpreter runs one launch after the other.
def launches(pieces, tiles):
    if pieces == 1:
        return [tiles]
    whole, last = options_of(WHOLE_WAVES), options_of(PIECES.get(pieces, WHOLE_WAVES))
    if tiles:
        whole, last = tiles, tiles | dict(BLOCK_N=tiles["BLOCK_N"] // pieces)
    overlap = dict(launch_pdl=True) if not device.INTERPRET else {}
    return [
        whole | dict(WAVES="whole", OVERLAP=bool(overlap)),
        last | dict(WAVES="last", OVERLAP=bool(overlap), PIECES=pieces) | overlap,
    ]


# Passing tile sizes bypasses the search; passing `descriptors`, `interleaved` and `pieces` bypasses the choice of the
# kernel. The last wave was measured on Hopper only.
@opaque
def matmul_forward(
    a, b, activation=None, *, save_z=False, BLOCK_M=None, BLOCK_N=None, BLOCK_K=None, GROUP_M=8, num_warps=4,
    num_stages=3, NUM_PROGRAMS=None, descriptors=None, interleaved=None, pieces=None,
):  # fmt: skip
    """The result `c`; with `save_z` the pair `(c, z)`, where `z` is `c` before the activation. Both are contiguous."""
    given, programs, sizes, tuning = BLOCK_M is not None, NUM_PROGRAMS or multiprocessors(a.device.index), {}, {}
    if given:
        sizes = dict(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, GROUP_M=GROUP_M)
        tuning = dict(num_warps=num_warps, num_stages=num_stages)
        interleaved = bool(interleaved)
    if pieces is None and (given or not can_overlap(a.device.index)):
        pieces = 1
    planned = None
    if descriptors is not False or interleaved:
        planned = plan(stored(a), stored(b), programs, interleaved, pieces)
    if planned is None:
        if descriptors or interleaved:
            raise ValueError("descriptors need 16-bit matrices with 16-byte aligned rows or columns, and a TMA")
        return multiply_by_pointers(a, b, activation, save_z=save_z, **sizes, **tuning)
    if given:
        checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K)
        checks.positive(GROUP_M=GROUP_M, NUM_PROGRAMS=programs)
    c = torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
    z = torch.empty_like(c) if save_z else None
    for tiles in launches(planned.pieces, sizes | tuning):
        kernel, a_tiles, b_tiles, c_tiles = planned.tuned_kernel, planned.a, planned.b, planned.c
        if tiles:
            kernel, shapes = planned.kernel, tile_shapes(planned.options | tiles)
            a_tiles, b_tiles, c_tiles = ((*x[:2], tuple(tile)) for x, tile in zip((a_tiles, b_tiles, c_tiles), shapes))
        launch(
            kernel, planned.grid,
            (Tiles(a, *a_tiles), Tiles(b, *b_tiles), Tiles(c, *c_tiles), Tiles(z, *c_tiles) if save_z else None),
            planned.numbers, **planned.options | tiles, ACTIVATION=ACTIVATIONS[activation], SAVE_Z=save_z,
        )  # fmt: skip
    return (c, z) if save_z else c


# Two more products, of transposed views.
def matmul_backward(dc, a, b, saved=None, activation=None, *, needs=(True, True), **tiles):
    """`(da, db)` from the gradient of C; `needs` says which are wanted, the other is None."""
    return product_gradients(matmul_forward, dc, a, b, saved, activation, needs=needs, **tiles)


@replayed
def matmul(a, b, activation=None):
    """`activation(a @ b)`, differentiable. Mostly the first call for a shape searches for the fastest configuration.

    Args:
        a: tensor of shape (M, K), float32, float16 or bfloat16, any strides.
        b: tensor of shape (K, N), same dtype, any strides.
        activation: None, "relu", "leaky_relu" (slope 0.01 below zero), "gelu" (exact, with erf) or "silu".

    Returns:
        A new contiguous tensor of shape (M, N) with the inputs' dtype. Sums are formed in float32; K = 0 gives zeros.

    Raises:
        TypeError: an argument isn't a tensor, or the dtypes differ or are not allowed.
        ValueError: not two dimensions, inner sizes that differ, an unknown activation, or a tensor on the wrong device.

    Source: persistent programs with tensor descriptors as in Triton's tutorial "Persistent Matmul".
    """
    contract(a=a, b=b, activation=activation, allowed=ACTIVATIONS)
    if not autograd.needs_frame(a, b):
        return matmul_forward(a, b, activation)
    return Product.apply(a, b, activation, matmul_forward, matmul_backward)


# ## Where it falls behind
#
# At 2176 in each direction our time is [[bench: matmul_autotuned/2176x2176x2176/forward/ms]] and that of cuBLAS
# [[bench: matmul_autotuned/2176x2176x2176/forward/cuBLAS.ms]]. C has 17 x 9 tiles of 128 x 256, or 153: one wave and 21
# tiles. As 84 pieces these still take most of a wave's time. Dividing K instead, as
# [split-K](../gemlite/gemm_splitK.py) does, would keep the tiles large. It needs memory for the parts and a launch that
# adds them up. At 3072 it is [[bench: matmul_autotuned/3072x3072x3072/forward/ms]] against
# [[bench: matmul_autotuned/3072x3072x3072/forward/cuBLAS.ms]]. Only with `leaky_relu`, which costs the library a second
# kernel, is ours ahead: [[bench: matmul_autotuned:leaky_relu/3072x3072x3072/forward/ms]] against
# [[bench: matmul_autotuned:leaky_relu/3072x3072x3072/forward/cuBLAS + leaky_relu.ms]].
# Below that there are few tiles, and little time to cut them. At 1536 C has 144 tiles of 128 x 128, a wave of 132 and
# twelve more, and takes [[bench: matmul_autotuned/1536x1536x1536/forward/ms]] against
# [[bench: matmul_autotuned/1536x1536x1536/forward/cuBLAS.ms]].


# ## A run small enough to watch
#
# Small whole numbers in float16: with descriptors, whose tiles extend past every edge; the last wave in pieces; then
# interleaved.
def EXAMPLE():
    a = (torch.arange(6 * 24, device=device.DEVICE) % 5 - 2).view(6, 24).half()
    b = (torch.arange(24 * 24, device=device.DEVICE) % 3 - 1).view(24, 24).half()
    tiles = dict(BLOCK_N=16, BLOCK_K=16, GROUP_M=2, NUM_PROGRAMS=2, descriptors=True)
    c = matmul_forward(a, b, "relu", BLOCK_M=4, **tiles)
    matmul_backward(torch.ones_like(c), a, b, c, "relu", BLOCK_M=8, **tiles)
    matmul_forward(a, b, BLOCK_M=2, **tiles | dict(BLOCK_N=32, pieces=2))
    a = (torch.arange(4 * 96, device=device.DEVICE) % 5 - 2).view(4, 96).half()
    b = (torch.arange(96 * 24, device=device.DEVICE) % 3 - 1).view(96, 24).half()
    matmul_forward(a, b, interleaved=True, BLOCK_M=2, BLOCK_N=8, BLOCK_K=64, GROUP_M=2)


if __name__ == "__main__":
    script.main(matmul, matmul_reference)
