r"""
# The entropy over many ranks: how undecided is the model?

Reinforcement learning rewards a model for keeping its options open, and so asks for the entropy of each token's
distribution. The logits are cut over the ranks, as for the [loss](vocab_parallel_cross_entropy.py). With the largest
logit $M$, the sum $S$ and the weighted sum $E$ of a row, the entropy is

[[eq: VP-H]]

and each rank contributes three numbers, [[tag: VP-m]], [[tag: VP-s]] and [[tag: VP-v]]. The gradient is
[[tag: VP-H-Z]].

**What it costs.** The logits are read once forward and once backward, and their gradient is written, a new tensor. The
gather takes 12 bytes for each row and rank. verl's version keeps the softmax for the backward pass, a tensor as large
as the logits, and writes the gradient over it. For that it subtracts the mean from the saved logits, in place, and adds
it again afterwards. The logits don't come back the same to the last bit, and autograd counts both writes: if another
operation has saved these logits, its backward pass raises an error.

**Contract.** As for the loss. `logits` is (..., columns) of this rank, float32, float16 or bfloat16, any strides, any
number of columns; or a `DTensor` with the placement `Shard(-1)`. A logit of −∞ has the probability 0 and adds nothing.
"""

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python

import torch
import triton
import triton.language as tl

from annotated_examples.common.constants import LOWEST
from annotated_examples.common.exponential import exp
from annotated_examples.common.logits import add_moments, rebase
from annotated_examples.common.ranks import Shard, columns_of_dtensor, even_cuts, gathered, is_dtensor, shard_of
from annotated_examples.common.rows import as_rows, row_stride


# ## Reference
#
# `torch.where` keeps 0 · (−∞) out of the sum, and out of its gradient.
def vocab_parallel_entropy_reference(logits, *, logit_scaling=0.0):
    z = logits * logit_scaling if logit_scaling else logits
    log_p = torch.log_softmax(z, -1)
    possible = z > -float("inf")
    entropy = -torch.where(possible, log_p.exp() * torch.where(possible, log_p, 0.0), 0.0).sum(-1)
    return entropy.to(torch.promote_types(logits.dtype, torch.float32))


