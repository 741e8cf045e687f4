r"""
# SwiGLU: one gate, two gradients

The feed-forward block of most language models multiplies two projections of its input, one of them bent by the SiLU
function:

[[eq: SwiGLU]]

The backward pass gives two gradients, [[tag: SwiGLU-gate]] and [[tag: SwiGLU-up]]. Both need the same sigmoid, and both
are built from three tensors that have to be read anyway. So one kernel does the whole forward pass and one the whole
backward pass. Written with PyTorch's own operations, the activation would go out to memory and come back in between.

**What it costs.** Forward: two numbers in, one out. Backward: three in, two out. In bfloat16 that is 6 and 10 bytes an
element for about six and twelve operations. By its data sheet an H200 does 84 operations in float32 while 6 bytes
pass. So the memory decides: the floor is `bytes / bandwidth`, and a kernel that only streams can reach it. At
8192 x 14336, on an H200, this one runs at [[bench: swiglu/8192x14336/forward/share]] of the speed of a copy forward and
[[bench: swiglu/8192x14336/backward/share]] backward: it reads more than it writes, and a copy doesn't.

**Contract.** `gate` and `up` have one shape, any number of dimensions, and one dtype: float32, float16 or bfloat16.
`swiglu_packed` takes both as the halves of one tensor, as a fused projection leaves them. Any strides: rows of any
pitch are read in place, so `chunk` and slices cost no copy; what is not contiguous within a row is copied first.
Inputs and the upstream gradient are never written to. Outputs are contiguous. One difference from PyTorch: it rounds
the activation to the tensor's dtype before it multiplies. In float16 that is 0 for gates below about −20, and an
infinite `up` makes it NaN; here the product is formed in float32, and is infinite.
"""

if __name__ == "__main__":  # run as a script: make the repository importable
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from academy import checks, device

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from academy.autograd import once_differentiable


# ## Reference
#
# The same in PyTorch. It runs in any dtype; in float64 it is what the kernels are measured against.
def swiglu_reference(gate, up):
    return F.silu(gate) * up


# The packed form: the left half of the last dimension is the gate, the right half is `up`.
def swiglu_packed_reference(x):
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate) * up


# ## The forward kernel
#
# One program does one block of one row. The rows of `gate` may lie further apart than a row is long: that is what a
# half of a packed tensor looks like. The distance from one row to the next is the *row stride*, counted in elements.
#
# In the example run `gate` and `up` are the halves of a tensor of shape (3, 10). So a row has 5 elements, but the next
# row starts 10 elements further on.


# A packed tensor of width 2000 has rows of 1000. Both are multiples of eight, so 16 bytes could be loaded at a time.
# But of an argument Triton only notices whether it is a multiple of 16. It does understand arithmetic: a quotient times
# eight is a multiple of eight.
@triton.jit
def as_multiple(number, VECTOR: tl.constexpr):
    return number // VECTOR * VECTOR


