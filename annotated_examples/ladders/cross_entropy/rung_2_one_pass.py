r"""# The gradient in the forward pass

**What was slow?** By the time of the backward pass, the logits have left the cache.

**What changes?** The gradient needs nothing that forward doesn't know, except the upstream gradient, a single number.
So the program that has just computed the log-sum-exp of its row goes over the row once more, while it is still in the
L2 cache, and writes the gradient. Backward multiplies it by the upstream gradient, or does nothing if that is 1.

A row in progress has to stay in the cache until its second pass. So few rows are in progress at a time: one of 128256
gets 32 warps, and blocks of 64 KB.

**Predict:** a third of the traffic is gone.
"""

from academy.runtime import device  # noqa: F401  before anything imports triton

import torch
import triton
import triton.language as tl

from annotated_examples.classics.cross_entropy import CrossEntropyLoss
from annotated_examples.common.constants import LOWEST
from annotated_examples.fast.cross_entropy import (
    count_labels,
    cross_entropy_backward,
    cross_entropy_backward_,
    tiles,
)


@triton.jit
def cross_entropy_forward_kernel(
    logits_ptr,  # (M, N), rows stride_xm apart
    labels_ptr,  # (M,)
    n_items_ptr,  # one number
    losses_ptr,  # (M,) in float32
    dlogits_ptr,  # (M, N), contiguous
    stride_xm,
    N,
    ignore_index,
    BLOCK_N: tl.constexpr,
    STRIP: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    x_ptr = logits_ptr + row * stride_xm
    dx_ptr = dlogits_ptr + row * N
    label = tl.load(labels_ptr + row).to(tl.int64)
    in_range = (label >= 0) & (label < N)
    x_label = tl.load(x_ptr + label, mask=in_range, other=0.0).to(tl.float32)
    offs = tl.arange(0, BLOCK_N)

    shift = LOWEST
    total = 0.0
    for start in tl.range(0, N, BLOCK_N):
        x = tl.load(x_ptr + start + offs, mask=start + offs < N, other=-float("inf")).to(tl.float32)
        new_shift = tl.maximum(shift, tl.max(x, 0))
        total = total * tl.exp(shift - new_shift) + tl.sum(tl.exp(x - new_shift), 0)
        shift = new_shift
    row_shift, row_total = shift, total

    ignored = label == ignore_index
    weight = tl.where(in_range, 1.0 / tl.load(n_items_ptr).to(tl.float32), float("nan"))
    loss = (tl.log(row_total) + (row_shift - x_label)) * weight
    tl.store(losses_ptr + row, tl.where(ignored, 0.0, loss))
    scale = weight / row_total
    column = label.to(tl.int32)

    for start in tl.range(0, N, BLOCK_N):
        x = tl.load(x_ptr + start + offs, mask=start + offs < N, other=0.0).to(tl.float32)
        dx = tl.exp(x - row_shift) * scale - tl.where(start + offs == column, weight, 0.0)
        tl.store(dx_ptr + start + offs, tl.where(ignored, 0.0, dx), mask=start + offs < N)


def launch_rows(kernel, logits, labels):
    """The mean loss, whose gradient the kernel computes too. One program a row."""

    def forward(logits, labels, n_items, softcap, scaling, ignore_index):
        rows, N = logits.shape
        dlogits = torch.empty(rows, N, dtype=logits.dtype, device=logits.device)
        losses = torch.empty(rows, dtype=torch.float32, device=logits.device)
        BLOCK_N, num_warps = tiles(N, logits.element_size())
        kernel[(rows,)](
            logits, labels, count_labels(labels, ignore_index), losses, dlogits, logits.stride(0), N, ignore_index,
            BLOCK_N=BLOCK_N, STRIP=16 // logits.element_size(), num_warps=num_warps,
        )  # fmt: skip
        return losses.sum(), (dlogits,)

    backward = cross_entropy_backward, cross_entropy_backward_
    return CrossEntropyLoss.apply(logits, labels, None, 0.0, 0.0, -100, forward, *backward)


def cross_entropy_loss(logits, labels):
    """Mean cross entropy of a matrix of logits whose rows are contiguous, differentiable."""
    return launch_rows(cross_entropy_forward_kernel, logits, labels)
