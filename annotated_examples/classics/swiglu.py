r"""
# SwiGLU: one gate, two gradients

The feed-forward block of most language models multiplies two projections of its input, after applying the SiLU function
to one of them:

[[eq: SwiGLU]]

The backward pass gives two gradients, [[tag: SwiGLU-gate]] and [[tag: SwiGLU-up]]. Both need the same sigmoid, and both
are built from three tensors that have to be read anyway. So one kernel does the whole forward pass and one the whole
backward pass. With PyTorch's own operations, the activation would be written to memory and read back in between.

**What it costs.** Forward: two numbers in, one out. Backward: three in, two out. In bfloat16 that is 6 and 10 bytes an
element for about six and twelve operations. According to its data sheet an H200 does 84 operations in float32 in the
time it takes to move 6 bytes. So memory is the limit: the floor is `bytes / bandwidth`, and a kernel that only moves
data can reach it. At 8192 x 14336, on an H200, this one runs at [[bench: swiglu/8192x14336/forward/share]] of the speed
of a copy forward and [[bench: swiglu/8192x14336/backward/share]] backward: it reads more than it writes, and a copy
doesn't. So there is no fast version of this file.

**Where it falls behind.** By a percent or two, where there is little to do: 16384 x 1000 forward takes
[[bench: swiglu/16384x1000/forward/ms]], and [[bench: swiglu/16384x1000/forward/torch.compile.ms]] with `torch.compile`.

**Contract.** `gate` and `up` have the same shape, with any number of dimensions, and the same dtype: float32, float16
or bfloat16. `swiglu_packed` takes both as the halves of one tensor, which is what a fused projection produces. Any
strides are allowed: rows any distance apart are read in place, so `chunk` and slices cost no copy; what isn't
contiguous within a row is copied first. Inputs and the upstream gradient are never written to. Outputs are contiguous.
There is one difference from PyTorch, which rounds the activation to the tensor's dtype before it multiplies. In float16
that gives 0 for gates below about −20, and an infinite `up` makes it NaN; here the product is computed in float32, and
down to gates of about −88 it is infinite. Other NaNs and infinities come out where PyTorch's do: a gate of $-\infty$
gives NaN.
"""

from academy.runtime import autograd, device, script  # missing? Run make in the clone, then .venv/bin/python
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
def swiglu_reference(gate, up):
    return F.silu(gate) * up


# The packed form: the left half of the last dimension is the gate, the right half is `up`.
def swiglu_packed_reference(x):
    gate, up = x.chunk(2, dim=-1)
    return swiglu_reference(gate, up)


# ## Forward
#
# No element needs any other. So a program takes one block of one row, and a grid of two dimensions covers everything:
# blocks along a row, and rows. Why rows at all? The halves of a packed tensor aren't contiguous: after the gate's row
# comes a row of `up`, then the gate's next one. The distance from one row to the next, counted in elements, is the *row
# stride*.
#
# In the example run `gate` and `up` are the halves of a tensor of shape (3, 10). A row has 5 elements, and the next row
# starts 10 elements further on. A block has 4.
#
# [The file shared with GeGLU](../common/gated.py) explains how tensors become rows. Two constants come from there.
# `VECTOR` lets the compiler load 16 bytes at a time where rows allow it. `ONE_ROW` says that all tensors are
# contiguous: then each is treated as one long row, and no row offsets have to be computed. Neither changes the result.
@triton.jit
def swiglu_forward_kernel(
    gate_ptr,  # (M, N), rows stride_gate_m apart
    up_ptr,  # (M, N), rows stride_up_m apart
    out_ptr,  # (M, N), rows stride_out_m apart
    stride_gate_m,
    stride_up_m,
    stride_out_m,
    M,
    N,
    BLOCK_N: tl.constexpr,
    VECTOR: tl.constexpr,
    ONE_ROW: tl.constexpr,
):
    # Which elements are mine? Block 1 of the second row begins at column 4, `pid=(1, 1): row = 1` and
    # `offs_n = [4, 5, 6, 7]`. A row has `N = 5` columns, so only the first of these exists: `mask = [1, 0, 0, 0]`. The
    # others are the first elements of `up`.
    row, offs_n, mask = block_of_row(M, N, BLOCK_N, VECTOR, ONE_ROW)

    # Each tensor has its own row stride, here `pid=(0, 1): stride_gate_m = 10`. Add the row's start to the pointer,
    # then the columns. Everything from here on is float32. The gate's second row begins `gate = [-1, 0, 1, 2]`, and
    # that of `up` begins `up = [10, 20, 30, 40]`.
    gate = tl.load(gate_ptr + row_start(row, stride_gate_m, VECTOR) + offs_n, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row_start(row, stride_up_m, VECTOR) + offs_n, mask=mask, other=0.0).to(tl.float32)

    # [[tag: SwiGLU]], rounded once, by the store. At zero the sigmoid is one half, and from there it climbs to one:
    # `sigmoid = [0.269, 0.5, 0.731, 0.881]`. Far below zero it is nearly the exponential, hence one with [all
    # its digits](../common/exponential.py). For a large negative gate `exp(-gate)` is infinite and the quotient is 0,
    # as it should be. The other common form, `exp(gate) / (1 + exp(gate))`, is `inf / inf` for a large positive one.
    sigmoid = 1 / (1 + exp(-gate))
    # The result is `out = [-2.69, 0, 21.93, 70.46]`. It is a tensor of its own without gaps, `stride_out_m = 5`.
    out = gate * sigmoid * up
    tl.store(out_ptr + row_start(row, stride_out_m, VECTOR) + offs_n, out, mask=mask)


