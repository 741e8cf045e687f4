r"""
# Low-bit matmul, many rows

With more rows there is more to do for each word, and work that was cheap [for a handful of rows](descriptors.py)
becomes dear. So here nothing is done twice: A is put in order once, before the product, and for hundreds of rows the
weights are unpacked once, too.

[[eq: QM-planes]]

With 64 rows the product took [[bench: gemm_splitK/ladder/arranged ahead/64_rows_ms]] with A arranged beforehand, and
[[bench: gemm_splitK/ladder/parts by descriptor/64_rows_ms]] in the end.

**What it costs.** As [planes](planes.py), and a copy of A. Dequantizing writes and reads the whole weight once more,
`4 * K * N` bytes.

**Contract.** As [a handful of rows](descriptors.py), and `scales` with a row for each group, contiguous and aligned to
16 bytes. Dequantizing takes every format and any strides. [low_bit_matmul](__init__.py) sees to all that.
"""

from academy.runtime import checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.launch import cdiv, launch

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from annotated_examples.common.packed import per_group
from annotated_examples.fast.low_bit.descriptors import half_word_planes, schedule, tiles_of, words_in_block
from annotated_examples.fast.low_bit.planes import (
    launched_early, multiprocessors, number_of, reduce_parts, scales_and_zeros,
)  # fmt: skip
from annotated_examples.gemlite.gemm import dequantize_block, gemm_reference, pack, quantize


