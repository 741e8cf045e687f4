r"""
# Eight-bit floats: a code for each number, a scale for each group

Tensor cores multiply eight-bit floats twice as fast as sixteen-bit ones, and half the bytes have to travel. But
`float8_e4m3fn` has 253 numbers, from $2^{-9}$ to 448. Activations, weights and gradients lie elsewhere, so each *group*
of elements is first divided by a **scale** of its own, which puts the largest of them at the largest code:

[[eq: F8-scale]]

$L$ is the largest code. Each element is multiplied by the reciprocal and rounded, once, [[tag: F8-q]]. What a code
stands for is the code times the scale, [[tag: F8-decode]].

How large should a group be? One outlier sets the scale of all of it, and small neighbours become zero. Four answers are
in use: one scale for the **tensor**, for each **row**, for **1x128** elements of a row, for a square of **128x128**.

[[figure: fp8/granularity]]

**What it costs.** In bfloat16, 3 bytes for each element: two are read and one is written. (Rows are read a second time,
from the cache.) With one scale for the tensor all of it must have been seen before the first element is rounded, so it
is read twice: 5 bytes. *Delayed* scaling takes the scale of an earlier step, and is back at 3. 16384 rows of 8192, with
a scale each, take [[bench: quantize/ladder/rows/forward_ms]], a copy [[bench: quantize/ladder/copy/forward_ms]].

**Where it falls behind.** Rows whose length is no multiple of 16 are loaded one number at a time: with squares,
torch.compile is ahead at 16384 x 4097.

**Contract.** `x` is float32, float16 or bfloat16, any strides. All arithmetic is float32 and defined to the bit: the
same codes and scales come out on every device. No epsilon is added: tensors of $10^{-30}$ are quantized as well as
tensors of one. A group of zeros has the scale 1. A group with a NaN or an infinity becomes NaN, scale and codes, and no
other group is touched. Forward only: rounding has no useful derivative, and
[the derivation](../../backprop_math/fp8.md) says what is used instead.
"""

from academy.runtime import checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch
import triton
import triton.language as tl

from annotated_examples.common.fp8 import LARGEST, format_contract, magnitude_bits, scale_of, to_fp8
from annotated_examples.common.rows import LONGEST_ROW
from annotated_examples.common.seeds import seed_contract, seed_tensor, seeded

GRANULARITIES = ("tensor", "row", "1x128", "128x128")


# ## Reference
#
# In PyTorch, with the same decisions on the same bits. Any tensor is a matrix: its last dimension, and all others
# together. It is cut into tiles of `height` by `width`, the last ones filled up with zeros. Powers are taken in
# float64: there no device is so far off that it would show in float32.
def as_matrix(x):
    return x if x.dim() == 2 else x.reshape(x.shape[:-1].numel(), x.shape[-1] if x.dim() else 1)


def tile_size(granularity, M, K, GROUP=128):
    return {"tensor": (M, K), "row": (1, K), "1x128": (1, GROUP), "128x128": (GROUP, GROUP)}[granularity]


def scale_reference(bits, dtype, power_of_two):
    largest = bits.view(torch.float32)
    if power_of_two:
        exponent = (bits >> 23) - 127 - (8 if dtype == torch.float8_e4m3fn else 15)
        exponent += (bits & 0x7FFFFF) > 0x600000
        scale = torch.exp2(exponent.clamp(min=-126).double()).float()
    else:
        # PyTorch turns division by a Python number into multiplication on a GPU; division by a tensor is exact.
        scale = (largest / torch.full_like(largest, LARGEST[dtype])).clamp(min=2.0**-126)
    return torch.where(bits == 0, 1.0, torch.where(bits >= 0x7F800000, float("nan"), scale))