# ## Backward
#
# Only the inputs were saved. The sigmoid is computed again: that takes a few instructions, while a saved one would mean
# two more bytes to read per element.
#
# [[figure: curves/silu]]
@triton.jit
def swiglu_backward_kernel(
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
    BLOCK_N: tl.constexpr,
    VECTOR: tl.constexpr,
    ONE_ROW: tl.constexpr,
):
    # The same blocks as in the forward pass: `pid=(1, 2): row = 2` and `mask = [1, 0, 0, 0]`.
    row, offs_n, mask = block_of_row(M, N, BLOCK_N, VECTOR, ONE_ROW)

    # The upstream gradient has a row stride of its own. It may be 0, for a single row expanded to many; a kernel that
    # assumed the layout of `out` would read out of bounds. In the example it is contiguous,
    # `pid=(0, 1): stride_dout_m = 5`, and two everywhere: `dout = [2, 2, 2, 2]`.
    dout = tl.load(dout_ptr + row_start(row, stride_dout_m, VECTOR) + offs_n, mask=mask, other=0.0).to(tl.float32)
    gate = tl.load(gate_ptr + row_start(row, stride_gate_m, VECTOR) + offs_n, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row_start(row, stride_up_m, VECTOR) + offs_n, mask=mask, other=0.0).to(tl.float32)

    # What was `up` multiplied by? By the activation, `activation = [-0.269, 0, 0.731, 1.762]`. So that is the slope
    # with respect to `up`, and the gradient is `dup = [-0.538, 0, 1.462, 3.523]`, [[tag: SwiGLU-up]].
    sigmoid = 1 / (1 + exp(-gate))
    activation = gate * sigmoid
    dup = dout * activation

    # Conversely, the activation was multiplied by `up`. The gradient that reaches it is
    # `dactivation = [20, 40, 60, 80]`. In float16 it overflows where PyTorch's does.
    dactivation = overflow_as(dout * up, up_ptr.dtype.element_ty)
    # On to the gate, through the slope of the SiLU, [[tag: SiLU]]. At zero it is one half, and it grows past one before
    # it settles there: `slope = [0.072, 0.5, 0.928, 1.091]`. Together that is [[tag: SwiGLU-gate]].
    slope = sigmoid * (1 + gate * (1 - sigmoid))
    dgate = dactivation * slope

    # Both gradients are written to new tensors, in the example to the halves of one packed gradient:
    # `stride_dgate_m = 10`.
    tl.store(dgate_ptr + row_start(row, stride_dgate_m, VECTOR) + offs_n, dgate, mask=mask)
    tl.store(dup_ptr + row_start(row, stride_dup_m, VECTOR) + offs_n, dup, mask=mask)


