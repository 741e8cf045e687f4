r"""
# Linear cross entropy: the logits that never exist

The last layer of a language model multiplies hidden states by one row of weights for each entry of the vocabulary, and
the loss reads the products once. With the logits $U$, [[tag: LCE-U]], the loss is

[[eq: LCE]]

The logits are by far the largest tensor of the step: 8192 tokens and a vocabulary of 128256 make 2.1 GB in bfloat16,
and their gradient as much again. Nothing else needs them. So this file computes them one piece at a time, and discards
each piece: forward it keeps the loss, backward the gradients [[tag: LCE-X]], [[tag: LCE-W]] and [[tag: LCE-b]].

**What it costs.** A matrix product takes `2 · rows · hidden · vocab` operations, and there are four of them: the
logits, the logits again in the backward pass, and the two gradients. PyTorch needs three, and memory for all logits. At
8192 x 4096 x 128256, on an H200, this file takes
[[bench: linear_cross_entropy/8192x4096x128256/forward+backward/lesson.ms]] and PyTorch
[[bench: linear_cross_entropy/8192x4096x128256/forward+backward/eager.ms]]. The tensor cores set the pace; the kernels
below only read and write what a product just wrote. [The fast version](../fast/linear_cross_entropy.py) computes fewer
logits twice.

**Contract.** `x` is (…, hidden), `weight` (vocab, hidden), `labels` (…), `bias` (vocab) or None. `x` is float32,
float16 or bfloat16; `weight` and `bias` have its dtype or float32, and are then rounded to it for the products, as
under autocast. The products are rounded to that dtype, and the bias is added to them in float32; PyTorch adds it first.
Everything else is computed in float32, including the sums over the vocabulary and over the rows. Any strides are
allowed. Labels, options and `n_items` are those of `cross_entropy_loss`, and so is what becomes of a NaN or an infinity
among the logits.
"""

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from annotated_examples.common.constants import LOWEST
from annotated_examples.common.logits import items, loss_contract, scale_and_cap
from annotated_examples.common.opaque_loss import opaque_loss
from annotated_examples.common.vocabulary import (
    add_gradients,
    empty_gradients,
    finished,
    matrix_of,
    part_of,
    product_into,
    projection_contract,
)


# ## Reference
#
# The same in PyTorch, with all logits in memory.
def linear_cross_entropy_reference(
    x, weight, labels, bias=None, *, logit_softcapping=0.0, logit_scaling=0.0, n_items=None, ignore_index=-100
):
    z = F.linear(x, weight.to(x.dtype), None if bias is None else bias.to(x.dtype))
    z = z.reshape(labels.numel(), len(weight))
    z = z * logit_scaling if logit_scaling else z
    z = logit_softcapping * torch.tanh(z / logit_softcapping) if logit_softcapping else z
    labels = labels.reshape(-1).long()
    total = F.cross_entropy(z, labels, ignore_index=ignore_index, reduction="sum")
    valid = labels != ignore_index
    mean = torch.where(valid.any(), total / (valid.sum() if n_items is None else n_items), total * 0)
    return mean.to(torch.promote_types(x.dtype, torch.float32))


# ## Rows or columns?
#
# The logits are a matrix of rows (tokens) and columns (the vocabulary), and a piece could be some rows or some columns.
#
# [[figure: rows/pieces]]
#
# **Some rows.** Each softmax is complete, so its loss and gradient can be computed together, and the logits only once.
# But every piece then adds to the gradient of *all* weights. Summed in float32, as a sum has to be, that takes as much
# memory as the logits: 2.1 GB for 128256 x 4096. Summed in bfloat16, which has eight binary digits, small terms are
# lost one after the other.
#
# **Some columns.** Each piece gives complete rows of the weights' gradient, by one product that sums in float32 and
# rounds once. What is summed over the pieces is the gradient of `x`, and in float32 that takes 0.13 GB. The price is
# that the sum of a softmax isn't known until the last piece, so the gradient has to wait for a second round.
#
# So the pieces are columns, and forward is the first round, backward the second.


