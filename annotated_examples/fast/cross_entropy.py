r"""
# Cross entropy, fast: two passes instead of three

[The lesson](../classics/cross_entropy.py) reads the logits twice and writes a gradient once. The least possible is to
read the logits once and write the gradient once. This file climbs from the lesson to that limit.

**What it costs.** When the forward pass computes the gradient, it lacks only the upstream gradient: a single number,
and usually 1. So a training step reads the logits once and writes the gradient once, and the
backward pass reads one number. The yardstick is a copy of as many bytes, which an H200 moves at
[[bench: device/copy]]. At 8192 x 128256 both passes take
[[bench: cross_entropy/8192x128256/forward+backward/ms]], which is
[[bench: cross_entropy/8192x128256/forward+backward/share]] of copy speed. Memory isn't everything: rungs 3 to 5 are
about instructions and waiting, the two exponentials of each logit among them.

**Contract.** That of the lesson. In addition, rows may begin anywhere: those of `logits[:, :-1]` are read in place.
Only if the entries of a row aren't contiguous are the logits copied first.
"""


# ## The ladder
#
# Loss and gradient together.
#
# [[figure: fast/loss_and_gradient]]
#
# [[ladder: cross_entropy]]

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.call_cache import remembered
from academy.runtime.launch import cdiv, launch
from academy.runtime.replay import replayed

import functools

import torch
import triton
import triton.language as tl

from annotated_examples.classics.cross_entropy import CrossEntropyLoss, contract, cross_entropy_loss_reference
from annotated_examples.common.constants import LOG2E, LOWEST
from annotated_examples.common.exponential import exp
from annotated_examples.common.launching import power_of_2_up_to
from annotated_examples.common.logits import items, scale_and_cap


# ## How many labels count
#
# The lesson lets PyTorch count: one kernel compares the labels, another one adds. Here one small program does both. Its
# result is needed before the first row is finished.
#
# With few rows even that launch takes longer than it is worth. Up to `FEW` labels each row's program counts all of them
# itself. They are a few kilobytes, and come from the cache.
FEW = 1024


@triton.jit
def labels_that_count(labels_ptr, start, rows, ignore_index, BLOCK: tl.constexpr):
    # 1 for each label of a block that counts, 0 for the others.
    offs = start + tl.arange(0, BLOCK)
    mask = offs < rows
    # Labels come in any integer dtype. Widened to int64, all can be compared with `ignore_index`.
    labels = tl.load(labels_ptr + offs, mask=mask, other=0).to(tl.int64)
    return (mask & (labels != ignore_index)).to(tl.int32)


@triton.jit
def count_labels_forward_kernel(labels_ptr, count_ptr, rows, ignore_index, BLOCK: tl.constexpr):  # (rows,), one number
    # One program of 32 warps, the maximum, loops over all labels, which are tiny compared with the logits. Here there
    # are `rows = 4`.
    count = tl.zeros((BLOCK,), tl.int32)
    for start in tl.range(0, rows, BLOCK):
        # All of them count: `count = [1, 1, 1, 1]`.
        count += labels_that_count(labels_ptr, start, rows, ignore_index, BLOCK)
    tl.store(count_ptr, tl.sum(count, 0))


# ## Rung 4: exponentials
#
# A GPU has an instruction for powers of two, so $e^x$ becomes $2^{x \log_2 e}$, as in `tl.exp`. Results too small for a
# normal float32 may be zero here, so the shorter `tl.exp2` will do. Each logit takes two exponentials: with rows of
# 128,256 this line took [[bench: ladders/cross_entropy/strips/ms]] to [[bench: ladders/cross_entropy/exp2/ms]].
@triton.jit
def exp_shifted(z, shift):
    return tl.exp2((z - shift) * LOG2E)


# The sum of such exponentials over each strip of a block.
@triton.jit
def strip_sums(z, shift):
    return tl.sum(exp_shifted(z, shift[:, None]), 1)


# The gradient [[tag: CE-mean-X]] of all entries but the label's: the probability, [[tag: CE-x-stable]], times the
# slope and the weight; `scale` is that over the sum. In float32 it has [all its digits](../common/exponential.py).
@triton.jit
def weighted_softmax(x, shift, scale, scaling: tl.constexpr, softcap: tl.constexpr):
    z, slope = scale_and_cap(x.to(tl.float32), scaling, softcap)
    return (exp(z - shift) if x.dtype == tl.float32 else exp_shifted(z, shift)) * scale * slope


