"""# Backwards without a copy

`matmul_forward(x, y)` is the lesson's launcher: it takes matrices with any strides. Write `gradients(dz, x, y)`, which
returns both gradients of `z = x @ y`, by calling it twice and copying nothing.
"""

# %% solution
from academy.runtime import device

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

    M, N, K = (t.random.randint(2, 9) for _ in range(3))
    for case, *given in (
        ("2 x 3 times 3 x 4", t.values(2, 4), t.values(2, 3), t.values(3, 4)),
        ("x is transposed", t.values(2, 4), t.turned(2, 3), t.values(3, 4)),
        ("1 x 1 times 1 x 1", t.values(1, 1), t.values(1, 1), t.values(1, 1)),
        ("both transposed, 33 x 17 times 17 x 5", t.turned(33, 5), t.turned(33, 17), t.turned(17, 5)),
        (f"{M} x {K} times {K} x {N}", t.values(M, N), t.values(M, K), t.cut(K, N)),
    ):
        run = t.compare(case, "gradients", want, *given, name="dx, dy", host=("copies",))
        copied = "matmul_forward was given a copy of a matrix; it takes any strides, so a view is enough"
        t.require("copies" not in run.host, copied, case)
        t.require(not run.launches or len(run.launches) == 2, "matmul_forward is to be called twice", case)


WRONG = (
    (
        "PyTorch computes the result",
        "return matmul_forward(dz, y.T), matmul_forward(x.T, dz)",
        "matmul_forward(dz, y.T), matmul_forward(x.T, dz)\n    return dz @ y.T, x.T @ dz",
    ),
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
