r"""
# Blocks that share an exponent, and numbers of four bits

What the kernels for microscaling formats share: the exponent of a block as one byte, and `e2m1`, whose sixteen codes
stand for 0, 0.5, 1, 1.5, 2, 3, 4 and 6 and their negatives. Like [eight-bit floats](fp8.py) all of it is decided on the
bits of a float32. PyTorch's dtypes for both, `float8_e8m0fnu` and `float4_e2m1fn_x2`, have nearly no operations and no
name in Triton, so kernels get the same memory as `uint8`.
"""

from academy.runtime import checks  # noqa: F401  before anything imports triton

import triton
import triton.language as tl

from annotated_examples.common.fp8 import stochastic


# A block's exponent is stored as a byte, 127 larger: 0 is 2⁻¹²⁷, 254 is 2¹²⁷, and 255 is NaN. `bits` are those of the
# block's largest magnitude. Its own exponent stands in them. Less that of the format's largest code, `EMAX`, it is the
# exponent under which the largest magnitude lands next to the largest code. Next to it on which side? Three answers are
# in use:
#
# - `"floor"` leaves it at that, [[tag: MX-floor]]. A largest magnitude with a mantissa beyond the largest code's (1.75,
#   in e2m1 1.5) saturates then.
# - `"rceil"` adds one in that case, [[tag: MX-rceil]]: nothing saturates. That is [[tag: F8-pow2]] again.
# - `"even"` rounds the largest magnitude to the format's digits first. It may round up to the next power of two, and
#   then the exponent is one larger. Others saturate: in `e4m3`, which has no 1.875, at up to 10% less.
#
# A block of zeros gets byte 0. With a NaN or an infinity in it the byte is 255.
@triton.jit
def shared_exponent(bits, MANTISSA: tl.constexpr, EMAX: tl.constexpr, SCALING: tl.constexpr):
    LARGEST: tl.constexpr = 0x400000 if MANTISSA == 1 else 0x600000  # the mantissa of the largest code, in a float32
    rounded = bits + (1 << (22 - MANTISSA)) if SCALING == "even" else bits
    byte = (rounded >> 23) - EMAX
    if SCALING == "rceil":
        byte += ((rounded & 0x7FFFFF) > LARGEST).to(tl.int32)
    byte = tl.minimum(tl.maximum(byte, 0), 254)
    return tl.where(bits >= 0x7F800000, 255, byte)


# What a byte stands for. Moved to where a float32 has its exponent it is the power of two itself. Byte 0 is below the
# smallest normal float32, where only the mantissa is left: `0x00400000`.
@triton.jit
def power_of_byte(byte):
    bits = tl.maximum(byte.to(tl.int32) << 23, 0x00400000)
    return tl.where(byte == 255, float("nan"), bits.to(tl.float32, bitcast=True))


# A float32 becomes one of sixteen codes: the nearest, ties to the even one, so a number exactly between two goes down
# at 0.25, up at 0.75, and so on. What is larger than 6 becomes 6. There is no NaN, so NaN becomes 0. Bit 3 is the sign.
#
# An addition rounds. In float32, numbers next to 2²² are half a one apart, so of 2²² + 1.75 only a whole number of
# halves is left, and how many stands in the lowest bits: 4, the even one of 3 and 4. From 2 on codes are twice as far
# apart, and from 4 on four times. So 2²² is multiplied by the power of two below the number, if that is more than one.
# The exponent of the sum, less that of 2²², says which power it was, and with each one codes begin two further up.
@triton.jit
def to_fp4(v, seed_ptr, index):  # seed: one number, or None
    if seed_ptr is not None:
        v = stochastic(v, tl.load(seed_ptr), index, 1, 0)
    size = tl.abs(v)
    power = tl.maximum(size.to(tl.int32, bitcast=True) & 0x7F800000, 0x3F800000).to(tl.float32, bitcast=True)
    bits = (size + power * 4194304.0).to(tl.int32, bitcast=True)
    code = tl.minimum((bits >> 22) - 298 + (bits & 7), 7)
    sign = (v.to(tl.int32, bitcast=True) >> 28) & 8
    return tl.where(v != v, 0, code | sign)


# And back. Bits 1 and 2 are the exponent, bit 0 the mantissa. Counted in halves, codes are whole numbers: 0, 1, and
# from there on 2 or 3, shifted by the exponent less one.
@triton.jit
def from_fp4(code):
    exponent, mantissa = (code >> 1) & 3, code & 1
    halves = tl.where(exponent == 0, mantissa, (2 + mantissa) << tl.maximum(exponent - 1, 0))
    bits = (halves.to(tl.float32) * 0.5).to(tl.int32, bitcast=True) | ((code & 8) << 28)
    return bits.to(tl.float32, bitcast=True)


# Two codes share a byte, the first in the low half. Shifts of a `uint8` stay in eight bits: widen first.
@triton.jit
def packed_pairs(code, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    low, high = tl.split(tl.reshape(code, (ROWS, COLUMNS // 2, 2)))
    return (low | (high << 4)).to(tl.uint8)


# Back again, `tl.interleave` makes one block of two, whose elements it takes in turn: low half, high half, low half, …
@triton.jit
def unpacked_pairs(packed):
    packed = packed.to(tl.int32)
    return tl.interleave(packed & 15, packed >> 4)
