r"""
# Cross entropy over many ranks: 16 bytes a row

With a vocabulary of 128256 entries, the last layer and its logits may be too large for one card. So the layer is cut:
each rank has some of its columns, and computes the logits of these alone. But a softmax needs the sum over *all*
columns. What has to travel? Not the logits. Of its columns a rank sends four numbers for each row: the largest logit
$m$, [[tag: VP-m]], the sum $s$ of the exponentials relative to it, [[tag: VP-s]], the sum $a$ of the logits under the
target, [[tag: VP-a]], and how much of the target lies here, $b$, [[tag: VP-b]]. That is one gather of 16 bytes a row
and rank, and then every rank knows the loss:

[[eq: VP-merged]]

The gradient [[tag: VP-X]] of each rank's columns needs nothing more from the others.

**What it costs.** The logits are read once forward and once backward, and their gradient is written, as on one card,
but each rank has only its own. With 8192 rows and 8 ranks, the gather brings 1 MB to each. The usual way takes three
all-reduces instead, for the maximum, the sum and the label's logit: each waits for the one before, and at such sizes it
is the waiting that costs.

**Measured on two H100**, 8192 rows, 128256 columns in all, bfloat16, forward and backward together:
[[bench: many_cards/loss/128256/ours/time]] and [[bench: many_cards/loss/128256/ours/memory]], most of it the gradient.
PyTorch's `loss_parallel` takes [[bench: many_cards/loss/128256/loss_parallel/time]] and
[[bench: many_cards/loss/128256/loss_parallel/memory]]: it keeps log-probabilities and goes over them many times.

**Contract.** `logits` is (..., columns): this rank's columns, float32, float16 or bfloat16, with any strides, any
number of them, also none; or a `DTensor` with the placement `Shard(-1)`. `labels` (...) are the same on every rank, and
count over the whole vocabulary. Everything is computed in float32. All ranks call the function together with the same
options, and all get the same bits. An error that only one rank raises leaves the others waiting, as with any
collective. NaN, infinities and ignored rows are as in [cross entropy](../classics/cross_entropy.py).
"""

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from annotated_examples.common.constants import LOWEST
from annotated_examples.common.exponential import exp
from annotated_examples.common.logits import items, loss_contract, scale_and_cap
from annotated_examples.common.ranks import (
    Shard,
    columns_of_dtensor,
    copied_to_ranks,
    even_cuts,
    gathered,
    is_dtensor,
    shard_of,
)
from annotated_examples.common.rows import as_rows, row_stride


# ## Reference
#
# On one rank, with all columns. The smoothing $\varepsilon$ is PyTorch's: the target is $1 - \varepsilon$ at the label,
# plus $\varepsilon / V$ everywhere. There are others. Megatron's $\alpha$ spreads over the entries *beside* the label,
# so that $\varepsilon = \alpha V / (V - 1)$, and it takes $V$ and the mean from the columns of its own rank: with more
# than one, that is another loss. The *z-loss* keeps the log-sum-exp near zero.
def vocab_parallel_cross_entropy_reference(
    logits, labels, *, label_smoothing=0.0, z_loss=0.0, logit_softcapping=0.0, logit_scaling=0.0, n_items=None,
    ignore_index=-100, reduction="mean",
):  # fmt: skip
    z = logits * logit_scaling if logit_scaling else logits
    z = logit_softcapping * torch.tanh(z / logit_softcapping) if logit_softcapping else z
    z, flat = z.reshape(-1, z.shape[-1]), labels.reshape(-1).long()
    options = dict(ignore_index=ignore_index, label_smoothing=label_smoothing)
    losses = F.cross_entropy(z, flat, reduction="none", **options)
    losses = losses + torch.where(flat == ignore_index, 0.0, z_loss * torch.logsumexp(z, -1) ** 2) if z_loss else losses
    losses = losses.to(torch.promote_types(logits.dtype, torch.float32))
    return losses.view(labels.shape) if reduction == "none" else mean(losses, flat, n_items, ignore_index)


