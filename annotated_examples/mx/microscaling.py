r"""
# Microscaling: a scale for every 32 elements, and numbers of four bits

One outlier leaves the others of its group few codes. So make groups small: a scale for every 32 elements (the **MX**
formats), or for every 16 (**NVFP4**). Small groups need cheap scales. In MX a scale is a power of two, stored as one
byte of exponent, [[tag: MX-rceil]]. With it even four bits are enough for the weights of a language model: gpt-oss is
published in MXFP4.

| format | code | group | scale | bits an element |
|---|---|---|---|---|
| MXFP8 | `e4m3` or `e5m2` | 32 | `e8m0`, a power of two | 8.25 |
| MXFP4 | `e2m1` | 32 | `e8m0` | 4.25 |
| NVFP4 | `e2m1` | 16 | `e4m3`, and one float32 for the tensor | 4.5 |

[[figure: mx/blocks]]

A power of two can't put the largest element *at* the largest code, as the scales of [quantize](../fp8/quantize.py) do:
it lands up to a factor of two below. NVFP4's scales have three bits of mantissa and come closer. But `e4m3` ends at 448
and $2^{-9}$, so one float32 for the whole tensor brings them into that range, [[tag: NV-tensor]].

**What it costs.** In bfloat16 two bytes of an element are read. Written are 1.03 bytes in MXFP8 and 0.53 in MXFP4. A
group lies within a tile, so each element is read once; NVFP4 needs the largest magnitude of the tensor first, and reads
twice. In eight bits memory is the limit: 16384 rows of 8192 take [[bench: microscaling/ladder/eight bits/forward_ms]],
a copy of as many bytes [[bench: microscaling/ladder/a copy of as many bytes/forward_ms]]. In four bits arithmetic is
the limit: no card before Blackwell has an instruction that rounds to four bits, so ordinary ones do it. On Hopper the
MXFP4 kernel has about 25 instructions for each element.

**Contract.** `x` is float32, float16 or bfloat16, any strides. Groups lie along the last dimension, whose size must be
a multiple of the group's. All is defined to the bit, as in `quantize`. A group with a NaN or an infinity has the scale
NaN, and no other group is touched. (In NVFP4 all groups are, unless the scale of the tensor is passed in.) Zeros keep
their sign, but not under an NVFP4 scale of 0. Results have PyTorch's dtypes, `float4_e2m1fn_x2` and `float8_e8m0fnu`,
which are bytes: `uint8` is taken for them. Forward only.
"""

from academy.runtime import checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch
import triton
import triton.language as tl

from annotated_examples.common.fp8 import LARGEST, format_contract, magnitude_bits, rounded, to_fp8
from annotated_examples.common.mx import (
    from_fp4,
    packed_pairs,
    power_of_byte,
    shared_exponent,
    to_fp4,
    unpacked_pairs,
)
from annotated_examples.common.seeds import seed_contract, seed_tensor, seeded
from annotated_examples.fp8.quantize import amax_kernel, as_matrix

FP4, E8M0 = torch.float4_e2m1fn_x2, torch.float8_e8m0fnu
FORMATS = (torch.float8_e4m3fn, torch.float8_e5m2, FP4)
SCALINGS = ("floor", "rceil", "even")
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


# ## Reference
#
# In PyTorch, by the same rules on the same bits. Codes of four bits are found among the borders between numbers: at a
# border the even code wins.
def fp4_codes_reference(v):
    borders = ((0.25, False), (0.75, True), (1.25, False), (1.75, True), (2.5, False), (3.5, True), (5.0, False))
    size = v.abs()
    code = sum(((size >= border) if up else (size > border)).int() for border, up in borders)
    return torch.where(v.isnan(), 0, code + 8 * torch.signbit(v).int())


def pack_reference(codes):
    return (codes[..., ::2] | codes[..., 1::2] << 4).to(torch.uint8)


