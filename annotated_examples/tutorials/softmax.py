r"""
# Softmax: from scores to probabilities

Softmax turns a row of numbers into probabilities: none is negative, and they add up to one. Attention weighs its values
with it, and a language model ends with it.

[[eq: SM]]

Going back, every element of a row needs one number that depends on the whole row, the sum on the right:

[[eq: SM-x]]

**What it costs.** Per element, forward must read one number and write one, backward must read two and write one.
The arithmetic takes less time than that, so no version is faster than `bytes / bandwidth`. Written as five PyTorch
operations (maximum, difference, exponential, sum, quotient), it takes eight passes over memory: each operation reads
the whole matrix, and three of them write one back. This kernel is *fused*: one program does all steps on a row, in
registers. It reads its row twice, but a row that isn't too long is still in a cache the second time.
At 8192 x 32000 in bfloat16 the eight passes take [[bench: softmax/ladder/elementwise/forward_ms]],
PyTorch's own softmax takes [[bench: softmax/8192x32000/forward/eager.ms]], and this kernel
[[bench: softmax/8192x32000/forward/lesson.ms]]. [The fast version](../fast/softmax.py) shows, step by measured step,
what more can be gained.

**Contract.** `x` is float32, float16 or bfloat16, with any shape and any strides. Its last dimension holds the rows,
whose length may be anything below 2³¹ − 2¹⁴. (Columns are counted in 32 bits, and the last chunk may run past the end
of the row. 2¹⁴ is room enough for the chunks of this kernel, at most 2¹² wide, and of others with the same contract.)
The result has the dtype of `x`; all arithmetic is float32. No input is written to. A row that contains a NaN or
$+\infty$ becomes NaN everywhere, as in PyTorch, and so does a row that is all $-\infty$: it has no probabilities.

**Two mistakes that this kernel can't catch.** `torch.nn.functional.cross_entropy` applies softmax itself: give it the
scores. Softmax before a loss that applies it again still trains, usually more slowly and to a worse result, and nothing
reports an error. And `softmax(x).sum()` is the number of rows, whatever `x` is: its gradient is zero. A gradient check
built on it passes for any kernel that returns something small, so the tests use a random upstream gradient.
"""

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch
import triton
import triton.language as tl

from annotated_examples.common.exponential import exp
from annotated_examples.common.rows import as_rows, rows_contract


# ## Reference
#
# The same in PyTorch, step by step. Why is the largest number of the row subtracted first? `exp(89)` is infinite in
# float32, and infinity divided by infinity is NaN. Subtracting one number from all scores of a row changes nothing in
# exact arithmetic: numerator and denominator are multiplied by the same factor ([[tag: SM-shift]]). If it is the
# largest score, every exponent is zero or below, so no exponential is above one and nothing can overflow. One exponent
# is exactly zero. So in a row that has a finite score, and no $+\infty$ or NaN, the sum is at least one, and nothing is
# divided by zero.
def softmax_reference(x):
    exponentials = torch.exp(x - x.amax(dim=-1, keepdim=True))
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


# ## Forward
#
# One program takes one row. An element of the result needs two numbers that depend on the whole row: its largest score,
# and the sum of the exponentials. So the program goes over its row twice. The first pass finds these two numbers, the
# second one writes the probabilities.
#
# [[figure: rows/online]]


