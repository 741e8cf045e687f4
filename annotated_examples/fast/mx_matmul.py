r"""
# A product with microscaled weights, fast

Up to about fifty rows, the time should go into reading the weights. 8192 x 8192 of them are 36 MB in four bits, and 134
MB in sixteen. In [the lesson](../mx/mx_matmul.py) the time goes into decoding them. Each weight takes a dozen
instructions, with more than 16 rows decoded numbers move from thread to thread on their way to the tensor cores, and
with few tiles most of the card is idle. Here a weight takes three and a half instructions and stays in the thread that
decoded it.

[[eq: MX-product]]

[[figure: mx/rows]]

**What it costs.** Codes and scales are read once for every 256 rows. Each part of the sum, `4 * M * N` bytes, is
written and read once. With more than 512 rows the weights are decoded to memory: `2 * N * K` bytes, written and read
once.

**Contract.** As the lesson's. The parts are added in a fixed order, so the same call gives the same bits. Codes of
eight bits are left to the lesson's kernel, and so are, up to 64 rows, codes whose rows don't begin at multiples of 16
bytes; with more rows those are decoded to memory as well.

**Where it falls behind.** From 128 rows on the lead is gone: 256 take [[bench: mx_matmul/256x8192x8192/forward/ms]],
and with weights in sixteen bits [[bench: mx_matmul/256x8192x8192/forward/cuBLAS, sixteen bits.ms]]. With 4096 rows a
kernel decodes first, in [[bench: mx_matmul/ladder/decoding alone/4096_rows_ms]], the time of a copy that moves as many
bytes; the library multiplies.

And with one row it runs at [[bench: mx_matmul/1x8192x8192/forward/share]] of the speed of a copy that moves as many
bytes. A graph with an empty kernel takes [[bench: mx_matmul/ladder/an empty kernel/1_row_ms]]. If words were multiplied
as they are, all of it would take [[bench: mx_matmul/ladder/nothing decoded/1_row_ms]]. The rest is decoding: of the 876
instructions for 256 weights in each thread, 256 multiply, 257 mask, and 162 move bits. [Packed
integers](low_bit/__init__.py) have it easier: their scale stands in front of a sum of 128 products, not of 32, and
their zero point makes a code a number without any multiplication.

**What was tried.** Multiplying by scale and 2¹²⁶ at once is right only for scales up to 2, and takes
[[bench: mx_matmul/ladder/one multiplication/1_row_ms]] with one row. With a second path for programs that meet a larger
scale, the kernel was as slow as this one, and with 64 rows, as Triton 3.6.0 compiled it, wrong.

Doing without the kernel that adds the parts didn't help. If each warp of a program adds up its own share of K, there
are no parts, and one row takes [[bench: mx_matmul/ladder/warps that share K/1_row_ms]]. Tiles of 64 and of 256 weights,
and two to six programs for each SM, were slower or the same. So were programs of one, two and eight warps, and three to
six steps in flight.

Below Triton, four groups of warps that take steps of K in turns and add up in shared memory: one row took
[[bench: mx_matmul/ladder/below Triton, groups that share K/1_row_ms]], 16
[[bench: mx_matmul/ladder/below Triton, groups that share K/16_rows_ms]] and 64
[[bench: mx_matmul/ladder/below Triton, groups that share K/64_rows_ms]]; this page's kernels took
[[bench: mx_matmul/ladder/in use, later/1_row_ms]], [[bench: mx_matmul/ladder/in use, later/16_rows_ms]] and
[[bench: mx_matmul/ladder/in use, later/64_rows_ms]] in that call. Two groups that decode 64 columns each: 512 rows took
[[bench: mx_matmul/ladder/below Triton, two groups/512_rows_ms]], where these kernels took
[[bench: mx_matmul/ladder/in use, later/512_rows_ms]] and cuBLAS [[bench: mx_matmul/ladder/cuBLAS, later/512_rows_ms]].
What gains there isn't built in yet.
"""

from academy.runtime import checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.launch import Tiles, cdiv, launch
from academy.runtime.replay import replayed

