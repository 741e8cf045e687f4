r"""
# A linear layer in eight bits, forward and backward

Training a linear layer takes three products:

[[eq: FL-Y]]

[[eq: FL-dX]]

[[eq: FL-dW]]

The factors $1 + a$, $1 + b$ and so on are what rounding to eight bits does to each operand. All three products are of
*quantized* operands, so the tensor cores may run at the rate of eight bits. The gradient of the bias, [[tag: FL-db]],
is a sum of unquantized numbers.

**Which scale for which operand?** [scaled_matmul](scaled_matmul.py) has the rule: a scale may vary along a dimension
that the product keeps, or from block to block of the one that it sums. Each matrix takes part in two products, and what
one keeps the other sums. So codes that are right for Y, with a scale for each row of `x`, can't be used for dW, which
sums over these rows. They are made again, with a scale for each *column*, from the numbers themselves: from codes, they
would be rounded twice.

| recipe | `x` and `weight` in Y | dY and `weight` in dX | dY and `x` in dW |
|---|---|---|---|
| `"tensor"` | one scale each | one each | one each |
| `"row"` | rows, rows | rows, columns | columns, columns |
| `"row_gw_hp"` | rows, rows | rows, one | bfloat16: not quantized |
| `"block"` | 1x128, 128x128 | 1x128, 128x128 | 128x1, 128x1 |

[[figure: fp8/operands]]

With `"tensor"`, dY is `e5m2`: gradients differ by many orders of magnitude, and one scale has to serve all of them.
The other recipes have scales close by, and can afford `e4m3`, which has one more bit of precision. Scales of rows are
powers of two, so that multiplying by them rounds nothing. The sums of Y may stay in the tensor cores; those of
gradients are promoted, and in `"block"` all are.

**A scale from earlier steps.** To quantize with one scale a tensor has to be read twice: once for its largest
magnitude, once to round. [float8_linear_delayed](#the-scale-of-an-earlier-step) takes the scale from what the last
steps have seen, [[tag: FL-scale]], and reads it once.

**What it costs.** `6 · M · N · K` operations, at the rate of eight bits, and what comes before each product. With one
scale for all, `x`, `weight` and dY are each read twice and become codes: five bytes an element in bfloat16. For the
backward pass codes are [turned](../common/transposed.py), a byte each way. A scale for each *column* needs the numbers
themselves turned, two bytes each way, and quantized once more. At 8192 in each direction, forward and backward, in a
CUDA graph, `"tensor"` takes [[bench: linear/ladder/tensor/8192_ms]], `"row"` [[bench: linear/ladder/row/8192_ms]],
`"row_gw_hp"` [[bench: linear/ladder/row_gw_hp/8192_ms]], `"block"` [[bench: linear/ladder/block/8192_ms]], and
bfloat16, where nothing is quantized, [[bench: linear/ladder/bfloat16/8192_ms]].

**Where it falls behind.** A smaller layer gains less: at 4096 `"tensor"` takes
[[bench: linear/ladder/tensor/4096_ms]], `"block"` [[bench: linear/ladder/block/4096_ms]] and bfloat16
[[bench: linear/ladder/bfloat16/4096_ms]]. And a layer has some fifteen launches. Where it isn't large, and not captured
in a graph, Python needs longer for them than the GPU for the work. At 1000 x 3000 x 5000, where rows aren't aligned to
16 bytes either, `"row"` takes [[bench: linear:row/1000x3000x5000/forward+backward/ms]], and bfloat16, compiled,
[[bench: linear:row/1000x3000x5000/forward+backward/torch.compile.ms]].

**Contract.** `x` (…, K), `weight` (N, K) and `bias` (N,) have the same dtype, float32, float16 or bfloat16, and any
strides. No size has to be a multiple of anything. What is kept for the backward pass is `x` and `weight`, as they are;
with `"tensor"` it is the codes of both, and `weight`. The gradient is what the three formulas say: neither the
derivative of rounding, which is zero, nor that of the scales plays a part. A NaN makes its group NaN, and with it every
sum that the group is part of.
"""

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch
import triton
import triton.language as tl