# A row may have any length, but the size of a block must be known when the kernel is compiled. So the row is taken in
# *chunks*, blocks of `BLOCK_N` columns. The launcher below makes them 4096 wide at most: rows of up to 4096 columns are
# one chunk, and then each loop runs once. As in [vector addition](vector_add.py), what is written once, `tl.exp(x)` or
# `x - shift`, happens in all lanes of the block.
#
# If there are several chunks the first pass has a problem: it has to subtract the row's largest score, which it doesn't
# know until the last chunk. The *online* softmax doesn't wait. It subtracts the largest score **so far**. When a later
# chunk brings a larger one, all exponentials summed so far are too big by the same factor, and one multiplication of
# the sum puts that right: $e^{x - old} \cdot e^{old - new} = e^{x - new}$, [[tag: SM-online]].
#
# `N` is the length of a row, and `stride_xm` says how many elements the start of one row of `x` is from the start of
# the next. The numbers in the notes come from a recorded run: three rows of 6 columns, in chunks of 4. The first row is
# 1, 3, 2, 0, 4, 1. The second is four times $-\infty$, then 2, 2. A `start` in front picks the round of a loop:
# `softmax_forward_kernel, pid=0, start=4: x[:2] = [4, 1]` is the second chunk of the first row.
@triton.jit
def softmax_forward_kernel(x_ptr, y_ptr, N, stride_xm, BLOCK_N: tl.constexpr):  # (M, N), y contiguous
    # Which row is mine? One program runs for each row, so my program's number is also my row's. It becomes int64 before
    # it is multiplied: in a large tensor the product doesn't fit in 32 bits.
    row = tl.program_id(0).to(tl.int64)
    # Where does my row begin? `x_ptr` is the address of the first element. `x_ptr += row * stride_xm` moves it on by
    # that many elements. The rows of `x` may lie further apart than they are long. Here `pid=1: N = 6`, but `pid=1:
    # stride_xm = 8`: `x` is cut out of a wider matrix. `y` is new, and its rows lie side by side.
    x_ptr += row * stride_xm
    y_ptr += row * N

    # First pass. Before the first chunk the largest score so far is $-\infty$, below any number, and the sum is zero.
    # Why with a decimal point? A variable must keep its dtype throughout a loop. A Python float starts as a float32, an
    # integer zero would start as an int32. The loop makes it a float32, and the compiler refuses: *Loop-carried
    # variable row_sum has initial type int32 but is re-assigned to fp32 in loop!*
    row_max = -float("inf")
    row_sum = 0.0
    # `range` makes a loop, as in Python, and `start` is the first column of each chunk.
    for start in range(0, N, BLOCK_N):
        # Which columns are in this chunk? In the second round `pid=0, start=4: offs_n = [4, 5, 6, 7]`. But the row has
        # only 6 columns. The mask says which of the four exist: `start=4: mask = [1, 1, 0, 0]`.
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = offs_n < N
        # Lanes that the mask switches off get `other`. That value matters here, because the maximum and the sum below
        # run over **all** lanes. A zero could win the maximum in a row of negative scores, and would count in the sum.
        # $-\infty$ never wins, and its exponential is zero: `start=4: x = [4, 1, -inf, -inf]`. From here on everything
        # is float32: 16 bits are too few to add up a row.
        x = tl.load(x_ptr + offs_n, mask=mask, other=-float("inf")).to(tl.float32)
        # `tl.max` finds the largest of a block's lanes, along an axis; this block has only axis zero. `tl.maximum`
        # takes the larger of two numbers. The largest score so far is `start=0: new_max = 3`, and then `start=4:
        # new_max = 4`.
        new_max = tl.maximum(row_max, tl.max(x, axis=0))
        # What to subtract? The largest score so far, with one exception. If nothing but $-\infty$ has been loaded yet,
        # as in the first chunk of the second row, `pid=1, start=0: x = [-inf, -inf, -inf, -inf]`, then
        # $-\infty - (-\infty)$ would be NaN, and the sum would stay NaN. Subtract zero instead:
        # `pid=1, start=0: shift = 0`. `tl.where` takes its second argument where the first is true, and the third
        # elsewhere.
        shift = tl.where(new_max == -float("inf"), 0.0, new_max)
        # The old sum was computed with the old maximum, which is still in `row_max`, so it is multiplied by
        # $e^{old - new}$. In the first round it is zero and stays zero. In the second,
        # `pid=0, start=0: row_sum = 1.553` shrinks to `start=4: old_sum = 0.571`.
        old_sum = row_sum * tl.exp(row_max - shift)
        # `x - shift` subtracts one number from every lane, `tl.sum` adds the lanes up: `start=4: row_sum = 1.621`. A
        # NaN in any lane makes the sum NaN, and the division below then carries it to the whole row. So does $+\infty$,
        # because $\infty - \infty$ is NaN.
        row_sum = old_sum + tl.sum(tl.exp(x - shift), axis=0)
        row_max = new_max

    # Second pass. Now `row_max` and `row_sum` are those of the whole row, so this is [[tag: SM]], which also subtracts
    # the row's largest score. The chunks are loaded again. This program read them a moment ago, so they are often still
    # in a cache. There is no guard against $-\infty - (-\infty)$ here, on purpose: a row that is all $-\infty$ should
    # become NaN.
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = offs_n < N
        x = tl.load(x_ptr + offs_n, mask=mask, other=-float("inf")).to(tl.float32)
        # The probabilities: `start=0: y = [0.031, 0.227, 0.083, 0.011]`, then `start=4: y = [0.617, 0.031, 0, 0]`. The
        # last two lanes come from `other`. Nothing adds them up this time; `other` only gives them a defined value. A
        # tiny exponential is a result here, and should have [all its digits](../common/exponential.py); in the sum
        # above nobody could tell. `exp` is a jitted function that this kernel calls: the compiler inlines it.
        y = exp(x - row_max) / row_sum
        # The store rounds to the dtype of `y_ptr`. Its mask keeps the last two lanes from writing: past the end of this
        # row lies the next one, which belongs to another program.
        tl.store(y_ptr + offs_n, y, mask=mask)


