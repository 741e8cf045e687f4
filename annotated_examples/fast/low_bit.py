r"""
# Low-bit matmul, fast

[gemm](../gemlite/gemm.py) loads a word once for each of its values, and [split-K](../gemlite/gemm_splitK.py) only
spreads that work. This file goes from there to the limit of the memory, and for many rows to the library's speed:

[[eq: QM-C]]

These were the steps at `N = K = 8192` and four bits. The headings below have the same numbers.

1. **Planes.** Every word is loaded once. With 16 rows, that went from [[bench: gemm/ladder/gemm/forward_ms]] to
   [[bench: gemm/ladder/split-K by planes/forward_ms]].
2. **Integers that are floats already.** One shift and one mask for two weights:
   [[bench: gemm/ladder/split-K, every mode/forward_ms]].
3. **Descriptors and half-words.** No addresses, no exchange between threads. With one row, that went from
   [[bench: gemm_splitK/ladder/planes/1_row_ms]] to [[bench: gemm_splitK/ladder/descriptors and half-words/1_row_ms]],
   and without some of the shifts to [[bench: gemm_splitK/ladder/odd planes left in place/1_row_ms]].
4. **A is rearranged, and its rows are summed, beforehand,** for more than sixteen rows. With 64 rows,
   [[bench: gemm_splitK/ladder/arranged ahead/64_rows_ms]] at first, and
   [[bench: gemm_splitK/ladder/parts by descriptor/64_rows_ms]] in the end.
5. **Dequantize, then cuBLAS,** for hundreds of rows.

**What it costs.** The words are read once, and each part of the sum, `4 * M * N` bytes, is written and read once. With
one row `low_bit_matmul` takes [[bench: gemm_splitK/1x8192x8192/forward/ms]], cuBLAS with the weight in sixteen bits
[[bench: gemm_splitK/1x8192x8192/forward/cuBLAS.ms]]. With 64 rows it is
[[bench: gemm_splitK/64x8192x8192/forward/ms]] against [[bench: gemm_splitK/64x8192x8192/forward/cuBLAS.ms]].

**Contract.** As [gemm](../gemlite/gemm.py), except that `a` has to be finite: the zero point is subtracted from the
sum, not from each weight, and an infinity in a row of `a` makes that row of the result NaN. The parts are added in a
fixed order: the same call gives the same bits.
"""

if __name__ == "__main__":  # run as a script: make the repository importable
    import pathlib
    import sys

    sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))

from academy import checks, device, script
from academy.launch import Tiles, cdiv, launch

import functools

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from annotated_examples.common.packed import contract, group_stride
from annotated_examples.common.tile_order import grouped_order
from annotated_examples.gemlite.gemm import dequantize_block, gemm_forward, gemm_reference, pack, quantize


# ## 1. Planes instead of rows
#
# **What was slow?** Expanding a tile of words along K loads every word several times. There is another way. The numbers
# at position `j` of **all** words of a tile form a *plane*, a matrix as large as the tile of words. A sum can be
# computed in any order, so the product is summed plane by plane, [[tag: QM-planes]]: plane `j` is multiplied by the
# columns `j`, `per_word + j`, `2 * per_word + j` ... of A. Each word is loaded once, and no weight moves to another
# row. Instead A, which is small, is reordered.
#
# [[figure: layout/packed]]
#
# The tile of A is loaded as it lies in memory. Splitting it into even and odd columns, and those again, gives the
# columns for one plane. The bits of `j` say which half to keep. Whatever two planes have in common the compiler
# computes only once.
@triton.jit
def columns_of_plane(a, j: tl.constexpr, PER_WORD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr):
    # `tl.static_range` makes a loop that the compiler writes out, so its variable is a constant in each round.
    for bit in tl.static_range(5):
        if PER_WORD > (1 << bit):
            even, odd = tl.split(tl.reshape(a, (BLOCK_M, BLOCK_K >> (bit + 1), 2)))
            a = even if (j >> bit) % 2 == 0 else odd
    return a


# ## 2. An integer that is already a float
#
# **What was slow?** Converting an integer to a float: an SM has far fewer units for it than for arithmetic. But the
# smallest floats, the *subnormal* ones, count evenly, as integers do. The bits of the integer q, read as float16,
# **are** the float `q * 2**-24`, exactly, and tensor cores multiply such floats like any other. The power of two is
# corrected once, in the sum. A word has room for two float16: one shift and one mask extract planes `j` and
# `j + per_word / 2` at the same time.
#
# A bfloat16 counts in steps of `2**-133`. With these, float32 sums would be so small that they lose digits. So for
# bfloat16 the exponent bits `0x4300` make 128 + q for q below 128, and 128 is subtracted. Eight-bit integers don't fit
# below 128: they are converted.
@triton.jit
def two_planes(words, j: tl.constexpr, W_NBITS: tl.constexpr, dtype: tl.constexpr):
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


