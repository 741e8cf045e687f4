r"""
# Cross entropy: how wrong was the prediction?

A language model ends in a row of *logits* for every token: one number for each entry of its vocabulary. The *label*
says which entry was right. With the row $x$ and the label $c$, the loss of one token is

[[eq: CE]]

and the loss of a batch is the mean over the tokens that count, [[tag: CE-mean]]. Its gradient is a softmax, minus one
at the label:

[[eq: CE-mean-X]]

Logits may be scaled first, [[tag: CE-scaled]], and then capped, [[tag: CE-capped]]. Each option changes the loss and
adds a factor to the gradient.

**What it costs.** The logits are by far the largest tensor of a training step: 8192 tokens and a vocabulary of 128256
make 2.1 GB in bfloat16. The forward pass reads them once and keeps a few numbers per row. The backward pass reads them
again and writes a gradient of the same size. That makes three passes over the logits; the arithmetic overlaps with
them, so memory sets the pace. At 8192 x 128256, on an H200, forward and backward together take
[[bench: cross_entropy/8192x128256/forward+backward/lesson.ms]]; PyTorch, which also writes the logarithm of every
probability and reads it back, takes [[bench: cross_entropy/8192x128256/forward+backward/eager.ms]].
[The fast version](../fast/cross_entropy.py) manages with two passes.

**Contract.** `logits` is (rows, vocab) or (batch, seq, vocab), float32, float16 or bfloat16, with any strides, and
`labels` has an integer for each row. Everything is computed in float32. Rows that aren't all the same distance apart,
such as those of `logits[:, :-1]`, are copied first. `cross_entropy_loss` never writes to its arguments;
`cross_entropy_loss_` may put the gradient where the logits were. A NaN or $+\infty$ in a row makes the loss and the
row's gradient NaN; $-\infty$ has the probability 0. With a cap, infinities count as the cap. What an ignored row holds
never counts, while PyTorch's gradient there can be NaN.
"""

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from annotated_examples.common.constants import LOWEST
from annotated_examples.common.exponential import exp
from annotated_examples.common.logits import items, loss_contract, scale_and_cap
from annotated_examples.common.rows import as_rows, row_stride


# ## Reference
#
# The same in PyTorch, in any dtype; in float64 it is what the kernel is measured against. Two differences from a bare
# `F.cross_entropy`: the result is at least float32, and a batch without a single valid label has loss 0 instead of NaN.
def cross_entropy_loss_reference(
    logits, labels, logit_softcapping=0.0, logit_scaling=0.0, n_items=None, ignore_index=-100
):
    z = logits * logit_scaling if logit_scaling else logits
    z = logit_softcapping * torch.tanh(z / logit_softcapping) if logit_softcapping else z
    z, labels = z.reshape(-1, z.shape[-1]), labels.reshape(-1).long()
    total = F.cross_entropy(z, labels, ignore_index=ignore_index, reduction="sum")
    valid = labels != ignore_index
    mean = torch.where(valid.any(), total / (valid.sum() if n_items is None else n_items), total * 0)
    return mean.to(torch.promote_types(logits.dtype, torch.float32))


# ## Forward: one program per row
#
# The loss of a row is its log-sum-exp minus the label's logit. The second is a single number. The first needs the whole
# row, and a vocabulary is too long for the registers of one program: so the row is processed in chunks.
#
# [[figure: rows/cross_entropy]]