# ## Backward
#
# What does the gradient need? Only the probabilities that forward returned and the upstream gradient, `dy`, the
# derivative of the loss with respect to each of them. The scores `x` don't have to be kept.
#
# Again one program takes one row, in two passes. The first computes the dot product of the row of `dy` with the row of
# `y`. The second computes [[tag: SM-x]].
@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, N, stride_dym, BLOCK_N: tl.constexpr):  # (M, N), y and dx contiguous
    # Which row is mine, and where does it begin? As above. The rows of `dy` may be any distance apart, even zero: if
    # the loss uses `y.sum(0)`, every row gets the same upstream gradient, and PyTorch stores it only once.
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * stride_dym
    y_ptr += row * N
    dx_ptr += row * N

    # First pass. There is no maximum here, only a sum, so `other` can be zero, which adds nothing.
    dot = 0.0
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = offs_n < N
        # A positive `dy` means that less of this probability would lower the loss. In the first row of the example that
        # is true of the second one: `pid=0, start=0: dy = [0, 1, 0, 0]`. More of the fifth, in the first lane of the
        # second chunk, would lower it: `start=4: dy = [-1, 0, 0, 0]`.
        dy = tl.load(dy_ptr + offs_n, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + offs_n, mask=mask, other=0.0).to(tl.float32)
        # `dy * y` multiplies lane by lane, `tl.sum` adds up the lanes. After the last chunk: `start=4: dot = -0.390`.
        dot += tl.sum(dy * y, axis=0)

    # Second pass. Each element gets its own `dy` minus that number, times its probability: `start=0: dx = [0.012,
    # 0.315, 0.033, 0.004]` and `start=4: dx = [-0.376, 0.012, 0, 0]`. A row adds up to zero, as it must: a number added
    # to all scores changes no probability.
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = offs_n < N
        dy = tl.load(dy_ptr + offs_n, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + offs_n, mask=mask, other=0.0).to(tl.float32)
        dx = y * (dy - dot)
        tl.store(dx_ptr + offs_n, dx, mask=mask)