# ## Launchers
#
# A block has 1024 columns, fewer for short rows, unless `BLOCK_N` is given. So each of 128 threads has eight numbers,
# in bfloat16 one load of 16 bytes. This is what the size of a load is worth, in the forward pass at 8192 x 14336:
#
# - PyTorch's two operations: [[bench: swiglu/ladder/eager/forward_ms]]
# - one kernel, one number per thread: [[bench: swiglu/ladder/2-byte loads/forward_ms]]
# - four numbers per thread: [[bench: swiglu/ladder/8-byte loads/forward_ms]]
# - eight numbers per thread: [[bench: swiglu/ladder/16-byte loads/forward_ms]]
#
# Larger programs don't help: with blocks of 8192 and 16 warps it is [[bench: swiglu/ladder/8192 a program/forward_ms]].
# Nor does it help to mark the loads `evict_first`, though nothing is read twice:
# [[bench: swiglu/ladder/evict_first/forward_ms]].
def swiglu_forward(gate, up, *, BLOCK_N=None):
    return gated.forward(swiglu_forward_kernel, gate, up, BLOCK_N)


def swiglu_backward(dout, gate, up, *, BLOCK_N=None):
    return gated.backward(swiglu_backward_kernel, dout, gate, up, BLOCK_N)


def swiglu_packed_backward(dout, x, *, BLOCK_N=None):
    return gated.packed_backward(swiglu_backward_kernel, dout, x, BLOCK_N)


# ## The operation
#
# Only a call that needs a gradient goes through the autograd function, which takes time. The function gets the two
# launchers as arguments. (A call with a forward-mode tangent goes through it too, and raises.)
@replayed
def swiglu(gate, up):
    r"""`silu(gate) * up`, differentiable in both, where `silu(x) = x · sigmoid(x)`.

    Args:
        gate: tensor of any shape, float32, float16 or bfloat16, any strides.
        up: tensor of the same shape and dtype.

    Returns:
        A new contiguous tensor of the same shape and dtype.

    Raises:
        TypeError: an argument isn't a tensor, or the dtypes differ or are not allowed.
        ValueError: the shapes differ, or a tensor is on the wrong device.

    Source: N. Shazeer, "GLU Variants Improve Transformer" (2020), arXiv:2002.05202.
    """
    gated.pair_contract(gate, up)
    if not autograd.needs_frame(gate, up):
        return swiglu_forward(gate, up)
    return gated.GatedUnit.apply(gate, up, swiglu_forward, swiglu_backward)


@replayed
def swiglu_packed(x):
    """`swiglu` of the two halves of the last dimension: `x[..., :h]` is the gate, `x[..., h:]` is `up`.

    The halves are read in place, and the gradient is one packed tensor.

    Args:
        x: tensor of shape (..., 2h), float32, float16 or bfloat16, any strides.

    Returns:
        A new contiguous tensor of shape (..., h) and the same dtype.

    Raises:
        TypeError: `x` isn't a tensor, or its dtype isn't allowed.
        ValueError: the last dimension is odd or missing, or the tensor is on the wrong device.

    Source: as `swiglu`.
    """
    gated.packed_contract(x)
    if not autograd.needs_frame(x):
        return swiglu_forward(*x.chunk(2, dim=-1))
    return gated.PackedGatedUnit.apply(x, swiglu_forward, swiglu_packed_backward)


# ## A run small enough to watch
#
# Packed, so that the row stride shows. The recorder runs this in Triton's interpreter; the numbers quoted above come
# from it.
def EXAMPLE():
    gate = torch.arange(5.0, device=device.DEVICE) - torch.tensor([[2.0], [1.0], [0.0]], device=device.DEVICE)
    up = torch.arange(10.0, 60.0, 10.0, device=device.DEVICE).expand(3, 5)
    x = torch.cat([gate, up], dim=-1)
    swiglu_forward(*x.chunk(2, dim=-1), BLOCK_N=4)
    swiglu_packed_backward(torch.full((3, 5), 2.0, device=device.DEVICE), x, BLOCK_N=4)


if __name__ == "__main__":
    script.main(swiglu, swiglu_reference)
