r"""
# Codes of a cache

Keys and values in eight or four bits. A code times a step is the number again; with four bits the lowest value is
added, [[tag: KV-k]]. What is here is shared by the kernels that write a cache and those that read it: the step, the
nearest whole number, codes and steps from memory, and a rotation.

| `dtype` of the cache | codes | beside each row |
|---|---|---|
| `int8` | whole numbers from −127 to 127 | a step |
| `float8_e4m3fn` | floats up to 448 | a step |
| `uint8` | two whole numbers from 0 to 15 a byte, the first in the low half | a step and the lowest value |
"""

from academy.runtime import checks, device  # before anything imports triton

import torch
import triton
import triton.language as tl

from annotated_examples.common.attention import LARGEST_HEAD
from annotated_examples.common.mx import unpacked_pairs
from annotated_examples.common.paged import load_rows
from annotated_examples.common.products import multiply_add

EIGHT_BITS = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}
FORMATS = (*EIGHT_BITS, torch.uint8)


# ## A step
#
# A span divided by the number of steps in it, as IEEE divides. Rows of equal numbers have a span of 0 and get a step of
# 1, so that nothing is divided by 0. Below 2⁻¹²⁶ a step would have fewer digits. And where the span is infinite or NaN,
# the step is NaN, and so is everything that is made of it.
@triton.jit
def step_of(span, STEPS: tl.constexpr):
    step = tl.maximum(tl.div_rn(span, STEPS), 1.1754943508222875e-38)
    step = tl.where(span == 0.0, 1.0, step)
    return tl.where(span < float("inf"), step, float("nan"))


# ## The nearest whole number, ties to the even one
#
# From 2²³ on a float32 has no digits behind the point, so adding 1.5 · 2²³ rounds, and subtracting it leaves the whole
# number. `(x + 0.5).to(tl.int32)` isn't that: ties would go up, and negative numbers towards 0. A NaN becomes 0.
@triton.jit
def nearest(x):
    whole = (x + 12582912.0) - 12582912.0
    return tl.where(x == x, whole, 0.0)


