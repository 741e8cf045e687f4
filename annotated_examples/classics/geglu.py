r"""
# GeGLU: exact and approximate

The gated feed-forward block again, this time with GELU as the activation. GELU multiplies its input by the probability
that a normally distributed number is smaller:

[[eq: GeGLU]]

The probability is an error function. Many models replace it by a hyperbolic tangent, which differs by less than a
thousandth:

[[eq: GeGLU-tanh]]

The gradients are [[tag: GeGLU-gate]] and [[tag: GeGLU-up]], and for the approximation [[tag: GeGLU-tanh-gate]] and
[[tag: GeGLU-tanh-up]]. A model has to be run with the form it was trained with: the two are close, and not the same.

**What it costs.** Forward: two numbers in, one out. Backward: three in, two out. In bfloat16 that is 6 and 10 bytes an
element. By its data sheet an H200 does 84 operations in float32 while 6 bytes pass. That counts a multiply-add as two,
so it is 42 instructions, and addresses and conversions take their share of them. The exact form with a library's `erf`
needs more. So this file has an error function of its own.

**Contract.** `gate` and `up` have one shape, any number of dimensions, and one dtype: float32, float16 or bfloat16.
`geglu_packed` takes both as the halves of one tensor, as a fused projection leaves them. Any strides: rows of any
pitch are read in place, so `chunk` and slices cost no copy; what is not contiguous within a row is copied first.
Inputs and the upstream gradient are never written to. Outputs are contiguous. One difference from PyTorch: for negative
gates below about −5 its activation rounds to 0 early, and an infinite `up` makes that NaN; here the activation keeps
its small value down to about −13, and the product is infinite.
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
def geglu_reference(gate, up, approximate="none"):
    return F.gelu(gate, approximate=approximate) * up


# The packed form: the left half of the last dimension is the gate, the right half is `up`.
def geglu_packed_reference(x, approximate="none"):
    gate, up = x.chunk(2, dim=-1)
    return F.gelu(gate, approximate=approximate) * up


# ## The weight that GELU gives its input
#
# Both forms are `gelu(x) = x · weight(x)`, with a weight that climbs from 0 to 1. By the product rule the slope of GELU
# is `weight + x · weight'`. So all that the kernels have to know of either form is the weight and its slope.

# ### Exact
#
# The weight is the normal distribution function, [[tag: GELU-weight]]. Computed as `(1 + erf(x / √2)) / 2` it would
# lose its digits for negative `x`: five to the left of zero the error function is within a millionth of −1, and the
# sum keeps one digit of seven. So the *tail* is computed instead, what the weight still lacks to 1 at `|x|`. On the
# negative side the tail is the weight itself.
#
# The tail falls like the density `exp(-x²/2)`. Their quotient is a tame function: in `t = 1 / (1 + 0.3 · |x|)` it is a
# polynomial of degree eight, with a relative error below two in ten million for every `x`. The form is that of
# Hastings ("Approximations for Digital Computers", 1955; Abramowitz and Stegun, 7.1.26). The coefficients here were
# fitted afresh, for the least relative error of the tail; a test measures it. The formula takes one exponential and one
# division, and the backward pass needs the same exponential for the slope.
#
# Here instructions count, because the memory leaves time for so few. The forward pass at 8192 x 14336 in bfloat16:
#
# - PyTorch's two operations: [[bench: geglu/ladder/exact: eager/forward_ms]]
# - one kernel with the library's `erf`: [[bench: geglu/ladder/exact: library erf/forward_ms]]
# - with the polynomial: [[bench: geglu/ladder/exact: polynomial/forward_ms]]
# - with `exp2` for `exp`: [[bench: geglu/ladder/exact: exp2/forward_ms]]
# - with a reciprocal square root for the division: [[bench: geglu/ladder/exact: final/forward_ms]]
#
# The last one is the time that the memory needs: the cheaper tanh form takes
# [[bench: geglu/ladder/tanh: final/forward_ms]].


# Two results: the weight at `x`, and its slope there. Nothing is loaded or stored here.
@triton.jit
def weight_exact(x):
    # `exp2` is an instruction of the hardware. `exp` would multiply by log₂(e) first, and take a detour for results too
    # small for a normal float32. Here the factor is part of the constant, log₂(e) / 2, and a tail that small may be 0.
    # The slope of the weight is the normal density; [[tag: GELU]] uses it. In the example's second row it is
    # `pid=2: slope = [0.242, 0.399, 0.242, 0.054]`.
    exponential = tl.exp2(-0.7213475204444817 * x * x)
    slope = 0.3989422804014327 * exponential

    # At zero `t` is one, and far out it goes to zero, as the exponential does: an infinite `x` has no tail. In between,
    # `pid=2: t = [0.769, 1, 0.769, 0.625]`. A division would take eight instructions, a reciprocal square root is one.
    y = 1 + 0.3 * tl.abs(x)
    t = tl.rsqrt(y * y)

    # The polynomial, by Horner's rule: a multiply-add a line, and each of them is one instruction.
    p = 0.035674791783094406 * t - 0.15720313787460327
    p = p * t + 0.20635360479354858
    p = p * t - 0.05368373170495033
    p = p * t + 0.12856167554855347
    p = p * t + 0.09991347789764404
    p = p * t + 0.12075395882129669
    p = p * t + 0.11962930113077164
    # Half of the probability lies beyond zero: `pid=2: tail = [0.159, 0.5, 0.159, 0.0228]`.
    tail = exponential * (p * t)

    # The weight is the tail on the left, and what it lacks to 1 on the right:
    # `pid=2: weight = [0.159, 0.5, 0.841, 0.977]`.
    weight = tl.where(x < 0, tail, 1 - tail)
    return weight, slope


# ### Approximate
#
# Here the weight is `(1 + tanh(z)) / 2`. That is a sigmoid of `2z`, [[tag: GELU-tanh-weight]]: no digits are lost for
# negative `x`, where the tangent is next to −1, and one exponential does the work of the library's `tanh`. In the
# forward pass that is [[bench: geglu/ladder/tanh: final/forward_ms]] instead of
# [[bench: geglu/ladder/tanh: library tanh/forward_ms]].
# The slope is that of a sigmoid, `weight · (1 - weight)`, times the slope of `2z`; [[tag: GELU-tanh]] uses it.


@triton.jit
def weight_tanh(x):
    # The first constant is 2 √(2/π), because the sigmoid wants `2z`; the cubic coefficient is the paper's, and in the
    # slope three times that.
    double_z = 1.5957691216057308 * x * (1 + 0.044715 * x * x)
    double_z_slope = 1.5957691216057308 * (1 + 0.134145 * x * x)
    weight = 1 / (1 + tl.exp(-double_z))
    slope = weight * (1 - weight) * double_z_slope
    return weight, slope


# ## The forward kernel
#
# One program does one block of one row. The rows of `gate` may lie further apart than a row is long: that is what a
# half of a packed tensor looks like. The distance from one row to the next is the *row stride*, counted in elements.
#
# In the example run `gate` and `up` are the halves of a tensor of shape (3, 10). So a row has 5 elements, but the next
# row starts 10 elements further on.
#
# `TANH` is a constexpr: the compiler makes two kernels of this one, and neither contains the other's formula.


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
# What that is worth was measured with [SwiGLU](swiglu.py), whose blocks are the same.
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
def geglu_forward_kernel(
    gate_ptr,
    up_ptr,
    out_ptr,
    stride_gate,
    stride_up,
    n_cols,
    TANH: tl.constexpr,
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

    # [[tag: GeGLU]] or [[tag: GeGLU-tanh]], in float32, rounded once by the store. The example runs the exact form:
    # `pid=2: out = [-1.587, 0, 25.24, 78.18]`.
    if TANH:
        weight, _ = weight_tanh(gate)
    else:
        weight, _ = weight_exact(gate)
    out = gate * weight * up
    # The output is contiguous, so its row stride is `n_cols`.
    tl.store(out_ptr + row * n_cols + cols, out, mask=mask)


# ## The backward kernel
#
# Nothing was saved but the inputs. The weight is computed once more: a few instructions against two bytes read.
#
# The gradients go to memory of their own. Writing them over `gate` and `up` would save memory, and would ruin both for
# whoever else still needs them: a second branch of the graph, a hook, a second backward pass.


@triton.jit
def geglu_backward_kernel(
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
    TANH: tl.constexpr,
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

    if TANH:
        weight, weight_slope = weight_tanh(gate)
    else:
        weight, weight_slope = weight_exact(gate)

    # [[tag: GeGLU-up]], [[tag: GeGLU-tanh-up]]: what `up` was multiplied by,
    # `pid=2: activation = [-0.159, 0, 0.841, 1.954]`.
    activation = gate * weight
    dup = dout * activation

    # The gradient that reaches the activation, `pid=2: dactivation = [10, 20, 30, 40]`. float16 ends at 65504. PyTorch
    # rounds this product to the tensor's dtype, and past the end it is infinite. It is here too, so that a loss scaler
    # that looks for infinities sees the same ones. (bfloat16 reaches as far as float32.)
    dactivation = dout * up
    if up_ptr.dtype.element_ty == tl.float16:
        dactivation = dactivation.to(tl.float16).to(tl.float32)

    # [[tag: GeGLU-gate]], [[tag: GeGLU-tanh-gate]]. The slope is one half at zero and falls below it on the left, where
    # GELU goes down before it comes up to zero: `pid=2: slope = [-0.083, 0.5, 1.083, 1.085]`.
    slope = weight + gate * weight_slope
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
# of 1024 is one full-width load from each input.


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
def geglu_forward(gate, up, approximate="none", *, BLOCK=None):
    out = torch.empty_like(gate, memory_format=torch.contiguous_format)
    rows, n_cols, tensors, strides = as_rows(gate, up)
    launch(geglu_forward_kernel, rows, n_cols, [*tensors, out], strides, BLOCK, approximate == "tanh")
    return out


def geglu_backward(dout, gate, up, approximate="none", *, BLOCK=None):
    dgate = torch.empty_like(gate, memory_format=torch.contiguous_format)
    dup = torch.empty_like(dgate)
    launch_backward(dout, gate, up, dgate, dup, approximate, BLOCK)
    return dgate, dup


# The packed backward pass fills one tensor, half by half. Allocating two and concatenating them would read and write
# both once more.
def geglu_packed_backward(dout, x, approximate="none", *, BLOCK=None):
    dx = torch.empty_like(x, memory_format=torch.contiguous_format)
    launch_backward(dout, *x.chunk(2, dim=-1), *dx.chunk(2, dim=-1), approximate, BLOCK)
    return dx


# The last two tensors, the gradients, share their row stride.
def launch_backward(dout, gate, up, dgate, dup, approximate, BLOCK):
    rows, n_cols, tensors, strides = as_rows(dout, gate, up, dgate, dup)
    launch(geglu_backward_kernel, rows, n_cols, tensors, strides[:-1], BLOCK, approximate == "tanh")


# A long row whose length is no multiple of 16 gets two launches: one for the few elements at its end, and one for the
# whole sixteens. There Triton sees by itself that the length is a multiple of 16, and loads 16 bytes at a time.
# (`rows == 1` means contiguous, so the views cost nothing.)
def launch(kernel, rows, n_cols, tensors, strides, BLOCK, TANH):
    if n_cols == 0:
        return
    rest = n_cols % 16
    if rows == 1 and rest and n_cols > 65536:
        n_cols -= rest
        tails = [t.view(-1)[n_cols:] for t in tensors]
        launch(kernel, 1, rest, tails, strides, BLOCK, TANH)
    grid, tile = grid_and_tile(rows, n_cols, strides, BLOCK)
    kernel[grid](*tensors, *strides, n_cols, TANH=TANH, **tile)


# ## Joining autograd
#
# `once_differentiable` makes a second derivative raise an error. Without it a gradient penalty would silently lose its
# term, because autograd can't look into a kernel.
class GeGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up, approximate):
        ctx.save_for_backward(gate, up)
        ctx.approximate = approximate
        return geglu_forward(gate, up, approximate)

    @staticmethod
    @once_differentiable
    def backward(ctx, dout):
        return *geglu_backward(dout, *ctx.saved_tensors, ctx.approximate), None


class GeGLUPacked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, approximate):
        ctx.save_for_backward(x)
        ctx.approximate = approximate
        return geglu_forward(*x.chunk(2, dim=-1), approximate)

    @staticmethod
    @once_differentiable
    def backward(ctx, dout):
        return geglu_packed_backward(dout, *ctx.saved_tensors, ctx.approximate), None


def geglu(gate, up, approximate="none"):
    r"""`gelu(gate) * up`, differentiable in both.

    Args:
        gate: tensor of any shape, float32, float16 or bfloat16, any strides.
        up: tensor of the same shape and dtype.
        approximate: `"none"` for the exact form with the error function, `"tanh"` for the approximation.

    Returns:
        A new contiguous tensor of the same shape and dtype.

    Raises:
        TypeError: an argument is no tensor, or has another dtype.
        ValueError: the shapes differ, a tensor is on the wrong device, or `approximate` is neither of the two.

    Source: D. Hendrycks and K. Gimpel, "Gaussian Error Linear Units" (2016), arXiv:1606.08415; N. Shazeer, "GLU
    Variants Improve Transformer" (2020), arXiv:2002.05202.
    """
    checks.tensors(gate=gate, up=up)
    checks.dtypes(gate=gate)
    checks.same_dtype(gate=gate, up=up)
    checks.same_shape(gate=gate, up=up)
    checks.choice("approximate", approximate, ("none", "tanh"))
    return GeGLU.apply(gate, up, approximate)


def geglu_packed(x, approximate="none"):
    """`geglu` of the two halves of the last dimension: `x[..., :h]` is the gate, `x[..., h:]` is `up`.

    The halves are read in place, and the gradient is one packed tensor.

    Args:
        x: tensor of shape (..., 2h), float32, float16 or bfloat16, any strides.
        approximate: as for `geglu`.

    Returns:
        A new contiguous tensor of shape (..., h) and the same dtype.

    Raises:
        TypeError: `x` is no tensor, or has another dtype.
        ValueError: the last dimension is odd or missing, the tensor is on the wrong device, or `approximate` is
            neither `"none"` nor `"tanh"`.

    Source: as `geglu`.
    """
    checks.tensors(x=x)
    checks.dtypes(x=x)
    checks.dimensions("x", x, range(1, 65), "the last one holds gate and up")
    if x.shape[-1] % 2:
        raise ValueError(f"x must have an even last dimension (gate and up side by side), got shape {tuple(x.shape)}")
    checks.choice("approximate", approximate, ("none", "tanh"))
    return GeGLUPacked.apply(x, approximate)


# ## A run small enough to watch
#
# Packed, so that the row stride shows, and exact. The recorder runs this in Triton's interpreter; the numbers quoted
# above come from it. The result says which shape and dtype ran, so that `cost` can be compared with the bytes seen.
def EXAMPLE():
    columns = torch.arange(5, dtype=torch.float32, device=device.DEVICE)
    gate = columns - torch.tensor([[2.0], [1.0], [0.0]], device=device.DEVICE)
    x = torch.cat([gate, (10 * columns + 10).expand(3, 5)], dim=-1)
    geglu_forward(*x.chunk(2, dim=-1), BLOCK=4)
    geglu_packed_backward(torch.ones(3, 5, device=device.DEVICE), x, BLOCK=4)
    return dict(shape=(3, 5), dtype=torch.float32)


# ## Cost and benchmark
#
# Bytes that must move and operations that must run, per pass, for `gate` of this shape, in the exact form. An
# exponential and a division count as one operation each, a multiply-add as two.
def cost(shape, dtype):
    n = torch.Size(shape).numel()
    size = n * dtype.itemsize
    return {
        "forward": dict(bytes_read=2 * size, bytes_written=size, operations=27 * n),
        "backward": dict(bytes_read=3 * size, bytes_written=2 * size, operations=32 * n),
    }


def bench_inputs(shape, dtype, device):
    return {name: torch.randn(shape, dtype=dtype, device=device) for name in ("gate", "up")}


def geglu_tanh(gate, up):
    return geglu(gate, up, approximate="tanh")


def geglu_tanh_reference(gate, up):
    return geglu_reference(gate, up, approximate="tanh")


# liger-kernel has the tanh form only.
def liger():
    from liger_kernel.ops.geglu import LigerGELUMulFunction

    return lambda gate, up: LigerGELUMulFunction.apply(gate, up)


BENCH = dict(
    shapes=[(8192, 14336), (4096, 11008), (16384, 18432)]
    + [(32768, 768), (16384, 1000), (32768, 1536), (16384, 2880), (16384, 4097), (16384, 5120), (8192, 12288)],
    dtypes=[torch.bfloat16],
    inputs=bench_inputs,
    ours=geglu,
    eager=geglu_reference,
    passes=["forward", "backward"],
    differentiable=["gate", "up"],
    variants={
        "exact": {},
        "tanh": dict(ours=geglu_tanh, eager=geglu_tanh_reference, peers={"liger-kernel": liger}),
    },
)


def main():
    from academy import accuracy

    device.arguments(__doc__)
    report = accuracy.Report()
    for shape in ((1, 1), (3, 4097)):
        for dtype in checks.FLOATS:
            gate, up, dout = (torch.randn(shape, dtype=dtype, device=device.DEVICE) for _ in range(3))
            for approximate in ("none", "tanh"):
                inputs = dict(gate=gate, up=up)
                compare(report, geglu, geglu_reference, inputs, dout, approximate)
                inputs = dict(x=torch.cat([gate, up], dim=-1))
                compare(report, geglu_packed, geglu_packed_reference, inputs, dout, approximate)
    status = report.print()
    if not device.INTERPRET:
        from academy import bench

        bench.print_speed(BENCH, cost)
    return status


# One row of the report for the output and one for each gradient: ours, PyTorch's in the same dtype, float64.
def compare(report, function, reference, inputs, dout, approximate):
    results = []
    for run, dtype in ((function, dout.dtype), (reference, dout.dtype), (reference, torch.float64)):
        leaves = [value.detach().to(dtype).requires_grad_() for value in inputs.values()]
        out = run(*leaves, approximate)
        results.append([out, *torch.autograd.grad(out, leaves, dout.to(dtype))])
    for name, *values in zip(["out", *(f"d{name}" for name in inputs)], *results):
        report.compare(name, f"{function.__name__} {approximate} {tuple(dout.shape)}", *values)


if __name__ == "__main__":
    sys.exit(main())
