r"""
# Low-bit matmul in planes

[The lesson](../../gemlite/gemm.py) loads each packed word once for every number in it: eight times, with four bits.
This kernel loads it once. It takes every format and any strides, and serves few rows wherever
[descriptors](descriptors.py) can't.

[[eq: QM-planes]]

Two ideas make it. The product is summed plane by plane, so that no number moves from its word to another row. And the
bits of a small integer already *are* a float. At `N = K = 8192`, with four bits and 16 rows, the first took the product
from [[bench: gemm/ladder/gemm/forward_ms]] to [[bench: gemm/ladder/split-K by planes/forward_ms]], the second to
[[bench: gemm/ladder/split-K, every mode/forward_ms]].

**What it costs.** The words are read once for each tile of rows: of up to 64 rows, or up to 32 where words have 1 or 2
bits a number. Each part of the sum, `4 * M * N` bytes, is written and read once.

**Contract.** That of [low_bit_matmul](__init__.py). The parts are added in a fixed order: the same call gives the same
bits.
"""

from academy.runtime import checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.launch import cdiv, launch

import functools

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait

from annotated_examples.common.packed import per_group
from annotated_examples.common.tile_order import grouped_order
from annotated_examples.gemlite.gemm import dequantize_block, gemm_reference, pack, quantize


# ## 1. Planes instead of rows
#
# **What was slow?** The lesson expands a tile of words along K, with one row for each number, and so it loads every
# word several times. But why expand it? A tile of words holds several matrices on top of each other: the first number
# of every word, the second number of every word, and so on. Each of them is a *plane*, and as large as the tile.
#
# [[figure: layout/packed]]


# A sum may be added up in any order, so the product is summed plane by plane, [[tag: QM-planes]]. Plane `j` is
# multiplied by columns `j`, `per_word + j`, `2 * per_word + j` and so on of A. It is A that has to be rearranged, and A
# is small.
#
# The tile of A is loaded as it lies in memory. `tl.split` separates even from odd columns, and then again the even or
# the odd ones of those, until only the columns of one plane are left. The bits of `j` say which half to keep. Splits
# that several planes have in common are computed once: the compiler sees that they are the same.
@triton.jit
def columns_of_plane(a, j: tl.constexpr, PER_WORD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr):
    # `tl.static_range` makes a loop that the compiler writes out, so its variable is a constant in each round. In the
    # example a word holds eight numbers, and a tile of A has sixteen columns. For plane 0 the first split keeps the
    # even ones, `pid=0, bit=0: a[0] = [-3, 0, 3, -1, 2, -2, 1, -3]`, and after the third one columns 0 and 8 are left:
    # `pid=0, bit=2: a[0] = [-3, 2]`.
    for bit in tl.static_range(5):
        if PER_WORD > (1 << bit):
            even, odd = tl.split(tl.reshape(a, (BLOCK_M, BLOCK_K >> (bit + 1), 2)))
            a = even if (j >> bit) % 2 == 0 else odd
    return a


# ## 2. An integer that is already a float
#
# **What was slow?** Converting integers to floats. An SM has fewer units for that than for arithmetic.
#
# But look at the smallest floats. The *subnormal* float16 numbers have a fixed exponent and count up in equal steps of
# $2^{-24}$, just as integers count up in steps of one. So the bits of a small integer q, read as float16, are the
# number $q \cdot 2^{-24}$, exactly. Nothing has to be converted: the tensor cores multiply such a float like any other,
# and the finished sum is multiplied by $2^{24}$ once.
#
# A word has room for two float16. One shift and one mask extract two planes at the same time, `j` and
# `j + per_word / 2`, each in its half of the word.
#
# In bfloat16 the steps are $2^{-133}$, so small that float32 sums would lose digits. There the number is put below the
# exponent of 128 instead: the bits `0x4300` mean 128, so `0x4300 + q` means 128 + q for every q below 128. Subtracting
# 128 leaves q. Eight-bit integers don't fit below 128, and are converted after all.
@triton.jit
def two_planes(words, j: tl.constexpr, W_NBITS: tl.constexpr, dtype: tl.constexpr):
    # Number 0 of the example's first word is 0, and number 4 is 12. So the first two planes begin with
    # `pid=0: both[0, 0] = 786432`, which is 12 · 2¹⁶ + 0.
    if W_NBITS < 16:
        both = (words >> (j * W_NBITS)) & (((1 << W_NBITS) - 1) * 0x00010001)
    if W_NBITS == 16:  # nothing is packed
        low, high = words, words
    elif dtype == tl.float16:
        low = both.to(tl.int16).to(tl.float16, bitcast=True)  # q * 2**-24
        high = (both >> 16).to(tl.int16).to(tl.float16, bitcast=True)
    elif W_NBITS < 8:
        both = both | 0x43004300
        low = both.to(tl.int16).to(tl.bfloat16, bitcast=True).to(tl.float32) - 128.0
        high = (both >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True).to(tl.float32) - 128.0
    else:
        low = (both & 0xFFFF).to(tl.float32)
        high = (both >> 16).to(tl.float32)
    return low.to(dtype), high.to(dtype)


