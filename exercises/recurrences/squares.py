"""# Squares that grow

`inverse(a)` returns the inverse of `I + A`, for a matrix `A` with zeros on and above its diagonal. It multiplies
`I - A` by `I + A²`, by `I + A⁴` and so on, which is right on paper: the squares end at 0. With random small numbers it
is right here as well. With keys that are alike it returns garbage, though every number of the inverse lies between −1
and 1. Find out which numbers get too large on the way, and find the inverse without them.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def inverse_kernel(a_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    rows, columns = i[:, None], i[None, :]
    mask = (rows < n) & (columns < n)
    a = tl.load(a_ptr + rows * n + columns, mask=mask, other=0.0)
    inverse = tl.where(rows == columns, 1.0, 0.0)
    # <<<
    for r in range(1, n):
        weights = tl.sum(tl.where(rows == r, a, 0.0), axis=0)
        taken = tl.sum(weights[:, None] * inverse, axis=0)
        inverse -= tl.where(rows == r, taken[None, :], 0.0)
    # ===
    # inverse -= a
    # square = a
    # for _ in range(5):
    #     square = tl.dot(square, square, input_precision="ieee")
    #     inverse += tl.dot(inverse, square, input_precision="ieee")
    # >>>
    tl.store(out_ptr + rows * n + columns, inverse, mask=mask)


def inverse(a):
    n = a.shape[0]
    out = torch.empty_like(a)
    inverse_kernel[(1,)](a, out, n, BLOCK=max(16, triton.next_power_of_2(n)))
    return out


# %% checks
PAGE = "kernels/recurrences/gated_delta_rule.md"
KIND = "find the bug"
ORDER = 3
HINTS = (
    "Take `A` with ones everywhere below the diagonal. Its square has the number of ways from one row to another in "
    "two steps. How many ways are there in 16 steps?",
    "The large numbers cancel in the end, on paper. Next to 10¹⁶, float32 numbers are 10⁹ apart.",
    "Forward substitution has one step for each row: row r of the inverse is that of the identity, less `a[r, j]` "
    "times row j, for every j < r.",
)
WHY = """Powers of a triangle of ones are binomial numbers: with 60 rows they grow beyond 10¹⁶ and cancel again, and
float32 loses them on the way. Substitution makes the inverse's own rows, a step for each. The lesson takes a step for
each doubling: from the inverses of two blocks on the diagonal it makes that of both."""


def check(t):
    import torch

    def want(a):
        n = len(a)
        rows = []
        for r in range(n):
            row = torch.zeros(n, dtype=a.dtype)
            row[r] = 1.0
            for j in range(r):
                row = row - a[r, j] * rows[j]
            rows.append(row)
        return torch.stack(rows)

    finite = ("a NaN", "an infinity", "minus infinity")  # times 0 they are NaN in rows that have none
    t.compare("4 tokens", "inverse", want, torch.tril(t.values(4, 4), -1) / 8, name="inverse", spare=finite)
    t.compare("17 tokens", "inverse", want, torch.tril(t.values(17, 17), -1) / 8, name="inverse", spare=("*",))
    n = t.random.randint(57, 61)
    alike = torch.tril(0.0 * t.values(n, n) + 1.0, -1)
    t.compare(f"{n} tokens with the same key", "inverse", want, alike, name="inverse", spare=("*",))


WRONG = (
    ("tokens with the same key: inverse[",),
    ("4 tokens: inverse[", "inverse -= a"),
    (
        "tokens with the same key: inverse[",
        "inverse -= a\nsquare = tl.dot(a, a, input_precision='ieee')\nfor _ in range(5):\n"
        "    inverse += tl.dot(inverse, square, input_precision='ieee')\n"
        "    square = tl.dot(square, square, input_precision='ieee')",
    ),
    (
        "4 tokens: inverse[",
        "for r in range(1, n):\n"
        "    weights = tl.sum(tl.where(rows == r, a, 0.0), axis=0)\n"
        "    inverse -= tl.where(rows == r, weights[None, :], 0.0)",
    ),
)
RIGHT = (
    (
        "for r in range(1, n):\n"
        "    weights = tl.sum(tl.where(rows == r, a, 0.0), axis=0)\n"
        "    taken = tl.sum(weights[:, None] * inverse, axis=0)\n"
        "    inverse = tl.where(rows == r, inverse - taken[None, :], inverse)",
    ),
    (
        "for r in range(1, n):\n"
        "    row = tl.sum(tl.where(rows == r, a, 0.0), axis=0)\n"
        "    inverse = inverse - tl.where(rows == r, tl.sum(inverse * row[:, None], axis=0)[None, :], 0.0)",
    ),
)
