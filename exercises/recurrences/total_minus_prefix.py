"""# The sum from the end

`sums_from_the_end(x)` computes, for each element of a vector of up to 64 float32 numbers, the sum of that element and
of all after it. For some vectors the last sums are wrong. Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def sums_from_the_end_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    # <<<
    y = tl.cumsum(x, axis=0, reverse=True)
    # ===
    # y = tl.sum(x, axis=0) - tl.cumsum(x, axis=0) + x
    # >>>
    tl.store(y_ptr + offs, y, mask=mask)


def sums_from_the_end(x):
    y = torch.empty_like(x)
    sums_from_the_end_kernel[(1,)](x, y, len(x), BLOCK=64)
    return y


# %% checks
PAGE = "kernels/recurrences/cumsum.md"
KIND = "find the bug"
ORDER = 2
HINTS = (
    "What is left of 1 in float32 after 100 million has been added to it and subtracted again?",
    "A sum that doesn't contain the large number must not be computed from one that does.",
    "`tl.cumsum` takes `reverse=True`.",
)
WHY = """The total minus the sum before is the same number only in exact arithmetic. After an infinity nothing is left
of it at all. This was a bug of a library for linear attention, in the sums of its gates."""


def check(t):
    def want(x):
        return torch.cumsum(x.flip(0), 0).flip(0)

    for n in (7, 64, *t.sizes(32, most=64)):
        t.compare(f"{n} numbers", "sums_from_the_end", want, t.values(n))
    note = "The last sums don't contain the large first number."
    n = t.random.randint(8, 12)
    large = t.positive(n)
    large[0] = 1e8
    t.compare("100 million in front", "sums_from_the_end", want, large, note=note)
    infinite = t.positive(n)
    infinite[0] = float("inf")
    t.compare("infinity in front", "sums_from_the_end", want, infinite, note=note)
    for kind, last in (("100 million", 1e8), ("infinity", float("inf"))):
        x = t.positive(n)
        x[n // 2] = last
        y = t.answer.run("sums_from_the_end", (x,)).result
        exact = want(x.double())
        close = (y - exact).abs()[n // 2 + 1 :].max() < 1e-4
        t.require(bool(close), f"sums after the large number are {y[n // 2 + 1 :].tolist()}", f"{kind} in the middle")


WRONG = (
    ("infinity in front: out[0] is nan",),
    (
        "7 numbers: out[0] is",
        "y = tl.cumsum(x, axis=0)",
    ),
    (
        "7 numbers: out[0] is",
        "y = tl.sum(x, axis=0) - tl.cumsum(x, axis=0)",
    ),
)
RIGHT = (
    ("y = tl.flip(tl.cumsum(tl.flip(x, 0), axis=0), 0)",),
    ("y = tl.cumsum(x, 0, reverse=True)",),
)