# **Online.** An exponential overflows in float32 from 89 on, so the largest logit is subtracted first, [[tag: CE-LSE]].
# But the largest isn't known until the last chunk has been read. So the sum is relative to the largest logit *so far*.
# When a chunk brings a larger one, what was summed before is scaled down, as if the new one had been there from the
# start: [[tag: SM-online]].
@triton.jit
def cross_entropy_forward_kernel(
    logits_ptr,  # (M, N), rows stride_xm apart
    labels_ptr,  # (M,)
    n_items_ptr,  # one number
    losses_ptr,  # (M,) in float32
    row_max_ptr,  # (M,) in float32
    row_sum_ptr,  # (M,) in float32
    stride_xm,
    N,
    ignore_index,
    scaling: tl.constexpr,
    softcap: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    # My row, in 64 bits: past 2³¹ logits a 32-bit offset would wrap around. The example has rows of `N = 11`, so the
    # third begins at `pid=2: x_ptr = 22`.
    row = tl.program_id(0).to(tl.int64)
    x_ptr = logits_ptr + row * stride_xm

    # Row 0 has `pid=0: label = 4`. A label outside the vocabulary must never be used as an offset, so the load is
    # masked.
    label = tl.load(labels_ptr + row).to(tl.int64)
    in_range = (label >= 0) & (label < N)
    # The label's logit, `x_label = -3`, gets a load of its own. The alternative would be to compare the label with
    # every column of the row, just to find one number.
    x_label = tl.load(x_ptr + label, mask=in_range, other=0.0)

    # The largest so far starts at the lowest *finite* number. If it started at −∞, a first chunk that is all −∞ would
    # compute −∞ − (−∞), which is NaN. (`tl.range` makes the same loop as `range`, and takes options for the compiler.)
    row_max = LOWEST
    row_sum = 0.0
    for start in tl.range(0, N, BLOCK_N):
        # Chunks of 8, so the second has three columns: `start=8: mask = [1, 1, 1, 0, 0, 0, 0, 0]`.
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = offs_n < N
        x = tl.load(x_ptr + offs_n, mask=mask, other=0.0).to(tl.float32)
        z, _ = scale_and_cap(x, scaling, softcap)
        # Lanes past the row mustn't count. As −∞ they are never the largest, and their exponential is zero. This has to
        # happen after the cap, which would turn −∞ into a finite number.
        z = tl.where(mask, z, -float("inf"))
        # The first chunk's largest is `start=0: new_max = 2`, and the second has a larger one, `start=8: new_max = 3`.
        new_max = tl.maximum(row_max, tl.max(z, axis=0))
        # [[tag: SM-online]]: `start=0: row_sum = 2.6163`. Relative to 3 instead of 2 that is
        # `start=0: row_sum * 0.36788 = 0.9625`, and the second chunk adds its own: `start=8: row_sum = 2.1045`.
        row_sum = row_sum * tl.exp(row_max - new_max) + tl.sum(tl.exp(z - new_max), axis=0)
        row_max = new_max

    # [[tag: CE]], divided by the number of items. The parentheses matter. Logits around 10000 give a log-sum-exp around
    # 10000, which has at most three digits after the decimal point in float32. `row_max - z_label` cancels the large
    # numbers before anything is rounded: `loss = 3.372`.
    z_label, _ = scale_and_cap(x_label.to(tl.float32), scaling, softcap)
    loss = (tl.log(row_sum) + (row_max - z_label)) / tl.load(n_items_ptr).to(tl.float32)
    # A label out of range turns its row into NaN, and an ignored row (number 1) contributes nothing:
    # `pid=1: ignored = 1`. This is selected with `where`, not by multiplying with zero: zero times NaN is NaN.
    loss = tl.where(in_range, loss, float("nan"))
    ignored = label == ignore_index
    tl.store(losses_ptr + row, tl.where(ignored, 0.0, loss))

    # For the backward pass, the log-sum-exp is stored in two parts. Their sum would be rounded to those three digits
    # after the decimal point, and each probability would be off by as much.
    tl.store(row_max_ptr + row, row_max)
    tl.store(row_sum_ptr + row, row_sum)


# ## Backward: every chunk on its own
#
# Given the largest logit and the sum, each entry of the gradient is independent of the others. So there is no loop: the
# grid has two axes, rows and chunks, and each program takes one chunk of one row.
@triton.jit
def cross_entropy_backward_kernel(
    dloss_ptr,  # one number
    logits_ptr,  # (M, N), rows stride_xm apart
    labels_ptr,  # (M,)
    n_items_ptr,  # one number
    row_max_ptr,  # (M,)
    row_sum_ptr,  # (M,)
    dlogits_ptr,  # (M, N), contiguous
    stride_xm,
    N,
    ignore_index,
    scaling: tl.constexpr,
    softcap: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    # Three rows of two chunks make six programs. The second chunk of row 2: `pid=(2, 1): offs_n[:3] = [8, 9, 10]`.
    row = tl.program_id(0).to(tl.int64)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = offs_n < N
    x = tl.load(logits_ptr + row * stride_xm + offs_n, mask=mask, other=0.0).to(tl.float32)
    z, slope = scale_and_cap(x, scaling, softcap)

    # [[tag: CE-x-stable]], with the log-sum-exp in its two parts.
    p = exp(z - tl.load(row_max_ptr + row)) / tl.load(row_sum_ptr + row)
    # Minus one at the label.
    label = tl.load(labels_ptr + row).to(tl.int64)
    dz = p - (offs_n == label).to(tl.float32)

    # [[tag: CE-mean-X]]: the weight of a row is the upstream gradient, here 0.5, over the number of items.
    weight = tl.load(dloss_ptr) / tl.load(n_items_ptr).to(tl.float32)
    weight = tl.where((label >= 0) & (label < N), weight, float("nan"))
    # And the slope of scale and cap, [[tag: CE-capped-x]]. Where nothing is scaled it is 1, and costs nothing.
    dx = tl.where(label == ignore_index, 0.0, dz * weight * slope)
    # The gradient is contiguous: its rows lie `N` apart.
    tl.store(dlogits_ptr + row * N + offs_n, dx, mask=mask)


# ## The launchers
#
# The kernel stores a loss for each row, already divided. PyTorch adds them up: that is one small kernel, which adds in
# the same order every time. If no row counts, it is a sum of zeros: there is no 0 / 0, and so no NaN.
@replayed
def cross_entropy_forward(logits, labels, n_items=None, softcap=0.0, scaling=0.0, ignore_index=-100, *, BLOCK_N=4096):
    """The loss, and what the backward pass needs: logits, labels, n_items, largest logit and sum of each row."""
    checks.power_of_two(BLOCK_N=BLOCK_N)
    rows, N, labels = as_rows(logits), logits.shape[-1], labels.reshape(-1).contiguous()
    n_items = items(n_items, labels, ignore_index)
    losses, row_max, row_sum = (torch.empty(len(labels), dtype=torch.float32, device=logits.device) for _ in range(3))
    if len(labels):
        cross_entropy_forward_kernel[(len(labels),)](
            rows, labels, n_items, losses, row_max, row_sum, row_stride(rows, N), N, ignore_index,
            scaling=float(scaling), softcap=float(softcap), BLOCK_N=BLOCK_N, num_warps=8,
        )  # fmt: skip
    return losses.sum(), (logits, labels, n_items, row_max, row_sum)


@replayed
def cross_entropy_backward(
    dloss, logits, labels, n_items, row_max, row_sum, softcap=0.0, scaling=0.0, ignore_index=-100, *, BLOCK_N=4096
):
    """The gradient in a new tensor; `logits` to `row_sum` are what the forward pass returned."""
    dlogits = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
    saved = logits, labels, n_items, row_max, row_sum
    return _backward(dloss, *saved, softcap, scaling, ignore_index, dlogits, BLOCK_N)


# Each program reads its chunk before it writes there, and no other program reads it, so the gradient may overwrite the
# logits. Any other operation that saved the logits for its own gradient must not use them any more. Autograd detects
# that by counting how often a tensor was written to, so this write has to be counted.
def cross_entropy_backward_(
    dloss, logits, labels, n_items, row_max, row_sum, softcap=0.0, scaling=0.0, ignore_index=-100, *, BLOCK_N=4096
):
    """The gradient, written over `logits` if they are contiguous."""
    saved = logits, labels, n_items, row_max, row_sum
    if not logits.is_contiguous():
        return cross_entropy_backward(dloss, *saved, softcap, scaling, ignore_index, BLOCK_N=BLOCK_N)
    torch.autograd.graph.increment_version(logits)
    return _backward(dloss, *saved, softcap, scaling, ignore_index, logits.detach(), BLOCK_N)


def _backward(
    dloss, logits, labels, n_items, row_max, row_sum, softcap, scaling, ignore_index, dlogits, BLOCK_N
):  # fmt: skip
    checks.power_of_two(BLOCK_N=BLOCK_N)
    rows, N = as_rows(logits), logits.shape[-1]
    if len(labels):
        cross_entropy_backward_kernel[(len(labels), triton.cdiv(N, BLOCK_N))](
            dloss, rows, labels, n_items, row_max, row_sum, dlogits, row_stride(rows, N), N, ignore_index,
            scaling=float(scaling), softcap=float(softcap), BLOCK_N=BLOCK_N, num_warps=8,
        )  # fmt: skip
    return dlogits


# ## Arguments
#
# The rules for labels and options are in [a file](../common/logits.py) that this loss shares with others.
def contract(logits, labels, logit_softcapping, logit_scaling, n_items, ignore_index):
    checks.tensors(logits=logits, labels=labels)
    checks.dtypes(logits=logits)
    if logits.dim() not in (2, 3):
        raise ValueError(f"logits must be (rows, vocab) or (batch, seq, vocab), got shape {tuple(logits.shape)}")
    if logits.shape[-1] == 0 and labels.numel():
        raise ValueError(f"logits must have at least one entry a row, got shape {tuple(logits.shape)}")
    options = logit_softcapping, logit_scaling, n_items, ignore_index
    loss_contract("logits", logits, labels, logits.shape[-1], *options)


# ## Joining autograd
#
# `launch_forward` returns the loss and the tensors that its backward pass needs. There are two launchers for that pass.
# With `retain_graph` the backward pass may run again, so it mustn't overwrite anything that is saved. The last backward
# pass may. Autograd knows which of the two this is, though there is no public way to ask.
class CrossEntropyLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx, logits, labels, n_items, softcap, scaling, ignore_index,
        launch_forward, launch_backward, launch_last_backward,
    ):  # fmt: skip
        loss, saved = launch_forward(logits, labels, n_items, softcap, scaling, ignore_index)
        ctx.save_for_backward(*saved)
        ctx.options = softcap, scaling, ignore_index
        ctx.launch_backward, ctx.launch_last_backward = launch_backward, launch_last_backward
        ctx.dependence = autograd.dependence(logits)  # for launchers that save no logits
        return loss

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dloss):
        again = torch.compiler.is_compiling() or torch._C._autograd._get_current_graph_task_keep_graph()
        launch = ctx.launch_backward if again else ctx.launch_last_backward
        return launch(dloss, *ctx.saved_tensors, *ctx.options), *[None] * 8


