r"""
# Products and their gradients

What every product of two matrices needs, whichever kernel multiplies: checks of its arguments, float32 sums as exact as
PyTorch's, and an autograd function. A product's gradients are two more products,
[[eq: MM-X]]

[[eq: MM-Y]]

so the autograd function gets the function that multiplies as an argument, and passes it transposed matrices, which are
the same memory with the strides swapped.
"""

from academy.runtime import autograd, checks, device  # before anything imports triton
from academy.runtime.replay import replayed

import functools

import torch
import triton
import triton.language as tl

from annotated_examples.common.activations import SAVED, activation_backward


# ## Adding a block's product to the sum
#
# `tl.dot(a, b, acc)` multiplies two blocks and adds the product to `acc`, the sum so far. For 16-bit inputs that is
# all: the tensor cores multiply 16-bit numbers exactly and keep the sum in float32. (How they round it is up to the
# hardware: not after each addition, as IEEE arithmetic does.)
#
# float32 needs more care. A sum is rounded after each term, and its error grows with the number of terms that are added
# one after the other. So each block of K is summed separately before it is added to the rest. With 8192 terms in blocks
# of 32, each term then goes through at most 32 + 256 additions. PyTorch splits its sums too. From about a thousand
# terms on, the error of a single chain would be more than twice PyTorch's.
#
# `tl.fma(x, y, z)` computes `x * y + z`: here it adds the block's product, times one, to the sum. Why not a plain `+`?
# The compiler rewrites `acc + tl.dot(a, b)` as `tl.dot(a, b, acc)`, and that adds all terms in a single chain again.
@triton.jit
def multiply_add(a, b, acc, INPUT_PRECISION: tl.constexpr):
    if a.dtype == tl.float32 and INPUT_PRECISION == "ieee":
        total = tl.fma(tl.dot(a, b, input_precision=INPUT_PRECISION), 1.0, acc)
    else:
        total = tl.dot(a, b, acc, input_precision=INPUT_PRECISION)
    return total


