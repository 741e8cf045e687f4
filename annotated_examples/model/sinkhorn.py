r"""
# Sinkhorn: rows and columns that add up to one

A model with several residual streams mixes them in every layer, dozens of times in a row. If the matrix that mixes them
lets a stream grow by 10 %, sixty layers make that a factor of 300. So the matrix should be *doubly stochastic*: no
entry is negative, and every row and every column adds up to 1. Then each new stream is an average of the old ones, and
together they weigh what they weighed.

How does one get there from any logits? By dividing each column by its sum, then each row by its sum, and again. Each
division spoils the sums of the other kind, but less each time.

[[figure: streams/rounds]]

A kernel that divides exponentials overflows where logits are large. In logarithms a quotient is a difference, and
nothing can. Of the columns one knows what to subtract, $c$, and of the rows $r$:

[[eq: HC-c]]

[[eq: HC-r]]

The last rows make the result, [[tag: HC-H]]: **rows add up to 1**, whatever the logits and the number of rounds, and
columns nearly, the nearer the more rounds.

Going back, the gradient runs through all rounds in reverse. A limit would have a shorter formula, by a system of
equations, and twenty rounds aren't at the limit if logits are large. What this computes is the gradient of the rounds
that were made.

But once rows add up to 1, nothing is large any more, and it may divide after all, which takes no exponential and no
logarithm. So the kernel makes one round in logarithms, and the next fifteen by quotients.

New on this page: blocks of three dimensions, a kernel that keeps what each round of its loop began with, loads that run
ahead of a loop, and lanes past the end that need no mask.

**What it costs.** Hardly any memory: 16 logits and 16 results a token, and for backward 20 times four numbers, 320
bytes. But a round has to wait for the round before, for two sums and two quotients. For 8192 tokens, forward takes
[[bench: sinkhorn/8192x4x4/forward/ms]] on an H200 and backward [[bench: sinkhorn/8192x4x4/backward/ms]]. PyTorch
launches kernels for each division and takes [[bench: sinkhorn/8192x4x4/forward/eager.ms]] and
[[bench: sinkhorn/8192x4x4/backward/eager.ms]]; compiled it is [[bench: sinkhorn/8192x4x4/forward/torch.compile.ms]] and
[[bench: sinkhorn/8192x4x4/backward/torch.compile.ms]].

**Contract.** `logits` are (…, n, n) with n from 1 to 8, float32, float16 or bfloat16, with any strides. All arithmetic
is float32, and so is the result. Entry [i, j] says how much of stream j goes *into* stream i. A single −∞ is an entry
of 0. A NaN, or a column of −∞, makes its own matrix NaN; a row of −∞ does after the first round.
"""

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch
import triton
import triton.language as tl

from annotated_examples.common.exponential import exp
from annotated_examples.common.launching import power_of_2_up_to
from annotated_examples.common.streams import MOST_STREAMS


# ## Reference
#
# In float32, or in the dtype of the logits if that is wider.
def sinkhorn_reference(logits, iterations=20):
    z = logits.to(torch.promote_types(logits.dtype, torch.float32))
    r, c = z.new_zeros(z.shape[:-1]), None
    for _ in range(iterations):
        c = torch.logsumexp(z - r[..., :, None], -2)
        r = torch.logsumexp(z - c[..., None, :], -1)
    return torch.softmax(z - c[..., None, :], -1)


