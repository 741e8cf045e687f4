"""# Back through a division by the sum

`back(d, a)` is one half of a round, backward. Each row of `a` is what came out of a division of a row by its sum, and
each row of `d` the gradient of its **logarithm**. The kernel is to return the gradient of the logarithm of what went
in. Write the last line.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def back_kernel(d_ptr, a_ptr, out_ptr, N, stride_d, stride_a, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    mask = offs < N
    d = tl.load(d_ptr + row * stride_d + offs, mask=mask, other=0.0)
    a = tl.load(a_ptr + row * stride_a + offs, mask=mask)
    # <<<
    before = d - a * tl.sum(d, axis=0)
    # ===
    # before = d  # your code here
    # >>>
    tl.store(out_ptr + row * N + offs, before, mask=mask)


def back(d, a):
    out = torch.empty(d.shape, device=d.device)
    BLOCK = triton.next_power_of_2(d.shape[1])
    back_kernel[(d.shape[0],)](d, a, out, d.shape[1], d.stride(0), a.stride(0), BLOCK=BLOCK)
    return out


# %% checks
PAGE = "kernels/model/sinkhorn.md"
KIND = "fill in"
ORDER = 2
HINTS = (
    "In logarithms a division is a difference: log a = log b − log of the sum of all b.",
    "If log b goes up by a little, how much does the logarithm of the sum go up? By the entry's share of the sum, a.",
    "The sum is in every entry of the row, so what all of them get together, `tl.sum(d)`, goes back through it.",
)
WHY = """Each entry loses its share of what the whole row gets, so what comes back adds up to 0 over a row. The shares
are the ones *after* the division. It is the gradient of log-softmax, used 40 times in twenty rounds: for rows, and for
columns."""


def check(t):
    def want(d, a):
        return d - a * d.sum(1, keepdim=True)

    mistakes = {
        lambda d, a: d: "The sum has a part in every entry, and what comes back through it is missing.",
        lambda d, a: a * (d - (a * d).sum(1, keepdim=True)): "That is for gradients of the numbers, not of logarithms.",
        lambda d, a: d - (a * d).sum(1, keepdim=True): "All of d goes back through the sum, to each by its share.",
    }
    for rows, columns in ((1, 4), (3, 3), (2, 8), (4, t.random.randint(5, 30))):
        shares = t.positive(rows, columns)
        shares /= shares.sum(1, keepdim=True)
        given = t.cut(rows, columns), shares
        t.compare(f"{rows} x {columns}", "back", want, *given, mistakes=mistakes, spare=("* in a",))
    even = t.positive(2, 4) * 0 + 0.25
    t.compare("equal shares", "back", want, t.cut(2, 4), even, spare=("* in a",))


WRONG = (
    ("what comes back through it is missing",),
    ("not of logarithms", "d - a * tl.sum(d, axis=0)", "a * (d - tl.sum(tl.where(mask, d * a, 0.0), axis=0))"),
    ("1 x 4: out[0, 0] is", "d - a * tl.sum(d, axis=0)", "d - a * tl.sum(d * a, axis=0)"),
    ("1 x 4: out[0, 0] is", "d - a * tl.sum(d, axis=0)", "a * (d - tl.sum(d, axis=0))"),
    ("1 x 4: out[0, 0] is", "d - a * tl.sum(d, axis=0)", "d - tl.sum(d, axis=0) / N"),
)
RIGHT = (
    ("together = tl.sum(d, axis=0)\nbefore = d - together * a",),
    ("before = -(a * tl.sum(d, axis=0)) + d",),
)