# ## Launchers
#
# The grid `(M,)` is one program for each of `M` rows. `as_rows` turns a tensor with any number of dimensions into a
# matrix. It copies only what the kernel can't read in place: rows whose elements aren't neighbours, as in a transposed
# matrix. The kernels write contiguous rows, so the result is explicitly allocated as contiguous; by default,
# `empty_like` of a transposed matrix is transposed too. The backward kernel relies on that: it has to be given the
# contiguous `y` that forward returned.
#
# How large is a chunk? The number of lanes in a block must be a power of two. The smallest one that holds the row
# leaves less than half of the lanes idle. The limit is 4096: divided among 128 threads that is 32 elements for each,
# which easily fit in its registers. A caller may pass another size; `None` leaves the choice to `block_size`.
def block_size(N):
    return min(triton.next_power_of_2(N), 4096)


@replayed
def softmax_forward(x, *, BLOCK_N=None):
    """Softmax over the last dimension. BLOCK_N: columns in a chunk, a power of two; None: as many as suit the row."""
    checks.power_of_two(BLOCK_N=BLOCK_N)
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    if x.numel():
        rows = as_rows(x)
        M, N = rows.shape
        softmax_forward_kernel[(M,)](rows, y, N, rows.stride(0), BLOCK_N=BLOCK_N or block_size(N))
    return y


@replayed
def softmax_backward(dy, y, *, BLOCK_N=None):
    """The gradient for `x`. dy: upstream gradient, any strides. y: what the forward pass returned, contiguous."""
    checks.power_of_two(BLOCK_N=BLOCK_N)
    dx = torch.empty_like(y, memory_format=torch.contiguous_format)
    if y.numel():
        rows = as_rows(dy)
        M, N = rows.shape
        softmax_backward_kernel[(M,)](rows, y, dx, N, rows.stride(0), BLOCK_N=BLOCK_N or block_size(N))
    return dx


# ## Joining autograd
#
# The output is saved for the backward pass. `save_for_backward` also notes how often it has been written to: if
# somebody overwrites it before the backward pass, autograd raises. `once_differentiable` makes a second derivative
# raise too, instead of silently losing a term.
#
# The two launchers are arguments: the fast version uses the same `Function` with launchers of its own.
class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, launch_forward, launch_backward):
        y = launch_forward(x)
        ctx.save_for_backward(y)
        ctx.launch_backward = launch_backward
        return y

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return ctx.launch_backward(dy, y), None, None


@replayed
def softmax(x):
    """Softmax over the last dimension, differentiable.

    Don't put it before a loss that applies softmax itself, such as `torch.nn.functional.cross_entropy`.

    Args:
        x: tensor of shape (..., N), N below 2³¹ − 2¹⁴, float32, float16 or bfloat16, any strides.

    Returns:
        A new tensor of the shape and dtype of `x`; each row adds up to one.

    Raises:
        TypeError: `x` isn't a tensor, or its dtype isn't allowed.
        ValueError: `x` has no dimension, or too long a row, or is on the wrong device.

    Source: Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018).
    """
    rows_contract(x)  # wrong arguments raise here, before anything is launched
    if not autograd.needs_frame(x):  # no gradient needed: skip autograd's overhead
        return softmax_forward(x)
    return Softmax.apply(x, softmax_forward, softmax_backward)


# ## A run small enough to watch
#
# Three rows of six scores, cut out of rows of eight, in chunks of four. The second row begins with a whole chunk of
# scores that are ruled out. The 99s are not part of `x`: a kernel that reads past the end of a row, or uses a wrong
# stride, meets one of them, and its result gives it away.
def EXAMPLE():
    no = -float("inf")
    x = [[1, 3, 2, 0, 4, 1, 99, 99], [no, no, no, no, 2, 2, 99, 99], [0, -1, 5, -2, 3, 1, 99, 99]]
    dy = [[0, 1, 0, 0, -1, 0], [1, 0, 0, 0, 0, 1], [2, 0, 1, 0, 0, -1]]
    y = softmax_forward(torch.tensor(x, device=device.DEVICE)[:, :6], BLOCK_N=4)
    softmax_backward(torch.tensor(dy, dtype=torch.float32, device=device.DEVICE), y, BLOCK_N=4)


if __name__ == "__main__":
    script.main(softmax, softmax_reference, pytorch=lambda x: torch.softmax(x, -1))
