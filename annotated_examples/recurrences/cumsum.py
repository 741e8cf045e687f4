r"""
# A running sum: what everyone waits for

Element $t$ of a running sum is the sum of everything up to $t$:

[[eq: CS]]

It looks like the one thing a GPU can't do. Each result is the one before it plus a number, [[tag: CS-step]], so each
has to wait for all before it. It doesn't, because sums may be grouped. A **scan** adds to every element the one next to
it, then the one two places away, then four: eight elements take three rounds, and all additions of a round are made at
the same time.

[[figure: recurrences/tree]]

Positions of tokens in packed sequences, offsets of the experts' rows, the cumulative probabilities of top-p sampling
and the summed gates of linear attention are running sums. Two variants are as frequent. An *exclusive* sum leaves the
element itself out, [[tag: CS-exclusive]], and a *reverse* one runs from the end, [[tag: CS-reverse]]. The gradient is
one of them: $x_s$ is in every sum from $s$ on, so its gradient is the running sum of the upstream gradient **from the
end**, [[tag: CS-dx]].

**What it costs.** Each element is read once and written once, with about one addition for each round of the scan, so
the floor is the time of a copy. With 8192 rows of 32000 forward reaches
[[bench: cumsum/8192x32000/forward/lesson.share]] of its speed, and backward
[[bench: cumsum/8192x32000/backward/lesson.share]]. One program takes a whole row: a tensor with few, long rows keeps
few SMs busy, and then the time is that of one program walking.

**Contract.** `x` is float32, float16 or bfloat16, with any shape and any strides. The dimension that is summed may have
any length below 2³¹ − 2¹⁴. If it isn't the last, or its elements aren't neighbours, it is copied first. The result has
the dtype of `x`; all sums are float32 and are rounded once. A NaN or an infinity reaches exactly the sums that it is a
part of, as in PyTorch. The same call gives the same bits.
"""

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch
import triton
import triton.language as tl

from annotated_examples.common.carried import carry_on
from annotated_examples.common.custom_operator import opaque
from annotated_examples.common.rows import as_rows, rows_contract


# ## Reference
#
# In PyTorch. A running sum of 16-bit numbers has to be kept in 32 bits: bfloat16 has eight significant bits, so a sum
# of ones would stop growing at 256. An exclusive sum is the sum of the elements moved on by one place, with a zero in
# front.
#
# Why isn't it the inclusive sum minus the element? Before the last of 1, 1 and 10⁸ the sum is 2. But float32 rounds
# 100000002 to 10⁸, and minus 10⁸ that is 0; and an infinity minus itself is NaN.
def cumsum_reference(x, dim=-1, *, reverse=False, exclusive=False):
    x = x.flip(dim) if reverse else x
    if exclusive and x.shape[dim] > 0:
        x = x.roll(1, dim).index_fill(dim, torch.zeros(1, dtype=torch.int64, device=x.device), 0)
    y = x.cumsum(dim, dtype=torch.promote_types(x.dtype, torch.float32)).to(x.dtype)
    return y.flip(dim) if reverse else y


# ## The kernel
#
# One kernel for all four variants and for their gradients. One program takes one row, in chunks of `BLOCK_N` columns.
# Inside a chunk `tl.cumsum` does the rounds. Between chunks a single number is enough, the **carry**: the sum of
# everything in the chunks before, [[tag: CS-chunk]].
#
# The numbers in the notes come from a recorded run: two rows of 6 columns, in chunks of 4. The first row is 3, 1, 4, 1,
# 5, 9. The first call is a plain sum.
@triton.jit
def cumsum_kernel(
    x_ptr, y_ptr,  # (M, N)
    N, stride_xm, REVERSE: tl.constexpr, EXCLUSIVE: tl.constexpr, BLOCK_N: tl.constexpr
):  # fmt: skip
    # My row, in 64 bits: its number times a stride may exceed 2³¹.
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_xm
    y_ptr += row * N

    # A decimal point makes the carry a float32, and it stays one. In the dtype of `x` it would lose what a chunk adds.
    carry = 0.0
    lost = 0.0
    for done in range(0, N, BLOCK_N):
        # Sums from the end walk from the end: the last chunk comes first, and it is the one that isn't full. The third
        # call begins at `launch=2, pid=0, done=0: start = 4`.
        start = (N - 1) // BLOCK_N * BLOCK_N - done if REVERSE else done
        offs_n = start + tl.arange(0, BLOCK_N)
        # An exclusive sum is the sum of a row that was moved by one place, so each lane loads its neighbour:
        # `launch=1, pid=0, done=4: taken = [3, 4, 5, 6]`. Nothing is subtracted.
        taken = (offs_n + 1 if REVERSE else offs_n - 1) if EXCLUSIVE else offs_n
        # Lanes outside of the row read 0, which adds nothing. The sums below run over **all** lanes:
        # `pid=0, done=4: x = [5, 9, 0, 0]`. In an exclusive sum the first lane has no neighbour, `launch=1, pid=0,
        # done=0: x = [0, 3, 1, 4]`.
        x = tl.load(x_ptr + taken, mask=(taken >= 0) & (taken < N), other=0.0).to(tl.float32)
        # **The scan.** `tl.cumsum` gives each lane the sum of all lanes up to it, or from it on if `reverse` is set.
        # The first chunk makes `pid=0, done=0: y = [3, 4, 8, 9]`. In the second 9 is added to every lane: `pid=0,
        # done=4: y[:2] = [14, 23]`.
        y = carry + (lost + tl.cumsum(x, axis=0, reverse=REVERSE))
        tl.store(y_ptr + offs_n, y, mask=offs_n < N)
        # The next chunk starts from here, `pid=0, done=0: carry = 9`. Why add up the chunk again, when the last lane of
        # `y` has that sum? That lane lies in one thread, and all threads need the number. A sum over all lanes reaches
        # every thread. What rounding takes from the carry is [kept](../common/carried.py): otherwise the errors of all
        # chunks would pile up in a long row.
        carry, rounded = carry_on(carry, tl.sum(x, axis=0))
        lost += rounded