from annotated_examples.common.fp8 import LARGEST, eps_of_sums, format_contract, magnitude_bits, scale_of, to_fp8
from annotated_examples.common.seeds import seed_contract, seed_tensor, seeded
from annotated_examples.common.transposed import transposed
from annotated_examples.fast.scaled_matmul import block_scaled_matmul_forward, scaled_matmul_forward
from annotated_examples.fp8.quantize import (
    as_matrix,
    quantize_fp8_delayed_reference,
    quantize_fp8_reference,
    quantize_rows_forward,
    quantize_tensor_forward,
    quantize_tiles_forward,
)
from annotated_examples.fp8.scaled_matmul import scaled_matmul_reference

# The granularity of both operands of Y, of dX, and of dW. Each operand is a matrix whose rows the product keeps and
# whose columns it sums: where it is used transposed, it is quantized transposed.
RECIPES = {
    "tensor": (("tensor", "tensor"), ("tensor", "tensor"), ("tensor", "tensor")),
    "row": (("row", "row"), ("row", "row"), ("row", "row")),
    "row_gw_hp": (("row", "row"), ("row", "tensor"), None),
    "block": (("1x128", "128x128"), ("1x128", "128x128"), ("1x128", "1x128")),
}


# dY has a wider range than the others, and a format for it where there is one scale for all.
def gradient_format(recipe):
    return torch.float8_e5m2 if recipe == "tensor" else torch.float8_e4m3fn


def scales_are_powers(recipe, power_of_two):
    return recipe.startswith("row") if power_of_two is None else power_of_two


# ## Reference
#
# The same composition from the references of [quantize](quantize.py) and [scaled_matmul](scaled_matmul.py), in the
# precision of `x` and at least in float32. Its gradients are defined as the kernels' are.
class Reference(torch.autograd.Function):
    @staticmethod
    def product(left, right, kinds, formats, powers, scales=(None, None), use_fast_accum=False):
        precision = torch.promote_types(left.dtype, torch.float32)
        if kinds is None:
            return left.bfloat16().to(precision) @ right.bfloat16().to(precision).t()
        (a, scale_a), (b, scale_b) = (
            quantize_fp8_reference(x, kind, dtype=dtype, power_of_two=powers)
            if scale is None
            else (quantize_fp8_delayed_reference(x, scale, dtype=dtype)[0], scale)
            for x, kind, dtype, scale in zip((left, right), kinds, formats, scales)
        )
        if kinds == ("row", "tensor"):
            scale_b = scale_b.expand(len(b), 1)
        options = dict(out_dtype=precision, precision=precision, use_fast_accum=use_fast_accum)
        recipe = "block" if kinds[0] == "1x128" else kinds[0]
        return scaled_matmul_reference(a, b.t(), scale_a, scale_b.t(), recipe=recipe, **options)

    @staticmethod
    def forward(ctx, x, weight, bias, recipe, powers, scales):
        ctx.save_for_backward(x, weight)
        ctx.recipe, ctx.powers, ctx.scales = recipe, powers, scales
        e4m3 = torch.float8_e4m3fn
        kinds, fast = RECIPES[recipe][0], recipe != "block"
        y = Reference.product(as_matrix(x), weight, kinds, (e4m3, e4m3), powers, scales[:2], fast)
        return (y if bias is None else y + bias).to(x.dtype).view(*x.shape[:-1], len(weight))

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        matrix, upstream = as_matrix(x), as_matrix(dy)
        formats = gradient_format(ctx.recipe), torch.float8_e4m3fn
        _, of_dx, of_dw = RECIPES[ctx.recipe]
        of_x, of_w, of_dy = ctx.scales
        dx = Reference.product(upstream, weight.t(), of_dx, formats, ctx.powers, (of_dy, of_w)).view(x.shape)
        dw = Reference.product(upstream.t(), matrix.t(), of_dw, formats, ctx.powers, (of_dy, of_x))
        db = upstream.to(torch.promote_types(dy.dtype, torch.float32)).sum(0).to(dy.dtype)
        return dx.to(x.dtype), dw.to(weight.dtype), db if ctx.needs_input_grad[2] else None, None, None, None


