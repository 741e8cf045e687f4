r"""
# RMSNorm: divide every row by its size

Most of today's language models normalise without a mean. RMSNorm divides each row of `x` by its *root mean square*, the
square root of the average of the squared elements, and every column gets a learned scale `weight` ($\gamma$):

[[eq: RMS-Y]]

$c$ is `offset`, usually zero. Gemma learns the distance of the scale from one instead, and calls the layer with an
offset of 1. In a transformer the row to be normalised is usually a sum: what the last block computed is added to the
residual stream, and the sum is normalised for the next block, [[tag: RMS-sum]] and [[tag: RMS-add]]. `add_rmsnorm` does
both at once and returns both, because the stream continues with the sum. Going back, a row needs one average over
itself,

[[eq: RMS-X]]

and the gradient that reaches the sum through the residual stream is added to that: [[tag: RMS-add-X]]. The gradient of
the weight is a sum over all **rows**: [[tag: RMS-gamma]].

**What it costs.** Forward reads `x` and writes `y`, backward reads `dy` and `x` and writes `dx`: 4 and 6 bytes an
element in bfloat16. With the residual each is 8: two tensors in and two out, then three in and one out. If a separate
kernel added the two, it would write the sum and the norm would read it again: 10 bytes forward. There are only a
handful of operations per element, so memory sets the limit. At 32768 rows of 4096, on an H200, these kernels reach
[[bench: rmsnorm/32768x4096/forward/lesson.share]] of that limit forward and
[[bench: rmsnorm/32768x4096/backward/lesson.share]] backward, where `dy` and `x` are read once along the rows and once
more down the columns. [The fast version](../fast/rmsnorm.py) reads them once where a row fits into registers.

**Contract.** `x` is float32, float16 or bfloat16, with any shape and any strides. Rows lie along its last dimension and
may have any length below 2³¹ − 2¹⁴. `residual` has the shape and dtype of `x`. `weight` is a vector as long as a row,
in any of these dtypes, or None: then nothing is scaled, whatever the offset. `eps=None` means the distance from 1 to
the next number in float32, the dtype of all arithmetic, as in `nn.RMSNorm`. Results have the dtype of `x`. The sum is
rounded to the dtype of `x` once, and what is normalised is the rounded sum. No input is ever written to, the upstream
gradients included. A NaN in `x` makes its row NaN. An infinity becomes NaN and the rest of its row 0, as the formula
says and PyTorch's own steps do. (Its fused kernel for GPUs may make the whole row NaN.) The sum of squares is float32,
as PyTorch's is: a row longer than $1.8 \cdot 10^{19}$ becomes 0.
"""

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch
import triton
import triton.language as tl

from annotated_examples.common.norms import module_arguments
from annotated_examples.common.rows import as_rows, row_stride, rows_contract


# ## Reference
#
# The formula in PyTorch; in float64 it is what the kernels are measured against. `eps` is inside the root, so a row of
# zeros isn't divided by zero.
def rmsnorm_reference(x, weight=None, eps=1e-6, *, offset=0.0):
    eps = torch.finfo(torch.float32).eps if eps is None else eps
    y = x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + eps)
    return y if weight is None else y * (offset + weight)


# First the sum, then the norm: the next layer needs a row of known size, and the residual stream must remain the plain
# sum.
def add_rmsnorm_reference(x, residual, weight=None, eps=1e-6, *, offset=0.0):
    s = x + residual
    return rmsnorm_reference(s, weight, eps, offset=offset), s


