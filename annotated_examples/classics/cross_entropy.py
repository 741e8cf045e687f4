r"""
# Cross entropy: the loss and its gradient in one go

A language model ends in one row of *logits* for every token: a number for each entry of the vocabulary. The *label* says
which entry was right. With the row $x$, the label $c$ and the log-sum-exp $z$ of the row, the loss of one token is

[[eq: CE]]

and the loss of a batch is its mean over the tokens that count, [[tag: CE-mean]]. The gradient needs no more than the
probabilities that the forward pass computes anyway:

[[eq: CE-mean-X]]

Logits may be scaled first, [[tag: CE-scaled]], and then capped, [[tag: CE-capped]]; each option changes the loss and adds
a factor to the gradient.

**What it costs.** The logits are by far the largest tensor of a training step: 8192 tokens and 128256 entries are 2.1 GB
in bfloat16. A handful of operations for each of them is nothing; moving them is everything. They must be read once, and a
gradient of the same size must be written once. An H200 copies about 4.25 TB/s, so no version can be faster than
`(bytes read + bytes written) / 4.25e12` seconds.

An ordinary implementation reads them in the forward pass, and reads them again and writes in the backward pass: three
trips instead of two, so 67 % of the limit at best. This one makes the gradient **in the forward pass**, while the row is
still in the L2 cache. All that is unknown then is the upstream gradient, a single number, and that is almost always 1.

**Contract.** `logits` is (rows, vocab) or (batch, seq, vocab), float32, float16 or bfloat16; `labels` has one integer for each
row. Everything is computed in float32. Rows may lie anywhere in memory; if the entries of a row are not side by side,
they are copied first. `cross_entropy_loss` never writes to its arguments; `cross_entropy_loss_` may put the gradient where
the logits were.
"""

if __name__ == "__main__":  # run as a script: make the repository importable
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from academy import checks, device

import functools
import os

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable
from triton.language.extra import libdevice

INTEGERS = tuple(getattr(torch, name) for name in "int64 int32 int16 int8 uint8 uint16 uint32 uint64".split())


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