import functools

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from annotated_examples.common.mx import power_of_byte
from annotated_examples.common.custom_operator import opaque
from annotated_examples.mx import mx_matmul as lesson
from annotated_examples.mx.microscaling import as_bytes, dequantize_mx, pack_reference
from annotated_examples.mx.mx_matmul import contract, mx_matmul_reference


# ## 1. Two weights in each instruction
#
# **What was slow?** The lesson computes a code's exponent and mantissa as whole numbers, converts these, and
# multiplies.
#
# But the bits of a code *are* those of a float, in another place. A bfloat16 has its sign in bit 15, and the lowest
# bits of its exponent and the first of its mantissa in bits 8, 7 and 6. Put the three lower bits of a code there, and
# the number is the code's, times 2⁻¹²⁶: also for 0 and 0.5, since below its smallest normal number a bfloat16 counts in
# equal steps, as `e2m1` does. One multiplication by 2¹²⁶ is all that is missing.
#
# A register has 32 bits, room for two bfloat16, and a word in it holds eight codes. Four pairs of them are **planes**,
# as [with packed integers](low_bit/descriptors.py): plane `j` has code `j` of each half of the word.
#
# [[figure: mx/register]]
#
# Multiplying by `0x1040`, which is 2¹² + 2⁶, shifts to two places at once. A code has four bits, so the two copies
# don't overlap. The multiplication costs no more than a shift, and other units do it than do masks. Codes of odd planes
# stand four bits higher already, so they move by 2 and by 8. In float16 the bits are 11, 10 and 9, the factor is 2¹⁴,
# and the copies would overlap: so it shifts twice.
#
# | with one row, and all that follows | |
# |---|---:|
# | two shifts for each pair | [[bench: mx_matmul/ladder/two shifts for each pair/1_row_ms]] |
# | one multiplication | [[bench: mx_matmul/ladder/in order in each program/1_row_ms]] |
@triton.jit
def two_codes(words, FLOAT16: tl.constexpr):
    # The example's first word holds codes 1 to 8, `pid=0: words[0, 0] = -2023406815`. The first plane is 1 and 5, or
    # 0.5 and 3: their bits side by side are `pid=0: both[0, 0, 0] = 20971584`, which is 5 · 2²² + 1 · 2⁶.
    plane = tl.arange(0, 4)
    if FLOAT16:
        codes = words[:, None, :] >> (4 * plane)[None, :, None]
        both = ((codes << 9) & 0x0E000E00) | ((codes << 12) & -0x7FFF8000)
    else:
        lift = plane % 2 * 4
        codes = (words[:, None, :] >> (plane // 2 * 8)[None, :, None]) & (0x000F000F << lift)[None, :, None]
        both = (codes * (0x1040 >> lift)[None, :, None]) & -0x7E3F7E40
    return both


# ## 2. A group in each thread
#
# A scale has to be loaded, moved to where a bfloat16 has its exponent, and looked at: byte 0 is below the smallest
# normal number there, and 255 is NaN, as in [the lesson's](../common/mx.py) `power_of_byte`. A thread should do that
# for few scales, so the words that it holds should be of one group.
#
# Four threads hold a row of the left factor. With eight columns on the right Triton uses `mma.m16n8k16`, and gives each
# thread four words side by side: a group. Hopper's `wgmma`, for more columns, gives a thread every fourth word, of four
# groups. So the words are put in another order first, and the columns of `a` too. That moves nothing: it only says
# which word is called what.
#
# [[figure: mx/threads]]
@triton.jit
def in_threads(words, BY_FOURS: tl.constexpr):
    if BY_FOURS:
        STEPS: tl.constexpr = words.shape[1] // 16
        fours = tl.permute(tl.reshape(words, (words.shape[0], STEPS, 4, 4)), (0, 1, 3, 2))
        words = tl.reshape(fours, (words.shape[0], STEPS * 16))
    return words


# A row's scales, one for each of its groups. Only where they lie side by side, and begin at multiples of four bytes,
# can they be fetched ahead of time.
@triton.jit
def load_scales(scale_ptrs, group, groups, n_mask, stride_sk, ALIGNED: tl.constexpr):
    COUNT: tl.constexpr = scale_ptrs.shape[1]
    mask = n_mask[:, None]
    if not ALIGNED:
        mask = mask & (group + tl.arange(0, COUNT) < groups)[None, :]
    return tl.load(scale_ptrs + group * stride_sk, mask=mask, other=0).to(tl.int32)


# Two weights share a multiplication, so they are multiplied *before* `tl.join` puts the pairs together. When they were
# joined first, the compiler changed the layout between the two steps, and sent each decoded number through shared
# memory.
#
# Why two multiplications, and not one by the product of scale and 2¹²⁶? That would be infinite for scales beyond 2.
@triton.jit
def decode(words, scales, BY_FOURS: tl.constexpr, dtype: tl.constexpr):
    ROWS: tl.constexpr = words.shape[0]
    WORDS: tl.constexpr = words.shape[1]
    both = two_codes(in_threads(words, BY_FOURS), dtype == tl.float16)
    low = both.to(tl.int16).to(dtype, bitcast=True)
    high = (both >> 16).to(tl.int16).to(dtype, bitcast=True)
    # A group of 32 weights is four words. The example's first scale is 4: `pid=0: byte[0, 0] = 129`.
    fours = tl.broadcast_to(scales[:, :, None], (ROWS, WORDS // 4, 4))
    byte = in_threads(tl.reshape(fours, (ROWS, WORDS)), BY_FOURS)
    if dtype == tl.float16:
        # The range of float16 is too small for scales, so this is done in float32, and rounded.
        bits = tl.where(byte == 255, 0x7FC00000, tl.maximum(byte << 23, 0x400000))
        scale = bits.to(tl.float32, bitcast=True)[:, None, :]
        low = (low.to(tl.float32) * 16384.0 * scale).to(dtype)
        high = (high.to(tl.float32) * 16384.0 * scale).to(dtype)
    else:
        bits = tl.where(byte == 255, 0x7FC0, tl.maximum(byte << 7, 0x40))
        scale = bits.to(tl.int16).to(tl.bfloat16, bitcast=True)[:, None, :]
        low = low * 8.507059173023462e37 * scale
        high = high * 8.507059173023462e37 * scale
    # The first weights are 0.5 and 3, times 4: `pid=0: low[0, 0, 0] = 2` and `pid=0: high[0, 0, 0] = 12`.
    return tl.reshape(tl.join(low, high), (ROWS, 8 * WORDS))


# ## 3. Activations in the same order
#
# A sum may be added up in any order, so the weights stay in that of their planes, and the columns of `a` follow: those
# of a step, first columns 0, 4, 8, …, then 1, 5, 9, … Up to 32 rows each program does that with its tile. With more, a
# kernel of its own does it once, and [ends while the next one begins](low_bit/many_rows.py).
@triton.jit
def in_order_of_planes(a, BY_FOURS: tl.constexpr):
    ROWS: tl.constexpr = a.shape[0]
    STEPS: tl.constexpr = a.shape[1] // 128
    # A column's place: its group of 128, of 32, its word, its half of the word, its plane.
    places = tl.reshape(a, (ROWS, STEPS, 4, 4, 2, 4))
    planes = tl.permute(places, (0, 5, 1, 3, 2, 4) if BY_FOURS else (0, 5, 1, 2, 3, 4))
    return tl.reshape(planes, (ROWS, STEPS * 128))


@triton.jit
def plane_order_kernel(
    a_ptr, ordered_ptr,  # (M, K); (M, K rounded up to whole steps), contiguous
    M, K, WIDTH, stride_am, stride_ak,
    PDL: tl.constexpr, BY_FOURS: tl.constexpr, STEP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    if PDL:
        gdc_launch_dependents()
    offs_k = tl.program_id(0).to(tl.int64) * BLOCK_K + tl.arange(0, BLOCK_K)
    offs_m = tl.program_id(1).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    m_mask = (offs_m < M)[:, None]
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    a = tl.load(a_ptrs, mask=m_mask & (offs_k < K)[None, :], other=0.0)
    ordered_ptrs = ordered_ptr + offs_m[:, None] * WIDTH + offs_k[None, :]
    steps = in_order_of_planes(tl.reshape(a, (BLOCK_M * (BLOCK_K // STEP), STEP)), BY_FOURS)
    tl.store(ordered_ptrs, tl.reshape(steps, (BLOCK_M, BLOCK_K)), mask=m_mask & (offs_k < WIDTH)[None, :])


# ## The kernel
#
# The product is transposed: the tensor cores take their left factor from registers, and there the decoded weights are.
# The TMA fetches words and activations. The sum is cut along K into parts, since a tile of 128 weights for each
# program would leave half of the card idle. Programs of a tile take turns, step by step: what they read at the same
# time lies side by side.
@triton.jit
def mx_parts_kernel(
    a_desc, words_desc,  # of (M, K); of (N, K // 8), words of eight codes
    scale_ptr, parts_ptr,  # (N, K // 32), bytes; (SPLIT_K, M, N), contiguous
    M, N, K, stride_sn, stride_sk, split_k,
    ORDERED: tl.constexpr, BY_FOURS: tl.constexpr, ALIGNED: tl.constexpr, PDL: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, NUM_STAGES: tl.constexpr,
):  # fmt: skip
    start_n, start_m = tl.program_id(0) * BLOCK_N, tl.program_id(2) * BLOCK_M
    offs_n = start_n.to(tl.int64) + tl.arange(0, BLOCK_N)
    offs_m = start_m.to(tl.int64) + tl.arange(0, BLOCK_M)
    n_mask = offs_n < N
    # `pid=0: steps = 3` steps in two parts: the first part has steps 0 and 2, the second one has step 1.
    pid_k = tl.program_id(1)
    steps = tl.cdiv(K, BLOCK_K)
    if ALIGNED:
        stride_sn = tl.multiple_of(stride_sn, 4)
    GROUPS: tl.constexpr = BLOCK_K // 32
    scale_ptrs = scale_ptr + offs_n[:, None] * stride_sn + tl.arange(0, GROUPS)[None, :] * stride_sk
    acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    if PDL and ORDERED:
        gdc_wait()
    for step in tl.range(pid_k, steps, split_k, num_stages=NUM_STAGES):
        words = words_desc.load([start_n, step * (BLOCK_K // 8)])
        a = a_desc.load([start_m, step * BLOCK_K])
        if not ORDERED:
            a = in_order_of_planes(a, BY_FOURS)
        # Columns 0, 4, 8 and 12 come first now, `pid=0, step=0: a[0, :4] = [-3, 3, 2, 1]`.
        scales = load_scales(scale_ptrs, step * GROUPS, K // 32, n_mask, stride_sk, ALIGNED)
        # [[tag: MX-product]]
        acc = tl.dot(decode(words, scales, BY_FOURS, a_desc.dtype), tl.trans(a), acc)
    if PDL:
        gdc_launch_dependents()
    offsets = pid_k.to(tl.int64) * M * N + offs_m[:, None] * N + offs_n[None, :]
    tl.store(parts_ptr + offsets, tl.trans(acc), mask=(offs_m < M)[:, None] & n_mask[None, :])


# The parts are added in a fixed order, then the bias, and the sum is rounded once.
@triton.jit
def add_parts_kernel(
    parts_ptr, bias_ptr, c_ptr,  # (PARTS, M, N); (N,) or None; (M, N); contiguous
    N, elements,  # of C, M · N
    PDL: tl.constexpr, PARTS: tl.constexpr, BLOCK_PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    parts = tl.arange(0, BLOCK_PARTS).to(tl.int64)
    mask = offsets < elements
    if PDL:
        gdc_wait()
    parts_ptrs = parts_ptr + parts[:, None] * elements + offsets[None, :]
    c = tl.sum(tl.load(parts_ptrs, mask=(parts < PARTS)[:, None] & mask[None, :], other=0.0), axis=0)
    if bias_ptr is not None:
        c += tl.load(bias_ptr + offsets % N, mask=mask, other=0.0).to(tl.float32)
    # The first element of the example's result is `pid=0: c[0] = -25`.
    tl.store(c_ptr + offsets, c.to(c_ptr.dtype.element_ty), mask=mask)


# ## 4. Decoded once
#
# With hundreds of rows each weight would be decoded for several tiles, so all are decoded once, to memory. Now what
# counts are the bytes, above all those that are written. A word becomes eight numbers of two bytes, sixteen bytes side
# by side, and those one thread stores at once: nothing moves from thread to thread. In float32 a code's bits go to 31
# and 24 to 22, and what is missing is 2¹²⁶ again, also of codes 0 and 0.5.
@triton.jit
def decode_kernel(
    words_ptr, scale_ptr, weight_ptr,  # (N, K // 8), words of eight codes; (N, K // 32), bytes; (N, K), contiguous
    N, K, stride_wn, stride_sn, stride_sk, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    # One axis for both: the second one ends at 65,535 programs, and a vocabulary may be longer than four times that. In
    # the example a row has five blocks, so `decode_kernel, pid=7: pid_k = 2`.
    blocks = tl.cdiv(K, BLOCK_K)
    pid_n, pid_k = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    offs_n = pid_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_w = pid_k * (BLOCK_K // 8) + tl.arange(0, BLOCK_K // 8)
    mask = (offs_n < N)[:, None] & (offs_w < K // 8)[None, :]
    words = tl.load(words_ptr + offs_n[:, None] * stride_wn + offs_w[None, :], mask=mask, other=0)
    scale_ptrs = scale_ptr + offs_n[:, None] * stride_sn + (offs_w // 4)[None, :] * stride_sk
    scale = power_of_byte(tl.load(scale_ptrs, mask=mask, other=0))
    codes = words[:, :, None] >> (4 * tl.arange(0, 8))[None, None, :]
    bits = ((codes << 28) & -0x80000000) | ((codes & 7) << 22)
    weight = bits.to(tl.float32, bitcast=True) * 8.507059173023462e37 * scale[:, :, None]
    # Codes 1, 2, 3 and 4 are 0.5, 1, 1.5 and 2, times 4: `pid=0: weight[0, :4] = [2, 4, 6, 8]`.
    weight = tl.reshape(weight, (BLOCK_N, BLOCK_K)).to(weight_ptr.dtype.element_ty)
    offs_k = pid_k * BLOCK_K + tl.arange(0, BLOCK_K)
    inside = (offs_n < N)[:, None] & (offs_k < K)[None, :]
    tl.store(weight_ptr + offs_n[:, None] * K + offs_k[None, :], weight, mask=inside)


# ## Launchers
#
# For each tile's rows: how many programs there should be for each SM. Few rows leave room in it for steps of 256. From
# 65 rows on one program fills an SM, and the sums of 256 rows need eight warps.
PROGRAMS = {8: 2, 16: 3, 32: 3, 64: 3, 128: 1, 256: 1}


@functools.cache
def multiprocessors(device_index):
    return 2 if device.INTERPRET else torch.cuda.get_device_properties(device_index).multi_processor_count


def launched_early(pdl):
    return dict(launch_pdl=True) if pdl else {}


def in_planes(a, pdl, by_fours, step):
    """A copy of `a` in the order of planes."""
    (M, K), ROWS, BLOCK_K = a.shape, 16, 512
    ordered = torch.empty(M, cdiv(K, step) * step, dtype=a.dtype, device=a.device)
    launch(
        plane_order_kernel, (cdiv(ordered.shape[1], BLOCK_K), cdiv(M, ROWS)), (a, ordered),
        (M, K, ordered.shape[1], *a.stride()), PDL=pdl, BY_FOURS=by_fours, STEP=step, BLOCK_M=ROWS, BLOCK_K=BLOCK_K,
    )  # fmt: skip
    return ordered


def parts_forward(
    a, codes, scale, bias, out_dtype, *,
    split_k=None, ordered=None, BLOCK_M=None, BLOCK_N=128, BLOCK_K=None, NUM_STAGES=3,
):  # fmt: skip
    """The product with codes of four bits whose rows a descriptor can describe; best up to 512 rows."""
    (M, K), N, pdl = a.shape, len(codes), not device.INTERPRET
    BLOCK_M = BLOCK_M or min(256, max(8, triton.next_power_of_2(M)))
    BLOCK_K = BLOCK_K or (256 if BLOCK_M == 8 and K % 256 == 0 else 128)
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K)
    programs = PROGRAMS.get(BLOCK_M, 3) * multiprocessors(a.device.index)
    split_k = split_k or max(1, min(programs // (cdiv(N, BLOCK_N) * cdiv(M, BLOCK_M)), cdiv(K, BLOCK_K) // 2))
    ordered, by_fours = BLOCK_M > 32 if ordered is None else ordered, BLOCK_M > 8
    a = in_planes(a, pdl, by_fours, BLOCK_K) if ordered else a if describable(a) else a.contiguous()
    words = codes.view(torch.int32)
    side_by_side = scale.stride(1) == 1 and scale.stride(0) % 4 == 0 and scale.data_ptr() % 4 == 0
    whole = split_k == 1 and bias is None
    parts = torch.empty(split_k, M, N, dtype=out_dtype if whole else torch.float32, device=a.device)
    launch(
        mx_parts_kernel, (cdiv(N, BLOCK_N), split_k, cdiv(M, BLOCK_M)),
        (
            Tiles(a, a.shape, a.stride(), (BLOCK_M, BLOCK_K)),
            Tiles(words, words.shape, words.stride(), (BLOCK_N, BLOCK_K // 8)), scale, parts,
        ),
        (M, N, K, *scale.stride(), split_k),
        ORDERED=ordered, BY_FOURS=by_fours, ALIGNED=side_by_side and K % BLOCK_K == 0, PDL=pdl,
        BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, NUM_STAGES=NUM_STAGES,
        num_warps=4 if BLOCK_M < 256 else 8, **launched_early(pdl and ordered),
    )  # fmt: skip
    if whole:
        return parts[0]
    c = torch.empty(M, N, dtype=out_dtype, device=a.device)
    BLOCK, num_warps = (128, 1) if M * N <= 1 << 17 else (512, 4)
    launch(
        add_parts_kernel, (cdiv(M * N, BLOCK),), (parts, None if bias is None else bias.contiguous(), c), (N, M * N),
        PDL=pdl, PARTS=split_k, BLOCK_PARTS=triton.next_power_of_2(split_k), BLOCK=BLOCK, num_warps=num_warps,
        **launched_early(pdl),
    )  # fmt: skip
    return c


# ## Which kernel?
#
# Decoding anew for each tile of rows is extra work. But a tile may have up to 256 rows, and a warp decodes while the
# tensor cores still multiply. With tiles of 64, 256 rows took
# [[bench: mx_matmul/ladder/tiles of 64 rows/256_rows_ms]], with one of 256
# [[bench: mx_matmul/ladder/tiles of 256 rows/256_rows_ms]]. Decoded beforehand, and multiplied by the library, it is
# [[bench: mx_matmul/ladder/decoded beforehand/256_rows_ms]]. With 1024 rows that is the shorter way:
# [[bench: mx_matmul/ladder/decoded beforehand/1024_rows_ms]] instead of
# [[bench: mx_matmul/ladder/tiles of 256 rows/1024_rows_ms]]. The library rounds to the dtype of `a`. So for another
# result, or a bias in float32, it is the lesson's kernel.
#
# Three stages of the large tile need 208 KB of shared memory, which not every card with descriptors has.
def most_rows(device_index):
    """Up to how many rows the weights stay in four bits."""
    if not device.has("descriptors", device_index):
        return 0
    return 512 if device.shared_memory(device_index) >= 227 << 10 else 64


def describable(x):
    row = x.stride(0) * x.element_size()
    return x.stride(1) == 1 and row % 16 == 0 and x.stride(0) >= x.shape[1] and x.data_ptr() % 16 == 0


def decoded(codes, scale, dtype, *, BLOCK_N=4, BLOCK_K=1024):
    """The weights, (N, K) in `dtype`."""
    if not describable(codes):  # rows of words have to begin at whole words
        return dequantize_mx(codes.view(lesson.FP4), scale.view(lesson.E8M0), dtype)
    checks.power_of_two(BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K)
    words, (N, K) = codes.view(torch.int32), (len(codes), 2 * codes.shape[1])
    weight = torch.empty(N, K, dtype=dtype, device=codes.device)
    launch(
        decode_kernel, (cdiv(K, BLOCK_K) * cdiv(N, BLOCK_N),), (words, scale, weight),
        (N, K, words.stride(0), *scale.stride()), BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K,
    )  # fmt: skip
    return weight


def by_library(a, codes, scale, bias):
    weight = decoded(codes, scale, a.dtype).t()
    return a @ weight if bias is None else torch.addmm(bias, a, weight)


def empty_product(a, codes, scale, bias, out_dtype):
    return torch.empty(len(a), len(codes), dtype=out_dtype, device=a.device)


@opaque("(Tensor a, Tensor codes, Tensor scale, Tensor? bias, ScalarType out_dtype) -> Tensor", empty_product)
def mx_matmul_forward(a, codes, scale, bias, out_dtype, **tiles):
    """`codes` and `scale` as kernels see them: four bits and exponents in bytes."""
    four_bits = codes.dtype == torch.uint8 and 0 not in (*a.shape, len(codes))
    if four_bits and describable(codes) and len(a) <= most_rows(a.device.index):
        return parts_forward(a, codes, scale, bias, out_dtype, **tiles)
    if four_bits and len(a) > 64 and out_dtype == a.dtype and (bias is None or bias.dtype == a.dtype):
        return by_library(a, codes, scale, bias)
    return lesson.mx_matmul_forward(a, codes, scale, bias, out_dtype)


@replayed
def mx_matmul(a, b, scale_b, *, bias=None, out_dtype=None, format=None):
    """`a @ decode(b).T + bias`, where `b` has codes of four or eight bits and a power of two for every 32.

    With more than 512 rows, on some cards or for some strides 64, codes of four bits are decoded first: a matrix of
    N x K in the dtype of `a` exists during the call.

    Args:
        a: tensor of shape (M, K), float16 or bfloat16, any strides; K a multiple of 32.
        b: codes as `quantize_mx` returns them: float4_e2m1fn_x2 of shape (N, K/2), or float8_e4m3fn or float8_e5m2 of
            shape (N, K), or the same memory as uint8; any strides.
        scale_b: float8_e8m0fnu, or the same memory as uint8, of shape (N, K/32), any strides.
        bias: None, or a tensor of shape (N,), float32 or the dtype of `a`, any strides.
        out_dtype: of the result, float32, float16 or bfloat16; None: that of `a`.
        format: what uint8 stands for in `b`: "e2m1", "e4m3" or "e5m2". None for other dtypes.

    Returns:
        A new contiguous tensor of shape (M, N). Forward only.

    Raises:
        TypeError: an argument isn't a tensor or has another dtype.
        ValueError: shapes that don't fit, another `format` or `out_dtype`, a tensor on the wrong device or one that
            requires a gradient.
        RuntimeError: `b` is e4m3, and the card is older than compute capability 8.9.

    Source: as the lesson.
    """
    codes = contract(a, b, scale_b, bias, out_dtype, format)
    return mx_matmul_forward(a, codes, as_bytes(scale_b), bias, out_dtype or a.dtype)


# ## A run small enough to watch
#
# Codes 1, 2, …, 15, 0, again and again, and scales of 4 and 1/2. Three steps in two parts; the last one is half full.
# Then all in one part, and the weights alone.
def EXAMPLE():
    a = (torch.arange(3 * 320, device=device.DEVICE) * 5 % 7 - 3).view(3, 320).to(torch.bfloat16)
    codes = (torch.arange(20 * 320, device=device.DEVICE) + 1).view(20, 320) % 16
    scale = torch.tensor([[129, 126] * 5] * 20, dtype=torch.uint8, device=device.DEVICE)
    parts_forward(a, pack_reference(codes.int()), scale, None, torch.float32, split_k=2, BLOCK_M=4, BLOCK_N=16)
    parts_forward(
        a, pack_reference(codes.int()), scale, None, torch.float32, split_k=1, ordered=True, BLOCK_M=4, BLOCK_N=16
    )
    decoded(pack_reference(codes.int()), scale, torch.bfloat16, BLOCK_N=16, BLOCK_K=64)


if __name__ == "__main__":
    script.main(mx_matmul, mx_matmul_reference)