# The products of rows with rows, `a bᵀ`, sum over the columns of a single tile. Those are split the same way, into
# parts of 32: `tl.dot` of three dimensions multiplies matrix by matrix, and the parts are summed.
@triton.jit
def parts_of_32(block):
    rows: tl.constexpr = block.shape[0]
    return tl.permute(tl.reshape(block, (rows, block.shape[1] // 32, 32)), (1, 0, 2))


# `tl.reshape` gives a block another shape. `tl.permute` reorders its dimensions, as in PyTorch.
@triton.jit
def rows_by_rows(a, b, INPUT_PRECISION: tl.constexpr):
    if a.dtype == tl.float32 and INPUT_PRECISION == "ieee" and a.shape[1] > 32:
        products = tl.dot(parts_of_32(a), tl.permute(parts_of_32(b), (0, 2, 1)), input_precision=INPUT_PRECISION)
        total = tl.sum(products, axis=0)
    else:
        total = tl.dot(a, tl.trans(b), input_precision=INPUT_PRECISION)
    return total


# "ieee" multiplies float32 numbers in full precision; TF32 keeps 10 of the 23 fraction bits of each factor: tensor
# cores can multiply that, and the rounding is 2¹³ times coarser. So it is used only if PyTorch's settings allow it. For
# 16-bit factors it makes no difference.
def input_precision():
    return "tf32" if device.tf32_allowed() else "ieee"


# ## A tile of the product
#
# The loop that matmul_blocked explains line by line, for kernels that have something else to say: the sums of the rows
# `offs_m` and the columns `offs_n`, in float32.
@triton.jit
def tile_of_product(
    a_ptr, b_ptr,  # (M, K), (K, N)
    offs_m, offs_n, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    INPUT_PRECISION: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    offs_k = tl.arange(0, BLOCK_K).to(tl.int64)
    m_mask = offs_m < M
    n_mask = offs_n < N
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
    acc = tl.zeros((offs_m.shape[0], offs_n.shape[0]), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        k_mask = offs_k < K - k * BLOCK_K
        a = tl.load(a_ptrs, mask=m_mask[:, None] & k_mask[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=k_mask[:, None] & n_mask[None, :], other=0.0)
        acc = multiply_add(a, b, acc, INPUT_PRECISION)
        a_ptrs += BLOCK_K * tl.cast(stride_ak, tl.int64)
        b_ptrs += BLOCK_K * tl.cast(stride_bk, tl.int64)
    return acc


# ## Checks of the arguments
#
# The factors are named as the caller names them, `contract(x=x, y=y)`, so that an error names the right argument.
def contract(*, activation=None, allowed=(None,), **factors):
    (left, a), (right, b) = factors.items()
    checks.tensors(**factors)
    checks.dtypes(**{left: a})
    checks.same_dtype(**factors)
    checks.dimensions(left, a, 2, "M, K")
    checks.dimensions(right, b, 2, "K, N")
    checks.choice("activation", activation, allowed)
    if activation is not None:  # its backward pass has programs of 256 columns
        checks.programs(right, "columns", b.shape[1], 256)
    if a.shape[1] != b.shape[0]:
        raise ValueError(
            f"{right} must have as many rows as {left} has columns, {a.shape[1]}, "
            f"got shapes {tuple(a.shape)} and {tuple(b.shape)}"
        )


# ## The gradients, two more products
#
# First the activation's own backward pass, element by element. Then [[tag: MM-X]] and [[tag: MM-Y]], for which `b.T`
# and `a.T` are views: nothing is copied. `launch_forward` is whatever multiplies in the forward pass.
def product_gradients(launch_forward, dc, a, b, saved=None, activation=None, *, needs=(True, True), **tiles):
    """`(da, db)` from the gradient `dc` of the result; `needs` says which are wanted, the other is None."""
    dz = dc if activation is None else activation_backward(dc, saved, activation)
    da = launch_forward(dz, b.T, **tiles) if needs[0] else None
    db = launch_forward(a.T, dz, **tiles) if needs[1] else None
    return da, db


# ## Joining autograd
#
# The backward pass needs both factors, saved as views, and the matrix from which the activation's slope is computed.
# For ReLU and leaky ReLU that is the result. For GELU and SiLU it is Z, which the forward pass then has to store as
# well: one more matrix of C's size. Recomputing it would turn the backward pass's two products into three. Without an
# activation nothing else is saved.
class Product(torch.autograd.Function):
    """`activation(a @ b)`, computed by two launchers:

    - `launch_forward(a, b, activation)` returns `c`; with `save_z=True`, which it gets for GELU and SiLU, `(c, z)`.
    - `launch_backward(dc, a, b, saved, activation, needs=(…, …))` returns `(da, db)`, None for what isn't needed.
      `saved` is c, z or None.
    """

    @staticmethod
    def forward(ctx, a, b, activation, launch_forward, launch_backward):
        if SAVED.get(activation) == "z":
            c, saved = launch_forward(a, b, activation, save_z=True)
        else:
            c = launch_forward(a, b, activation)
            saved = c if SAVED.get(activation) == "c" else None
        ctx.save_for_backward(a, b, saved)
        ctx.activation, ctx.launch_backward = activation, launch_backward
        return c

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dc):
        a, b, saved = ctx.saved_tensors
        da, db = ctx.launch_backward(dc, a, b, saved, ctx.activation, needs=ctx.needs_input_grad[:2])
        return da, db, None, None, None


# ## Inside torch.compile
#
# `torch.compile` first follows the Python code of a model, which is the job of its part *Dynamo*. Dynamo can follow the
# launch of a kernel, but not one with a function or a tuple among its arguments, such as these kernels' `ACTIVATION`.
# `@opaque` turns a launcher into a custom operator, which the compiler doesn't look into. While it compiles it calls
# the function `fake` instead, which only says what shape and dtype the results have. When the compiled model runs, the
# launcher is called. Outside of `torch.compile` the launcher is called directly, which is a few microseconds faster,
# and replayed.
def opaque(launch_forward):
    """Decorate a launcher `f(a, b, activation=None, *, save_z=False, **tiles)`; a compiled call ignores `tiles`."""
    launch_forward = replayed(launch_forward)
    name = f"{launch_forward.__module__.replace('.', '_')}::{launch_forward.__name__}"

    @torch.library.custom_op(name, mutates_args=())
    def operator(
        a: torch.Tensor, b: torch.Tensor, activation: str | None = None, save_z: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        result = launch_forward(a, b, activation, save_z=save_z)
        return result if save_z else (result, result.new_empty(0))

    @operator.register_fake
    def fake(a, b, activation=None, save_z=False):
        c = a.new_empty(a.shape[0], b.shape[1])
        return c, c.new_empty(c.shape if save_z else 0)

    @functools.wraps(launch_forward)
    def launcher(a, b, activation=None, *, save_z=False, **tiles):
        if not torch.compiler.is_compiling():
            return launch_forward(a, b, activation, save_z=save_z, **tiles)
        c, z = operator(a, b, activation, save_z)
        return (c, z) if save_z else c

    return launcher
