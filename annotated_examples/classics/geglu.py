r"""
# GeGLU: exact and approximate

The gated feed-forward block again, this time with GELU as the activation. GELU multiplies its input by the probability
that a normally distributed number is smaller:

[[eq: GeGLU]]

The probability is given by the error function. Many models replace it with a hyperbolic tangent, which differs by less
than a thousandth:

[[eq: GeGLU-tanh]]

The gradients are [[tag: GeGLU-gate]] and [[tag: GeGLU-up]], and for the approximation [[tag: GeGLU-tanh-gate]] and
[[tag: GeGLU-tanh-up]]. A model has to be run with the form that it was trained with: the two are close, but not the
same.

**What it costs.** Forward: two numbers in, one out. Backward: three in, two out. In bfloat16 that is 6 and 10 bytes an
element. According to its data sheet an H200 does 84 operations in float32 in the time it takes to move 6 bytes. That
counts a multiply-add as two, so it is 42 instructions, if one is issued in every cycle. With a library's `erf` the
exact form compiles to nearly 40, too many to hide. So this file has an error function of its own. With it the exact
form runs at [[bench: geglu:exact/8192x14336/forward/share]] of the speed of a copy at 8192 x 14336: it reads more than
it writes, and a copy doesn't.

**Contract.** `gate` and `up` have the same shape, with any number of dimensions, and the same dtype: float32, float16
or bfloat16. `geglu_packed` takes both as the halves of one tensor, which is what a fused projection produces. Any
strides are allowed: rows any distance apart are read in place, so `chunk` and slices cost no copy; what isn't
contiguous within a row is copied first. Inputs and the upstream gradient are never written to. Outputs are contiguous.
One difference from PyTorch: for gates below about −5.5, approximated −5, its activation rounds to 0 early, and an
infinite `up` makes that NaN; here it keeps its small value down to about −13, approximated −10, and the product is
infinite. Other NaNs and infinities come out where PyTorch's do on a GPU: a gate of $-\infty$ gives NaN.
"""

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from annotated_examples.common import gated
from annotated_examples.common.exponential import exp
from annotated_examples.common.gated import block_of_row, overflow_as, row_start


# ## Reference
#
# The same in PyTorch. It runs in any dtype; in float64 it is what the kernels are measured against.
def geglu_reference(gate, up, approximate="none"):
    return F.gelu(gate, approximate=approximate) * up


# The packed form: the left half of the last dimension is the gate, the right half is `up`.
def geglu_packed_reference(x, approximate="none"):
    gate, up = x.chunk(2, dim=-1)
    return geglu_reference(gate, up, approximate)


# ## The weight that GELU gives its input
#
# Both forms are `gelu(x) = x · weight(x)`, with a weight that climbs from 0 to 1. By the product rule the slope of GELU
# is `weight + x · weight'`. So all that the kernels have to know of either form is the weight and its slope.
#
# [[figure: curves/gelu]]

# ### Exact
#
# The weight is the normal distribution function, [[tag: GELU-weight]]. Computed as `(1 + erf(x / √2)) / 2` it would
# lose digits for negative `x`: at −5 the error function is within a millionth of −1, and the sum keeps one digit of
# seven. So the *tail* is computed instead, one minus the weight at `|x|`. On the negative side the tail is the weight
# itself.
#
# The tail falls off like the density `exp(-x²/2)`. Their quotient is a smooth, slowly varying function: in
# `t = 1 / (1 + 0.3 · |x|)` it is a polynomial of degree eight, with a relative error below two in ten million for every
# `x` whose tail is a normal float32, up to 13. The form is that of Hastings ("Approximations for Digital Computers",
# 1955; Abramowitz and Stegun, 7.1.26). The coefficients here were fitted again, for the smallest relative error of the
# tail; a test measures it. The formula takes one exponential and one division, and the backward pass needs the same
# exponential for the slope.
#
# Here every instruction counts, because the memory leaves time for so few. The forward pass at 8192 x 14336 in
# bfloat16:
#
# - PyTorch's two operations: [[bench: geglu/ladder/exact: eager/forward_ms]]
# - one kernel with the library's `erf`: [[bench: geglu/ladder/exact: library erf/forward_ms]]
# - with the polynomial: [[bench: geglu/ladder/exact: polynomial/forward_ms]]
# - with `exp2` for `exp`: [[bench: geglu/ladder/exact: exp2/forward_ms]]
# - with a reciprocal square root for the division: [[bench: geglu/ladder/exact: final/forward_ms]]
#
# The last one is as fast as memory allows: the cheaper tanh form takes [[bench: geglu/ladder/tanh: final/forward_ms]].