# ## How many labels count
#
# The mean divides by the number of labels that aren't ignored, and the gradient is divided by it too, so it has to be known before
# the first row is finished. Asking PyTorch for it on the host would stall: Python would have to wait for the GPU. One small program
# counts instead, and leaves the number in GPU memory for the next kernel.
@triton.jit
def count_labels_forward_kernel(labels_ptr, count_ptr, rows, ignore_index, BLOCK: tl.constexpr):
    # One program walks over all labels. They are a millionth of what the next kernel moves.
    count = tl.zeros((BLOCK,), tl.int32)
    for start in tl.range(0, rows, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < rows
        # Labels come in any integer dtype. Widened to int64, an 8-bit label can be compared with -100.
        labels = tl.load(labels_ptr + offs, mask=mask, other=0).to(tl.int64)
        count += (mask & (labels != ignore_index)).to(tl.int32)
    tl.store(count_ptr, tl.sum(count, 0))


# ## Three helpers
#
# A jitted function can be called from a kernel; the compiler puts its code in place.
#
# Scaling and soft-capping come as constexprs `SCALING` and `SOFTCAPPING`, so a kernel without them contains no trace of them. The
# scale comes first. A scale above 1 **sharpens** the distribution: differences between logits grow and the largest one takes more of the
# probability; below 1 it flattens. (A temperature is one over the scale.)
@triton.jit
def scale_and_cap(x, scaling, softcapping, SCALING: tl.constexpr, SOFTCAPPING: tl.constexpr):
    # Returns the transformed logits and their slope, the factor that the chain rule puts on the gradient.
    slope = tl.full(x.shape, 1.0, tl.float32)
    # [[tag: CE-scale]]
    if SCALING:
        x = x * scaling
        slope = slope * scaling
    # [[tag: CE-cap]]: the slope of tanh is one minus its square. The exact `libdevice.tanh` is worth its price:
    # twice a sigmoid minus one loses digits around zero, where most logits are.
    if SOFTCAPPING:
        tanh = libdevice.tanh(x / softcapping)
        x = softcapping * tanh
        slope = slope * (1.0 - tanh * tanh)
    return x, slope


# The **online log-sum-exp**. The stable form subtracts the largest logit before it exponentiates, [[tag: CE-LSE]], because the
# exponential of 89 is already infinite in float32. That seems to need two sweeps, one for the maximum and one for the sum. It doesn't: when a
# larger maximum turns up, everything summed so far is multiplied by $e^{old - new}$, as if it had been there from the start.
@triton.jit
def online_update(z, row_max, row_sum):
    new_max = tl.maximum(row_max, tl.max(z, 1))
    # A strip that holds nothing but $-\infty$ so far must not compute $\infty - \infty$.
    shift = tl.where(new_max == -float("inf"), 0.0, new_max)
    row_sum = row_sum * tl.exp(row_max - shift) + tl.sum(tl.exp(z - shift[:, None]), 1)
    return new_max, row_sum


# One block of the gradient, [[tag: CE-mean-X]]: the probability, minus one at the label, times the weight of the row and the slope.
@triton.jit
def logit_gradient(z, slope, cols, label, shift, row_sum, weight):
    return (tl.exp(z - shift) * (weight / row_sum) - tl.where(cols == label, weight, 0.0)) * slope


# ## The kernel: one row a program
@triton.jit
def cross_entropy_forward_kernel(
    logits_ptr, labels_ptr, n_items_ptr, dloss_ptr, losses_ptr, dlogits_ptr,
    stride_xb, stride_xs, stride_db, stride_ds, seq_len, vocab, weight, scaling, softcapping, ignore_index,
    SCALING: tl.constexpr, SOFTCAPPING: tl.constexpr, BLOCK: tl.constexpr, STRIP: tl.constexpr,
):  # fmt: skip
    # Which row is mine, and where does it lie?
    row = tl.program_id(0).to(tl.int64)
    batch, position = row // seq_len, row % seq_len
    logits_ptr += batch * stride_xb + position * stride_xs

    # What is its label?
    label = tl.load(labels_ptr + row).to(tl.int64)
    ignored = label == ignore_index
    in_range = (label >= 0) & (label < vocab)
    columns = tl.where(ignored, 0, vocab)
    whole = columns // BLOCK * BLOCK

    # Strips.
    strips: tl.constexpr = BLOCK // STRIP
    offs = tl.arange(0, strips)[:, None] * STRIP + tl.arange(0, STRIP)[None, :]
    strip_max = tl.full((strips,), -float("inf"), tl.float32)
    strip_sum = tl.zeros((strips,), tl.float32)

    # First sweep.
    for start in tl.range(0, whole, BLOCK):
        x = tl.load(logits_ptr + start + offs, eviction_policy="evict_last").to(tl.float32)
        z, _ = scale_and_cap(x, scaling, softcapping, SCALING, SOFTCAPPING)
        strip_max, strip_sum = online_update(z, strip_max, strip_sum)
    for start in tl.range(whole, columns, BLOCK):
        mask = start + offs < columns
        x = tl.load(logits_ptr + start + offs, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        z, _ = scale_and_cap(x, scaling, softcapping, SCALING, SOFTCAPPING)
        strip_max, strip_sum = online_update(tl.where(mask, z, -float("inf")), strip_max, strip_sum)

    # Merge.
    row_max = tl.max(strip_max, 0)
    shift = tl.where(row_max == -float("inf"), 0.0, row_max)
    row_sum = tl.sum(strip_sum * tl.exp(strip_max - shift), 0)

    # Weight.
    if n_items_ptr is not None:
        weight = 1.0 / tl.load(n_items_ptr).to(tl.float32)
    weight = tl.where(in_range, weight, float("nan"))

    # Loss.
    if losses_ptr is not None:
        x_label = tl.load(logits_ptr + label, mask=in_range & (columns > 0), other=0.0).to(tl.float32)
        z_label, _ = scale_and_cap(x_label, scaling, softcapping, SCALING, SOFTCAPPING)
        loss = (tl.log(row_sum) + (shift - z_label)) * weight
        tl.store(losses_ptr + row, tl.where(ignored, 0.0, loss))

    # Second sweep.
    if dlogits_ptr is not None:
        if dloss_ptr is not None:
            weight *= tl.load(dloss_ptr)
        dlogits_ptr += batch * stride_db + position * stride_ds
        for start in tl.range(0, whole, BLOCK):
            cols = start + offs
            x = tl.load(logits_ptr + cols, eviction_policy="evict_first").to(tl.float32)
            z, slope = scale_and_cap(x, scaling, softcapping, SCALING, SOFTCAPPING)
            dx = logit_gradient(z, slope, cols, label, shift, row_sum, weight)
            tl.store(dlogits_ptr + cols, dx.to(dlogits_ptr.dtype.element_ty))
        for start in tl.range(whole, columns, BLOCK):
            cols = start + offs
            mask = cols < columns
            x = tl.load(logits_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
            z, slope = scale_and_cap(x, scaling, softcapping, SCALING, SOFTCAPPING)
            dx = logit_gradient(z, slope, cols, label, shift, row_sum, weight)
            tl.store(dlogits_ptr + cols, dx.to(dlogits_ptr.dtype.element_ty), mask=mask)
        for start in tl.range(columns, vocab, BLOCK):
            zero = tl.zeros((strips, STRIP), dlogits_ptr.dtype.element_ty)
            tl.store(dlogits_ptr + start + offs, zero, mask=start + offs < vocab)


# ## The upstream gradient
@triton.jit
def cross_entropy_backward_kernel(dloss_ptr, gradient_ptr, dlogits_ptr, n, IN_PLACE: tl.constexpr, BLOCK: tl.constexpr):
    dloss = tl.load(dloss_ptr)
    end = n
    if IN_PLACE:
        end = tl.where(dloss == 1.0, 0, n)
    first = tl.program_id(0).to(tl.int64) * BLOCK
    for start in tl.range(first, end, tl.num_programs(0) * BLOCK):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < n
        gradient = tl.load(gradient_ptr + offs, mask=mask, other=0.0).to(tl.float32)
        tl.store(dlogits_ptr + offs, (gradient * dloss).to(dlogits_ptr.dtype.element_ty), mask=mask)


# ## The launchers
def tiles(vocab, itemsize):
    """`BLOCK` and `num_warps` for a row of `vocab` logits of `itemsize` bytes."""
    return min(8192, max(64, triton.next_power_of_2(vocab))), 8


def row_strides(x):
    """How far apart, in elements, two batches lie, and two rows."""
    return (x.stride(0) if x.dim() == 3 else 0), x.stride(-2)


def count_labels(labels, ignore_index):
    """How many labels differ from `ignore_index`: a 0-d int32 tensor, still being computed when this returns."""
    rows, labels = labels.numel(), labels.contiguous()
    count = torch.empty(1, dtype=torch.int32, device=labels.device)
    BLOCK = min(8192, triton.next_power_of_2(max(rows, 1)))
    count_labels_forward_kernel[(1,)](labels, count, rows, ignore_index, BLOCK=BLOCK, num_warps=8)
    return count


def reciprocal(n_items):
    """As the GPU divides: one over zero is infinite."""
    return 1.0 / n_items if n_items else float("inf")


def launch(
    logits, labels, n_items, softcapping, scaling, ignore_index, *, losses=None, dlogits=None, dloss=None,
    BLOCK=None, num_warps=None,
):  # fmt: skip
    """One program a row. Without `losses` no loss is stored, without `dlogits` no gradient is made."""
    checks.power_of_two(BLOCK=BLOCK, num_warps=num_warps)
    labels, rows = labels.contiguous(), labels.numel()
    vocab, itemsize = logits.shape[-1], logits.element_size()
    if rows == 0:
        return
    tuned_block, tuned_warps = tiles(vocab, itemsize)
    BLOCK = BLOCK or tuned_block
    n_items_ptr, weight = (n_items, 1.0) if isinstance(n_items, torch.Tensor) else (None, reciprocal(n_items))
    cross_entropy_forward_kernel[(rows,)](
        logits, labels, n_items_ptr, dloss, losses, dlogits,
        *row_strides(logits), *(row_strides(logits if dlogits is None else dlogits)),
        logits.shape[-2], vocab, weight, scaling, softcapping, ignore_index,
        SCALING=scaling != 0.0, SOFTCAPPING=softcapping != 0.0, BLOCK=BLOCK, STRIP=min(BLOCK, 16 // itemsize),
        num_warps=num_warps or tuned_warps,
    )  # fmt: skip


def rows_in_place(logits):
    """The same tensor if the entries of a row are side by side (rows may lie anywhere), else a copy."""
    return logits if logits.stride(-1) == 1 or logits.shape[-1] == 1 else logits.contiguous()


def cross_entropy_forward(
    logits, labels, n_items=None, softcapping=0.0, scaling=0.0, ignore_index=-100, *, gradient=True,
    BLOCK=None, num_warps=None,
):  # fmt: skip
    """The loss, and with `gradient` also its gradient with respect to the logits (else None), in a tensor of its own."""
    logits = rows_in_place(logits)
    dlogits = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device) if gradient else None
    return _forward(logits, labels, n_items, softcapping, scaling, ignore_index, dlogits, BLOCK, num_warps), dlogits


def cross_entropy_forward_(
    logits, labels, n_items=None, softcapping=0.0, scaling=0.0, ignore_index=-100, *, BLOCK=None, num_warps=None
):
    """The loss; the gradient is written over the logits, which must be contiguous."""
    return _forward(logits, labels, n_items, softcapping, scaling, ignore_index, logits, BLOCK, num_warps), logits


def _forward(logits, labels, n_items, softcapping, scaling, ignore_index, dlogits, BLOCK, num_warps):
    if n_items is None:
        n_items = count_labels(labels, ignore_index)
    losses = torch.empty(labels.numel(), dtype=torch.float32, device=logits.device)
    launch(
        logits, labels, n_items, softcapping, scaling, ignore_index,
        losses=losses, dlogits=dlogits, BLOCK=BLOCK, num_warps=num_warps,
    )  # fmt: skip
    return losses.sum()


@functools.lru_cache
def backward_programs(index):
    return 8 * torch.cuda.get_device_properties(index).multi_processor_count if index is not None else 4


def cross_entropy_backward(dloss, gradient, *, BLOCK=4096):
    """`dloss * gradient` in a new tensor."""
    return _scale(dloss, gradient, torch.empty_like(gradient), BLOCK)


def cross_entropy_backward_(dloss, gradient, *, BLOCK=4096):
    """`dloss * gradient`, written over `gradient`; where `dloss` is 1, nothing is read or written."""
    return _scale(dloss, gradient, gradient, BLOCK)


def _scale(dloss, gradient, dlogits, BLOCK):
    checks.power_of_two(BLOCK=BLOCK)
    n = gradient.numel()
    if n:
        programs = min(triton.cdiv(n, BLOCK), backward_programs(gradient.device.index))
        cross_entropy_backward_kernel[(programs,)](
            dloss, gradient, dlogits, n, IN_PLACE=gradient is dlogits, BLOCK=BLOCK, num_warps=8
        )
    return dlogits


# ## Joining autograd
class CrossEntropyLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, labels, n_items, softcapping, scaling, ignore_index, gradient_in, in_place):
        ctx.gradient_in = gradient_in
        if in_place and gradient_in == "forward":
            loss, dlogits = cross_entropy_forward_(logits, labels, n_items, softcapping, scaling, ignore_index)
            torch.autograd.graph.increment_version(logits)
            ctx.save_for_backward(dlogits)
            return loss
        if gradient_in == "backward":
            n_items = count_labels(labels, ignore_index) if n_items is None else n_items
            on_device = isinstance(n_items, torch.Tensor)
            ctx.options = None if on_device else n_items, softcapping, scaling, ignore_index
            ctx.save_for_backward(logits, labels, *([n_items] if on_device else []))
        loss, dlogits = cross_entropy_forward(
            logits, labels, n_items, softcapping, scaling, ignore_index, gradient=gradient_in == "forward"
        )
        if dlogits is not None:
            ctx.save_for_backward(dlogits)
        return loss

    @staticmethod
    def backward(ctx, dloss):
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            dloss = dloss if dloss.requires_grad else dloss.detach().requires_grad_()
        return CrossEntropyLoss.gradient(ctx, dloss), None, None, None, None, None, None, None

    @staticmethod
    @once_differentiable
    def gradient(ctx, dloss):
        if ctx.gradient_in == "backward":
            logits, labels, *counted = ctx.saved_tensors
            n_items, softcapping, scaling, ignore_index = ctx.options
            n_items = counted[0] if counted else n_items
            return cross_entropy_recompute(dloss, logits, labels, n_items, softcapping, scaling, ignore_index)
        (gradient,) = ctx.saved_tensors
        if torch._C._autograd._get_current_graph_task_keep_graph():
            return cross_entropy_backward(dloss, gradient)
        return cross_entropy_backward_(dloss, gradient.detach())


def cross_entropy_recompute(dloss, logits, labels, n_items, softcapping, scaling, ignore_index):
    """The gradient for a known upstream gradient, from the logits: no loss is stored."""
    logits = rows_in_place(logits)
    dlogits = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
    launch(logits, labels, n_items, softcapping, scaling, ignore_index, dlogits=dlogits, dloss=dloss)
    return dlogits


def cross_entropy_loss(logits, labels, logit_softcapping=0.0, logit_scaling=0.0, n_items=None, ignore_index=-100):
    r"""Mean cross entropy of `logits` against `labels`, differentiable with respect to the logits.

    Args:
        logits: (rows, vocab) or (batch, seq, vocab), float32, float16 or bfloat16, any strides, any size of vocabulary.
        labels: (rows,) or (batch, seq), any integer dtype, any strides; each in [0, vocab) or equal to `ignore_index`.
        logit_softcapping: $t$ in $t \tanh(x / t)$, which keeps the logits between $-t$ and $t$. 0.0 turns it off.
        logit_scaling: $s$; logits are multiplied by it before they are capped. Above 1 sharpens the distribution, below 1
            flattens it. 0.0 turns it off.
        n_items: what the sum over the rows is divided by: an int, a float or a 0-d tensor (on the GPU, nobody waits for it).
            Default: the number of labels that differ from `ignore_index`.
        ignore_index: rows with this label have no loss and a gradient of 0.

    Returns:
        The loss, a float32 scalar. Without a single valid label it and its gradient are 0, where PyTorch gives NaN.

    Raises:
        TypeError: an argument has a wrong type, or a tensor a wrong dtype.
        ValueError: shapes don't fit, a tensor is on the wrong device, a number is negative or not finite, or, for CPU
            tensors and with `ACADEMY_DEBUG=1` in the environment, a label is out of range. Without that check (it has to
            wait for the GPU) such a label makes its row's loss and gradient NaN; nothing outside the row is read.

    Source: the online log-sum-exp is that of Milakov and Gimelshein, "Online normalizer calculation for softmax"
    (arXiv 1805.02867); making the gradient in the forward pass was shown by liger-kernel. Soft-capping is that of Gemma 2.
    """
    return _loss(logits, labels, logit_softcapping, logit_scaling, n_items, ignore_index, in_place=False)


def cross_entropy_loss_(logits, labels, logit_softcapping=0.0, logit_scaling=0.0, n_items=None, ignore_index=-100):
    """`cross_entropy_loss` that needs no memory for the gradient: it may be written over the logits.

    Arguments, result and errors are those of `cross_entropy_loss`. Afterwards the values in `logits` are undefined: with
    contiguous float32 or bfloat16 logits that require a gradient they *are* the gradient, in all other cases nothing is
    overwritten. Autograd is told: an operation that saved the old logits for its own gradient raises RuntimeError.

    Raises:
        TypeError, ValueError: as `cross_entropy_loss`.
    """
    return _loss(logits, labels, logit_softcapping, logit_scaling, n_items, ignore_index, in_place=True)


def _loss(logits, labels, logit_softcapping, logit_scaling, n_items, ignore_index, in_place):
    compiling = torch.compiler.is_compiling()
    check_arguments(logits, labels, logit_softcapping, logit_scaling, n_items, ignore_index)
    if not compiling and (device.INTERPRET or os.environ.get("ACADEMY_DEBUG") == "1"):
        check_label_range(labels, logits.shape[-1], ignore_index)
    if isinstance(n_items, torch.Tensor):
        n_items = n_items.to(logits.device)
    gradient_in = "nowhere"
    if logits.requires_grad and torch.is_grad_enabled():
        gradient_in = "backward" if logits.dtype == torch.float16 or compiling else "forward"
    return CrossEntropyLoss.apply(
        logits, labels, n_items, float(logit_softcapping), float(logit_scaling), ignore_index,
        gradient_in, in_place and logits.is_contiguous(),
    )  # fmt: skip


def check_arguments(logits, labels, logit_softcapping, logit_scaling, n_items, ignore_index):
    checks.tensors(logits=logits, labels=labels)
    checks.dtypes(logits=logits)
    checks.dtypes(INTEGERS, labels=labels)
    if logits.dim() not in (2, 3):
        raise ValueError(f"logits must be (rows, vocab) or (batch, seq, vocab), got shape {tuple(logits.shape)}")
    checks.shape("labels", labels, logits.shape[:-1], "one label for each row of logits")
    if labels.device != logits.device:
        raise ValueError(f"labels must be on the device of logits, {logits.device}, got {labels.device}")
    if logits.shape[-1] == 0 and labels.numel():
        raise ValueError(f"logits must have at least one entry a row, got shape {tuple(logits.shape)}")
    checks.number("logit_softcapping", logit_softcapping, at_least=0)
    checks.number("logit_scaling", logit_scaling, at_least=0)
    if isinstance(ignore_index, bool) or not isinstance(ignore_index, int):
        raise TypeError(f"ignore_index must be an int, got {type(ignore_index).__name__}")
    if isinstance(n_items, torch.Tensor):
        if n_items.dim() or n_items.dtype in (torch.bool, torch.complex64, torch.complex128):
            raise ValueError(
                f"n_items must be a number or a 0-d tensor of one, got {n_items.dtype} of shape {tuple(n_items.shape)}"
            )
        if n_items.requires_grad:
            raise ValueError("n_items requires a gradient, but the loss gives it none: pass n_items.detach()")
    elif n_items is not None:
        checks.number("n_items", n_items, at_least=0)


def check_label_range(labels, vocab, ignore_index):
    """Waits for the GPU where there is one; that is why it runs on the CPU and under `ACADEMY_DEBUG=1` only."""
    labels = labels.reshape(-1).long()
    wrong = (labels != ignore_index) & ((labels < 0) | (labels >= vocab))
    if wrong.any():
        row = int(wrong.int().argmax())
        raise ValueError(
            f"labels must be in [0, {vocab}) or ignore_index = {ignore_index}, got {int(labels[row])} in row {row}"
        )


# ## A run small enough to watch
#
# Two batches of three tokens and a vocabulary of 13. With blocks of 8 a row takes one whole block and one that is masked.

def EXAMPLE():
    at = torch.arange(2 * 3 * 13, dtype=torch.float32, device=device.DEVICE)
    logits = (at * 5 % 13 % 7 - 3).view(2, 3, 13)
    labels = torch.tensor([[4, 9, 0], [12, 7, 1]], device=device.DEVICE)
    _, gradient = cross_entropy_forward(logits, labels, BLOCK=8)
    cross_entropy_backward(torch.tensor(0.5, device=device.DEVICE), gradient, BLOCK=32)
    return dict(shape=(2, 3, 13), dtype=torch.float32)


# ## Cost and benchmark
#
# The forward pass reads logits and labels and writes the gradient, a loss for each row and the number of labels that count.
# Backward with an upstream gradient other than 1 reads and writes the gradient once more; with 1 it reads one number, so
# what a training step must move is the forward pass alone.
def cost(shape, dtype):
    rows, logits = torch.Size(shape[:-1]).numel(), torch.Size(shape).numel()
    forward = dict(
        bytes_read=logits * dtype.itemsize + rows * 8,
        bytes_written=logits * dtype.itemsize + rows * 4,
        operations=8 * logits,
    )
    backward = dict(bytes_read=logits * dtype.itemsize + 4, bytes_written=logits * dtype.itemsize, operations=logits)
    return {"forward": forward, "backward": backward, "forward+backward": forward}


def bench_inputs(shape, dtype, device):
    return dict(
        logits=torch.randn(shape, dtype=dtype, device=device),
        labels=torch.randint(shape[-1], shape[:-1], device=device),
    )


def liger():
    from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction

    return lambda logits, labels: LigerCrossEntropyFunction.apply(logits, labels, None)[0]


VOCABULARIES = (32000, 128256, 50257, 151936, 201088, 1000, 4097)
BENCH = dict(
    shapes=[*((8192, vocab) for vocab in VOCABULARIES), (4096, 262144)],
    dtypes=[torch.bfloat16],
    inputs=bench_inputs,
    ours=cross_entropy_loss,
    eager=lambda logits, labels: F.cross_entropy(logits, labels),
    reference=lambda logits, labels: cross_entropy_loss_reference(logits, labels),
    peers={"liger-kernel": liger},
    passes=["forward+backward"],
    differentiable=["logits"],
)


def main():
    from academy import accuracy

    device.arguments(__doc__)
    report = accuracy.Report()
    both = dict(logit_softcapping=30.0, logit_scaling=0.5)
    for shape, options in (((5, 1000), {}), ((2, 3, 4097), {}), ((3, 70000), {}), ((5, 1000), both)):
        for dtype in checks.FLOATS:
            logits = 3 * torch.randn(shape, device=device.DEVICE)
            logits = logits.to(dtype).requires_grad_()
            labels = torch.randint(shape[-1], shape[:-1], device=device.DEVICE)
            labels.view(-1)[1] = -100
            exact, pytorch = (logits.detach().to(t).requires_grad_() for t in (torch.float64, dtype))
            losses = [
                cross_entropy_loss(logits, labels, **options),
                *(cross_entropy_loss_reference(x, labels, **options) for x in (pytorch, exact)),
            ]
            for loss in losses:
                loss.backward()
            case = f"{tuple(shape)}{', scaled and capped' if options else ''}"
            report.compare("loss", case, *losses)
            report.compare("dlogits", case, logits.grad, pytorch.grad, exact.grad)
    status = report.print()
    if not device.INTERPRET:
        from academy import bench

        bench.print_speed(BENCH, cost)
    return status


if __name__ == "__main__":
    sys.exit(main())