def float8_linear_reference(x, weight, bias=None, *, recipe="tensor", power_of_two=None):
    return Reference.apply(x, weight, bias, recipe, scales_are_powers(recipe, power_of_two), (None,) * 3)


def float8_linear_delayed_reference(x, weight, state, bias=None):
    return Reference.apply(x, weight, bias, "tensor", False, tuple(s.current if s.steps else None for s in state))


# ## One read, two sets of codes
#
# In `"block"`, dY is needed along its rows and along its columns. A square of it fits into registers, so one read
# serves both. (A square of `weight` has one scale, whichever way it is read.)
#
# In the recorded run dY is 6 x 7, in squares of 4. Its first row begins with 0, 1, 2 and 3.
@triton.jit
def quantize_both_ways_kernel(
    x_ptr, q_ptr, qt_ptr,  # (M, N); (M, N) and (N, M), contiguous
    scale_ptr, scale_t_ptr, seed_ptr,  # (tiles along N, M) and (tiles along M, N), contiguous; one number, or None
    M, N, stride_m, stride_n, POWER_OF_TWO: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    E4M3: tl.constexpr = q_ptr.dtype.element_ty == tl.float8e4nv
    tile_m = tl.program_id(0) // tl.cdiv(N, GROUP)
    tile_n = tl.program_id(0) % tl.cdiv(N, GROUP)
    offs_m = tile_m.to(tl.int64) * GROUP + tl.arange(0, GROUP)
    offs_n = tile_n.to(tl.int64) * GROUP + tl.arange(0, GROUP)
    mask_m, mask_n = offs_m < M, offs_n < N
    mask = mask_m[:, None] & mask_n[None, :]
    x_ptrs = x_ptr + offs_m[:, None] * stride_m + offs_n[None, :] * stride_n
    x = tl.load(x_ptrs, mask=mask, other=0.0).to(tl.float32)
    bits = magnitude_bits(x)

    # Along the rows: one scale for each row of the square, stored column by column as `quantize_fp8` does. The first
    # row's largest number is 3: `pid=0: scale[0] = 0.0067`, and three times its reciprocal is the largest code.
    scale = scale_of(tl.max(bits, 1), E4M3, POWER_OF_TWO)
    tl.store(scale_ptr + tile_n.to(tl.int64) * M + offs_m, scale, mask=mask_m)
    index = offs_m[:, None] * N + offs_n[None, :]
    q = to_fp8(x * tl.div_rn(1.0, scale)[:, None], seed_ptr, index, q_ptr.dtype.element_ty)
    tl.store(q_ptr + index, q, mask=mask)

    # Along the columns: from `x` again, not from `q`, which has been rounded. What is stored is the transposed matrix,
    # so row and column change places in the index.
    scale_t = scale_of(tl.max(bits, 0), E4M3, POWER_OF_TWO)
    tl.store(scale_t_ptr + tile_m.to(tl.int64) * N + offs_n, scale_t, mask=mask_n)
    index = offs_n[None, :] * M + offs_m[:, None]
    qt = to_fp8(x * tl.div_rn(1.0, scale_t)[None, :], seed_ptr, index, q_ptr.dtype.element_ty)
    tl.store(qt_ptr + index, qt, mask=mask)


# ## Launchers
@replayed
def quantize_both_ways(x, dtype, power_of_two, seed=None, *, GROUP=128):
    """`((q, scale), (qt, scale_t))`: 1x128 of `x`, and 1x128 of its transpose."""
    checks.power_of_two(GROUP=GROUP)
    (M, N), on = x.shape, x.device
    blocks_m, blocks_n = triton.cdiv(M, GROUP), triton.cdiv(N, GROUP)
    q, qt = torch.empty((M, N), dtype=dtype, device=on), torch.empty((N, M), dtype=dtype, device=on)
    scale, scale_t = torch.empty((blocks_n, M), device=on), torch.empty((blocks_m, N), device=on)
    if x.numel() > 0:
        seed = seed_tensor(seed, on)
        quantize_both_ways_kernel[(blocks_m * blocks_n,)](
            x, q, qt, scale, scale_t, seed, M, N, *x.stride(), POWER_OF_TWO=power_of_two, GROUP=GROUP, num_warps=4
        )
    return (q, scale.t()), (qt, scale_t.t())


# An operand: codes and scales of a matrix whose columns are summed. With `across` the matrix is the transpose of `x`.
def encode(x, granularity, dtype, power_of_two, seed=None, across=False):
    if granularity == "tensor":
        q, scale, _ = quantize_tensor_forward(x, dtype, power_of_two, seed)
        return (transposed(q) if across else q), scale
    if granularity == "row":
        return quantize_rows_forward(transposed(x) if across else x.contiguous(), dtype, power_of_two, seed)
    x = x.t() if across else x
    return quantize_tiles_forward(x, dtype, power_of_two, seed, each_row=granularity == "1x128")


# `left @ right.t()`. Both operands lie along the sum in memory, which is what Hopper wants. The kernels are the
# [fast ones](../fast/scaled_matmul.py): with the lesson's, a layer in eight bits would be slower than in sixteen.
def product(left, right, kinds, out_dtype, bias=None, use_fast_accum=False):
    (a, scale_a), (b, scale_b) = left, right
    if kinds[0] == "1x128":
        return block_scaled_matmul_forward(a, b.t(), scale_a, scale_b.t(), bias, out_dtype)
    if kinds == ("row", "tensor"):
        scale_b = scale_b.expand(len(b), 1)
    return scaled_matmul_forward(a, b.t(), scale_a, scale_b.t(), bias, out_dtype, use_fast_accum)


# In `"row_gw_hp"`, dW comes from bfloat16. For a weight in bfloat16 it is PyTorch's product. Otherwise its sums are
# float32, and they are rounded once, to the dtype of `weight`.
def product_of_halves(a, b, dtype):
    if a.is_cuda and dtype != torch.bfloat16:
        return torch.mm(a, b, out_dtype=torch.float32).to(dtype)
    return a @ b if a.is_cuda else (a.float() @ b.float()).to(dtype)


# [[tag: FL-Y]]
@replayed
def linear_forward(x, weight, bias, recipe, power_of_two):
    kinds, e4m3 = RECIPES[recipe][0], torch.float8_e4m3fn
    left, right = (encode(v, kind, e4m3, power_of_two) for v, kind in zip((x, weight), kinds))
    return product(left, right, kinds, x.dtype, bias, use_fast_accum=recipe != "block")


# [[tag: FL-dX]] and [[tag: FL-dW]], each only if it is wanted. For dW both matrices are taken across: what is summed,
# the rows of a batch, has to lie in the columns.
@replayed
def linear_backward(dy, x, weight, recipe, power_of_two, seed=None, needs=(True, True)):
    """`(dx, dw)`, None for what isn't needed."""
    _, of_dx, of_dw = RECIPES[recipe]
    form, e4m3, dx, dw, along, across = gradient_format(recipe), torch.float8_e4m3fn, None, None, None, None
    if recipe == "block" and all(needs):
        along, across = quantize_both_ways(dy, form, power_of_two, seed)
    if needs[0]:
        along = along or encode(dy, of_dx[0], form, power_of_two, seed)
        dx = product(along, encode(weight, of_dx[1], e4m3, power_of_two, across=True), of_dx, x.dtype)
    if needs[1] and of_dw is None:
        dw = product_of_halves(dy.bfloat16().t(), x.bfloat16(), weight.dtype)
    elif needs[1]:
        across = across or encode(dy, of_dw[0], form, power_of_two, seed, across=True)
        dw = product(across, encode(x, of_dw[1], e4m3, power_of_two, across=True), of_dw, weight.dtype)
    return dx, dw


# [[tag: FL-db]]: a sum of what came in, in float32.
def bias_gradient(dy):
    return dy.sum(0, dtype=torch.float32).to(dy.dtype)


# ## Joining autograd
#
# `x` and `weight` are saved, because they are quantized once more. If either is changed before the backward pass,
# PyTorch notices.
class Float8Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, recipe, power_of_two, grad_seed):
        ctx.save_for_backward(x, weight)
        ctx.options = recipe, power_of_two, grad_seed
        return linear_forward(as_matrix(x), weight, bias, recipe, power_of_two).view(*x.shape[:-1], len(weight))

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        upstream, needs = as_matrix(dy), ctx.needs_input_grad
        dx, dw = linear_backward(upstream, as_matrix(x), weight, *ctx.options, needs=needs[:2])
        db = bias_gradient(upstream) if needs[2] else None
        return None if dx is None else dx.view(x.shape), dw, db, None, None, None


