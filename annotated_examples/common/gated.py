r"""
# Gated units: everything but the activation

A gated unit applies an activation to one tensor, the gate, and multiplies the result by another:
`activation(gate) · up`. SwiGLU and GeGLU differ only in the activation. Everything else is here: which elements a
program takes, how tensors with any strides become rows, the launch, the contract, and the autograd functions, each for
two tensors and for one that holds both halves.
"""

from academy.runtime import autograd, checks
from academy.runtime.launch import cdiv
from academy.runtime.launch import launch as launch_kernel
from academy.runtime.replay import replayed

import torch
import triton
import triton.language as tl

from annotated_examples.common.rows import as_rows


# ## In the kernels
#
# The first dimension of the grid counts the blocks along a row, the other two the rows. So a program gets its row
# without a division. A GPU has no instruction for integer division; the compiler uses some twenty others, and the loads
# would have to wait for them. Rows need two dimensions, because each of them is limited to 65,535 programs. With more
# rows than that, programs at the end have no row, up to half of all, and the mask switches them off.


# Which elements are mine? Both numbers become int64 before they are multiplied: past 2³¹ elements a 32-bit product
# would wrap. Contiguous tensors are one row, see below. Its number, 0, is known when the kernel is compiled, so the
# compiler drops all arithmetic with it. `VECTOR` is explained next.
@triton.jit
def block_of_row(M, N, BLOCK_N: tl.constexpr, VECTOR: tl.constexpr, ONE_ROW: tl.constexpr):
    offs_n = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = offs_n < N // VECTOR * VECTOR
    if ONE_ROW:
        row = 0
    else:
        row = tl.program_id(1).to(tl.int64) + tl.program_id(2) * tl.num_programs(1)
        mask = mask & (row < M)
    return row, offs_n, mask