def quantize_fp8_reference(x, granularity="row", *, dtype=torch.float8_e4m3fn, power_of_two=False, GROUP=128):
    values = as_matrix(x.float())
    M, K = values.shape
    height, width = tile_size(granularity, M, K, GROUP)
    rows, columns = -(-M // max(height, 1)), -(-K // max(width, 1))
    shape = {"tensor": (), "row": (*x.shape[:-1], 1)}.get(granularity, (rows, columns))
    if x.numel() == 0:
        return torch.empty(x.shape, dtype=dtype, device=x.device), torch.ones(shape, device=x.device)
    padded = torch.nn.functional.pad(values, (0, columns * width - K, 0, rows * height - M))
    tiles = padded.view(rows, height, columns, width)
    scale = scale_reference((tiles.view(torch.int32) & 0x7FFFFFFF).amax((1, 3)), dtype, power_of_two)
    codes = (tiles * (1 / scale)[:, None, :, None]).clamp(-LARGEST[dtype], LARGEST[dtype])
    codes = codes.reshape(rows * height, columns * width)[:M, :K]
    return codes.reshape(x.shape).contiguous().to(dtype), scale.reshape(shape)


def quantize_fp8_delayed_reference(x, scale, *, dtype=torch.float8_e4m3fn):
    scale = torch.where((scale >= 2.0**-126) & scale.isfinite(), scale, float("nan"))
    codes = (x.float() * (1 / scale)).clamp(-LARGEST[dtype], LARGEST[dtype]).to(dtype)
    bits = x.float().contiguous().view(torch.int32) & 0x7FFFFFFF
    return codes, (bits.max() if x.numel() else bits.sum().int()).view(torch.float32)


def dequantize_fp8_reference(q, scale, dtype=torch.float32):
    if scale.dim() and scale.shape != (*q.shape[:-1], 1):
        M, K = q.shape
        height = 1 if scale.shape[0] == M else 128
        scale = scale.repeat_interleave(height, 0)[:M].repeat_interleave(128, 1)[:, :K]
    return (q.float() * scale).to(dtype)


# ## One scale for each row
#
# One program takes one row, in chunks, in two passes as in [rmsnorm](../classics/rmsnorm.py): the scale must be known
# before the first element can be rounded.
#
# With a seed it rounds **stochastically**, up or down by chance, which is right on average ([[tag: F8-sr]]), if each
# step of a training has its own: with one for all, an element would err in the same direction each time. Above 2⁻⁶
# the distance of neighbouring codes of `e4m3` doubles at each power of two; below, it is always 2⁻⁹:
#
# [[figure: fp8/stochastic_codes]]
#
# The numbers in the notes come from a recorded run: five rows of 6 columns, in chunks of 4. The first row is 1, 17, −3,
# 0.5, 448 and 1000.
@triton.jit
def quantize_rows_kernel(
    x_ptr, q_ptr, scale_ptr, seed_ptr,  # (M, K); (M, K), contiguous; (M,) in float32; one number, or None
    K, stride_xm, stride_xk, POWER_OF_TWO: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    # My row, in 64 bits: its number times a stride may exceed 2³¹.
    E4M3: tl.constexpr = q_ptr.dtype.element_ty == tl.float8e4nv
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_xm

    # First pass: the largest magnitude, lane by lane, as bits. A masked lane reads 0, which is no larger than anything:
    # `pid=0, start=4: x = [448, 1000, 0, 0]`.
    bits = tl.zeros((BLOCK_K,), tl.int32)
    for start in range(0, K, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        mask = offs_k < K
        x = tl.load(x_ptr + offs_k.to(tl.int64) * stride_xk, mask=mask, other=0.0).to(tl.float32)
        bits = tl.maximum(bits, magnitude_bits(x))

    # [[tag: F8-scale]]: 1000 / 448 is `pid=0: scale = 2.2321`. Row 1 is all zeros, `pid=1: scale = 1`. In the second
    # call it is a power of two, `launch=1, pid=0: scale = 4`. Multiplying by a reciprocal is faster than dividing, and
    # rounds again: of a million bfloat16 numbers several hundred get another code. So it is defined, [[tag: F8-inv]].
    scale = scale_of(tl.max(bits, 0), E4M3, POWER_OF_TWO)
    tl.store(scale_ptr + row, scale)
    inverse = tl.div_rn(1.0, scale)

    # Second pass, from the cache. Divided by 2.2321, the first row is 0.448, 7.616, −1.344, 0.224, 200.7 and 448, and
    # codes near 200 are 16 apart: `pid=0, start=4: q = [208, 448, 0, 0]`. The 0.5 that began as half of the first
    # element still is: `pid=0, start=0: q = [0.4375, 7.5, -1.375, 0.21875]`.
    for start in range(0, K, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        mask = offs_k < K
        x = tl.load(x_ptr + offs_k.to(tl.int64) * stride_xk, mask=mask, other=0.0).to(tl.float32)
        index = row * K + offs_k
        q = to_fp8(x * inverse, seed_ptr, index, q_ptr.dtype.element_ty)
        tl.store(q_ptr + index, q, mask=mask)


# ## One scale for each block
#
# A tile fits into registers, so one pass is enough. `EACH_ROW` gives each row of the tile a scale of its own: that is
# 1x128, for many rows at once. Otherwise the tile has one, which is 128x128.
@triton.jit
def quantize_tiles_kernel(
    x_ptr, q_ptr,  # (M, K); (M, K), contiguous
    scale_ptr, seed_ptr,  # (M, tiles along K) with EACH_ROW, else one for each tile; one number, or None
    M, K, stride_xm, stride_xk, stride_sm, stride_sk, POWER_OF_TWO: tl.constexpr, EACH_ROW: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    # Neighbouring programs take neighbouring tiles of a row. One dimension of the grid is enough for both: the second
    # one ends at 65535.
    E4M3: tl.constexpr = q_ptr.dtype.element_ty == tl.float8e4nv
    tile_m = tl.program_id(0) // tl.cdiv(K, BLOCK_K)
    tile_k = tl.program_id(0) % tl.cdiv(K, BLOCK_K)
    offs_m = tile_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_k = tile_k.to(tl.int64) * BLOCK_K + tl.arange(0, BLOCK_K)
    mask_m, mask_k = offs_m < M, offs_k < K
    mask = mask_m[:, None] & mask_k[None, :]

    # In the example 5 rows of 6 columns are cut into groups of 4. The second group of a row has two elements. The
    # outlier 1000 is in it, `pid=1: x = [[448, 1000, 0, 0], [0, 0, 0, 0]]`, and the first group keeps its
    # digits: `pid=0: q = [[26, 448, -80, 13], [0, 0, 0, 0]]`.
    x_ptrs = x_ptr + offs_m[:, None] * stride_xm + offs_k[None, :] * stride_xk
    x = tl.load(x_ptrs, mask=mask, other=0.0).to(tl.float32)
    bits = tl.max(magnitude_bits(x), 1)
    scale_ptr += tile_k * stride_sk
    if EACH_ROW:
        # A mask that asks for less than `BLOCK_M` rows would be always true here; what counts is the row in the matrix.
        scale = scale_of(bits, E4M3, POWER_OF_TWO)
        tl.store(scale_ptr + offs_m * stride_sm, scale, mask=mask_m)
        x *= tl.div_rn(1.0, scale)[:, None]
    else:
        scale = scale_of(tl.max(bits, 0), E4M3, POWER_OF_TWO)
        tl.store(scale_ptr + tile_m * stride_sm, scale)
        x *= tl.div_rn(1.0, scale)
    index = offs_m[:, None] * K + offs_k[None, :]
    q = to_fp8(x, seed_ptr, index, q_ptr.dtype.element_ty)
    tl.store(q_ptr + index, q, mask=mask)


# ## One scale for the tensor
#
# No program sees all of the tensor, so a kernel of its own finds the largest magnitude. Each program walks over its
# share, a block here and a block there, and then asks memory for one maximum: `tl.atomic_max` keeps the larger of what
# is there and its own. Of *integers* the result is the same in any order, and no NaN is lost.
@triton.jit
def amax_kernel(x_ptr, amax_ptr, n, BLOCK: tl.constexpr):  # (n,), one number
    bits = tl.zeros((BLOCK,), tl.int32)
    for start in range(tl.program_id(0).to(tl.int64) * BLOCK, n, tl.num_programs(0) * BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offs, mask=offs < n, other=0.0).to(tl.float32)
        bits = tl.maximum(bits, magnitude_bits(x))
    tl.atomic_max(amax_ptr, tl.max(bits, 0))


# The second kernel reads the result, turns it into a scale, and rounds. The scale never travels to the CPU: Python
# would have to wait for it. All programs compute it, and one stores it.
#
# With **delayed** scaling (`DELAYED`) the scale is there already, and it is the maximum that is new. A scale below
# 2⁻¹²⁶, an infinite one or NaN makes all codes NaN: to raise an error, Python would have to wait for the GPU.
@triton.jit
def quantize_tensor_kernel(
    x_ptr, q_ptr, scale_ptr, amax_ptr, seed_ptr,  # (n,), (n,), and one number each; seed_ptr may be None
    n, POWER_OF_TWO: tl.constexpr, DELAYED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    E4M3: tl.constexpr = q_ptr.dtype.element_ty == tl.float8e4nv
    pid = tl.program_id(0).to(tl.int64)
    if DELAYED:
        scale = tl.load(scale_ptr)
        scale = tl.where((scale >= 1.1754943508222875e-38) & (scale < float("inf")), scale, float("nan"))
    else:
        # The bits of 1000 are `pid=0: amax = 1148846080`.
        amax = tl.load(amax_ptr)
        scale = scale_of(amax, E4M3, POWER_OF_TWO)
        if pid == 0:
            tl.store(scale_ptr, scale)
    inverse = tl.div_rn(1.0, scale)
    bits = tl.zeros((BLOCK,), tl.int32)
    for start in range(pid * BLOCK, n, tl.num_programs(0) * BLOCK):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < n
        x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
        # Under a scale for up to 448, 1000 ends at the largest code. 17 lies halfway between 16 and 18; 16 has the even
        # last bit: `launch=1, pid=0, start=0: q = [1, 16, -3, 0.5, 448, 448, 0, 0]`. Under the scale of 1000 all of row
        # 2, which begins at element 12, becomes 0: `pid=1, start=8: q = [0, 0, 0, 0, 0, 0, 0, 0]`.
        q = to_fp8(x * inverse, seed_ptr, offs, q_ptr.dtype.element_ty)
        tl.store(q_ptr + offs, q, mask=mask)
        if DELAYED:
            bits = tl.maximum(bits, magnitude_bits(x))
    if DELAYED:
        tl.atomic_max(amax_ptr, tl.max(bits, 0))


# ## And back
#
# [[tag: F8-decode]], in float32, rounded to the result's dtype once. One kernel serves all granularities: an element's
# scale is found by dividing its row and its column by the size of a group. A stride of zero makes one scale do for all.
@triton.jit
def dequantize_kernel(
    q_ptr, scale_ptr, out_ptr,  # (M, K); one for each group of GROUP_M rows and GROUP_K columns; (M, K), contiguous
    M, K, stride_qm, stride_qk, stride_sm, stride_sk, GROUP_M, GROUP_K, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    tile_m = tl.program_id(0) // tl.cdiv(K, BLOCK_K)
    tile_k = tl.program_id(0) % tl.cdiv(K, BLOCK_K)
    offs_m = tile_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_k = tile_k.to(tl.int64) * BLOCK_K + tl.arange(0, BLOCK_K)
    mask = (offs_m < M)[:, None] & (offs_k < K)[None, :]
    q_ptrs = q_ptr + offs_m[:, None] * stride_qm + offs_k[None, :] * stride_qk
    scale_ptrs = scale_ptr + (offs_m // GROUP_M)[:, None] * stride_sm + (offs_k // GROUP_K)[None, :] * stride_sk
    # Eight bits become 32 before anything else is done: only tensor cores compute with them. In the first row 448 times
    # 2.2321 is 1000 again: `pid=1: out = [[464.286, 1000, 0, 0], [0, 0, 0, 0]]`.
    out = tl.load(q_ptrs, mask=mask, other=0.0).to(tl.float32) * tl.load(scale_ptrs, mask=mask, other=0.0)
    tl.store(out_ptr + offs_m[:, None] * K + offs_k[None, :], out, mask=mask)


# ## Launchers
#
# A transposed matrix is read where it lies, through its strides; what can't be viewed as a matrix is copied.
@replayed
def quantize_rows_forward(x, dtype, power_of_two, seed=None, *, BLOCK_K=None):
    """`(q, scale)` with a scale for each row, (…, 1)."""
    checks.power_of_two(BLOCK_K=BLOCK_K)
    q = torch.empty(x.shape, dtype=dtype, device=x.device)
    scale = torch.empty((*x.shape[:-1], 1), dtype=torch.float32, device=x.device)
    rows = as_matrix(x)
    M, K = rows.shape
    BLOCK_K = BLOCK_K or min(4096, max(256, triton.next_power_of_2(K)))
    if M > 0:
        seed = seed_tensor(seed, x.device)
        options = dict(POWER_OF_TWO=power_of_two, BLOCK_K=BLOCK_K, num_warps=8 if BLOCK_K >= 2048 else 4)
        quantize_rows_kernel[(M,)](rows, q, scale, seed, K, *rows.stride(), **options)
    return q, scale


# The scales of 1x128 are stored column by column, because a product reads them so: for many rows, the same group.
@replayed
def quantize_tiles_forward(x, dtype, power_of_two, seed=None, *, each_row, BLOCK_M=None, GROUP=128):
    """`(q, scale)` with a scale for each `GROUP` elements of a row, or (each_row=False) for each square of them."""
    BLOCK_M = BLOCK_M or (16 if each_row else GROUP)
    checks.power_of_two(BLOCK_M=BLOCK_M, GROUP=GROUP)
    M, K = x.shape
    q = torch.empty(x.shape, dtype=dtype, device=x.device)
    blocks_m, blocks_k = triton.cdiv(M, BLOCK_M), triton.cdiv(K, GROUP)
    if each_row:
        scale = torch.empty((blocks_k, M), dtype=torch.float32, device=x.device).t()
    else:
        scale = torch.empty((blocks_m, blocks_k), dtype=torch.float32, device=x.device)
    if q.numel() > 0:
        seed = seed_tensor(seed, x.device)
        quantize_tiles_kernel[(blocks_m * blocks_k,)](
            x, q, scale, seed, M, K, *x.stride(), *scale.stride(),
            POWER_OF_TWO=power_of_two, EACH_ROW=each_row, BLOCK_M=BLOCK_M, BLOCK_K=GROUP,
            num_warps=2 if BLOCK_M * GROUP <= 2048 else 8,
        )  # fmt: skip
    return q, scale


# A tensor that isn't contiguous is copied first: element by element, its order is all that counts here.
@replayed
def quantize_tensor_forward(x, dtype, power_of_two, seed=None, *, scale=None, BLOCK=4096, num_programs=1056):
    """`(q, scale, amax)`; with a `scale` that one is used. amax: the bits of the largest magnitude, int32, ()."""
    checks.power_of_two(BLOCK=BLOCK)
    checks.positive(num_programs=num_programs)
    delayed, values, n = scale is not None, x.contiguous(), x.numel()
    q = torch.empty(x.shape, dtype=dtype, device=x.device)
    amax = torch.zeros((), dtype=torch.int32, device=x.device)
    if n == 0:
        return q, torch.ones((), device=x.device) if scale is None else scale, amax
    grid = (min(triton.cdiv(n, BLOCK), num_programs),)
    if not delayed:
        scale = torch.empty((), dtype=torch.float32, device=x.device)
        amax_kernel[grid](values, amax, n, BLOCK=BLOCK, num_warps=8)
    seed = seed_tensor(seed, x.device)
    options = dict(POWER_OF_TWO=power_of_two, DELAYED=delayed, BLOCK=BLOCK, num_warps=8)
    quantize_tensor_kernel[grid](values, q, scale, amax, seed, n, **options)
    return q, scale, amax


@replayed
def dequantize_forward(q, scale, dtype, *, BLOCK_M=16, BLOCK_K=128, GROUP=128):
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_K=BLOCK_K)
    out = torch.empty(q.shape, dtype=dtype, device=q.device)
    codes = as_matrix(q)
    M, K = codes.shape
    if scale.dim() == 0 or scale.shape == (*q.shape[:-1], 1):
        scale = scale.reshape(-1, 1)
        group, strides = (1, max(K, 1)), (scale.stride(0) if len(scale) > 1 else 0, 0)
    else:
        group, strides = (1 if scale.shape[0] == M else GROUP, GROUP), scale.stride()
    if out.numel() > 0:
        dequantize_kernel[(triton.cdiv(M, BLOCK_M) * triton.cdiv(K, BLOCK_K),)](
            codes, scale, out, M, K, *codes.stride(), *strides, *group, BLOCK_M=BLOCK_M, BLOCK_K=BLOCK_K
        )
    return out


# ## The public functions
def contract(x, granularity, dtype, power_of_two, seed):
    """Raises on bad arguments."""
    checks.tensors(x=x)
    checks.dtypes(x=x)
    checks.choice("granularity", granularity, GRANULARITIES)
    if granularity != "tensor":
        checks.dimensions("x", x, range(1, 65) if granularity == "row" else 2, f"granularity={granularity!r}")
    if granularity != "tensor" and x.shape[-1] >= LONGEST_ROW:
        raise ValueError(f"x must have rows of fewer than {LONGEST_ROW} elements, got shape {tuple(x.shape)}")
    format_contract(dtype, "quantize_fp8", x.device)
    checks.choice("power_of_two", power_of_two, (False, True))
    if seed is not None:
        seed_contract(seed, x.device)


@seeded
@replayed
def quantize_fp8(x, granularity="row", *, dtype=torch.float8_e4m3fn, power_of_two=False, seed=None):
    """Codes of eight bits and the scales to decode them: `x ≈ q · scale`. Forward only.

    Args:
        x: tensor of shape (..., K), float32, float16 or bfloat16, any strides.
        granularity: what shares a scale. "tensor": all of `x`. "row": a row. "1x128" and "128x128": that many rows and
            columns of `x`, which must be a matrix; the last blocks may be smaller.
        dtype: `torch.float8_e4m3fn` or `torch.float8_e5m2`.
        power_of_two: whether scales are rounded up to powers of two.
        seed: None rounds to nearest, ties to even. An int from 0 to 2⁶³ − 1, or a 0-d int64 tensor on the device of
            `x`, rounds stochastically; the same seed gives the same codes.

    Returns:
        `(q, scale)`. `q`: contiguous, of the shape of `x`, in `dtype`. `scale`: float32, of shape () for "tensor",
        (..., 1) for "row", (M, ⌈K/128⌉) with strides (1, M) for "1x128", (⌈M/128⌉, ⌈K/128⌉) for "128x128".

    Raises:
        TypeError: `x` isn't a tensor or has another dtype; `seed` has a wrong type.
        ValueError: another granularity, dtype or power_of_two; `x` has the wrong number of dimensions, is on the wrong
            device or requires a gradient; `seed` is out of range.
        RuntimeError: `dtype` is e4m3, and the card is older than compute capability 8.9.

    Source: Micikevicius et al., "FP8 Formats for Deep Learning" (2022). Blocks: DeepSeek-AI, "DeepSeek-V3 Technical
    Report" (2024).
    """
    contract(x, granularity, dtype, power_of_two, seed)
    checks.no_gradient("quantize_fp8", x=x)
    if granularity == "tensor":
        return quantize_tensor_forward(x, dtype, power_of_two, seed)[:2]
    if granularity == "row":
        return quantize_rows_forward(x, dtype, power_of_two, seed)
    return quantize_tiles_forward(x, dtype, power_of_two, seed, each_row=granularity == "1x128")


@replayed
def quantize_fp8_delayed(x, scale, *, dtype=torch.float8_e4m3fn):
    """Codes under a scale that is known beforehand, and the largest magnitude of `x`. Forward only.

    Args:
        x: tensor of any shape, float32, float16 or bfloat16, any strides.
        scale: float32, of shape (), finite and at least 2⁻¹²⁶. Another value is an error on the CPU and with
            `ACADEMY_DEBUG=1`, else all codes are NaN. What is larger than the largest code times `scale` saturates.
        dtype: as for `quantize_fp8`.

    Returns:
        `(q, amax)`: codes of the shape of `x`, and a float32 of shape (), NaN if `x` holds one.

    Raises:
        TypeError: `x` or `scale` isn't a tensor or has another dtype.
        ValueError: `scale` has another shape or (see there) value, `dtype` is neither, a tensor is on the wrong device
            or requires a gradient.
        RuntimeError: as `quantize_fp8`.

    Source: as `quantize_fp8`; delayed scaling as in NVIDIA's Transformer Engine.
    """
    checks.tensors(x=x, scale=scale)
    checks.dtypes(x=x)
    checks.dtypes((torch.float32,), scale=scale)
    checks.shape("scale", scale, ())
    format_contract(dtype, "quantize_fp8_delayed", x.device)
    checks.no_gradient("quantize_fp8_delayed", x=x, scale=scale)
    if checks.looks_at_values() and not 2.0**-126 <= float(scale) < float("inf"):
        raise ValueError(f"scale must be finite and at least 2**-126, got {float(scale)}")
    q, _, amax = quantize_tensor_forward(x, dtype, False, scale=scale)
    return q, amax.view(torch.float32)


def dequantize_fp8(q, scale, dtype=torch.float32):
    """What codes stand for: `q · scale`. Forward only.

    Args:
        q: float8_e4m3fn or float8_e5m2, shape (..., K), any strides.
        scale: float32, any strides, in one of the shapes that `quantize_fp8` returns for such a `q`.
        dtype: of the result, float32, float16 or bfloat16.

    Returns:
        A new contiguous tensor of the shape of `q`: the product in float32, rounded once.

    Raises:
        TypeError: `q` or `scale` isn't a tensor or has another dtype. ValueError: the shape of `scale` fits no
            granularity, `dtype` is another, a tensor is on the wrong device or requires a gradient. RuntimeError: `q`
            is e4m3, and the card is older than compute capability 8.9.

    Source: as `quantize_fp8`.
    """
    checks.tensors(q=q, scale=scale)
    checks.dtypes(tuple(LARGEST), q=q)
    checks.dtypes((torch.float32,), scale=scale)
    checks.choice("dtype", dtype, checks.FLOATS)
    format_contract(q.dtype, "dequantize_fp8", q.device)
    shapes = [()] + ([(*q.shape[:-1], 1)] if q.dim() else [])
    if q.dim() == 2:
        M, K = q.shape
        shapes += [(M, triton.cdiv(K, 128)), (triton.cdiv(M, 128), triton.cdiv(K, 128))]
    if tuple(scale.shape) not in shapes:
        wanted = " or ".join(map(str, shapes))
        raise ValueError(f"scale must have shape {wanted} for q of {tuple(q.shape)}, got {tuple(scale.shape)}")
    checks.no_gradient("dequantize_fp8", scale=scale)
    return dequantize_forward(q, scale, dtype)


# ## A run small enough to watch
#
# Rows of 6: one with an outlier, one of zeros, one whose numbers are tiny, one with a power of two at its end, and one
# of equal numbers. Then powers of two, groups of 4, one scale for all, and the scale of an earlier step.
def EXAMPLE():
    x = torch.tensor(
        [[1, 17, -3, 0.5, 448, 1000], [0] * 6, [3e-30, -1e-30, 0, 2e-30, 1e-33, 0], [1, 2, 4, 8, 16, 512], [5] * 6],
        device=device.DEVICE,
    )
    e4m3 = torch.float8_e4m3fn
    q, scale = quantize_rows_forward(x, e4m3, False, BLOCK_K=4)
    quantize_rows_forward(x, e4m3, True, BLOCK_K=4)
    quantize_tiles_forward(x, e4m3, False, each_row=True, BLOCK_M=2, GROUP=4)
    quantize_tensor_forward(x, e4m3, False, BLOCK=8, num_programs=2)
    quantize_tensor_forward(x, e4m3, False, scale=torch.ones((), device=device.DEVICE), BLOCK=8, num_programs=2)
    dequantize_forward(q, scale, torch.float32, BLOCK_M=2, BLOCK_K=4)


if __name__ == "__main__":
    script.main(quantize_fp8, quantize_fp8_reference)