# ## Scales and zeros, once per group
#
# A group is a whole number of words, so a word never lies in two groups. There is one row of metadata for each row of
# words, or only one (`META_ROWS` is 1) if the whole tile lies inside a group. `EVEN` says that no tile of words reaches
# past the matrix. Then their masks are always true, and the compiler drops them.
@triton.jit
def word_metadata(metadata, row, offs_n, N, K_WORDS, group_words, META_ROWS: tl.constexpr, EVEN: tl.constexpr):
    metadata_ptr, stride_g, stride_n = metadata
    # The example has groups of two rows of words, and tiles of two. So each tile needs one row of metadata, and the
    # second tile that of group `pid=(0, 1): groups = [1]`.
    rows = row + tl.arange(0, META_ROWS)
    groups = (rows // group_words).to(tl.int64)
    mask = ((rows[:, None] < K_WORDS) & (offs_n[None, :] < N)) | EVEN
    metadata_ptrs = metadata_ptr + groups[:, None] * stride_g + offs_n[None, :] * stride_n
    return tl.load(metadata_ptrs, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)


# A pointer that is None is a case that the compiler decides: a zero point that is one number needs no load.
@triton.jit
def scales_and_zeros(
    scales, zeros,  # (pointer or None, stride_g, stride_n): (K // group_size, N)
    zero, row, offs_n, N, K_WORDS, group_words,
    W_GROUP_MODE: tl.constexpr, META_ROWS: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    scale = tl.full((1, 1), 1.0, tl.float32)
    # Inside `torch.compile` a Python float arrives as float64, and would make all of this float64.
    zero = tl.zeros((1, 1), tl.float32) + tl.cast(zero, tl.float32)
    if W_GROUP_MODE >= 2:
        scale = word_metadata(scales, row, offs_n, N, K_WORDS, group_words, META_ROWS, EVEN)
    if (W_GROUP_MODE == 1 or W_GROUP_MODE >= 3) and zeros[0] is not None:
        zero = word_metadata(zeros, row, offs_n, N, K_WORDS, group_words, META_ROWS, EVEN)
    return scale, zero


# Inside a group every product has the same scale as a factor, and the zero point is multiplied by nothing but the sum
# of A, [[tag: QM-regroup]]. So where a tile lies inside one group, neither is applied to single weights. Both are
# applied to a finished sum, in float32, and no weight is rounded to sixteen bits.
@triton.jit
def add_group(acc, sums, a_sums, scale, zero, W_GROUP_MODE: tl.constexpr):
    if W_GROUP_MODE == 1 or W_GROUP_MODE == 3:
        sums = sums - zero * a_sums
    if W_GROUP_MODE >= 2:
        sums = sums * scale
    if W_GROUP_MODE == 4:
        sums = sums + zero * a_sums
    # For the first column and row of the example: `pid=0: scale[0, 0] = 0.25`, `pid=0: sums[0, 0] = 1.625`.
    return acc + sums


# ## The kernel
#
# **The product is transposed.** The weights are the left factor, and the tile is turned round when it is stored. Why?
# Hopper's fast instruction, `wgmma`, can take its left factor from registers, which is where the unpacked weights are.
# The right one has to be in shared memory. And it takes 64 rows of the left factor, but as few as eight columns of the
# right one: with few rows of A, less is wasted on the right.
#
# **The sum is cut along K**, as in [split-K](../../gemlite/gemm_splitK.py), but nothing is added atomically. Each
# program stores its part, and `reduce_parts_kernel` adds them. No program waits for another, nothing has to be zeroed
# first, and the order of the additions is fixed.
@triton.jit
def gemm_planes_kernel(
    a, words,  # (pointer, stride, stride): (M, K); (K // per_word, N)
    scales, zeros,  # (pointer or None, stride, stride): (K // group_size, N); zero: in place of a pointer
    parts_ptr,  # (SPLIT_K, M, N) in float32, contiguous
    M, N, K, group_size, zero,
    W_NBITS: tl.constexpr, W_GROUP_MODE: tl.constexpr, META_ROWS: tl.constexpr, EVEN: tl.constexpr,
    SPLIT_K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_KW: tl.constexpr,
):  # fmt: skip
    a_ptr, stride_am, stride_ak = a
    words_ptr, stride_wk, stride_wn = words
    PER_WORD: tl.constexpr = 32 // W_NBITS if W_NBITS < 16 else 1
    BLOCK_K: tl.constexpr = BLOCK_KW * PER_WORD
    dtype: tl.constexpr = a[0].dtype.element_ty
    # What the sums are multiplied by in the end: see `two_planes`.
    UNIT: tl.constexpr = (1 << 24) if W_NBITS < 16 and dtype == tl.float16 else 1
    pid_m, pid_n = grouped_order(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), 8)
    pid_k = tl.program_id(1)
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_n = tl.max_contiguous(tl.multiple_of(offs_n, BLOCK_N), BLOCK_N)
    # **Which blocks are mine?** The example has `pid=0: K_WORDS = 6` rows of words in three blocks, and two parts. The
    # first part gets one block, the other one two: `pid=(0, 1): first = 1`, `last = 3`.
    K_WORDS = K // PER_WORD
    group_words = group_size // PER_WORD
    blocks = tl.cdiv(K_WORDS, BLOCK_KW)
    first = pid_k * blocks // SPLIT_K
    last = (pid_k + 1) * blocks // SPLIT_K

    # The pointers start at the first block of the part and are moved on from there. Computing them anew for each block
    # would take more instructions.
    word_rows = first * BLOCK_KW + tl.arange(0, BLOCK_KW)
    words_ptrs = words_ptr + word_rows[None, :].to(tl.int64) * stride_wk + offs_n[:, None].to(tl.int64) * stride_wn
    offs_k = first * BLOCK_K + tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + offs_m[:, None].to(tl.int64) * stride_am + offs_k[None, :].to(tl.int64) * stride_ak
    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for block in range(first, last):
        word_rows = block * BLOCK_KW + tl.arange(0, BLOCK_KW)
        offs_k = block * BLOCK_K + tl.arange(0, BLOCK_K)
        # **One load for eight rows of the weight.** Two rows of words hold the sixteen rows of a block, the first of
        # which is `pid=(0, 1), block=1: offs_k[0] = 16`.
        packed = tl.load(words_ptrs, mask=((word_rows[None, :] < K_WORDS) & (offs_n[:, None] < N)) | EVEN, other=0)
        scale, zero_point = scales_and_zeros(
            scales, zeros, zero, block * BLOCK_KW, offs_n, N, K_WORDS, group_words, W_GROUP_MODE, META_ROWS, EVEN
        )
        # `tl.trans` swaps rows and columns.
        scale, zero_point = tl.trans(scale), tl.trans(zero_point)
        a_tile = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & ((offs_k[None, :] < K) | EVEN), other=0.0)

        # **Plane by plane.** If the block lies inside one group, the integers themselves are multiplied, and scale and
        # zero point are applied afterwards. If not, each weight is dequantized with the metadata of its word.
        sums = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
        for j in tl.static_range((PER_WORD + 1) // 2):
            low, high = two_planes(packed, j, W_NBITS, dtype)
            if META_ROWS > 1:
                low = dequantize_block(low.to(tl.float32) * UNIT, scale, zero_point, W_GROUP_MODE, dtype)
                high = dequantize_block(high.to(tl.float32) * UNIT, scale, zero_point, W_GROUP_MODE, dtype)
            sums = tl.dot(low, tl.trans(columns_of_plane(a_tile, j, PER_WORD, BLOCK_M, BLOCK_K)), sums)
            if W_NBITS < 16:
                a_high = columns_of_plane(a_tile, j + PER_WORD // 2, PER_WORD, BLOCK_M, BLOCK_K)
                sums = tl.dot(high, tl.trans(a_high), sums)
        if META_ROWS == 1:
            a_sums = tl.sum(a_tile.to(tl.float32), axis=1)[None, :]
            acc = add_group(acc, sums * UNIT, a_sums, scale, zero_point, W_GROUP_MODE)
        else:
            acc += sums
        words_ptrs += BLOCK_KW * stride_wk
        a_ptrs += BLOCK_K * stride_ak
    # The tile has a row for each column of C: here it is turned round.
    offsets = pid_k.to(tl.int64) * M * N + offs_m[:, None].to(tl.int64) * N + offs_n[None, :]
    tl.store(parts_ptr + offsets, tl.trans(acc), mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


# ## Add the parts, scale, round once
#
# A program adds all parts of its elements, always in the same order. In the example the first element of C is the sum
# of two parts, `reduce_parts_kernel, pid=0: c[0] = -28.875`.
@triton.jit
def reduce_parts_kernel(
    parts_ptr, scales, scales_a_ptr, c_ptr,  # (PARTS, M, N); (pointer, strides) of (1, N); (M,); (M, N)
    N, elements,  # of C, M · N
    CHANNEL_SCALE_MODE: tl.constexpr, PDL: tl.constexpr, PARTS: tl.constexpr, BLOCK_PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    parts = tl.arange(0, BLOCK_PARTS).to(tl.int64)
    # Where the launch allows it, these programs begin before the product has ended, and `gdc_wait` waits for its end.
    # [Section 4](many_rows.py) says why.
    if PDL:
        gdc_wait()
    c = tl.sum(tl.load(
        parts_ptr + parts[:, None] * elements + offsets[None, :],
        mask=(parts[:, None] < PARTS) & (offsets[None, :] < elements), other=0.0,
    ), axis=0)  # fmt: skip
    # [[tag: QM-channel]]
    if CHANNEL_SCALE_MODE == 1 or CHANNEL_SCALE_MODE == 3:
        scales_ptr, _, stride_sn = scales
        c *= tl.load(scales_ptr + (offsets % N) * stride_sn, mask=offsets < elements, other=0.0).to(tl.float32)
    if CHANNEL_SCALE_MODE >= 2:
        c *= tl.load(scales_a_ptr + offsets // N, mask=offsets < elements, other=0.0).to(tl.float32)
    tl.store(c_ptr + offsets, c.to(c_ptr.dtype.element_ty), mask=offsets < elements)


# ## Launchers
#
# A small product waits for Python: what can be computed once is cached.
def launched_early(pdl):
    """Launch options of a kernel that waits for the one before it. Other GPUs' compilers don't know `launch_pdl`."""
    return dict(launch_pdl=True) if pdl else {}


def reduce_parts(parts, scales, scales_a, out_dtype, channel_scale_mode, pdl=False):
    """Add the parts, (PARTS, M, N), scale rows and columns, round to out_dtype. `pdl`: as `launched_early`."""
    PARTS, M, N = parts.shape
    c = torch.empty(M, N, dtype=out_dtype, device=parts.device)
    # These programs do little but wait for the cache, so there are many of them, and they are small.
    BLOCK, num_warps = (128, 1) if M * N <= 1 << 17 else (512, 4)
    by_column = scales if channel_scale_mode in (1, 3) else None
    by_row = scales_a.contiguous() if channel_scale_mode >= 2 else None
    launch(
        reduce_parts_kernel, (cdiv(M * N, BLOCK),), (parts, per_group(by_column), by_row, c), (N, M * N),
        CHANNEL_SCALE_MODE=channel_scale_mode, PDL=pdl, PARTS=PARTS, BLOCK_PARTS=1 << (PARTS - 1).bit_length(),
        BLOCK=BLOCK, num_warps=num_warps, **launched_early(pdl),
    )  # fmt: skip
    return c


# As many parts as it takes to fill the GPU once: `programs` is how many fit at a time. More would need a second wave,
# and every additional part is written and read. A part has at least two blocks.
def choose_split_k(tiles, blocks, programs):
    return max(1, min(programs // tiles, blocks // 2))


@functools.cache
def multiprocessors(device_index):
    return 2 if device.INTERPRET else torch.cuda.get_device_properties(device_index).multi_processor_count


def number_of(zeros):
    """The zero point as a number: 0 if it is a tensor, or not used."""
    return 0.0 if zeros is None or isinstance(zeros, torch.Tensor) else float(zeros)


def planes_forward(
    a, words, scales, zeros, *, W_nbits, group_size, W_group_mode=3, channel_scale_mode=0, scales_a=None,
    out_dtype=None, split_k=None, BLOCK_M=None, BLOCK_N=None, BLOCK_KW=None,
):  # fmt: skip
    """The product of checked arguments, of any format and strides."""
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_KW=BLOCK_KW)
    (M, K), N = a.shape, words.shape[1]
    per_word = 32 // W_nbits if W_nbits < 16 else 1
    # Many planes of many rows would not fit into the registers.
    BLOCK_M = BLOCK_M or (16 if M <= 16 else 32 if M <= 32 or per_word > 8 else 64)
    BLOCK_N = BLOCK_N or (256 if BLOCK_M == 16 and N >= 4096 else 128)
    BLOCK_KW, split_k = BLOCK_KW or {16: 64, 8: 32}.get(W_nbits, 16), split_k or (8 if M <= 16 else 4)
    parts = torch.empty(split_k, M, N, dtype=torch.float32, device=a.device)
    launch(
        gemm_planes_kernel, (cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N), split_k),
        ((a, *a.stride()), (words, *words.stride()), per_group(scales), per_group(zeros), parts),
        (M, N, K, group_size, number_of(zeros)), W_NBITS=W_nbits, W_GROUP_MODE=W_group_mode,
        META_ROWS=1 if group_size // per_word % BLOCK_KW == 0 else BLOCK_KW,
        EVEN=N % BLOCK_N == 0 and K // per_word % BLOCK_KW == 0, SPLIT_K=split_k,
        BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_KW=BLOCK_KW, num_warps=8 if BLOCK_N >= 256 else 4, num_stages=3,
    )  # fmt: skip
    return reduce_parts(parts, scales, scales_a, out_dtype or a.dtype, channel_scale_mode)


# ## A run small enough to watch
#
# Three blocks of two rows of words, shared by two parts; seven columns in two tiles of four.
def EXAMPLE():
    where = device.DEVICE
    a = (torch.arange(144, device=where).view(3, 48) * 5 % 7 - 3).half()
    words = pack(torch.arange(336, device=where).view(48, 7) * 5 % 16, 4)
    scales, zeros = (torch.arange(42, device=where).view(2, 3, 7) % 5 + 1).half() / 4
    tiles = dict(split_k=2, BLOCK_M=2, BLOCK_N=4, BLOCK_KW=2)
    planes_forward(a, words, scales, zeros, W_nbits=4, group_size=16, **tiles)


if __name__ == "__main__":
    words, scales, zeros = quantize(torch.randn(192, 40, dtype=torch.float16, device=device.DEVICE), 4, 64)
    weight = dict(words=words, scales=scales, zeros=zeros, W_nbits=4, group_size=64)
    shapes, halves = [dict(a=(M, 192), **weight) for M in (1, 20)], (torch.float16, torch.bfloat16)
    script.main(planes_forward, gemm_reference, *shapes, dtypes=halves, differentiable=False)