# ## The launcher
#
# `movedim` brings the dimension to the end. `as_rows` makes it a matrix with neighbouring columns and copies if it has
# to. The result is moved back and made contiguous.
#
# Divided among 128 threads, chunks of 1024 are 8 neighbouring elements for each. In PyTorch 2.11 `torch.compile`
# misreads kernels that scan; `opaque` tells it what comes out.
@opaque(
    "(Tensor x, int dim, bool reverse, bool exclusive) -> Tensor",
    lambda x, dim=-1, reverse=False, exclusive=False: torch.empty(x.shape, dtype=x.dtype, device=x.device),
)
def cumsum_forward(x, dim=-1, reverse=False, exclusive=False, *, BLOCK_N=1024):
    """The running sum along `dim`. BLOCK_N: elements of a chunk, a power of two."""
    checks.power_of_two(BLOCK_N=BLOCK_N)
    moved = x.movedim(dim, -1)
    y = torch.empty_like(moved, memory_format=torch.contiguous_format)
    if y.numel() > 0:
        rows = as_rows(moved)
        M, N = rows.shape
        cumsum_kernel[(M,)](rows, y, N, rows.stride(0), REVERSE=reverse, EXCLUSIVE=exclusive, BLOCK_N=BLOCK_N)
    return y.movedim(-1, dim).contiguous()


# Backward is the same, the other way round: [[tag: CS-dx]] of a plain sum, [[tag: CS-exclusive-dx]] of an exclusive
# one, which stays exclusive, [[tag: CS-reverse-dx]] of one from the end. In the example the upstream gradient of the
# first row is 1, 0, 2, 0, 1, 1. Its last chunk comes first, `cumsum_kernel, launch=2, pid=0, done=0: y[:2] = [2, 1]`,
# and then `cumsum_kernel, launch=2, pid=0, done=4: y = [5, 4, 4, 2]`.
def cumsum_backward(dy, dim=-1, reverse=False, exclusive=False, *, BLOCK_N=1024):
    """The gradient for `x`. dy: upstream gradient, any strides (also 0). The others: as in the forward pass."""
    return cumsum_forward(dy, dim, not reverse, exclusive, BLOCK_N=BLOCK_N)


# ## Checking the arguments
def contract(x, dim, reverse, exclusive):
    checks.tensors(x=x)
    checks.dtypes(x=x)
    checks.dimensions("x", x, range(1, 65), "it is summed along one of them")
    checks.whole_number("dim", dim)
    if not -x.dim() <= dim < x.dim():
        raise IndexError(
            f"dim must be from {-x.dim()} to {x.dim() - 1} for a tensor of {x.dim()} dimensions, got {dim}"
        )
    checks.choice("reverse", reverse, (True, False))
    checks.choice("exclusive", exclusive, (True, False))
    rows_contract(x.movedim(dim, -1))


# ## Joining autograd
#
# Nothing of `x` is needed for the gradient, so nothing is saved. The two launchers are arguments: the fast version uses
# the same `Function` with launchers of its own.
class Cumsum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim, reverse, exclusive, launch_forward, launch_backward):
        ctx.options, ctx.launch_backward = (dim, reverse, exclusive), launch_backward
        return launch_forward(x, dim, reverse, exclusive)

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dy):
        return ctx.launch_backward(dy, *ctx.options), None, None, None, None, None


@replayed
def cumsum(x, dim=-1, *, reverse=False, exclusive=False):
    """The running sum along a dimension, differentiable.

    Args:
        x: tensor of at least one dimension, float32, float16 or bfloat16, any strides.
        dim: the dimension that is summed, shorter than 2³¹ − 2¹⁴.
        reverse: sum from the end: each element and what comes after it.
        exclusive: leave the element itself out, so that the first sum (in reverse, the last) is 0.

    Returns:
        A new tensor of the shape and dtype of `x`. Sums are formed in float32.

    Raises:
        TypeError: `x` isn't a tensor, its dtype isn't allowed, or `dim` isn't a whole number.
        ValueError: `x` has no dimension, or too long a one, or is on the wrong device; an option is no bool.
        IndexError: `x` has no dimension `dim`.

    Source: Blelloch, "Prefix Sums and Their Applications" (1990).
    """
    contract(x, dim, reverse, exclusive)
    if not autograd.needs_frame(x):
        return cumsum_forward(x, dim, reverse, exclusive)
    return Cumsum.apply(x, dim, reverse, exclusive, cumsum_forward, cumsum_backward)


# ## A run small enough to watch
#
# Two rows of six, cut out of rows of eight, in chunks of four: a plain sum, an exclusive one, and the gradient of the
# plain one. The 99s are not part of `x`.
def EXAMPLE():
    x = torch.tensor([[3, 1, 4, 1, 5, 9, 99, 99], [2, 6, 5, 3, 5, 8, 99, 99]], device=device.DEVICE).float()[:, :6]
    dy = torch.tensor([[1, 0, 2, 0, 1, 1], [0, 0, 0, 0, 0, 1]], device=device.DEVICE).float()
    cumsum_forward(x, BLOCK_N=4)
    cumsum_forward(x, exclusive=True, BLOCK_N=4)
    cumsum_backward(dy, BLOCK_N=4)


if __name__ == "__main__":
    script.main(cumsum, cumsum_reference)
