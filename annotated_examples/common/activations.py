r"""
# Activations

ReLU, leaky ReLU, GELU and SiLU as jitted functions, and what each does to the upstream gradient. A product applies one
of them to its sums in the *epilogue*, between its loop and its store. The kernel gets the function itself as a
`tl.constexpr` argument, and calls it by that argument's name; the compiler inlines the call. So a kernel doesn't have
to know which activations exist.

They get float32 blocks, whatever the dtype of the tensors. A NaN has to come out as NaN. Every comparison with a NaN is
false, so forward each is written so that false keeps the value.
"""

from academy.runtime import device  # noqa: F401  before anything imports triton
from academy.runtime.launch import cdiv, launch

import torch
import triton
import triton.language as tl

from annotated_examples.common.exponential import exp, sigmoid_of


# ## Forward
@triton.jit
def identity(z):
    return z


@triton.jit
def relu(z):
    # [[tag: MM-relu]]
    return tl.where(z < 0, 0.0, z)


@triton.jit
def leaky_relu(z):
    # [[tag: MM-leaky]]
    return tl.where(z < 0, 0.01 * z, z)


@triton.jit
def gelu(z):
    # [[tag: MM-gelu]], with the constant 1/√2; `tl.erf` is the error function.
    return 0.5 * z * (1.0 + tl.erf(z * 0.7071067811865476))


@triton.jit
def silu(z):
    # [[tag: MM-silu]]; `tl.sigmoid` computes one over one plus the exponential of `-z`, `sigmoid_of` with all digits.
    return z * sigmoid_of(z)


# ## Backward
#
# The gradient of Z: upstream gradient times slope. What is the slope computed from? For ReLU and leaky ReLU the
# result is enough: it is positive where Z is, unless it was rounded to 0. As the next operation mostly keeps it anyway,
# saving it costs no memory. GELU and SiLU need Z itself, because their results don't determine the slope. `saved` is
# one or the other.
@triton.jit
def identity_backward(dc, saved):
    return dc


@triton.jit
def relu_backward(dc, saved):
    # [[tag: MM-relu-Z]]. At zero this uses the slope from the left, as PyTorch does.
    return tl.where(saved <= 0, 0.0, dc)


@triton.jit
def leaky_relu_backward(dc, saved):
    # [[tag: MM-leaky-Z]], at zero also with the slope from the left
    return tl.where(saved > 0, dc, 0.01 * dc)


@triton.jit
def gelu_backward(dc, saved):
    # [[tag: MM-gelu-Z]], with the constants 1/√2 and 1/√(2π)
    normal = 0.5 * (1.0 + tl.erf(saved * 0.7071067811865476))
    return dc * (normal + saved * 0.3989422804014327 * exp(-0.5 * saved * saved))


@triton.jit
def silu_backward(dc, saved):
    # [[tag: MM-silu-Z]]
    sigmoid = sigmoid_of(saved)
    return dc * sigmoid * (1.0 + saved * (1.0 - sigmoid))


# ## By name
#
# These are the names that users pass. `SAVED` says which matrix the backward pass needs besides the factors: the
# result C, or Z.
ACTIVATIONS = {None: identity, "relu": relu, "leaky_relu": leaky_relu, "gelu": gelu, "silu": silu}
BACKWARD = {
    None: identity_backward,
    "relu": relu_backward,
    "leaky_relu": leaky_relu_backward,
    "gelu": gelu_backward,
    "silu": silu_backward,
}
SAVED = {"relu": "c", "leaky_relu": "c", "gelu": "z", "silu": "z"}


# The same in PyTorch, for references.
def activation_reference(z, activation):
    if activation is None:
        return z
    if activation == "leaky_relu":
        return torch.nn.functional.leaky_relu(z, 0.01)
    return getattr(torch.nn.functional, activation)(z)


# ## The backward pass as a kernel of its own
#
# Both gradient products need all of the gradient of Z, so it is computed once and stored. Fusing it into their loads
# would compute it again for every block that reads it; [a rung of fast/matmul's ladder](../fast/matmul.py) does
# that, and is slower.
@triton.jit
def activation_backward_kernel(
    dc_ptr,  # (M, N)
    saved_ptr,  # (M, N), contiguous
    dz_ptr,  # (M, N), contiguous
    M,
    N,
    stride_dcm,
    stride_dcn,
    BACKWARD: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    # Each program takes a block of the matrix, wide rather than square, because neighbours along a row are fetched
    # together. The upstream gradient may have any strides, also 0: with `.sum().backward()` it is one number, expanded.
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    dc_offsets = offs_m[:, None] * stride_dcm + offs_n[None, :] * stride_dcn
    offsets = offs_m[:, None] * N + offs_n[None, :]
    # The arithmetic is done in float32, the store rounds.
    dc = tl.load(dc_ptr + dc_offsets, mask=mask, other=0.0).to(tl.float32)
    saved = tl.load(saved_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    tl.store(dz_ptr + offsets, BACKWARD(dc, saved), mask=mask)


# `torch.compile` can't trace the launch of a kernel that gets a function as an argument. So it gets the launcher as a
# custom operator. Outside of it the launcher is called directly, which is a few microseconds faster.
def activation_backward(dc, saved, activation):
    """The gradient of Z from that of C, a new contiguous matrix; `saved` (contiguous) is what `SAVED` says."""
    if torch.compiler.is_compiling():
        return activation_backward_operator(dc, saved, activation)
    return launch_activation_backward(dc, saved, activation)


def launch_activation_backward(dc, saved, activation):
    M, N = dc.shape
    dz = torch.empty((M, N), dtype=dc.dtype, device=dc.device)
    if dz.numel():
        grid = (cdiv(M, 8), cdiv(N, 256))
        launch(
            activation_backward_kernel, grid, (dc, saved, dz), (M, N, *dc.stride()),
            BACKWARD=BACKWARD[activation], BLOCK_M=8, BLOCK_N=256,
        )  # fmt: skip
    return dz


@torch.library.custom_op(f"{__name__.replace('.', '_')}::activation_backward", mutates_args=())
def activation_backward_operator(dc: torch.Tensor, saved: torch.Tensor, activation: str) -> torch.Tensor:
    return launch_activation_backward(dc, saved, activation)


@activation_backward_operator.register_fake
def activation_backward_fake(dc, saved, activation):
    return dc.new_empty(dc.shape)