# ## Codes and steps from memory
#
# A tile of codes, as numbers of `dtype`, which has all of them exactly. Codes of four bits come less 8, from −8 to 7:
# the numbers are half as large, and so is what rounding does to a sum of their products. Then 8 steps belong to the
# offset. Bytes are widened before anything is shifted.
@triton.jit
def load_codes(
    cache, hk, page, slot, mask, dtype: tl.constexpr, FOUR_BITS: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr
):
    if FOUR_BITS:
        packed = load_rows(cache, hk, page, slot, mask, D // 2, BLOCK_D // 2)
        codes = unpacked_pairs(packed).to(tl.float32) - 8.0
    else:
        codes = load_rows(cache, hk, page, slot, mask, D, BLOCK_D).to(tl.float32)
    return codes.to(dtype)


# The step of each row, and its offset: what a centred code of 0 stands for. An infinity is none that `append_` writes.
# It becomes NaN: outside of the sum it might make a score −∞, which would count for nothing and hide that it was there.
@triton.jit
def finite(x):
    return tl.where(tl.abs(x) < float("inf"), x, float("nan"))


@triton.jit
def load_steps(scale, hk, page, slot, mask, FOUR_BITS: tl.constexpr):
    ptr, stride_p, stride_s, stride_h, stride_c = scale
    at = ptr + page.to(tl.int64) * stride_p + slot.to(tl.int64) * stride_s + tl.cast(hk, tl.int64) * stride_h
    step = finite(tl.load(at, mask=mask, other=0.0))
    offset = tl.zeros_like(step)
    if FOUR_BITS:
        offset = finite(tl.load(at + stride_c, mask=mask, other=0.0)) + 8.0 * step
    return step, offset


# ## A rotation
#
# Rows times diag(signs) · H / √D, where H is Hadamard's matrix. It has ones and minus ones only: the sign in row a and
# column b is that of the parity of the bits that a and b have in common. So nothing has to be loaded for it.
@triton.jit
def hadamard(rows, columns):
    common = rows[:, None] & columns[None, :]
    common ^= common >> 4
    common ^= common >> 2
    common ^= common >> 1
    return 1.0 - 2.0 * (common & 1).to(tl.float32)


# The sum runs over 32 columns at a time: a whole matrix of 256 columns takes 256 KB in float32, more than any card has
# shared memory for. Signs, ones and minus ones are exact in any dtype, so tensor cores may multiply 16-bit rows. H is
# its own transpose, and up to the factor its own inverse; the way **back** is H first and the signs after it.
@triton.jit
def turned(
    row_ptrs, stride_d, live, signs_ptr,  # a pointer for each row; which rows there are; (D,)
    BACK: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    offs_d = tl.arange(0, BLOCK_D)
    acc = tl.zeros((row_ptrs.shape[0], BLOCK_D), tl.float32)
    for start in tl.static_range(0, BLOCK_D, 32):
        offs_k = start + tl.arange(0, 32)
        ptrs = row_ptrs[:, None] + offs_k.to(tl.int64)[None, :] * stride_d
        x = tl.load(ptrs, mask=live[:, None] & (offs_k < D)[None, :], other=0.0)
        if not BACK:
            signs = tl.load(signs_ptr + offs_k, mask=offs_k < D, other=0.0)
            x = (x.to(tl.float32) * signs[None, :]).to(x.dtype)
        acc = multiply_add(x, hadamard(offs_k, offs_d).to(x.dtype), acc, "ieee")
    acc *= D**-0.5
    if BACK:
        acc *= tl.load(signs_ptr + offs_d, mask=offs_d < D, other=0.0)[None, :]
    return acc


# Rows that are no cache: the query, before it is multiplied by rotated keys, and what is turned back afterwards.
@triton.jit
def rotate_kernel(
    x_tensor, signs_ptr, out_ptr,  # (pointer, three strides): (B, H, D); (D,); (B, H, D), contiguous
    rows, H, BACK: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    row, offs_d = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64), tl.arange(0, BLOCK_D)
    x_ptr, stride_b, stride_h, stride_d = x_tensor
    row_ptrs = x_ptr + row // H * stride_b + row % H * stride_h
    out = turned(row_ptrs, stride_d, row < rows, signs_ptr, BACK, D, BLOCK_D)
    mask = (row < rows)[:, None] & (offs_d < D)[None, :]
    tl.store(out_ptr + row[:, None] * D + offs_d[None, :], out, mask=mask)


def rotated(x, signs, back, dtype):
    """x (B, H, D), rotated or turned back, in `dtype`. signs: contiguous."""
    (B, H, D), out = x.shape, torch.empty(x.shape, dtype=dtype, device=x.device)
    BLOCK_D, grid = max(32, triton.next_power_of_2(D)), (triton.cdiv(B * H, 16),)
    rotate_kernel[grid]((x, *x.stride()), signs, out, B * H, H, BACK=back, D=D, BLOCK_M=16, BLOCK_D=BLOCK_D)
    return out


# ## In PyTorch
#
# What codes stand for, and the rotation as a matrix.
def decoded(codes, scale, granularity, dtype):
    wide = torch.promote_types(dtype, torch.float32)
    if codes.dtype != torch.uint8:
        return (codes.to(wide) * scale.to(wide)).to(dtype)
    whole = torch.stack([codes & 15, codes >> 4], dim=-1).flatten(-2)
    step, lowest = (scale[:, None] if granularity == "channel" else scale[..., None, :]).to(wide).unbind(-1)
    return (whole.to(wide) * step + lowest).to(dtype)


def rotation(signs, dtype):
    """(D, D): rows times it are rotated, rows times its transpose turned back."""
    matrix = torch.ones(1, 1, dtype=torch.float64, device=signs.device)
    while len(matrix) < len(signs):
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return (signs.double()[:, None] * matrix / len(signs) ** 0.5).to(dtype)


# ## Arguments
GRANULARITIES = ("token", "channel")


def codes_contract(function, D, granularity="token", **pair):
    """Checks a cache and its scale, which are named as the caller names them: D numbers a head."""
    (name, codes), (of_scale, scale) = pair.items()
    checks.choice("granularity", granularity, GRANULARITIES)
    checks.dtypes((torch.uint8,) if granularity == "channel" else FORMATS, **{name: codes})
    checks.dtypes((torch.float32,), **{of_scale: scale})
    four = codes.dtype == torch.uint8
    if four and D % 2:
        raise ValueError(f"{name} has two numbers a byte (uint8), so D must be even, got {D}")
    if not 1 <= D <= LARGEST_HEAD:
        raise ValueError(f"{name} must have heads of 1 to {LARGEST_HEAD} numbers, got {D}")
    checks.shape(name, codes, (*codes.shape[:-1], D // 2 if four else D), "the width of a head")
    if granularity == "channel":
        wanted, meaning = (codes.shape[0], codes.shape[2], D, 2), "pages, heads, columns, a step and a lowest value"
    else:
        wanted, meaning = (*codes.shape[:-1], 1 + four), "a step" + " and a lowest value" * four + " a row"
    checks.shape(of_scale, scale, wanted, meaning)
    if codes.dtype == torch.float8_e4m3fn:
        device.require("fp8", function, codes.device.index)


def signs_contract(signs, D):
    """Checks the signs of a rotation of D columns; None: there is none."""
    if signs is None:
        return
    checks.tensors(signs=signs)
    checks.dtypes((torch.float32,), signs=signs)
    checks.shape("signs", signs, (D,), "one for each column")
    if D & (D - 1):
        raise ValueError(f"signs need a width that is a power of two, got {D}")
    if checks.looks_at_values() and not (signs.abs() == 1).all():
        raise ValueError(f"signs must be 1 or -1, got {signs.tolist()}")
