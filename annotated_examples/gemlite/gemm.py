r"""
# Low-bit matmul: packed weights, unpacked on the way to the tensor cores

A language model that answers one user multiplies a handful of rows by enormous weight matrices, and nearly all of the
time goes into reading the weights. If weights are stored in four bits instead of sixteen, there is only a quarter to
read. The kernel then turns packed integers back into numbers *inside* the matrix product, without ever writing the
unpacked weight to global memory.

[[eq: QM-C]]

Each weight comes from its integer, a zero point and a scale that a whole group of weights shares:

[[eq: QM-mode3]]

**What it costs.** With one row and four bits, an `N = K = 8192` product reads 33.6 MB of words and does 134 million
operations: it is memory-bound. With 4096 rows the same weights are used 4096 times: it is compute-bound, and unpacking
is pure extra work. Where is the boundary? A byte of words holds two weights, which are used in `4 * M` operations. An
H200 does about 200 operations in the time it takes to read a byte, so the boundary is at about fifty rows.

**Contract.** `a` is `(M, K)`, float16 or bfloat16, any strides. `words` is int32, `(K // per_word, N)`, made by
`pack`; with `W_nbits=16` it is the weight itself, `(K, N)` in the dtype of `a`. `scales` and `zeros` are
`(K // group_size, N)`, or `(1, N)` for one per column, or, for `zeros`, one number. The sum is float32. A NaN stays in
its row or column of the result. Forward only.
"""

from academy.runtime import checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch
import triton
import triton.language as tl

from annotated_examples.common.custom_operator import opaque_product
from annotated_examples.common.packed import Hints, W_NBITS, contract, group_rule, integer_matrix, per_group, used
from annotated_examples.common.tile_order import grouped_order


