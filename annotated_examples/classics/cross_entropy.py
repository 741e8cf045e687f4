r"""
# Cross entropy: the loss and its gradient in one go

A language model ends in a row of *logits* for every token: a number for each entry of the vocabulary. The *label* says
which entry was right. With the row $x$ and the label $c$, the loss of one token is

[[eq: CE]]

and the loss of a batch is the mean over the tokens that count, [[tag: CE-mean]]. The gradient needs no more than the
probabilities that the forward pass computes anyway:

[[eq: CE-mean-X]]

Logits may be scaled first, [[tag: CE-scaled]], and then capped, [[tag: CE-capped]]. Each option changes the loss and
adds a factor to the gradient.

**What it costs.** The logits are by far the largest tensor of a training step: 8192 tokens and 128256 entries are
2.1 GB in bfloat16. They must be read once, and a gradient of the same size must be written once. An H200 copies
[[bench: device/copy]], so no version can be faster than the bytes read and written at that rate. The two exponentials
that each logit takes are not free either: done carelessly, they set the pace, and not the memory.

An ordinary implementation reads the logits in the forward pass, and in the backward pass reads them again and writes:
three trips instead of two, 67 % of the limit at best. This one makes the gradient **in the forward pass**, while the
row is still in a cache. All that is unknown by then is the upstream gradient: a single number, and almost always 1. At
8192 x 128256, on an H200, both passes together take [[bench: cross_entropy/8192x128256/forward+backward/ms]], which is
[[bench: cross_entropy/8192x128256/forward+backward/share]] of the limit.

**Contract.** `logits` is (rows, vocab) or (batch, seq, vocab), float32, float16 or bfloat16, and `labels` has an
integer for each row. Everything is computed in float32. Rows may lie anywhere in memory; if the entries of a row are
not side by side, they are copied first. `cross_entropy_loss` never writes to its arguments; `cross_entropy_loss_` may
put the gradient where the logits were.
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
# The mean divides by the number of labels that aren't ignored. So does the gradient: the number has to be known before
# the first row is finished. Python can't ask for it without waiting for the GPU. So one small program counts, and
# leaves the number in GPU memory for the next kernel.
@triton.jit
def count_labels_forward_kernel(labels_ptr, count_ptr, rows, ignore_index, BLOCK: tl.constexpr):
    # One program of 32 warps, the most it can have, walks over all labels: beside the logits they are next to nothing.
    # There are `rows = 4`.
    count = tl.zeros((BLOCK,), tl.int32)
    for start in tl.range(0, rows, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < rows
        # Labels come in any integer dtype. Widened to int64, all can be compared with `ignore_index`:
        # `labels = [4, 1, 20, 7]`.
        labels = tl.load(labels_ptr + offs, mask=mask, other=0).to(tl.int64)
        # All of them count: `count = [1, 1, 1, 1]`.
        count += (mask & (labels != ignore_index)).to(tl.int32)
    tl.store(count_ptr, tl.sum(count, 0))


# ## Helpers
#
# A jitted function can be called from a kernel; the compiler puts its code in place.
#
# Scaling and soft-capping are constexprs: a model has one value for each, and a kernel without them holds no trace of
# them. The scale comes first. A scale above 1 **sharpens** the distribution: differences between logits grow, and the
# largest one takes more of the probability. Below 1 it flattens. (A temperature is one over the scale.)
@triton.jit
def scale_and_cap(x, scaling: tl.constexpr, softcapping: tl.constexpr):
    # Returns the logits that the loss sees, and their slope: the factor that the chain rule puts on the gradient.
    slope = tl.full(x.shape, 1.0, tl.float32)
    # [[tag: CE-scale]]; the slope is the factor in [[tag: CE-scaled-x]]. `mul_rn` is a product that is rounded by
    # itself: fused with the subtraction of the rounded maximum, the largest logit would not end up exactly at zero.
    if scaling != 0.0:
        x = libdevice.mul_rn(x, scaling)
        slope = slope * scaling
    # [[tag: CE-cap]], and the slope in [[tag: CE-capped-x]]. The exact `libdevice.tanh` is worth its price: twice a
    # sigmoid minus one loses digits around zero, where most logits are.
    if softcapping != 0.0:
        tanh = libdevice.tanh(x / softcapping)
        x = softcapping * tanh
        slope = slope * (1.0 - tanh * tanh)
    return x, slope


# **Exponentials.** The shift keeps the exponent small, [[tag: CE-LSE]]. A GPU has an instruction for powers of two, so
# $e^x$ becomes $2^{x \log_2 e}$. `tl.exp` does the same, and takes care of results that are too small for an ordinary
# float32 besides. Here those may as well be zero, and `tl.exp2` spares the extra instructions. Each logit takes two
# exponentials and little else, so this line alone took the kernel at 8192 x 128256 from
# [[bench: cross_entropy/ladder/strips/forward_ms]] to [[bench: cross_entropy/ladder/exp2/forward_ms]].
LOG2E = tl.constexpr(1.4426950408889634)
LOWEST = tl.constexpr(torch.finfo(torch.float32).min)


@triton.jit
def exp_shifted(z, shift):
    return tl.exp2((z - shift) * LOG2E)


# The sum of such exponentials over each strip of a block.
@triton.jit
def strip_sums(z, shift):
    return tl.sum(exp_shifted(z, shift[:, None]), 1)


# A block of the gradient [[tag: CE-mean-X]] as if no entry were the label: the probability as in [[tag: CE-x-stable]],
# times the weight of the row, and times the slope where logits are transformed.
@triton.jit
def beside_the_label(x, shift, scale, scaling: tl.constexpr, softcapping: tl.constexpr):
    z, slope = scale_and_cap(x.to(tl.float32), scaling, softcapping)
    return exp_shifted(z, shift) * scale * slope


# The **second sweep** over a row; the next section explains its body and strips, and the first sweep. It goes
# backwards: what was read last is most likely still in the cache. `evict_first` and `.cs` (streaming) make room for
# other rows: neither the logits nor the gradient are needed again.
@triton.jit
def second_sweep(
    logits_ptr, dlogits_ptr, strips, offs, whole, needed, body, shift, scale,
    scaling: tl.constexpr, softcapping: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    for start in tl.range(whole, needed, BLOCK):
        mask = (start + strips < needed)[:, None]
        x = tl.load(logits_ptr + start + offs, mask=mask, other=0.0, eviction_policy="evict_first")
        dx = beside_the_label(x, shift, scale, scaling, softcapping)
        tl.store(dlogits_ptr + start + offs, dx, mask=mask, cache_modifier=".cs")
    # Two blocks at a time. Both are loaded before one is stored: the compiler can't do that by itself, because for all
    # it knows a store might change what is loaded next.
    for done in tl.range(2 * BLOCK, whole + 2 * BLOCK, 2 * BLOCK):
        pair = whole - done + offs
        x0 = tl.load(logits_ptr + pair, eviction_policy="evict_first")
        x1 = tl.load(logits_ptr + pair + BLOCK, eviction_policy="evict_first")
        dx0 = beside_the_label(x0, shift, scale, scaling, softcapping)
        tl.store(dlogits_ptr + pair, dx0, cache_modifier=".cs")
        dx1 = beside_the_label(x1, shift, scale, scaling, softcapping)
        tl.store(dlogits_ptr + pair + BLOCK, dx1, cache_modifier=".cs")
    # In an ignored row `needed` is zero, and all of the body is still to be done: it gets zeros.
    for start in tl.range(needed, body, BLOCK):
        mask = (start + strips < body)[:, None]
        tl.store(dlogits_ptr + start + offs, tl.zeros_like(offs).to(tl.float32), mask=mask)


# ## The kernel: one row a program
#
# Each program sweeps over its row twice: once for the log-sum-exp, and, if a gradient is wanted, once more to write it.
# The second time the row should come out of the L2 cache. So the rows that are under way at the same time have to fit
# into it together: that is why a long row is given to a single program with many warps and large blocks.
#
# **How a row is cut.** Memory is fast where 16 bytes at a time move, from an address divisible by 16. Call that a
# *strip*: 8 entries in bfloat16, 4 in float32. With a vocabulary of 50257 most rows don't begin at such an address. So
# up to the first one there is a short *head*, then the *body*, whole strips only, and what is left is the *tail*.
#
# ```text
#  head   body: strips, a block of them at a time          tail
#  |..|   |----|----|----|----|----|----|----|----|----|   |...|
# ```
#
# **Online.** The largest logit isn't known before the whole row has been read, so the sum is relative to the largest
# one so far, the shift. When a larger one turns up, what was summed before is scaled down, as if the new one had been
# there from the start: [[tag: SM-online]]. Each strip of a block keeps a shift and a sum of its own. A strip lies in
# one thread, so no thread has to wait for another one before the sweep is over. At 8192 x 128256 that took the kernel
# from [[bench: cross_entropy/ladder/one pass/forward_ms]] to [[bench: cross_entropy/ladder/strips/forward_ms]].


@triton.jit
def cross_entropy_forward_kernel(
    logits_ptr, labels_ptr, n_items_ptr, dloss_ptr, losses_ptr, dlogits_ptr,
    stride_xb, stride_xs, stride_db, stride_ds, seq_len, vocab, weight, ignore_index,
    scaling: tl.constexpr, softcapping: tl.constexpr, ALIGNED: tl.constexpr, BLOCK: tl.constexpr, STRIP: tl.constexpr,
):  # fmt: skip
    # Which row is mine? A row has its place by batch and position, so `logits[:, :-1]` needs no copy. In the example
    # rows of 21 lie in one piece: `pid=3: batch = 1`, `pid=3: position = 1`. Divided as 32-bit numbers: a division of
    # 64-bit ones takes a hundred instructions.
    row = tl.program_id(0)
    batch, position = (row // seq_len).to(tl.int64), (row % seq_len).to(tl.int64)
    # Then widened: past 2³¹ elements a 32-bit offset would wrap around. `pid=3: x_start = 63`.
    x_start = batch * stride_xb + position * stride_xs
    d_start = batch * stride_db + position * stride_ds

    # Its label. One outside of the vocabulary must not become an address; it will turn the row into NaN. The label's
    # logit is asked for now: later, another warp may already have written the gradient over it. It is *used* at the
    # end: a program runs on until it needs what a load brings, and here it would wait for memory twice in a row.
    label = tl.load(labels_ptr + row).to(tl.int64)
    ignored = label == ignore_index
    in_range = (label >= 0) & (label < vocab)
    x_label = tl.load(logits_ptr + x_start + label, mask=in_range, other=0.0)

    head = 0
    # The head reaches up to the next multiple of `STRIP = 4`. Row 0 begins with one, `pid=0: head = 0`; row 1 doesn't,
    # `pid=1: head = 3`.
    if ALIGNED:
        head = tl.minimum((STRIP - x_start % STRIP) % STRIP, vocab)
    # The body takes all whole strips: `pid=0: body = 20`, and in row 1 `pid=1: body = 16`.
    body = (vocab - head) // STRIP * STRIP
    # It begins here: `pid=1: x_body = 24`.
    x_body, d_body = x_start + head, d_start + head
    # The compiler can't see that these are multiples of a strip. Unless it is told, it moves one entry at a time.
    if ALIGNED:
        x_body, d_body = tl.multiple_of(x_body, STRIP), tl.multiple_of(d_body, STRIP)

    # A block is a matrix with a strip in each row: `pid=0: strips = [0, 4]` and
    # `offs = [[0, 1, 2, 3], [4, 5, 6, 7]]`. The shifts start at the lowest finite number. With −∞ a strip that has
    # only masked entries would take −∞ from −∞, which is NaN.
    strips = tl.arange(0, BLOCK // STRIP) * STRIP
    offs = strips[:, None] + tl.arange(0, STRIP)[None, :]
    shift = tl.full((BLOCK // STRIP,), LOWEST, tl.float32)
    total = tl.zeros((BLOCK // STRIP,), tl.float32)

    # **First sweep**, two blocks at a time, so that two loads are under way together. An ignored row isn't read.
    needed = tl.where(ignored, 0, body)
    # With blocks of 8, two of them fit: `pid=0: whole = 16`.
    whole = needed // (2 * BLOCK) * (2 * BLOCK)
    for start in tl.range(0, whole, 2 * BLOCK):
        # `evict_last`: what is loaded here will be needed again.
        # `pid=0, start=0: x0 = [[-3, 2, 0, -1], [-3, 2, 1, -1]]`
        x0 = tl.load(logits_ptr + x_body + start + offs, eviction_policy="evict_last").to(tl.float32)
        x1 = tl.load(logits_ptr + x_body + start + BLOCK + offs, eviction_policy="evict_last").to(tl.float32)
        z0, _ = scale_and_cap(x0, scaling, softcapping)
        z1, _ = scale_and_cap(x1, scaling, softcapping)
        # The largest of each strip in both blocks: `start=0: new_shift = [3, 2]`.
        new_shift = tl.maximum(shift, tl.maximum(tl.max(z0, 1), tl.max(z1, 1)))
        # Relative to it the sums are `start=0: total = [1.6303, 2.5848]`.
        total = total * exp_shifted(shift, new_shift) + strip_sums(z0, new_shift) + strip_sums(z1, new_shift)
        shift = new_shift

    # The rest of the body. The mask is about strips, not entries, so that loads stay wide.
    for start in tl.range(whole, needed, BLOCK):
        # One strip is left: `pid=0, start=16: mask = [[1], [0]]`.
        mask = (start + strips < needed)[:, None]
        x = tl.load(logits_ptr + x_body + start + offs, mask=mask, other=0.0, eviction_policy="evict_last")
        z, _ = scale_and_cap(x.to(tl.float32), scaling, softcapping)
        z = tl.where(mask, z, -float("inf"))
        new_shift = tl.maximum(shift, tl.max(z, 1))
        total = total * exp_shifted(shift, new_shift) + strip_sums(z, new_shift)
        shift = new_shift

    # Head and tail, less than a strip each. In row 1 three entries come before the body and two after it:
    # `pid=1: edge_mask = [1, 1, 1, 0, 1, 1, 0, 0]`.
    lane = tl.arange(0, 2 * STRIP)
    edge = tl.where(lane < STRIP, lane, head + body + lane - STRIP)
    edge_mask = edge < tl.where(lane < STRIP, head, vocab)
    x_edge = tl.load(logits_ptr + x_start + edge, mask=edge_mask, other=0.0)
    z_edge, slope_edge = scale_and_cap(x_edge.to(tl.float32), scaling, softcapping)
    z_edge = tl.where(edge_mask, z_edge, -float("inf"))

    # All strips become one row. The largest logit of all is `pid=0: row_shift = 3`, and relative to it the sum is
    # `pid=0: row_total = 3.1235`. [[tag: CE-LSE]] is the first plus the logarithm of the second.
    row_shift = tl.maximum(tl.max(shift, 0), tl.max(z_edge, 0))
    row_total = tl.sum(total * exp_shifted(shift, row_shift), 0) + tl.sum(exp_shifted(z_edge, row_shift), 0)

    # The weight of this row in the mean over four labels: `pid=0: weight = 0.25`.
    if n_items_ptr is not None:
        weight = 1.0 / tl.load(n_items_ptr).to(tl.float32)
    weight = tl.where(in_range, weight, float("nan")).to(tl.float32)

    z_label, slope_label = scale_and_cap(x_label.to(tl.float32), scaling, softcapping)
    # [[tag: CE]] times the weight. The large numbers cancel first: `row_shift - z_label` is exact or nearly so.
    if losses_ptr is not None:
        # The label of row 0 was unlikely, `pid=0: loss = 1.7847`, that of row 1 less so, `pid=1: loss = 0.3324`.
        loss = (tl.log(row_total) + (row_shift - z_label)) * weight
        tl.store(losses_ptr + row, tl.where(ignored, 0.0, loss))

    # The gradient, at the edges and in the body.
    if dlogits_ptr is not None:
        if dloss_ptr is not None:
            weight *= tl.load(dloss_ptr)
        scale = weight / row_total
        dx_edge = beside_the_label(x_edge, row_shift, scale, scaling, softcapping)
        tl.store(dlogits_ptr + d_start + edge, tl.where(ignored, 0.0, dx_edge), mask=edge_mask)

        second_sweep(
            logits_ptr + x_body, dlogits_ptr + d_body, strips, offs, whole, needed, body, row_shift, scale,
            scaling, softcapping, BLOCK,
        )  # fmt: skip

        # One entry is still wrong: the label's, which lacks its minus one, [[tag: CE-x]]. Putting it right afterwards
        # spares the sweep a comparison with the label in every column. (The gain was too small to measure:
        # [[bench: cross_entropy/ladder/label last/forward_ms]] either way.) The barrier keeps the order of both stores.
        tl.debug_barrier()
        # Almost the whole weight, because the label had almost no probability: `pid=0: dx_label = -0.2498`.
        dx_label = (exp_shifted(z_label, row_shift) * scale - weight) * slope_label
        tl.store(dlogits_ptr + d_start + label, dx_label, mask=in_range & ~ignored)


# ## The upstream gradient
#
# The gradient is there before backward begins. All that is missing is a factor in front, the upstream gradient: a
# number in GPU memory, which Python could only look at by waiting. So the kernel looks. Is it 1, as in
# `loss.backward()`, and may the result lie where the gradient is (`IN_PLACE`)? Then every program stops at once, and
# the backward pass costs one empty launch.
@triton.jit
def cross_entropy_backward_kernel(dloss_ptr, gradient_ptr, dlogits_ptr, n, IN_PLACE: tl.constexpr, BLOCK: tl.constexpr):
    # In the example it is another number: `pid=0: dloss = 0.5`.
    dloss = tl.load(dloss_ptr)
    # The gradient has `pid=0: end = 84` entries.
    end = n
    if IN_PLACE:
        end = tl.where(dloss == 1.0, 0, n)

    # A fixed number of programs take turns, `num_programs` blocks apart. One program a block would be simpler, but
    # launching thousands of programs that only stop again takes longer than it takes these few.
    first = tl.program_id(0).to(tl.int64) * BLOCK
    for start in tl.range(first, end, tl.num_programs(0) * BLOCK):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < n
        gradient = tl.load(gradient_ptr + offs, mask=mask, other=0.0).to(tl.float32)
        tl.store(dlogits_ptr + offs, gradient * dloss, mask=mask)


# ## The launchers
#
# Small blocks and one warp for a short row, so that many rows share a multiprocessor. Large blocks and many warps for a
# long one, so that few rows fill it, and the cache can hold them.
def tiles(vocab, itemsize):
    """`BLOCK` (entries) and `num_warps` for rows of `vocab` entries of `itemsize` bytes, as measured on an H200."""
    row_bytes = vocab * itemsize
    for limit, block_bytes, num_warps in ((4096, 1024, 1), (16384, 2048, 4), (49152, 8192, 8), (131072, 16384, 16)):
        if row_bytes <= limit:
            return block_bytes // itemsize, num_warps
    return 65536 // itemsize, 32


def row_strides(x):
    """How far apart, in elements, two batches lie, and two rows."""
    return (x.stride(0) if x.dim() == 3 else 0), x.stride(-2)


def count_labels(labels, ignore_index, *, BLOCK=None):
    """How many labels differ from `ignore_index`: an int32 tensor of one, still being computed when this returns."""
    rows, labels = labels.numel(), labels.contiguous()
    count = torch.empty(1, dtype=torch.int32, device=labels.device)
    BLOCK = BLOCK or min(8192, triton.next_power_of_2(max(rows, 1)))
    count_labels_forward_kernel[(1,)](labels, count, rows, ignore_index, BLOCK=BLOCK, num_warps=32)
    return count


def reciprocal(n_items):
    """As the GPU divides: one over zero is infinite."""
    return 1.0 / n_items if n_items else float("inf")


# Accesses are as wide as a strip only where a strip begins at a good address in the logits *and* in the gradient. That
# is so if both have the same strides, or if all rows of both begin at a multiple of a strip.
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
    BLOCK, strip = BLOCK or tuned_block, 16 // itemsize
    n_items_ptr, weight = (n_items, 1.0) if isinstance(n_items, torch.Tensor) else (None, reciprocal(n_items))
    x_strides = row_strides(logits)
    d_strides = x_strides if dlogits is None else row_strides(dlogits)
    aligned = x_strides == d_strides or not any(stride % strip for stride in (*x_strides, *d_strides))
    cross_entropy_forward_kernel[(rows,)](
        logits, labels, n_items_ptr, dloss, losses, dlogits,
        *x_strides, *d_strides, logits.shape[-2], vocab, weight, ignore_index,
        scaling=scaling, softcapping=softcapping, ALIGNED=aligned, BLOCK=BLOCK, STRIP=min(BLOCK, strip),
        num_warps=num_warps or tuned_warps,
    )  # fmt: skip


def rows_in_place(logits):
    """The same tensor if the entries of a row are side by side (rows may lie anywhere), else a copy."""
    return logits if logits.stride(-1) == 1 or logits.shape[-1] == 1 else logits.contiguous()


def cross_entropy_forward(
    logits, labels, n_items=None, softcapping=0.0, scaling=0.0, ignore_index=-100, *, gradient=True,
    BLOCK=None, num_warps=None,
):  # fmt: skip
    """The loss, and with `gradient` its gradient with respect to the logits (else None), in a tensor of its own."""
    logits = rows_in_place(logits)
    dlogits = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device) if gradient else None
    return _forward(logits, labels, n_items, softcapping, scaling, ignore_index, dlogits, BLOCK, num_warps), dlogits


def cross_entropy_forward_(
    logits, labels, n_items=None, softcapping=0.0, scaling=0.0, ignore_index=-100, *, BLOCK=None, num_warps=None
):
    """The loss; the gradient is written over the logits, which must be contiguous."""
    return _forward(logits, labels, n_items, softcapping, scaling, ignore_index, logits, BLOCK, num_warps), logits


# The sum over the rows is left to PyTorch: it is one small kernel, and adds in the same order every time.
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
    """As many as the GPU with this index holds: 64 warps a multiprocessor, eight programs of 8. None: interpreter."""
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


def cross_entropy_recompute(dloss, logits, labels, n_items, softcapping, scaling, ignore_index):
    """The gradient for an upstream gradient that is known, from the logits. No loss is stored."""
    logits = rows_in_place(logits)
    dlogits = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
    launch(logits, labels, n_items, softcapping, scaling, ignore_index, dlogits=dlogits, dloss=dloss)
    return dlogits


# ## Joining autograd
#
# **A second backward pass.** With `retain_graph` the gradient may be asked for again, with another upstream
# gradient. What forward made must survive then, unscaled, so the result goes to a new tensor. Otherwise nobody will ask
# again, and the tensor itself is scaled and handed out: no copy, no second tensor. Which of the two it is, autograd
# knows; `_get_current_graph_task_keep_graph` is how PyTorch's own compiled graphs ask it, and there is no public way.
#
# **When the gradient can wait.** In two cases forward doesn't make it, and the same kernel runs once more in the
# backward pass, with the upstream gradient as a part of the weight:
#
# - float16. Its smallest number is about $6 \cdot 10^{-8}$, and most probabilities divided by the number of tokens are
#   smaller. Training in float16 therefore multiplies the loss by a large number. That factor arrives as the
#   upstream gradient, and has to come in *before* the rounding.
# - Inside `torch.compile`, where nothing may be decided by how autograd was called.
#
# **A gradient of the gradient.** `once_differentiable` turns it into an error, but only where the upstream gradient
# itself requires one. A loss is differentiated with a constant 1, so a gradient penalty would pass unnoticed and have
# no effect. Hence the first lines of `backward`.


class CrossEntropyLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, labels, n_items, softcapping, scaling, ignore_index, gradient_in, in_place):
        ctx.gradient_in = gradient_in
        options = softcapping, scaling, ignore_index
        if gradient_in == "forward":
            # Autograd is told of overwritten logits: whoever saved them for a gradient of his own gets an error.
            launcher = cross_entropy_forward_ if in_place else cross_entropy_forward
            loss, dlogits = launcher(logits, labels, n_items, *options)
            if in_place:
                torch.autograd.graph.increment_version(logits)
            ctx.save_for_backward(dlogits)
            return loss
        if gradient_in == "backward":
            n_items = count_labels(labels, ignore_index) if n_items is None else n_items
            on_device = isinstance(n_items, torch.Tensor)
            ctx.options = None if on_device else n_items, *options
            ctx.save_for_backward(logits, labels, *([n_items] if on_device else []))
        return cross_entropy_forward(logits, labels, n_items, *options, gradient=False)[0]

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
            n_items, *options = ctx.options
            return cross_entropy_recompute(dloss, logits, labels, counted[0] if counted else n_items, *options)
        (gradient,) = ctx.saved_tensors
        if torch._C._autograd._get_current_graph_task_keep_graph():
            return cross_entropy_backward(dloss, gradient)
        return cross_entropy_backward_(dloss, gradient.detach())


def cross_entropy_loss(logits, labels, logit_softcapping=0.0, logit_scaling=0.0, n_items=None, ignore_index=-100):
    r"""Mean cross entropy of `logits` against `labels`, differentiable with respect to the logits.

    Args:
        logits: (rows, vocab) or (batch, seq, vocab), float32, float16 or bfloat16, any strides, any size of vocabulary.
        labels: (rows,) or (batch, seq), any integer dtype, any strides; in [0, vocab), or equal to `ignore_index`.
        logit_softcapping: $t$ in $t \tanh(x / t)$, which keeps the logits between $-t$ and $t$. 0.0 turns it off.
        logit_scaling: $s$; logits are multiplied by it before they are capped. Above 1 sharpens the distribution,
            below 1 flattens it. 0.0 turns it off.
        n_items: what the sum over the rows is divided by: an int, a float or a 0-d tensor (if it is on the GPU, nobody
            waits for it). Default: the number of labels that differ from `ignore_index`.
        ignore_index: rows with this label have no loss and a gradient of 0.

    Returns:
        The loss, a float32 scalar. Without a single valid label it and its gradient are 0, where PyTorch gives NaN.

    Raises:
        TypeError: an argument has a wrong type, or a tensor a wrong dtype.
        ValueError: shapes don't fit, a tensor is on the wrong device, a number is negative or not finite, or, for CPU
            tensors and with `ACADEMY_DEBUG=1` in the environment, a label is out of range. Without that check (it has
            to wait for the GPU) such a label makes its row's loss and gradient NaN; nothing outside the row is read.

    Source: the online log-sum-exp is that of Milakov and Gimelshein, "Online normalizer calculation for softmax"
    (arXiv 1805.02867); liger-kernel has shown how to make the gradient in the forward pass; Gemma 2 caps its logits.
    """
    return _loss(logits, labels, logit_softcapping, logit_scaling, n_items, ignore_index, in_place=False)


def cross_entropy_loss_(logits, labels, logit_softcapping=0.0, logit_scaling=0.0, n_items=None, ignore_index=-100):
    """`cross_entropy_loss` that needs no memory for the gradient: it may be written over the logits.

    Arguments, result and errors are those of `cross_entropy_loss`. Afterwards the values in `logits` are undefined:
    contiguous float32 or bfloat16 logits that require a gradient have become the gradient, in all other cases nothing
    is overwritten. Autograd is told: an operation that saved the old logits for its own gradient raises RuntimeError.

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
# Two batches of two tokens and a vocabulary of 21, in blocks of 8: each row has a head and a tail of its own length.
def EXAMPLE():
    at = torch.arange(2 * 2 * 21, dtype=torch.float32, device=device.DEVICE)
    logits = (at * 5 % 13 % 7 - 3).view(2, 2, 21)
    labels = torch.tensor([[4, 1], [20, 7]], device=device.DEVICE)
    _, gradient = cross_entropy_forward(logits, labels, BLOCK=8)
    cross_entropy_backward(torch.tensor(0.5, device=device.DEVICE), gradient, BLOCK=32)
    return dict(shape=(2, 2, 21), dtype=torch.float32)


# ## Cost and benchmark
#
# The forward pass reads logits and labels, and writes the gradient and a loss for each row. A backward pass with an
# upstream gradient other than 1 reads and writes the gradient once more. With 1 it reads one number, so all that a
# training step must move is the forward pass.
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
