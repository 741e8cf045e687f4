r"""
# Coefficients of streams: one product, and a normalization that waits

How much of each stream a layer reads, how much it writes to each, and how streams are mixed: for
[hyper-connections](hyper_connections.py) each token decides that itself. All its streams together are one long row,
which is normalized and multiplied with a small matrix:

[[eq: HC-mix]]

$n$ numbers of the product are for what is read, $n$ for what is written, and $n^2$ are the logits of the mixture, which
[Sinkhorn's rounds](sinkhorn.py) make doubly stochastic: 24 for four streams.

[[figure: streams/columns]]

New on this page: a product with a few columns, whose kernel collects the sum of squares on the way, on the tensor cores
too; and a backward pass in which one load of a tile serves two products.

**What it costs.** Reading the streams, which are large: 268 MB for 8192 tokens of 4 streams and 4096 channels in
bfloat16. The product has 6.4 billion operations, 48 for each number of `x`: few beside the two bytes that it takes. The
sum of squares needs no reading of its own. Backward reads `x` again and writes `dx`. On an H200 8192 tokens take
[[bench: stream_coefficients/8192x4x4096/forward/ms]], and backward
[[bench: stream_coefficients/8192x4x4096/backward/ms]]; what `torch.compile` makes of the formula takes
[[bench: stream_coefficients/8192x4x4096/forward/torch.compile.ms]] and
[[bench: stream_coefficients/8192x4x4096/backward/torch.compile.ms]].

**Contract.** `x` is (…, n, C), float32, float16 or bfloat16, with n from 1 to 8, and any strides. Factors of products
have the dtype of `x`, and sums are float32, as are all coefficients. Nobody adds to what another program adds to, so
each call gives the same bits. A NaN stays in its token; in the gradients of what all tokens share, it doesn't.
"""

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch
import triton
import triton.language as tl

from annotated_examples.common.exponential import sigmoid_of
from annotated_examples.common.launching import power_of_2_up_to
from annotated_examples.common.products import input_precision, multiply_add
from annotated_examples.common.rows import as_rows, row_stride
from annotated_examples.common.streams import beside, contiguous_like, streams_contract
from annotated_examples.model.sinkhorn import sinkhorn, sinkhorn_reference


# ## Reference
def stream_coefficients_reference(x, phi, alpha, bias, *, iterations=20, eps=1e-6):
    n, wide, flat = x.shape[-2], torch.promote_types(x.dtype, torch.float32), x.flatten(-2)
    rstd = torch.rsqrt(flat.to(wide).square().mean(-1, keepdim=True) + eps)
    pre, post, res = alpha.to(wide)
    scale = torch.cat([pre.expand(n), post.expand(n), res.expand(n * n)])
    z = (flat @ phi.mT).to(wide) * rstd * scale + bias.to(wide)
    pre, post, res = z.split([n, n, n * n], -1)
    return pre.sigmoid(), 2 * post.sigmoid(), sinkhorn_reference(res.unflatten(-1, (n, n)), iterations)


