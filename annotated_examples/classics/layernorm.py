r"""
# LayerNorm: normalise every row

A layer of a network works best on numbers of a known scale. LayerNorm shifts each row of `x` to mean zero and scales it
to standard deviation one; then every column gets a learned scale `weight` ($\gamma$) and shift `bias` ($\beta$):

[[eq: LN-Y]]

Going back, the gradient of a row needs two averages over that row,

[[eq: LN-X]]

while the gradients of the parameters, `dgamma` and `dbeta` in other libraries, are sums over all **rows**:
[[tag: LN-gamma]] and [[tag: LN-beta]]. An average over a row stays inside one program. A sum over rows needs something
from every program, and that is what makes the backward pass interesting.

New on this page: a row that is read three times, a sum that needs every row, and who adds it up so that the bits are
the same each time. Rows in chunks, lanes and masks are those of [softmax](../tutorials/softmax.py).

**What it costs.** Memory sets the limit: 8 and 13 operations an element are few. In bfloat16, forward moves 4 bytes,
and reaches [[bench: layernorm/32768x4096/forward/lesson.share]] of copy speed at 32768 rows of 4096, on an H200.
Backward needs 6, and here moves 10: `dy` and `x` are read along the rows for `dx`, and once more down the columns for
the parameters. It reaches [[bench: layernorm/32768x4096/backward/lesson.share]] of the speed at which the 6 could be
copied. [The fast version](../fast/layernorm.py) moves every byte once where a row fits into registers.

**Contract.** `x` is float32, float16 or bfloat16, with any shape and any strides. Rows lie along its last dimension and
may have any length below 2³¹ − 2¹⁴, as in [softmax](../tutorials/softmax.py). `weight` and `bias` are optional vectors
as long as a row. Each has one of these dtypes, not necessarily that of `x` (float32 parameters with bfloat16
activations are common). The result has the dtype of `x`. All arithmetic is float32. No input is ever written to,
including the upstream gradient: in a pre-norm transformer the residual branch still needs it. A NaN or an infinity in
`x` makes its row NaN, and no other. Sums are float32, as PyTorch's are: where that of the squares overflows, with
deviations of $10^{19}$ for instance, the row becomes the bias.
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
# The formula in PyTorch. `eps` is **inside** the root: it keeps a constant row, whose variance is zero, from being
# divided by zero.
def layernorm_reference(x, weight=None, bias=None, eps=1e-5):
    centred = x - x.mean(dim=-1, keepdim=True)
    rstd = 1 / torch.sqrt(centred.pow(2).mean(dim=-1, keepdim=True) + eps)
    y = centred * rstd
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


# ## Forward: three passes over a row
#
# One program takes one row. The result needs the standard deviation, and that needs the mean. So the program goes over
# its row three times. If the row is a few kilobytes, only the first pass waits for memory; then the cache has it.
#
# Why not two passes, with the shortcut $E[x^2] - E[x]^2$ for the variance? It is true, but numerically bad. For a row
# around 10000 both terms are near 10⁸, where float32 numbers are 8 apart. A variance of 1 would be lost in that
# rounding.
#
# The numbers in the notes come from a recorded run: five rows of 6 columns, in chunks of 4. The first row is 2, 4, 2,
# 4, 8, 4.
@triton.jit
def layernorm_forward_kernel(
    x_ptr, weight_ptr, bias_ptr,  # (M, N), rows stride_xm apart; (N,), or None; (N,), or None
    y_ptr, mean_ptr, rstd_ptr,  # (M, N), contiguous; (M,) and (M,) in float32
    N, stride_xm, eps: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    # My row. Those of `x` may lie further apart than they are long; those of `y` lie side by side.
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_xm
    y_ptr += row * N

    # First pass: add up the row, lane by lane, in float32. The lanes themselves are added up once, after the loop.
    acc = tl.zeros((BLOCK_N,), tl.float32)
    for start in range(0, N, BLOCK_N):
        # The second chunk has two columns: `pid=0, start=4: mask = [1, 1, 0, 0]`. A zero doesn't disturb the sum:
        # `start=4: x = [8, 4, 0, 0]`.
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = offs_n < N
        x = tl.load(x_ptr + offs_n, mask=mask, other=0.0).to(tl.float32)
        acc += x

    # [[tag: LN-mean]]. 24 is divided by the length of the row, not of the chunks: `mean = 4`. Why isn't that a plain
    # `/`? On a GPU it compiles to a fast division, whose result may be off by two units in the last place. Around 10000
    # that is about 0.002, and the whole row would be shifted by as much. `tl.div_rn` rounds to the nearest number, and
    # takes two float32.
    mean = tl.div_rn(tl.sum(acc, axis=0), tl.cast(N, tl.float32))

    # Second pass: add up the squared distances from the mean.
    acc = tl.zeros((BLOCK_N,), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = offs_n < N
        x = tl.load(x_ptr + offs_n, mask=mask, other=0.0).to(tl.float32)
        # Lanes outside of the row hold 0 − 4 by now, and each would add 16. `tl.where` sets them back to zero:
        # `start=0: centred = [-2, 0, -2, 0]` and `start=4: centred = [4, 0, 0, 0]`.
        centred = tl.where(mask, x - mean, 0.0)
        acc += centred * centred
    variance = tl.sum(acc, axis=0) / N
    # A plain `/` will do here: two units in its last place change each result by about a ten-millionth of itself. Then
    # [[tag: LN-rstd]]; `tl.sqrt` takes the square root. `variance = 4` makes `rstd = 0.50`.
    rstd = 1.0 / tl.sqrt(variance + eps)

    # Backward needs these two again. The normalised row isn't saved; it is recomputed.
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)

    # Third pass: [[tag: LN-Y]]. If a caller leaves out weight or bias, `None` is passed instead of the pointer. That is
    # known when the kernel is compiled, so these lines are simply missing from that version.
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = offs_n < N
        x = tl.load(x_ptr + offs_n, mask=mask, other=0.0).to(tl.float32)
        y = (x - mean) * rstd
        if weight_ptr is not None:
            y *= tl.load(weight_ptr + offs_n, mask=mask, other=0.0).to(tl.float32)
        if bias_ptr is not None:
            y += tl.load(bias_ptr + offs_n, mask=mask, other=0.0).to(tl.float32)
        # The first row, normalised, begins −1, 0, −1, 0. The third column has a bias of 1: `start=0: y = [-1.00, 0.00,
        # 0.00, 0.00]`.
        tl.store(y_ptr + offs_n, y, mask=mask)


# ## Backward along the rows: `dx`
#
# [[tag: LN-X]] starts from $G$, here `g`: the upstream gradient, times the weight. It subtracts two things. One is the
# average of `g`: that is what the mean passes back. The other is what the standard deviation passes back: the
# normalised row, times the average of `g` · `x_hat`. Both averages run over the row, so there are two passes: one for
# the averages, one for the result.
@triton.jit
def layernorm_backward_kernel(
    dy_ptr, x_ptr, weight_ptr, mean_ptr, rstd_ptr,  # (M, N), (M, N), (N,) or None, (M,), (M,)
    dx_ptr,  # (M, N), contiguous
    N, stride_dym, stride_xm, BLOCK_N: tl.constexpr,
):  # fmt: skip
    # My row. The upstream gradient has a stride of its own, which may be zero.
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * stride_dym
    x_ptr += row * stride_xm
    dx_ptr += row * N
    mean = tl.load(mean_ptr + row)
    rstd = tl.load(rstd_ptr + row)

    # First pass: the two averages.
    acc_g = tl.zeros((BLOCK_N,), tl.float32)
    acc_gx = tl.zeros((BLOCK_N,), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = offs_n < N
        # In the second row the upstream gradient begins with 0, 2, 1, 0, and the second column has a weight of 2.
        g = tl.load(dy_ptr + offs_n, mask=mask, other=0.0).to(tl.float32)
        if weight_ptr is not None:
            # The product: `pid=1, start=0: g = [0, 4, 1, 0]`. Why isn't it a plain `*`? The compiler may fuse a product
            # and the sum or difference that uses it into one instruction, which rounds only the end result. `tl.fma(a,
            # b, c)` is that instruction, $a b + c$ rounded once. With zero for `c` it is a product that is rounded
            # here and nowhere else, so `g` is the same number in both passes.
            g = tl.fma(g, tl.load(weight_ptr + offs_n, mask=mask, other=0.0).to(tl.float32), 0.0)
        # The normalised row, computed again: `pid=0, start=0: x_hat = [-1.00, 0.00, -1.00, 0.00]`. Lanes past the end
        # of the row hold (0 − mean) · rstd, which means nothing, but `g` is zero there: they add nothing to either sum.
        x_hat = (tl.load(x_ptr + offs_n, mask=mask, other=0.0).to(tl.float32) - mean) * rstd
        acc_g += g
        acc_gx += g * x_hat
    # In the first row `g` is 1 in the first column, where `x_hat` is −1, and zero elsewhere: `pid=0: mean_g = 0.167`
    # and `mean_gx = -0.167`. Where all weights are alike, as when training begins, `.sum().backward()` makes all `g`
    # equal. Then their average must be the same number, so that nothing is left of the difference: this division, too,
    # is IEEE's. For the other average a plain `/` will do.
    mean_g = tl.div_rn(tl.sum(acc_g, axis=0), tl.cast(N, tl.float32))
    mean_gx = tl.sum(acc_gx, axis=0) / N

    # Second pass, out of the cache if the row fits: `pid=0, start=0: dx = [0.333, -0.083, -0.167, -0.083]`. It matters
    # that `g` is the same number as in the first pass: in a row of one column it is its own average (dividing by 1 is
    # exact), and `dx` must be exactly zero.
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = offs_n < N
        g = tl.load(dy_ptr + offs_n, mask=mask, other=0.0).to(tl.float32)
        if weight_ptr is not None:
            g = tl.fma(g, tl.load(weight_ptr + offs_n, mask=mask, other=0.0).to(tl.float32), 0.0)
        x_hat = (tl.load(x_ptr + offs_n, mask=mask, other=0.0).to(tl.float32) - mean) * rstd
        dx = rstd * (g - mean_g - x_hat * mean_gx)
        tl.store(dx_ptr + offs_n, dx, mask=mask)


# ## Backward down the columns: `dweight` and `dbias`
#
# [[tag: LN-gamma]] and [[tag: LN-beta]] are sums over all rows, and each of the programs above has only one. They could
# all add to the same numbers in memory with *atomic additions*, which the hardware carries out one after another, so
# that none is lost. But in which order? In whatever order the programs get there, and sums of floating-point numbers
# depend on it: the same step could give different bits every time.
#
# [[figure: rows/directions]]


# So the columns get a kernel of their own. A program owns `BLOCK_N` columns and goes down them, `BLOCK_M` rows at a
# time. There are far fewer blocks of columns than a card has room for programs, so several programs share the rows of
# each block. None of them may add to what another one writes: each stores its own sums, a row of **partial sums**.
# PyTorch adds up these few rows. The order of all additions is fixed, so the same call gives the same bits. `BLOCK_N`
# is the launcher's `COLUMNS` here.
@triton.jit
def layernorm_backward_columns_kernel(
    dy_ptr, x_ptr, mean_ptr, rstd_ptr,  # (M, N), (M, N), (M,), (M,)
    partial_dweight_ptr, partial_dbias_ptr,  # (programs along the rows, N) in float32, or None
    M, N, stride_dym, stride_xm, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    # Along axis 0 of the grid lie the blocks of columns, two in the example. The last one is half full: `pid=(1, 0):
    # mask_n = [1, 1, 0, 0]`. Along axis 1 lie the shares of the rows. (Offsets of partial sums needn't be int64. With
    # 32 rows in a tile, `pid_m * N` stays below 2³¹ until `x` and `dy` take 275 GB.)
    offs_n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_n = offs_n < N
    pid_m = tl.program_id(1)

    # One accumulator for each element of a tile of `BLOCK_M` rows and `BLOCK_N` columns.
    dweight = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    dbias = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    # A *grid-stride loop*: I start at tile `pid_m`. `tl.num_programs(1)` programs share the rows, so I step on by that
    # many tiles. In the example two programs share three tiles of two rows; the one whose `pid_m` is zero gets the
    # first and the last.
    for start in range(pid_m * BLOCK_M, M, tl.num_programs(1) * BLOCK_M):
        # There are five rows: `pid=(0, 0), start=4: offs_m = [4, 5]` and `pid=(0, 0), start=4: mask_m = [1, 0]`.
        offs_m = (start + tl.arange(0, BLOCK_M)).to(tl.int64)
        mask_m = offs_m < M
        mask = mask_m[:, None] & mask_n[None, :]
        dy = tl.load(dy_ptr + offs_m[:, None] * stride_dym + offs_n[None, :], mask=mask, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :], mask=mask, other=0.0).to(tl.float32)
        # One number for each row of the tile.
        mean = tl.load(mean_ptr + offs_m, mask=mask_m, other=0.0)
        rstd = tl.load(rstd_ptr + offs_m, mask=mask_m, other=0.0)
        # Outside of the matrix `dy` is zero, so nothing is added there.
        dweight += dy * (x - mean[:, None]) * rstd[:, None]
        dbias += dy

    # The rows of the tile are added up once, after the loop. Rows 0, 1 and 4 make `pid=(0, 0): dweight_sum = [-1.707,
    # -2.256, -1.802, 0]` and `pid=(0, 0): dbias_sum = [2, 3, 0, 0]`. Row `pid_m` of the partial sums is mine; no other
    # program writes there.
    dweight_sum = tl.sum(dweight, axis=0)
    dbias_sum = tl.sum(dbias, axis=0)
    tl.store(partial_dweight_ptr + pid_m * N + offs_n, dweight_sum, mask=mask_n)
    tl.store(partial_dbias_ptr + pid_m * N + offs_n, dbias_sum, mask=mask_n)


# ## Launchers
#
# Divided among 128 threads, chunks of 1024 are 8 neighbouring elements for each, in bfloat16 one load of 16 bytes: if
# rows are a multiple of 16 elements long and apart. Otherwise the compiler can't prove that 8 neighbours are aligned
# and share a mask, and each is a load of its own.
# Wider rows take more chunks, narrower ones leave lanes idle. (Softmax fits the chunk to the row; one size for all
# keeps this launcher simpler.)
@replayed
def layernorm_forward(x, weight=None, bias=None, eps=1e-5, *, BLOCK_N=1024):
    """Returns `y` in the shape of `x`, and `mean` and `rstd` in float32, one number per row."""
    checks.power_of_two(BLOCK_N=BLOCK_N)
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    N = x.shape[-1]
    M = x.numel() // max(N, 1)
    mean = torch.empty(M, dtype=torch.float32, device=x.device)
    rstd = torch.empty(M, dtype=torch.float32, device=x.device)
    if M > 0:
        x = as_rows(x)
        weight = weight if weight is None else weight.contiguous()
        bias = bias if bias is None else bias.contiguous()
        layernorm_forward_kernel[(M,)](x, weight, bias, y, mean, rstd, N, row_stride(x, N), eps, BLOCK_N=BLOCK_N)
    return y, mean, rstd


# `needs` says which gradients to compute, of x, weight and bias. If both parameters are frozen, as in fine-tuning with
# LoRA, which trains only small added matrices, the columns kernel isn't launched. If one of the two is needed, it
# computes both.
#
# Up to `num_programs` programs share the rows of a block of columns. With 4096 columns, 128 to a block, a limit of 64
# means 2048 programs for the H200's 132 SMs, and only 64 rows of partial sums. A tile of 32 rows by 128 columns means
# 32 elements per thread in each of the two accumulators. If `M` is zero there are no partial sums, and their sum is
# zero.
@replayed
def layernorm_backward(
    dy, x, weight, bias, mean, rstd, *, needs=(True, True, True),
    BLOCK_M=32, BLOCK_N=1024, COLUMNS=128, num_programs=64,
):  # fmt: skip
    """Returns `(dx, dweight, dbias)`, None for what isn't in `needs` or has no parameter.

    Args:
        dy: upstream gradient, shape and dtype of `x`, any strides (also stride 0, which `.sum().backward()` makes).
        x, weight, bias: as they went into the forward pass. mean, rstd: as they came out of it.
        needs: which of the three gradients to compute.
        BLOCK_N: columns of a chunk in the kernel for `dx`. BLOCK_M, COLUMNS: tile of the kernel that sums columns.
        num_programs: how many programs share the rows of a block of columns, at most.
    """
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, COLUMNS=COLUMNS)
    checks.positive(num_programs=num_programs)
    N, M = x.shape[-1], mean.numel()
    of_weight, of_bias = needs[1] and weight is not None, needs[2] and bias is not None
    P = min(num_programs, triton.cdiv(M, BLOCK_M))
    dx = torch.empty_like(x, memory_format=torch.contiguous_format) if needs[0] else None
    partial_dweight = torch.empty((P, N), dtype=torch.float32, device=x.device)
    partial_dbias = torch.empty((P, N), dtype=torch.float32, device=x.device)
    if M > 0:
        dy, x = as_rows(dy), as_rows(x)
        strides = row_stride(dy, N), row_stride(x, N)
        if needs[0]:
            scale = weight if weight is None else weight.contiguous()
            layernorm_backward_kernel[(M,)](dy, x, scale, mean, rstd, dx, N, *strides, BLOCK_N=BLOCK_N)
        if of_weight or of_bias:
            layernorm_backward_columns_kernel[(triton.cdiv(N, COLUMNS), P)](
                dy, x, mean, rstd, partial_dweight, partial_dbias, M, N, *strides, BLOCK_M=BLOCK_M, BLOCK_N=COLUMNS
            )
    dweight = partial_dweight.sum(0).to(weight.dtype) if of_weight else None
    dbias = partial_dbias.sum(0).to(bias.dtype) if of_bias else None
    return dx, dweight, dbias


# ## Joining autograd
#
# `x` itself is saved, not the normalised row: `x` is in memory anyway, and the normalised row would be one more tensor.
# The launchers are arguments, so that the fast version can use this `Function` with its own.
class LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps, launch_forward, launch_backward):
        y, mean, rstd = launch_forward(x, weight, bias, eps)
        ctx.save_for_backward(x, weight, bias, mean, rstd)
        ctx.launch_backward = launch_backward
        return y

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dy):
        gradients = ctx.launch_backward(dy, *ctx.saved_tensors, needs=ctx.needs_input_grad[:3])
        return *gradients, None, None, None


# ## The public function
def contract(x, weight, bias, eps):
    rows_contract(x)
    checks.optional_tensors(weight=weight, bias=bias)
    checks.dtypes(weight=weight, bias=bias)
    checks.shape("weight", weight, x.shape[-1:], "the last dimension of x")
    checks.shape("bias", bias, x.shape[-1:], "the last dimension of x")
    checks.number("eps", eps, at_least=0)


@replayed
def layernorm(x, weight=None, bias=None, eps=1e-5):
    """Layer normalisation over the last dimension, differentiable in `x`, `weight` and `bias`.

    Args:
        x: tensor of shape (..., N), float32, float16 or bfloat16, any strides.
        weight: scale of each column, shape (N,), any of these dtypes, or None for ones.
        bias: shift of each column, shape (N,), any of these dtypes, or None for zeros.
        eps: added to the variance under the root, a finite number of at least 0.

    Returns:
        A new tensor of the shape and dtype of `x`.

    Raises:
        TypeError: an argument isn't a tensor (eps: not a number), or its dtype isn't allowed.
        ValueError: `x` has no dimension or rows of 2³¹ − 2¹⁴ elements or more, weight or bias is not as long as a row,
            a tensor is on the wrong device, or eps is negative.

    Source: Ba, Kiros and Hinton, "Layer Normalization" (2016).
    """
    contract(x, weight, bias, eps)
    if not autograd.needs_frame(x, weight, bias):
        return layernorm_forward(x, weight, bias, eps)[0]
    return LayerNorm.apply(x, weight, bias, eps, layernorm_forward, layernorm_backward)


# ## As a drop-in for a module
#
# A `normalized_shape` of several dimensions is one long row.
def apply_layernorm(module, x):
    """`module(x)` for an `nn.LayerNorm`, or for any module with `weight`, `bias` and `eps` or `variance_epsilon`.

    Args:
        module: `weight` and `bias` may be None or missing. `normalized_shape` (default: the shape of the weight, or
            else the last dimension of `x`) says over how many trailing dimensions to normalise.
        x: tensor of shape (..., *normalized_shape).

    Returns:
        A new tensor of the shape and dtype of `x`.

    Raises:
        ValueError: `x` doesn't end in `normalized_shape`. TypeError: the module has no epsilon. And as `layernorm`.

    Source: PyTorch's documentation, `torch.nn.LayerNorm`.
    """
    return layernorm(*module_arguments(module, x)).view(x.shape)


# ## A run small enough to watch
#
# Five rows of six, in chunks of four columns. Why isn't the upstream gradient the same everywhere? With a constant one,
# and without a weight, `dx` is the derivative of a normalised row's sum. That sum is zero for every `x`, so the true
# `dx` is zero, and many wrong kernels return zero too.
def EXAMPLE():
    make = lambda rows: torch.tensor(rows, dtype=torch.float32, device=device.DEVICE)  # noqa: E731
    x = make([[2, 4, 2, 4, 8, 4], [0, 1, 2, 3, 4, 8], [2, -2, 0, 1, -1, 0], [9, 7, 7, 5, 5, 3], [0, 0, 6, 6, 0, 0]])
    dy = make([[1, 0, 0, 0, 0, 0], [0, 2, 1, 0, 0, 1], [1, 0, 0, -1, 0, 0], [0, 0, 3, 0, 1, 0], [1, 1, -1, 0, 1, 1]])
    weight, bias = make([1, 2, 1, 1, 1, 1]), make([0, 0, 1, 0, 1, -1])
    y, mean, rstd = layernorm_forward(x, weight, bias, BLOCK_N=4)
    layernorm_backward(dy, x, weight, bias, mean, rstd, BLOCK_M=2, BLOCK_N=4, COLUMNS=4, num_programs=2)


if __name__ == "__main__":
    eager = lambda x, weight, bias: torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias)  # noqa: E731
    script.main(layernorm, layernorm_reference, pytorch=eager)