# ## 4. A in order, once
#
# **What was slow?** Every tile of columns sorts the same rows of A by plane, and adds them up for the zero points. With
# more rows that is more work, and a second tile of columns does all of it again. So a kernel of its own does both,
# once, before the product begins.
#
# [[figure: fast/plane_order]]
#
# **Started before the previous kernel ends.** Two kernels instead of one leave a gap: normally a kernel starts when the
# one before it has finished, and the GPU idles in between. With *programmatic dependent launch*, the option
# `launch_pdl`, it may start as soon as every program of the previous kernel has called `gdc_launch_dependents`, or has
# ended. `gdc_wait` then waits for the end of the previous kernel; only after it may a program read what that kernel
# wrote. With 64 rows this took [[bench: gemm_splitK/ladder/metadata requested early/64_rows_ms]] down to
# [[bench: gemm_splitK/ladder/launched early/64_rows_ms]].
@triton.jit
def plane_order_kernel(
    a,  # (pointer, stride, stride): (M, K)
    ordered_ptr,  # (M, K), contiguous
    a_sums,  # (pointer, stride): (blocks, M rounded up to whole tiles) in float32
    M, K, W_NBITS: tl.constexpr, PDL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    a_ptr, stride_am, stride_ak = a
    a_sums_ptr, stride_sums = a_sums
    PLANES: tl.constexpr = 16 // W_NBITS
    if PDL:
        gdc_launch_dependents()
    block = tl.program_id(0)
    offs_m = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_k = block.to(tl.int64) * BLOCK_K + tl.arange(0, BLOCK_K)
    rows = offs_m[:, None].to(tl.int64)
    a_tile = tl.load(a_ptr + rows * stride_am + offs_k[None, :] * stride_ak, mask=offs_m[:, None] < M, other=0.0)
    # The second tile of the example has one row, and three that don't exist, whose sums are zero:
    # `pid=(0, 1): a_tile[:, 0] = [1, 0, 0, 0]`.
    tl.store(a_sums_ptr + block * stride_sums + offs_m, tl.sum(a_tile.to(tl.float32), axis=1))
    # A half-word holds four numbers of four bits. So plane 0 takes columns 0, 4, 8 and so on. The first and the last
    # of `pid=0: a_tile[0, :5] = [-3, 2, 0, -2, 3]` come to lie side by side: `by_plane[0, 0, :2] = [-3, 3]`.
    by_plane = tl.permute(tl.reshape(a_tile, (BLOCK_M, BLOCK_K // PLANES, PLANES)), (0, 2, 1))
    ordered_ptrs = ordered_ptr + rows * K + offs_k[None, :]
    tl.store(ordered_ptrs, tl.reshape(by_plane, (BLOCK_M, BLOCK_K)), mask=offs_m[:, None] < M)


# ## Zero points, apart
#
# Look at the sum over the groups, [[tag: QM-zeros]]. The part with the zero points doesn't contain the integers at all:
# it is a matrix product of its own, sums of A times zero points, and a small one. In the loop over the blocks it would
# cost an instruction for each element of the tile, and two loads. So it is made separately, for sixteen blocks at a
# time. With 64 rows this took [[bench: gemm_splitK/ladder/all planes in one product/64_rows_ms]] down to
# [[bench: gemm_splitK/ladder/zeros apart/64_rows_ms]].
#
# What are the sums of A multiplied by? By the zero point, by minus the scale times it, or by neither, as the mode says;
# and in bfloat16 by the 128 that each weight is too large.
@triton.jit
def zero_factor(scale, zero, BIAS: tl.constexpr, W_GROUP_MODE: tl.constexpr):
    if W_GROUP_MODE == 4:
        factor = zero - scale * BIAS
    elif W_GROUP_MODE == 1 or W_GROUP_MODE == 3:
        factor = scale * -(zero + BIAS)
    else:
        factor = scale * -BIAS
    # The first scale of the example is 0.25 and the first zero point 0.75: `pid=0: factor[0, 0] = -0.1875`.
    return factor


# ## The kernel
#
# **All planes in one product.** As far as ten bits allow, every plane stays `LIFT` bits up, so there is one product and
# one sum: with 64 rows, [[bench: gemm_splitK/ladder/all planes in one product/64_rows_ms]].
#
# **Scales by descriptor.** They are the only metadata left in the loop. The pipeline copies no less than four bytes per
# thread, and 128 threads would load one float16 each, so pointers wouldn't be prefetched. (A tile of less than 128
# bytes would be misaligned from the second stage on.)
@triton.jit
def gemm_plane_order_kernel(
    a_desc, words_desc, scales_desc, parts_desc,  # of (M, K) in the order of planes, words, scales, (split_k, M, N)
    scales, zeros,  # (pointer or None, stride_g, stride_n): (K // group_size, N); zero: in place of a pointer
    a_sums,  # (pointer, stride): (blocks, M rounded up to whole tiles)
    N, K, zero, split_k,
    W_NBITS: tl.constexpr, W_GROUP_MODE: tl.constexpr, GROUP_BLOCKS: tl.constexpr, PDL: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_KW: tl.constexpr, NUM_STAGES: tl.constexpr,
):  # fmt: skip
    scales_ptr, stride_sg, stride_sn = scales
    zeros_ptr, stride_zg, stride_zn = zeros
    a_sums_ptr, stride_sums = a_sums
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
    # Three blocks in two parts: the second part has blocks `pid=(0, 1): first = 1` to `last - 1 = 2`.
    blocks = K // BLOCK_K
    first, last = pid_k * blocks // split_k, (pid_k + 1) * blocks // split_k
    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for start in range(first, last, CHUNK):
        # **Step 1: request what the zero points will need.** A loaded number costs no time until it is used. The second
        # part of the example has blocks 1 and 2 of a chunk, `pid=(0, 1), start=1: inside[:3, 0] = [1, 1, 0]`.
        chunk = start + tl.arange(0, CHUNK)[:, None]
        inside = (chunk < last) & (offs_n[None, :] < N)
        groups = (chunk // GROUP_BLOCKS).to(tl.int64)
        chunk_scales = tl.full((CHUNK, BLOCK_N), 1.0, tl.float32)
        chunk_zeros = tl.cast(zero, tl.float32)
        if W_GROUP_MODE >= 2:
            scales_ptrs = scales_ptr + groups * stride_sg + offs_n[None, :] * stride_sn
            chunk_scales = tl.load(scales_ptrs, mask=inside, other=0.0, eviction_policy="evict_last")
        if HAS_ZEROS and zeros_ptr is not None:
            zeros_ptrs = zeros_ptr + groups * stride_zg + offs_n[None, :] * stride_zn
            chunk_zeros = tl.load(zeros_ptrs, mask=inside, other=0.0, eviction_policy="evict_last")
        if PDL:
            gdc_wait()  # up to here nothing came from `plane_order_kernel`
        chunk_sums = tl.load(a_sums_ptr + chunk * stride_sums + offs_m[None, :], mask=chunk < last, other=0.0)

        # **Step 2: multiply the integers, and scale them group by group.**
        for block in tl.range(start, tl.minimum(start + CHUNK, last), num_stages=NUM_STAGES):
            words = tl.trans(words_desc.load([block * BLOCK_KW, start_n]))
            sums = tl.dot(
                half_word_planes(words, 0, 1, LIFT, W_NBITS, dtype), tl.trans(a_desc.load([start_m, block * BLOCK_K]))
            )
            if W_GROUP_MODE >= 2:
                sums *= tl.trans(scales_desc.load([block // GROUP_BLOCKS, start_n])).to(tl.float32)
            acc += sums

        # **Step 3: add the zero points.** `tf32x3` runs on tensor cores and keeps almost the precision of float32.
        if HAS_ZEROS or BIAS:
            factor = zero_factor(chunk_scales.to(tl.float32), chunk_zeros.to(tl.float32), BIAS, W_GROUP_MODE)
            acc = tl.dot(tl.trans(factor * (1.0 / UNIT)), chunk_sums, acc, input_precision="tf32x3")
    if PDL:
        gdc_launch_dependents()
    parts_desc.store([pid_k, start_m, start_n], tl.reshape(tl.trans(acc * UNIT), (1, BLOCK_M, BLOCK_N)))


# ## 5. Hundreds of rows: unpack once
#
# **What was slow?** A fused kernel unpacks every weight again for each tile of rows. For 512 rows, and N and K of 8192,
# [the lesson](../../gemlite/gemm.py) takes [[bench: gemm/512x8192x8192/forward/ms]], the library's product in sixteen
# bits [[bench: gemm/512x8192x8192/forward/cuBLAS.ms]]. So it is cheaper to write the unpacked weight to memory, once,
# and to call the library.
@triton.jit
def dequantize_kernel(
    words,  # (pointer, stride, stride): (K // per_word, N)
    scales, zeros,  # (pointer or None, stride_g, stride_n): (K // group_size, N); zero: in place of a pointer
    weight_ptr,  # (K, N), contiguous
    N, K, group_size, zero,
    W_NBITS: tl.constexpr, W_GROUP_MODE: tl.constexpr, META_ROWS: tl.constexpr, EVEN: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_KW: tl.constexpr,
):  # fmt: skip
    words_ptr, stride_wk, stride_wn = words
    PER_WORD: tl.constexpr = 32 // W_NBITS if W_NBITS < 16 else 1
    offs_n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    first_row = tl.program_id(1) * BLOCK_KW
    word_rows = first_row + tl.arange(0, BLOCK_KW)
    K_WORDS = K // PER_WORD
    scale, zero_point = scales_and_zeros(
        scales, zeros, zero, first_row, offs_n, N, K_WORDS, group_size // PER_WORD, W_GROUP_MODE, META_ROWS, EVEN
    )
    inside = ((word_rows[:, None] < K_WORDS) & (offs_n[None, :] < N)) | EVEN
    words_ptrs = words_ptr + word_rows[:, None].to(tl.int64) * stride_wk + offs_n[None, :].to(tl.int64) * stride_wn
    packed = tl.load(words_ptrs, mask=inside, other=0)
    # One word is `PER_WORD` rows of the weight. The first number of the first word is `pid=0, j=0: q[0, 0] = 0`, the
    # second `pid=0, j=1: q[0, 0] = 8`.
    for j in tl.static_range(PER_WORD):
        q = (packed >> (j * W_NBITS)) & ((1 << W_NBITS) - 1) if W_NBITS < 16 else packed
        weight = dequantize_block(q, scale, zero_point, W_GROUP_MODE, weight_ptr.dtype.element_ty)
        offs_k = word_rows.to(tl.int64) * PER_WORD + j
        tl.store(weight_ptr + offs_k[:, None] * N + offs_n[None, :], weight, mask=inside)


# ## Launchers
def plane_order(a, W_nbits, BLOCK_K, BLOCK_M, pdl):
    """(A in the order of the planes, float32 sums of its rows over each block of K), for tiles of BLOCK_M rows."""
    M, K = a.shape
    blocks, rows = K // BLOCK_K, cdiv(M, BLOCK_M) * BLOCK_M
    ordered = torch.empty(M, K, dtype=a.dtype, device=a.device)
    a_sums = torch.empty(blocks, rows, dtype=torch.float32, device=a.device)
    ROWS = min(16, BLOCK_M)
    launch(
        plane_order_kernel, (blocks, rows // ROWS), ((a, *a.stride()), ordered, (a_sums, rows)), (M, K),
        W_NBITS=W_nbits, PDL=pdl, BLOCK_M=ROWS, BLOCK_K=BLOCK_K,
    )  # fmt: skip
    return ordered, a_sums


def plane_order_forward(
    a, words, scales, zeros, *, W_nbits, group_size, W_group_mode=3, channel_scale_mode=0, scales_a=None,
    out_dtype=None, split_k=None, BLOCK_M=None, BLOCK_N=None,
):  # fmt: skip
    """The product of checked arguments that descriptors can describe; best for 17 to 256 rows."""
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N)
    (M, K), N = a.shape, words.shape[1]
    BLOCK_KW = words_in_block(W_nbits, group_size)
    BLOCK_K = BLOCK_KW * 32 // W_nbits
    processors = multiprocessors(words.device.index)
    BLOCK_M, BLOCK_N, num_warps, split_k, grid = schedule(
        M, N, K // BLOCK_K, 64, processors, split_k, BLOCK_M, BLOCK_N
    )  # fmt: skip
    pdl = not device.INTERPRET
    # The product is launched before the copy of A is done, and waits for it.
    ordered, a_sums = plane_order(a, W_nbits, BLOCK_K, BLOCK_M, pdl)
    parts = torch.empty(split_k, M, N, dtype=torch.float32, device=a.device)
    words_desc = tiles_of(words, (BLOCK_KW, BLOCK_N))
    scales_desc = tiles_of(scales, (1, BLOCK_N)) if W_group_mode >= 2 else words_desc
    described = tiles_of(ordered, (BLOCK_M, BLOCK_K)), words_desc, scales_desc, tiles_of(parts, (1, BLOCK_M, BLOCK_N))
    launch(
        gemm_plane_order_kernel, grid,
        (*described, per_group(scales), per_group(zeros), (a_sums, a_sums.stride(0))),
        (N, K, number_of(zeros), split_k), W_NBITS=W_nbits, W_GROUP_MODE=W_group_mode,
        GROUP_BLOCKS=group_size // BLOCK_K, PDL=pdl, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_KW=BLOCK_KW,
        NUM_STAGES=3, num_warps=num_warps, enable_fp_fusion=True, **launched_early(pdl),
    )  # fmt: skip
    return reduce_parts(parts, scales, scales_a, out_dtype or a.dtype, channel_scale_mode, pdl)


def dequantize_forward(
    words, scales, zeros, *, K, W_nbits, group_size, W_group_mode=3, dtype=torch.float16, BLOCK_N=256, BLOCK_KW=8
):
    """The weight, (K, N) in `dtype`, of checked arguments."""
    N = words.shape[1]
    weight = torch.empty(K, N, dtype=dtype, device=words.device)
    per_word = 32 // W_nbits if W_nbits < 16 else 1
    checks.programs("words", "rows", K // per_word, BLOCK_KW)
    launch(
        dequantize_kernel, (cdiv(N, BLOCK_N), cdiv(K // per_word, BLOCK_KW)),
        ((words, *words.stride()), per_group(scales), per_group(zeros), weight),
        (N, K, group_size, number_of(zeros)), W_NBITS=W_nbits, W_GROUP_MODE=W_group_mode,
        META_ROWS=1 if group_size // per_word % BLOCK_KW == 0 else BLOCK_KW,
        EVEN=N % BLOCK_N == 0 and K // per_word % BLOCK_KW == 0, BLOCK_N=BLOCK_N, BLOCK_KW=BLOCK_KW,
    )  # fmt: skip
    return weight


def dequantized_forward(
    a, words, scales, zeros, *, W_nbits, group_size, W_group_mode=3, channel_scale_mode=0, scales_a=None, out_dtype=None
):
    """The library's product with the weight unpacked in a's dtype. Without scales of channels: it would round first."""
    modes = dict(W_nbits=W_nbits, group_size=group_size, W_group_mode=W_group_mode)
    return torch.matmul(a, dequantize_forward(words, scales, zeros, K=a.shape[1], **modes, dtype=a.dtype))


# ## A run small enough to watch
#
# Five rows in tiles of four; three blocks of eight word rows in two parts; one and a half tiles of columns. Then the
# weight itself, unpacked.
def EXAMPLE():
    where = device.DEVICE
    a = (torch.arange(960, device=where).view(5, 192) * 5 % 7 - 3).half()
    words = pack(torch.arange(4608, device=where).view(192, 24) * 5 % 16, 4)
    scales, zeros = (torch.arange(144, device=where).view(2, 3, 24) % 5 + 1).half() / 4
    modes = dict(W_nbits=4, group_size=64)
    plane_order_forward(a, words, scales, zeros, **modes, split_k=2, BLOCK_M=4, BLOCK_N=16)
    dequantize_forward(words, scales, zeros, K=192, **modes, BLOCK_N=16)


if __name__ == "__main__":
    words, scales, zeros = quantize(torch.randn(192, 40, dtype=torch.float16, device=device.DEVICE), 4, 64)
    weight = dict(words=words, scales=scales, zeros=zeros, W_nbits=4, group_size=64)
    shapes, halves = [dict(a=(M, 192), **weight) for M in (20, 70)], (torch.float16, torch.bfloat16)
    script.main(plane_order_forward, gemm_reference, *shapes, dtypes=halves, differentiable=False)