# ## Forward: two passes over a row
#
# One program takes one row, in chunks of `BLOCK_N` columns, as in [layernorm](layernorm.py). Without a mean there are
# two passes instead of three: one for the sum of squares, one for the result. The first pass waits for memory; if the
# row is a few kilobytes, the second one finds it in the cache.
#
# [[figure: rows/trips]]
#
# The sum with the residual is computed in both passes. Why isn't it read back in the second one? Adding again costs one
# operation on numbers that are in the cache anyway. Reading what this program has just stored would need
# synchronisation, because a different thread may have stored it.
#
# `eps` and `offset` are constexprs: a model has one of each. (Inside `torch.compile` any other Python float arrives as
# float64, and what it is added to becomes float64.)
#
# The numbers in the notes come from a recorded run: five rows of 6 columns, in chunks of 4. The first row is 1, 5, −1,
# 5, 1, −1.
@triton.jit
def rmsnorm_forward_kernel(
    x_ptr, residual_ptr, weight_ptr,  # (M, N); (M, N), or None; (N,), or None
    y_ptr, s_ptr, rstd_ptr,  # (M, N) and (M, N) or None, contiguous; (M,) in float32
    N, stride_xm, stride_rm, eps: tl.constexpr, offset: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    # My row. Its number times a row stride may exceed 2³¹, so it becomes int64 first.
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_xm
    y_ptr += row * N
    if residual_ptr is not None:
        residual_ptr += row * stride_rm
        s_ptr += row * N

    # First pass: squares are added up lane by lane, in float32. A masked lane reads 0 and adds nothing:
    # `start=4: x = [1, -1, 0, 0]`.
    acc = tl.zeros((BLOCK_N,), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = offs_n < N
        x = tl.load(x_ptr + offs_n, mask=mask, other=0.0).to(tl.float32)
        if residual_ptr is not None:
            # The caller gets `s` in the dtype of `x`, and backward will only have that rounded sum. `y` has to be its
            # norm, so the sum is rounded before it is squared. In the example's second call
            # `launch=1, start=0: s = [2, 4, 0, 4]`.
            s = (x + tl.load(residual_ptr + offs_n, mask=mask, other=0.0).to(tl.float32)).to(s_ptr.dtype.element_ty)
            tl.store(s_ptr + offs_n, s, mask=mask)
            x = s.to(tl.float32)
        acc += x * x

    # The squares of the first row add up to 54. A sixth of that is 9, and the root is 3: `rstd = 0.3333`, one over the
    # root of [[tag: RMS-root]]. Backward needs it again. It is one number per row, so it is saved.
    rstd = 1.0 / tl.sqrt(tl.sum(acc, axis=0) / N + eps)
    tl.store(rstd_ptr + row, rstd)

    # Second pass: [[tag: RMS-Y]], or for a sum [[tag: RMS-add]].
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = offs_n < N
        x = tl.load(x_ptr + offs_n, mask=mask, other=0.0).to(tl.float32)
        if residual_ptr is not None:
            s = (x + tl.load(residual_ptr + offs_n, mask=mask, other=0.0).to(tl.float32)).to(s_ptr.dtype.element_ty)
            x = s.to(tl.float32)
        y = x * rstd
        if weight_ptr is not None:
            # Everything is still float32 here: the normalised row isn't rounded before the product, and neither is the
            # scale. That matters with an offset. bfloat16 has 8 significant bits: next to 1 its numbers are 1/128
            # apart, and a weight of 0.003 would vanish in 1 + 0.003.
            y *= offset + tl.load(weight_ptr + offs_n, mask=mask, other=0.0).to(tl.float32)
        # The second column has a weight of 2: `start=0: y = [0.333, 3.333, -0.333, 1.667]`. The store rounds, once.
        tl.store(y_ptr + offs_n, y, mask=mask)


# ## Backward along the rows: `dx`
#
# Again one program per row, in two passes. [[tag: RMS-X]] starts from $G$, here `g`: the upstream gradient times the
# scale. The gradient that comes back through the root is the normalised row, times the average of `g` · `x_hat`. It is
# subtracted, and the difference is multiplied by `rstd`. If the row was a sum that is also used elsewhere, then `ds` is
# the gradient that comes back from there, and it is added: [[tag: RMS-add-X]]. The result is the gradient of both
# summands, `x` and `residual`.
@triton.jit
def rmsnorm_backward_kernel(
    dy_ptr, ds_ptr, x_ptr, weight_ptr, rstd_ptr,  # (M, N), (M, N) or None, (M, N), (N,) or None, (M,)
    dx_ptr,  # (M, N), contiguous
    N, stride_dym, stride_dsm, stride_xm, eps: tl.constexpr, offset: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    # Each upstream gradient has a row stride of its own: it may be a slice of something wider, or a single row expanded
    # to many, with stride zero.
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * stride_dym
    x_ptr += row * stride_xm
    dx_ptr += row * N
    if ds_ptr is not None:
        ds_ptr += row * stride_dsm
    rstd = tl.load(rstd_ptr + row)

    # First pass: the average.
    acc = tl.zeros((BLOCK_N,), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = offs_n < N
        g = tl.load(dy_ptr + offs_n, mask=mask, other=0.0).to(tl.float32)
        if weight_ptr is not None:
            g *= offset + tl.load(weight_ptr + offs_n, mask=mask, other=0.0).to(tl.float32)
        acc += g * (tl.load(x_ptr + offs_n, mask=mask, other=0.0).to(tl.float32) * rstd)
    # In the first row only the second column has an upstream gradient, 3. Times the weight it is 6, times `x_hat`, 5/3,
    # it is 10, and a sixth of that is `mean_gx = 1.667`.
    mean_gx = tl.sum(acc, axis=0) / N

    # Second pass.
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = offs_n < N
        g = tl.load(dy_ptr + offs_n, mask=mask, other=0.0).to(tl.float32)
        if weight_ptr is not None:
            g *= offset + tl.load(weight_ptr + offs_n, mask=mask, other=0.0).to(tl.float32)
        x_hat = tl.load(x_ptr + offs_n, mask=mask, other=0.0).to(tl.float32) * rstd
        # `start=0: dx = [-0.185, 1.074, 0.185, -0.926]`.
        if N == 1:
            # In a row of one column `x_hat` is 1 or −1, apart from `eps`, and the subtraction below would be of two
            # nearly equal numbers: nothing but rounding errors would be left. [[tag: RMS-eps]] says what the difference
            # is.
            dx = rstd * (g * eps * rstd * rstd)
        else:
            dx = rstd * (g - x_hat * mean_gx)
        if ds_ptr is not None:
            dx += tl.load(ds_ptr + offs_n, mask=mask, other=0.0).to(tl.float32)
        tl.store(dx_ptr + offs_n, dx, mask=mask)


# ## Backward down the columns: `dweight`
#
# [[tag: RMS-gamma]] is a sum over rows, and each of the programs above has only one. As in [layernorm](layernorm.py), a
# second kernel walks down the columns. Several programs share the rows of a block of columns; each stores its own row
# of **partial sums**, and PyTorch adds up these few rows. The order of all additions is fixed, so the same call gives
# the same bits. `BLOCK_N` is the launcher's `COLUMNS` here.
@triton.jit
def rmsnorm_backward_columns_kernel(
    dy_ptr, x_ptr, rstd_ptr, partial_dweight_ptr,  # (M, N), (M, N), (M,), (programs along the rows, N) in float32
    M, N, stride_dym, stride_xm, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    # The second block of columns is half full: `pid=(1, 0): mask_n = [1, 1, 0, 0]`.
    offs_n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_n = offs_n < N
    pid_m = tl.program_id(1)

    # A grid-stride loop over tiles of `BLOCK_M` rows. Two programs share three tiles of two rows here: the first one
    # gets rows 0, 1 and 4. There is no row 5: `pid=(0, 0), start=4: mask_m = [1, 0]`.
    dweight = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(pid_m * BLOCK_M, M, tl.num_programs(1) * BLOCK_M):
        offs_m = (start + tl.arange(0, BLOCK_M)).to(tl.int64)
        mask_m = offs_m < M
        mask = mask_m[:, None] & mask_n[None, :]
        dy = tl.load(dy_ptr + offs_m[:, None] * stride_dym + offs_n[None, :], mask=mask, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :], mask=mask, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + offs_m, mask=mask_m, other=0.0)
        dweight += dy * (x * rstd[:, None])

    # The rows of the tile are added up once, after the loop. Rows 0, 1 and 4 make `pid=(0, 0): dweight_sum = [0.840,
    # 6.22, -1.22, 0.840]`. The offset is a constant; it has no part in this gradient.
    dweight_sum = tl.sum(dweight, axis=0)
    tl.store(partial_dweight_ptr + pid_m * N + offs_n, dweight_sum, mask=mask_n)


# ## Launchers
#
# The kernels need a matrix in which the elements of a row are neighbours. `as_rows` turns any tensor into one, and
# copies only what it has to; `row_stride` is the distance from one row to the next. `max(N, 1)` avoids a division by
# zero when rows have no elements. The tensor that was normalised is returned too, for the backward pass: without a
# residual it is `x` itself.
#
# Divided among 128 threads, chunks of 1024 are 8 neighbouring elements for each, in bfloat16 one load of 16 bytes: if
# rows are a multiple of 16 elements long and apart. Otherwise the compiler can't prove that 8 neighbours are aligned
# and share a mask, and each is a load of its own.
@replayed
def rmsnorm_forward(x, weight=None, eps=1e-6, offset=0.0, residual=None, *, BLOCK_N=1024):
    """Returns `y`, the tensor that was normalised (`x`, or the new sum), and `rstd` in float32, one number per row."""
    checks.power_of_two(BLOCK_N=BLOCK_N)
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    s = x if residual is None else torch.empty_like(y)
    N = x.shape[-1]
    M = x.numel() // max(N, 1)
    rstd = torch.empty(M, dtype=torch.float32, device=x.device)
    if M > 0:
        rows, weight = as_rows(x), weight if weight is None else weight.contiguous()
        added = None if residual is None else as_rows(residual)
        rmsnorm_forward_kernel[(M,)](
            rows, added, weight, y, None if residual is None else s, rstd,
            N, row_stride(rows, N), 0 if added is None else row_stride(added, N), eps, offset, BLOCK_N=BLOCK_N,
        )  # fmt: skip
    return y, s, rstd


# `needs` says which gradients to compute: that of the normalised tensor, that of the weight. The columns kernel is
# launched only for the weight's. Up to `num_programs` programs share the rows of a block of columns. The partial sums
# are added up in float32 and rounded to the weight's dtype once. If `M` is zero there are none, and their sum is zero.
@replayed
def rmsnorm_backward(
    dy, x, weight, rstd, eps=1e-6, offset=0.0, ds=None, *, needs=(True, True),
    BLOCK_M=32, BLOCK_N=1024, COLUMNS=128, num_programs=64,
):  # fmt: skip
    """Returns `(dx, dweight)`, None for what isn't in `needs` or has no parameter.

    Args:
        dy: upstream gradient of `y`, shape and dtype of `x`, any strides (also 0, which `.sum().backward()` makes).
        x: what was normalised: the second result of the forward pass. rstd: its third. weight, eps, offset: as there.
        ds: upstream gradient of the sum, if there was one; it is added to `dx`, which is the gradient of both summands.
        needs: which of the two gradients to compute.
        BLOCK_N: columns of a chunk in the kernel for `dx`. BLOCK_M, COLUMNS: tile of the kernel that sums columns.
        num_programs: how many programs share the rows of a block of columns, at most.
    """
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, COLUMNS=COLUMNS)
    checks.positive(num_programs=num_programs)
    N, M = x.shape[-1], rstd.numel()
    of_weight = needs[1] and weight is not None
    P = min(num_programs, triton.cdiv(M, BLOCK_M))
    dx = torch.empty_like(x, memory_format=torch.contiguous_format) if needs[0] else None
    partial_dweight = torch.empty((P, N), dtype=torch.float32, device=x.device) if of_weight else None
    if M > 0:
        dy, x, ds = as_rows(dy), as_rows(x), ds if ds is None else as_rows(ds)
        stride_dym, stride_xm, stride_dsm = [0 if t is None else row_stride(t, N) for t in (dy, x, ds)]
        if needs[0]:
            scale = weight if weight is None else weight.contiguous()
            rmsnorm_backward_kernel[(M,)](
                dy, ds, x, scale, rstd, dx, N, stride_dym, stride_dsm, stride_xm, eps, offset, BLOCK_N=BLOCK_N
            )
        if of_weight:
            rmsnorm_backward_columns_kernel[(triton.cdiv(N, COLUMNS), P)](
                dy, x, rstd, partial_dweight, M, N, stride_dym, stride_xm, BLOCK_M=BLOCK_M, BLOCK_N=COLUMNS
            )
    return dx, partial_dweight.sum(0).to(weight.dtype) if of_weight else None


# ## Joining autograd
#
# One `Function` serves both public functions. It saves the tensor that was normalised: `x`, which is in memory already,
# or the sum, which is a result. `once_differentiable` makes a second derivative raise. The launchers are arguments, so
# that the fast version can use it with its own.
class RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, residual, weight, eps, offset, launch_forward, launch_backward):
        y, s, rstd = launch_forward(x, weight, eps, offset, residual)
        ctx.save_for_backward(s, weight, rstd)
        ctx.eps, ctx.offset, ctx.launch_backward = eps, offset, launch_backward
        return y if residual is None else (y, s)

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dy, ds=None):
        of_x, of_residual, of_weight = ctx.needs_input_grad[:3]
        needs = (of_x or of_residual, of_weight)
        dx, dweight = ctx.launch_backward(dy, *ctx.saved_tensors, ctx.eps, ctx.offset, ds, needs=needs)
        return dx if of_x else None, dx if of_residual else None, dweight, None, None, None, None


# ## The public functions
#
# Arguments are checked before anything is launched. `eps=None` becomes a number here.
def contract(x, residual, weight, eps, offset):
    """Raises on bad arguments; returns `eps` and `offset` as floats."""
    rows_contract(x)
    checks.optional_tensors(residual=residual, weight=weight)
    checks.dtypes(weight=weight)
    if residual is not None:
        checks.same_dtype(x=x, residual=residual)
        checks.same_shape(x=x, residual=residual)
    checks.shape("weight", weight, x.shape[-1:], "the last dimension of x")
    eps = torch.finfo(torch.float32).eps if eps is None else eps
    checks.number("eps", eps, at_least=0)
    checks.number("offset", offset)
    return float(eps), float(offset)


@replayed
def rmsnorm(x, weight=None, eps=1e-6, *, offset=0.0):
    """Root mean square normalisation over the last dimension, differentiable in `x` and `weight`.

    Args:
        x: tensor of shape (..., N), float32, float16 or bfloat16, any strides.
        weight: scale of each column, shape (N,), any of these dtypes, or None: then nothing is scaled.
        eps: added to the mean of squares under the root, a finite number of at least 0; None: 2⁻²³, as `nn.RMSNorm`.
        offset: added to the weight in float32, such as 1.0 for Gemma. Without a weight it has no effect.

    Returns:
        A new tensor of the shape and dtype of `x`.

    Raises:
        TypeError: an argument isn't a tensor (eps, offset: not a number), or its dtype isn't allowed.
        ValueError: `x` has no dimension or rows of 2³¹ − 2¹⁴ elements or more, weight is not as long as a row, a tensor
            is on the wrong device, eps is negative, or eps or offset is not finite.

    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization" (2019).
    """
    eps, offset = contract(x, None, weight, eps, offset)
    if not autograd.needs_frame(x, weight):
        return rmsnorm_forward(x, weight, eps, offset)[0]
    return RMSNorm.apply(x, None, weight, eps, offset, rmsnorm_forward, rmsnorm_backward)


@replayed
def add_rmsnorm(x, residual, weight=None, eps=1e-6, *, offset=0.0):
    """`s = x + residual` and `y = rmsnorm(s)` in one pass, differentiable in all three tensors, through both results.

    Args:
        x, weight, eps, offset: as for `rmsnorm`.
        residual: tensor of the shape and dtype of `x`, any strides.

    Returns:
        `(y, s)`, new tensors of the shape and dtype of `x`.

    Raises:
        TypeError: `residual` has another dtype than `x`. ValueError: it has another shape. And as `rmsnorm`.

    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization" (2019).
    """
    checks.tensors(x=x, residual=residual)
    eps, offset = contract(x, residual, weight, eps, offset)
    if not autograd.needs_frame(x, residual, weight):
        return rmsnorm_forward(x, weight, eps, offset, residual)[:2]
    return RMSNorm.apply(x, residual, weight, eps, offset, rmsnorm_forward, rmsnorm_backward)


def apply_rmsnorm(module, x):
    """`module(x)` for an `nn.RMSNorm`, or for any module with `weight` and `eps` or `variance_epsilon`.

    Args:
        module: `weight` may be None or missing, `eps` may be None, as for `rmsnorm`. `normalized_shape` (default: the
            shape of the weight, or else the last dimension of `x`) says over how many trailing dimensions to normalise.
        x: tensor of shape (..., *normalized_shape).

    Returns:
        A new tensor of the shape and dtype of `x`.

    Raises:
        ValueError: `x` doesn't end in `normalized_shape`. TypeError: the module has no epsilon. And as `rmsnorm`.

    Source: PyTorch's documentation, `torch.nn.RMSNorm`.
    """
    rows, weight, _, eps = module_arguments(module, x)
    return rmsnorm(rows, weight, eps).view(x.shape)


# ## A run small enough to watch
#
# Five rows of six, in chunks of four columns: first alone, then with a residual.
def EXAMPLE():
    make = lambda rows: torch.tensor(rows, dtype=torch.float32, device=device.DEVICE)  # noqa: E731
    x = make([[1, 5, -1, 5, 1, -1], [2, 0, 4, 1, -2, 3], [1, 1, -1, 1, 1, 1], [0, 6, 0, 3, 3, 0], [3, 3, 3, 0, 0, 3]])
    dy = make([[0, 3, 0, 0, 0, 0], [1, 0, 0, 2, 0, 1], [0, 1, 0, 0, -1, 0], [2, 0, 1, 0, 0, 1], [0, 1, -1, 1, 0, 0]])
    weight, residual = make([1, 2, 1, 1, 1, 3]), make([[1, -1, 1, -1, 0, 2]] * 5)
    tiles = dict(BLOCK_M=2, BLOCK_N=4, COLUMNS=4, num_programs=2)
    y, s, rstd = rmsnorm_forward(x, weight, BLOCK_N=4)
    rmsnorm_backward(dy, s, weight, rstd, **tiles)
    y, s, rstd = rmsnorm_forward(x, weight, 1e-6, 1.0, residual, BLOCK_N=4)
    rmsnorm_backward(dy, s, weight, rstd, 1e-6, 1.0, residual, **tiles)


if __name__ == "__main__":
    script.main(add_rmsnorm, add_rmsnorm_reference)