def fp4_reference(q):
    """The numbers that packed codes stand for: a sign, two bits of exponent, one of mantissa."""
    codes = torch.stack([q.int() & 15, q.int() >> 4], -1).flatten(-2)
    exponent, mantissa = codes >> 1 & 3, codes & 1
    size = torch.where(exponent == 0, 2 * mantissa, 2 + mantissa << exponent) / 4
    return torch.where(codes < 8, size, -size)


def exponent_reference(largest, dtype, scaling):
    """The bytes of groups whose largest magnitudes have these bits."""
    digits, exponent = {FP4: (1, 2), torch.float8_e5m2: (2, 15)}.get(dtype, (3, 8))
    mantissa = 0x400000 if dtype == FP4 else 0x600000
    rounded = largest + (1 << (22 - digits)) if scaling == "even" else largest
    byte = (rounded >> 23) - exponent + ((rounded & 0x7FFFFF) > mantissa).int() * (scaling == "rceil")
    return torch.where(largest >= 0x7F800000, 255, byte.clamp(0, 254))


# Powers of two in float64, which has all of them. (In float32 a GPU makes zero of the smallest.)
def power_reference(byte):
    return torch.where(byte == 255, float("nan"), torch.exp2(byte.double() - 127).float())


def groups_of(x, GROUP):
    """The groups, and the bits of the largest magnitude of each."""
    groups = x.float().reshape(*x.shape[:-1], x.shape[-1] // GROUP, GROUP).contiguous()
    bits = groups.view(torch.int32) & 0x7FFFFFFF
    return groups, bits.amax(-1)


def quantize_mx_reference(x, elem_dtype=torch.float8_e4m3fn, *, scaling="rceil", GROUP=32):
    groups, largest = groups_of(x, GROUP)
    byte = exponent_reference(largest, elem_dtype, scaling)
    inverse = torch.where(byte == 255, float("nan"), torch.exp2(127 - byte.double()).float())
    v = (groups * inverse[..., None]).reshape(x.shape)
    if elem_dtype == FP4:
        return pack_reference(fp4_codes_reference(v)).view(FP4), byte.to(torch.uint8).view(E8M0)
    return v.clamp(-LARGEST[elem_dtype], LARGEST[elem_dtype]).to(elem_dtype), byte.to(torch.uint8).view(E8M0)


def dequantize_mx_reference(q, scale, dtype=torch.bfloat16, *, GROUP=32):
    numbers = fp4_reference(q.view(torch.uint8)) if q.dtype in (FP4, torch.uint8) else q.float()
    return (numbers * power_reference(scale.view(torch.uint8)).repeat_interleave(GROUP, -1)).to(dtype)


def tensor_scale_reference(largest):
    """The scale of a tensor whose largest magnitude has these bits."""
    number = largest.view(torch.float32)
    scale = (number / torch.full_like(number, 6 * 448.0)).clamp(min=2.0**-117)
    return torch.where(largest == 0, 1.0, torch.where(largest >= 0x7F800000, float("nan"), scale))


def quantize_nvfp4_reference(x, *, per_tensor_scale=None, GROUP=16):
    groups, largest = groups_of(x, GROUP)
    if per_tensor_scale is None:
        per_tensor_scale = tensor_scale_reference(largest.amax() if largest.numel() else largest.sum().int())
    number = largest.view(torch.float32)
    exact = number / torch.full_like(number, 6.0) / per_tensor_scale
    exact = torch.where(largest >= 0x7F800000, float("nan"), exact.clamp(max=448.0))
    scale = exact.to(torch.float8_e4m3fn)
    v = groups * (1 / (scale.float() * per_tensor_scale))[..., None]
    codes = torch.where((scale.float() == 0)[..., None], 0, fp4_codes_reference(v))
    return pack_reference(codes.reshape(x.shape)).view(FP4), scale, per_tensor_scale


def dequantize_nvfp4_reference(q, block_scale, per_tensor_scale, dtype=torch.float32, *, GROUP=16):
    scale = block_scale.float() * per_tensor_scale
    return (fp4_reference(q.view(torch.uint8)) * scale.repeat_interleave(GROUP, -1)).to(dtype)


# ## A power of two for each group
#
# One program takes a tile of `BLOCK_M` rows and `BLOCK_K` columns, which holds whole groups. To find the largest
# magnitude of each, the tile gets a third dimension, with a group along it.
#
# In the recorded run groups have 8 elements. The first one is 0.5, −1, 1.5, 2, 2.5, 3, 5 and 7, to be stored in `e2m1`.
@triton.jit
def quantize_mx_kernel(
    x_ptr, q_ptr,  # (M, K); (M, K), in four bits (M, K // 2), contiguous
    scale_ptr, seed_ptr,  # (M, K // GROUP), contiguous, bytes; one number, or None
    M, K, stride_xm, stride_xk, SCALING: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    FORMAT: tl.constexpr = q_ptr.dtype.element_ty
    MANTISSA: tl.constexpr = 1 if FORMAT == tl.uint8 else 3 if FORMAT == tl.float8e4nv else 2
    EMAX: tl.constexpr = 2 if FORMAT == tl.uint8 else 8 if FORMAT == tl.float8e4nv else 15
    tile_m = tl.program_id(0) // tl.cdiv(K, BLOCK_K)
    tile_k = tl.program_id(0) % tl.cdiv(K, BLOCK_K)
    offs_m = tile_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_k = tile_k.to(tl.int64) * BLOCK_K + tl.arange(0, BLOCK_K)
    x_ptrs = x_ptr + offs_m[:, None] * stride_xm + offs_k[None, :] * stride_xk
    x = tl.load(x_ptrs, mask=(offs_m < M)[:, None] & (offs_k < K)[None, :], other=0.0).to(tl.float32)

    # The largest of the first group is 7, which is 1.75 times four. Four would go to the largest exponent of `e2m1`
    # with a scale of 1. But 1.75 is more than the 1.5 of the largest code, 6. So `"rceil"` takes 2, and one more on the
    # byte: `pid=0: byte[0][0] = 128`. With `"floor"` it is `launch=1, pid=0: byte[0][0] = 127`.
    groups = tl.reshape(x, (BLOCK_M, BLOCK_K // GROUP, GROUP))
    byte = shared_exponent(tl.max(magnitude_bits(groups), 2), MANTISSA, EMAX, SCALING)
    offs_g = tile_k.to(tl.int64) * (BLOCK_K // GROUP) + tl.arange(0, BLOCK_K // GROUP)
    mask = (offs_m < M)[:, None] & (offs_g < K // GROUP)[None, :]
    tl.store(scale_ptr + offs_m[:, None] * (K // GROUP) + offs_g[None, :], byte.to(tl.uint8), mask=mask)

    # The reciprocal of a power of two has the opposite exponent, and multiplying by it rounds nothing, [[tag: MX-q]].
    # Halved, the group is 0.25, −0.5, 0.75, 1, 1.25, 1.5, 2.5 and 3.5, and five of these lie halfway between two codes.
    # Of 0.25 nothing is left, 3.5 becomes 4, whose code is 6:
    # `pid=0: code[0] = [0, 9, 2, 2, 2, 3, 4, 6, 6, 6, 6, 6, 6, 6, 6, 6]`. With `"floor"` 7 saturates at 6.
    inverse = tl.where(byte == 255, float("nan"), ((254 - byte) << 23).to(tl.float32, bitcast=True))
    v = tl.reshape(groups * inverse[:, :, None], (BLOCK_M, BLOCK_K))
    index = offs_m[:, None] * K + offs_k[None, :]
    if FORMAT == tl.uint8:
        code = to_fp4(v, seed_ptr, index)
        offs_q = tile_k.to(tl.int64) * (BLOCK_K // 2) + tl.arange(0, BLOCK_K // 2)
        mask = (offs_m < M)[:, None] & (offs_q < K // 2)[None, :]
        tl.store(q_ptr + offs_m[:, None] * (K // 2) + offs_q[None, :], packed_pairs(code, BLOCK_M, BLOCK_K), mask=mask)
    else:
        q = to_fp8(v, seed_ptr, index, FORMAT)
        tl.store(q_ptr + index, q, mask=(offs_m < M)[:, None] & (offs_k < K)[None, :])


# ## Two scales: NVFP4
#
# The largest magnitude of the tensor is found by the kernel of [quantize](../fp8/quantize.py), and its scale is
# [[tag: NV-tensor]]: then the largest of all *group scales* is 448. It is never smaller than 2⁻¹¹⁷: times the smallest
# `e4m3` that is still a normal number, and has a finite reciprocal.
@triton.jit
def tensor_scale(bits):
    scale = tl.maximum(tl.div_rn(bits.to(tl.float32, bitcast=True), 2688.0), 6.018531076210112e-36)
    scale = tl.where(bits == 0, 1.0, scale)
    return tl.where(bits >= 0x7F800000, float("nan"), scale)


# A group's scale is rounded to `e4m3`, and the elements are divided by what it was rounded *to*, [[tag: NV-q]]: so
# rounding the scale only moves the largest element away from 6. Moved above 6 it saturates.
@triton.jit
def quantize_nvfp4_kernel(
    x_ptr, q_ptr, scale_ptr,  # (M, K); (M, K // 2), bytes; (M, K // GROUP), e4m3; contiguous but the first
    tensor_scale_ptr, amax_ptr, seed_ptr,  # one number each: float32; int32, or None if the scale is given; or None
    M, K, stride_xm, stride_xk, GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    tile_m = tl.program_id(0) // tl.cdiv(K, BLOCK_K)
    tile_k = tl.program_id(0) % tl.cdiv(K, BLOCK_K)
    offs_m = tile_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_k = tile_k.to(tl.int64) * BLOCK_K + tl.arange(0, BLOCK_K)
    x_ptrs = x_ptr + offs_m[:, None] * stride_xm + offs_k[None, :] * stride_xk
    x = tl.load(x_ptrs, mask=(offs_m < M)[:, None] & (offs_k < K)[None, :], other=0.0).to(tl.float32)
    if amax_ptr is not None:
        per_tensor = tensor_scale(tl.load(amax_ptr))
        if tl.program_id(0) == 0:
            tl.store(tensor_scale_ptr, per_tensor)
    else:
        per_tensor = tl.load(tensor_scale_ptr)

    # [[tag: NV-scale]]. 7 is the largest of the example, so its group's scale is the largest there is,
    # `pid=0: scale[0][0] = 448`. The conversion to `e4m3` saturates, so infinity would look like a number.
    groups = tl.reshape(x, (BLOCK_M, BLOCK_K // GROUP, GROUP))
    bits = tl.max(magnitude_bits(groups), 2)
    exact = tl.div_rn(tl.div_rn(bits.to(tl.float32, bitcast=True), 6.0), per_tensor)
    scale = rounded(tl.where(bits >= 0x7F800000, float("nan"), exact), tl.float8e4nv)
    offs_g = tile_k.to(tl.int64) * (BLOCK_K // GROUP) + tl.arange(0, BLOCK_K // GROUP)
    mask = (offs_m < M)[:, None] & (offs_g < K // GROUP)[None, :]
    tl.store(scale_ptr + offs_m[:, None] * (K // GROUP) + offs_g[None, :], scale, mask=mask)

    # A group that is small beside the tensor's largest has the scale 0. Then all its codes are 0, without a sign.
    decoded = scale.to(tl.float32)
    inverse = tl.div_rn(1.0, decoded * per_tensor)
    v = tl.where((decoded == 0)[:, :, None], 0.0, groups * inverse[:, :, None])
    code = to_fp4(tl.reshape(v, (BLOCK_M, BLOCK_K)), seed_ptr, offs_m[:, None] * K + offs_k[None, :])
    offs_q = tile_k.to(tl.int64) * (BLOCK_K // 2) + tl.arange(0, BLOCK_K // 2)
    mask = (offs_m < M)[:, None] & (offs_q < K // 2)[None, :]
    tl.store(q_ptr + offs_m[:, None] * (K // 2) + offs_q[None, :], packed_pairs(code, BLOCK_M, BLOCK_K), mask=mask)


# ## And back
#
# One kernel for all: [[tag: MX-decode]] and [[tag: NV-decode]] differ in how a scale is read. A code times a power of
# two rounds nothing, in bfloat16 either, but at the ends: 6 · 2¹²⁷ is infinite, and very small numbers lose digits.
@triton.jit
def dequantize_kernel(
    q_ptr, scale_ptr, tensor_scale_ptr,  # (M, K) or (M, K // 2); (M, K // GROUP); one number, or None
    out_ptr, M, K, stride_qm, stride_qk, stride_sm, stride_sk,  # out_ptr: (M, K), contiguous
    GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    PACKED: tl.constexpr = 2 if q_ptr.dtype.element_ty == tl.uint8 else 1
    tile_m = tl.program_id(0) // tl.cdiv(K, BLOCK_K)
    tile_k = (tl.program_id(0) % tl.cdiv(K, BLOCK_K)).to(tl.int64)
    offs_m = tile_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_q = tile_k * (BLOCK_K // PACKED) + tl.arange(0, BLOCK_K // PACKED)
    offs_g = tile_k * (BLOCK_K // GROUP) + tl.arange(0, BLOCK_K // GROUP)
    mask = (offs_m < M)[:, None] & (offs_q < K // PACKED)[None, :]
    q = tl.load(q_ptr + offs_m[:, None] * stride_qm + offs_q[None, :] * stride_qk, mask=mask, other=0.0)
    numbers = from_fp4(unpacked_pairs(q)) if PACKED == 2 else q.to(tl.float32)

    # Behind the last group nothing is read: a byte there might be 255.
    mask = (offs_m < M)[:, None] & (offs_g < K // GROUP)[None, :]
    scale = tl.load(scale_ptr + offs_m[:, None] * stride_sm + offs_g[None, :] * stride_sk, mask=mask, other=0.0)
    if tensor_scale_ptr is None:
        scale = power_of_byte(scale)
    else:
        scale = scale.to(tl.float32) * tl.load(tensor_scale_ptr)
    # `pid=0: out[0] = [0, -1, 2, 2, 2, 3, 4, 8, 2, 2, 2, 2, 2, 2, 2, 2]` is left of the first row.
    out = tl.reshape(tl.reshape(numbers, (BLOCK_M, BLOCK_K // GROUP, GROUP)) * scale[:, :, None], (BLOCK_M, BLOCK_K))
    offs_k = tile_k * BLOCK_K + tl.arange(0, BLOCK_K)
    tl.store(out_ptr + offs_m[:, None] * K + offs_k[None, :], out, mask=(offs_m < M)[:, None] & (offs_k < K)[None, :])


# ## Launchers
#
# Kernels see bytes: two of PyTorch's dtypes have no name in Triton.
def as_bytes(x):
    return x.view(torch.uint8) if x.dtype in (FP4, E8M0) else x


# Long pieces of a few rows: more of what a program reads lies side by side.
def tile(K, GROUP, BLOCK_M, BLOCK_K):
    checks.power_of_two(GROUP=GROUP, BLOCK_M=BLOCK_M, BLOCK_K=BLOCK_K)
    BLOCK_K = max(BLOCK_K or min(512, triton.next_power_of_2(max(K, 1))), GROUP)
    return BLOCK_M or 2048 // BLOCK_K, BLOCK_K


@replayed
def quantize_mx_forward(x, elem_dtype, scaling, seed=None, *, GROUP=32, BLOCK_M=None, BLOCK_K=None):
    """`(q, scale)`; `q` in bytes for four bits, `scale` in bytes."""
    rows, on = as_matrix(x), x.device
    M, K = rows.shape
    BLOCK_M, BLOCK_K = tile(K, GROUP, BLOCK_M, BLOCK_K)
    width, stored = (K // 2, torch.uint8) if elem_dtype == FP4 else (K, elem_dtype)
    q = torch.empty((*x.shape[:-1], width), dtype=stored, device=on)
    scale = torch.empty((*x.shape[:-1], K // GROUP), dtype=torch.uint8, device=on)
    if x.numel() > 0:
        seed = seed_tensor(seed, on)
        quantize_mx_kernel[(triton.cdiv(M, BLOCK_M) * triton.cdiv(K, BLOCK_K),)](
            rows, q, scale, seed, M, K, *rows.stride(),
            SCALING=scaling, GROUP=GROUP, BLOCK_M=BLOCK_M, BLOCK_K=BLOCK_K, num_warps=2 if elem_dtype == FP4 else 4,
        )  # fmt: skip
    return q, scale


@replayed
def quantize_nvfp4_forward(
    x, per_tensor_scale=None, seed=None, *, GROUP=16, BLOCK_M=None, BLOCK_K=None, num_programs=1056
):
    """`(q, scale, per_tensor_scale)`; `q` in bytes."""
    rows, on, amax = as_matrix(x), x.device, None
    M, K = rows.shape
    BLOCK_M, BLOCK_K = tile(K, GROUP, BLOCK_M, BLOCK_K)
    q = torch.empty((*x.shape[:-1], K // 2), dtype=torch.uint8, device=on)
    scale = torch.empty((*x.shape[:-1], K // GROUP), dtype=torch.float8_e4m3fn, device=on)
    if x.numel() == 0:
        return q, scale, torch.ones((), device=on) if per_tensor_scale is None else per_tensor_scale
    if per_tensor_scale is None:
        per_tensor_scale, amax = torch.empty((), device=on), torch.zeros((), dtype=torch.int32, device=on)
        grid = (min(triton.cdiv(x.numel(), 4096), num_programs),)
        amax_kernel[grid](x.contiguous(), amax, x.numel(), BLOCK=4096, num_warps=8)
    seed = seed_tensor(seed, on)
    quantize_nvfp4_kernel[(triton.cdiv(M, BLOCK_M) * triton.cdiv(K, BLOCK_K),)](
        rows, q, scale, per_tensor_scale, amax, seed, M, K, *rows.stride(),
        GROUP=GROUP, BLOCK_M=BLOCK_M, BLOCK_K=BLOCK_K, num_warps=2,
    )  # fmt: skip
    return q, scale, per_tensor_scale


@replayed
def dequantize_forward(q, scale, per_tensor_scale, dtype, *, GROUP=32, BLOCK_M=16, BLOCK_K=128):
    checks.power_of_two(GROUP=GROUP, BLOCK_M=BLOCK_M, BLOCK_K=BLOCK_K)
    codes, scales = as_matrix(as_bytes(q)), as_matrix(as_bytes(scale))
    K, BLOCK_K = scales.shape[1] * GROUP, max(BLOCK_K, GROUP)
    out = torch.empty((*q.shape[:-1], K), dtype=dtype, device=q.device)
    if out.numel() > 0:
        dequantize_kernel[(triton.cdiv(len(codes), BLOCK_M) * triton.cdiv(K, BLOCK_K),)](
            codes, scales, per_tensor_scale, out, len(codes), K, *codes.stride(), *scales.stride(),
            GROUP=GROUP, BLOCK_M=BLOCK_M, BLOCK_K=BLOCK_K,
        )  # fmt: skip
    return out


# ## The public functions
def contract(function, x, GROUP, seed):
    """Raises on bad arguments."""
    checks.tensors(x=x)
    checks.dtypes(x=x)
    checks.dimensions("x", x, range(1, 65))
    if x.shape[-1] % GROUP or x.shape[-1] >= 2**31 - 2**14:
        wanted = f"have a multiple of {GROUP} columns, below 2**31 - 2**14"
        raise ValueError(f"x must {wanted}, got shape {tuple(x.shape)}")
    if seed is not None:
        seed_contract(seed, x.device)
    checks.no_gradient(function, x=x)


def codes_contract(function, q, scale, name, scale_dtypes, GROUP):
    """Raises on bad codes or scales."""
    checks.tensors(q=q, **{name: scale})
    checks.dtypes((*FORMATS, torch.uint8) if GROUP == 32 else (FP4, torch.uint8), q=q)
    checks.dtypes(scale_dtypes, **{name: scale})
    checks.dimensions("q", q, range(1, 65))
    if q.dtype in LARGEST:
        format_contract(q.dtype, function, q.device)
    K = q.shape[-1] * (1 if q.dtype in LARGEST else 2)
    if K % GROUP:
        raise ValueError(f"q must stand for a multiple of {GROUP} columns, got shape {tuple(q.shape)}")
    checks.shape(name, scale, (*q.shape[:-1], K // GROUP), f"one for each {GROUP} columns")


def tensor_scale_contract(function, scale, on):
    checks.tensors(per_tensor_scale=scale)
    checks.dtypes((torch.float32,), per_tensor_scale=scale)
    checks.shape("per_tensor_scale", scale, ())
    checks.no_gradient(function, per_tensor_scale=scale)


@seeded
@replayed
def quantize_mx(x, elem_dtype=torch.float8_e4m3fn, *, scaling="rceil", seed=None):
    """Codes of eight or four bits, and a power of two for every 32 of them: MXFP8 and MXFP4. Forward only.

    Args:
        x: tensor of shape (..., K), float32, float16 or bfloat16, any strides; K a multiple of 32.
        elem_dtype: of the codes: `torch.float8_e4m3fn`, `torch.float8_e5m2` or `torch.float4_e2m1fn_x2`.
        scaling: which power of two. "rceil": the smallest under which nothing saturates. "floor": as the standard has
            it; the largest of a group may saturate. "even": the largest is rounded to the format's digits first.
        seed: None rounds to nearest, ties to even. An int from 0 to 2⁶³ − 1, or a 0-d int64 tensor on the device of
            `x`, rounds stochastically; the same seed gives the same codes.

    Returns:
        `(q, scale)`, contiguous. `q`: of the shape of `x`; in four bits (..., K/2), the first of two in the low half of
        a byte. `scale`: `torch.float8_e8m0fnu`, (..., K/32).

    Raises:
        TypeError: `x` isn't a tensor or has another dtype; `seed` has a wrong type.
        ValueError: another elem_dtype or scaling; K is no multiple of 32; `x` is on the wrong device or requires a
            gradient; `seed` is out of range.
        RuntimeError: `elem_dtype` is e4m3, and the card is older than compute capability 8.9.

    Source: Open Compute Project, "OCP Microscaling Formats (MX) Specification" (2023); "rceil": NVIDIA's Transformer
    Engine; names as in torchao.
    """
    checks.choice("elem_dtype", elem_dtype, FORMATS)
    checks.choice("scaling", scaling, SCALINGS)
    contract("quantize_mx", x, 32, seed)
    if elem_dtype != FP4:
        format_contract(elem_dtype, "quantize_mx", x.device)
    q, scale = quantize_mx_forward(x, elem_dtype, scaling, seed)
    return q.view(elem_dtype), scale.view(E8M0)


def dequantize_mx(q, scale, dtype=torch.bfloat16):
    """What codes under powers of two stand for. Forward only.

    Args:
        q: float8_e4m3fn, float8_e5m2, or float4_e2m1fn_x2 (or uint8, which is taken for it), any strides.
        scale: float8_e8m0fnu (or uint8), one for each 32 numbers along the last dimension, any strides.
        dtype: of the result, float32, float16 or bfloat16.

    Returns:
        A new contiguous tensor of shape (..., K): the product in float32, rounded once.

    Raises:
        TypeError: `q` or `scale` isn't a tensor or has another dtype. ValueError: the shape of `scale` doesn't fit,
            `dtype` is another, a tensor is on the wrong device. RuntimeError: `q` is e4m3, and the card is older than
            compute capability 8.9.

    Source: as `quantize_mx`.
    """
    codes_contract("dequantize_mx", q, scale, "scale", (E8M0, torch.uint8), 32)
    checks.choice("dtype", dtype, checks.FLOATS)
    return dequantize_forward(q, scale, None, dtype)


@seeded
@replayed
def quantize_nvfp4(x, *, per_tensor_scale=None, seed=None):
    """Codes of four bits, a scale in e4m3 for every 16 of them, and one in float32 for the tensor. Forward only.

    Args:
        x: tensor of shape (..., K), float32, float16 or bfloat16, any strides; K a multiple of 16.
        per_tensor_scale: None takes the largest magnitude over 2688. Or float32 of shape (), finite and at least 2⁻¹¹⁷:
            what is larger than 2688 times it saturates. Another value is an error on the CPU and with
            `ACADEMY_DEBUG=1`.
        seed: as for `quantize_mx`.

    Returns:
        `(q, block_scale, per_tensor_scale)`: float4_e2m1fn_x2 (..., K/2), float8_e4m3fn (..., K/16), float32 ().

    Raises:
        TypeError: `x` or `per_tensor_scale` isn't a tensor or has another dtype; `seed` has a wrong type.
        ValueError: K is no multiple of 16; `per_tensor_scale` has another shape or (see there) value; a tensor is on
            the wrong device or requires a gradient; `seed` is out of range.
        RuntimeError: the card is older than compute capability 8.9.

    Source: NVIDIA, "Introducing NVFP4 for Efficient and Accurate Low-Precision Inference" (2025); Transformer Engine.
    """
    contract("quantize_nvfp4", x, 16, seed)
    format_contract(torch.float8_e4m3fn, "quantize_nvfp4", x.device)
    if per_tensor_scale is not None:
        tensor_scale_contract("quantize_nvfp4", per_tensor_scale, x.device)
        if checks.looks_at_values() and not 2.0**-117 <= float(per_tensor_scale) < float("inf"):
            number = float(per_tensor_scale)
            raise ValueError(f"per_tensor_scale must be finite and at least 2**-117, got {number}")
    q, scale, per_tensor_scale = quantize_nvfp4_forward(x, per_tensor_scale, seed)
    return q.view(FP4), scale, per_tensor_scale


def dequantize_nvfp4(q, block_scale, per_tensor_scale, dtype=torch.float32):
    """What codes of four bits under two scales stand for. Forward only.

    Args:
        q: float4_e2m1fn_x2 (or uint8, which is taken for it), (..., K/2), any strides.
        block_scale: float8_e4m3fn, (..., K/16), any strides.
        per_tensor_scale: float32, of shape ().
        dtype: of the result, float32, float16 or bfloat16.

    Returns:
        A new contiguous tensor of shape (..., K). The two scales are multiplied in float32, then the code.

    Raises:
        TypeError: an argument isn't a tensor or has another dtype. ValueError: the shape of a scale doesn't fit,
            `dtype` is another, a tensor is on the wrong device or requires a gradient. RuntimeError: the card is older
            than compute capability 8.9.

    Source: as `quantize_nvfp4`.
    """
    codes_contract("dequantize_nvfp4", q, block_scale, "block_scale", (torch.float8_e4m3fn,), 16)
    format_contract(torch.float8_e4m3fn, "dequantize_nvfp4", q.device)
    tensor_scale_contract("dequantize_nvfp4", per_tensor_scale, q.device)
    checks.choice("dtype", dtype, checks.FLOATS)
    return dequantize_forward(q, block_scale, per_tensor_scale, dtype, GROUP=16)


# ## A run small enough to watch
#
# Two rows of two groups of 8: one whose largest saturates under "floor", one of equal numbers, one of zeros, one with a
# NaN. In `e2m1` under "rceil" and "floor", in `e4m3`, and in NVFP4 without the NaN; then back.
def EXAMPLE():
    x = torch.tensor([[0.5, -1, 1.5, 2, 2.5, 3, 5, 7] + [2] * 8, [0] * 8 + [1, 2, float("nan"), 4, 5, 6, 7, 8]])
    x, tiles = x.to(device.DEVICE), dict(GROUP=8, BLOCK_M=2, BLOCK_K=16)
    q, scale = quantize_mx_forward(x, FP4, "rceil", **tiles)
    quantize_mx_forward(x, FP4, "floor", **tiles)
    quantize_mx_forward(x, torch.float8_e4m3fn, "rceil", **tiles)
    quantize_nvfp4_forward(x[:1], **tiles)
    dequantize_forward(q[:1], scale[:1], None, torch.float32, **tiles)


if __name__ == "__main__":
    script.main(quantize_mx, quantize_mx_reference)
