r"""
# Linear cross entropy, fast: compute fewer logits twice

[The lesson](../classics/linear_cross_entropy.py) computes all logits twice, once for the loss and once for the
gradients. That makes four products. PyTorch keeps the logits and needs three. There is a middle way: keep as many
logits as there is room for, and compute only the rest twice. At 8192 x 4096 x 128256 in bfloat16 on an H200:

| | forward and backward |
|---|---:|
| the lesson | [[bench: linear_cross_entropy/8192x4096x128256/forward+backward/lesson.ms]] |
| this file | [[bench: linear_cross_entropy/8192x4096x128256/forward+backward/ms]] |
| PyTorch | [[bench: linear_cross_entropy/8192x4096x128256/forward+backward/eager.ms]] |
| `linear_cross_entropy_lean` | [[bench: linear_cross_entropy:lean/8192x4096x128256/forward+backward/ms]] |

1. The gradients are computed **in the forward pass**. That alone makes nothing faster. But now the logits are kept for
   milliseconds, and not from one pass to the next.
2. Logits are kept **where the gradient of the weights will be**. That memory is needed anyway, and empty until the
   second round.
3. Others are kept in separate memory, which has room for the share `KEPT` of all. Including the gradients, that takes
   [[bench: linear_cross_entropy/8192x4096x128256/forward+backward/memory]] more than the inputs.

**What it costs.** The fourth product is computed only for the logits that aren't kept. With 8192 rows of 4096, a third
of them fits into the gradient of the weights. `KEPT` at 0.67 is the other two thirds, so none is computed twice. In
`linear_cross_entropy_lean` it is a fifth.

**Contract.** That of the lesson.
"""

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.launch import cdiv, launch
from academy.runtime.replay import replayed

import functools

import torch
import triton
import triton.language as tl

from annotated_examples.classics.linear_cross_entropy import (
    LinearCrossEntropy,
    contract,
    differentiate_piece_,
    empty_state,
    linear_cross_entropy_reference,
    load_logits,
    loss_with_late_gradients,
    store_loss,
)
from annotated_examples.common.constants import LOWEST
from annotated_examples.common.logits import items
from annotated_examples.common.vocabulary import (
    add_gradients,
    empty_gradients,
    finished,
    matrix_of,
    part_of,
    product_into,
)
from annotated_examples.fast.cross_entropy import (
    cross_entropy_backward,
    cross_entropy_backward_,
    exp_shifted,
    strip_sums,
)