# ## Rungs 2 and 6: two sweeps over a row
#
# Each program sweeps over its row twice: for the log-sum-exp, and then to write the gradient, if there is to be one.
# The second time the row should come from the L2 cache. So all rows in progress have to fit into it together. That is
# why a long row is given to a single program with many warps and large blocks.
#
# **How a row is cut.** Memory is fast if 16 bytes are moved at a time, from an address divisible by 16. Call that a
# *strip*: 8 entries in bfloat16, 4 in float32. With a vocabulary of 50257 most rows don't begin at such an address. So
# up to the first such address there is a short *head*, then the *body* of whole strips, and the rest is the *tail*.
#
# ```text
#  head   body: strips, a block of them at a time          tail
#  |..|   |----|----|----|----|----|----|----|----|----|   |...|
# ```
#
# ## Rung 3: a maximum for every strip
#
# The lesson keeps one maximum and one sum for the row. To update them, all threads of the program wait for each other,
# in every chunk several times for each of the two. Here each strip of a block keeps a maximum (the *shift*) and a sum
# of its own. A strip belongs to one thread, so no thread waits for another before the sweep is over. With rows of
# 128,256 that took the kernel from [[bench: ladders/cross_entropy/one_pass/ms]] to
# [[bench: ladders/cross_entropy/strips/ms]]. Rows of 50257 went from
# [[bench: ladders/cross_entropy@8192x50257/one_pass/ms]] up to
# [[bench: ladders/cross_entropy@8192x50257/strips/ms]]: only where rows are cut at such addresses is a strip one load.
@triton.jit
def first_sweep(
    body_ptr, strips, offs, whole, needed,
    scaling: tl.constexpr, softcap: tl.constexpr, BLOCK: tl.constexpr, STRIP: tl.constexpr,
):  # fmt: skip
    # The shifts start at the lowest finite number. With −∞, a strip that has only masked entries would subtract −∞ from
    # −∞, which is NaN.
    shift = tl.full((BLOCK // STRIP,), LOWEST, tl.float32)
    total = tl.zeros((BLOCK // STRIP,), tl.float32)

    # Two blocks at a time, so that two loads are in flight together.
    for start in tl.range(0, whole, 2 * BLOCK):
        # `evict_last`: what is loaded here will be needed again.
        # `pid=0, start=0: x0 = [[-3, 2, 0, -1], [-3, 2, 1, -1]]`
        x0 = tl.load(body_ptr + start + offs, eviction_policy="evict_last").to(tl.float32)
        x1 = tl.load(body_ptr + start + BLOCK + offs, eviction_policy="evict_last").to(tl.float32)
        z0, _ = scale_and_cap(x0, scaling, softcap)
        z1, _ = scale_and_cap(x1, scaling, softcap)
        # The largest of each strip in both blocks: `start=0: new_shift = [3, 2]`.
        new_shift = tl.maximum(shift, tl.maximum(tl.max(z0, 1), tl.max(z1, 1)))
        # [[tag: SM-online]] for each strip: `start=0: total = [1.6303, 2.5848]`.
        total = total * exp_shifted(shift, new_shift) + strip_sums(z0, new_shift) + strip_sums(z1, new_shift)
        shift = new_shift

    # The rest of the body. The mask covers whole strips, not entries, so that loads stay wide.
    for start in tl.range(whole, needed, BLOCK):
        # One strip is left: `pid=0, start=16: mask = [[1], [0]]`.
        mask = (start + strips < needed)[:, None]
        x = tl.load(body_ptr + start + offs, mask=mask, other=0.0, eviction_policy="evict_last")
        z, _ = scale_and_cap(x.to(tl.float32), scaling, softcap)
        z = tl.where(mask, z, -float("inf"))
        new_shift = tl.maximum(shift, tl.max(z, 1))
        total = total * exp_shifted(shift, new_shift) + strip_sums(z, new_shift)
        shift = new_shift
    return shift, total


# The **second sweep** goes backwards: what was read last is most likely still in the cache. Neither the logits nor the
# gradient are needed again, so they should make room for other rows: `evict_first` asks for that in a load, and
# `cache_modifier=".cs"` (streaming) does in a store.
@triton.jit
def second_sweep(
    body_ptr, dbody_ptr, strips, offs, whole, needed, body, shift, scale,
    scaling: tl.constexpr, softcap: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    for start in tl.range(whole, needed, BLOCK):
        mask = (start + strips < needed)[:, None]
        x = tl.load(body_ptr + start + offs, mask=mask, other=0.0, eviction_policy="evict_first")
        dx = weighted_softmax(x, shift, scale, scaling, softcap)
        tl.store(dbody_ptr + start + offs, dx, mask=mask, cache_modifier=".cs")
    # Two blocks at a time. Both are loaded before one is stored: the compiler can't do that by itself, because for all
    # it knows a store might change what is loaded next.
    for done in tl.range(2 * BLOCK, whole + 2 * BLOCK, 2 * BLOCK):
        pair = whole - done + offs
        x0 = tl.load(body_ptr + pair, eviction_policy="evict_first")
        x1 = tl.load(body_ptr + pair + BLOCK, eviction_policy="evict_first")
        dx0 = weighted_softmax(x0, shift, scale, scaling, softcap)
        tl.store(dbody_ptr + pair, dx0, cache_modifier=".cs")
        dx1 = weighted_softmax(x1, shift, scale, scaling, softcap)
        tl.store(dbody_ptr + pair + BLOCK, dx1, cache_modifier=".cs")
    # In an ignored row `needed` is zero, and the whole body is handled here: it is filled with zeros. `tl.zeros_like`
    # makes a block of them in the shape of another block.
    for start in tl.range(needed, body, BLOCK):
        mask = (start + strips < body)[:, None]
        tl.store(dbody_ptr + start + offs, tl.zeros_like(offs).to(tl.float32), mask=mask)


# ## The kernel: loss and gradient of one row
@triton.jit
def cross_entropy_forward_kernel(
    logits_ptr, labels_ptr,  # (batch, seq_len, vocab) with columns side by side; one number per row
    n_items_ptr, dloss_ptr, losses_ptr, dlogits_ptr,  # one number each; one per row; as the logits; each may be None
    stride_xb, stride_xs, stride_db, stride_ds, seq_len, vocab, weight, ignore_index, scaling: tl.constexpr,
    softcap: tl.constexpr, ALIGNED: tl.constexpr, COUNT: tl.constexpr, BLOCK: tl.constexpr, STRIP: tl.constexpr,
):  # fmt: skip
    # Which row is mine? It is found by batch and position, so `logits[:, :-1]` needs no copy. In the example the rows
    # of 21 are contiguous: `pid=3: batch = 1`, `pid=3: position = 1`. The division is in 32 bits: in 64 bits it would
    # take a hundred instructions.
    row = tl.program_id(0)
    batch, position = (row // seq_len).to(tl.int64), (row % seq_len).to(tl.int64)
    # Then widened: past 2³¹ elements a 32-bit offset would wrap around. `pid=3: x_start = 63`.
    x_start = batch * stride_xb + position * stride_xs
    d_start = batch * stride_db + position * stride_ds

    # Its label. A label outside the vocabulary must not be used as an offset; it turns the row into NaN. The label's
    # logit is loaded now, because later another warp may already have written the gradient over it. It is *used* at the
    # end. A load doesn't stop a program; the first instruction that uses its result does. Used here, it would mean
    # waiting for memory twice in a row.
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
    # `offs = [[0, 1, 2, 3], [4, 5, 6, 7]]`.
    strips = tl.arange(0, BLOCK // STRIP) * STRIP
    offs = strips[:, None] + tl.arange(0, STRIP)[None, :]
    # The body of an ignored row isn't read. Here it holds one whole pair of blocks of 8: `pid=0: whole = 16`.
    needed = tl.where(ignored, 0, body)
    whole = needed // (2 * BLOCK) * (2 * BLOCK)
    shift, total = first_sweep(
        logits_ptr + x_body, strips, offs, whole, needed, scaling, softcap, BLOCK, STRIP
    )  # fmt: skip

    # Head and tail, less than a strip each. In row 1 three entries come before the body and two after it:
    # `pid=1: edge_mask = [1, 1, 1, 0, 1, 1, 0, 0]`.
    lane = tl.arange(0, 2 * STRIP)
    edge = tl.where(lane < STRIP, lane, head + body + lane - STRIP)
    edge_mask = edge < tl.where(lane < STRIP, head, vocab)
    x_edge = tl.load(logits_ptr + x_start + edge, mask=edge_mask, other=0.0)
    z_edge, slope_edge = scale_and_cap(x_edge.to(tl.float32), scaling, softcap)
    z_edge = tl.where(edge_mask, z_edge, -float("inf"))

    # All strips become one row. The largest logit of all is `pid=0: row_shift = 3`, and relative to it the sum is
    # `pid=0: row_total = 3.1235`. [[tag: CE-LSE]] is the first plus the logarithm of the second.
    row_shift = tl.maximum(tl.max(shift, 0), tl.max(z_edge, 0))
    row_total = tl.sum(total * exp_shifted(shift, row_shift), 0) + tl.sum(exp_shifted(z_edge, row_shift), 0)

    # This row's weight in the mean over four labels: `pid=0: weight = 0.25`. `COUNT` is 0, or room for all labels.
    if COUNT:
        count = labels_that_count(labels_ptr, 0, tl.num_programs(0), ignore_index, COUNT)
        weight = 1.0 / tl.sum(count, 0).to(tl.float32)
    if n_items_ptr is not None:
        weight = 1.0 / tl.load(n_items_ptr).to(tl.float32)
    weight = tl.where(in_range, weight, float("nan")).to(tl.float32)

    z_label, slope_label = scale_and_cap(x_label.to(tl.float32), scaling, softcap)
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
        dx_edge = weighted_softmax(x_edge, row_shift, scale, scaling, softcap)
        tl.store(dlogits_ptr + d_start + edge, tl.where(ignored, 0.0, dx_edge), mask=edge_mask)
        second_sweep(
            logits_ptr + x_body, dlogits_ptr + d_body, strips, offs, whole, needed, body, row_shift, scale,
            scaling, softcap, BLOCK,
        )  # fmt: skip

        # **Rung 5: the label last.** One entry is still wrong: the label's, from which 1 has yet to be subtracted,
        # [[tag: CE-x]]. Correcting it afterwards saves the sweep a comparison with the label in every column. (Alone it
        # gains nothing with rows of 128,256, [[bench: ladders/cross_entropy/exp2/ms]] without it and
        # [[bench: ladders/cross_entropy/label_last/ms]] with it; with rows of 50257 it takes
        # [[bench: ladders/cross_entropy@8192x50257/exp2/ms]] to
        # [[bench: ladders/cross_entropy@8192x50257/label_last/ms]].)
        # `tl.debug_barrier` makes all threads of the program wait for each other, and so keeps the two stores in order.
        tl.debug_barrier()
        # Almost the whole weight, because the label had almost no probability: `pid=0: dx_label = -0.2498`.
        dx_label = (exp_shifted(z_label, row_shift) * scale - weight) * slope_label
        tl.store(dlogits_ptr + d_start + label, dx_label, mask=in_range & ~ignored)


# ## The upstream gradient
#
# The gradient exists before backward begins. It lacks one factor, the upstream gradient. That is a number in GPU
# memory: Python would have to wait for the GPU to read it. So the kernel reads it. If it is 1, as in `loss.backward()`,
# and the result may be stored where the gradient is (`IN_PLACE`), every program stops at once, and the backward pass
# costs one empty launch.
@triton.jit
def cross_entropy_backward_kernel(
    dloss_ptr, gradient_ptr, dlogits_ptr,  # one number, (n,), (n,)
    n, IN_PLACE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    # In the example it is another number: `pid=0: dloss = 0.5`.
    dloss = tl.load(dloss_ptr)
    # The gradient has `pid=0: end = 84` entries.
    end = n
    if IN_PLACE:
        end = tl.where(dloss == 1.0, 0, n)

    # A grid-stride loop: a fixed number of programs take turns, `num_programs` blocks apart. One program per block
    # would be simpler, but launching thousands of programs that stop at once takes longer than launching these few.
    first = tl.program_id(0).to(tl.int64) * BLOCK
    for start in tl.range(first, end, tl.num_programs(0) * BLOCK):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < n
        gradient = tl.load(gradient_ptr + offs, mask=mask, other=0.0).to(tl.float32)
        tl.store(dlogits_ptr + offs, gradient * dloss, mask=mask)


# ## The launchers
#
# Small blocks and one warp for a short row, so that many rows share an SM. Large blocks and many warps for a long one,
# so that few rows fill it, and the cache can hold them.
def tiles(vocab, itemsize):
    """`BLOCK` (entries) and `num_warps` for rows of `vocab` entries of `itemsize` bytes, as measured on an H200."""
    row_bytes = vocab * itemsize
    for limit, block_bytes, num_warps in ((4096, 1024, 1), (16384, 2048, 4), (49152, 8192, 8), (131072, 16384, 16)):
        if row_bytes <= limit:
            return block_bytes // itemsize, num_warps
    return 65536 // itemsize, 32


def row_strides(x):
    """The distances, in elements, from one batch to the next and from one row to the next."""
    return (x.stride(0) if x.dim() == 3 else 0), x.stride(-2)


def rows_in_place(logits):
    """The same tensor if the entries of a row are side by side (rows may lie anywhere), else a copy."""
    return logits if logits.stride(-1) == 1 or logits.shape[-1] == 1 else logits.contiguous()


def count_labels(labels, ignore_index, *, BLOCK=None):
    """How many labels differ from `ignore_index`: an int32 tensor of one element, still being computed on return."""
    rows, labels = labels.numel(), labels.contiguous()
    count = torch.empty(1, dtype=torch.int32, device=labels.device)
    BLOCK = BLOCK or power_of_2_up_to(8192, rows)
    launch(count_labels_forward_kernel, (1,), (labels, count), (rows, ignore_index), BLOCK=BLOCK, num_warps=32)
    return count


def counted(n_items, labels, ignore_index):
    """`n_items`, or a count of the labels. None if the programs of the rows count for themselves."""
    return count_labels(labels, ignore_index) if n_items is None and labels.numel() > FEW else n_items


# Accesses are as wide as a strip only if strips are aligned in the logits *and* in the gradient. That is so if both
# have the same strides, or if all rows of both begin at a multiple of a strip.
def launch_rows(
    logits, labels, n_items, softcap, scaling, ignore_index, *, losses=None, dlogits=None, dloss=None,
    BLOCK=None, num_warps=None,
):  # fmt: skip
    """One program per row. Without `losses` no loss is stored, without `dlogits` no gradient is computed.

    n_items: as `cross_entropy_loss` takes it. None: the labels are counted, `FEW` at most.
    """
    checks.power_of_two(BLOCK=BLOCK, num_warps=num_warps)
    rows, vocab, itemsize = labels.numel(), logits.shape[-1], logits.element_size()
    if rows == 0:
        return
    tuned_block, tuned_warps = tiles(vocab, itemsize)
    BLOCK, strip = BLOCK or tuned_block, 16 // itemsize
    x_strides = row_strides(logits)
    d_strides = x_strides if dlogits is None else row_strides(dlogits)
    room = 32 if rows <= 32 else FEW  # two kernels are compiled at most
    weight, COUNT = 1.0, room if n_items is None else 0
    if isinstance(n_items, torch.Tensor):
        n_items = n_items.to(logits.device)
    elif n_items is not None:
        weight = 1.0 / n_items if n_items else float("inf")  # as the GPU divides: one over zero is infinite
        n_items = None
    launch(
        cross_entropy_forward_kernel, (rows,), (logits, labels.contiguous(), n_items, dloss, losses, dlogits),
        (*x_strides, *d_strides, logits.shape[-2], vocab, weight, ignore_index),
        scaling=float(scaling), softcap=float(softcap), COUNT=COUNT,
        ALIGNED=x_strides == d_strides or not any(stride % strip for stride in (*x_strides, *d_strides)),
        BLOCK=BLOCK, STRIP=min(BLOCK, strip), num_warps=num_warps or tuned_warps,
    )  # fmt: skip


@replayed
def cross_entropy_forward(
    logits, labels, n_items=None, softcap=0.0, scaling=0.0, ignore_index=-100, *,
    BLOCK=None, num_warps=None,
):  # fmt: skip
    """The loss, and a tuple with its gradient with respect to the logits, which is a new tensor."""
    logits = rows_in_place(logits)
    dlogits = torch.empty_like(logits, memory_format=torch.contiguous_format)
    items, options = counted(n_items, labels, ignore_index), (softcap, scaling, ignore_index)
    return _forward(logits, labels, items, *options, dlogits, BLOCK, num_warps), (dlogits,)


# Autograd is told that the logits are overwritten: an operation that saved them for its own gradient raises an error.
def cross_entropy_forward_(
    logits, labels, n_items=None, softcap=0.0, scaling=0.0, ignore_index=-100, *,
    BLOCK=None, num_warps=None,
):  # fmt: skip
    """As `cross_entropy_forward`, but the gradient is written over the logits, which must be contiguous."""
    torch.autograd.graph.increment_version(logits)
    items, options = counted(n_items, labels, ignore_index), (softcap, scaling, ignore_index)
    return _forward(logits, labels, items, *options, logits, BLOCK, num_warps), (logits,)


@replayed
def cross_entropy_loss_forward(
    logits, labels, n_items=None, softcap=0.0, scaling=0.0, ignore_index=-100, *,
    BLOCK=None, num_warps=None,
):  # fmt: skip
    """The loss alone, and what the gradient can be computed from later: logits, labels, number of items."""
    n_items = counted(n_items, labels, ignore_index)
    rows = rows_in_place(logits)
    loss = _forward(rows, labels, n_items, softcap, scaling, ignore_index, None, BLOCK, num_warps)
    return loss, (logits, labels, n_items)


# The sum over the rows is left to PyTorch: it is one small kernel, and adds in the same order every time.
@replayed
def _forward(logits, labels, n_items, softcap, scaling, ignore_index, dlogits, BLOCK, num_warps):
    losses = torch.empty(labels.numel(), dtype=torch.float32, device=logits.device)
    launch_rows(
        logits, labels, n_items, softcap, scaling, ignore_index,
        losses=losses, dlogits=dlogits, BLOCK=BLOCK, num_warps=num_warps,
    )  # fmt: skip
    return losses.sum()


@functools.lru_cache
def backward_programs(index):
    """How many programs of 8 warps to start: eight per SM, as many as an H200's holds. index None: the interpreter."""
    return 8 * torch.cuda.get_device_properties(index).multi_processor_count if index is not None else 4


# The gradient already accounts for scale, cap and ignored rows. So the options, which every backward launcher is given,
# go unused.
@replayed
def cross_entropy_backward(dloss, gradient, softcap=0.0, scaling=0.0, ignore_index=-100, *, BLOCK=4096):
    """`dloss * gradient` in a new tensor."""
    return _scale(dloss, gradient, torch.empty_like(gradient), False, BLOCK)


def cross_entropy_backward_(dloss, gradient, softcap=0.0, scaling=0.0, ignore_index=-100, *, BLOCK=4096):
    """`dloss * gradient`, written over `gradient`; where `dloss` is 1, nothing is read or written."""
    gradient = gradient.detach()
    return _scale(dloss, gradient, gradient, True, BLOCK)


@replayed
def _scale(dloss, gradient, dlogits, in_place, BLOCK):
    checks.power_of_two(BLOCK=BLOCK)
    n = gradient.numel()
    if programs := min(cdiv(n, BLOCK), backward_programs(gradient.device.index)):
        constants = dict(IN_PLACE=in_place, BLOCK=BLOCK, num_warps=8)
        launch(cross_entropy_backward_kernel, (programs,), (dloss, gradient, dlogits), (n,), **constants)
    return dlogits


@replayed
def cross_entropy_loss_backward(
    dloss, logits, labels, n_items, softcap=0.0, scaling=0.0, ignore_index=-100, *, BLOCK=None, num_warps=None
):
    """The gradient, computed from the logits when the upstream gradient is known. No loss is stored."""
    logits = rows_in_place(logits)
    dlogits = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
    launch_rows(
        logits, labels, n_items, softcap, scaling, ignore_index,
        dlogits=dlogits, dloss=dloss, BLOCK=BLOCK, num_warps=num_warps,
    )  # fmt: skip
    return dlogits


# ## Which launchers?
#
# The autograd function is the lesson's; what differs is what it launches.
#
# **Usually** forward computes the gradient. With `retain_graph` the backward pass may run again, with another upstream
# gradient: then the unscaled gradient must be kept, so the result goes to a new tensor. In the last backward pass the
# tensor itself is scaled and returned: no copy, no second tensor.
#
# **When the gradient has to wait.** In two cases forward doesn't compute it, and the same kernel runs once more in the
# backward pass, with the upstream gradient as a part of the weight:
#
# - float16. Its smallest number is about $6 \cdot 10^{-8}$, and most probabilities divided by the number of tokens are
#   smaller. Training in float16 therefore multiplies the loss by a large number. That factor arrives as the upstream
#   gradient, and has to be multiplied in *before* the rounding.
# - Inside `torch.compile`, where nothing may be decided by how autograd was called.
def _loss(logits, labels, n_items, softcap, scaling, ignore_index, in_place):
    count = n_items
    if n_items is not None and not isinstance(n_items, torch.Tensor):  # a number may be another one in each call
        checks.number("n_items", n_items, at_least=0)
        count = 1
    checked(logits, labels, softcap, scaling, count, ignore_index)
    options = softcap, scaling, ignore_index
    if not autograd.needs_frame(logits):
        return cross_entropy_loss_forward(logits, labels, n_items, *options)[0]
    if logits.dtype == torch.float16 or torch.compiler.is_compiling():
        forward, backward, last = cross_entropy_loss_forward, cross_entropy_loss_backward, cross_entropy_loss_backward
        # Only tensors can be saved for the backward pass.
        n_items = n_items if n_items is None else items(n_items, labels, ignore_index)
    else:
        over = in_place and logits.is_contiguous()
        forward = cross_entropy_forward_ if over else cross_entropy_forward
        backward, last = cross_entropy_backward, cross_entropy_backward_
    return CrossEntropyLoss.apply(logits, labels, n_items, *options, forward, backward, last)


checked = remembered(contract, values=True)


@replayed
def cross_entropy_loss(logits, labels, logit_softcapping=0.0, logit_scaling=0.0, n_items=None, ignore_index=-100):
    """The same as `annotated_examples.classics.cross_entropy.cross_entropy_loss`, but faster.

    Rows whose entries lie side by side are read in place.

    Args: as `cross_entropy_loss` of the lesson.

    Returns:
        The loss, a float32 scalar. If no label is valid, the loss and its gradient are 0, where PyTorch gives NaN.

    Raises:
        TypeError, ValueError: as the lesson.

    Source: as the lesson; liger-kernel showed how to compute the gradient in the forward pass.
    """
    return _loss(logits, labels, n_items, logit_softcapping, logit_scaling, ignore_index, False)


def cross_entropy_loss_(logits, labels, logit_softcapping=0.0, logit_scaling=0.0, n_items=None, ignore_index=-100):
    """`cross_entropy_loss` that needs no memory for the gradient: it may be written over the logits.

    Where autograd records a gradient for them, contiguous float32 or bfloat16 logits are overwritten with it by the
    time this returns, except inside `torch.compile`. In all other cases nothing is overwritten.

    Args: as `cross_entropy_loss`.

    Returns:
        The loss, a float32 scalar.

    Raises:
        TypeError, ValueError: as `cross_entropy_loss`.
        RuntimeError: in the backward pass, if another operation saved the overwritten logits for its own gradient.

    Source: as `cross_entropy_loss`.
    """
    return _loss(logits, labels, n_items, logit_softcapping, logit_scaling, ignore_index, True)


# ## A run small enough to watch
#
# Two batches of two tokens and a vocabulary of 21, in blocks of 8: each row has a head and a tail of its own length.
def EXAMPLE():
    at = torch.arange(2 * 2 * 21, dtype=torch.float32, device=device.DEVICE)
    logits = (at * 5 % 13 % 7 - 3).view(2, 2, 21)
    labels = torch.tensor([[4, 1], [20, 7]], device=device.DEVICE)
    _, (gradient,) = cross_entropy_forward(logits, labels, BLOCK=8)
    cross_entropy_backward(torch.tensor(0.5, device=device.DEVICE), gradient, BLOCK=32)
    count_labels(labels, -100)  # so few are counted by the programs of the rows


if __name__ == "__main__":
    labels = torch.tensor([5, -100, 63], device=device.DEVICE)
    both = dict(logit_softcapping=30.0, logit_scaling=0.5)
    cases = [dict(logits=(3, 1000)), dict(logits=(3, 70000)), dict(logits=(3, 1000), **both)]
    script.main(cross_entropy_loss, cross_entropy_loss_reference, *(case | dict(labels=labels) for case in cases))
