r"""
# Logits, labels and options

What the losses over a vocabulary and the log-probabilities of its tokens have in common: how logits are scaled and
capped, the sums over a row that are kept from block to block, what a loss is divided by, and the checks of labels and
options.
"""

from academy.runtime import autograd, checks  # before anything imports triton


import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

INTEGERS = tuple(getattr(torch, name) for name in "int64 int32 int16 int8 uint8 uint16 uint32 uint64".split())


# ## Scaling and capping
#
# A jitted function can be called from a kernel; the compiler inlines its code. Both passes of each loss call this one.
#
# Scale and cap are constexprs: a model has one value for each, and a kernel without them contains none of their
# instructions. The scale comes first. A scale above 1 **sharpens** the distribution: differences between logits grow,
# and the largest one takes more of the probability. Below 1 it flattens. (A temperature is one over the scale.)
@triton.jit
def scale_and_cap(x, scaling: tl.constexpr, softcap: tl.constexpr):
    # Returns the logits that the loss sees, and their slope: the factor that the chain rule puts on the gradient.
    # `tl.full` makes a block of one value.
    slope = tl.full(x.shape, 1.0, tl.float32)
    # [[tag: CE-scale]]; the slope is the factor in [[tag: CE-scaled-x]]. `tl.fma(x, s, 0.0)` is a product that
    # is rounded here. If the compiler fused it with the subtraction of the maximum, which is rounded, the difference
    # would not be exactly zero for the largest logit.
    if scaling != 0.0:
        x = tl.fma(x, scaling, 0.0)
        slope = slope * scaling
    # [[tag: CE-cap]], and the slope in [[tag: CE-capped-x]]. `libdevice` is a library of maths functions that comes
    # with the compiler. `libdevice.tanh` is right to the last bits. The shortcut, twice a sigmoid minus one, is faster
    # and loses digits around zero, where most logits are.
    if softcap != 0.0:
        tanh = libdevice.tanh(x / softcap)
        x = softcap * tanh
        slope = slope * (1.0 - tanh * tanh)
    return x, slope


# ## The sums of a row, so far
#
# The entropy of a row needs its largest logit `m`, the sum of `exp(z - m)`, and the sum of `(z - m) * exp(z - m)`. All
# are relative to the largest logit *so far*. When a block brings a larger one, two things happen to the second sum:
# everything is scaled down, and every term's first factor moves by the same amount.
@triton.jit
def rebase(row_sum, weighted, shift):
    # From relative to `m` to relative to `m - shift`; `shift` is negative or zero. A sum of zero has nothing to move:
    # its `shift` may be as low as a number can be.
    factor = tl.exp(shift)
    return row_sum * factor, tl.where(row_sum > 0.0, (weighted + shift * row_sum) * factor, weighted * factor)


# `z` is the next block of the row, −∞ in lanes that are no part of it.
@triton.jit
def add_moments(z, row_max, row_sum, weighted):
    new_max = tl.maximum(row_max, tl.max(z, axis=0))
    row_sum, weighted = rebase(row_sum, weighted, row_max - new_max)
    e = tl.exp(z - new_max)
    row_sum += tl.sum(e, axis=0)
    # Zero times −∞ would be NaN.
    weighted += tl.sum(tl.where(e > 0.0, (z - new_max) * e, e), axis=0)
    return new_max, row_sum, weighted


# ## The number of items
#
# Python mustn't read a number that the GPU is still computing: it would block until all earlier work is done. So the
# number of items stays on the device, whether it was counted there or passed in.
#
# In PyTorch counting is two operations, each with a launch. Labels are few beside logits, so a single program has
# counted them before two launches would be made.
@triton.jit
def count_kernel(
    labels_ptr, n_items_ptr,  # (M,), any integers; one number, int64
    M, ignore_index, BLOCK: tl.constexpr,
):  # fmt: skip
    counted = tl.zeros((BLOCK,), tl.int32)
    for first in tl.range(0, M, BLOCK):
        offs = tl.arange(0, BLOCK).to(tl.int64) + first
        label = tl.load(labels_ptr + offs, mask=offs < M, other=0).to(tl.int64)
        counted += ((offs < M) & (label != ignore_index)).to(tl.int32)
    tl.store(n_items_ptr, tl.sum(counted.to(tl.int64), axis=0))


def count(labels, ignore_index, *, BLOCK=16384):
    """How many labels aren't ignored: int64, of shape ()."""
    if torch.compiler.is_compiling() or labels.numel() > 2**30:  # one program would take too long
        return (labels.long() != ignore_index).sum()
    flat, n_items = labels.reshape(-1).contiguous(), torch.empty((), dtype=torch.int64, device=labels.device)
    BLOCK = min(BLOCK, triton.next_power_of_2(max(flat.numel(), 256)))
    count_kernel[(1,)](flat, n_items, flat.numel(), ignore_index, BLOCK=BLOCK, num_warps=max(4, BLOCK // 1024))
    return n_items


def items(n_items, labels, ignore_index):
    """`n_items` as a 0-d tensor beside `labels`. None: the number of labels that aren't ignored."""
    if n_items is None:
        return count(labels, ignore_index)
    if isinstance(n_items, torch.Tensor):
        return n_items.to(labels.device)
    return torch.full((), n_items, dtype=torch.float32, device=labels.device)


# ## Checks of labels and options
#
# Everything that can be checked without looking at values is checked before anything is launched. Labels are values:
# looking at them means waiting for the GPU. So that check runs on the CPU, and on a GPU on request.
#
# `x` is the tensor whose rows the labels belong to, and `name` is what the caller calls it. The labels come under the
# caller's name for them, too: `labels=labels`, `tokens=tokens`.
def labels_contract(name, x, vocab, ignore_index, **named):
    ((what, labels),) = named.items()
    checks.dtypes(INTEGERS, **named)
    checks.shape(what, labels, x.shape[:-1], f"one for each row of {name}")
    checks.programs(name, "classes", vocab, 4096)
    if labels.device != x.device:
        raise ValueError(f"{what} must be on the device of {name}, {x.device}, got {labels.device}")
    checks.whole_number("ignore_index", ignore_index)
    if checks.looks_at_values():
        check_label_range(what, labels, vocab, ignore_index)


def loss_contract(name, x, labels, vocab, logit_softcapping, logit_scaling, n_items, ignore_index):
    labels_contract(name, x, vocab, ignore_index, labels=labels)
    checks.number("logit_softcapping", logit_softcapping, at_least=0)
    checks.number("logit_scaling", logit_scaling, at_least=0)
    if isinstance(n_items, torch.Tensor):
        checks.number_tensor("n_items", n_items)
        if autograd.needs_frame(n_items):
            raise ValueError("n_items requires a gradient, but the loss gives it none: pass n_items.detach()")
    elif n_items is not None:
        checks.number("n_items", n_items, at_least=0)


def check_label_range(what, labels, vocab, ignore_index):
    labels = labels.reshape(-1).long()
    wrong = (labels != ignore_index) & ((labels < 0) | (labels >= vocab))
    if wrong.any():
        row = int(wrong.int().argmax())
        raise ValueError(
            f"{what} must be in [0, {vocab}) or ignore_index = {ignore_index}, got {int(labels[row])} in row {row}"
        )