# The mean divides by the number of valid labels. Labels are the same on all ranks of the vocabulary, so they count
# alike. Ranks that have *other rows* count differently, and have to be told the number of all: `n_items`.
def mean(losses, labels, n_items, ignore_index):
    count = items(n_items, labels, ignore_index)
    return losses.sum() / (count.clamp(min=1) if n_items is None else count)


# ## What a rank knows alone
#
# [[figure: ranks/row]]
#
# The target of a row is $1 - \varepsilon$ at its label and $\varepsilon / V$ everywhere, with $V$ the *whole*
# vocabulary. The loss is the log-sum-exp minus the mean of the logits under this target. So a rank adds up its part of
# that mean, $a$, and, since everything is relative to its own largest logit, its part of the target, $b$.
@triton.jit
def shard_statistics_kernel(
    logits_ptr,  # (M, columns of this rank), rows stride_xm apart
    labels_ptr,  # (M,)
    stats_ptr,  # (M, 4) in float32
    stride_xm,
    first,
    width,
    vocab,
    smoothing: tl.constexpr,
    scaling: tl.constexpr,
    softcap: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    x_ptr = logits_ptr + row * stride_xm

    # The label as a column of this shard. It may be another rank's, and then it is negative, or too large. A label of
    # −100 is negative everywhere. So it is compared, and only used as an offset where it lies here. (To clamp it into
    # the shard would count a column on every rank.)
    label = tl.load(labels_ptr + row).to(tl.int64) - first
    here = (label >= 0) & (label < width)
    x_label = tl.load(x_ptr + label, mask=here, other=0.0)

    # Columns in chunks, relative to the largest logit so far. A rank without columns keeps the lowest finite number:
    # with −∞ the merge would multiply its part of the target, 0, by an infinite distance, which is NaN.
    row_max = LOWEST
    row_sum = 0.0
    total = 0.0
    for start in tl.range(0, width, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = offs_n < width
        x = tl.load(x_ptr + offs_n, mask=mask, other=0.0).to(tl.float32)
        z, _ = scale_and_cap(x, scaling, softcap)
        new_max = tl.maximum(row_max, tl.max(tl.where(mask, z, -float("inf")), axis=0))
        e = tl.where(mask, tl.exp(z - new_max), 0.0)
        row_sum = row_sum * tl.exp(row_max - new_max) + tl.sum(e, axis=0)
        # The sum of the logits themselves, relative to the same number. Where that grows by some amount, each of the
        # `start` columns before falls by it.
        if smoothing != 0.0:
            moved = tl.where(start > 0, start * (row_max - new_max), 0.0)
            total += moved + tl.sum(tl.where(mask, z - new_max, 0.0), axis=0)
        row_max = new_max

    # [[tag: VP-b]] and [[tag: VP-a]]: the part of the target that lies here, and the logits under it.
    z_label, _ = scale_and_cap(x_label.to(tl.float32), scaling, softcap)
    target = tl.where(here, 1.0 - smoothing, 0.0)
    under_target = tl.where(here, (1.0 - smoothing) * (z_label - row_max), 0.0)
    if smoothing != 0.0:
        target += smoothing / vocab * width
        under_target += smoothing / vocab * total

    # Rank 1 of the example has columns 4 to 7, and in column 4 the label of row 0: `launch=1, pid=0: label = 0`. These
    # four numbers are all that the others ever learn about the row: `launch=1, pid=0: row_max = 2`,
    # `launch=1, pid=0: row_sum = 1.4244`, `launch=1, pid=0: under_target = -4.5818` and
    # `launch=1, pid=0: target = 0.93636`.
    tl.store(stats_ptr + row * 4 + 0, row_max)
    tl.store(stats_ptr + row * 4 + 1, row_sum)
    tl.store(stats_ptr + row * 4 + 2, under_target)
    tl.store(stats_ptr + row * 4 + 3, target)


# ## What all know together
#
# Every rank merges the numbers of all, in the same order, so all get the same bits. That isn't a luxury. Where ranks
# disagree in the last digit, weights that should be copies of each other drift apart.
@triton.jit
def merge_kernel(
    stats_ptr,  # (world, M, 4)
    labels_ptr,  # (M,)
    losses_ptr,  # (M,) in float32
    row_max_ptr,  # (M,) in float32
    row_sum_ptr,  # (M,) in float32
    world,
    M,
    vocab,
    ignore_index,
    z_loss,
    BLOCK_M: tl.constexpr,
):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    mask = rows < M
    # The largest first, over all ranks: sums relative to different numbers can't be added.
    row_max = tl.full((BLOCK_M,), LOWEST, tl.float32)
    for rank in range(0, world):
        stats = stats_ptr + (rank * M + rows) * 4
        row_max = tl.maximum(row_max, tl.load(stats, mask=mask, other=0.0))

    row_sum = tl.zeros((BLOCK_M,), tl.float32)
    cross = tl.zeros((BLOCK_M,), tl.float32)
    for rank in range(0, world):
        stats = stats_ptr + (rank * M + rows) * 4
        shift = row_max - tl.load(stats, mask=mask, other=0.0)
        # How much a rank's exponentials count, here rank 0's in the three rows: `rank=0: factor[:3] = [0.36788, 1, 1]`.
        factor = tl.exp(-shift)
        row_sum += tl.load(stats + 1, mask=mask, other=0.0) * factor
        cross += tl.load(stats + 3, mask=mask, other=0.0) * shift - tl.load(stats + 2, mask=mask, other=0.0)

    # [[tag: VP-merged]]. Large numbers cancel before anything is rounded, as in the loss on one card.
    log_sum = tl.log(row_sum)
    lse = row_max + log_sum
    # Inside `torch.compile` a Python float arrives as float64.
    loss = log_sum + cross + tl.cast(z_loss, tl.float32) * lse * lse
    # No rank has a label that lies outside of the vocabulary, so nobody would notice.
    label = tl.load(labels_ptr + rows, mask=mask, other=0).to(tl.int64)
    loss = tl.where((label >= 0) & (label < vocab), loss, float("nan"))
    loss = tl.where(label == ignore_index, 0.0, loss)
    tl.store(losses_ptr + rows, loss, mask=mask)
    # In two parts, as on one card: their sum would lose digits of every probability.
    tl.store(row_max_ptr + rows, row_max, mask=mask)
    tl.store(row_sum_ptr + rows, row_sum, mask=mask)


# ## Backward: nobody asks anybody
#
# Each entry of the gradient needs its own logit and the log-sum-exp, which every rank has by now.
@triton.jit
def shard_backward_kernel(
    dlosses_ptr,  # (M,)
    logits_ptr,  # (M, N), rows stride_xm apart
    labels_ptr,  # (M,)
    row_max_ptr,  # (M,)
    row_sum_ptr,  # (M,)
    dlogits_ptr,  # (M, N), contiguous
    stride_xm,
    first,
    width,
    N,
    vocab,
    ignore_index,
    z_loss,
    smoothing: tl.constexpr,
    scaling: tl.constexpr,
    softcap: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(logits_ptr + row * stride_xm + offs_n, mask=offs_n < N, other=0.0).to(tl.float32)
    z, slope = scale_and_cap(x, scaling, softcap)
    row_max = tl.load(row_max_ptr + row)
    row_sum = tl.load(row_sum_ptr + row)
    p = exp(z - row_max) / row_sum

    # [[tag: VP-X]]: the probability minus the target, and a little more of it for the z-loss. The difference comes
    # first: where both are near one, the sum in the printed order would lose its digits.
    label = tl.load(labels_ptr + row).to(tl.int64)
    target = tl.where(offs_n == label - first, 1.0 - smoothing, 0.0) + smoothing / vocab
    dz = (p - target) + p * (2.0 * tl.cast(z_loss, tl.float32) * (row_max + tl.log(row_sum)))

    weight = tl.load(dlosses_ptr + row).to(tl.float32)
    weight = tl.where((label >= 0) & (label < vocab), weight, float("nan"))
    # Padding behind the vocabulary is no logit, and an ignored row isn't learned.
    counts = (offs_n < width) & (label != ignore_index)
    tl.store(dlogits_ptr + row * N + offs_n, tl.where(counts, dz * weight * slope, 0.0), mask=offs_n < N)


# ## Launchers
#
# The three steps are functions of their own, and the gather lies between the first two. So the ranks may as well be a
# list in one process, as they are in the example below, and in the exercises.
def shard_statistics(logits, labels, shard, smoothing=0.0, softcap=0.0, scaling=0.0, *, BLOCK_N=4096):
    """(rows, 4) float32: what one rank tells the others. `labels` is one row of numbers, for all rows."""
    checks.power_of_two(BLOCK_N=BLOCK_N)
    rows, N = as_rows(logits), logits.shape[-1]
    stats = torch.empty((len(labels), 4), dtype=torch.float32, device=logits.device)
    if len(labels):
        shard_statistics_kernel[(len(labels),)](
            rows, labels, stats, row_stride(rows, N), shard.first, shard.width, shard.vocab,
            smoothing=float(smoothing), scaling=float(scaling), softcap=float(softcap), BLOCK_N=BLOCK_N, num_warps=8,
        )  # fmt: skip
    return stats


def merge_shards(everyones, labels, vocab, z_loss=0.0, ignore_index=-100, *, BLOCK_M=64):
    """Loss, largest logit and sum of each row, from the (world, rows, 4) numbers of all ranks."""
    checks.power_of_two(BLOCK_M=BLOCK_M)
    world, M, _ = everyones.shape
    losses, row_max, row_sum = (torch.empty(M, dtype=torch.float32, device=labels.device) for _ in range(3))
    if M:
        merge_kernel[(triton.cdiv(M, BLOCK_M),)](
            everyones.contiguous(), labels, losses, row_max, row_sum, world, M, vocab, ignore_index, float(z_loss),
            BLOCK_M=BLOCK_M,
        )  # fmt: skip
    return losses, row_max, row_sum


def shard_backward(
    dlosses, logits, labels, row_max, row_sum, shard,
    smoothing=0.0, softcap=0.0, scaling=0.0, z_loss=0.0, ignore_index=-100, *, BLOCK_N=4096,
):  # fmt: skip
    """The gradient of this rank's logits, in a new tensor. `dlosses` has a number for each row."""
    checks.power_of_two(BLOCK_N=BLOCK_N)
    rows, N = as_rows(logits), logits.shape[-1]
    dlogits = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
    if dlogits.numel():
        shard_backward_kernel[(len(labels), triton.cdiv(N, BLOCK_N))](
            dlosses.contiguous(), rows, labels, row_max, row_sum, dlogits, row_stride(rows, N),
            shard.first, shard.width, N, shard.vocab, ignore_index, float(z_loss),
            smoothing=float(smoothing), scaling=float(scaling), softcap=float(softcap), BLOCK_N=BLOCK_N, num_warps=8,
        )  # fmt: skip
    return dlogits


# ## Joining autograd
#
# The function's result is one loss for each row; PyTorch takes the mean. (A plain `torch.distributed.all_reduce` would
# be right by luck. It has no backward pass, so autograd hands the upstream gradient through, with a warning that this
# will end. That is right for one loss that all R ranks compute. If the losses of all ranks were added, the gradient
# would be R times too small.)
class VocabParallelCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, labels, shard, smoothing, softcap, scaling, z_loss, ignore_index):
        stats = shard_statistics(logits, labels, shard, smoothing, softcap, scaling)
        losses, *saved = merge_shards(gathered(stats, shard.group), labels, shard.vocab, z_loss, ignore_index)
        ctx.save_for_backward(logits, labels, *saved)
        ctx.options = shard, smoothing, softcap, scaling, z_loss, ignore_index
        return losses

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dlosses):
        return shard_backward(dlosses, *ctx.saved_tensors, *ctx.options), *[None] * 7


def contract(logits, labels, shard, label_smoothing, z_loss, logit_softcapping, logit_scaling, n_items, ignore_index):
    checks.number("label_smoothing", label_smoothing, at_least=0)
    if label_smoothing > 1:
        raise ValueError(f"label_smoothing must be at most 1, got {label_smoothing}")
    checks.number("z_loss", z_loss, at_least=0)
    options = logit_softcapping, logit_scaling, n_items, ignore_index
    loss_contract("logits", logits, labels, shard.vocab, *options)


def vocab_parallel_cross_entropy(
    logits, labels, *, group=None, vocab=None, cuts=None, label_smoothing=0.0, z_loss=0.0, logit_softcapping=0.0,
    logit_scaling=0.0, n_items=None, ignore_index=-100, reduction="mean",
):  # fmt: skip
    r"""Mean cross entropy of logits whose columns are cut over the ranks, differentiable with respect to the logits.

    Args:
        logits: (..., columns), the columns of this rank, float32, float16 or bfloat16; or a DTensor (..., vocab) with
            the placement `Shard(-1)` on one dimension of its mesh. With a DTensor, `group` and `cuts` are the mesh's.
        labels: (...), any integer dtype, the same on every rank; in [0, vocab), or equal to `ignore_index`.
        group: the process group. Default: the default group, or this process alone if there is none.
        vocab: number of entries of the whole vocabulary. Columns behind them are padding: they count nowhere, and
            their gradient is 0. Default: the last of `cuts`. On more than one rank, one of the two must be given.
        cuts: world + 1 numbers; rank r has the columns cuts[r] to cuts[r + 1]. Default: `vocab` cut as `torch.chunk`
            does it.
        label_smoothing: $\varepsilon$ of PyTorch, from 0 to 1.
        z_loss: $\zeta$; $\zeta$ times the square of the log-sum-exp is added to each row's loss.
        logit_softcapping, logit_scaling, n_items, ignore_index: as in `cross_entropy_loss`.
        reduction: "mean", or "none" for a loss of each row in the shape of `labels`.

    Returns:
        The loss in float32, a DTensor if `logits` is one; the same bits on every rank. If no label is valid, the mean
        is 0, where PyTorch gives NaN.

    Raises:
        TypeError: an argument has a wrong type, or a tensor a wrong dtype.
        ValueError: shapes, cuts and ranks don't fit, a DTensor isn't cut by columns, a number is out of its range, or,
            for CPU tensors and with `ACADEMY_DEBUG=1`, a label is. Without that check it makes its row NaN.

    Source: Shoeybi et al., "Megatron-LM" (arXiv 1909.08053), has the parallel loss with three all-reduces.
    """
    checks.choice("reduction", reduction, ("mean", "none"))
    wrap = lambda loss: loss  # noqa: E731
    if is_dtensor(logits):
        if group is not None or cuts is not None:
            raise ValueError("group and cuts must be left out: a DTensor knows how it is cut")
        logits, group, cuts, wrap = columns_of_dtensor("logits", logits)
        labels = labels.full_tensor() if is_dtensor(labels) else labels
    checks.tensors(logits=logits, labels=labels)
    checks.dtypes(logits=logits)
    checks.dimensions("logits", logits, range(1, 65), "columns lie along the last")
    shard = shard_of("logits", logits, group, vocab, cuts)
    contract(logits, labels, shard, label_smoothing, z_loss, logit_softcapping, logit_scaling, n_items, ignore_index)
    flat = labels.reshape(-1).contiguous()
    options = label_smoothing, logit_softcapping, logit_scaling, z_loss, ignore_index
    if autograd.needs_frame(logits):
        losses = VocabParallelCrossEntropy.apply(logits, flat, shard, *options)
    else:
        stats = shard_statistics(logits, flat, shard, *options[:3])
        losses = merge_shards(gathered(stats, shard.group), flat, shard.vocab, z_loss, ignore_index)[0]
    return wrap(losses.view(labels.shape) if reduction == "none" else mean(losses, flat, n_items, ignore_index))


# ## With the layer before it
#
# The layer's input is the same on every rank, and each computes the logits of its own columns: its rows of `weight`.
# Their gradient stays where it is, [[tag: VP-W]]. But each rank only knows what *its* columns say about the input, and
# the gradient [[tag: VP-input]] is the sum over all. `copied_to_ranks` changes nothing forward, and sums backward.
def vocab_parallel_linear_cross_entropy(x, weight, labels, *, group=None, **options):
    """`vocab_parallel_cross_entropy` of `x @ weight.T`, with the gradient of `x` summed over the ranks.

    Args:
        x: (..., hidden), the same on every rank.
        weight: (columns, hidden), this rank's rows; rounded to the dtype of x for the product.
        labels: (...), as in `vocab_parallel_cross_entropy`.
        group: the process group, as there.
        options: the other keywords of `vocab_parallel_cross_entropy`.

    Returns:
        The loss; `x.grad` has the same bits on every rank, and `weight.grad` is that of this rank's rows.

    Raises:
        TypeError, ValueError: as `vocab_parallel_cross_entropy`; also if x and weight don't fit.

    Source: as `vocab_parallel_cross_entropy`; the sum in the backward pass is its "f".
    """
    checks.tensors(x=x, weight=weight)
    checks.dtypes(x=x, weight=weight)
    checks.dimensions("weight", weight, 2, "(columns, hidden)")
    checks.shape("x", x, (*x.shape[:-1], weight.shape[1]), "as wide as weight")
    logits = F.linear(copied_to_ranks(x, group), weight.to(x.dtype))
    return vocab_parallel_cross_entropy(logits, labels, group=group, **options)


# ## A run small enough to watch
#
# Three rows of 11 logits on three ranks, with 4, 4 and 3 columns. The ranks are a list: each makes its four numbers,
# and the stack of them is what the gather would bring.
def EXAMPLE():
    at = torch.arange(3 * 11, dtype=torch.float32, device=device.DEVICE)
    logits = (at * 5 % 13 % 7 - 3).view(3, 11)
    labels = torch.tensor([4, -100, 10], device=device.DEVICE)
    cuts, stats = even_cuts(11, 3), []
    shards = [Shard(first, end - first, 11) for first, end in zip(cuts, cuts[1:])]
    columns = logits.split([shard.width for shard in shards], dim=1)
    for rank in range(3):
        stats.append(shard_statistics(columns[rank], labels, shards[rank], smoothing=0.1, BLOCK_N=4))
    losses, row_max, row_sum = merge_shards(torch.stack(stats), labels, vocab=11, BLOCK_M=4)
    for rank in range(3):
        saved = columns[rank], labels, row_max, row_sum, shards[rank]
        shard_backward(torch.ones_like(losses), *saved, smoothing=0.1, BLOCK_N=4)


if __name__ == "__main__":
    labels = torch.tensor([5, -100, 63], device=device.DEVICE)
    both = dict(label_smoothing=0.1, z_loss=1e-3, logit_softcapping=30.0)
    cases = [dict(logits=(3, 1000)), dict(logits=(3, 70000)), dict(logits=(3, 1000), **both)]
    function, reference = vocab_parallel_cross_entropy, vocab_parallel_cross_entropy_reference
    script.main(function, reference, *(case | dict(labels=labels) for case in cases))