# ## What a packed word holds
#
# Thirty-two bits hold eight 4-bit numbers. Word `r` of a column holds rows `8r` to `8r + 7` of the weight, the first
# in the lowest bits (*little end first*): number `j` sits at bit `4j`. Packing runs **along K**, the direction that
# the product sums over, so that one word feeds one output column only.
# [[figure: layout/packed]]
#
# The integers are unsigned. Add the zero point `2**(W_nbits - 1)` to signed ones: `pack` refuses a -1, whose four bits
# would come back as 15.
def pack(q, W_nbits):
    """Pack a matrix of small unsigned integers into 32-bit words along K, little end first.

    Args:
        q: (K, N), any integer dtype, values in [0, 2**W_nbits). K must be a multiple of 32 // W_nbits.
        W_nbits: 8, 4, 2 or 1.

    Returns:
        int32, (K * W_nbits // 32, N).

    Raises:
        TypeError: q isn't an integer tensor. ValueError: another shape, number of bits, or a value out of range.
    """
    checks.choice("W_nbits", W_nbits, W_NBITS[1:])
    integer_matrix("q", q)
    K, N = q.shape
    per_word = 32 // W_nbits
    if K % per_word:
        raise ValueError(f"q must have a multiple of {per_word} rows to fill {W_nbits}-bit words, got {K}")
    if q.numel() and not (0 <= q.min().item() and q.max().item() < 2**W_nbits):
        raise ValueError(
            f"q must lie in [0, {2**W_nbits}) for W_nbits={W_nbits}, got {q.min().item()} to {q.max().item()}; "
            f"add {2 ** (W_nbits - 1)} to signed values and pass that as zeros"
        )
    shifts = torch.arange(0, 32, W_nbits, device=q.device).view(1, per_word, 1)
    words = (q.long().reshape(K // per_word, per_word, N) << shifts).sum(1)
    # The sum is below 2³²; int32 holds the same bits with the top one counted as negative.
    return ((words + 2**31) % 2**32 - 2**31).to(torch.int32)


def unpack(words, W_nbits):
    """Undo `pack`: int32 (K * W_nbits // 32, N) -> uint8 (K, N).

    Raises:
        TypeError: words is not int32. ValueError: another shape or number of bits.
    """
    checks.choice("W_nbits", W_nbits, W_NBITS[1:])
    integer_matrix("words", words, (torch.int32,))
    shifts = torch.arange(0, 32, W_nbits, device=words.device, dtype=torch.int32).view(1, -1, 1)
    # `>>` copies the sign bit down; the mask drops those copies again.
    q = (words[:, None, :] >> shifts) & (2**W_nbits - 1)
    return q.to(torch.uint8).reshape(words.shape[0] * (32 // W_nbits), words.shape[1])


# ## From numbers to integers
#
# Min-max quantization, a group at a time. The range is widened to contain zero, so that zero has an integer of its own
# and the zero point fits into the same bits; the range divided by the number of steps is the scale, [[tag: QM-scale]].
# So a group of equal values needs no special treatment, unless all of them are zero: then the range is empty, and the
# scale is one. The scale is rounded to the dtype in which it is stored *before* the integers are chosen, since the
# kernel multiplies by the rounded one. And it is rounded **up**: rounded down, the last integer wouldn't reach the end
# of the range.
# [[figure: layout/integers]]
def quantize(w, W_nbits, group_size):
    """Quantize a weight for `W_group_mode=3`: `(q - zeros) * scales` is near `w`.

    Args:
        w: (K, N) float32, float16 or bfloat16, finite. No gradient flows back to it.
        W_nbits: 8, 4, 2 or 1.
        group_size: rows of w that share a scale and a zero; a multiple of 32 // W_nbits that divides K.

    Returns:
        (words, scales, zeros): int32 (K * W_nbits // 32, N); two of shape (K // group_size, N) in the dtype of w.

    Raises:
        TypeError, ValueError: as the rules above say, or the range of a group has no scale in the dtype of w.

    Source: round-to-nearest min-max quantization, as in Jacob et al., 2018, "Quantization and Training of Neural
    Networks for Efficient Integer-Arithmetic-Only Inference", with groups along K.
    """
    checks.choice("W_nbits", W_nbits, W_NBITS[1:])
    checks.tensors(w=w)
    checks.dtypes(w=w)
    checks.dimensions("w", w, 2, "K, N")
    group_rule(w.shape[0], group_size, W_nbits)
    if not bool(w.isfinite().all()):
        raise ValueError("w must be finite: an infinity leaves nothing of the other values in its group")
    K, N = w.shape
    groups = w.detach().float().reshape(K // group_size, group_size, N)
    low, high = groups.amin(1).clamp(max=0.0), groups.amax(1).clamp(min=0.0)
    exact = (high.double() - low.double()) / (2**W_nbits - 1)
    scales = exact.to(w.dtype)
    # The next larger float has the next larger bits.
    next_up = (scales.view(torch.int32 if w.dtype == torch.float32 else torch.int16) + 1).view(w.dtype)
    scales = torch.where(scales.double() < exact, next_up, scales)
    if not bool(scales.isfinite().all()):
        raise ValueError(
            f"w must have a smaller range in each group: the largest, {(high.double() - low.double()).max():.3g}, "
            f"makes a scale for W_nbits={W_nbits} that {w.dtype} can't hold"
        )
    scales = torch.where(scales == 0, torch.ones_like(scales), scales)
    zeros = (-low / scales.float()).round().clamp(0, 2**W_nbits - 1)
    q = (groups / scales.float()[:, None] + zeros[:, None]).round().clamp(0, 2**W_nbits - 1)
    return pack(q.reshape(K, N).to(torch.int32), W_nbits), scales, zeros.to(w.dtype)


# ## Reference
#
# Unpack, dequantize, multiply: three passes through memory, in any dtype. The kernels are measured against it in
# float64.
def gemm_reference(
    a, words, scales, zeros, *, W_nbits, group_size, W_group_mode=3, channel_scale_mode=0, scales_a=None, dtype=None
):
    dtype = dtype or a.dtype
    formats = dict(W_nbits=W_nbits, group_size=group_size, W_group_mode=W_group_mode)
    c = a.to(dtype) @ dequantize_reference(words, scales, zeros, **formats, dtype=dtype)
    exact = torch.promote_types(dtype, torch.float32)
    if channel_scale_mode in (1, 3):
        c = (c.to(exact) * scales.to(exact)).to(dtype)
    if channel_scale_mode in (2, 3):
        c = (c.to(exact) * scales_a.to(exact)[:, None]).to(dtype)
    return c


def dequantize_reference(words, scales, zeros, *, W_nbits, group_size, W_group_mode=3, dtype=torch.float64):
    """The weight that packed words stand for, (K, N), worked out in at least float32 and rounded to `dtype`."""
    exact = torch.promote_types(dtype, torch.float32)
    q = (words if W_nbits == 16 else unpack(words, W_nbits)).to(exact)

    def spread(metadata):
        if not isinstance(metadata, torch.Tensor):
            return metadata
        return metadata.to(exact).repeat_interleave(q.shape[0] // metadata.shape[0], 0)

    if W_group_mode == 1:
        q = q - spread(zeros)
    elif W_group_mode == 2:
        q = q * spread(scales)
    elif W_group_mode == 3:
        q = (q - spread(zeros)) * spread(scales)
    elif W_group_mode == 4:
        q = q * spread(scales) + spread(zeros)
    return q.to(dtype)


# ## From words to weights
#
# Row `k` of a tile is number `k % per_word` of its word, so each row needs a shift of its own.
@triton.jit
def unpack_block(words, offs_k, W_NBITS: tl.constexpr):
    shifts = (offs_k % (32 // W_NBITS)) * W_NBITS
    # An arithmetic shift copies the sign bit down. The mask keeps the lowest `W_NBITS` bits and drops the copies.
    return (words >> shifts[:, None]) & ((1 << W_NBITS) - 1)


# The five group modes: [[tag: QM-mode0]], [[tag: QM-mode1]], [[tag: QM-mode2]], [[tag: QM-mode3]], [[tag: QM-mode4]].
# The arithmetic is float32, the result is rounded once to the dtype that the tensor cores multiply. The mode is known
# when the kernel is compiled, so only one of the five branches remains.
@triton.jit
def dequantize_block(q, scales, zeros, W_GROUP_MODE: tl.constexpr, dtype: tl.constexpr):
    weight = q.to(tl.float32)
    if W_GROUP_MODE == 1:
        weight = weight - zeros
    elif W_GROUP_MODE == 2:
        weight = weight * scales
    elif W_GROUP_MODE == 3:
        weight = (weight - zeros) * scales
    elif W_GROUP_MODE == 4:
        weight = tl.fma(weight, scales, zeros)
    return weight.to(dtype)


# Scales and zeros of a block of K. Where the block lies inside one group, a single row of them serves all its rows, and
# `META_ROWS` is 1; otherwise each row looks up its own. `eviction_policy` is a hint to the cache: within a group, a
# program reads the same metadata again and again, but each word in only one step.
@triton.jit
def load_metadata(metadata, k0, offs_n, N, K, group_size, META_ROWS: tl.constexpr, EVICT: tl.constexpr):
    metadata_ptr, stride_g, stride_n = metadata
    rows = k0 + tl.arange(0, META_ROWS)
    groups = (rows // group_size).to(tl.int64)
    metadata_ptrs = metadata_ptr + groups[:, None] * stride_g + offs_n[None, :].to(tl.int64) * stride_n
    mask = (rows[:, None] < K) & (offs_n[None, :] < N)
    return tl.load(metadata_ptrs, mask=mask, other=0.0, eviction_policy=EVICT).to(tl.float32)


@triton.jit
def load_a(a, offs_m, offs_k, M, K):
    a_ptr, stride_am, stride_ak = a
    offsets = offs_m[:, None].to(tl.int64) * stride_am + offs_k[None, :].to(tl.int64) * stride_ak
    return tl.load(a_ptr + offsets, mask=(offs_m[:, None] < M) & (offs_k[None, :] < K), other=0.0)


# ## One step along K
#
# A tiled product like any other, except that its right-hand tile is computed on the spot.
@triton.jit
def add_block(
    acc, k0, offs_m, offs_n, a, words, scales, zeros, M, N, K, group_size,
    W_NBITS: tl.constexpr, W_GROUP_MODE: tl.constexpr, HINTS: tl.constexpr, META_ROWS: tl.constexpr,
    BLOCK_K: tl.constexpr,
):  # fmt: skip
    words_ptr, stride_wk, stride_wn = words
    offs_k = k0 + tl.arange(0, BLOCK_K)
    # **When to load A.** Its tile depends on nothing else, so it can be loaded before the words, after them, after the
    # metadata, or last of all; `A_load_order` 0 to 3 selects one of the four. That decides less than it seems to. The
    # loop is pipelined: on Hopper all loads of a step are requested two steps ahead, and a step waits once, for all of
    # them. What changes is the order in which they are requested, and between 2 and 3 not even that.
    if HINTS.A_load_order == 0:
        a_tile = load_a(a, offs_m, offs_k, M, K)

    # **The words.** Row `k` finds its number in word row `k // per_word`. With four bits, the rows of the first block
    # are in `pid=0: word_rows = [0, 0, 0, 0, 0, 0, 0, 0, 1, ...]`: eight rows load the **same** word. One of the loads
    # goes to memory; the other seven are merged with it, or find the word in the L2 cache: copies of 16 bytes to
    # shared memory pass by L1. That keeps this kernel short, and slow.
    word_rows = offs_k // (32 // W_NBITS) if W_NBITS < 16 else offs_k
    words_ptrs = words_ptr + word_rows[:, None].to(tl.int64) * stride_wk + offs_n[None, :].to(tl.int64) * stride_wn
    # The mask excludes what is beyond K (half of the second block) and beyond N.
    packed = tl.load(words_ptrs, mask=(offs_k[:, None] < K) & (offs_n[None, :] < N), other=0)
    if HINTS.A_load_order == 1:
        a_tile = load_a(a, offs_m, offs_k, M, K)

    # **Scales and zeros.** They are loaded only if the mode uses them.
    scale = 1.0
    zero = 0.0
    EVICT: tl.constexpr = HINTS.meta_evict_policy
    if W_GROUP_MODE >= 2:
        scale = load_metadata(scales, k0, offs_n, N, K, group_size, META_ROWS, EVICT)
    if W_GROUP_MODE == 1 or W_GROUP_MODE >= 3:
        zero = load_metadata(zeros, k0, offs_n, N, K, group_size, META_ROWS, EVICT)
    if HINTS.A_load_order == 2:
        a_tile = load_a(a, offs_m, offs_k, M, K)

    # **Integers, weights, product.**
    q = unpack_block(packed, offs_k, W_NBITS) if W_NBITS < 16 else packed
    weight = dequantize_block(q, scale, zero, W_GROUP_MODE, a[0].dtype.element_ty)
    if HINTS.A_load_order == 3:
        a_tile = load_a(a, offs_m, offs_k, M, K)
    return tl.dot(a_tile, weight, acc)


# ## Which tile is mine
#
# Two orders of visiting the tiles of C. The linear one walks along a row of them. The swizzled one walks down `GROUP_M`
# tiles before it moves right, so that programs which run at the same time share tiles of both inputs in L2.
@triton.jit
def tile_offsets(pid, M, N, HINTS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    if HINTS.swizzled:
        pid_m, pid_n = grouped_order(pid, num_pid_m, num_pid_n, GROUP_M)
    else:
        pid_m, pid_n = pid // num_pid_n, pid % num_pid_n
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    # A hint for wide loads: `tl.multiple_of` promises a first column that is a multiple of `BLOCK_N`, and
    # `tl.max_contiguous` promises that as many are neighbours. The compiler sees this itself unless columns wrap.
    if HINTS.contiguous:
        offs_n = tl.max_contiguous(tl.multiple_of(offs_n, BLOCK_N), BLOCK_N)
    return offs_m, offs_n


# ## The kernel
#
# The tile, the walk along K, the scales of whole rows and columns. With 16 rows and N = K = 8192 it takes
# [[bench: gemm/16x8192x8192/forward/ms]], the library's product with the weight in sixteen bits
# [[bench: gemm/16x8192x8192/forward/cuBLAS.ms]].
@triton.jit
def gemm_kernel(
    a, words,  # (pointer, stride, stride): (M, K); (K // per_word, N)
    scales, zeros,  # (pointer, stride, stride): (K // group_size, N); a first stride of 0 repeats one row
    scales_a_ptr, c_ptr,  # (M,) and (M, N), contiguous
    M, N, K, group_size, W_NBITS: tl.constexpr, W_GROUP_MODE: tl.constexpr, CHANNEL_SCALE_MODE: tl.constexpr,
    HINTS: tl.constexpr, META_ROWS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):  # fmt: skip
    # In the example C is 3 x 7 in tiles of 2 x 4, four programs. The last one is at the corner: of its columns,
    # `pid=3: offs_n = [4, 5, 6, 7]`, and rows, `offs_m = [2, 3]`, the last of each is outside.
    offs_m, offs_n = tile_offsets(tl.program_id(0), M, N, HINTS, BLOCK_M, BLOCK_N, GROUP_M)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k0 in range(0, K, BLOCK_K):
        acc = add_block(
            acc, k0, offs_m, offs_n, a, words, scales, zeros, M, N, K, group_size,
            W_NBITS, W_GROUP_MODE, HINTS, META_ROWS, BLOCK_K,
        )  # fmt: skip
    # **Scales of whole rows and columns**, [[tag: QM-channel]], while the sum is still float32. Then one rounding.
    if CHANNEL_SCALE_MODE == 1 or CHANNEL_SCALE_MODE == 3:
        scales_ptr, _, stride_sn = scales
        columns = tl.load(scales_ptr + offs_n.to(tl.int64) * stride_sn, mask=offs_n < N, other=0.0)
        acc = acc * columns.to(tl.float32)[None, :]
    if CHANNEL_SCALE_MODE >= 2:
        rows = tl.load(scales_a_ptr + offs_m, mask=offs_m < M, other=0.0)
        acc = acc * rows.to(tl.float32)[:, None]
    c_ptrs = c_ptr + offs_m[:, None].to(tl.int64) * N + offs_n[None, :]
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


# ## Launcher
#
# What this kernel and that of [split-K](gemm_splitK.py) both take. A matrix goes in as a tuple, its pointer and its
# strides, and metadata that the mode doesn't use as None. If the zero point is a number, it is a tensor with one
# element, expanded to a row of N. The four hints change the speed and never the result, so they are one tuple, too.
def kernel_arguments(a, words, scales, zeros, W_nbits, group_size, W_group_mode, hints, BLOCK_M, BLOCK_K, GROUP_M):
    if zeros is not None and not isinstance(zeros, torch.Tensor):
        zeros = torch.full((1, 1), float(zeros), dtype=torch.float32, device=a.device).expand(1, words.shape[1])
    return dict(
        a=(a, *a.stride()), words=(words, *words.stride()), scales=per_group(scales), zeros=per_group(zeros),
        M=a.shape[0], N=words.shape[1], K=a.shape[1], group_size=group_size, W_NBITS=W_nbits, W_GROUP_MODE=W_group_mode,
        HINTS=hints, META_ROWS=1 if group_size % BLOCK_K == 0 else BLOCK_K, BLOCK_M=BLOCK_M, BLOCK_K=BLOCK_K,
        GROUP_M=GROUP_M,
    )  # fmt: skip


# Tensor cores take at least 16 rows of their left factor at a time, so a single row runs in a tile of 16, the others
# masked. Tiles grow with `M`, and are half as deep on cards with less shared memory. Where each row has its own
# metadata, float32 scales and zeros take more of it than the words, which leaves room for one fewer pipeline stage.
@opaque_product()
def gemm_forward(
    a, words, scales, zeros, *, W_nbits, group_size, W_group_mode=3, channel_scale_mode=0, scales_a=None,
    out_dtype=None, tile_order="swizzled", A_load_order=2, meta_evict_policy="evict_last", data_contiguous=True,
    BLOCK_M=None, BLOCK_N=None, BLOCK_K=None, GROUP_M=8,
):  # fmt: skip
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, GROUP_M=GROUP_M)
    M, N = a.shape[0], words.shape[1]
    BLOCK_M = BLOCK_M or min(128, max(16, triton.next_power_of_2(M)))
    BLOCK_N = BLOCK_N or (64 if BLOCK_M <= 64 else 128)
    BLOCK_K = BLOCK_K or (128 if BLOCK_M <= 64 else 64) // (1 if device.shared_memory(a.device.index) > 2**17 else 2)
    c = torch.empty(M, N, dtype=out_dtype or a.dtype, device=a.device)
    if c.numel():
        hints = Hints(tile_order == "swizzled", A_load_order, meta_evict_policy, data_contiguous)
        arguments = kernel_arguments(
            a, words, scales, zeros, W_nbits, group_size, W_group_mode, hints, BLOCK_M, BLOCK_K, GROUP_M
        )
        gemm_kernel[(triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N),)](
            **arguments, scales_a_ptr=scales_a.contiguous() if channel_scale_mode >= 2 else None, c_ptr=c,
            CHANNEL_SCALE_MODE=channel_scale_mode, BLOCK_N=BLOCK_N, num_warps=8 if BLOCK_M == 128 else 4,
            num_stages=3 if arguments["META_ROWS"] == 1 else 2,
        )  # fmt: skip
    return c


# ## The public function
#
# `contract` reports mistakes in the arguments before anything is launched. `used` drops metadata that the mode doesn't
# use, whatever it is.
@replayed
def gemm(
    a, words, scales, zeros, *, W_nbits, group_size, W_group_mode=3, channel_scale_mode=0, scales_a=None,
    out_dtype=None, tile_order="swizzled", A_load_order=2, meta_evict_policy="evict_last", data_contiguous=True,
):  # fmt: skip
    """`a @ dequantize(words)`, unpacked inside the kernel. Forward only.

    Args:
        a: (M, K), float16 or bfloat16, any strides.
        words: int32 (K * W_nbits // 32, N) from `pack`; for W_nbits 16 the weight, (K, N), in a's dtype.
        scales, zeros: (K // group_size, N), or (1, N) for one per column, in float16, bfloat16 or float32; zeros may
            be a number. What the mode doesn't use is ignored (pass None).
        W_nbits: 16, 8, 4, 2 or 1.
        group_size: rows of the weight that share metadata; a multiple of 32 // W_nbits that divides K.
        W_group_mode: 0: q; 1: q - zeros; 2: q * scales; 3: (q - zeros) * scales; 4: q * scales + zeros.
        channel_scale_mode: 0: none; 1: `scales`, (1, N), multiplies the columns of the result (W_group_mode 0 or 1);
            2: `scales_a`, (M,), multiplies its rows; 3: both. Applied in float32.
        out_dtype: float16, bfloat16 or float32; None means a's.
        tile_order: "swizzled" or "linear". A_load_order: 0 to 3, where in the loop A is loaded.
        meta_evict_policy: "", "evict_first" or "evict_last". data_contiguous: hint that columns are neighbours.

    Returns:
        (M, N) in out_dtype. The sum is float32 and is rounded once.

    Raises:
        TypeError, ValueError: naming the argument and the rule that it breaks, before anything is launched.

    Source: the modes are those of gemlite (Badri, Mobius Labs); packing along K as in GPTQ-triton.
    """
    options = dict(W_nbits=W_nbits, group_size=group_size, W_group_mode=W_group_mode, scales_a=scales_a)
    options |= dict(channel_scale_mode=channel_scale_mode, out_dtype=out_dtype, data_contiguous=data_contiguous)
    options |= dict(tile_order=tile_order, A_load_order=A_load_order, meta_evict_policy=meta_evict_policy)
    contract(a, words, scales, zeros, **options)
    scales, zeros, options["scales_a"] = used(scales, zeros, scales_a, W_group_mode, channel_scale_mode)
    return gemm_forward(a, words, scales, zeros, **options)


# ## Where it falls behind
#
# At every size that was measured. With 16 rows it takes [[bench: gemm/16x8192x8192/forward/ms]], cuBLAS with the same
# weight in sixteen bits [[bench: gemm/16x8192x8192/forward/cuBLAS.ms]]. It loads each word once for every value in it,
# and unpacks all words again for each tile of rows. [Split-K](gemm_splitK.py) keeps more of the GPU busy, and the [fast
# version](../fast/low_bit/__init__.py) loads a word once.


# ## A run small enough to watch
#
# K is 24, in groups of 8 and blocks of 16. So the second block is half empty, and the first spans two groups.
def EXAMPLE():
    where = device.DEVICE
    a = (torch.arange(72, device=where).view(3, 24) * 5 % 7 - 3).half()
    words = pack(torch.arange(168, device=where).view(24, 7) * 5 % 16, 4)
    scales, zeros = (torch.arange(42, device=where).view(2, 3, 7) % 5 + 1).half() / 4
    tiles = dict(BLOCK_M=2, BLOCK_N=4, BLOCK_K=16, GROUP_M=2)
    gemm_forward(a, words, scales, zeros, W_nbits=4, group_size=8, **tiles)


if __name__ == "__main__":
    script.main(gemm, gemm_reference)
