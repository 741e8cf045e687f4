"""# Without the element itself

`exclusive(x)` gives each of up to 64 float32 numbers the sum of those before it. It launches a kernel for the running
sum, and another one that subtracts the element again: three vectors read and two written. Do it in one kernel that
reads every element once, and don't subtract anything.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


# <<<
@triton.jit
def exclusive_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs - 1, mask=(offs >= 1) & (offs < n), other=0.0)
    tl.store(y_ptr + offs, tl.cumsum(x, axis=0), mask=offs < n)


def exclusive(x):
    y = torch.empty_like(x)
    exclusive_kernel[(1,)](x, y, len(x), BLOCK=64)
    return y


# ===
# @triton.jit
# def running_sum_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
#     offs = tl.arange(0, BLOCK)
#     x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)
#     tl.store(y_ptr + offs, tl.cumsum(x, axis=0), mask=offs < n)
#
#
# @triton.jit
# def subtract_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
#     offs = tl.arange(0, BLOCK)
#     x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)
#     y = tl.load(y_ptr + offs, mask=offs < n, other=0.0)
#     tl.store(y_ptr + offs, y - x, mask=offs < n)
#
#
# def exclusive(x):
#     y = torch.empty_like(x)
#     running_sum_kernel[(1,)](x, y, len(x), BLOCK=64)
#     subtract_kernel[(1,)](x, y, len(x), BLOCK=64)
#     return y
# >>>

# %% checks
PAGE = "kernels/recurrences/cumsum.md"
KIND = "read fewer bytes"
ORDER = 4
HINTS = (
    "An exclusive sum is the running sum of a vector that was moved by one place.",
    "Which element should lane 3 load? And lane 0?",
    "`x_ptr + offs - 1`, with a mask that leaves out lane 0: there `other=0.0` stands.",
)
WHY = """Moving the load by one place reads not a byte more, and no digits get lost: a sum that contains a large number
can't be turned back into one that doesn't."""


def check(t):
    def want(x):
        return torch.cat([torch.zeros_like(x[:1]), torch.cumsum(x, 0)[:-1]])

    for n in (5, 64, *t.sizes(32, most=64)):
        run = t.compare(f"{n} numbers", "exclusive", want, t.values(n))
        t.traffic(f"{n} numbers", run, read=4 * n, written=4 * n)
    x = t.positive(9)
    x[8] = float("inf")
    t.compare("infinity at the end", "exclusive", want, x, note="No sum contains the last element.")


WRONG = (
    ("5 numbers: 60 bytes are read, 20 are enough",),
    (
        "5 numbers: out[0] is",
        "x_ptr + offs - 1, mask=(offs >= 1) & (offs < n)",
        "x_ptr + offs, mask=offs < n",
    ),
    (
        "infinity at the end: out[8] is nan",
        "x = tl.load(x_ptr + offs - 1, mask=(offs >= 1) & (offs < n), other=0.0)",
        "x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)",
        "tl.cumsum(x, axis=0), mask",
        "tl.cumsum(x, axis=0) - x, mask",
    ),
    ("large number", "cumsum(x, axis=", "minimum(tl.cumsum(x, axis=0), 1000."),
)
RIGHT = (
    (
        "x_ptr + offs - 1, mask=(offs >= 1) & (offs < n)",
        "x_ptr + (offs - 1), mask=(offs > 0) & (offs <= n)",
    ),
    (
        "tl.cumsum(x, axis=0), mask",
        "tl.cumsum(x, 0), mask",
    ),
)
