r"""# The label last

**What was slow?** The second pass compares every column with the label, to subtract 1 in one of them.

**What changes?** It writes the gradient as if no column were the label's. That one is corrected after the pass. A
barrier keeps the two stores in order.

**Predict:** one comparison and one subtraction less for each logit, and a barrier more for each row.
"""

from academy.runtime import device  # noqa: F401  before anything imports triton

import triton
import triton.language as tl

from annotated_examples.common.constants import LOWEST
from annotated_examples.fast.cross_entropy import exp_shifted, strip_sums
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
        total = total * exp_shifted(shift, new_shift) + strip_sums(x, new_shift)
        shift = new_shift
    row_shift = tl.max(shift, 0)
    row_total = tl.sum(total * exp_shifted(shift, row_shift), 0)

    ignored = label == ignore_index
    weight = tl.where(in_range, 1.0 / tl.load(n_items_ptr).to(tl.float32), float("nan"))
    loss = (tl.log(row_total) + (row_shift - x_label)) * weight
    tl.store(losses_ptr + row, tl.where(ignored, 0.0, loss))
    scale = weight / row_total

    for start in tl.range(0, N, BLOCK_N):
        x = tl.load(x_ptr + start + offs, mask=start + offs < N, other=0.0).to(tl.float32)
        dx = exp_shifted(x, row_shift) * scale
        tl.store(dx_ptr + start + offs, tl.where(ignored, 0.0, dx), mask=start + offs < N)
    tl.debug_barrier()
    dx_label = exp_shifted(x_label, row_shift) * scale - weight
    tl.store(dx_ptr + label, dx_label, mask=in_range & ~ignored)


def cross_entropy_loss(logits, labels):
    """Mean cross entropy of a matrix of logits whose rows are contiguous, differentiable."""
    return launch_rows(cross_entropy_forward_kernel, logits, labels)