# ## Strips
#
# Nine tenths of the time go to the products, which are the library's. Our kernels read each logit twice and write it
# once. In the lesson all threads of a program wait for each other at every block, for its maximum and its sum. Here
# each strip of 16 bytes has a maximum and a sum of its own, as in [cross entropy, fast](cross_entropy.py), and these
# are merged at the end of the row.
@triton.jit
def linear_cross_entropy_forward_kernel(
    logits_ptr,  # (M, width), rows stride_um apart: a piece of the vocabulary
    bias_ptr,  # (vocab,), or None
    labels_ptr,  # (M,)
    n_items_ptr,  # one number
    losses_ptr,  # (M,) in float32
    row_max_ptr,  # (M,) in float32
    row_sum_ptr,  # (M,) in float32
    z_label_ptr,  # (M,) in float32
    stride_um,
    start,
    width,
    vocab,
    ignore_index,
    scaling: tl.constexpr,
    softcap: tl.constexpr,
    BLOCK: tl.constexpr,
    STRIP: tl.constexpr,
    FIRST: tl.constexpr,
):
    # The first piece of the example is the last three columns of the vocabulary, `start = 8` and `width = 3`.
    row = tl.program_id(0).to(tl.int64)
    logits_ptr += row * stride_um
    # A block of 8 has two strips: `offs = [[0, 1, 2, 3], [4, 5, 6, 7]]`.
    offs = tl.arange(0, BLOCK // STRIP)[:, None] * STRIP + tl.arange(0, STRIP)[None, :]
    shift = tl.full((BLOCK // STRIP,), LOWEST, tl.float32)
    total = tl.zeros((BLOCK // STRIP,), tl.float32)
    for first in tl.range(0, width, BLOCK):
        mask = first + offs < width
        z, _ = load_logits(logits_ptr, bias_ptr, first + offs, mask, scaling, softcap)
        z = tl.where(mask, z, -float("inf"))
        # [[tag: SM-online]] for each strip.
        new_shift = tl.maximum(shift, tl.max(z, 1))
        total = total * exp_shifted(shift, new_shift) + strip_sums(z, new_shift)
        shift = new_shift

    # Merge the strips with each other, and with the sum of the earlier pieces.
    row_max = tl.max(shift, 0)
    if not FIRST:
        before = tl.load(row_max_ptr + row)
        row_max = tl.maximum(before, row_max)
    row_sum = tl.sum(total * exp_shifted(shift, row_max), 0)
    if not FIRST:
        row_sum += tl.load(row_sum_ptr + row) * exp_shifted(before, row_max)
    tl.store(row_max_ptr + row, row_max)
    tl.store(row_sum_ptr + row, row_sum)
    store_loss(
        logits_ptr, bias_ptr, labels_ptr, n_items_ptr, losses_ptr, z_label_ptr, row, row_max, row_sum,
        start, width, vocab, ignore_index, scaling, softcap, FIRST,
    )  # fmt: skip


def sum_piece(logits, bias, labels, n_items, state, start, vocab, options, BLOCK, num_warps, first):
    softcap, scaling, ignore_index = options
    launch(
        linear_cross_entropy_forward_kernel, (len(labels),), (logits, bias, labels, n_items, *state),
        (logits.stride(0), start, logits.shape[1], vocab, ignore_index),
        scaling=float(scaling), softcap=float(softcap), BLOCK=BLOCK,
        STRIP=min(BLOCK, 16 // logits.element_size()), FIRST=first, num_warps=num_warps,
    )  # fmt: skip


# ## Which logits are kept, and where
#
# The gradient of the weights is written piece by piece, from its first row to its last. Until the writing gets to its
# end, logits can be stored there, and cost nothing:
#
# ```text
# dweight: | rows of the gradient → | free | kept logits |
# ```
#
# A column of logits takes up `rows` numbers, and its part of the gradient is a row of `hidden` numbers. So the logits
# of hidden / (rows + hidden) of the vocabulary fit before the two ends meet. More columns, the share `KEPT` of the
# vocabulary, have memory of their own. All other columns pass through that memory in the first round, and again in the
# second.
#
# Widths are multiples of `STEP`, so that rows begin at aligned addresses, and so does the piece inside `dweight`. The
# last few columns of an odd vocabulary are left over, and pass through, too.
#
# [[figure: fast/kept_logits]]
def plan(rows, weight, itemsize, inside, KEPT, STEP):
    """How many columns of logits are kept in the gradient of the weights (if `inside`), and how many elsewhere."""
    vocab, row_bytes = len(weight), weight.shape[1] * weight.element_size()
    columns = max(0, vocab * row_bytes - 128) // (rows * itemsize + row_bytes) // STEP * STEP if inside else 0
    free = (vocab - columns) // STEP * STEP or vocab - columns
    return columns, min(max(1, cdiv(int(KEPT * vocab), STEP)) * STEP, free)


def room_at_the_end(dweight, rows, columns, dtype):
    """A matrix of `rows` and `columns` in the last bytes of `dweight`, starting at a multiple of 128 bytes."""
    memory = dweight.view(-1).view(dtype)
    line = 128 // dtype.itemsize
    begin = (memory.numel() - rows * columns) // line * line
    return memory[begin : begin + rows * columns].view(rows, columns)


# ## Two rounds
#
# The first round ends with the pieces that stay, the second one begins with them. Pieces pass through one memory, so
# the one that stays in it must be computed last and used first. And the piece inside `dweight` has to be used before
# all others: their rows of the gradient are written over it. (When it is computed, in the first round, doesn't matter.)
def two_rounds(x, weight, bias, labels, n_items, state, gradients, options, INSIDE, KEPT, STEP, tiles):
    vocab, (rows, _), dweight = len(weight), x.shape, gradients[1]
    inside, beside = plan(rows, weight, x.element_size(), INSIDE and dweight is not None, KEPT, STEP)
    passing = torch.empty((rows, beside), dtype=x.dtype, device=x.device)
    stay = [(inside, inside + beside, passing)]
    if inside:
        stay = [(0, inside, room_at_the_end(dweight, rows, inside, x.dtype)), *stay]
    pass_through = [(at, min(at + beside, vocab), passing) for at in range(inside + beside, vocab, beside)]

    for number, (start, end, memory) in enumerate([*pass_through, *stay]):
        logits = product_into(memory[:, : end - start], x, weight[start:end].to(x.dtype).T)
        sum_piece(logits, part_of(bias, start, end), labels, n_items, state, start, vocab, options, *tiles, number == 0)
    for number, (start, end, memory) in enumerate([*stay, *pass_through]):
        logits, part = memory[:, : end - start], weight[start:end].to(x.dtype)
        if number >= len(stay):
            product_into(logits, x, part.T)
        maximum_and_sum = state[1:3]
        differentiate_piece_(
            logits, part_of(bias, start, end), labels, n_items, maximum_and_sum, start, vocab, options, tiles[0]
        )
        add_gradients(gradients, logits, x, part, start, first=number == 0)


# ## The launchers
#
# Forward gives the loss and the gradients, as if the upstream gradient were 1. The memory of the logits is free again
# before the gradient of `x` is rounded.
@replayed
def linear_cross_entropy_forward(
    x, weight, labels, bias=None, n_items=None, softcap=0.0, scaling=0.0, ignore_index=-100,
    *, needs=(True, True, True), INSIDE=True, KEPT=0.67, STEP=128, BLOCK=4096, num_warps=8,
):  # fmt: skip
    """The loss, and the gradients of `x`, `weight` and `bias`; `needs` says which are wanted, the others are None.

    KEPT: the share of the logits that have memory of their own. INSIDE: whether some are kept in `dweight` as well.
    """
    checks.power_of_two(BLOCK=BLOCK, num_warps=num_warps)
    checks.positive(STEP=STEP)
    rows, flat = matrix_of(x), labels.reshape(-1).contiguous()
    n_items, state = items(n_items, flat, ignore_index), empty_state(len(flat), x.device)
    gradients = empty_gradients(rows, weight, bias, needs)
    if len(flat):
        options = softcap, scaling, ignore_index
        two_rounds(rows, weight, bias, flat, n_items, state, gradients, options, INSIDE, KEPT, STEP, (BLOCK, num_warps))
    return state[0].sum(), finished(gradients, x)


# The backward pass multiplies the gradients by the upstream gradient. If that is 1, as in `loss.backward()`, the kernel
# stops at once.
def scaled(scale, dloss, *gradients_and_options, needs):
    gradients = gradients_and_options[:3]
    return tuple(scale(dloss, g) if need and g is not None else None for g, need in zip(gradients, needs))


# ## Which launchers?
#
# As for cross entropy, the gradient has to wait for the backward pass in two cases: in float16, whose small range needs
# the upstream gradient before the rounding, and under `torch.compile`. Then the lesson's launchers compute it.
def _loss(x, weight, labels, bias, n_items, softcap, scaling, ignore_index, KEPT):
    options = n_items, softcap, scaling, ignore_index
    late = x.dtype == torch.float16 or torch.compiler.is_compiling()
    if late or not autograd.needs_frame(x, weight, bias):
        return loss_with_late_gradients(x, weight, bias, labels, *options)
    needs = tuple(value is not None and value.requires_grad for value in (x, weight, bias))
    forward = functools.partial(linear_cross_entropy_forward, needs=needs, KEPT=KEPT)
    backward, last = (functools.partial(scaled, f) for f in (cross_entropy_backward, cross_entropy_backward_))
    return LinearCrossEntropy.apply(x, weight, bias, labels, *options, forward, backward, last)


@replayed
def linear_cross_entropy(
    x, weight, labels, bias=None, *, logit_softcapping=0.0, logit_scaling=0.0, n_items=None, ignore_index=-100
):
    """The same as `annotated_examples.classics.linear_cross_entropy.linear_cross_entropy`, but faster, with more
    memory.

    Args: as `linear_cross_entropy` of the lesson.

    Returns:
        The loss, a float32 scalar.

    Raises:
        TypeError, ValueError: as the lesson.

    Source: as the lesson; liger-kernel showed how to compute the gradients in the forward pass.
    """
    contract(x, weight, labels, bias, logit_softcapping, logit_scaling, n_items, ignore_index)
    return _loss(x, weight, labels, bias, n_items, logit_softcapping, logit_scaling, ignore_index, KEPT=0.67)


@replayed
def linear_cross_entropy_lean(
    x, weight, labels, bias=None, *, logit_softcapping=0.0, logit_scaling=0.0, n_items=None, ignore_index=-100, KEPT=0.2
):
    """`linear_cross_entropy` with less memory: a fifth of the logits have memory of their own, instead of two thirds.

    Args: as `linear_cross_entropy`.
        KEPT: the share of the logits that have memory of their own, more than 0 and at most 1. Logits that are kept
            neither there nor in the gradient of the weights are computed twice.

    Returns:
        The loss, a float32 scalar.

    Raises:
        TypeError, ValueError: as `linear_cross_entropy`; also if KEPT is not in (0, 1].

    Source: as `linear_cross_entropy`.
    """
    checks.number("KEPT", KEPT, above=0)
    if KEPT > 1:
        raise ValueError(f"KEPT must be at most 1, got {KEPT}")
    contract(x, weight, labels, bias, logit_softcapping, logit_scaling, n_items, ignore_index)
    return _loss(x, weight, labels, bias, n_items, logit_softcapping, logit_scaling, ignore_index, KEPT=KEPT)


# ## Where it falls behind
#
# With a small vocabulary `torch.compile` is ahead. It fuses the loss, too, and keeps all logits in bfloat16: at 8192 x
# 2048 x 32000 it takes
# [[bench: linear_cross_entropy/8192x2048x32000/forward+backward/torch.compile.ms]] and
# [[bench: linear_cross_entropy/8192x2048x32000/forward+backward/torch.compile.memory]], this file
# [[bench: linear_cross_entropy/8192x2048x32000/forward+backward/ms]] and
# [[bench: linear_cross_entropy/8192x2048x32000/forward+backward/memory]]. The lean setting computes more logits
# twice, and is slower still: [[bench: linear_cross_entropy:lean/8192x2048x32000/forward+backward/ms]] in
# [[bench: linear_cross_entropy:lean/8192x2048x32000/forward+backward/memory]]. At a vocabulary of 50257 the lean
# setting is behind the lesson, too.


# ## A run small enough to watch
#
# The lesson's example. Eight columns are kept, in separate memory: into so small a gradient of the weights none fits.
def EXAMPLE():
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, -1.0]], device=device.DEVICE)
    at = torch.arange(11.0, device=device.DEVICE)
    weight = torch.stack([at % 4, at % 3], 1) - torch.tensor([0.0, 1.0], device=device.DEVICE)
    labels = torch.tensor([4, -100, 10], device=device.DEVICE)
    linear_cross_entropy_forward(x, weight, labels, KEPT=0.7, STEP=4, BLOCK=8)


if __name__ == "__main__":
    labels = torch.tensor([5, -100, 63], device=device.DEVICE)
    both = dict(logit_softcapping=30.0, logit_scaling=0.5)
    cases = [dict(x=(3, 32), weight=(1000, 32)), dict(x=(3, 40), weight=(70, 40), bias=(70,), **both)]
    script.main(linear_cross_entropy, linear_cross_entropy_reference, *(case | dict(labels=labels) for case in cases))
