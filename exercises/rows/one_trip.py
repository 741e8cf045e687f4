"""# Load the row once

`spread(x)` gives the difference between the largest and the smallest number of each row. It loads the row
twice. Make it load each number once. `tl.min` takes the smallest of a block, as `tl.max` takes the largest.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def spread_kernel(x_ptr, out_ptr, N, stride, BLOCK_N: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK_N)
    mask = columns < N
    # <<<
    x = tl.load(x_ptr + row * stride + columns, mask=mask, other=-float("inf"))
    largest = tl.max(x, axis=0)
    smallest = tl.min(tl.where(mask, x, float("inf")), axis=0)
    # ===
    # largest = tl.max(tl.load(x_ptr + row * stride + columns, mask=mask, other=-float("inf")), axis=0)
    # smallest = tl.min(tl.load(x_ptr + row * stride + columns, mask=mask, other=float("inf")), axis=0)
    # >>>
    tl.store(out_ptr + row, largest - smallest)


def spread(x):
    out = torch.empty(x.shape[0], device=x.device)
    spread_kernel[(x.shape[0],)](x, out, x.shape[1], x.stride(0), BLOCK_N=triton.next_power_of_2(x.shape[1]))
    return out


# %% checks
PAGE = "kernels/tutorials/softmax.md"
KIND = "read fewer bytes"
ORDER = 9
HINTS = (
    "Keep the block that was loaded in a variable, and reduce it twice.",
    "What masked lanes hold is right for one of the two reductions only. `tl.where(mask, x, …)` gives "
    "them another value.",
)
WHY = """What is in a variable is in registers, and reading it again costs nothing. Only the masked lanes need another
neutral value for each reduction."""


def check(t):
    def want(x):
        return x.amax(1) - x.amin(1)

    def moved(x, by):
        return t.surrounded((x + by).flatten()).view(*x.shape)

    no_nan = ("a NaN",)  # on a GPU the largest and the smallest of a block pass it by
    for case, x in (
        ("1 x 1", t.values(1, 1)),
        ("2 x 5, all above 10", moved(t.values(2, 5), 14)),
        ("2 x 5, all below -10", moved(t.values(2, 5), -14)),
        ("2 x 5, all above 1e36", moved(t.values(2, 5, scale=1e36), 5e36)),
        ("2 x 5, all below -1e36", moved(t.values(2, 5, scale=1e36), -5e36)),
        *((f"2 x {columns}", t.values(2, columns)) for columns in t.sizes(32)),
        ("40 x 3", t.values(40, 3)),
    ):
        run = t.compare(case, "spread", want, x, spare=no_nan)
        t.traffic(case, run, read=4 * x.numel(), written=4 * x.shape[0])


WRONG = (
    (
        "2 x 5, all above 1e36: out[0] is",
        'tl.where(mask, x, float("inf"))',
        "tl.where(mask, x, 1000.0)",
    ),
    ("1 x 1: 8 bytes are read, 4 are enough (an element is 4 bytes): x_ptr[0, 0] is loaded 2 times",),
    (
        "2 x 5, all above 10: out[0] is",
        'tl.min(tl.where(mask, x, float("inf")), axis=0)',
        "tl.min(x, axis=0)",
    ),
    (
        "2 x 5, all above 10: out[0] is",
        'tl.min(tl.where(mask, x, float("inf")), axis=0)',
        "tl.min(tl.where(mask, x, 0.0), axis=0)",
    ),
    (
        "2 x 5, all below -10: out[0] is",
        'other=-float("inf"))',
        "other=0.0)",
    ),
    (
        "A lane that is masked off holds anything if its load has no `other`: here 1e+30",
        ', other=-float("inf"))',
        ")",
        'tl.min(tl.where(mask, x, float("inf")), axis=0)',
        "tl.min(x, axis=0)",
    ),
)
RIGHT = (
    (
        'tl.min(tl.where(mask, x, float("inf")), axis=0)',
        '-tl.max(tl.where(mask, -x, -float("inf")), axis=0)',
    ),
    (
        "x = tl.load(x_ptr + row * stride + columns, mask=mask, other=0.0)\n"
        'largest = tl.max(tl.where(mask, x, -float("inf")), axis=0)\n'
        'smallest = tl.min(tl.where(mask, x, float("inf")), axis=0)',
    ),
)