# Where a row begins. One instruction can load several neighbours, up to 16 bytes, if every row begins and ends at a
# multiple of that many, and if the compiler knows this. It notices by itself when an argument is a multiple of 16, but
# a packed tensor of width 2000 has rows of 1000, a multiple of 8. It does understand arithmetic, though: a quotient
# times 8 is a multiple of 8. So if all lengths and strides are multiples of 8, but not all of 16, `VECTOR` is 8, and
# otherwise 1. It never changes a result.
@triton.jit
def row_start(row, stride, VECTOR: tl.constexpr):
    return row * (stride // VECTOR * VECTOR)


# The largest float16 is 65504. PyTorch rounds each step of a gradient to the tensor's dtype, so a larger value becomes
# infinite. It does here as well, and a loss scaler that looks for infinities sees the same ones. (bfloat16 has the
# range of float32.)
@triton.jit
def overflow_as(value, dtype: tl.constexpr):
    if dtype == tl.float16:
        value = value.to(tl.float16).to(tl.float32)
    return value


# ## Rows, without copying
#
# If all tensors are contiguous, the whole of each is **one row**: blocks aren't cut short at the ends of rows, and an
# odd width costs nothing. Otherwise the last dimension is a row. The halves of a packed tensor need no copy: their rows
# are merely further apart than they are long. A transposed tensor is copied.
def launch(kernel, tensors, BLOCK_N=None, **constants):
    checks.power_of_two(BLOCK_N=BLOCK_N)
    if tensors[0].numel() == 0:
        return
    if all([t.is_contiguous() for t in tensors]):
        launch_rows(kernel, 1, tensors[0].numel(), tensors, BLOCK_N, constants)
    else:
        tensors = [as_rows(t) for t in tensors]
        launch_rows(kernel, *tensors[0].shape, tensors, BLOCK_N, constants)


# ## The launch
#
# If there is one long row and its length isn't a multiple of 16, its last few elements get a launch of their own, so
# that the others can be loaded 16 bytes at a time.
#
# A thread loads 16 bytes at a time, eight numbers in bfloat16, and four warps have 128 threads. So a block of 1024 is
# one full-width load from each input. Shorter rows get a smaller block, and a warp for every 256 numbers.
def launch_rows(kernel, M, N, tensors, BLOCK_N, constants, *, most_rows=65_535, long_row=65_536):
    if M == 1 and N > long_row and N % 16:
        rest = N % 16
        N -= rest
        launch_rows(kernel, 1, rest, [t.view(-1)[N:] for t in tensors], BLOCK_N, constants)

    strides = [t.stride(0) if M > 1 else 0 for t in tensors]
    sizes = [N, *strides]
    VECTOR = 8 if any([size % 16 for size in sizes]) and not any([size % 8 for size in sizes]) else 1
    if BLOCK_N is None:
        BLOCK_N = 1024
        while BLOCK_N >= 2 * N:
            BLOCK_N //= 2
    num_warps = max(1, min(BLOCK_N, 1024) // 256)
    constants = dict(constants, BLOCK_N=BLOCK_N, VECTOR=VECTOR, ONE_ROW=M == 1)
    # Rounded up. `triton.cdiv` does the same, but spends microseconds on checking for constexpr arguments.
    grid = (cdiv(N, BLOCK_N), min(M, most_rows), cdiv(M, most_rows))
    launch_kernel(kernel, grid, tensors, (*strides, M, N), **constants, num_warps=num_warps)


# The two passes. Outputs are new and contiguous, whatever the layout of the inputs. Writing the gradients over `gate`
# and `up` would save memory, and break everything else that needs them: another branch of the graph, a hook, a second
# backward pass.
@replayed
def forward(kernel, gate, up, BLOCK_N=None, **constants):
    out = torch.empty_like(gate, memory_format=torch.contiguous_format)
    launch(kernel, [gate, up, out], BLOCK_N, **constants)
    return out


@replayed
def backward(kernel, dout, gate, up, BLOCK_N=None, **constants):
    dgate = torch.empty_like(gate, memory_format=torch.contiguous_format)
    dup = torch.empty_like(dgate)
    launch(kernel, [dout, gate, up, dgate, dup], BLOCK_N, **constants)
    return dgate, dup


# The gradient of a packed tensor is one tensor, whose halves are filled directly. Allocating two tensors and
# concatenating them would read and write both once more.
@replayed
def packed_backward(kernel, dout, x, BLOCK_N=None, **constants):
    dx = torch.empty_like(x, memory_format=torch.contiguous_format)
    launch(kernel, [dout, *x.chunk(2, dim=-1), *dx.chunk(2, dim=-1)], BLOCK_N, **constants)
    return dx


# ## The contract
def pair_contract(gate, up):
    checks.tensors(gate=gate, up=up)
    checks.dtypes(gate=gate)
    checks.same_dtype(gate=gate, up=up)
    checks.same_shape(gate=gate, up=up)


def packed_contract(x):
    checks.tensors(x=x)
    checks.dtypes(x=x)
    checks.dimensions("x", x, range(1, 65), "the last one holds gate and up")
    if x.shape[-1] % 2:
        raise ValueError(f"x must have an even last dimension (gate and up side by side), got shape {tuple(x.shape)}")


# ## Joining autograd
#
# The launchers are arguments, and `options` are what both take in addition, such as GeGLU's form. Only the inputs are
# saved. `once_differentiable` makes a second derivative raise an error. Without it a gradient penalty would silently
# lose its term, because autograd can't look into a kernel.
class GatedUnit(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up, launch_forward, launch_backward, *options):
        ctx.save_for_backward(gate, up)
        ctx.launch_backward, ctx.options = launch_backward, options
        return launch_forward(gate, up, *options)

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dout):
        gradients = ctx.launch_backward(dout, *ctx.saved_tensors, *ctx.options)
        return *gradients, None, None, *[None for _ in ctx.options]


class PackedGatedUnit(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, launch_forward, launch_backward, *options):
        ctx.save_for_backward(x)
        ctx.launch_backward, ctx.options = launch_backward, options
        return launch_forward(*x.chunk(2, dim=-1), *options)

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dout):
        dx = ctx.launch_backward(dout, *ctx.saved_tensors, *ctx.options)
        return dx, None, None, *[None for _ in ctx.options]
