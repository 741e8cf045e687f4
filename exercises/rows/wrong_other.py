"""# The zero that wins a maximum

`row_max(x)` returns the largest number of each row. For most inputs it is right. Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def row_max_kernel(x_ptr, out_ptr, N, stride, BLOCK_N: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK_N)
    # <<<
    x = tl.load(x_ptr + row * stride + columns, mask=columns < N, other=-float("inf"))
    # ===
    # x = tl.load(x_ptr + row * stride + columns, mask=columns < N, other=0.0)
    # >>>
    tl.store(out_ptr + row, tl.max(x, axis=0))


def row_max(x):
    out = torch.empty(x.shape[0], device=x.device)
    row_max_kernel[(x.shape[0],)](x, out, x.shape[1], x.stride(0), BLOCK_N=triton.next_power_of_2(x.shape[1]))
    return out


# %% checks
PAGE = "learn/softmax.py"
KIND = "find the bug"
ORDER = 1
HINTS = (
    "What is the result for a row of -3, -1 and -2?",
    "The block has four lanes. What does the fourth one read?",
    'Which number never changes a maximum? In a kernel it is written `-float("inf")`.',
)
WHY = """For each reduction, ask which value doesn't change its result: 0 for a sum, minus infinity for a maximum. It
is an exhibit of the [museum of bugs](../../docs/guides/debugging.md#3-the-zero-that-wins-a-maximum)."""


def check(t):
    def want(x):
        return x.amax(1)

    no_nan = ("a NaN",)  # on a GPU the largest of a block passes it by
    t.compare("2 x 8", "row_max", want, t.values(2, 8), spare=no_nan)
    t.compare(
        "3 negative numbers",
        "row_max",
        want,
        -t.values(2, 3).abs() - 1,
        note="No element is larger than that.",
        spare=no_nan,
    )
    t.compare("3 very negative numbers", "row_max", want, t.values(2, 3, scale=1e29) - 1e30, spare=no_nan)
    none = t.surrounded(torch.full((3,), -float("inf"), device=device.DEVICE)).view(1, 3)
    t.compare("a row of minus infinity", "row_max", want, none, spare=no_nan)
    low = t.surrounded(torch.full((5,), -3.4e38, device=device.DEVICE)).view(1, 5)
    t.compare("a row of -3.4e38", "row_max", want, low, spare=no_nan)
    for columns in t.sizes(32):
        t.compare(f"rows of {columns} cut out of wider ones", "row_max", want, t.cut(2, columns), spare=no_nan)
    t.compare("40 x 3", "row_max", want, t.cut(40, 3), spare=no_nan)


WRONG = (
    (
        "PyTorch computes the result",
        "    return out",
        "    return x.amax(1)",
    ),
    (
        "A lane that is masked off holds anything if its load has no `other`",
        "x = tl.load(x_ptr + row * stride + columns, mask=columns < N)",
    ),
    (
        "A lane that is masked off holds anything if its load has no `other`",
        "x = tl.load(x_ptr + row * stride + columns, mask=columns < N, other=None)",
    ),
    (
        "3 very negative numbers: out[0] is -1e+06",
        "x = tl.load(x_ptr + row * stride + columns, mask=columns < N, other=-1e6)",
    ),
    (
        "a row of minus infinity: out[0] is -3e+38, should be -inf",
        "x = tl.load(x_ptr + row * stride + columns, mask=columns < N, other=-3e38)",
    ),
    ("3 negative numbers: out[0] is 0, should be",),
    (
        "3 very negative numbers: out[0] is -1000, should be",
        "x = tl.load(x_ptr + row * stride + columns, mask=columns < N, other=-1000.0)",
    ),
    (
        "does a load outside a tensor",
        "x = tl.load(x_ptr + row * stride + columns)",
    ),
    (
        "3 negative numbers: out[0] is inf",
        'x = tl.load(x_ptr + row * stride + columns, mask=columns < N, other=float("inf"))',
    ),
)
RIGHT = (
    (
        "x = tl.load(x_ptr + row * stride + columns, mask=columns < N, other=0.0)\n"
        'x = tl.where(columns < N, x, -float("inf"))',
    ),
    ("x = tl.load(x_ptr + row * stride + tl.minimum(columns, N - 1))",),
    ('x = tl.load(x_ptr + row * stride + columns, mask=columns < N)\nx = tl.where(columns < N, x, -float("inf"))',),
)
