r"""
# Low-bit matmul: packed weights, unpacked on the way to the tensor cores

A language model that answers one user multiplies a handful of rows with enormous weight matrices. Nearly all of the
time goes into reading the weights. Store them in four bits instead of sixteen and there is a quarter to read. The
kernel then has to turn packed integers back into numbers, *inside* the matrix product, without ever writing the
unpacked weight out:

[[eq: QM-C]]

where each weight comes from its integer, a zero point and a scale that a whole group of weights shares:

[[eq: QM-mode3]]

**What it costs.** At `M = 1` and four bits, an `N = K = 8192` product reads 33.5 MB of words and does 134 million
operations: memory decides. At `M = 4096` the same weights are used 4096 times, arithmetic decides, and unpacking is
pure extra work. Where does one turn into the other? A byte of words holds two weights and serves `4 * M` operations. An
H200 does about 200 in the time of a byte, so at about fifty rows.

**Contract.** `a` is `(M, K)`, float16 or bfloat16, any strides. `words` is int32, `(K // per_word, N)`, made by
`pack`; with `W_nbits=16` it is the weight itself, `(K, N)` in the dtype of `a`. `scales` and `zeros` are
`(K // group_size, N)`, or `(1, N)` for one per column, or, for `zeros`, one number. Forward only: nothing here has a
gradient.
"""

if __name__ == "__main__":  # run as a script: make the repository importable
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from academy import checks, device

import torch
import triton
import triton.language as tl

W_NBITS = (16, 8, 4, 2, 1)
METADATA_DTYPES = (torch.float16, torch.bfloat16, torch.float32)