@replayed
def cross_entropy_loss(logits, labels, logit_softcapping=0.0, logit_scaling=0.0, n_items=None, ignore_index=-100):
    r"""Mean cross entropy of `logits` against `labels`, differentiable with respect to the logits.

    Args:
        logits: (rows, vocab) or (batch, seq, vocab), float32, float16 or bfloat16, any strides, any size of vocabulary.
        labels: (rows,) or (batch, seq), any integer dtype, any strides; in [0, vocab), or equal to `ignore_index`.
        logit_softcapping: $t$ in $t \tanh(x / t)$, which keeps the logits between $-t$ and $t$. 0.0 turns it off.
        logit_scaling: $s$; logits are multiplied by it before they are capped. Above 1 sharpens the distribution,
            below 1 flattens it. 0.0 turns it off.
        n_items: what the sum over the rows is divided by: an int, a float or a 0-d tensor (one on the GPU is never
            waited for). Default: the number of labels that differ from `ignore_index`.
        ignore_index: rows with this label have a loss and a gradient of 0.

    Returns:
        The loss, a float32 scalar. If no label is valid, the loss and its gradient are 0, where PyTorch gives NaN.

    Raises:
        TypeError: an argument has a wrong type, or a tensor a wrong dtype.
        ValueError: shapes don't fit, a tensor is on the wrong device, a number is negative or not finite, or, for CPU
            tensors and with `ACADEMY_DEBUG=1` in the environment, a label is out of range. Without that check (it has
            to wait for the GPU) such a label makes its row's loss and gradient NaN; nothing outside the row is read.

    Source: the online log-sum-exp is that of Milakov and Gimelshein, "Online normalizer calculation for softmax"
    (arXiv 1805.02867); Gemma 2 caps its logits.
    """
    contract(logits, labels, logit_softcapping, logit_scaling, n_items, ignore_index)
    arguments = logits, labels, n_items, logit_softcapping, logit_scaling, ignore_index
    if not autograd.needs_frame(logits):
        return cross_entropy_forward(*arguments)[0]
    return CrossEntropyLoss.apply(*arguments, cross_entropy_forward, cross_entropy_backward, cross_entropy_backward)