# Two results: the weight at `x`, and its slope there. Nothing is loaded or stored here.
@triton.jit
def weight_exact(x):
    # `tl.exp2` raises two to a power, and is a hardware instruction. `tl.exp` would multiply by log₂(e) first, and
    # treat results too small for a normal float32 separately. Here the factor is part of the constant, log₂(e) / 2, and
    # a tail that small may be 0. The slope of the weight is the normal density; [[tag: GELU]] uses it. In the example's
    # second row it is `pid=(0, 1): slope = [0.242, 0.399, 0.242, 0.054]`.
    exponential = tl.exp2(-0.7213475204444817 * x * x)
    slope = 0.3989422804014327 * exponential

    # At zero `t` is one, and far out it goes to zero, as the exponential does: an infinite `x` has no tail. In between,
    # `t = [0.769, 1, 0.769, 0.625]`. A division would take eight instructions. `tl.rsqrt` computes one over the square
    # root in a single one. `tl.abs` drops the sign.
    y = 1 + 0.3 * tl.abs(x)
    t = tl.rsqrt(y * y)

    # The polynomial, by Horner's rule: one multiply-add per line, each a single instruction.
    p = 0.035674791783094406 * t - 0.15720313787460327
    p = p * t + 0.20635360479354858
    p = p * t - 0.05368373170495033
    p = p * t + 0.12856167554855347
    p = p * t + 0.09991347789764404
    p = p * t + 0.12075395882129669
    p = p * t + 0.11962930113077164
    # Half of the probability lies beyond zero: `tail = [0.159, 0.5, 0.159, 0.0228]`.
    tail = exponential * (p * t)

    # On the left, the weight is the tail, and on the right it is one minus the tail:
    # `weight = [0.159, 0.5, 0.841, 0.977]`.
    weight = tl.where(x < 0, tail, 1 - tail)
    return weight, slope


# ### Approximate
#
# Here the weight is `(1 + tanh(z)) / 2`. That is a sigmoid of `2z`, [[tag: GELU-tanh-weight]]: no digits are lost for
# negative `x`, where the hyperbolic tangent is close to −1, and one exponential does the work of the library's `tanh`.
# In the forward pass that is [[bench: geglu/ladder/tanh: final/forward_ms]] instead of
# [[bench: geglu/ladder/tanh: library tanh/forward_ms]]. The slope is that of a sigmoid, `weight · (1 - weight)`, times
# the slope of `2z`; [[tag: GELU-tanh]] uses it.
@triton.jit
def weight_tanh(x):
    # The first constant is 2 √(2/π), because the sigmoid's argument is `2z`; the cubic coefficient is that of the GELU
    # paper, and in the slope it is three times as large.
    double_z = 1.5957691216057308 * x * (1 + 0.044715 * x * x)
    double_z_slope = 1.5957691216057308 * (1 + 0.134145 * x * x)
    weight = 1 / (1 + exp(-double_z))
    slope = weight * (1 - weight) * double_z_slope
    return weight, slope


# `TANH` is a constexpr: the compiler makes two kernels of each one below, and neither contains the other's formula.
@triton.jit
def weight_and_slope(x, TANH: tl.constexpr):
    if TANH:
        weight, slope = weight_tanh(x)
    else:
        weight, slope = weight_exact(x)
    return weight, slope


