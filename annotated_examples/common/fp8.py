r"""
# Eight-bit floats: one scale, one rounding

What every kernel does that writes eight-bit floats: find the largest magnitude of a group, turn it into a scale, and
round. There are two formats. `float8_e4m3fn` has four bits of exponent and three of mantissa, and ends at 448.
`float8_e5m2` has five and two, and ends at 57344. Between two powers of two, bfloat16 has 128 numbers, the first format
8 and the second 4: they lie 16 and 32 times farther apart. So where the numbers lie decides what survives.

Decisions are made on the *bits* of a float32. Without its sign bit, a float32 read as an integer keeps its order: a
larger number has larger bits, infinity has larger ones than any number, and NaN larger ones still. An integer maximum
therefore loses nothing, and gives the same in any order.
"""

from academy.runtime import checks, device  # before anything imports triton

import torch
import triton
import triton.language as tl
from triton.language.target_info import cuda_capability_geq

# The two formats, and their largest numbers. AMD's variants (`fnuz`) have another bias, and their `e4m3` ends at 240:
# they aren't taken for these.
LARGEST = {torch.float8_e4m3fn: 448.0, torch.float8_e5m2: 57344.0}


# `dtype` is one of the two formats. Cards before Ada convert to the second only.
def format_contract(dtype, function, on):
    checks.choice("dtype", dtype, tuple(LARGEST))
    if dtype == torch.float8_e4m3fn:
        device.require("fp8", function, on.index)


# How exact is a sum of products of codes, relative to itself? On Hopper the accumulator keeps 13 bits after the point
# and cuts off the rest; more can't be expected of a result. SageAttention2 (arXiv 2411.10958) found the same on Ada.
# This function counts Ada as float32 all the same: nothing here has run on such a card, and a comparison there would
# fail and not pass by mistake. Of the B200, 25 bits are reported (DeepGEMM's issue 176).
def eps_of_sums():
    return device.eps_of_eight_bit_sums()


# A magnitude as an integer. `tl.max(tl.abs(x))` would do for ordinary numbers, but a floating-point maximum drops a
# NaN, and then a group with a NaN in it gets a scale as if nothing had happened.
@triton.jit
def magnitude_bits(x):
    return x.to(tl.int32, bitcast=True) & 0x7FFFFFFF


# The **scale** of a group is what its codes are multiplied by to get the numbers back: `x ≈ code · scale`. It puts the
# group's largest magnitude, `bits`, at the largest code, [[tag: F8-scale]].
#
# - `tl.div_rn` divides as IEEE says. A plain `/` compiles to an approximation on a GPU, and every second scale would be
#   off by its last bit.
# - A group of zeros would divide zero by zero later on: its scale is 1.
# - With a NaN or an infinity in the group, nothing sensible can be stored: its scale is NaN, and so is all of it.
# - A scale below 2⁻¹²⁶ would have fewer digits, and its reciprocal might be infinite.
#
# A **power of two** for a scale costs up to one bit of range, and multiplying by it rounds nothing. [[tag: F8-pow2]] is
# a logarithm rounded up, and `tl.log2` isn't exact next to a power of two. But the exponent can be read from the bits:
# that of the largest magnitude less that of the largest code, and one more if the mantissa is beyond the code's. In
# both formats the largest code has the mantissa 1.75, which is `0x600000`.
@triton.jit
def scale_of(bits, E4M3: tl.constexpr, POWER_OF_TWO: tl.constexpr):
    if POWER_OF_TWO:
        exponent = (bits >> 23) - 127 - (8 if E4M3 else 15)
        exponent += ((bits & 0x7FFFFF) > 0x600000).to(tl.int32)
        scale = ((tl.maximum(exponent, -126) + 127) << 23).to(tl.float32, bitcast=True)
    else:
        scale = tl.div_rn(bits.to(tl.float32, bitcast=True), 448.0 if E4M3 else 57344.0)
        scale = tl.maximum(scale, 1.1754943508222875e-38)
    scale = tl.where(bits == 0, 1.0, scale)
    return tl.where(bits >= 0x7F800000, float("nan"), scale)


