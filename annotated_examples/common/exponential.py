r"""
# An exponential with all its digits

A GPU has an instruction for powers of two, and `tl.exp(x)` is that of `x · log₂e`. The product is rounded, and what
rounding changes in the exponent, times ln 2, is how large a **part of itself** the result changes by: near −115, where
$x$ is −80, half a unit in the last place is 4 · 10⁻⁶, and the result is off by up to 3 · 10⁻⁶ of itself. So the
relative error grows with $|x|$, up to 7 · 10⁻⁸ for each unit of it.

Does that matter? Not in a sum that also has $e^0 = 1$ in it, such as that of a softmax: a millionth of $e^{-80}$ is
nothing beside 1. It does where the exponential itself is the result, or divides it: a probability, a sigmoid far below
zero, and shares of several such sigmoids.

CUDA's own `expf` takes the nearest whole power of two out first: the rest is small, and so is what its rounding does.
It is right to two units in the last place whatever $x$ is, infinities and results that are too small for a normal
number included. It takes nine instructions, where `tl.exp` takes five.
"""

from academy.runtime import device  # noqa: F401  before anything imports triton

import triton
import triton.language as tl
from triton.language.extra import libdevice


# `libdevice.exp` calls CUDA's `expf`; libdevice is NVIDIA's library of functions, which comes with Triton.
@triton.jit
def exp(x):
    return libdevice.exp(x)


# The sigmoid, which `tl.sigmoid` computes with `tl.exp`. Far below zero the exponential is all there is in the
# denominator; where it is infinite, the quotient is 0.
@triton.jit
def sigmoid_of(x):
    return 1 / (1 + exp(-x))


# A result that is rounded to 16 bits has no room for the difference: at −100 it is a part in 140,000, and half a unit
# in the last place of a float16 is a part in 4096 or more. There the shorter one is enough.
@triton.jit
def exp_for(x, dtype: tl.constexpr):
    return exp(x) if dtype == tl.float32 else tl.exp(x)
