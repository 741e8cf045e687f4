"""# Squares that overflow

`unit_rows(x)` divides each row by its length. For numbers above about 10¹⁹ the squares are infinite in float32, and the
row comes out as zeros. Remove that limit: find the largest number of the row first.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def unit_rows_kernel(x_ptr, y_ptr, N, stride, BLOCK_N: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK_N)
    mask = columns < N
    x = tl.load(x_ptr + row * stride + columns, mask=mask, other=0.0)
    # <<<
    largest = tl.max(tl.abs(x), axis=0)
    x = x / tl.where(largest == 0.0, 1.0, largest)
    squares = tl.sum(x * x, axis=0)
    y = x / tl.sqrt(tl.where(squares == 0.0, 1.0, squares))
    # ===
    # y = x / tl.sqrt(tl.sum(x * x, axis=0))
    # >>>
    tl.store(y_ptr + row * N + columns, y, mask=mask)


def unit_rows(x):
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    unit_rows_kernel[(x.shape[0],)](x, y, x.shape[1], x.stride(0), BLOCK_N=triton.next_power_of_2(x.shape[1]))
    return y


# %% checks
PAGE = "learn/same_function.py"
KIND = "find the bug"
ORDER = 5
HINTS = (
    "Softmax has the same trouble with exponentials, and subtracts the largest first. What does division "
    "do for squares?",
    "`tl.abs(x)` takes the absolute value of each lane. Divide the row by the largest one before it is squared.",
    "A row of zeros has the length 0. What should it give, and what does 0 / 0 give?",
)
WHY = """After the division the largest square is 1, so the sum lies between 1 and the number of columns. Rows of
zeros stay zero."""


def check(t):
    def want(x):
        x = x.to(torch.float64)
        length = (x * x).sum(1, keepdim=True).sqrt()
        return (x / torch.where(length == 0, torch.ones_like(length), length)).to(torch.float32)

    finite = ("an infinity", "minus infinity")  # divided by itself, it is NaN either way
    for case, scale in (
        ("rows cut out of wider ones, 2 x 5", 1.0),
        ("numbers of about 1e20", 1e20),
        ("numbers of about 1e-25", 1e-25),
        ("numbers of about 1e38", 1e38),
        ("drawn", 10.0 ** t.random.randint(-28, 37)),
    ):
        t.compare(case, "unit_rows", want, t.cut(2, 5, scale=scale), name="y", spare=finite)
    rows = t.surrounded(torch.tensor([0.0, 0.0, -3.0, -4.0])).view(2, 2)
    t.compare("zeros, and negative numbers", "unit_rows", want, rows, name="y", spare=finite)
    mixed = t.values(3, t.random.randint(6, 12))
    mixed[0] *= 1e25
    mixed[2] *= 1e-25
    t.compare("rows of about 1e25, 1 and 1e-25", "unit_rows", want, mixed, name="y", spare=finite)
    for columns in t.sizes(32):
        t.compare(f"2 x {columns}", "unit_rows", want, t.cut(2, columns), name="y", spare=finite)
    t.compare("40 x 3", "unit_rows", want, t.cut(40, 3), name="y", spare=finite)


WRONG = (
    (
        "y[0, 0] is",
        "x = x * 1e-20\ny = x / tl.sqrt(tl.sum(x * x, axis=0))",
    ),
    (
        "rows of about 1e25, 1 and 1e-25: y[",
        "largest = tl.max(tl.abs(x), axis=0)",
        "largest = tl.where(row < 2, tl.max(tl.abs(x), axis=0), 1.0)",
    ),
    ("numbers of about 1e20: y[0, 0] is -0, should be",),
    (
        "zeros, and negative numbers: y[0, 0] is nan, should be 0",
        "x / tl.where(largest == 0.0, 1.0, largest)",
        "x / largest",
    ),
    (
        "numbers of about 1e-25: y[0, 0] is",
        "largest = tl.max(tl.abs(x), axis=0)",
        "largest = tl.maximum(tl.max(tl.abs(x), axis=0), 1.0)",
    ),
    (
        "rows cut out of wider ones, 2 x 5: y[0, 0] is",
        "tl.max(tl.abs(x), axis=0)",
        "tl.max(x, axis=0) * 0 + 2.0",
        "y = x / tl.sqrt",
        "y = x / 2 / tl.sqrt",
    ),
    (
        "zeros, and negative numbers: y[1, 0] is 0.6, should be -0.6",
        "tl.max(tl.abs(x), axis=0)",
        "tl.max(x, axis=0)",
    ),
    (
        "numbers of about 1e20: y[0, 0] is -0",
        "y = x / tl.sqrt(tl.sum(x * x, axis=0) + 1e-6)",
    ),
)
RIGHT = (
    (  # added, such numbers would make another function, and the marking says so
        "scale = tl.max(tl.abs(x), axis=0)\nx = x / tl.where(scale == 0.0, 1e-38, scale)\n"
        "squares = tl.sum(x * x, axis=0)\ny = x / tl.sqrt(tl.where(squares == 0.0, 1e-30, squares))",
    ),
    (
        "largest = tl.max(tl.where(x < 0, -x, x), axis=0)\n"
        "largest = tl.where(largest > 0, largest, 1.0)\n"
        "squares = tl.sum((x / largest) * (x / largest), axis=0)\n"
        "y = x / largest / tl.sqrt(tl.where(squares == 0, 1.0, squares))",
    ),
)