def cross_entropy_loss_(logits, labels, logit_softcapping=0.0, logit_scaling=0.0, n_items=None, ignore_index=-100):
    """`cross_entropy_loss` that needs no memory for the gradient: it may be written over the logits.

    Contiguous logits that require a gradient are overwritten by the last backward pass; from then on their values are
    undefined. In all other cases nothing is overwritten.

    Args: as `cross_entropy_loss`.

    Returns:
        The loss, a float32 scalar.

    Raises:
        TypeError, ValueError: as `cross_entropy_loss`.
        RuntimeError: in the backward pass, if another operation saved the overwritten logits for its own gradient.

    Source: as `cross_entropy_loss`.
    """
    contract(logits, labels, logit_softcapping, logit_scaling, n_items, ignore_index)
    arguments = logits, labels, n_items, logit_softcapping, logit_scaling, ignore_index
    if not autograd.needs_frame(logits):
        return cross_entropy_forward(*arguments)[0]
    return CrossEntropyLoss.apply(*arguments, cross_entropy_forward, cross_entropy_backward, cross_entropy_backward_)


# ## A run small enough to watch
#
# Three tokens, of which the second is ignored, and a vocabulary of 11, in chunks of 8.
def EXAMPLE():
    at = torch.arange(3 * 11, dtype=torch.float32, device=device.DEVICE)
    logits = (at * 5 % 13 % 7 - 3).view(3, 11)
    labels = torch.tensor([4, -100, 10], device=device.DEVICE)
    _, saved = cross_entropy_forward(logits, labels, BLOCK_N=8)
    cross_entropy_backward(torch.tensor(0.5, device=device.DEVICE), *saved, BLOCK_N=8)


if __name__ == "__main__":
    labels = torch.tensor([5, -100, 63], device=device.DEVICE)
    both = dict(logit_softcapping=30.0, logit_scaling=0.5)
    cases = [dict(logits=(3, 1000)), dict(logits=(3, 70000)), dict(logits=(3, 1000), **both)]
    script.main(cross_entropy_loss, cross_entropy_loss_reference, *(case | dict(labels=labels) for case in cases))