# The grid has one dimension, because only that one may hold more than 65,535 programs. The row becomes int64 before it
# meets a stride, and the block before it is multiplied by its size: past 2³¹ elements a 32-bit product would wrap.
#
# Contiguous tensors are one long row (see "Rows, without copying"), which needs no division. A GPU has no instruction
# for dividing whole numbers; the compiler makes it of a few dozen others, and no load can start before they are done.
# Leaving the division out took the forward pass with 32768 rows of 768 from
# [[bench: swiglu/ladder/16-byte loads/rows_of_768_forward_ms]] to
# [[bench: swiglu/ladder/final/rows_of_768_forward_ms]].
@triton.jit
def block_of_program(pid, n_cols, BLOCK: tl.constexpr, ONE_ROW: tl.constexpr):
    if ONE_ROW:
        row = 0
        block = pid.to(tl.int64)
    else:
        blocks_per_row = tl.cdiv(n_cols, BLOCK)
        row = (pid // blocks_per_row).to(tl.int64)
        block = (pid % blocks_per_row).to(tl.int64)
    return row, block


@triton.jit
def swiglu_forward_kernel(
    gate_ptr,
    up_ptr,
    out_ptr,
    stride_gate,
    stride_up,
    n_cols,
    BLOCK: tl.constexpr,
    VECTOR: tl.constexpr,
    ONE_ROW: tl.constexpr,
):
    # One instruction may load several neighbours if all rows begin and end at a multiple of that many. The compiler
    # has to know: what comes out of `as_multiple` is a multiple of `VECTOR`, and unchanged, because the launcher chose
    # `VECTOR` to divide it. In the example rows of five end anywhere, `VECTOR = 1`.
    n_cols = as_multiple(n_cols, VECTOR)
    stride_gate = as_multiple(stride_gate, VECTOR)
    stride_up = as_multiple(stride_up, VECTOR)

    # Which row and which block of it are mine? Two blocks cover a row of five, so program 3 has the second block of the
    # second row: `pid=3: row = 1`, `pid=3: block = 1`.
    row, block = block_of_program(tl.program_id(0), n_cols, BLOCK, ONE_ROW)

    # Columns of this block, `pid=2: cols = [0, 1, 2, 3]` and `pid=3: cols = [4, 5, 6, 7]`. Only column 4 of the second
    # block exists. The mask switches off the rest, `mask = [1, 0, 0, 0]`: they would be the first elements of `up`.
    cols = block * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n_cols

    # Each input has its own row stride. The gate's second row is `pid=2: gate = [-1, 0, 1, 2]`.
    gate = tl.load(gate_ptr + row * stride_gate + cols, mask=mask, other=0.0).to(tl.float32)
    # And `pid=2: up = [10, 20, 30, 40]`.
    up = tl.load(up_ptr + row * stride_up + cols, mask=mask, other=0.0).to(tl.float32)

    # [[tag: SwiGLU]] in float32, rounded once by the store. For a large negative gate `exp(-gate)` is infinite and the
    # quotient is 0, as it should be. The other common form, `exp(gate) / (1 + exp(gate))`, is `inf / inf` for a large
    # positive one. At zero the sigmoid is one half: `pid=2: sigmoid = [0.269, 0.5, 0.731, 0.881]`.
    sigmoid = 1 / (1 + tl.exp(-gate))
    # The output is `pid=2: out = [-2.69, 0, 21.93, 70.46]`. It is contiguous, so its row stride is `n_cols`.
    out = gate * sigmoid * up
    tl.store(out_ptr + row * n_cols + cols, out, mask=mask)


# ## The backward kernel
#
# Nothing was saved but the inputs. The sigmoid is computed once more: a few instructions against two bytes read.
#
# The gradients go to memory of their own. Writing them over `gate` and `up` would save memory, and would ruin both for
# whoever else still needs them: a second branch of the graph, a hook, a second backward pass.


@triton.jit
def swiglu_backward_kernel(
    dout_ptr,
    gate_ptr,
    up_ptr,
    dgate_ptr,
    dup_ptr,
    stride_dout,
    stride_gate,
    stride_up,
    stride_grad,
    n_cols,
    BLOCK: tl.constexpr,
    VECTOR: tl.constexpr,
    ONE_ROW: tl.constexpr,
):
    # The same blocks as in the forward pass: `pid=5: row = 2` and `mask = [1, 0, 0, 0]`.
    n_cols = as_multiple(n_cols, VECTOR)
    stride_dout = as_multiple(stride_dout, VECTOR)
    stride_gate = as_multiple(stride_gate, VECTOR)
    stride_up = as_multiple(stride_up, VECTOR)
    stride_grad = as_multiple(stride_grad, VECTOR)
    row, block = block_of_program(tl.program_id(0), n_cols, BLOCK, ONE_ROW)
    cols = block * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n_cols

    # The upstream gradient has a stride of its own. After `.sum()` it is one number shown everywhere, and its stride
    # is 0; a kernel that assumed the layout of `out` would read outside. Here `pid=2: dout = [1, 1, 1, 1]`.
    dout = tl.load(dout_ptr + row * stride_dout + cols, mask=mask, other=0.0).to(tl.float32)
    gate = tl.load(gate_ptr + row * stride_gate + cols, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row * stride_up + cols, mask=mask, other=0.0).to(tl.float32)

    # [[tag: SwiGLU-up]]: what `up` was multiplied by, `pid=2: activation = [-0.269, 0, 0.731, 1.762]`.
    sigmoid = 1 / (1 + tl.exp(-gate))
    activation = gate * sigmoid
    dup = dout * activation

    # The gradient that reaches the activation, `pid=2: dactivation = [10, 20, 30, 40]`. float16 ends at 65504. PyTorch
    # rounds this product to the tensor's dtype, and past the end it is infinite. It is here too, so that a loss scaler
    # that looks for infinities sees the same ones. (bfloat16 reaches as far as float32.)
    dactivation = dout * up
    if up_ptr.dtype.element_ty == tl.float16:
        dactivation = dactivation.to(tl.float16).to(tl.float32)

    # [[tag: SwiGLU-gate]] with the slope of the SiLU, [[tag: SiLU]]. At zero it is one half, and it grows past one
    # before it settles there: `pid=2: slope = [0.072, 0.5, 0.928, 1.091]`.
    slope = sigmoid * (1 + gate * (1 - sigmoid))
    dgate = dactivation * slope

    # Both gradients have the same layout: two tensors, or the two halves of one packed gradient. Then its row stride is
    # that of the packed tensor, twice the width.
    tl.store(dgate_ptr + row * stride_grad + cols, dgate, mask=mask)
    tl.store(dup_ptr + row * stride_grad + cols, dup, mask=mask)


# ## Rows, without copying
#
# The kernels want rows whose elements are neighbours. If all tensors are contiguous, the whole of each is **one row**:
# no block is cut short at the end of every row, and an odd width costs nothing. Otherwise the leading dimensions are
# flattened. For a half of a packed tensor that is a view; a transposed tensor is copied.


# The result: how many rows, how many columns, the tensors, and the row stride of each.
def as_rows(*tensors):
    if all([t.is_contiguous() for t in tensors]):
        return 1, tensors[0].numel(), tensors, [0] * len(tensors)
    width = tensors[0].shape[-1]
    tensors = [t if t.stride(-1) == 1 else t.contiguous() for t in tensors]
    tensors = [t if t.dim() == 2 else t.reshape(-1, width) for t in tensors]
    return tensors[0].shape[0], width, tensors, [t.stride(0) for t in tensors]


# ## How much work is a program?
#
# A thread moves 16 bytes at a time, eight numbers in bfloat16, and a program of four warps has 128 threads. So a block
# of 1024 is one full-width load from each input. This is what the size of the load is worth, in the forward pass at
# 8192 x 14336:
#
# - PyTorch's two operations: [[bench: swiglu/ladder/eager/forward_ms]]
# - one kernel, one number a thread: [[bench: swiglu/ladder/2-byte loads/forward_ms]]
# - four numbers a thread: [[bench: swiglu/ladder/8-byte loads/forward_ms]]
# - eight numbers a thread: [[bench: swiglu/ladder/16-byte loads/forward_ms]]
#
# Larger programs don't help: with blocks of 8192 and 16 warps it is [[bench: swiglu/ladder/8192 a program/forward_ms]].
# Nor does it help to mark the loads `evict_first`, though nothing is read twice:
# [[bench: swiglu/ladder/evict_first/forward_ms]].


# `VECTOR` is the largest power of two, up to 16, that divides the length of a row and all strides. One long row needs
# no such hint: its stride is 0, and `launch` sees to its length. Shorter rows get a smaller block, and a warp for every
# 256 numbers. Where fewer than eight neighbours can be loaded at a time, loads are dearer; half the block then leaves
# fewer masked lanes to pay for.
def grid_and_tile(rows, n_cols, strides, BLOCK):
    checks.power_of_two(BLOCK=BLOCK)
    VECTOR = 1 if rows == 1 else 16
    while VECTOR > 1 and any([size % VECTOR for size in (n_cols, *strides)]):
        VECTOR //= 2
    if BLOCK is None:
        BLOCK = 1024 if rows == 1 or VECTOR >= 8 else 512
        while rows > 1 and BLOCK >= 2 * n_cols:
            BLOCK //= 2
    blocks_per_row = (n_cols + BLOCK - 1) // BLOCK
    num_warps = max(1, min(BLOCK, 1024) // 256)
    return (rows * blocks_per_row,), dict(BLOCK=BLOCK, VECTOR=VECTOR, ONE_ROW=rows == 1, num_warps=num_warps)


# ## The launchers
#
# Outputs are new and contiguous, whatever the layout of the inputs.
def swiglu_forward(gate, up, *, BLOCK=None):
    out = torch.empty_like(gate, memory_format=torch.contiguous_format)
    rows, n_cols, tensors, strides = as_rows(gate, up)
    launch(swiglu_forward_kernel, rows, n_cols, [*tensors, out], strides, BLOCK)
    return out


def swiglu_backward(dout, gate, up, *, BLOCK=None):
    dgate = torch.empty_like(gate, memory_format=torch.contiguous_format)
    dup = torch.empty_like(dgate)
    launch_backward(dout, gate, up, dgate, dup, BLOCK)
    return dgate, dup


# The packed backward pass fills one tensor, half by half. Allocating two and concatenating them would read and write
# both once more.
def swiglu_packed_backward(dout, x, *, BLOCK=None):
    dx = torch.empty_like(x, memory_format=torch.contiguous_format)
    launch_backward(dout, *x.chunk(2, dim=-1), *dx.chunk(2, dim=-1), BLOCK)
    return dx


# The last two tensors, the gradients, share their row stride.
def launch_backward(dout, gate, up, dgate, dup, BLOCK):
    rows, n_cols, tensors, strides = as_rows(dout, gate, up, dgate, dup)
    launch(swiglu_backward_kernel, rows, n_cols, tensors, strides[:-1], BLOCK)


# A long row whose length is no multiple of 16 gets two launches: one for the few elements at its end, and one for the
# whole sixteens. There Triton sees by itself that the length is a multiple of 16, and loads 16 bytes at a time.
# (`rows == 1` means contiguous, so the views cost nothing.)
def launch(kernel, rows, n_cols, tensors, strides, BLOCK):
    if n_cols == 0:
        return
    rest = n_cols % 16
    if rows == 1 and rest and n_cols > 65536:
        n_cols -= rest
        tails = [t.view(-1)[n_cols:] for t in tensors]
        launch(kernel, 1, rest, tails, strides, BLOCK)
    grid, tile = grid_and_tile(rows, n_cols, strides, BLOCK)
    kernel[grid](*tensors, *strides, n_cols, **tile)


# ## Joining autograd
#
# `once_differentiable` makes a second derivative raise an error. Without it a gradient penalty would silently lose its
# term, because autograd can't look into a kernel.
class SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate, up)
        return swiglu_forward(gate, up)

    @staticmethod
    @once_differentiable
    def backward(ctx, dout):
        return swiglu_backward(dout, *ctx.saved_tensors)


class SwiGLUPacked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return swiglu_forward(*x.chunk(2, dim=-1))

    @staticmethod
    @once_differentiable
    def backward(ctx, dout):
        return swiglu_packed_backward(dout, *ctx.saved_tensors)


def swiglu(gate, up):
    r"""`silu(gate) * up`, differentiable in both, where `silu(x) = x · sigmoid(x)`.

    Args:
        gate: tensor of any shape, float32, float16 or bfloat16, any strides.
        up: tensor of the same shape and dtype.

    Returns:
        A new contiguous tensor of the same shape and dtype.

    Raises:
        TypeError: an argument is no tensor, or has another dtype.
        ValueError: the shapes differ, or a tensor is on the wrong device.

    Source: N. Shazeer, "GLU Variants Improve Transformer" (2020), arXiv:2002.05202.
    """
    checks.tensors(gate=gate, up=up)
    checks.dtypes(gate=gate)
    checks.same_dtype(gate=gate, up=up)
    checks.same_shape(gate=gate, up=up)
    return SwiGLU.apply(gate, up)


def swiglu_packed(x):
    """`swiglu` of the two halves of the last dimension: `x[..., :h]` is the gate, `x[..., h:]` is `up`.

    The halves are read in place, and the gradient is one packed tensor.

    Args:
        x: tensor of shape (..., 2h), float32, float16 or bfloat16, any strides.

    Returns:
        A new contiguous tensor of shape (..., h) and the same dtype.

    Raises:
        TypeError: `x` is no tensor, or has another dtype.
        ValueError: the last dimension is odd or missing, or the tensor is on the wrong device.

    Source: as `swiglu`.
    """
    checks.tensors(x=x)
    checks.dtypes(x=x)
    checks.dimensions("x", x, range(1, 65), "the last one holds gate and up")
    if x.shape[-1] % 2:
        raise ValueError(f"x must have an even last dimension (gate and up side by side), got shape {tuple(x.shape)}")
    return SwiGLUPacked.apply(x)


# ## A run small enough to watch
#
# Packed, so that the row stride shows. The recorder runs this in Triton's interpreter; the numbers quoted above come
# from it. The result says which shape and dtype ran, so that `cost` can be compared with the bytes that were seen.
def EXAMPLE():
    columns = torch.arange(5, dtype=torch.float32, device=device.DEVICE)
    gate = columns - torch.tensor([[2.0], [1.0], [0.0]], device=device.DEVICE)
    x = torch.cat([gate, (10 * columns + 10).expand(3, 5)], dim=-1)
    swiglu_forward(*x.chunk(2, dim=-1), BLOCK=4)
    swiglu_packed_backward(torch.ones(3, 5, device=device.DEVICE), x, BLOCK=4)
    return dict(shape=(3, 5), dtype=torch.float32)


# ## Cost and benchmark
#
# Bytes that must move and operations that must run, per pass, for `gate` of this shape. An exponential and a division
# count as one operation each.
def cost(shape, dtype):
    n = torch.Size(shape).numel()
    size = n * dtype.itemsize
    return {
        "forward": dict(bytes_read=2 * size, bytes_written=size, operations=6 * n),
        "backward": dict(bytes_read=3 * size, bytes_written=2 * size, operations=12 * n),
    }


def bench_inputs(shape, dtype, device):
    return {name: torch.randn(shape, dtype=dtype, device=device) for name in ("gate", "up")}


def liger():
    from liger_kernel.ops.swiglu import LigerSiLUMulFunction

    return lambda gate, up: LigerSiLUMulFunction.apply(gate, up)


BENCH = dict(
    shapes=[(8192, 14336), (4096, 11008), (16384, 18432)]
    + [(32768, 768), (16384, 1000), (32768, 1536), (16384, 2880), (16384, 4097), (16384, 5120), (8192, 12288)],
    dtypes=[torch.bfloat16],
    inputs=bench_inputs,
    ours=swiglu,
    eager=swiglu_reference,
    peers={"liger-kernel": liger},
    passes=["forward", "backward"],
    differentiable=["gate", "up"],
)


def main():
    from academy import accuracy

    device.arguments(__doc__)
    report = accuracy.Report()
    for shape in ((1, 1), (7, 1000), (3, 4097)):
        for dtype in checks.FLOATS:
            gate, up, dout = (torch.randn(shape, dtype=dtype, device=device.DEVICE) for _ in range(3))
            compare(report, swiglu, swiglu_reference, dict(gate=gate, up=up), dout)
            compare(report, swiglu_packed, swiglu_packed_reference, dict(x=torch.cat([gate, up], dim=-1)), dout)
    status = report.print()
    if not device.INTERPRET:
        from academy import bench

        bench.print_speed(BENCH, cost)
    return status


# One row of the report for the output and one for each gradient: ours, PyTorch's in the same dtype, float64.
def compare(report, function, reference, inputs, dout):
    results = []
    for run, dtype in ((function, dout.dtype), (reference, dout.dtype), (reference, torch.float64)):
        leaves = [value.detach().to(dtype).requires_grad_() for value in inputs.values()]
        out = run(*leaves)
        results.append([out, *torch.autograd.grad(out, leaves, dout.to(dtype))])
    for name, *values in zip(["out", *(f"d{name}" for name in inputs)], *results):
        report.compare(name, f"{function.__name__} {tuple(dout.shape)}", *values)


if __name__ == "__main__":
    sys.exit(main())