# ## What a packed word holds
#
# Thirty-two bits hold eight 4-bit numbers. Word `r` of a column holds rows `8r` to `8r + 7` of the weight, the first
# in the lowest bits (*little end first*): number `j` sits at bit `4j`. Packing runs **along K**, the direction that
# the product sums over, so that one word feeds one output column only.
#
# The integers are unsigned. Signed ones are stored with `2**(W_nbits - 1)` added, and that is then their zero point.
# Packed as they are, a -1 would come back as 15.
def pack(q, W_nbits):
    """Pack a matrix of small unsigned integers into 32-bit words along K, little end first.

    Args:
        q: (K, N), any integer dtype, values in [0, 2**W_nbits). K must be a multiple of 32 // W_nbits.
        W_nbits: 8, 4, 2 or 1.

    Returns:
        int32, (K * W_nbits // 32, N).

    Raises:
        TypeError: q is no integer tensor. ValueError: another shape, number of bits, or a value out of range.
    """
    checks.choice("W_nbits", W_nbits, W_NBITS[1:])
    _integer_matrix("q", q)
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
    _integer_matrix("words", words, (torch.int32,))
    shifts = torch.arange(0, 32, W_nbits, device=words.device, dtype=torch.int32).view(1, -1, 1)
    # `>>` copies the sign bit down; the mask drops those copies again.
    q = (words[:, None, :] >> shifts) & (2**W_nbits - 1)
    return q.to(torch.uint8).reshape(words.shape[0] * (32 // W_nbits), words.shape[1])


# ## From numbers to integers
#
# Min-max quantization, a group at a time. The range is widened to contain zero, so that zero has an integer of its
# own and the zero point fits into the same bits; the range divided by the number of steps is the scale,
# [[tag: QM-scale]]. A group of equal values is no special case then, except all zeros, whose range is empty: its scale
# is set to one. The scale is rounded to the dtype it is stored in *before* the integers are chosen, since it is the
# rounded one that the kernel will multiply with. And it is rounded **up**, to the number whose bits are the next:
# rounded down, the last integer would not reach the end of the range. A float16 below `2**-14` has few bits left, and
# weights there could move by many steps.
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
    _group_rule(w.shape[0], group_size, W_nbits)
    if not bool(w.isfinite().all()):
        raise ValueError("w must be finite: an infinity leaves nothing of the other values in its group")
    K, N = w.shape
    groups = w.detach().float().reshape(K // group_size, group_size, N)
    low, high = groups.amin(1).clamp(max=0.0), groups.amax(1).clamp(min=0.0)
    exact = (high.double() - low.double()) / (2**W_nbits - 1)
    scales = exact.to(w.dtype)
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
# Unpack, dequantize, multiply: three trips through memory, in any dtype. In float64 it is what the kernels are measured
# against.
def gemm_reference(
    a, words, scales, zeros, *, W_nbits, group_size, W_group_mode=3, channel_scale_mode=0, scales_a=None, dtype=None
):
    dtype = dtype or a.dtype
    weight = dequantize_reference(
        words, scales, zeros, W_nbits=W_nbits, group_size=group_size, W_group_mode=W_group_mode, dtype=dtype
    )
    c = a.to(dtype) @ weight
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


# ## Which tile is mine
#
# Two orders of visiting the output tiles. The linear one walks along a row of tiles. The swizzled one walks down
# `GROUP_M` tiles before it moves right, so that programs which run at the same time share tiles of both inputs in L2.
@triton.jit
def tile_linear(pid, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    num_pid_n = tl.cdiv(N, BLOCK_N)
    return pid // num_pid_n, pid % num_pid_n


@triton.jit
def tile_swizzled(pid, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    # The last group may have fewer than `GROUP_M` rows of tiles: dividing by `GROUP_M` there would skip tiles.
    first_pid_m = (pid // num_pid_in_group) * GROUP_M
    rows = tl.minimum(num_pid_m - first_pid_m, GROUP_M)
    within = pid % num_pid_in_group
    return first_pid_m + within % rows, within // rows


# ## From words to weights
#
# Each row of the block needs its own shift: row `k` is number `k % per_word` of its word.
@triton.jit
def unpack_block(words, offs_k, W_NBITS: tl.constexpr):
    shifts = (offs_k % (32 // W_NBITS)) * W_NBITS
    # An arithmetic shift copies the sign bit down. The mask keeps the lowest `W_NBITS` bits and drops the copies.
    return (words >> shifts[:, None]) & ((1 << W_NBITS) - 1)


# The five group modes. The arithmetic is float32, the result is rounded once to the dtype that the tensor cores
# multiply. `W_GROUP_MODE` is a constant at compile time, so only one of the branches is left in the compiled kernel.
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


# Scales and zeros: one row of the metadata covers the whole block when the block lies inside one group. Otherwise
# every row of the block looks up its own group. The eviction policy is a hint to the cache: while it stays in a group,
# a program reads the same metadata again and again, but each word in one step only.
@triton.jit
def load_metadata(
    metadata_ptr, offs_k, offs_n, N, K, group_size, stride_g, stride_n,
    ONE_GROUP: tl.constexpr, EVICT: tl.constexpr,
):  # fmt: skip
    if ONE_GROUP:
        group = tl.min(offs_k, axis=0) // group_size
        metadata = tl.load(
            metadata_ptr + tl.cast(group, tl.int64) * stride_g + offs_n[None, :].to(tl.int64) * stride_n,
            mask=offs_n[None, :] < N, other=0.0, eviction_policy=EVICT,
        )  # fmt: skip
    else:
        groups = offs_k // group_size
        metadata = tl.load(
            metadata_ptr + groups[:, None].to(tl.int64) * stride_g + offs_n[None, :].to(tl.int64) * stride_n,
            mask=(offs_k[:, None] < K) & (offs_n[None, :] < N), other=0.0, eviction_policy=EVICT,
        )  # fmt: skip
    return metadata.to(tl.float32)


# Rows or columns may lie any distance apart, so both products are made in int64. Where a stride is 1 it is a constant
# of the kernel, and costs nothing.
@triton.jit
def load_a(a_ptr, offs_m, offs_k, M, K, stride_am, stride_ak):
    offsets = offs_m[:, None].to(tl.int64) * stride_am + offs_k[None, :].to(tl.int64) * stride_ak
    return tl.load(a_ptr + offsets, mask=(offs_m[:, None] < M) & (offs_k[None, :] < K), other=0.0)


# Tensor cores multiply sixteen columns with sixteen rows at a time. A thinner block (one whose size was given; the
# default ones are wide enough) gets a column of zeros between its columns, and a row of zeros between its rows, until
# it is wide enough.
@triton.jit
def multiply_add(left, right, acc):
    for _ in tl.static_range(4):
        if left.shape[1] < 16:
            left = tl.reshape(tl.join(left, tl.zeros_like(left)), (left.shape[0], 2 * left.shape[1]))
            rows = tl.permute(tl.join(right, tl.zeros_like(right)), (0, 2, 1))
            right = tl.reshape(rows, (2 * right.shape[0], right.shape[1]))
    return tl.dot(left, right, acc)


# ## The kernel
#
# A tiled matrix product like any other, except that its right-hand tile is made on the spot. Every row of the tile
# loads its word. With four bits eight neighbouring rows load the **same** word: one load goes to memory, seven are
# answered by the caches. That keeps this kernel short, and slow: with 16 rows and N = K = 8192 it takes
# [[bench: gemm/16x8192x8192/forward/ms]], the library's product with the weight in sixteen bits
# [[bench: gemm/16x8192x8192/forward/cuBLAS.ms]]. [The split-K lesson](gemm_splitK.py) loads each word once, and makes
# good use of the saved bytes.
@triton.jit
def gemm_kernel(
    a_ptr, words_ptr, scales_ptr, zeros_ptr, scales_a_ptr, c_ptr,
    M, N, K, group_size, zero,
    stride_am, stride_ak, stride_wk, stride_wn, stride_sg, stride_sn, stride_zg, stride_zn, stride_cm, stride_cn,
    W_NBITS: tl.constexpr, W_GROUP_MODE: tl.constexpr, CHANNEL_SCALE_MODE: tl.constexpr, ZERO_IS_NUMBER: tl.constexpr,
    ONE_GROUP: tl.constexpr, SWIZZLED: tl.constexpr, A_LOAD_ORDER: tl.constexpr, EVICT: tl.constexpr,
    CONTIGUOUS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):  # fmt: skip
    # Inside `torch.compile` a Python float arrives as float64, and would make all of this float64.
    zero = tl.cast(zero, tl.float32)

    # **Step 1: my tile.** In the example C is 4 x 8 in tiles of 2 x 4, four programs: `pid=3: pid_m = 1`, `pid_n = 1`.
    pid = tl.program_id(0)
    if SWIZZLED:
        pid_m, pid_n = tile_swizzled(pid, M, N, BLOCK_M, BLOCK_N, GROUP_M)
    else:
        pid_m, pid_n = tile_linear(pid, M, N, BLOCK_M, BLOCK_N)
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    # Columns of the last program: `pid=3: offs_n = [4, 5, 6, 7]`. The hint says that they are neighbours, to be fetched
    # by one wide load. Here the compiler sees that by itself. Where column numbers wrap round, as in `offs_n % N`, it
    # could not.
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    if CONTIGUOUS:
        offs_n = tl.max_contiguous(tl.multiple_of(offs_n, BLOCK_N), BLOCK_N)

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k0 in range(0, K, BLOCK_K):
        offs_k = k0 + tl.arange(0, BLOCK_K)
        inside = (offs_k[:, None] < K) & (offs_n[None, :] < N)

        # **Step 2: when to load A.** Its tile depends on nothing else, so it may be asked for first, last, or between
        # the other loads. The order decides what waits for what; `A_load_order` 0 to 3 tries all four places.
        if A_LOAD_ORDER == 0:
            a = load_a(a_ptr, offs_m, offs_k, M, K, stride_am, stride_ak)

        # **Step 3: the words.** Row `k` of the tile finds its number in word row `k // per_word`: with four bits and
        # `BLOCK_K = 16` the first block reads word rows `pid=0, k0=0: word_rows = [0, 0, 0, 0, 0, 0, 0, 0, 1, ...]`.
        word_rows = offs_k // (32 // W_NBITS) if W_NBITS < 16 else offs_k
        columns = offs_n[None, :].to(tl.int64) * stride_wn
        words_ptrs = words_ptr + word_rows[:, None].to(tl.int64) * stride_wk + columns
        words = tl.load(words_ptrs, mask=inside, other=0)
        if A_LOAD_ORDER == 1:
            a = load_a(a_ptr, offs_m, offs_k, M, K, stride_am, stride_ak)

        # **Step 4: scales and zeros** of these rows. A mode that has no use for one never loads it.
        scales = 1.0
        zeros = zero
        if W_GROUP_MODE >= 2:
            scales = load_metadata(scales_ptr, offs_k, offs_n, N, K, group_size, stride_sg, stride_sn, ONE_GROUP, EVICT)
        if (W_GROUP_MODE == 1 or W_GROUP_MODE >= 3) and not ZERO_IS_NUMBER:
            zeros = load_metadata(zeros_ptr, offs_k, offs_n, N, K, group_size, stride_zg, stride_zn, ONE_GROUP, EVICT)
        if A_LOAD_ORDER == 2:
            a = load_a(a_ptr, offs_m, offs_k, M, K, stride_am, stride_ak)

        # **Step 5: integers, weights, product.** The formulas behind the modes: [[tag: QM-mode0]],
        # [[tag: QM-mode1]], [[tag: QM-mode2]], [[tag: QM-mode3]], [[tag: QM-mode4]].
        q = unpack_block(words, offs_k, W_NBITS) if W_NBITS < 16 else words
        weight = dequantize_block(q, scales, zeros, W_GROUP_MODE, a_ptr.dtype.element_ty)
        if A_LOAD_ORDER == 3:
            a = load_a(a_ptr, offs_m, offs_k, M, K, stride_am, stride_ak)
        acc = multiply_add(a, weight, acc)

    # **Step 6: scales of whole rows and columns**, [[tag: QM-channel]], while the sum is still float32. Then one
    # rounding.
    if CHANNEL_SCALE_MODE == 1 or CHANNEL_SCALE_MODE == 3:
        column_scales = tl.load(scales_ptr + offs_n.to(tl.int64) * stride_sn, mask=offs_n < N, other=0.0)
        acc = acc * column_scales.to(tl.float32)[None, :]
    if CHANNEL_SCALE_MODE >= 2:
        rows = tl.load(scales_a_ptr + offs_m, mask=offs_m < M, other=0.0).to(tl.float32)
        acc = acc * rows[:, None]
    c_ptrs = c_ptr + offs_m[:, None].to(tl.int64) * stride_cm + offs_n[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


# ## The rules of the format, checked
#
# Everything that can be wrong with so many arguments is said before anything is launched. Metadata that a mode has no
# use for is ignored, whatever it is.
def _integer_matrix(name, value, allowed=(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)):
    checks.tensors(**{name: value})
    checks.dtypes(allowed, **{name: value})
    checks.dimensions(name, value, 2, "rows, N")


def _group_rule(K, group_size, W_nbits):
    per_word = 32 // W_nbits if W_nbits < 16 else 1
    if isinstance(group_size, bool) or not isinstance(group_size, int):
        raise TypeError(f"group_size must be an int, got {type(group_size).__name__}")
    if group_size < 1 or group_size % per_word or K % group_size:
        raise ValueError(
            f"group_size must be a multiple of the {per_word} values in a word and divide K = {K}, got {group_size}"
        )


def check_arguments(
    a, words, scales, zeros, W_nbits, group_size, W_group_mode, channel_scale_mode, scales_a, out_dtype
):
    """Raise on anything that breaks the format; return the zeros as (tensor or None, number where there is none)."""
    checks.choice("W_nbits", W_nbits, W_NBITS)
    checks.choice("W_group_mode", W_group_mode, (0, 1, 2, 3, 4))
    checks.choice("channel_scale_mode", channel_scale_mode, (0, 1, 2, 3))
    checks.choice("out_dtype", out_dtype, (None, *METADATA_DTYPES))
    checks.tensors(a=a, words=words)
    checks.dtypes((torch.float16, torch.bfloat16), a=a)
    checks.dimensions("a", a, 2, "M, K")
    checks.dimensions("words", words, 2, "rows of words, N")
    K, N = a.shape[1], words.shape[1]
    if W_nbits == 16:
        checks.same_dtype(a=a, words=words)
        checks.shape("words", words, (K, N), "the weight itself, K from a")
    else:
        checks.dtypes((torch.int32,), words=words)
        if K % (32 // W_nbits):
            raise ValueError(f"a must have a multiple of {32 // W_nbits} columns for W_nbits={W_nbits}, got {K}")
        checks.shape("words", words, (K * W_nbits // 32, N), f"K * {W_nbits} / 32 with K = {K} from a")
    _group_rule(K, group_size, W_nbits)
    per_column = channel_scale_mode in (1, 3)
    if per_column and W_group_mode > 1:
        raise ValueError(
            f"W_group_mode must be 0 or 1 when channel_scale_mode={channel_scale_mode} gives scales to the columns, "
            f"got {W_group_mode}"
        )
    grouped = {(K // group_size, N): f"K // group_size, N; group_size={group_size}", (1, N): "one per column"}
    if per_column:
        _metadata("scales", scales, {(1, N): f"one per column, for channel_scale_mode={channel_scale_mode}"})
    elif W_group_mode >= 2:
        _metadata("scales", scales, grouped)
    zero = 0.0
    if W_group_mode not in (1, 3, 4):
        zeros = None
    elif isinstance(zeros, torch.Tensor):
        _metadata("zeros", zeros, grouped)
    else:
        checks.number("zeros", zeros)
        zeros, zero = None, float(zeros)
    if channel_scale_mode >= 2:
        checks.tensors(scales_a=scales_a)
        checks.dtypes(METADATA_DTYPES, scales_a=scales_a)
        checks.shape("scales_a", scales_a, (a.shape[0],), "one per row of a")
    used = dict(a=a, words=words if W_nbits == 16 else None, zeros=zeros)
    used |= dict(scales=scales) if per_column or W_group_mode >= 2 else {}
    used |= dict(scales_a=scales_a) if channel_scale_mode >= 2 else {}
    checks.no_gradient("low-bit matmul", **used)
    return zeros, zero


def check_options(tile_order, A_load_order, meta_evict_policy):
    """Raise on an option that doesn't exist."""
    checks.choice("tile_order", tile_order, ("swizzled", "linear"))
    checks.choice("A_load_order", A_load_order, (0, 1, 2, 3))
    checks.choice("meta_evict_policy", meta_evict_policy, ("", "evict_first", "evict_last"))


def _metadata(name, value, shapes):
    """shapes: each allowed shape, and what it means."""
    if value is None:
        raise TypeError(f"{name} must be a tensor in this mode, got None")
    checks.tensors(**{name: value})
    checks.dtypes(METADATA_DTYPES, **{name: value})
    if tuple(value.shape) not in shapes:
        allowed = " or ".join(f"{shape} ({meaning})" for shape, meaning in shapes.items())
        raise ValueError(f"{name} must have shape {allowed}, got {tuple(value.shape)}")


def group_stride(metadata):
    """Elements from one group's row of metadata to the next: 0 if one row serves all groups."""
    return 0 if metadata.shape[0] == 1 else metadata.stride(0)


# `triton.cdiv` and `triton.next_power_of_2` without their check for constexpr arguments, which takes microseconds: what
# Python does before the GPU has anything to do is most of what a small product costs.
def cdiv(size, block):
    return -(-size // block)


def next_power_of_2(number):
    return 1 << (number - 1).bit_length()


# ## The launcher
#
# Tensor cores take at least 16 rows of their left factor at a time, so a single row runs in a tile of 16, the other
# rows masked. Tiles grow with `M`: more rows use the unpacked weights more often.
def gemm(
    a, words, scales, zeros, *, W_nbits, group_size, W_group_mode=3, channel_scale_mode=0, scales_a=None,
    out_dtype=None, tile_order="swizzled", A_load_order=2, meta_evict_policy="evict_last", data_contiguous=True,
    BLOCK_M=None, BLOCK_N=None, BLOCK_K=None, GROUP_M=None,
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
        meta_evict_policy: "", "evict_first" or "evict_last".
        data_contiguous: hint that columns are neighbours in memory.
        BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M: tile sizes (powers of two); None: chosen from the shape.

    Returns:
        (M, N) in out_dtype. The sum is float32 and is rounded once.

    Raises:
        TypeError, ValueError: naming the argument and the rule that it breaks, before anything is launched.

    Source: the modes are those of gemlite (Badri, Mobius Labs); packing along K as in GPTQ-triton.
    """
    zeros, zero = check_arguments(
        a, words, scales, zeros, W_nbits, group_size, W_group_mode, channel_scale_mode, scales_a, out_dtype
    )
    check_options(tile_order, A_load_order, meta_evict_policy)
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, GROUP_M=GROUP_M)
    (M, K), N = a.shape, words.shape[1]
    c = torch.empty(M, N, dtype=out_dtype or a.dtype, device=a.device)
    if not c.numel():
        return c
    BLOCK_M = BLOCK_M or min(128, max(16, next_power_of_2(M)))
    BLOCK_N = BLOCK_N or (64 if M <= 64 else 128)
    BLOCK_K = BLOCK_K or (128 if BLOCK_M <= 64 else 64)
    uses_scales = W_group_mode >= 2 or channel_scale_mode in (1, 3)
    # A pointer that the mode never follows still has to be a tensor.
    scales, zeros_ptr = (scales if uses_scales else a), (zeros if zeros is not None else a)
    grid = (cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N),)
    gemm_kernel[grid](
        a, words, scales, zeros_ptr, scales_a.contiguous() if channel_scale_mode >= 2 else a, c,
        M, N, K, group_size, zero,
        *a.stride(), *words.stride(), group_stride(scales), scales.stride(1),
        group_stride(zeros_ptr), zeros_ptr.stride(1), *c.stride(),
        W_NBITS=W_nbits, W_GROUP_MODE=W_group_mode, CHANNEL_SCALE_MODE=channel_scale_mode, ZERO_IS_NUMBER=zeros is None,
        ONE_GROUP=group_size % BLOCK_K == 0, SWIZZLED=tile_order == "swizzled", A_LOAD_ORDER=A_load_order,
        EVICT=meta_evict_policy, CONTIGUOUS=data_contiguous,
        BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, GROUP_M=GROUP_M or 8,
        num_warps=8 if BLOCK_M * BLOCK_N >= 128 * 128 else 4, num_stages=3,
    )  # fmt: skip
    return c


# ## A run small enough to watch
#
# K is 24, in groups of 8 and blocks of 16. So the second block is half empty, and a block reaches over two groups.
def EXAMPLE():
    torch.manual_seed(0)
    w = torch.randn(24, 8, device=device.DEVICE).half()
    a = torch.randn(4, 24, device=device.DEVICE).half()
    words, scales, zeros = quantize(w, 4, 8)
    gemm(a, words, scales, zeros, W_nbits=4, group_size=8, BLOCK_M=2, BLOCK_N=4, BLOCK_K=16, GROUP_M=2)
    return dict(shape=(4, 8, 24), dtype=torch.float16, W_nbits=4, group_size=8)


# ## Cost and benchmark
#
# `shape` is (M, N, K). The words weigh `W_nbits / 8` bytes a value, the metadata two numbers a group.
#
# **Where it stays behind.** Everywhere: it loads a word for each of its values, and unpacks it again for each tile of
# rows. [Split-K](gemm_splitK.py) does neither, and is the one to use.
def cost(shape, dtype, W_nbits=4, group_size=128):
    M, N, K = shape
    metadata = 2 * (K // group_size) * N * dtype.itemsize
    read = M * K * dtype.itemsize + K * N * W_nbits // 8 + metadata
    return {"forward": dict(bytes_read=read, bytes_written=M * N * dtype.itemsize, operations=2 * M * N * K)}


# The library gets the same weight in sixteen bits, `w`, and so four times the bytes. What is right is the product
# with the dequantized words in float64, not with the weight that somebody made them from.
def bench_inputs(shape, dtype, device):
    M, N, K = shape
    a = torch.randn(M, K, dtype=dtype, device=device)
    words = torch.randint(-(2**31), 2**31, (K // 8, N), dtype=torch.int32, device=device)
    scales = (0.01 * torch.rand(K // 128, N, device=device) + 0.005).to(dtype)
    zeros = torch.randint(0, 16, (K // 128, N), device=device).to(dtype)
    w = dequantize_reference(words, scales, zeros, W_nbits=4, group_size=128, dtype=dtype)
    return dict(a=a, words=words, scales=scales, zeros=zeros, w=w)


BENCH = dict(
    shapes=[(M, 8192, 8192) for M in (16, 512)],
    dtypes=[torch.float16],
    inputs=bench_inputs,
    ours=lambda a, words, scales, zeros, w: gemm(a, words, scales, zeros, W_nbits=4, group_size=128),
    eager=lambda a, words, scales, zeros, w: a @ w,
    eager_name="cuBLAS",
    reference=lambda a, words, scales, zeros, w: gemm_reference(
        a, words, scales, zeros, W_nbits=4, group_size=128, dtype=torch.float64
    ),
    compile=False,
    timing="graph",
    host_shape=(16, 128, 128),
)


def main():
    from academy import accuracy

    device.arguments(__doc__)
    report = accuracy.Report()
    for M, N, K in [(1, 40, 64), (5, 24, 128), (20, 40, 192)]:
        for W_nbits in (8, 4, 2, 1):
            w = torch.randn(K, N, dtype=torch.float16, device=device.DEVICE)
            a = torch.randn(M, K, dtype=torch.float16, device=device.DEVICE)
            words, scales, zeros = quantize(w, W_nbits, 64)
            options = dict(W_nbits=W_nbits, group_size=64)
            c = gemm(a, words, scales, zeros, **options)
            pytorch = gemm_reference(a, words, scales, zeros, **options)
            exact = gemm_reference(a, words, scales, zeros, dtype=torch.float64, **options)
            report.compare("c", f"{M} x {N} x {K}, {W_nbits} bits", c, pytorch, exact)
    status = report.print()
    if not device.INTERPRET:
        from academy import bench

        bench.print_speed(BENCH, cost)
    return status


if __name__ == "__main__":
    sys.exit(main())
