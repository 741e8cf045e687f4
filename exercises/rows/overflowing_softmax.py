"""# Infinity over infinity

`softmax(x)` passes every test with small numbers. After hours of training it gives NaN. Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, N, stride, BLOCK_N: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK_N)
    mask = columns < N
    x = tl.load(x_ptr + row * stride + columns, mask=mask, other=-float("inf"))
    # <<<
    e = tl.exp(x - tl.max(x, axis=0))
    # ===
    # e = tl.exp(x)
    # >>>
    tl.store(y_ptr + row * N + columns, e / tl.sum(e, axis=0), mask=mask)


def softmax(x):
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    softmax_kernel[(x.shape[0],)](x, y, x.shape[1], x.stride(0), BLOCK_N=triton.next_power_of_2(x.shape[1]))
    return y


# %% checks
PAGE = "learn/softmax.py"
KIND = "find the bug"
ORDER = 2
HINTS = (
    "What is the exponential of 89 in float32?",
    "A quotient doesn't change if numerator and denominator are divided by the same number.",
)
WHY = """Subtract the row's maximum first; it cancels in the quotient, and the largest exponential is 1. It is an
exhibit of the [museum of bugs](../../docs/guides/debugging.md#7-infinity-over-infinity)."""


def check(t):
    def want(x):
        return x.softmax(1)

    t.compare("small scores", "softmax", want, t.cut(2, 5), name="y")
    t.compare("scores near 1000", "softmax", want, t.values(2, 5) + 1000, name="y")
    t.compare("scores near -1000", "softmax", want, t.values(1, 5) - 1000, name="y")
    t.compare("scores far apart", "softmax", want, t.values(2, 6, scale=1e3), name="y")
    for columns in t.sizes(32):
        t.compare(f"2 x {columns}", "softmax", want, t.cut(2, columns, scale=9.0), name="y")
    t.compare("40 x 3", "softmax", want, t.cut(40, 3), name="y")
    t.compare("rows cut out of wider ones", "softmax", want, t.cut(3, t.random.randint(2, 12), scale=9.0), name="y")


WRONG = (
    ("scores near 1000: y[0, 0] is nan",),
    (
        "scores near 1000: y[0, 0] is",
        "e = tl.exp(tl.minimum(x, 80.0))",
    ),
    (
        "scores near -1000: y[0, 0] is nan",
        "e = tl.exp(x - tl.maximum(tl.max(x, axis=0), 0.0))",
    ),
    (
        "is nan",
        "e = tl.exp(x - tl.sum(tl.where(mask, x, 0.0), axis=0) / N)",
    ),
    (
        "small scores: y[0, 0] is",
        "e = tl.exp(x / tl.max(x, axis=0))",
    ),
    (
        "NaN in x",
        "    e = tl.exp(x - tl.max(x, axis=0))",
        "    e = tl.exp(x - tl.max(x, axis=0))\n    e = tl.where(e == e, e, 0.0)",
    ),
)
RIGHT = (
    ("largest = tl.max(x, axis=0)\ne = tl.exp(x - largest)",),
    ("x = x - tl.max(x, axis=0)\ne = tl.exp(x)",),
)