# ## Forward
#
# [[figure: ranks/row]]
#
# The sum of $(z - m) \, e^{z - m}$ is kept relative to the largest logit so far, like the sum of the exponentials. When
# a chunk brings a larger one, the sum is scaled down and its terms move: that is the step from $v_r$ to $E$ in
# [[tag: VP-E]], inside of one rank.
@triton.jit
def shard_moments_kernel(
    logits_ptr,  # (M, columns of this rank), rows stride_xm apart
    moments_ptr,  # (M, 3) in float32
    stride_xm,
    width,
    scaling: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    row_max = LOWEST
    row_sum = 0.0
    weighted = 0.0
    for start in tl.range(0, width, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = offs_n < width
        z = tl.load(logits_ptr + row * stride_xm + offs_n, mask=mask, other=0.0).to(tl.float32)
        if scaling != 0.0:
            z = tl.fma(z, scaling, 0.0)
        z = tl.where(mask, z, -float("inf"))
        row_max, row_sum, weighted = add_moments(z, row_max, row_sum, weighted)
    # The second row of the example on rank 0: `launch=0, pid=1: row_max = 2`, `launch=0, pid=1: row_sum = 1.1604`.
    tl.store(moments_ptr + row * 3 + 0, row_max)
    tl.store(moments_ptr + row * 3 + 1, row_sum)
    tl.store(moments_ptr + row * 3 + 2, weighted)


# The merge, by every rank in the same order.
@triton.jit
def merge_moments_kernel(
    moments_ptr, entropies_ptr, row_max_ptr, row_sum_ptr, mean_ptr,  # (world, M, 3); the others (M,)
    world, M, BLOCK_M: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    mask = rows < M
    row_max = tl.full((BLOCK_M,), LOWEST, tl.float32)
    for rank in range(0, world):
        row_max = tl.maximum(row_max, tl.load(moments_ptr + (rank * M + rows) * 3, mask=mask, other=0.0))
    row_sum = tl.zeros((BLOCK_M,), tl.float32)
    weighted = tl.zeros((BLOCK_M,), tl.float32)
    for rank in range(0, world):
        moments = moments_ptr + (rank * M + rows) * 3
        shift = tl.load(moments, mask=mask, other=0.0) - row_max
        theirs = tl.load(moments + 1, mask=mask, other=0.0), tl.load(moments + 2, mask=mask, other=0.0)
        sum_there, weighted_there = rebase(theirs[0], theirs[1], shift)
        row_sum += sum_there
        weighted += weighted_there
    # [[tag: VP-H]]. The mean logit, relative to the largest one: `pid=0: mean[:2] = [-0.77757, -0.50995]`.
    mean = weighted / row_sum
    tl.store(entropies_ptr + rows, tl.log(row_sum) - mean, mask=mask)
    tl.store(row_max_ptr + rows, row_max, mask=mask)
    tl.store(row_sum_ptr + rows, row_sum, mask=mask)
    tl.store(mean_ptr + rows, mean, mask=mask)


# ## Backward
@triton.jit
def entropy_backward_kernel(
    dentropies_ptr, logits_ptr, row_max_ptr, row_sum_ptr, mean_ptr,  # (M,), (M, N), (M,), (M,), (M,)
    dlogits_ptr,  # (M, N), contiguous
    stride_xm, width, N, scaling: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    z = tl.load(logits_ptr + row * stride_xm + offs_n, mask=offs_n < N, other=0.0).to(tl.float32)
    slope = 1.0
    if scaling != 0.0:
        z = tl.fma(z, scaling, 0.0)
        slope = scaling
    z -= tl.load(row_max_ptr + row)
    p = exp(z) / tl.load(row_sum_ptr + row)
    # [[tag: VP-H-Z]]. A NaN stays NaN; only a probability of zero makes the gradient zero.
    dz = tl.where(p == 0.0, 0.0, p * (tl.load(mean_ptr + row) - z))
    dx = dz * slope * tl.load(dentropies_ptr + row).to(tl.float32)
    tl.store(dlogits_ptr + row * N + offs_n, tl.where(offs_n < width, dx, 0.0), mask=offs_n < N)


# ## Launchers
def shard_moments(logits, shard, scaling=0.0, *, BLOCK_N=4096):
    """(rows, 3) float32: what one rank tells the others."""
    checks.power_of_two(BLOCK_N=BLOCK_N)
    rows, N = as_rows(logits), logits.shape[-1]
    moments = torch.empty((logits.shape[:-1].numel(), 3), dtype=torch.float32, device=logits.device)
    if len(moments):
        shard_moments_kernel[(len(moments),)](
            rows, moments, row_stride(rows, N), shard.width, scaling=float(scaling), BLOCK_N=BLOCK_N, num_warps=8
        )
    return moments


def merge_moments(everyones, *, BLOCK_M=64):
    """Entropy, largest logit, sum and mean logit of each row, from the (world, rows, 3) numbers of all ranks."""
    checks.power_of_two(BLOCK_M=BLOCK_M)
    world, M, _ = everyones.shape
    results = [torch.empty(M, dtype=torch.float32, device=everyones.device) for _ in range(4)]
    if M:
        merge_moments_kernel[(triton.cdiv(M, BLOCK_M),)](everyones.contiguous(), *results, world, M, BLOCK_M=BLOCK_M)
    return tuple(results)


def entropy_backward(dentropies, logits, row_max, row_sum, mean, shard, scaling=0.0, *, BLOCK_N=4096):
    """The gradient of this rank's logits, in a new tensor. `dentropies` has a number for each row."""
    checks.power_of_two(BLOCK_N=BLOCK_N)
    rows, N = as_rows(logits), logits.shape[-1]
    dlogits = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
    if dlogits.numel():
        entropy_backward_kernel[(len(row_max), triton.cdiv(N, BLOCK_N))](
            dentropies.contiguous(), rows, row_max, row_sum, mean, dlogits, row_stride(rows, N), shard.width, N,
            scaling=float(scaling), BLOCK_N=BLOCK_N, num_warps=8,
        )  # fmt: skip
    return dlogits


# ## Joining autograd
class VocabParallelEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, shard, scaling):
        entropies, *saved = merge_moments(gathered(shard_moments(logits, shard, scaling), shard.group))
        ctx.save_for_backward(logits, *saved)
        ctx.options = shard, scaling
        return entropies

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dentropies):
        return entropy_backward(dentropies, *ctx.saved_tensors, *ctx.options), None, None


def contract(logits, logit_scaling):
    checks.tensors(logits=logits)
    checks.dtypes(logits=logits)
    checks.dimensions("logits", logits, range(1, 65), "columns lie along the last")
    checks.programs("logits", "columns", logits.shape[-1], 4096)
    checks.number("logit_scaling", logit_scaling, at_least=0)


def vocab_parallel_entropy(logits, *, group=None, vocab=None, cuts=None, logit_scaling=0.0):
    r"""Entropy of the softmax of each row, whose columns are cut over the ranks; differentiable.

    Args:
        logits: (..., columns), the columns of this rank, float32, float16 or bfloat16; or a DTensor (..., vocab) with
            the placement `Shard(-1)` on one dimension of its mesh.
        group: the process group. Default: the default group, or this process alone if there is none.
        vocab: number of entries of the whole vocabulary; columns behind them are padding. Default: the last of `cuts`.
        cuts: world + 1 numbers; rank r has the columns cuts[r] to cuts[r + 1]. Default: `vocab` cut as `torch.chunk`
            does it.
        logit_scaling: $s$; logits are multiplied by it. One over the temperature. 0.0 turns it off.

    Returns:
        (...) in float32, in nats, a DTensor if `logits` is one; the same bits on every rank.

    Raises:
        TypeError, ValueError: dtype, shape, cuts and ranks don't fit, or a DTensor isn't cut by columns.

    Source: the derivation; verl ("HybridFlow", arXiv 2409.19256) computes it for its policy loss.
    """
    wrap = lambda entropies: entropies  # noqa: E731
    if is_dtensor(logits):
        if group is not None or cuts is not None:
            raise ValueError("group and cuts must be left out: a DTensor knows how it is cut")
        logits, group, cuts, wrap = columns_of_dtensor("logits", logits)
    contract(logits, logit_scaling)
    shard = shard_of("logits", logits, group, vocab, cuts)
    if autograd.needs_frame(logits):
        entropies = VocabParallelEntropy.apply(logits, shard, logit_scaling)
    else:
        entropies = merge_moments(gathered(shard_moments(logits, shard, logit_scaling), group))[0]
    return wrap(entropies.view(logits.shape[:-1]))


# ## A run small enough to watch
#
# Two rows of 11 logits on three ranks, which are a list.
def EXAMPLE():
    at = torch.arange(2 * 11, dtype=torch.float32, device=device.DEVICE)
    logits = (at * 5 % 13 % 7 - 3).view(2, 11)
    cuts = even_cuts(11, 3)
    shards = [Shard(first, end - first, 11) for first, end in zip(cuts, cuts[1:])]
    columns = logits.split([shard.width for shard in shards], dim=1)
    moments = []
    for rank in range(3):
        moments.append(shard_moments(columns[rank], shards[rank], BLOCK_N=4))
    entropies, *saved = merge_moments(torch.stack(moments), BLOCK_M=2)
    for rank in range(3):
        entropy_backward(torch.ones_like(entropies), columns[rank], *saved, shards[rank], BLOCK_N=4)


if __name__ == "__main__":
    script.main(vocab_parallel_entropy, vocab_parallel_entropy_reference)