# A logit as the loss sees it: plus the bias, then scaled and capped. The product left them in `x`'s dtype; from here on
# everything is float32.
@triton.jit
def load_logits(logits_ptr, bias_ptr, offs, mask, scaling: tl.constexpr, softcap: tl.constexpr):
    u = tl.load(logits_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    if bias_ptr is not None:
        u += tl.load(bias_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    return scale_and_cap(u, scaling, softcap)


# From the sum to the loss of the row.
@triton.jit
def store_loss(
    logits_ptr, bias_ptr, labels_ptr, n_items_ptr, losses_ptr, z_label_ptr, row, row_max, row_sum,
    start, width, vocab, ignore_index, scaling: tl.constexpr, softcap: tl.constexpr, FIRST: tl.constexpr,
):  # fmt: skip
    # Is the label in this piece? Then its logit is loaded, and kept as well: `pid=0: here = 4`. A label of another
    # piece, or outside of the vocabulary, must not become an address.
    label = tl.load(labels_ptr + row).to(tl.int64)
    here = label - start
    in_piece = (here >= 0) & (here < width)
    z_here, _ = load_logits(logits_ptr, bias_ptr, here, in_piece, scaling, softcap)
    z_label = tl.where(in_piece, z_here, 0.0 if FIRST else tl.load(z_label_ptr + row))
    tl.store(z_label_ptr + row, z_label)

    # [[tag: LCE]] of this row, divided by the number of items, that is, of all tokens that count. The last piece stores
    # the right loss, over what the earlier ones have stored.
    loss = (tl.log(row_sum) + (row_max - z_label)) / tl.load(n_items_ptr).to(tl.float32)
    loss = tl.where((label >= 0) & (label < vocab), loss, float("nan"))
    tl.store(losses_ptr + row, tl.where(label == ignore_index, 0.0, loss))


# ## Forward: the sum so far
#
# A program takes one row of the piece, in blocks. As in [cross entropy](cross_entropy.py) the sum of the exponentials
# is relative to the largest logit so far. What is new: both are kept in memory from piece to piece.
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
    BLOCK_N: tl.constexpr,
    FIRST: tl.constexpr,  # no piece has been seen before, and nothing is in memory
):
    # In the example the vocabulary has 11 entries and a piece 8 columns: `width = 8`, and it starts at `start = 0`.
    row = tl.program_id(0).to(tl.int64)
    logits_ptr += row * stride_um
    row_max, row_sum = tl.full((), LOWEST, tl.float32), tl.full((), 0.0, tl.float32)
    if not FIRST:
        row_max, row_sum = tl.load(row_max_ptr + row), tl.load(row_sum_ptr + row)
    for first in tl.range(0, width, BLOCK_N):
        offs_n = first + tl.arange(0, BLOCK_N)
        mask = offs_n < width
        # The first four logits of row 0: `pid=0, first=0: z = [0, 1, 2, 3]`.
        z, _ = load_logits(logits_ptr, bias_ptr, offs_n, mask, scaling, softcap)
        z = tl.where(mask, z, -float("inf"))
        new_max = tl.maximum(row_max, tl.max(z, axis=0))
        # [[tag: SM-online]]: what came before is scaled down as if the new maximum had been known.
        row_sum = row_sum * tl.exp(row_max - new_max) + tl.sum(tl.exp(z - new_max), axis=0)
        row_max = new_max
    tl.store(row_max_ptr + row, row_max)
    tl.store(row_sum_ptr + row, row_sum)

    store_loss(
        logits_ptr, bias_ptr, labels_ptr, n_items_ptr, losses_ptr, z_label_ptr, row, row_max, row_sum,
        start, width, vocab, ignore_index, scaling, softcap, FIRST,
    )  # fmt: skip


# ## Backward: logits become gradients
#
# The piece has been computed again, by the same product. Now each logit is replaced by its gradient, in place. No entry
# depends on another, so the grid has two dimensions: rows, and blocks of a row.
@triton.jit
def linear_cross_entropy_backward_kernel(
    dloss_ptr,  # one number, or None
    logits_ptr,  # (M, width), rows stride_um apart; becomes its gradient
    bias_ptr,  # (vocab,), or None
    labels_ptr,  # (M,)
    n_items_ptr,  # one number
    row_max_ptr,  # (M,)
    row_sum_ptr,  # (M,)
    stride_um,
    start,
    width,
    vocab,
    ignore_index,
    scaling: tl.constexpr,
    softcap: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = offs_n < width
    logits_ptr += row * stride_um
    z, slope = load_logits(logits_ptr, bias_ptr, offs_n, mask, scaling, softcap)

    # The probability, and minus one at the label, in float32. In bfloat16 the probability of a label that the model is
    # sure of is rounded to one, and nothing would be left of the difference.
    p = tl.exp(z - tl.load(row_max_ptr + row)) / tl.load(row_sum_ptr + row)
    label = tl.load(labels_ptr + row).to(tl.int64)
    dz = p - (start + offs_n == label).to(tl.float32)

    # [[tag: LCE-G]]: times the upstream gradient over the number of items, and times the slope of scale and cap,
    # [[tag: LCE-capped-G]].
    weight = 1.0 / tl.load(n_items_ptr).to(tl.float32)
    if dloss_ptr is not None:
        weight *= tl.load(dloss_ptr)
    weight = tl.where((label >= 0) & (label < vocab), weight, float("nan"))
    g = tl.where(label == ignore_index, 0.0, dz * weight * slope)
    tl.store(logits_ptr + offs_n, g, mask=mask)


# ## The products
#
# They are PyTorch's, that is, cuBLAS's. [The road to a fast matrix product](../tutorials/matmul_blocked.py) explains
# how such a kernel is written; here the products are just the steps between the kernels.
#


# ## Launchers
#
# The first two handle one piece: `logits` holds some columns, beginning at column `start` of the vocabulary.
def sum_piece(logits, bias, labels, n_items, state, start, vocab, options, BLOCK_N, first):
    softcap, scaling, ignore_index = options
    linear_cross_entropy_forward_kernel[(len(labels),)](
        logits, bias, labels, n_items, *state, logits.stride(0), start, logits.shape[1], vocab, ignore_index,
        scaling=float(scaling), softcap=float(softcap), BLOCK_N=BLOCK_N, FIRST=first, num_warps=8,
    )  # fmt: skip


def differentiate_piece_(logits, bias, labels, n_items, state, start, vocab, options, BLOCK_N, dloss=None):
    """Overwrites `logits` with their gradient. Without `dloss` the upstream gradient is 1."""
    softcap, scaling, ignore_index = options
    linear_cross_entropy_backward_kernel[(len(labels), triton.cdiv(logits.shape[1], BLOCK_N))](
        dloss, logits, bias, labels, n_items, *state, logits.stride(0), start, logits.shape[1], vocab, ignore_index,
        scaling=float(scaling), softcap=float(softcap), BLOCK_N=BLOCK_N, num_warps=8,
    )  # fmt: skip


# The state of every row: its loss, largest logit, sum and label's logit. The first piece writes it.
def empty_state(rows, on):
    return torch.empty(4, rows, dtype=torch.float32, device=on).unbind()


# The logits of one piece at a time: `COLUMNS` of them, 0.13 GB for 8192 rows.
@replayed
def linear_cross_entropy_forward(
    x, weight, labels, bias=None, n_items=None, softcap=0.0, scaling=0.0, ignore_index=-100,
    *, COLUMNS=8192, BLOCK_N=4096,
):  # fmt: skip
    """The loss, and what the backward pass needs: the arguments, largest logit and sum of each row."""
    checks.power_of_two(BLOCK_N=BLOCK_N)
    checks.positive(COLUMNS=COLUMNS)
    rows, vocab, flat = matrix_of(x), len(weight), labels.reshape(-1).contiguous()
    n_items, state = items(n_items, flat, ignore_index), empty_state(len(flat), x.device)
    piece = torch.empty((len(flat), min(COLUMNS, vocab)), dtype=x.dtype, device=x.device)
    for start in range(0, vocab if len(flat) else 0, COLUMNS):
        end = min(start + COLUMNS, vocab)
        logits = product_into(piece[:, : end - start], rows, weight[start:end].to(x.dtype).T)
        options = softcap, scaling, ignore_index
        sum_piece(
            logits, part_of(bias, start, end), flat, n_items, state, start, vocab, options, BLOCK_N, first=start == 0
        )
    losses, row_max, row_sum, _ = state
    return losses.sum(), (x, weight, labels, bias, n_items, row_max, row_sum)


# Each piece of the vocabulary gives its rows of `dweight`, [[tag: LCE-W]], and its entries of `dbias`, [[tag: LCE-b]],
# and adds to `dx`, [[tag: LCE-X]].
@replayed
def linear_cross_entropy_backward(
    dloss, x, weight, labels, bias, n_items, row_max, row_sum, softcap=0.0, scaling=0.0, ignore_index=-100,
    *, needs=(True, True, True), COLUMNS=8192, BLOCK_N=4096,
):  # fmt: skip
    """`(dx, dweight, dbias)`; `needs` says which are wanted, the others are None."""
    checks.power_of_two(BLOCK_N=BLOCK_N)
    checks.positive(COLUMNS=COLUMNS)
    rows, vocab, flat = matrix_of(x), len(weight), labels.reshape(-1).contiguous()
    gradients = empty_gradients(rows, weight, bias, needs)
    piece = torch.empty((len(flat), min(COLUMNS, vocab)), dtype=x.dtype, device=x.device)
    for start in range(0, vocab if len(flat) else 0, COLUMNS):
        end = min(start + COLUMNS, vocab)
        part = weight[start:end].to(x.dtype)
        logits = product_into(piece[:, : end - start], rows, part.T)
        options = softcap, scaling, ignore_index
        differentiate_piece_(
            logits, part_of(bias, start, end), flat, n_items, (row_max, row_sum), start, vocab, options, BLOCK_N, dloss
        )
        add_gradients(gradients, logits, rows, part, start, first=start == 0)
    return finished(gradients, x)


# ## Arguments
def contract(x, weight, labels, bias, logit_softcapping, logit_scaling, n_items, ignore_index):
    projection_contract(x, weight, bias, labels=labels)
    options = logit_softcapping, logit_scaling, n_items, ignore_index
    loss_contract("x", x, labels, len(weight), *options)


# ## Joining autograd
#
# As for [cross entropy](cross_entropy.py): the launchers come as arguments, and the last backward pass may overwrite
# what was saved.
class LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx, x, weight, bias, labels, n_items, softcap, scaling, ignore_index,
        launch_forward, launch_backward, launch_last_backward,
    ):  # fmt: skip
        loss, saved = launch_forward(x, weight, labels, bias, n_items, softcap, scaling, ignore_index)
        ctx.save_for_backward(*saved)
        ctx.options = softcap, scaling, ignore_index
        ctx.launch_backward, ctx.launch_last_backward = launch_backward, launch_last_backward
        ctx.dependence = autograd.dependence(x, weight, bias)  # for launchers that save none of them
        return loss

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dloss):
        again = torch.compiler.is_compiling() or torch._C._autograd._get_current_graph_task_keep_graph()
        launch = ctx.launch_backward if again else ctx.launch_last_backward
        return *launch(dloss, *ctx.saved_tensors, *ctx.options, needs=ctx.needs_input_grad[:3]), *[None] * 8


