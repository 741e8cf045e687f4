"""# Row by row

`A` is an n by n matrix with zeros on and above its diagonal. The inverse of `I + A` is wanted. Its row 0 is that of the
identity. Each later row `r` is that of the identity, less `A[r, j]` times row `j` of the inverse, for every `j < r`.
Fill in the loop.

[[figure: chunks/corrections]]
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
    for r in range(1, n):
        # <<<
        weights = tl.sum(tl.where(rows == r, a, 0.0), axis=0)
        taken = tl.sum(weights[:, None] * inverse, axis=0)
        inverse -= tl.where(rows == r, taken[None, :], 0.0)
        # ===
        # inverse -= tl.where(rows == r, a, 0.0)
        # >>>
    tl.store(out_ptr + rows * n + columns, inverse, mask=mask)


def inverse(a):
    n = a.shape[0]
    out = torch.empty_like(a)
    inverse_kernel[(1,)](a, out, n, BLOCK=triton.next_power_of_2(n))
    return out


# %% checks
PAGE = "learn/write_the_difference.py"
KIND = "fill in"
ORDER = 2
HINTS = (
    "A block can't be indexed. A row of it is a sum over rows of which all but one are 0.",
    "`weights` is row `r` of `a`. As a column, it multiplies the rows of `inverse`; their sum is what is taken away.",
    "Rows from `r` on have no weight: `a[r, j]` is 0 there.",
)
WHY = """It is forward substitution. Row `r` needs all rows above it, so the rows come one after the other; everything
else happens at once."""


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
    for n in (1, 3, t.random.randint(5, 7)):
        t.compare(f"n = {n}", "inverse", want, torch.tril(t.values(n, n), -1), name="inverse", spare=finite)
    for n in (2, 8, 9, 17):
        t.compare(f"n = {n}", "inverse", want, torch.tril(t.values(n, n), -1) / 4, name="inverse", spare=finite)


WRONG = (
    ("n = 3: inverse[2, 0] is",),
    (
        "n = 3: inverse[",
        "weights = tl.sum(tl.where(rows == r, a, 0.0), axis=0)\ninverse -= tl.where(rows == r, weights[None, :], 0.0)",
    ),
    (
        "n = 3: inverse[1, 0] is",
        "weights = tl.sum(tl.where(rows == r, a, 0.0), axis=0)\n"
        "taken = tl.sum(weights[:, None] * inverse, axis=0)\n"
        "inverse += tl.where(rows == r, taken[None, :], 0.0)",
    ),
    (
        "n = 3: inverse[1, 0] is",
        "weights = tl.sum(tl.where(rows == r, a, 0.0), axis=1)\n"
        "taken = tl.sum(weights[:, None] * inverse, axis=0)\n"
        "inverse -= tl.where(rows == r, taken[None, :], 0.0)",
    ),
    (
        "the compiler refuses this tl.dot: it sums over 4 numbers",
        "inverse -= tl.where(rows == r, tl.dot(a, inverse, input_precision='ieee'), 0.0)",
    ),
)
RIGHT = (
    (
        "weights = tl.sum(tl.where(columns == r, tl.trans(a), 0.0), axis=1)\n"
        "taken = tl.sum(weights[:, None] * inverse, axis=0)\n"
        "inverse = tl.where(rows == r, inverse - taken[None, :], inverse)",
    ),
    (
        "weights = tl.sum(tl.where(rows == r, a, 0.0), axis=0)\n"
        "inverse = inverse - tl.where(rows == r, tl.sum(inverse * weights[:, None], axis=0)[None, :], 0.0)",
    ),
)