# ## One scale for all of a matrix
#
# Its codes are good for both products that the matrix is in. So they are made once, and they are what is saved: a byte
# for each element. With each comes the largest magnitude. `x` itself isn't kept, and may be changed afterwards.
# The weight is saved, too, so that PyTorch notices if it changes.
#
# With a `state`, [scales of earlier steps](#the-scale-of-an-earlier-step), that magnitude is recorded. `scales` are
# those three, or None where a matrix has to take its own.
def one_scale_forward(x, weight, bias, power_of_two, scales=(None, None)):
    """`(y, (q, scale, amax) of x, (q, scale, amax) of weight)`."""
    left, right = (
        quantize_tensor_forward(v, torch.float8_e4m3fn, power_of_two, scale=of) for v, of in zip((x, weight), scales)
    )
    return product(left[:2], right[:2], RECIPES["tensor"][0], x.dtype, bias, use_fast_accum=True), left, right


class OneScale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, power_of_two, grad_seed, state, scales):
        y, left, right = one_scale_forward(as_matrix(x), weight, bias, power_of_two, scales[:2])
        for scaling, (*_, amax) in zip(state, (left, right)):
            scaling.record(amax.view(torch.float32))
        ctx.save_for_backward(*left[:2], *right[:2], weight)
        ctx.shape, ctx.dependence = x.shape, autograd.dependence(x, weight)
        ctx.of_dy = (gradient_format("tensor"), power_of_two, grad_seed), scales[2], state[2:]
        return y.view(*x.shape[:-1], len(weight))

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dy):
        x, scale_x, weight, scale_w, _ = ctx.saved_tensors
        options, scale, state = ctx.of_dy
        upstream, needs, kinds, dx, dw = as_matrix(dy), ctx.needs_input_grad, RECIPES["tensor"][1], None, None
        if needs[0] or needs[1]:
            q, scale, amax = quantize_tensor_forward(upstream, *options, scale=scale)
            for scaling in state:
                scaling.record(amax.view(torch.float32))
        if needs[0]:
            dx = product((q, scale), (transposed(weight), scale_w), kinds, dy.dtype).view(ctx.shape)
        if needs[1]:
            dw = product((transposed(q), scale), (transposed(x), scale_x), kinds, dy.dtype)
        return dx, dw, bias_gradient(upstream) if needs[2] else None, None, None, None, None