# **Scales and zeros, once per group.** A word lies inside one group, because the group size is a multiple of the values
# in a word. So there is one row of them per word row, or a single row (`META_ROWS` is 1) if the whole tile lies inside
# a group. `EVEN` says that no tile extends past the matrix: then the masks are true everywhere, and the compiler drops
# them.
@triton.jit
def word_metadata(
    metadata_ptr, row, offs_n, N, K_WORDS, group_words, stride_g, stride_n,
    META_ROWS: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    rows = row + tl.arange(0, META_ROWS)
    groups = (rows // group_words).to(tl.int64)
    mask = ((rows[:, None] < K_WORDS) & (offs_n[None, :] < N)) | EVEN
    metadata_ptrs = metadata_ptr + groups[:, None] * stride_g + offs_n[None, :] * stride_n
    return tl.load(metadata_ptrs, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)


@triton.jit
def scales_and_zeros(
    scales_ptr, zeros_ptr, zero, row, offs_n, N, K_WORDS, group_words,
    stride_sg, stride_sn, stride_zg, stride_zn,
    W_GROUP_MODE: tl.constexpr, ZERO_IS_NUMBER: tl.constexpr, META_ROWS: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    scales = tl.full((1, 1), 1.0, tl.float32)
    # Inside `torch.compile` a Python float arrives as float64, and would make all of this float64.
    zeros = tl.zeros((1, 1), tl.float32) + tl.cast(zero, tl.float32)
    if W_GROUP_MODE >= 2:
        scales = word_metadata(scales_ptr, row, offs_n, N, K_WORDS, group_words, stride_sg, stride_sn, META_ROWS, EVEN)
    if (W_GROUP_MODE == 1 or W_GROUP_MODE >= 3) and not ZERO_IS_NUMBER:
        zeros = word_metadata(zeros_ptr, row, offs_n, N, K_WORDS, group_words, stride_zg, stride_zn, META_ROWS, EVEN)
    return scales, zeros


# Inside a group the scale is a common factor of the sum, and the zero point is multiplied by the plain sum of A,
# [[tag: QM-regroup]]. So neither is applied to single weights: they are applied to a finished sum, in float32, and no
# weight is rounded to sixteen bits, whatever its zero point and scale.
@triton.jit
def add_group(acc, sums, a_sums, scales, zeros, W_GROUP_MODE: tl.constexpr):
    if W_GROUP_MODE == 1 or W_GROUP_MODE == 3:
        sums = sums - zeros * a_sums
    if W_GROUP_MODE >= 2:
        sums = sums * scales
    if W_GROUP_MODE == 4:
        sums = sums + zeros * a_sums
    return acc + sums


# **The product is transposed:** the weights are the left factor, and the tile of the result is transposed when it is
# stored. Hopper's tensor cores can take their left factor from registers, which is where unpacked weights are; the
# right one must be in shared memory. And they take at least 64 rows of the left factor at a time, but only eight
# columns of the right one: with few rows of A, less is wasted on the right.
#
# The parts aren't added by atomics. Every program stores its part, and `reduce_parts_kernel` adds them: no program
# waits for another, nothing has to be zeroed first, and the order is fixed. This kernel takes every format and any
# strides.
@triton.jit
def gemm_planes_kernel(
    a_ptr, words_ptr, scales_ptr, zeros_ptr, parts_ptr,
    M, N, K, group_size, zero,
    stride_am, stride_ak, stride_wk, stride_wn, stride_sg, stride_sn, stride_zg, stride_zn,
    W_NBITS: tl.constexpr, W_GROUP_MODE: tl.constexpr, ZERO_IS_NUMBER: tl.constexpr, META_ROWS: tl.constexpr,
    EVEN: tl.constexpr, SPLIT_K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_KW: tl.constexpr,
):  # fmt: skip
    PER_WORD: tl.constexpr = 32 // W_NBITS if W_NBITS < 16 else 1
    BLOCK_K: tl.constexpr = BLOCK_KW * PER_WORD
    dtype: tl.constexpr = a_ptr.dtype.element_ty
    # The factor that turns a unit of the integers into one: see `two_planes`.
    UNIT: tl.constexpr = (1 << 24) if W_NBITS < 16 and dtype == tl.float16 else 1
    pid_m, pid_n = grouped_order(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), 8)
    pid_k = tl.program_id(1)
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_n = tl.max_contiguous(tl.multiple_of(offs_n, BLOCK_N), BLOCK_N)
    K_WORDS = K // PER_WORD
    group_words = group_size // PER_WORD
    blocks = tl.cdiv(K_WORDS, BLOCK_KW)
    first = pid_k * blocks // SPLIT_K
    last = (pid_k + 1) * blocks // SPLIT_K

    # The pointers start at the first block of the part and are then advanced, which takes fewer instructions than
    # computing new ones.
    word_rows = first * BLOCK_KW + tl.arange(0, BLOCK_KW)
    words_ptrs = words_ptr + word_rows[None, :].to(tl.int64) * stride_wk + offs_n[:, None].to(tl.int64) * stride_wn
    offs_k = first * BLOCK_K + tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + offs_m[:, None].to(tl.int64) * stride_am + offs_k[None, :].to(tl.int64) * stride_ak
    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for block in range(first, last):
        word_rows = block * BLOCK_KW + tl.arange(0, BLOCK_KW)
        offs_k = block * BLOCK_K + tl.arange(0, BLOCK_K)
        words = tl.load(words_ptrs, mask=((word_rows[None, :] < K_WORDS) & (offs_n[:, None] < N)) | EVEN, other=0)
        scales, zeros = scales_and_zeros(
            scales_ptr, zeros_ptr, zero, block * BLOCK_KW, offs_n, N, K_WORDS, group_words,
            stride_sg, stride_sn, stride_zg, stride_zn, W_GROUP_MODE, ZERO_IS_NUMBER, META_ROWS, EVEN,
        )  # fmt: skip
        # `tl.trans` swaps rows and columns.
        scales, zeros = tl.trans(scales), tl.trans(zeros)
        a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & ((offs_k[None, :] < K) | EVEN), other=0.0)

        # If the block lies inside one group, the integers themselves are multiplied, and scale and zero point are
        # applied afterwards. If not, each weight is dequantized with the metadata of its word.
        sums = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
        for j in tl.static_range((PER_WORD + 1) // 2):
            low, high = two_planes(words, j, W_NBITS, dtype)
            if META_ROWS > 1:
                low = dequantize_block(low.to(tl.float32) * UNIT, scales, zeros, W_GROUP_MODE, dtype)
                high = dequantize_block(high.to(tl.float32) * UNIT, scales, zeros, W_GROUP_MODE, dtype)
            sums = tl.dot(low, tl.trans(columns_of_plane(a, j, PER_WORD, BLOCK_M, BLOCK_K)), sums)
            if W_NBITS < 16:
                a_high = columns_of_plane(a, j + PER_WORD // 2, PER_WORD, BLOCK_M, BLOCK_K)
                sums = tl.dot(high, tl.trans(a_high), sums)
        if META_ROWS == 1:
            a_sums = tl.sum(a.to(tl.float32), axis=1)[None, :]
            acc = add_group(acc, sums * UNIT, a_sums, scales, zeros, W_GROUP_MODE)
        else:
            acc += sums
        words_ptrs += BLOCK_KW * stride_wk
        a_ptrs += BLOCK_K * stride_ak
    offsets = pid_k.to(tl.int64) * M * N + offs_m[:, None].to(tl.int64) * N + offs_n[None, :]
    tl.store(parts_ptr + offsets, tl.trans(acc), mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


# ## 3. A handful of rows, and no instruction too many
#
# **What was slow?** Up to about fifty rows, the time should go into reading the words. In the kernel above it goes into
# instructions: compiled for an H200, its loop has more than thirty for each word that a thread unpacks. Many of them
# compute addresses, or carry numbers from the thread that loaded them to the one that multiplies them. The kernels
# below compute the same sums with a third to a half as many. They don't work for all arguments (see `kernel_for`), so
# they don't replace the first one.
#
# **Half-words.** A register holds 32 bits, and the tensor cores need two float16 in it, neighbours along K. Split a
# word into two halves of sixteen bits, and let plane `j` be number `j` of all *half-words*. It has two rows for each
# word row. Masking a word leaves the two numbers of such a plane, each in its half, as subnormal floats: the masked
# word **is** the register that the tensor cores need.
#
# **Fewer shifts.** Subnormal float16 numbers are evenly spaced up to `2**10` of their smallest steps. There is room for
# a four-bit number and `LIFT` more bits below it. So a number doesn't have to be shifted down to bit 0: left in place,
# it is just `2**LIFT` times as large, and the sum is corrected for that. The second of the four numbers in a half-word
# begins at bit four, so it needs no shift at all.
#
# Every `STEP`-th plane is stacked along K, for one long product. `tl.join` puts two blocks side by side, in a new last
# dimension: the opposite of `tl.split`. `shifts` is known when the kernel is compiled, so it becomes a constant in each
# instruction, not data.
@triton.jit
def half_word_planes(
    words, FIRST: tl.constexpr, STEP: tl.constexpr, LIFT: tl.constexpr, W_NBITS: tl.constexpr, dtype: tl.constexpr
):
    PLANES: tl.constexpr = 16 // W_NBITS // STEP
    MASK: tl.constexpr = (((1 << W_NBITS) - 1) << LIFT) * 0x00010001
    shifts = (FIRST + STEP * tl.arange(0, PLANES)) * W_NBITS
    both = ((words[:, None, :] >> shifts[None, :, None]) << LIFT) & MASK
    if dtype == tl.bfloat16:
        both = both | 0x43004300  # 128 + q, as above
    low = both.to(tl.int16).to(dtype, bitcast=True)
    high = (both >> 16).to(tl.int16).to(dtype, bitcast=True)
    return tl.reshape(tl.join(low, high), (words.shape[0], 2 * PLANES * words.shape[1]))


# **Descriptors.** Words and A are loaded by the tensor memory accelerator, as in [the fast product](matmul.py): no
# addresses, no masks. It puts them into shared memory, and each thread reads those words whose weights it has to supply
# to the tensor cores. What a thread has unpacked is never moved to another thread.
#
# **Transposed** as above: the weights are the left factor, and a tile of A may have as few as eight rows. The parts are
# stored by a descriptor with three dimensions: a tile that extends past the last row is cut off there, and doesn't
# overwrite the next part.
#
# **Up to sixteen rows** the odd planes are left unshifted, four bits up, so there are two sums, one over the even
# planes and one over the odd ones. With one row this took
# [[bench: gemm_splitK/ladder/descriptors and half-words/1_row_ms]] down to
# [[bench: gemm_splitK/ladder/odd planes left in place/1_row_ms]]. The columns of A are reordered to match: first into
# even and odd ones, and then plane by plane.
@triton.jit
def columns_by_plane(a, W_NBITS: tl.constexpr):
    BLOCK_M: tl.constexpr = a.shape[0]
    HALF_K: tl.constexpr = a.shape[1] // 2
    PLANES: tl.constexpr = 8 // W_NBITS
    even, odd = tl.split(tl.reshape(a, (BLOCK_M, HALF_K // PLANES, PLANES, 2)))
    even = tl.reshape(tl.permute(even, (0, 2, 1)), (BLOCK_M, HALF_K))
    odd = tl.reshape(tl.permute(odd, (0, 2, 1)), (BLOCK_M, HALF_K))
    return even, odd


# **Sums of A without additions:** the tensor cores multiply with ones. With 16 rows this took
# [[bench: gemm_splitK/ladder/every mode, with descriptors/16_rows_ms]] down to
# [[bench: gemm_splitK/ladder/sums of A in place/16_rows_ms]]. They return sixteen equal rows, and each thread has the
# sums of its own columns among its own registers. Picking one row would need shuffles between threads. Instead,
# `tl.broadcast_to` repeats it down the tile, which costs nothing. And `ones` are joined from two halves because the
# weights are: then the compiler needs A in the same layout for both products, and converts it only once.
@triton.jit
def sums_of_columns(even, odd, one, BLOCK_N: tl.constexpr):
    half = tl.full((16, even.shape[0] // 2), one, even.dtype)
    ones = tl.reshape(tl.join(half, half), (16, even.shape[0]))
    rows = tl.dot(ones, odd, tl.dot(ones, even))
    return tl.reshape(tl.broadcast_to(rows[None, :, :], (BLOCK_N // 16, 16, even.shape[1])), (BLOCK_N, even.shape[1]))


# A block lies inside one group, so there is one row of metadata.
@triton.jit
def load_group_metadata(metadata_ptr, group, offs_n, N, stride_g, stride_n, EVEN: tl.constexpr):
    metadata_ptrs = metadata_ptr + tl.cast(group, tl.int64) * stride_g + offs_n * stride_n
    metadata = tl.load(metadata_ptrs, mask=(offs_n < N) | EVEN, other=0.0, eviction_policy="evict_last")
    return metadata.to(tl.float32)[:, None]


@triton.jit
def gemm_descriptor_kernel(
    a_desc, words_desc, parts_desc, scales_ptr, zeros_ptr,
    N, K, zero, split_k, stride_sg, stride_sn, stride_zg, stride_zn,
    W_NBITS: tl.constexpr, W_GROUP_MODE: tl.constexpr, ZERO_IS_NUMBER: tl.constexpr, GROUP_BLOCKS: tl.constexpr,
    EVEN: tl.constexpr, PDL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_KW: tl.constexpr, NUM_STAGES: tl.constexpr,
):  # fmt: skip
    BLOCK_K: tl.constexpr = BLOCK_KW * (32 // W_NBITS)
    dtype: tl.constexpr = a_desc.dtype
    # `LIFT`: how many bits up the odd planes stay. `UNIT`: the sums count in units of `1 / UNIT`, as in `two_planes`.
    # Converting each would cost instructions, so the `ones` of the sums of A are one unit, and the result is multiplied
    # once. `BIAS`: the excess of each bfloat16 weight; it is subtracted from the sum, using the sums of A.
    LIFT: tl.constexpr = W_NBITS if W_NBITS < 8 and dtype == tl.float16 else 0
    UNIT: tl.constexpr = (1 << 24) if dtype == tl.float16 else 1
    BIAS: tl.constexpr = 0 if dtype == tl.float16 else 128
    zero = tl.cast(zero, tl.float32)
    start_n = tl.program_id(0) * BLOCK_N
    pid_k = tl.program_id(1)
    start_m = tl.program_id(2) * BLOCK_M
    offs_n = start_n + tl.max_contiguous(tl.multiple_of(tl.arange(0, BLOCK_N), BLOCK_N), BLOCK_N)
    blocks = K // BLOCK_K
    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    # `num_stages` as an option of the launch prefetches only what a `tl.dot` multiplies. Given to the loop itself it
    # prefetches the metadata, too. There is no remainder along K: the launcher uses this kernel only if a group is a
    # whole number of blocks. That number is a constant, so dividing by it needs no division instruction: with 16 rows,
    # [[bench: gemm_splitK/ladder/division by a constant/16_rows_ms]].
    for block in tl.range(pid_k * blocks // split_k, (pid_k + 1) * blocks // split_k, num_stages=NUM_STAGES):
        scales = 1.0
        zeros = zero
        group = block // GROUP_BLOCKS
        if W_GROUP_MODE >= 2:
            scales = load_group_metadata(scales_ptr, group, offs_n, N, stride_sg, stride_sn, EVEN)
        if (W_GROUP_MODE == 1 or W_GROUP_MODE >= 3) and not ZERO_IS_NUMBER:
            zeros = load_group_metadata(zeros_ptr, group, offs_n, N, stride_zg, stride_zn, EVEN)
        words = tl.trans(words_desc.load([block * BLOCK_KW, start_n]))
        even, odd = columns_by_plane(a_desc.load([start_m, block * BLOCK_K]), W_NBITS)
        even, odd = tl.trans(even), tl.trans(odd)
        a_sums = sums_of_columns(even, odd, 1.0 / UNIT, BLOCK_N)
        even_planes = half_word_planes(words, 0, 2, 0, W_NBITS, dtype)
        odd_planes = half_word_planes(words, 1, 2, LIFT, W_NBITS, dtype)
        if LIFT:
            sums = tl.dot(even_planes, even) + tl.dot(odd_planes, odd) * (1.0 / (1 << LIFT))
        else:
            sums = tl.dot(odd_planes, odd, tl.dot(even_planes, even)) - BIAS * a_sums
        acc = add_group(acc, sums, a_sums, scales, zeros, W_GROUP_MODE)
    if PDL:
        # `gdc_launch_dependents` lets the next kernel start: section 4 says why.
        gdc_launch_dependents()
    parts_desc.store([pid_k, start_m, start_n], tl.reshape(tl.trans(acc * UNIT), (1, BLOCK_M, BLOCK_N)))


# ## 4. More rows: nothing twice
#
# **What was slow?** With more rows there is more to do for each word, and a second tile of columns does much of it
# again: it reorders A by planes and sums its rows. So a separate kernel does both, once, before the product. With 64
# rows it then took [[bench: gemm_splitK/ladder/arranged ahead/64_rows_ms]].
#
# **Launched before the previous kernel ends.** A kernel normally starts when the previous one has finished, and the GPU
# idles in between. With *programmatic dependent launch* (the option `launch_pdl`) its programs may start when every
# program of the previous kernel has called `gdc_launch_dependents`, or ended. `gdc_wait` waits for the end of the
# previous kernel, and only after it may a program read what that kernel writes. With 64 rows it took
# [[bench: gemm_splitK/ladder/metadata requested early/64_rows_ms]] down to
# [[bench: gemm_splitK/ladder/launched early/64_rows_ms]].
@triton.jit
def plane_order_kernel(
    a_ptr, ordered_ptr, a_sums_ptr, M, K, stride_am, stride_ak, stride_sums,
    W_NBITS: tl.constexpr, PDL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    PLANES: tl.constexpr = 16 // W_NBITS
    if PDL:
        gdc_launch_dependents()
    block = tl.program_id(0)
    offs_m = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_k = block.to(tl.int64) * BLOCK_K + tl.arange(0, BLOCK_K)
    rows = offs_m[:, None].to(tl.int64)
    a = tl.load(a_ptr + rows * stride_am + offs_k[None, :] * stride_ak, mask=offs_m[:, None] < M, other=0.0)
    tl.store(a_sums_ptr + block * stride_sums + offs_m, tl.sum(a.to(tl.float32), axis=1))
    by_plane = tl.permute(tl.reshape(a, (BLOCK_M, BLOCK_K // PLANES, PLANES)), (0, 2, 1))
    ordered_ptrs = ordered_ptr + rows * K + offs_k[None, :]
    tl.store(ordered_ptrs, tl.reshape(by_plane, (BLOCK_M, BLOCK_K)), mask=offs_m[:, None] < M)


# **Zero points separately.** In the sum over the groups, [[tag: QM-zeros]], the part with the zero points doesn't
# depend on the integers. It is a matrix product of its own, and a small one. In the loop over the blocks it would take
# an instruction for each element of the tile, the zero points and a row of sums of A. So it is done separately, for
# sixteen blocks at a time: what it needs is requested before the loop, and used after it. With 64 rows this took
# [[bench: gemm_splitK/ladder/all planes in one product/64_rows_ms]] down to
# [[bench: gemm_splitK/ladder/zeros apart/64_rows_ms]]. `factor` is what the sums of A are multiplied by.
@triton.jit
def zero_factor(scales, zeros, BIAS: tl.constexpr, W_GROUP_MODE: tl.constexpr):
    if W_GROUP_MODE == 4:
        factor = zeros - scales * BIAS
    elif W_GROUP_MODE == 1 or W_GROUP_MODE == 3:
        factor = scales * -(zeros + BIAS)
    else:
        factor = scales * -BIAS
    return factor


# As far as ten bits allow, all planes stay `LIFT` bits up, and are multiplied in one product:
# [[bench: gemm_splitK/ladder/all planes in one product/64_rows_ms]] with 64 rows. Scales are the only metadata in the
# loop; they are loaded by a descriptor, because the pipeline copies no less than four bytes per thread, and 128 threads
# would load one float16 each. (A tile of less than 128 bytes would be misaligned from the second stage on.)
@triton.jit
def gemm_plane_order_kernel(
    a_desc, words_desc, scales_desc, parts_desc, scales_ptr, zeros_ptr, a_sums_ptr,
    N, K, zero, split_k, stride_sg, stride_sn, stride_zg, stride_zn, stride_sums,
    W_NBITS: tl.constexpr, W_GROUP_MODE: tl.constexpr, ZERO_IS_NUMBER: tl.constexpr, GROUP_BLOCKS: tl.constexpr,
    PDL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_KW: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):  # fmt: skip
    BLOCK_K: tl.constexpr = BLOCK_KW * (32 // W_NBITS)
    CHUNK: tl.constexpr = 16
    dtype: tl.constexpr = a_desc.dtype
    LIFT: tl.constexpr = 0 if dtype == tl.bfloat16 else W_NBITS if W_NBITS <= 4 else 10 - W_NBITS
    UNIT: tl.constexpr = (1 << (24 - LIFT)) if dtype == tl.float16 else 1
    BIAS: tl.constexpr = 0 if dtype == tl.float16 else 128
    HAS_ZEROS: tl.constexpr = W_GROUP_MODE == 1 or W_GROUP_MODE >= 3
    start_n = tl.program_id(0) * BLOCK_N
    pid_k = tl.program_id(1)
    start_m = tl.program_id(2) * BLOCK_M
    offs_m = start_m + tl.arange(0, BLOCK_M)
    offs_n = start_n + tl.arange(0, BLOCK_N)
    blocks = K // BLOCK_K
    first, last = pid_k * blocks // split_k, (pid_k + 1) * blocks // split_k
    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for start in range(first, last, CHUNK):
        # **Step 1: what the zero points will need.** A loaded number costs no time until it is used.
        chunk = start + tl.arange(0, CHUNK)[:, None]
        inside = (chunk < last) & (offs_n[None, :] < N)
        groups = (chunk // GROUP_BLOCKS).to(tl.int64)
        chunk_scales = tl.full((CHUNK, BLOCK_N), 1.0, tl.float32)
        chunk_zeros = tl.cast(zero, tl.float32)
        if W_GROUP_MODE >= 2:
            scales_ptrs = scales_ptr + groups * stride_sg + offs_n[None, :] * stride_sn
            chunk_scales = tl.load(scales_ptrs, mask=inside, other=0.0, eviction_policy="evict_last")
        if HAS_ZEROS and not ZERO_IS_NUMBER:
            zeros_ptrs = zeros_ptr + groups * stride_zg + offs_n[None, :] * stride_zn
            chunk_zeros = tl.load(zeros_ptrs, mask=inside, other=0.0, eviction_policy="evict_last")
        if PDL:
            gdc_wait()  # up to here nothing came from `plane_order_kernel`
        a_sums = tl.load(a_sums_ptr + chunk * stride_sums + offs_m[None, :], mask=chunk < last, other=0.0)

        # **Step 2: the integers, scaled group by group.**
        for block in tl.range(start, tl.minimum(start + CHUNK, last), num_stages=NUM_STAGES):
            words = tl.trans(words_desc.load([block * BLOCK_KW, start_n]))
            sums = tl.dot(
                half_word_planes(words, 0, 1, LIFT, W_NBITS, dtype), tl.trans(a_desc.load([start_m, block * BLOCK_K]))
            )
            if W_GROUP_MODE >= 2:
                sums *= tl.trans(scales_desc.load([block // GROUP_BLOCKS, start_n])).to(tl.float32)
            acc += sums

        # **Step 3: the zero points.** `tf32x3` multiplies on tensor cores and keeps almost the precision of float32.
        if HAS_ZEROS or BIAS:
            factor = zero_factor(chunk_scales.to(tl.float32), chunk_zeros.to(tl.float32), BIAS, W_GROUP_MODE)
            acc = tl.dot(tl.trans(factor * (1.0 / UNIT)), a_sums, acc, input_precision="tf32x3")
    if PDL:
        gdc_launch_dependents()
    parts_desc.store([pid_k, start_m, start_n], tl.reshape(tl.trans(acc * UNIT), (1, BLOCK_M, BLOCK_N)))


# ## Add the parts, scale, round once
#
# A program adds all parts of its elements, always in the same order. So the same call gives the same bits.
@triton.jit
def reduce_parts_kernel(
    parts_ptr, scales_ptr, scales_a_ptr, c_ptr, N, elements, stride_sn,
    CHANNEL_SCALE_MODE: tl.constexpr, PDL: tl.constexpr, PARTS: tl.constexpr, BLOCK_PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    parts = tl.arange(0, BLOCK_PARTS).to(tl.int64)
    if PDL:
        gdc_wait()
    c = tl.sum(tl.load(
        parts_ptr + parts[:, None] * elements + offsets[None, :],
        mask=(parts[:, None] < PARTS) & (offsets[None, :] < elements), other=0.0,
    ), axis=0)  # fmt: skip
    # [[tag: QM-channel]]
    if CHANNEL_SCALE_MODE == 1 or CHANNEL_SCALE_MODE == 3:
        c *= tl.load(scales_ptr + (offsets % N) * stride_sn, mask=offsets < elements, other=0.0).to(tl.float32)
    if CHANNEL_SCALE_MODE >= 2:
        c *= tl.load(scales_a_ptr + offsets // N, mask=offsets < elements, other=0.0).to(tl.float32)
    tl.store(c_ptr + offsets, c.to(c_ptr.dtype.element_ty), mask=offsets < elements)


# ## 5. Many rows: dequantize once
#
# **What was slow?** With hundreds of rows a fused kernel unpacks every weight once for each tile of rows. For 512 rows,
# and N and K of 8192, [gemm](../gemlite/gemm.py) takes [[bench: gemm/512x8192x8192/forward/ms]], the library's product
# in sixteen bits [[bench: gemm/512x8192x8192/forward/cuBLAS.ms]]. So it is cheaper to write the unpacked weight to
# memory and call the library. One word gives `per_word` rows of the weight.
@triton.jit
def dequantize_kernel(
    words_ptr, scales_ptr, zeros_ptr, weight_ptr, N, K, group_size, zero,
    stride_wk, stride_wn, stride_sg, stride_sn, stride_zg, stride_zn,
    W_NBITS: tl.constexpr, W_GROUP_MODE: tl.constexpr, ZERO_IS_NUMBER: tl.constexpr, META_ROWS: tl.constexpr,
    EVEN: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_KW: tl.constexpr,
):  # fmt: skip
    PER_WORD: tl.constexpr = 32 // W_NBITS if W_NBITS < 16 else 1
    offs_n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    first_row = tl.program_id(1) * BLOCK_KW
    word_rows = first_row + tl.arange(0, BLOCK_KW)
    K_WORDS = K // PER_WORD
    scales, zeros = scales_and_zeros(
        scales_ptr, zeros_ptr, zero, first_row, offs_n, N, K_WORDS, group_size // PER_WORD,
        stride_sg, stride_sn, stride_zg, stride_zn, W_GROUP_MODE, ZERO_IS_NUMBER, META_ROWS, EVEN,
    )  # fmt: skip
    inside = ((word_rows[:, None] < K_WORDS) & (offs_n[None, :] < N)) | EVEN
    words_ptrs = words_ptr + word_rows[:, None].to(tl.int64) * stride_wk + offs_n[None, :].to(tl.int64) * stride_wn
    words = tl.load(words_ptrs, mask=inside, other=0)
    for j in tl.static_range(PER_WORD):
        q = (words >> (j * W_NBITS)) & ((1 << W_NBITS) - 1) if W_NBITS < 16 else words
        weight = dequantize_block(q, scales, zeros, W_GROUP_MODE, weight_ptr.dtype.element_ty)
        offs_k = word_rows.to(tl.int64) * PER_WORD + j
        tl.store(weight_ptr + offs_k[:, None] * N + offs_n[None, :], weight, mask=inside)


# ## Launchers
#
# Most of the cost of a small product is what Python does before the GPU has anything to do. So what can be computed
# once is cached.
def metadata_arguments(a, scales, zeros, uses_scales):
    """Scales, zeros, and two strides of each, for a kernel; any tensor stands in for what a mode doesn't use."""
    scales, zeros = scales if uses_scales else a, a if zeros is None else zeros
    return scales, zeros, (group_stride(scales), scales.stride(1), group_stride(zeros), zeros.stride(1))


def tiles_of(x, tile):
    """What `launch` needs for a tensor descriptor of `x` with tiles of this shape."""
    return Tiles(x, x.shape, x.stride(), tile)


def launched_early(pdl):
    """Launch options of a kernel that waits for the one before it. Other GPUs' compilers do not know `launch_pdl`."""
    return dict(launch_pdl=True) if pdl else {}


def reduce_parts(parts, scales, scales_a, out_dtype, channel_scale_mode, pdl=False):
    """Add the parts, (PARTS, M, N), scale rows and columns, round to out_dtype. `pdl`: as `launched_early`."""
    PARTS, M, N = parts.shape
    c = torch.empty(M, N, dtype=out_dtype, device=parts.device)
    # These programs spend nearly all their time waiting for the cache, so there are many of them, and they are small.
    BLOCK, num_warps = (128, 1) if M * N <= 1 << 17 else (512, 4)
    by_column = channel_scale_mode in (1, 3)
    by_row = scales_a.contiguous() if channel_scale_mode >= 2 else parts
    launch(
        reduce_parts_kernel, (cdiv(M * N, BLOCK),), (parts, scales if by_column else parts, by_row, c),
        (N, M * N, scales.stride(1) if by_column else 0),
        CHANNEL_SCALE_MODE=channel_scale_mode, PDL=pdl, PARTS=PARTS, BLOCK_PARTS=1 << (PARTS - 1).bit_length(),
        BLOCK=BLOCK, num_warps=num_warps, **launched_early(pdl),
    )  # fmt: skip
    return c


def planes_forward(
    a, words, scales, zeros, zero, scales_a, W_nbits, group_size, W_group_mode, channel_scale_mode, out_dtype, *,
    split_k=None, BLOCK_M=None, BLOCK_N=None, BLOCK_KW=None,
):  # fmt: skip
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_KW=BLOCK_KW)
    (M, K), N = a.shape, words.shape[1]
    per_word = 32 // W_nbits if W_nbits < 16 else 1
    # Many planes of many rows would not fit into the registers.
    BLOCK_M = BLOCK_M or (16 if M <= 16 else 32 if M <= 32 or per_word > 8 else 64)
    BLOCK_N = BLOCK_N or (256 if BLOCK_M == 16 and N >= 4096 else 128)
    BLOCK_KW, split_k = BLOCK_KW or {16: 64, 8: 32}.get(W_nbits, 16), split_k or (8 if M <= 16 else 4)
    scales_ptr, zeros_ptr, strides = metadata_arguments(a, scales, zeros, W_group_mode >= 2)
    parts = torch.empty(split_k, M, N, dtype=torch.float32, device=a.device)
    launch(
        gemm_planes_kernel, (cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N), split_k), (a, words, scales_ptr, zeros_ptr, parts),
        (M, N, K, group_size, zero, *a.stride(), *words.stride(), *strides),
        W_NBITS=W_nbits, W_GROUP_MODE=W_group_mode, ZERO_IS_NUMBER=zeros is None,
        META_ROWS=1 if group_size // per_word % BLOCK_KW == 0 else BLOCK_KW,
        EVEN=N % BLOCK_N == 0 and K // per_word % BLOCK_KW == 0, SPLIT_K=split_k,
        BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_KW=BLOCK_KW, num_warps=8 if BLOCK_N >= 256 else 4, num_stages=3,
    )  # fmt: skip
    return reduce_parts(parts, scales, scales_a, out_dtype, channel_scale_mode)


# As many parts as it takes to fill the GPU once: `programs` is how many fit at a time. More would need a second wave,
# and every additional part is written and read. A part has at least two blocks.
def choose_split_k(tiles, blocks, programs):
    return max(1, min(programs // tiles, blocks // 2))


@functools.cache
def multiprocessors(device_index):
    return 2 if device.INTERPRET else torch.cuda.get_device_properties(device_index).multi_processor_count


# For each `BLOCK_M`: columns of a tile, warps of a program, and how many programs an SM holds. With few rows there are
# one or two warps and many programs, so that some compute while others wait for their words. With A reordered by planes
# there are four warps, which is what the larger tensor-core instructions need. Tiles of 64 columns instead of 128 took
# 32 rows from [[bench: gemm_splitK/ladder/parts by descriptor/32_rows_ms]] to
# [[bench: gemm_splitK/ladder/64 columns/32_rows_ms]].
TILES = {8: (128, 2, 4), 16: (64, 1, 8), 32: (64, 4, 4), 64: (128, 4, 2)}


# Computed once for each size: a small product would wait for it.
@functools.lru_cache(maxsize=1024)
def schedule(M, N, blocks, plane_ordered, processors, split_k, BLOCK_M, BLOCK_N):
    """Tile, warps, parts along K, and the grid."""
    rows = min(max(triton.next_power_of_2(M), 8), 64 if plane_ordered else 16)
    columns, num_warps, resident = TILES[rows]
    BLOCK_M, BLOCK_N = BLOCK_M or rows, BLOCK_N or columns
    tiles = cdiv(N, BLOCK_N) * cdiv(M, BLOCK_M)
    split_k = split_k or choose_split_k(tiles, blocks, resident * processors)
    # Tiles of columns are the first dimension of the grid: programs that start together read neighbouring words, and
    # the same block of A.
    return BLOCK_M, BLOCK_N, num_warps, split_k, (cdiv(N, BLOCK_N), split_k, cdiv(M, BLOCK_M))


def plane_order(a, W_nbits, BLOCK_K, BLOCK_M, pdl):
    """(A in the order of the planes, float32 sums of its rows over each block of K), for tiles of BLOCK_M rows."""
    M, K = a.shape
    blocks, rows = K // BLOCK_K, cdiv(M, BLOCK_M) * BLOCK_M
    ordered = torch.empty(M, K, dtype=a.dtype, device=a.device)
    a_sums = torch.empty(blocks, rows, dtype=torch.float32, device=a.device)
    launch(
        plane_order_kernel, (blocks, rows // 16), (a, ordered, a_sums), (M, K, *a.stride(), a_sums.stride(0)),
        W_NBITS=W_nbits, PDL=pdl, BLOCK_M=16, BLOCK_K=BLOCK_K,
    )  # fmt: skip
    return ordered, a_sums


def descriptor_forward(
    a, words, scales, zeros, zero, scales_a, W_nbits, group_size, W_group_mode, channel_scale_mode, out_dtype, *,
    plane_ordered, split_k=None, BLOCK_M=None, BLOCK_N=None,
):  # fmt: skip
    """The product of checked, describable arguments, A put into the order of the planes beforehand or not."""
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N)
    (M, K), N = a.shape, words.shape[1]
    BLOCK_KW = words_in_block(W_nbits, group_size)
    BLOCK_K = BLOCK_KW * 32 // W_nbits
    BLOCK_M, BLOCK_N, num_warps, split_k, grid = schedule(
        M, N, K // BLOCK_K, plane_ordered, multiprocessors(words.device.index), split_k, BLOCK_M, BLOCK_N
    )
    # The interpreter runs one kernel after the other, so there is nothing that could be launched early.
    pdl = not device.INTERPRET
    scales_ptr, zeros_ptr, strides = metadata_arguments(a, scales, zeros, W_group_mode >= 2)
    parts = torch.empty(split_k, M, N, dtype=torch.float32, device=a.device)
    parts_desc, words_desc = tiles_of(parts, (1, BLOCK_M, BLOCK_N)), tiles_of(words, (BLOCK_KW, BLOCK_N))
    options = dict(
        W_NBITS=W_nbits, W_GROUP_MODE=W_group_mode, ZERO_IS_NUMBER=zeros is None, GROUP_BLOCKS=group_size // BLOCK_K,
        PDL=pdl, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_KW=BLOCK_KW, NUM_STAGES=3, num_warps=num_warps,
    )  # fmt: skip
    if plane_ordered:
        # From here on `a` is the copy. The product is launched before the copy is done, and waits for it.
        a, a_sums = plane_order(a, W_nbits, BLOCK_K, BLOCK_M, pdl)
        scales_desc = tiles_of(scales, (1, BLOCK_N)) if W_group_mode >= 2 else words_desc
        described = tiles_of(a, (BLOCK_M, BLOCK_K)), words_desc, scales_desc, parts_desc
        launch(
            gemm_plane_order_kernel, grid, (*described, scales_ptr, zeros_ptr, a_sums),
            (N, K, zero, split_k, *strides, a_sums.stride(0)), **options, **launched_early(pdl),
        )  # fmt: skip
    else:
        described = tiles_of(a, (BLOCK_M, BLOCK_K)), words_desc, parts_desc
        launch(
            gemm_descriptor_kernel, grid, (*described, scales_ptr, zeros_ptr), (N, K, zero, split_k, *strides),
            EVEN=N % BLOCK_N == 0, **options,
        )  # fmt: skip
    return reduce_parts(parts, scales, scales_a, out_dtype, channel_scale_mode, pdl)


def dequantize_forward(words, scales, zeros, zero, K, W_nbits, group_size, W_group_mode, dtype):
    """The weight, (K, N) in `dtype`, of checked arguments."""
    N = words.shape[1]
    weight = torch.empty(K, N, dtype=dtype, device=words.device)
    per_word = 32 // W_nbits if W_nbits < 16 else 1
    BLOCK_N, BLOCK_KW = 256, 8
    scales_ptr, zeros_ptr, strides = metadata_arguments(words, scales, zeros, W_group_mode >= 2)
    launch(
        dequantize_kernel, (cdiv(N, BLOCK_N), cdiv(K // per_word, BLOCK_KW)), (words, scales_ptr, zeros_ptr, weight),
        (N, K, group_size, zero, *words.stride(), *strides),
        W_NBITS=W_nbits, W_GROUP_MODE=W_group_mode, ZERO_IS_NUMBER=zeros is None,
        META_ROWS=1 if group_size // per_word % BLOCK_KW == 0 else BLOCK_KW,
        EVEN=N % BLOCK_N == 0 and K // per_word % BLOCK_KW == 0, BLOCK_N=BLOCK_N, BLOCK_KW=BLOCK_KW,
    )  # fmt: skip
    return weight


# ## Which kernel?
#
# With few rows, the time goes into moving the words, by descriptors if the format and the addresses allow it. With many
# rows, it pays to unpack the weights to memory once. With four bits, writing them and reading them back moves eight
# times the bytes of the words, whatever `M` is, while the work of unpacking grows with each tile of rows. The
# break-even point was between 256 and 384 rows: with 256 the packed weight took
# [[bench: gemm_splitK/ladder/parts by descriptor/256_rows_ms]] and the dequantized one
# [[bench: gemm_splitK/ladder/dequantized, then cuBLAS/256_rows_ms]]. Rows or columns that are scaled in float32, or
# another `out_dtype`, are then left to `gemm`: the library would round first.
#
# A matrix-vector kernel for a single row, in float32 and without tensor cores, was once faster than planes. It took
# [[bench: gemm_splitK/ladder/ordinary units/1_row_ms]]. The tensor cores process eight rows at a time, of which seven
# are wasted here. With descriptors for the words they are nevertheless faster:
# [[bench: gemm_splitK/ladder/every mode, with descriptors/1_row_ms]].
@functools.cache
def has_tma(device_index):
    """Is there a tensor memory accelerator? The interpreter counts as a GPU with one."""
    return device.INTERPRET or torch.cuda.get_device_capability(device_index)[0] >= 9


def describable(x):
    """Can a descriptor describe x: contiguous rows that don't overlap and are aligned to 16 bytes?"""
    stride_m, stride_n = x.stride()
    aligned = stride_m * x.element_size() % 16 == 0 and x.data_ptr() % 16 == 0
    return aligned and stride_n == 1 and stride_m >= x.shape[1]


def words_in_block(W_nbits, group_size):
    """Word rows in a block of the kernels with descriptors, or 0 if no block lies inside one group."""
    group_words = group_size * W_nbits // 32
    return 16 if group_words % 16 == 0 and W_nbits >= 4 else 8 if group_words % 8 == 0 else 0


def kernel_for(a, words, scales, W_nbits, group_size, W_group_mode, channel_scale_mode, out_dtype, tma=None):
    """Which product runs for checked arguments. `tma`: whether the GPU has a TMA; None: find out."""
    (M, K), N = a.shape, words.shape[1]
    packed = W_nbits < 8 or (W_nbits == 8 and a.dtype == torch.float16)  # bfloat16 has seven bits for the integer
    by_descriptors = packed and words_in_block(W_nbits, group_size) and describable(a) and describable(words)
    # The parts, N numbers of four bytes in a row, have to be describable, too.
    if by_descriptors and N % 4 == 0 and (has_tma(words.device.index) if tma is None else tma):
        one_row_a_group = W_group_mode < 2 or (scales.shape[0] * group_size == K and describable(scales))
        if 16 < M <= 256 and one_row_a_group:
            return "plane order"
        if M <= 64:
            return "descriptors"
    if M <= 64:
        return "planes"
    return "dequantized" if channel_scale_mode == 0 and out_dtype == a.dtype else "gemm"


def low_bit_forward(
    a: torch.Tensor, words: torch.Tensor, scales: torch.Tensor | None, zeros: torch.Tensor | None, zero: float,
    scales_a: torch.Tensor | None, W_nbits: int, group_size: int, W_group_mode: int, channel_scale_mode: int,
    out_dtype: torch.dtype,
) -> torch.Tensor:  # fmt: skip
    modes = (W_nbits, group_size, W_group_mode)
    arguments = (a, words, scales, zeros, zero, scales_a, *modes, channel_scale_mode, out_dtype)
    kernel = kernel_for(a, words, scales, *modes, channel_scale_mode, out_dtype)
    if kernel in ("plane order", "descriptors"):
        return descriptor_forward(*arguments, plane_ordered=kernel == "plane order")
    if kernel == "planes":
        return planes_forward(*arguments)
    if kernel == "dequantized":
        return torch.matmul(a, dequantize_forward(words, scales, zeros, zero, a.shape[1], *modes, a.dtype))
    return gemm_forward(
        a, words, scales, zero if zeros is None else zeros, W_nbits=W_nbits, group_size=group_size,
        W_group_mode=W_group_mode, channel_scale_mode=channel_scale_mode, scales_a=scales_a, out_dtype=out_dtype,
    )  # fmt: skip


# `torch.compile` need not look into any of this: inside a compiled model the whole choice is one custom operator.
low_bit_operator = torch.library.custom_op(f"{__name__.replace('.', '_')}::low_bit", low_bit_forward, mutates_args=())


@low_bit_operator.register_fake
def low_bit_fake(a, words, scales, zeros, zero, scales_a, W_nbits, group_size, mode, channel_mode, out_dtype):
    return a.new_empty(a.shape[0], words.shape[1], dtype=out_dtype)


def low_bit_matmul(
    a, words, scales, zeros, *, W_nbits, group_size, W_group_mode=3, channel_scale_mode=0, scales_a=None,
    out_dtype=None,
):  # fmt: skip
    """`a @ dequantize(words)` by whichever kernel suits the shape. Forward only, the same bits each time.

    Up to 64 rows the weight stays packed. What an infinity in `a`, `scales` or `zeros` reaches is then infinite or NaN,
    not always which of the two it is in PyTorch. Kernels with tensor descriptors do the product, on
    Hopper or later, for 1, 2, 4 and (in float16) 8 bits, if a group is a multiple of 8 words and the rows of `a` and
    `words` are contiguous and aligned to 16 bytes. If that holds for `scales`, too, and each group has a row of them,
    the weight stays packed up to 256 rows.

    For more rows the weight is dequantized and `torch.matmul` called: a (K, N) matrix in a's dtype exists during the
    call. With channel scales or another out_dtype `gemm` runs instead.

    Args: as `gemm`, without its orders and hints.

    Returns:
        (M, N) in out_dtype.

    Raises:
        TypeError, ValueError: naming the argument and the rule that it breaks, before anything is launched.

    Source: as `gemm` and `gemm_splitK`; float16 made of an integer's bits as in Kim et al., 2022, "Who Says Elephants
    Can't Run: Bringing Large Scale MoE Models into Cloud Scale Production".
    """
    modes = (W_nbits, group_size, W_group_mode, channel_scale_mode)
    contract(a, words, scales, zeros, *modes, scales_a, out_dtype)
    if not (a.numel() and words.numel()):
        return torch.zeros(a.shape[0], words.shape[1], dtype=out_dtype or a.dtype, device=a.device)
    uses_zeros, is_tensor = W_group_mode in (1, 3, 4), isinstance(zeros, torch.Tensor)
    arguments = (
        a, words, scales if W_group_mode >= 2 or channel_scale_mode in (1, 3) else None,
        zeros if uses_zeros and is_tensor else None, float(zeros) if uses_zeros and not is_tensor else 0.0,
        scales_a if channel_scale_mode >= 2 else None, *modes, out_dtype or a.dtype,
    )  # fmt: skip
    return low_bit_operator(*arguments) if torch.compiler.is_compiling() else low_bit_forward(*arguments)


# **Where it falls behind.** From 65 rows on, cuBLAS with a weight in sixteen bits is faster: with 128 rows it takes
# [[bench: gemm_splitK/ladder/cuBLAS/128_rows_ms]], and the packed weight
# [[bench: gemm_splitK/ladder/parts by descriptor/128_rows_ms]]. There the library is no longer limited by reading the
# weight, and unpacking is additional work, once for each tile of rows. Dequantizing can't win there either: it writes
# the whole weight and reads it again before the library begins. With thousands of rows that is little compared with the
# product, and at 4096 rows the faster of the two changed from run to run, with the card's clock. And all these times
# are those of a CUDA graph. Called one by one from Python, a call costs more time on the CPU than a small product takes
# on the GPU. That is why a model that generates token by token is captured in a graph.
#
# ## A run small enough to watch
#
# Three blocks of eight word rows in two parts, and two tiles of columns, the second half empty.
def EXAMPLE():
    where = device.DEVICE
    a = (torch.arange(576, device=where).view(3, 192) * 5 % 7 - 3).half()
    words = pack(torch.arange(4608, device=where).view(192, 24) * 5 % 16, 4)
    scales, zeros = (torch.arange(144, device=where).view(2, 3, 24) % 5 + 1).half() / 4
    options = dict(plane_ordered=False, split_k=2, BLOCK_M=4, BLOCK_N=16)
    descriptor_forward(a, words, scales, zeros, 0.0, None, 4, 64, 3, 0, a.dtype, **options)


if __name__ == "__main__":
    words, scales, zeros = quantize(torch.randn(192, 40, dtype=torch.float16, device=device.DEVICE), 4, 64)
    weight = dict(words=words, scales=scales, zeros=zeros, W_nbits=4, group_size=64)
    shapes, halves = [dict(a=(M, 192), **weight) for M in (1, 20, 300)], (torch.float16, torch.bfloat16)
    script.main(low_bit_matmul, gemm_reference, *shapes, dtypes=halves, differentiable=False)