# ## Forward
#
# The structure is that of [SwiGLU](swiglu.py): a program takes one block of one row, and each tensor has its own row
# stride. Only the arithmetic is new. [The shared file](../common/gated.py) explains how tensors become rows, and what
# `VECTOR` and `ONE_ROW` are.
#
# In the example run `gate` and `up` are the halves of a tensor of shape (3, 10). A row has 5 elements, and the next row
# starts 10 elements further on. A block has 4.
@triton.jit
def geglu_forward_kernel(
    gate_ptr,  # (M, N), rows stride_gate_m apart
    up_ptr,  # (M, N), rows stride_up_m apart
    out_ptr,  # (M, N), rows stride_out_m apart
    stride_gate_m,
    stride_up_m,
    stride_out_m,
    M,
    N,
    TANH: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VECTOR: tl.constexpr,
    ONE_ROW: tl.constexpr,
):
    # Block 1 of the second row begins at column 4, `pid=(1, 1): row = 1` and `offs_n = [4, 5, 6, 7]`. Only column 4
    # exists: `mask = [1, 0, 0, 0]`. The others are the first elements of `up`.
    row, offs_n, mask = block_of_row(M, N, BLOCK_N, VECTOR, ONE_ROW)

    # The first block of that row: `pid=(0, 1): gate = [-1, 0, 1, 2]` and `up = [10, 20, 30, 40]`.
    gate = tl.load(gate_ptr + row_start(row, stride_gate_m, VECTOR) + offs_n, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row_start(row, stride_up_m, VECTOR) + offs_n, mask=mask, other=0.0).to(tl.float32)

    # [[tag: GeGLU]] or [[tag: GeGLU-tanh]], in float32, rounded once by the store. The example runs the exact form. The
    # forward pass doesn't use the slope, so the compiler removes its instructions.
    weight, _ = weight_and_slope(gate, TANH)
    # The result is `out = [-1.587, 0, 25.24, 78.18]`.
    out = gate * weight * up
    tl.store(out_ptr + row_start(row, stride_out_m, VECTOR) + offs_n, out, mask=mask)


# ## Backward
#
# Only the inputs were saved. The weight is computed again: that takes a few instructions, while a saved one would mean
# two more bytes to read per element.
@triton.jit
def geglu_backward_kernel(
    dout_ptr,  # (M, N)
    gate_ptr,  # (M, N)
    up_ptr,  # (M, N)
    dgate_ptr,  # (M, N)
    dup_ptr,  # (M, N)
    stride_dout_m,
    stride_gate_m,
    stride_up_m,
    stride_dgate_m,
    stride_dup_m,
    M,
    N,
    TANH: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VECTOR: tl.constexpr,
    ONE_ROW: tl.constexpr,
):
    # The same blocks as in the forward pass: `pid=(1, 2): row = 2` and `mask = [1, 0, 0, 0]`.
    row, offs_n, mask = block_of_row(M, N, BLOCK_N, VECTOR, ONE_ROW)

    # The upstream gradient is two everywhere in the example: `pid=(0, 1): dout = [2, 2, 2, 2]`.
    dout = tl.load(dout_ptr + row_start(row, stride_dout_m, VECTOR) + offs_n, mask=mask, other=0.0).to(tl.float32)
    gate = tl.load(gate_ptr + row_start(row, stride_gate_m, VECTOR) + offs_n, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row_start(row, stride_up_m, VECTOR) + offs_n, mask=mask, other=0.0).to(tl.float32)

    # What was `up` multiplied by? By the activation, `activation = [-0.159, 0, 0.841, 1.954]`. So that is the slope
    # with respect to `up`, and the gradient is `dup = [-0.317, 0, 1.683, 3.909]`, [[tag: GeGLU-up]] or
    # [[tag: GeGLU-tanh-up]].
    weight, weight_slope = weight_and_slope(gate, TANH)
    activation = gate * weight
    dup = dout * activation

    # Conversely, the activation was multiplied by `up`. The gradient that reaches it is
    # `dactivation = [20, 40, 60, 80]`. In float16 it overflows where PyTorch's does.
    dactivation = overflow_as(dout * up, up_ptr.dtype.element_ty)
    # On to the gate, through the slope of GELU, [[tag: GELU]] or [[tag: GELU-tanh]]. It is one half at zero and falls
    # below it on the left, where GELU goes down before it comes up to zero: `slope = [-0.083, 0.5, 1.083, 1.085]`.
    # Together that is [[tag: GeGLU-gate]] or [[tag: GeGLU-tanh-gate]].
    slope = weight + gate * weight_slope
    dgate = dactivation * slope

    # Both gradients are written to new tensors, in the example to the halves of one packed gradient.
    tl.store(dgate_ptr + row_start(row, stride_dgate_m, VECTOR) + offs_n, dgate, mask=mask)
    tl.store(dup_ptr + row_start(row, stride_dup_m, VECTOR) + offs_n, dup, mask=mask)