# ## The scale of an earlier step
#
# A tensor of one step is much like that of the step before. So its largest magnitude is recorded while it is rounded,
# and the scale for the next step comes from the largest of the last `history` ones, [[tag: FL-scale]]. A tensor that
# outgrows all of them *saturates*: what is too large becomes the largest code. One step later the scale fits again.
#
# A **margin** of 1 keeps a factor of two in reserve, at the price of one bit at the small end.
#
# Some details have each gone wrong somewhere:
#
# - Before the first step has ended nothing is known. `scale()` is `None` then, and a tensor's own magnitude is used.
# - A step may run a layer twice: micro-batches, or activation checkpointing. `record` takes the larger one, so
#   recording the same again changes nothing. The scale changes in `step` alone, so that a layer that is run again
#   gets the very same codes.
# - A layer that didn't run in a step must not forget one: `step` does nothing unless `scale` has been asked for.
# - Nothing but zeros, infinity, NaN: there is no scale in that, so the old one is kept. (It is 1 if there is none yet.)
#   Infinity and NaN stay in the history like any other number, and for as long.
# - Nobody waits for the GPU: all that is remembered are tensors there, changed in place. They can be saved with the
#   model, and with many ranks the largest of all is one `all_reduce` away.
class DelayedScaling:
    """What is remembered of one tensor: its largest magnitudes in the last steps, and the scale that follows from them.

    Args:
        history: how many steps, from 1 on.
        margin: the scale is larger by this power of two: a whole number from -8 to 8.
        dtype: of the codes, `torch.float8_e4m3fn` or `torch.float8_e5m2`.
        device: where its tensors are.

    `history` holds the magnitudes, float32, the present step first.

    Raises:
        TypeError: `history` or `margin` isn't an int. ValueError: one of them is out of range, or `dtype` is neither.

    Source: NVIDIA's Transformer Engine, `DelayedScaling`.
    """

    def __init__(self, history=16, margin=0, *, dtype=torch.float8_e4m3fn, device=device.DEVICE):
        checks.positive(history=history)
        checks.whole_number("margin", margin, at_least=-8, at_most=8)
        checks.choice("dtype", dtype, tuple(LARGEST))
        self.dtype, self.steps, self.ran = dtype, 0, False
        self.history, self.current = torch.zeros(history, device=device), torch.ones((), device=device)
        self.divisor = torch.full((), LARGEST[dtype] / 2.0**margin, device=device)

    @classmethod
    def of_a_layer(cls, history=16, margin=0, *, device=device.DEVICE):
        """The three of a linear layer: of `x`, of `weight` and, in e5m2, of the upstream gradient."""
        formats = torch.float8_e4m3fn, torch.float8_e4m3fn, torch.float8_e5m2
        return tuple(cls(history, margin, dtype=dtype, device=device) for dtype in formats)

    def scale(self):
        """The scale of this step, float32 of shape (). None in the first step, which has to take its own."""
        self.ran = True
        return self.current if self.steps else None

    def record(self, amax):
        """A largest magnitude of this step, float32 of shape ()."""
        self.history[0].copy_(torch.maximum(self.history[0], amax))

    def step(self):
        """The step is over, backward pass included."""
        if self.ran:
            largest = self.history.max()
            fresh = (largest / self.divisor).clamp(min=2.0**-126)
            self.current.copy_(torch.where((largest > 0) & fresh.isfinite(), fresh, self.current))
            self.history.copy_(self.history.roll(1))
            self.history[0].zero_()
            self.steps, self.ran = self.steps + 1, False