compiled_forward, compiled_backward = opaque_loss(linear_cross_entropy_forward, linear_cross_entropy_backward)


# Here the gradients are computed in the backward pass. In a compiled model the launchers are operators.
def loss_with_late_gradients(x, weight, bias, labels, n_items, softcap, scaling, ignore_index):
    launch_forward, launch_backward = linear_cross_entropy_forward, linear_cross_entropy_backward
    if torch.compiler.is_compiling():
        launch_forward, launch_backward = compiled_forward, compiled_backward
        n_items = items(n_items, labels, ignore_index)
    arguments = n_items, softcap, scaling, ignore_index, launch_forward, launch_backward, launch_backward
    if not autograd.needs_frame(x, weight, bias):
        return launch_forward(x, weight, labels, bias, *arguments[:4])[0]
    return LinearCrossEntropy.apply(x, weight, bias, labels, *arguments)


@replayed
def linear_cross_entropy(
    x, weight, labels, bias=None, *, logit_softcapping=0.0, logit_scaling=0.0, n_items=None, ignore_index=-100
):
    r"""Mean cross entropy of the logits `x @ weight.T + bias` against `labels`, without ever holding the logits.

    Args:
        x: (…, hidden), float32, float16 or bfloat16, any strides.
        weight: (vocab, hidden), the dtype of `x` or float32, any strides.
        labels: (…), any integer dtype, any strides; in [0, vocab), or equal to `ignore_index`.
        bias: (vocab,), the dtype of `x` or float32, or None. It is added before scaling and capping.
        logit_softcapping: $t$ in $t \tanh(u / t)$, which keeps the logits between $-t$ and $t$. 0.0 turns it off.
        logit_scaling: $s$; logits are multiplied by it before they are capped. 0.0 turns it off.
        n_items: what the sum over the rows is divided by: an int, a float or a 0-d tensor. Default: the number of
            labels that differ from `ignore_index`.
        ignore_index: rows with this label have no loss, and no part in any gradient while their `x` is finite: the
            gradient of `weight` is a product, in which 0 · NaN is NaN, as in PyTorch.

    Returns:
        The loss, a float32 scalar, differentiable in `x`, `weight` and `bias`. If no label is valid, the loss and its
        gradients are 0.

    Raises:
        TypeError: an argument has a wrong type, or a tensor a wrong dtype.
        ValueError: shapes don't fit, a tensor is on the wrong device, a number is negative or not finite, or, for CPU
            tensors and with `ACADEMY_DEBUG=1` in the environment, a label is out of range. Without that check such a
            label turns the loss, the gradient of its row and so those of `weight` and `bias` into NaN; nothing outside
            is read.

    Source: Wijmans et al., "Cut your losses in large-vocabulary language models" (arXiv 2411.09009); liger-kernel's
    fused linear cross entropy.
    """
    contract(x, weight, labels, bias, logit_softcapping, logit_scaling, n_items, ignore_index)
    options = n_items, logit_softcapping, logit_scaling, ignore_index
    return loss_with_late_gradients(x, weight, bias, labels, *options)


# ## A run small enough to watch
#
# Three tokens with two features each, the second token ignored, and a vocabulary of 11, in two pieces.
def EXAMPLE():
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, -1.0]], device=device.DEVICE)
    at = torch.arange(11.0, device=device.DEVICE)
    weight = torch.stack([at % 4, at % 3], 1) - torch.tensor([0.0, 1.0], device=device.DEVICE)
    labels = torch.tensor([4, -100, 10], device=device.DEVICE)
    _, saved = linear_cross_entropy_forward(x, weight, labels, COLUMNS=8, BLOCK_N=4)
    linear_cross_entropy_backward(torch.tensor(0.5, device=device.DEVICE), *saved, COLUMNS=8, BLOCK_N=4)


if __name__ == "__main__":
    labels = torch.tensor([5, -100, 63], device=device.DEVICE)
    both = dict(logit_softcapping=30.0, logit_scaling=0.5)
    cases = [dict(x=(3, 32), weight=(1000, 32)), dict(x=(3, 40), weight=(70, 40), bias=(70,), **both)]
    script.main(linear_cross_entropy, linear_cross_entropy_reference, *(case | dict(labels=labels) for case in cases))