# ## Launchers
#
# A block has 1024 columns, fewer for short rows, unless `BLOCK_N` is given.
def geglu_forward(gate, up, approximate="none", *, BLOCK_N=None):
    return gated.forward(geglu_forward_kernel, gate, up, BLOCK_N, TANH=approximate == "tanh")


def geglu_backward(dout, gate, up, approximate="none", *, BLOCK_N=None):
    return gated.backward(geglu_backward_kernel, dout, gate, up, BLOCK_N, TANH=approximate == "tanh")


def geglu_packed_backward(dout, x, approximate="none", *, BLOCK_N=None):
    return gated.packed_backward(geglu_backward_kernel, dout, x, BLOCK_N, TANH=approximate == "tanh")


# ## The operation
#
# The autograd function gets the two launchers as arguments, and which form of GELU they compute.
@replayed
def geglu(gate, up, approximate="none"):
    r"""`gelu(gate) * up`, differentiable in both.

    Args:
        gate: tensor of any shape, float32, float16 or bfloat16, any strides.
        up: tensor of the same shape and dtype.
        approximate: `"none"` for the exact form with the error function, `"tanh"` for the approximation.

    Returns:
        A new contiguous tensor of the same shape and dtype.

    Raises:
        TypeError: an argument isn't a tensor, or the dtypes differ or are not allowed.
        ValueError: the shapes differ, a tensor is on the wrong device, or `approximate` is neither of the two.

    Source: D. Hendrycks and K. Gimpel, "Gaussian Error Linear Units" (2016), arXiv:1606.08415; N. Shazeer, "GLU
    Variants Improve Transformer" (2020), arXiv:2002.05202.
    """
    gated.pair_contract(gate, up)
    checks.choice("approximate", approximate, ("none", "tanh"))
    if not autograd.needs_frame(gate, up):
        return geglu_forward(gate, up, approximate)
    return gated.GatedUnit.apply(gate, up, geglu_forward, geglu_backward, approximate)


@replayed
def geglu_packed(x, approximate="none"):
    """`geglu` of the two halves of the last dimension: `x[..., :h]` is the gate, `x[..., h:]` is `up`.

    The halves are read in place, and the gradient is one packed tensor.

    Args:
        x: tensor of shape (..., 2h), float32, float16 or bfloat16, any strides.
        approximate: as for `geglu`.

    Returns:
        A new contiguous tensor of shape (..., h) and the same dtype.

    Raises:
        TypeError: `x` isn't a tensor, or its dtype isn't allowed.
        ValueError: the last dimension is odd or missing, the tensor is on the wrong device, or `approximate` is
            neither `"none"` nor `"tanh"`.

    Source: as `geglu`.
    """
    gated.packed_contract(x)
    checks.choice("approximate", approximate, ("none", "tanh"))
    if not autograd.needs_frame(x):
        return geglu_forward(*x.chunk(2, dim=-1), approximate)
    return gated.PackedGatedUnit.apply(x, geglu_forward, geglu_packed_backward, approximate)


# ## A run small enough to watch
#
# Packed, so that the row stride shows, and exact. The recorder runs this in Triton's interpreter; the numbers quoted
# above come from it.
def EXAMPLE():
    gate = torch.arange(5.0, device=device.DEVICE) - torch.tensor([[2.0], [1.0], [0.0]], device=device.DEVICE)
    up = torch.arange(10.0, 60.0, 10.0, device=device.DEVICE).expand(3, 5)
    x = torch.cat([gate, up], dim=-1)
    geglu_forward(*x.chunk(2, dim=-1), BLOCK_N=4)
    geglu_packed_backward(torch.full((3, 5), 2.0, device=device.DEVICE), x, BLOCK_N=4)


if __name__ == "__main__":
    script.main(geglu, geglu_reference)