# ## The public functions
def tensors_contract(function, x, weight, bias):
    checks.tensors(x=x, weight=weight)
    checks.optional_tensors(bias=bias)
    checks.dtypes(x=x)
    checks.same_dtype(x=x, weight=weight, bias=bias)
    checks.dimensions("x", x, range(1, 65))
    checks.dimensions("weight", weight, 2, "N, K")
    if weight.shape[1] != x.shape[-1]:
        raise ValueError(f"weight must have as many columns as x, {x.shape[-1]}, got shape {tuple(weight.shape)}")
    checks.shape("bias", bias, weight.shape[:1], "N")
    format_contract(torch.float8_e4m3fn, function, x.device)


def contract(x, weight, bias, recipe, power_of_two, grad_seed):
    """Raises on bad arguments."""
    tensors_contract("float8_linear", x, weight, bias)
    checks.choice("recipe", recipe, tuple(RECIPES))
    checks.choice("power_of_two", power_of_two, (None, False, True))
    if grad_seed is not None:
        seed_contract(grad_seed, x.device, "grad_seed")


@seeded
@replayed
def float8_linear(x, weight, bias=None, *, recipe="tensor", power_of_two=None, grad_seed=None):
    """`x @ weight.T + bias` of operands that are quantized to eight bits, differentiable in all three.

    Args:
        x: tensor of shape (..., K), float32, float16 or bfloat16, any strides.
        weight: tensor of shape (N, K), same dtype, any strides.
        bias: None, or a tensor of shape (N,), same dtype, any strides.
        recipe: what shares a scale: "tensor", "row", "row_gw_hp" (rows, and the gradient of the weight in bfloat16) or
            "block".
        power_of_two: whether scales are rounded up to powers of two; None: with the recipes of rows they are.
        grad_seed: None rounds the upstream gradient to nearest. An int from 0 to 2⁶³ − 1, or a 0-d int64 tensor on the
            device of `x`, rounds it stochastically.

    Returns:
        A new contiguous tensor of shape (..., N) with the dtype of `x`.

    Raises:
        TypeError: an argument isn't a tensor, or the dtypes differ or are not allowed; `grad_seed` has a wrong type.
        ValueError: shapes that don't fit, another recipe or power_of_two, a tensor on the wrong device, `grad_seed` out
            of range.
        RuntimeError: the card is older than compute capability 8.9; later, `weight` or, without "tensor", `x` changed.

    Source: recipes as in torchao's float8 training ("tensor", "row", "row_gw_hp") and in DeepSeek-AI, "DeepSeek-V3
    Technical Report" (2024), section 3.3 ("block").
    """
    contract(x, weight, bias, recipe, power_of_two, grad_seed)
    powers = scales_are_powers(recipe, power_of_two)
    if not autograd.needs_frame(x, weight, bias):
        return linear_forward(as_matrix(x), weight, bias, recipe, powers).view(*x.shape[:-1], len(weight))
    if recipe == "tensor":
        return OneScale.apply(x, weight, bias, powers, grad_seed, (), (None,) * 3)
    return Float8Linear.apply(x, weight, bias, recipe, powers, grad_seed)