# Rounding to nearest makes the same mistake each time: a gradient a hundred times smaller than a step never moves a
# weight. **Stochastic rounding** goes up with the probability that is the distance from the code below, in steps, so
# that the average is right, [[tag: F8-sr]]. Add a random number of as many bits as will be cut off, then cut them off:
# a carry is the step up. 18.5 is 1.15625 · 2⁴, and `e4m3` keeps 1.125 · 2⁴ = 18. A quarter of a step is cut off, so the
# largest quarter of all random numbers carries.
#
# Below the smallest normal number steps no longer shrink. There the number is counted in steps, the fraction decides,
# and `tl.floor` rounds down. Steps are powers of two: multiplying by their reciprocals is exact, and `/` need not be.
# A code that is exact has nothing to cut off and stays, and so does infinity. A carry from the largest code leads
# beyond it, and saturates later. (Rounded to bfloat16 like this, the largest float32 numbers may become infinite.)
#
# `tl.philox` makes four random words from a seed and a counter of four words. The counter is the element's index, so
# neither block size nor layout changes the result. Three of the words aren't used. NaN stays as it is: with its
# mantissa cut off to zero it would be infinity, and a carry could run into the sign.
@triton.jit
def stochastic(v, seed, index, MANTISSA: tl.constexpr, LOWEST: tl.constexpr):
    CUT: tl.constexpr = 23 - MANTISSA  # bits of a float32 mantissa that the format lacks
    STEPS: tl.constexpr = 2.0 ** (MANTISSA - LOWEST)  # in one, below the smallest normal number, 2 ** LOWEST
    low, high = index.to(tl.uint32), (index >> 32).to(tl.uint32)
    none = tl.zeros_like(low)
    word, _, _, _ = tl.philox(seed, low, high, none, none)
    random = (word >> (32 - CUT)).to(tl.int32)
    bits = magnitude_bits(v)
    normal = ((bits + random) >> CUT << CUT).to(tl.float32, bitcast=True)
    count = tl.floor(bits.to(tl.float32, bitcast=True) * STEPS + random.to(tl.float32) * (1.0 / (1 << CUT)))
    magnitude = tl.where(bits < ((127 + LOWEST) << 23), count * (1.0 / STEPS), normal)
    sign = v.to(tl.int32, bitcast=True) & -0x80000000
    return tl.where(v != v, v, (magnitude.to(tl.int32, bitcast=True) | sign).to(tl.float32, bitcast=True))


# A float32 becomes a code, [[tag: F8-q]]: the nearest one, ties to the one with an even last bit. The conversion
# *saturates*: whatever lies beyond the largest code becomes that code, infinities too. (PyTorch's own conversion makes
# some of these NaN or infinite, depending on version and device, so a reference has to clamp first.)
#
# From Hopper on Triton uses an instruction for it. On older cards it goes through float16, which rounds twice (one code
# of `e4m3` in 256 is another, of `e5m2` one in 512), or, before Ada, cuts off what is too much: ties go up, NaN becomes
# −0, and 70000 becomes infinite. So there it is done by hand, and all cards agree.
#
# By hand: what will be cut off is rounded by adding just under half a step, so that more than half carries. A tie
# should carry only where that makes the last bit even: so that bit is added, too. Then the rest is cut off, and the
# exponent gets the format's bias. Below the smallest normal number the addition itself rounds: next to $2^{LOWEST +
# CUT}$, the last bit of a float32 is one step of the format.
@triton.jit
def rounded_by_hand(v, FP8: tl.constexpr):
    MANTISSA: tl.constexpr = 3 if FP8 == tl.float8e4nv else 2
    LOWEST: tl.constexpr = -6 if FP8 == tl.float8e4nv else -14  # exponent of the smallest normal number
    CUT: tl.constexpr = 23 - MANTISSA
    bits = magnitude_bits(v)
    normal = (bits + ((1 << (CUT - 1)) - 1) + ((bits >> CUT) & 1)) >> CUT
    normal = tl.minimum(normal - ((126 + LOWEST) << MANTISSA), 0x7E if FP8 == tl.float8e4nv else 0x7B)
    steps = (bits.to(tl.float32, bitcast=True) + 2.0 ** (LOWEST + CUT)).to(tl.int32, bitcast=True)
    code = tl.where(bits < ((127 + LOWEST) << 23), steps - ((127 + LOWEST + CUT) << 23), normal)
    code = tl.where(v != v, 0x7F, code) | ((v.to(tl.int32, bitcast=True) >> 24) & 0x80)
    return code.to(tl.uint8).to(FP8, bitcast=True)


#
# `triton.constexpr_function` makes a function of plain Python one that kernels may call: it runs while they are
# compiled. `torch.compile` compiles in processes that can't ask for the card; there it is done by hand, too.
@triton.constexpr_function
def has_instruction():
    try:
        return cuda_capability_geq(9, 0)
    except RuntimeError:
        return False


@triton.jit
def rounded(v, FP8: tl.constexpr):
    return v.to(FP8) if has_instruction() else rounded_by_hand(v, FP8)


# With a seed a number is rounded before, and the conversion is exact.
@triton.jit
def to_fp8(v, seed_ptr, index, FP8: tl.constexpr):  # seed: one number, or None
    if seed_ptr is not None:
        if FP8 == tl.float8e4nv:
            v = stochastic(v, tl.load(seed_ptr), index, 3, -6)
        else:
            v = stochastic(v, tl.load(seed_ptr), index, 2, -14)
    return rounded(v, FP8)
