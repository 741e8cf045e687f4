r"""# A maximum for every strip

**What was slow?** One maximum and one sum for the row: all 1024 threads wait for each other in every block, several
times for each of the two.

**What changes?** A block is a matrix with a *strip* of 16 bytes in each row. Each strip keeps a maximum and a sum of
its own. Where rows begin at multiples of 16 bytes, as here, a strip belongs to one thread, so nobody waits before the
pass is over.

**Predict:** not a byte less. But is this kernel waiting for bytes?
"""

from academy.runtime import device  # noqa: F401  before anything imports triton

import triton
import triton.language as tl

from annotated_examples.common.constants import LOWEST
from annotated_examples.ladders.cross_entropy.rung_2_one_pass import launch_rows


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
    offs = tl.arange(0, BLOCK_N // STRIP)[:, None] * STRIP + tl.arange(0, STRIP)[None, :]

    shift = tl.full((BLOCK_N // STRIP,), LOWEST, tl.float32)
    total = tl.zeros((BLOCK_N // STRIP,), tl.float32)
    for start in tl.range(0, N, BLOCK_N):
        x = tl.load(x_ptr + start + offs, mask=start + offs < N, other=-float("inf")).to(tl.float32)
        new_shift = tl.maximum(shift, tl.max(x, 1))
        total = total * tl.exp(shift - new_shift) + tl.sum(tl.exp(x - new_shift[:, None]), 1)
        shift = new_shift
    row_shift = tl.max(shift, 0)
    row_total = tl.sum(total * tl.exp(shift - row_shift), 0)

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


def cross_entropy_loss(logits, labels):
    """Mean cross entropy of a matrix of logits whose rows are contiguous, differentiable."""
    return launch_rows(cross_entropy_forward_kernel, logits, labels)