def float8_linear_delayed(x, weight, state, bias=None):
    """As `float8_linear` with one scale for each tensor, taken from earlier steps.

    Where a gradient is recorded, `state` gets to know the largest magnitudes of `x` and `weight`, and in the backward
    pass that of the upstream gradient. Call `step()` of all three after each step of the optimizer.

    Args:
        x, weight, bias: as for `float8_linear`.
        state: what is remembered of `x`, `weight` and the upstream gradient, `DelayedScaling.of_a_layer()`.

    Returns:
        A new contiguous tensor of shape (..., N) with the dtype of `x`. In the first step it is that of
        `float8_linear(x, weight, bias)`.

    Raises:
        TypeError: an argument isn't a tensor, or the dtypes differ or are not allowed; `state` isn't a tuple or list of
            three `DelayedScaling`.
        ValueError: shapes that don't fit, a tensor or `state` on the wrong device, `state` of other formats.
        RuntimeError: the card is older than compute capability 8.9.

    Source: NVIDIA's Transformer Engine; Micikevicius et al., "FP8 Formats for Deep Learning" (2022).
    """
    tensors_contract("float8_linear_delayed", x, weight, bias)
    if not isinstance(state, tuple | list) or [*map(type, state)] != [DelayedScaling] * 3:
        raise TypeError(f"state must be DelayedScaling.of_a_layer(), three of them, got {type(state).__name__}")
    formats = torch.float8_e4m3fn, torch.float8_e4m3fn, torch.float8_e5m2
    if any(of.dtype != dtype or of.history.device != x.device for of, dtype in zip(state, formats)):
        raise ValueError("state must be in e4m3, e4m3 and e5m2, on the device of x: DelayedScaling.of_a_layer()")
    if not autograd.needs_frame(x, weight, bias):
        scales = [scaling.current if scaling.steps else None for scaling in state]
        return one_scale_forward(as_matrix(x), weight, bias, False, scales)[0].view(*x.shape[:-1], len(weight))
    return OneScale.apply(x, weight, bias, False, None, state, tuple(scaling.scale() for scaling in state))


# ## A run small enough to watch
def EXAMPLE():
    dy = (torch.arange(6 * 7, device=device.DEVICE) % 9).view(6, 7).float()
    quantize_both_ways(dy, torch.float8_e4m3fn, False, GROUP=4)


if __name__ == "__main__":
    script.main(float8_linear, float8_linear_reference, eps=eps_of_sums())
