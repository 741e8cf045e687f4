r"""
# Low-bit matmul, a handful of rows

Up to about fifty rows, all the time should go into reading the words. In [planes](planes.py) it goes into instructions.
With one row, this kernel computes the same sums with less than half as many.

[[eq: QM-planes]]

Compiled for an H200, the loop over the planes has more than thirty instructions for each word that a thread unpacks.
Many of them compute addresses, or carry numbers from the thread that loaded them to the thread that multiplies them.
What replaces them: the TMA unit fetches the tiles, a masked word is already what the tensor cores read, and half of
the shifts are left out. With one row, that took the product from [[bench: gemm_splitK/ladder/planes/1_row_ms]] to
[[bench: gemm_splitK/ladder/descriptors and half-words/1_row_ms]], and at last to
[[bench: gemm_splitK/ladder/odd planes left in place/1_row_ms]].

**What it costs.** As [planes](planes.py).

**Contract.** 1, 2 or 4 bits, or 8 in float16. A group is a multiple of eight words. Rows of `a` and `words` are
contiguous and begin at multiples of 16 bytes. [low_bit_matmul](__init__.py) sees to all that.
"""

from academy.runtime import checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.launch import Tiles, cdiv, launch

import functools

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents

from annotated_examples.common.packed import per_group
from annotated_examples.fast.low_bit.planes import add_group, choose_split_k, multiprocessors, number_of, reduce_parts
from annotated_examples.gemlite.gemm import gemm_reference, pack, quantize


# ## 3. A masked word is a register of the tensor cores
#
# A register holds 32 bits, and the tensor cores expect two float16 in it, neighbours along K. So split each word into
# two halves of sixteen bits, and let plane `j` be number `j` of every *half-word*. Mask everything else out of the
# word. What is left are two numbers of one plane, each in its half, each a subnormal float16: exactly the register that
# the tensor cores want.
#
# [[figure: layout/half_words]]


# **Fewer shifts.** Subnormal floats are evenly spaced up to $2^{10}$ of their smallest steps. That leaves room for a
# number of four bits, and for `LIFT` more bits below it. So a number need not be shifted down to bit 0. Left where it
# is, it only counts $2^{LIFT}$ times as much, and the sum can be corrected for that. The second number of a half-word
# begins at bit four: it needs no shift at all.
#
# Every `STEP`-th plane is stacked along K, for one long product instead of several short ones. `tl.join` puts two
# blocks side by side in a new last dimension, the opposite of `tl.split`. The shifts are known while compiling, so they
# become part of the instructions.
@triton.jit
def half_word_planes(
    words, FIRST: tl.constexpr, STEP: tl.constexpr, LIFT: tl.constexpr, W_NBITS: tl.constexpr, dtype: tl.constexpr
):
    PLANES: tl.constexpr = 16 // W_NBITS // STEP
    MASK: tl.constexpr = (((1 << W_NBITS) - 1) << LIFT) * 0x00010001
    # Four bits make four planes of half-words. The even ones are shifted by `pid=0: shifts = [0, 8]`.
    shifts = (FIRST + STEP * tl.arange(0, PLANES)) * W_NBITS
    both = ((words[:, None, :] >> shifts[None, :, None]) << LIFT) & MASK
    if dtype == tl.bfloat16:
        both = both | 0x43004300  # 128 + q, as in planes
    low = both.to(tl.int16).to(dtype, bitcast=True)
    high = (both >> 16).to(tl.int16).to(dtype, bitcast=True)
    return tl.reshape(tl.join(low, high), (words.shape[0], 2 * PLANES * words.shape[1]))