# ## Many small matrices at once
#
# A matrix of 4 by 4 has 16 numbers, and a program has 128 threads. So a program takes `BLOCK_M` matrices, as a block of
# three dimensions: which matrix, which row, which column. `[:, None, None]` makes the first of an index, `[None, :,
# None]` the second, `[None, None, :]` the third.
#
# Three streams need a block of 4 by 4, whose lanes past the end take part in every sum. Masks would have to keep them
# out of eight places. Here they get a stream of their own, which is mixed with nobody: 0 on the diagonal, and −∞ beside
# it. Its row and its column add up to 1 from the start, and no other notices.
@triton.jit
def padding_of(BLOCK_M: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    own = tl.where(i[:, None] == i[None, :], 0.0, float("-inf"))
    return tl.broadcast_to(own[None, :, :], (BLOCK_M, N, N))


# The logarithm of a sum of exponentials, along the rows or the columns. The largest is taken out, as in
# [cross entropy](../classics/cross_entropy.py). An infinite logit isn't taken out of its column: ∞ − ∞ is NaN, and all
# rows would have it. (Rows are reached by differences that are at most 0.)
@triton.jit
def log_sum_exp_of_columns(z):
    largest = tl.max(z, 1)
    largest = tl.where(tl.abs(largest) == float("inf"), 0.0, largest)
    return largest + tl.log(tl.sum(tl.exp(z - largest[:, None, :]), 1))


@triton.jit
def log_sum_exp_of_rows(z):
    largest = tl.max(z, 2)
    return largest + tl.log(tl.sum(tl.exp(z - largest[:, :, None]), 2))


# And $e^{z - r}$, with the $r$ that makes rows add up to 1. Subtracting $r$ would round it once more: at logits of
# 10⁴ the seventh digit is a thousandth, and so far would the sums be off. A quotient adds up whatever size logits have.
@triton.jit
def softmax_of_rows(z):
    e = exp(z - tl.max(z, 2)[:, :, None])
    return e / tl.sum(e, 2)[:, :, None]


# ## Rounds that divide
#
# Say rows have just been divided by their sums. How small can the sum of a column be? Before that, each column added up
# to one. No row's sum was larger than $n$ then, so no entry became less than an $n$-th of itself: the column's sum is
# at least $1/n$, and at most $n$. The same holds of rows when columns have been divided. So after one round in
# logarithms all sums are between $1/n$ and $n$, whatever the logits.
#
# From there on a round divides. The matrix that is left of the logits then, `k`, stays as it is. Each row has a factor
# `a` and each column a factor `b`: all of them are new in each round, so what is rounded doesn't add up. A factor grows
# by $n$ in a round at most. (Logits of 10¹⁰ lie a thousand apart, and where they are rounded so much the bound needn't
# hold. So no sum counts as less than $2^{-48}$, which is less than 16 rounds of eight streams can make of one.)
#
# After many rounds the factors would leave the range of floats, and so would a tiny entry that they should have brought
# back. Therefore after `EVERY` rounds the factors go into $r$ and $c$, and a round in logarithms makes `k` anew. In 15
# rounds an entry grows by $n^{30}$ at most, $10^{27}$ for eight streams. What was too small for a float, $10^{-38}$,
# is still nothing beside a sum of $1/n$.
EVERY = tl.constexpr(16)


@triton.jit
def factors(sums):
    return 1.0 / tl.where(sums < 2.0**-48, 2.0**-48, sums)


# Backward wants to know where each round began. All $c$ follow from that, so they aren't kept.
@triton.jit
def keep_rows_of(t, r, rows_ptr, m, M, n, N: tl.constexpr):
    if rows_ptr is not None:
        i = tl.arange(0, N)
        rows_ptrs = rows_ptr + (tl.cast(t, tl.int64) * M + m)[:, None] * n + i[None, :]
        tl.store(rows_ptrs, r, mask=(m < M)[:, None] & (i < n)[None, :])


# ## Forward
#
# The example has three matrices of three streams, two in a program. The exponentials of the first one's logits are
#
# | | | |
# |---|---|---|
# | 4 | 1 | 1 |
# | 1 | 2 | 1 |
# | 3 | 1 | 2 |
@triton.jit
def sinkhorn_kernel(
    logits_ptr,  # (M, n, n)
    h_ptr,  # (M, n, n) in float32, contiguous
    rows_ptr,  # (iterations, M, n) in float32, or None
    M, n, stride_m, stride_i, stride_j, iterations, BLOCK_M: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    i = tl.arange(0, N)
    inside = (m < M)[:, None, None] & (i < n)[None, :, None] & (i < n)[None, None, :]
    # The fourth stream has been put there: `pid=0: z[0, 3] = [-inf, -inf, -inf, 0]`.
    logits_ptrs = logits_ptr + m[:, None, None] * stride_m + i[None, :, None] * stride_i + i[None, None, :] * stride_j
    z = tl.load(logits_ptrs, mask=inside, other=padding_of(BLOCK_M, N)).to(tl.float32)

    r = tl.zeros((BLOCK_M, N), tl.float32)
    c = tl.zeros((BLOCK_M, N), tl.float32)
    for first in tl.range(0, iterations, EVERY):
        keep_rows_of(first, r, rows_ptr, m, M, n, N)
        # [[tag: HC-c]]. The columns of the first matrix add up to 8, 4 and 4, whose logarithms are
        # `pid=0, first=0: c[0] = [2.079, 1.386, 1.386, 0]`.
        c = log_sum_exp_of_columns(z - r[:, :, None])
        # [[tag: HC-r]]. Its rows add up to 1, 7/8 and 9/8 then: `pid=0, first=0: r[0] = [0, -0.1335, 0.1178, 0]`.
        r = log_sum_exp_of_rows(z - c[:, None, :])

        # From here on by quotients: `pid=0, first=0: k[0, 0] = [0.5, 0.25, 0.25, 0]`.
        k = exp(z - c[:, None, :] - r[:, :, None])
        a = tl.full((BLOCK_M, N), 1.0, tl.float32)
        b = tl.full((BLOCK_M, N), 1.0, tl.float32)
        for t in tl.range(first + 1, tl.minimum(first + EVERY, iterations)):
            keep_rows_of(t, r - tl.log(a), rows_ptr, m, M, n, N)
            b = factors(tl.sum(k * a[:, :, None], 1))
            a = factors(tl.sum(k * b[:, None, :], 2))
        r -= tl.log(a)
        c -= tl.log(b)
    # [[tag: HC-H]]. After two rounds: `pid=0: h[0, 0] = [0.5087, 0.2379, 0.2533, 0]`.
    h = softmax_of_rows(z - c[:, None, :])
    h_ptrs = h_ptr + m[:, None, None] * n * n + i[None, :, None] * n + i[None, None, :]
    tl.store(h_ptrs, h, mask=inside)


# ## Backward
#
# How does a gradient get through a division by a sum? The logarithm of what comes out is the logarithm of what went in,
# minus that of the sum. If an entry goes up by a little, so does the sum, by the entry's share of it, and then all
# entries of that row go down. So from each entry's gradient one takes its own share of what the whole row gets,
# [[tag: HC-back]]. The shares are the numbers that came out of the division.
#
# A round was columns first, then rows, so on the way back rows come first. The $r$ it began with is loaded, the $c$ is
# computed again. Without the saved $r$ a kernel would have to make all earlier rounds again for each round, which are
# 190 for 20.
#
# What is loaded depends on nothing that the loop computes. `num_stages` has the compiler load it some rounds ahead,
# into shared memory. Otherwise each round would begin by waiting for memory.
@triton.jit
def sinkhorn_backward_kernel(
    dh_ptr, logits_ptr,  # (M, n, n) contiguous, and (M, n, n)
    h_ptr, rows_ptr,  # (M, n, n) and (iterations, M, n), as forward stored them
    dlogits_ptr,  # (M, n, n), contiguous
    M, n, stride_m, stride_i, stride_j, iterations, BLOCK_M: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    i = tl.arange(0, N)
    inside = (m < M)[:, None, None] & (i < n)[None, :, None] & (i < n)[None, None, :]
    logits_ptrs = logits_ptr + m[:, None, None] * stride_m + i[None, :, None] * stride_i + i[None, None, :] * stride_j
    z = tl.load(logits_ptrs, mask=inside, other=padding_of(BLOCK_M, N)).to(tl.float32)
    at = m[:, None, None] * n * n + i[None, :, None] * n + i[None, None, :]
    # From the matrix to its logarithm: $dH$ is multiplied by $H$. The example's upstream gradient is 1 for the first
    # entry of each matrix: `pid=0: d_start[0, 0] = [0.5087, 0, 0, 0]`.
    d_start = tl.load(dh_ptr + at, mask=inside, other=0.0) * tl.load(h_ptr + at, mask=inside, other=0.0)
    d = d_start
    for passed in tl.range(0, iterations, num_stages=4):
        t = iterations - 1 - passed
        rows_ptrs = rows_ptr + (tl.cast(t, tl.int64) * M + m)[:, None] * n + i[None, :]
        r = tl.load(rows_ptrs, mask=(m < M)[:, None] & (i < n)[None, :], other=0.0)
        c = log_sum_exp_of_columns(z - r[:, :, None])
        # Back through the rows. In the last round the shares of a row are H itself:
        # `pid=0, passed=0: of_row[0, 0] = [0.5087, 0.2379, 0.2533, 0]`. The row gets 0.5087 in all, and of that the
        # first entry's share is taken away from it: `pid=0, passed=0: d[0, 0, 0] = 0.2499`, once columns have
        of_row = softmax_of_rows(z - c[:, None, :])
        d -= of_row * tl.sum(d, 2)[:, :, None]
        # had their turn, whose shares are what the rows began with.
        of_column = exp(z - r[:, :, None] - c[:, None, :])
        d -= of_column * tl.sum(d, 1)[:, None, :]
    # [[tag: HC-Z]]
    tl.store(dlogits_ptr + at, d, mask=inside)


# ## Launchers
#
# A program is one warp, with four entries for each of its threads: a card has room for many such programs, and each
# waits for its own rounds only. It has them for a single matrix, too. In a smaller block other lanes would hold a row,
# its sum would have another order, and a token alone other bits than in a batch.
def tile(n, BLOCK_M):
    checks.power_of_two(BLOCK_M=BLOCK_M)
    N = power_of_2_up_to(MOST_STREAMS, n)
    return dict(BLOCK_M=BLOCK_M or 128 // (N * N), N=N, num_warps=1)


# As (M, n, n): without a copy, if the strides allow that.
def as_matrices(x):
    return x.reshape(-1, *x.shape[-2:])


@replayed
def sinkhorn_forward(logits, iterations=20, *, keep_rows=False, BLOCK_M=None):
    """`(h, rows)`: h is (…, n, n), and rows (iterations, matrices, n), what each round began with, or None."""
    n = logits.shape[-1]
    M = logits.numel() // (n * n)
    h = torch.empty(logits.shape, dtype=torch.float32, device=logits.device)
    rows = torch.empty(iterations, M, n, dtype=torch.float32, device=logits.device) if keep_rows else None
    if M > 0:
        z, sizes = as_matrices(logits), tile(n, BLOCK_M)
        sinkhorn_kernel[(triton.cdiv(M, sizes["BLOCK_M"]),)](z, h, rows, M, n, *z.stride(), iterations, **sizes)
    return h, rows


@replayed
def sinkhorn_backward(dh, logits, h, rows, *, BLOCK_M=None):
    """The gradient of the logits, from the upstream gradient and what forward was given and returned."""
    dlogits = torch.empty_like(logits, memory_format=torch.contiguous_format)
    iterations, M, n = rows.shape
    if M > 0:
        z, sizes = as_matrices(logits), tile(n, BLOCK_M)
        sinkhorn_backward_kernel[(triton.cdiv(M, sizes["BLOCK_M"]),)](
            dh.contiguous(), z, h, rows, dlogits, M, n, *z.stride(), iterations, **sizes
        )
    return dlogits


# ## Joining autograd
class Sinkhorn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, iterations):
        h, rows = sinkhorn_forward(logits, iterations, keep_rows=True)
        ctx.save_for_backward(logits, h, rows)
        return h

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dh):
        return sinkhorn_backward(dh, *ctx.saved_tensors), None


def contract(logits, iterations):
    checks.tensors(logits=logits)
    checks.dtypes(logits=logits)
    checks.dimensions("logits", logits, range(2, 65), "a matrix lies along the last two")
    n = logits.shape[-1]
    if logits.shape[-2] != n or not 1 <= n <= MOST_STREAMS:
        raise ValueError(f"logits must end in n, n with n from 1 to {MOST_STREAMS}, got shape {tuple(logits.shape)}")
    checks.positive(iterations=iterations)


@replayed
def sinkhorn(logits, iterations=20):
    r"""A doubly stochastic matrix from any logits, by Sinkhorn's rounds; differentiable in `logits`.

    No small number is added anywhere. DeepSeek's code adds 1e-6 to every quotient. At logits of 3 N(0, 1) that moves
    entries, some by several hundredths. For weights that were trained with it, pass
    `torch.logaddexp(torch.log_softmax(logits, -2), torch.tensor(1e-6).log())`: that gives the same to 1e-5.

    Args:
        logits: tensor of shape (…, n, n), n from 1 to 8, float32, float16 or bfloat16, any strides. Entry [i, j] is for
            what goes from stream j into stream i.
        iterations: how many rounds, at least 1; each divides columns first, then rows.

    Returns:
        A float32 tensor of the same shape: rows add up to 1, columns nearly.

    Raises:
        TypeError: `logits` isn't a tensor or has another dtype, or `iterations` isn't an int.
        ValueError: another shape, the wrong device, or fewer than one iteration.

    Source: Sinkhorn and Knopp (1967); Xie et al., "mHC: Manifold-Constrained Hyper-Connections" (arXiv 2512.24880).
    """
    contract(logits, iterations)
    if not autograd.needs_frame(logits):
        return sinkhorn_forward(logits, iterations)[0]
    return Sinkhorn.apply(logits, iterations)


# ## A run small enough to watch
#
# Three matrices of three streams, two rounds, two matrices in a program.
def EXAMPLE():
    weights = [
        [[4.0, 1, 1], [1, 2, 1], [3, 1, 2]],
        [[1, 1, 2], [1, 3, 1], [2, 2, 1]],
        [[1, 2, 3], [3, 1, 1], [1, 1, 1]],
    ]
    logits = torch.tensor(weights, device=device.DEVICE).log()
    h, rows = sinkhorn_forward(logits, 2, keep_rows=True, BLOCK_M=2)
    dh = torch.zeros_like(h)
    dh[:, 0, 0] = 1
    sinkhorn_backward(dh, logits, h, rows, BLOCK_M=2)


if __name__ == "__main__":
    script.main(sinkhorn, sinkhorn_reference)
