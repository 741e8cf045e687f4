"""# Backwards without a copy

`matmul_forward(x, y)` is the lesson's launcher: it takes matrices with any strides. Write `gradients(dz, x, y)`, which
returns both gradients of `z = x @ y`, by calling it twice and copying nothing.
"""

# %% solution
from academy import device

import torch
import triton
import triton.language as tl

from annotated_examples.tutorials.matmul_grouped import matmul_forward


def gradients(dz, x, y):
    # <<<
    return matmul_forward(dz, y.T), matmul_forward(x.T, dz)
    # >>>


# %% checks
PAGE = "learn/l2_reuse.py"
KIND = "fill in"
ORDER = 8
HINTS = (
    "dX is dZ times the transposed Y, dY is the transposed X times dZ.",
    "`y.T` is a view: its strides are swapped, and nothing is copied.",
)
WHY = "`y.T` and `x.T` are views: only their strides are swapped. The kernel reads them in place."


def check(t):
    def want(dz, x, y):
        return dz @ y.T, x.T @ dz

    given, launcher, seen = (t.values(2, 4), t.values(2, 3), t.values(3, 4)), t.get("matmul_forward"), []
    t.module.matmul_forward = lambda a, b: (seen.extend((a, b)), launcher(a, b))[1]
    t.compare("2 x 3 times 3 x 4", "gradients", want, *given, name="dx, dy")
    t.module.matmul_forward = launcher
    copied = {matrix.data_ptr() for matrix in seen} - {matrix.data_ptr() for matrix in given}
    t.require(not copied, "matmul_forward was given a copy of a matrix; it takes any strides, so a view is enough")
    t.compare("square", "gradients", want, t.values(5, 5), t.values(5, 5), t.values(5, 5), name="dx, dy")
    t.compare("x is transposed", "gradients", want, t.values(2, 4), t.turned(2, 3), t.values(3, 4), name="dx, dy")


WRONG = (
    ("gradients launches no kernel",),
    (
        "2 x 3 times 3 x 4: dx has shape (2, 4), should have (2, 3)",
        "matmul_forward(dz, y.T)",
        "dz",
    ),
    (
        "gradients returns 1 result, not 2: dx, dy",
        "matmul_forward(dz, y.T), matmul_forward(x.T, dz)",
        "matmul_forward(dz, y.T)",
    ),
    (
        "dx[0, 0] is",
        "y.T",
        "y.reshape(y.shape[1], y.shape[0])",
    ),
    (
        "dx has shape (3, 4), should have (2, 3)",
        "matmul_forward(dz, y.T), matmul_forward(x.T, dz)",
        "matmul_forward(x.T, dz), matmul_forward(dz, y.T)",
    ),
    (
        "matmul_forward was given a copy of a matrix",
        "y.T",
        "y.T.contiguous()",
    ),
)
RIGHT = (
    ("return matmul_forward(y, dz.T).T, matmul_forward(dz.T, x).T",),
    ("dx = matmul_forward(dz, y.transpose(0, 1))\ndy = matmul_forward(x.transpose(0, 1), dz)\nreturn dx, dy",),
)