# **Up to sixteen rows, two sums.** The odd planes are left unshifted, four bits up, so there is one sum over the even
# planes and one over the odd ones. The columns of A have to match: first split into even and odd ones, then sorted by
# plane. `tl.permute` reorders dimensions, as in PyTorch.
@triton.jit
def columns_by_plane(a, W_NBITS: tl.constexpr):
    BLOCK_M: tl.constexpr = a.shape[0]
    HALF_K: tl.constexpr = a.shape[1] // 2
    PLANES: tl.constexpr = 8 // W_NBITS
    even, odd = tl.split(tl.reshape(a, (BLOCK_M, HALF_K // PLANES, PLANES, 2)))
    even = tl.reshape(tl.permute(even, (0, 2, 1)), (BLOCK_M, HALF_K))
    odd = tl.reshape(tl.permute(odd, (0, 2, 1)), (BLOCK_M, HALF_K))
    # Columns 0, 4, 8 and 12 come first among the even ones, `pid=0: even[0, :4] = [-3, 3, 2, 1]`, and columns 1, 5, 9
    # and 13 among the odd ones, `pid=0: odd[0, :4] = [2, 1, 0, -1]`.
    return even, odd


# **Sums of A without additions.** The zero points need the sum of each row of A. The tensor cores can make it: they
# multiply by ones. With 16 rows this took [[bench: gemm_splitK/ladder/every mode, with descriptors/16_rows_ms]] down to
# [[bench: gemm_splitK/ladder/sums of A in place/16_rows_ms]].
#
# The result has sixteen equal rows, so each thread has the sums of its own columns in its own registers. Picking one
# row would need an exchange between threads; `tl.broadcast_to` repeats all of them down the tile, for nothing. And why
# are the `ones` joined from two halves? Because the weights are. Then the compiler wants A in the same layout for both
# products, and converts it only once.
@triton.jit
def sums_of_columns(even, odd, one, BLOCK_N: tl.constexpr):
    half = tl.full((16, even.shape[0] // 2), one, even.dtype)
    ones = tl.reshape(tl.join(half, half), (16, even.shape[0]))
    rows = tl.dot(ones, odd, tl.dot(ones, even))
    return tl.reshape(tl.broadcast_to(rows[None, :, :], (BLOCK_N // 16, 16, even.shape[1])), (BLOCK_N, even.shape[1]))


# A block lies inside one group, so it needs one row of metadata.
@triton.jit
def load_group_metadata(metadata, group, offs_n, N, EVEN: tl.constexpr):
    metadata_ptr, stride_g, stride_n = metadata
    metadata_ptrs = metadata_ptr + tl.cast(group, tl.int64) * stride_g + offs_n * stride_n
    numbers = tl.load(metadata_ptrs, mask=(offs_n < N) | EVEN, other=0.0, eviction_policy="evict_last")
    return numbers.to(tl.float32)[:, None]


# ## The kernel
#
# The tensor memory accelerator fetches words and A, as in [the fast product](../matmul.py): no addresses, and no masks.
# It puts them into shared memory, and each thread reads the words whose weights it has to hand to the tensor cores.
# What a thread has unpacked never moves to another thread.
#
# The product is transposed, as in planes. The parts are stored by a descriptor of three dimensions: what reaches past
# the last row of a part is cut off there, and doesn't overwrite the next one.
@triton.jit
def gemm_descriptor_kernel(
    a_desc, words_desc, parts_desc,  # of (M, K), (K // per_word, N), (split_k, M, N)
    scales, zeros,  # (pointer or None, stride_g, stride_n): (K // group_size, N); zero: in place of a pointer
    N, K, zero, split_k,
    W_NBITS: tl.constexpr, W_GROUP_MODE: tl.constexpr, GROUP_BLOCKS: tl.constexpr, EVEN: tl.constexpr,
    PDL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_KW: tl.constexpr, NUM_STAGES: tl.constexpr,
):  # fmt: skip
    BLOCK_K: tl.constexpr = BLOCK_KW * (32 // W_NBITS)
    dtype: tl.constexpr = a_desc.dtype
    # `LIFT`: how many bits up the odd planes stay. `UNIT`: the sums count in steps of `1 / UNIT`, see planes. They are
    # multiplied once, at the end, so the `ones` that add up A are one step, too. `BIAS`: by how much each bfloat16
    # weight is too large. It is taken off the sum, with the sums of A.
    LIFT: tl.constexpr = W_NBITS if W_NBITS < 8 and dtype == tl.float16 else 0
    UNIT: tl.constexpr = (1 << 24) if dtype == tl.float16 else 1
    BIAS: tl.constexpr = 0 if dtype == tl.float16 else 128
    zero = tl.cast(zero, tl.float32)
    # Neighbouring programs have neighbouring columns: they read words that lie together, and the same block of A.
    start_n = tl.program_id(0) * BLOCK_N
    pid_k = tl.program_id(1)
    start_m = tl.program_id(2) * BLOCK_M
    offs_n = start_n + tl.max_contiguous(tl.multiple_of(tl.arange(0, BLOCK_N), BLOCK_N), BLOCK_N)
    # Three blocks of 64 rows of the weight in the example, `pid=0: blocks = 3`.
    blocks = K // BLOCK_K
    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    # **The loop has its own number of stages.** As an option of the launch, `num_stages` prefetches only what a
    # `tl.dot` multiplies. Given to the loop it prefetches the metadata, too.
    for block in tl.range(pid_k * blocks // split_k, (pid_k + 1) * blocks // split_k, num_stages=NUM_STAGES):
        # A group is a whole number of blocks. That number is a constant, so there is no division instruction: with 16
        # rows, [[bench: gemm_splitK/ladder/division by a constant/16_rows_ms]]. The second part of the example begins
        # with group `pid=(0, 1), block=1: group = 1`.
        scale = 1.0
        zero_point = zero
        group = block // GROUP_BLOCKS
        if W_GROUP_MODE >= 2:
            scale = load_group_metadata(scales, group, offs_n, N, EVEN)
        if (W_GROUP_MODE == 1 or W_GROUP_MODE >= 3) and zeros[0] is not None:
            zero_point = load_group_metadata(zeros, group, offs_n, N, EVEN)
        words = tl.trans(words_desc.load([block * BLOCK_KW, start_n]))
        even, odd = columns_by_plane(a_desc.load([start_m, block * BLOCK_K]), W_NBITS)
        even, odd = tl.trans(even), tl.trans(odd)
        # The sum of the first row of A, in steps of 2⁻²⁴: `pid=0, block=0: a_sums[0, 0] * UNIT = -3`.
        a_sums = sums_of_columns(even, odd, 1.0 / UNIT, BLOCK_N)
        even_planes = half_word_planes(words, 0, 2, 0, W_NBITS, dtype)
        odd_planes = half_word_planes(words, 1, 2, LIFT, W_NBITS, dtype)
        if LIFT:
            sums = tl.dot(even_planes, even) + tl.dot(odd_planes, odd) * (1.0 / (1 << LIFT))
        else:
            sums = tl.dot(odd_planes, odd, tl.dot(even_planes, even)) - BIAS * a_sums
        acc = add_group(acc, sums, a_sums, scale, zero_point, W_GROUP_MODE)
    if PDL:
        # `gdc_launch_dependents` lets the next kernel start. [Section 4](many_rows.py) says why.
        gdc_launch_dependents()
    parts_desc.store([pid_k, start_m, start_n], tl.reshape(tl.trans(acc * UNIT), (1, BLOCK_M, BLOCK_N)))


# ## Launcher
#
# For each `BLOCK_M`: columns of a tile, warps of a program, and how many programs an SM holds. With few rows there are
# one or two warps and many programs, so that some compute while others wait for their words. The larger tiles are those
# of [many rows](many_rows.py), with four warps, which the larger instructions of the tensor cores need. With 32 rows,
# tiles of 64 columns instead of 128 took [[bench: gemm_splitK/ladder/parts by descriptor/32_rows_ms]] down to
# [[bench: gemm_splitK/ladder/64 columns/32_rows_ms]].
TILES = {8: (128, 2, 4), 16: (64, 1, 8), 32: (64, 4, 4), 64: (128, 4, 2)}


def tiles_of(x, tile):
    """What `launch` needs for a tensor descriptor of `x` with tiles of this shape."""
    return Tiles(x, x.shape, x.stride(), tile)


def words_in_block(W_nbits, group_size):
    """Word rows in a block of the kernels with descriptors, or 0 if no block lies inside one group."""
    group_words = group_size * W_nbits // 32
    return 16 if group_words % 16 == 0 and W_nbits >= 4 else 8 if group_words % 8 == 0 else 0


# Worked out once for each size: a small product would wait for it.
@functools.lru_cache(maxsize=1024)
def schedule(M, N, blocks, most_rows, processors, split_k, BLOCK_M, BLOCK_N):
    """Tile, warps, parts along K, and the grid. most_rows: of a tile."""
    rows = min(max(triton.next_power_of_2(M), 8), most_rows)
    columns, num_warps, resident = TILES[rows]
    BLOCK_M, BLOCK_N = BLOCK_M or rows, BLOCK_N or columns
    tiles = cdiv(N, BLOCK_N) * cdiv(M, BLOCK_M)
    split_k = split_k or choose_split_k(tiles, blocks, resident * processors)
    return BLOCK_M, BLOCK_N, num_warps, split_k, (cdiv(N, BLOCK_N), split_k, cdiv(M, BLOCK_M))


def descriptor_forward(
    a, words, scales, zeros, *, W_nbits, group_size, W_group_mode=3, channel_scale_mode=0, scales_a=None,
    out_dtype=None, split_k=None, BLOCK_M=None, BLOCK_N=None,
):  # fmt: skip
    """The product of checked arguments that descriptors can describe; best for up to 16 rows."""
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N)
    (M, K), N = a.shape, words.shape[1]
    BLOCK_KW = words_in_block(W_nbits, group_size)
    BLOCK_K = BLOCK_KW * 32 // W_nbits
    processors = multiprocessors(words.device.index)
    BLOCK_M, BLOCK_N, num_warps, split_k, grid = schedule(
        M, N, K // BLOCK_K, 16, processors, split_k, BLOCK_M, BLOCK_N
    )  # fmt: skip
    parts = torch.empty(split_k, M, N, dtype=torch.float32, device=a.device)
    described = [(a, (BLOCK_M, BLOCK_K)), (words, (BLOCK_KW, BLOCK_N)), (parts, (1, BLOCK_M, BLOCK_N))]
    # The interpreter runs one kernel after the other, so there is nothing that could be launched early.
    pdl = not device.INTERPRET
    launch(
        gemm_descriptor_kernel, grid, (*(tiles_of(*each) for each in described), per_group(scales), per_group(zeros)),
        (N, K, number_of(zeros), split_k), W_NBITS=W_nbits, W_GROUP_MODE=W_group_mode,
        GROUP_BLOCKS=group_size // BLOCK_K, EVEN=N % BLOCK_N == 0, PDL=pdl, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N,
        BLOCK_KW=BLOCK_KW, NUM_STAGES=3, num_warps=num_warps, enable_fp_fusion=True,
    )  # fmt: skip
    return reduce_parts(parts, scales, scales_a, out_dtype or a.dtype, channel_scale_mode, pdl)


# ## A run small enough to watch
#
# Three blocks of eight word rows in two parts, and two tiles of columns, the second half empty.
def EXAMPLE():
    where = device.DEVICE
    a = (torch.arange(576, device=where).view(3, 192) * 5 % 7 - 3).half()
    words = pack(torch.arange(4608, device=where).view(192, 24) * 5 % 16, 4)
    scales, zeros = (torch.arange(144, device=where).view(2, 3, 24) % 5 + 1).half() / 4
    tiles = dict(split_k=2, BLOCK_M=4, BLOCK_N=16)
    descriptor_forward(a, words, scales, zeros, W_nbits=4, group_size=64, **tiles)


if __name__ == "__main__":
    words, scales, zeros = quantize(torch.randn(192, 40, dtype=torch.float16, device=device.DEVICE), 4, 64)
    weight = dict(words=words, scales=scales, zeros=zeros, W_nbits=4, group_size=64)
    shapes, halves = [dict(a=(M, 192), **weight) for M in (1, 20)], (torch.float16, torch.bfloat16)
    script.main(descriptor_forward, gemm_reference, *shapes, dtypes=halves, differentiable=False)