# ## Forward
#
# To normalize a row, one needs the sum of its squares, and the product needs all of it, too. A factor that all numbers
# of a row have in common can wait until after the product: so one trip over `x` does for both, [[tag: HC-rstd]] and
# [[tag: HC-mix]].
#
# The product has $2n + n^2$ columns, 24 for four streams, in this order: first those of what is read, then of what is
# written, then of the mixture, row by row. `phi` is stored with a row for each of these columns. A tile of it is loaded
# with the columns where they belong, so nothing has to be transposed.
#
# Where do the squares come from? In a product of the tile with itself, $x x^T$, they are the diagonal. That computes 64
# sums for each one that is wanted, and is nearly free: tensor cores multiply while the next tiles come from memory. For
# float32 there are no such cores, unless factors are rounded, and each number is squared by itself.
#
# Why not always? On Hopper a product reads its tiles from shared memory *while* the program goes on, and a new tile may
# not be written there before it has. Triton reckons with that for tiles that only products use. Up to 3.9 at least, it
# gives one that is also loaded into registers a place less: then the tile that comes next overwrites what a product
# still reads. A kernel like this one, with 64 rows a program and two programs an SM, had sums that were off by
# hundredths.
@triton.jit
def coefficients_kernel(
    x_ptr, phi_ptr,  # (M, K), rows stride_xm apart; (columns, K), contiguous
    alpha_ptr, bias_ptr,  # (3,), (columns,)
    pre_ptr, post_ptr, logits_ptr,  # (M, n), (M, n), (M, n, n), all float32
    mix_ptr, rstd_ptr,  # (M, columns), (M,), float32, for backward; or None
    M, K, n, stride_xm, eps: tl.constexpr, INPUT_PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, DIAGONAL: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.arange(0, BLOCK_N)
    columns = 2 * n + n * n
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    squares = tl.zeros((BLOCK_M, BLOCK_M if DIAGONAL else BLOCK_K), tl.float32)
    for start in tl.range(0, K, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        mask_x = (token < M)[:, None] & (offs_k < K)[None, :]
        x = tl.load(x_ptr + token[:, None] * stride_xm + offs_k[None, :], mask=mask_x, other=0.0)
        mask_phi = (offs_k < K)[:, None] & (column < columns)[None, :]
        phi_ptrs = phi_ptr + column[None, :].to(tl.int64) * K + offs_k[:, None]
        acc = multiply_add(x, tl.load(phi_ptrs, mask=mask_phi, other=0.0), acc, INPUT_PRECISION)
        if DIAGONAL:
            squares = multiply_add(x, tl.trans(x), squares, INPUT_PRECISION)
        else:
            squares += x * x
    if DIAGONAL:
        squares = tl.where(token[:, None] == token[None, :], squares, 0.0)
    # [[tag: HC-rstd]] and [[tag: HC-mix]]. The example's first token has the streams (2, 0) and (0, 2), so its mean
    # square is 2: `pid=0: rstd = [0.7071, 1.0000]`. The first row of `phi` picks the token's first number, which is 2:
    # `pid=0: mix[0, 0] = 1.414`.
    rstd = 1.0 / tl.sqrt(tl.sum(squares, 1) / K + eps)
    mix = acc * rstd[:, None]
    # Which of the three `alpha` is a column's? [[tag: HC-z]]
    group = (column >= n).to(tl.int32) + (column >= 2 * n).to(tl.int32)
    scale = tl.load(alpha_ptr + group).to(tl.float32)
    bias = tl.load(bias_ptr + column, mask=column < columns, other=0.0).to(tl.float32)
    z = mix * scale[None, :] + bias[None, :]
    # [[tag: HC-coefficients]]: what is read lies between 0 and 1, what is written between 0 and 2.
    here = (token < M)[:, None] & (column < columns)[None, :]
    of_pre = here & (column < n)[None, :]
    of_post = here & (column >= n)[None, :] & (column < 2 * n)[None, :]
    share = sigmoid_of(z)
    tl.store(pre_ptr + token[:, None] * n + column[None, :], share, mask=of_pre)
    tl.store(post_ptr + token[:, None] * n + column[None, :] - n, 2.0 * share, mask=of_post)
    logits_ptrs = logits_ptr + token[:, None] * n * n + column[None, :] - 2 * n
    tl.store(logits_ptrs, z, mask=here & (column >= 2 * n)[None, :])
    if mix_ptr is not None:
        tl.store(mix_ptr + token[:, None] * columns + column[None, :], mix, mask=here)
        tl.store(rstd_ptr + token, rstd, mask=token < M)


# ## Backward, in two steps
#
# First what is small: the slopes of all columns, [[tag: HC-bias]], and for each token how much of `x` itself its
# normalization takes away, the last term of [[tag: HC-x]]. The gradients of `alpha` and `bias` are sums of these
# slopes over tokens, which PyTorch adds up.
@triton.jit
def slopes_kernel(
    dpre_ptr, dpost_ptr, dlogits_ptr,  # (M, n), (M, n), (M, n, n), contiguous, or None
    pre_ptr, post_ptr, mix_ptr, rstd_ptr, alpha_ptr,  # as above
    dz_ptr, pull_ptr,  # (M, columns), (M,)
    M, K, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.arange(0, BLOCK_N)
    columns = 2 * n + n * n
    here = (token < M)[:, None] & (column < columns)[None, :]
    of_pre = here & (column < n)[None, :]
    of_post = here & (column >= n)[None, :] & (column < 2 * n)[None, :]
    at_pre = token[:, None] * n + column[None, :]
    at_logits = token[:, None] * n * n + column[None, :] - 2 * n
    # [[tag: HC-bias]]. A column has one of the three, the others are 0 there. Where nobody asks for one of the three
    # results, its gradient is None and counts for nothing: zeros wouldn't do, for 0 times a NaN of its token is NaN.
    dz = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    if dpre_ptr is not None:
        pre = tl.load(pre_ptr + at_pre, mask=of_pre, other=0.0)
        dz += tl.load(dpre_ptr + at_pre, mask=of_pre, other=0.0) * pre * (1.0 - pre)
    if dpost_ptr is not None:
        post = tl.load(post_ptr + at_pre - n, mask=of_post, other=0.0)
        dz += tl.load(dpost_ptr + at_pre - n, mask=of_post, other=0.0) * post * (1.0 - 0.5 * post)
    if dlogits_ptr is not None:
        dz += tl.load(dlogits_ptr + at_logits, mask=here & (column >= 2 * n)[None, :], other=0.0)
    group = (column >= n).to(tl.int32) + (column >= 2 * n).to(tl.int32)
    scale = tl.load(alpha_ptr + group).to(tl.float32)
    mix = tl.load(mix_ptr + token[:, None] * columns + column[None, :], mask=here, other=0.0)
    rstd = tl.load(rstd_ptr + token, mask=token < M, other=0.0)
    pull = rstd * rstd / K * tl.sum(dz * scale[None, :] * mix, 1)
    tl.store(dz_ptr + token[:, None] * columns + column[None, :], dz, mask=here)
    tl.store(pull_ptr + token, pull, mask=token < M)


# Then what is large. A program owns `BLOCK_K` columns of `x`, and goes down the tokens, `BLOCK_M` at a time. Each tile
# of `x` is loaded once, for two products: with `phi` it gives the rows of `dx`, and the slopes with it give `dphi`,
# [[tag: HC-phi]]. As in [LayerNorm](../classics/layernorm.py), several programs share the tokens of a block of
# columns, each stores its own sums, and PyTorch adds up these few.
@triton.jit
def coefficients_backward_kernel(
    x_ptr, phi_ptr, alpha_ptr, dz_ptr, rstd_ptr, pull_ptr,  # as above
    dx_ptr, partial_dphi_ptr,  # (M, K), contiguous; (programs along the tokens, columns, K), float32
    M, K, n, stride_xm, INPUT_PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    column = tl.arange(0, BLOCK_N)
    columns = 2 * n + n * n
    offs_k = tl.program_id(0).to(tl.int64) * BLOCK_K + tl.arange(0, BLOCK_K)
    group = (column >= n).to(tl.int32) + (column >= 2 * n).to(tl.int32)
    scale = tl.load(alpha_ptr + group).to(tl.float32)
    mask_phi = (column < columns)[:, None] & (offs_k < K)[None, :]
    at_phi = column[:, None].to(tl.int64) * K + offs_k[None, :]
    phi = tl.load(phi_ptr + at_phi, mask=mask_phi, other=0.0)
    dphi = tl.zeros((BLOCK_N, BLOCK_K), tl.float32)
    for start in tl.range(tl.program_id(1) * BLOCK_M, M, tl.num_programs(1) * BLOCK_M):
        token = (start + tl.arange(0, BLOCK_M)).to(tl.int64)
        rstd = tl.load(rstd_ptr + token, mask=token < M, other=0.0)
        pull = tl.load(pull_ptr + token, mask=token < M, other=0.0)
        mask_x = (token < M)[:, None] & (offs_k < K)[None, :]
        x = tl.load(x_ptr + token[:, None] * stride_xm + offs_k[None, :], mask=mask_x, other=0.0)
        # The slopes are loaded twice, as rows for one product and as columns for the other: a tile that was computed
        # isn't transposed, which some versions of the compiler get wrong on Hopper.
        mask_dz = (token < M)[:, None] & (column < columns)[None, :]
        dz = tl.load(dz_ptr + token[:, None] * columns + column[None, :], mask=mask_dz, other=0.0)
        given = (dz * scale[None, :] * rstd[:, None]).to(x.dtype)
        # [[tag: HC-x]]
        zero = tl.zeros((BLOCK_M, BLOCK_K), tl.float32)
        dx = multiply_add(given, phi, zero, INPUT_PRECISION) - pull[:, None] * x.to(tl.float32)
        tl.store(dx_ptr + token[:, None] * K + offs_k[None, :], dx, mask=mask_x)
        mask_turned = (column < columns)[:, None] & (token < M)[None, :]
        turned = tl.load(dz_ptr + token[None, :] * columns + column[:, None], mask=mask_turned, other=0.0)
        turned = (turned * scale[:, None] * rstd[None, :]).to(x.dtype)
        dphi = multiply_add(turned, x, dphi, INPUT_PRECISION)
    tl.store(partial_dphi_ptr + tl.program_id(1).to(tl.int64) * columns * K + at_phi, dphi, mask=mask_phi)


# ## Launchers
#
# The columns of the product fill 16, 32, 64 or 128 lanes: 24 of 32 for four streams. Of the three products one sums
# over channels, one over columns and one over tokens, and `tl.dot` wants 16 at least where it sums.
def product_tile(n, BLOCK_M, BLOCK_K):
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_K=BLOCK_K)
    return dict(INPUT_PRECISION=input_precision(), BLOCK_M=BLOCK_M, BLOCK_N=columns_of(n), BLOCK_K=BLOCK_K)


def columns_of(n):
    return max(16, power_of_2_up_to(128, 2 * n + n * n))


# Forward, 64 tokens are as many rows as Hopper's products have at least; with fewer, older instructions multiply. The
# tiles of a stage have 24 KiB at most, so that four fit into the shared memory of smaller cards, too.
def forward_tile(x, n, BLOCK_M, BLOCK_K):
    diagonal = x.element_size() == 2
    if BLOCK_M is None:
        BLOCK_M, BLOCK_K = (64, 128 if columns_of(n) <= 32 else 64) if diagonal else (16, 64)
    return dict(
        DIAGONAL=diagonal, num_stages=4, num_warps=8 if diagonal and n > 6 else 4, **product_tile(n, BLOCK_M, BLOCK_K)
    )


@replayed
def coefficients_forward(x, phi, alpha, bias, eps=1e-6, *, keep=False, BLOCK_M=None, BLOCK_K=None):
    """`(pre, post, logits, mix, rstd)`; the last two are None unless backward will want them."""
    *lead, n, _ = x.shape
    new = lambda *shape: torch.empty(*shape, dtype=torch.float32, device=x.device)  # noqa: E731
    pre, post, logits = new(*lead, n), new(*lead, n), new(*lead, n, n)
    M = pre.numel() // n
    mix, rstd = (new(M, len(bias)), new(M)) if keep else (None, None)
    if M > 0:
        rows, sizes = as_rows(x.flatten(-2)), forward_tile(x, n, BLOCK_M, BLOCK_K)
        K = rows.shape[1]
        coefficients_kernel[(triton.cdiv(M, sizes["BLOCK_M"]),)](
            rows, phi.contiguous(), alpha.contiguous(), bias.contiguous(), pre, post, logits, mix, rstd, M, K, n,
            row_stride(rows, K), eps, **sizes,
        )  # fmt: skip
    return pre, post, logits, mix, rstd


# About a thousand programs for the second step, whatever the card. More along the tokens mean more partial sums.
@replayed
def coefficients_backward(
    dpre, dpost, dlogits, x, phi, alpha, bias, pre, post, mix, rstd, *, BLOCK_M=32, BLOCK_K=64, num_programs=1024
):
    """`(dx, dphi, dalpha, dbias)`."""
    (M, columns), n, K = mix.shape, x.shape[-2], phi.shape[1]
    blocks, sizes = triton.cdiv(K, BLOCK_K), product_tile(n, BLOCK_M, BLOCK_K)
    P = min(triton.cdiv(M, BLOCK_M), max(1, num_programs // blocks))
    (dx, dz), pull = contiguous_like(x, mix), torch.empty_like(rstd)
    partial_dphi = torch.empty(P, columns, K, dtype=torch.float32, device=x.device)
    if M > 0:
        upstream = (None if each is None else each.contiguous() for each in (dpre, dpost, dlogits))
        scale, weights, rows = alpha.contiguous(), phi.contiguous(), as_rows(x.flatten(-2))
        slopes_kernel[(triton.cdiv(M, BLOCK_M),)](
            *upstream, pre, post, mix, rstd, scale, dz, pull, M, K, n,
            BLOCK_M=BLOCK_M, BLOCK_N=sizes["BLOCK_N"],
        )  # fmt: skip
        coefficients_backward_kernel[(blocks, P)](
            rows, weights, scale, dz, rstd, pull, dx, partial_dphi, M, K, n, row_stride(rows, K), **sizes
        )
    of_column = (dz * mix).sum(0)
    dalpha = torch.stack([part.sum() for part in of_column.split([n, n, n * n])])
    return dx, partial_dphi.sum(0).to(phi.dtype), dalpha.to(alpha.dtype), dz.sum(0).to(bias.dtype)


# ## Joining autograd
#
# The mixture's logits are handed to [sinkhorn](sinkhorn.py), which differentiates itself.
class StreamCoefficients(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, phi, alpha, bias, eps):
        pre, post, logits, mix, rstd = coefficients_forward(x, phi, alpha, bias, eps, keep=True)
        ctx.save_for_backward(x, phi, alpha, bias, pre, post, mix, rstd)
        ctx.set_materialize_grads(False)
        return pre, post, logits

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dpre, dpost, dlogits):
        return *coefficients_backward(dpre, dpost, dlogits, *ctx.saved_tensors), None


def coefficients(x, phi, alpha, bias, eps):
    """`(pre, post, logits)`, through the autograd `Function` if something needs a gradient."""
    if autograd.needs_frame(x, phi, alpha, bias):
        return StreamCoefficients.apply(x, phi, alpha, bias, eps)
    return coefficients_forward(x, phi, alpha, bias, eps)[:3]


# ## The public function
@replayed
def stream_coefficients(x, phi, alpha, bias, *, iterations=20, eps=1e-6):
    r"""What a layer reads of each stream, writes to each, and how streams are mixed; differentiable in all tensors.

    Args:
        x: (…, n, C) float32, float16 or bfloat16, any strides, n from 1 to 8, C at least 1.
        phi: (2n + n², n · C), dtype of `x`: n rows for what is read, n for what is written, n² for the mixture.
        alpha: (3,), any of these dtypes: a factor for each of the three.
        bias: (2n + n²,), any of these dtypes.
        iterations: rounds of `sinkhorn`, at least 1.
        eps: added to the mean of squares of a token, at least 0.

    Returns:
        `(pre, post, res)`, float32: (…, n), from 0 to 1; (…, n), from 0 to 2; (…, n, n), doubly stochastic.

    Raises:
        TypeError, ValueError: an argument has a wrong type, dtype, shape or device, or is out of range.

    Source: Xie et al., "mHC: Manifold-Constrained Hyper-Connections" (arXiv 2512.24880).
    """
    _, n, C = streams_contract(x)
    columns = 2 * n + n * n
    beside(x, phi=(phi, (columns, n * C)), alpha=(alpha, (3,)), bias=(bias, (columns,)))
    checks.same_dtype(x=x, phi=phi)
    checks.dtypes(alpha=alpha, bias=bias)
    checks.positive(iterations=iterations)
    checks.number("eps", eps, at_least=0)
    if C == 0:
        raise ValueError(f"x must have a channel, got shape {tuple(x.shape)}")
    eps = float(eps)
    pre, post, logits = coefficients(x, phi, alpha, bias, eps)
    return pre, post, sinkhorn(logits, iterations)


# ## A run small enough to watch
#
# Three tokens of two streams and two channels, two tokens at a time, two channels at a time.
def EXAMPLE():
    make = lambda rows: torch.tensor(rows, dtype=torch.float32, device=device.DEVICE)  # noqa: E731
    x = make([[[2, 0], [0, 2]], [[1, 1], [-1, 1]], [[0, 2], [0, 0]]])
    phi = torch.cat(
        [torch.eye(4, device=device.DEVICE), make([[1, 1, 0, 0], [0, 0, 1, -1], [0, 1, 1, 0], [1, 0, 0, 1]])]
    )
    alpha, bias, size = make([1, 0.5, 1]), make([0, 0, 1, 0, 0, 0, 0, -1]), dict(BLOCK_M=2, BLOCK_K=2)
    pre, post, logits, mix, rstd = coefficients_forward(x, phi, alpha, bias, keep=True, **size)
    given = make([[1, 0]] * 3), make([[0, 1]] * 3), torch.ones_like(logits)
    coefficients_backward(*given, x, phi, alpha, bias, pre, post, mix, rstd, num_programs=4, **size)


if __name__ == "__main__":
    script.main(stream_coefficients, stream_coefficients_reference)
