"""# Rows that add up to one

Write the kernel of `sum_normalise(x)`: each row of a matrix of positive numbers divided by its sum, for any
width and row stride. A program goes over its row twice, in chunks.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def sum_normalise_kernel(x_ptr, y_ptr, N, stride_xm, BLOCK_N: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_xm
    y_ptr += row * N
    # <<<
    acc = tl.zeros((BLOCK_N,), dtype=tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        acc += tl.load(x_ptr + offs_n, mask=offs_n < N, other=0.0).to(tl.float32)
    total = tl.sum(acc, axis=0)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = offs_n < N
        x = tl.load(x_ptr + offs_n, mask=mask, other=0.0).to(tl.float32)
        tl.store(y_ptr + offs_n, x / total, mask=mask)
    # >>>


def sum_normalise(x):
    x = x if x.stride(1) == 1 else x.contiguous()
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    sum_normalise_kernel[(x.shape[0],)](x, y, x.shape[1], x.stride(0), BLOCK_N=4)
    return y


# %% checks
PAGE = "learn/your_own_kernel.py"
KIND = "fill in"
ORDER = 3
HINTS = (
    "The first pass adds up the chunks lane by lane, in float32. The lanes themselves are added up once, "
    "after the loop.",
    "The second pass loads each chunk again, divides it by the total and stores it.",
    "Two lines of the chapter's forward kernel change: what is added up, and that no root is taken.",
)
WHY = "Two lines of the chapter's forward kernel change: what is added up, and that no root is taken."


def check(t):
    def want(x):
        return x / x.sum(1, keepdim=True)

    cases = {
        "2 x 1": t.values(2, 1),
        "1 x 9": t.values(1, 9),
        "rows cut out of wider ones, 2 x 6": t.cut(2, 6),
        "transposed, 3 x 2": t.turned(3, 2),
        "bfloat16, 1 x 6": t.values(1, 6, dtype=torch.bfloat16),
        "every second column, 2 x 5": t.values(2, 10)[:, ::2],
        "40 x 3": t.cut(40, 3),
        **{f"2 x {columns}": t.cut(2, columns) for columns in t.sizes(4, many=120)},
    }
    for case, x in cases.items():
        few = ("zeros", "ties", "both signs", "negative numbers")  # a row of positive numbers has a sum
        run = t.compare(case, "sum_normalise", want, x.abs_().add_(0.5), name="y", host=("copies",), spare=few)
        t.grid(case, run, (len(x),))
        moved = x.numel() * x.element_size()
        t.traffic(case, run, read=2 * moved, written=moved)


WRONG = (
    ("stores nothing yet",),
    (
        "1 x 9: y[0, 0] is",
        "acc += tl.load",
        "acc = tl.load",
    ),
    (
        "2 x 1: y[0, 0] is",
        "acc += tl.load(x_ptr + offs_n, mask=offs_n < N, other=0.0)",
        "acc += tl.load(x_ptr + offs_n, mask=offs_n < N, other=1.0)",
    ),
    (
        "2 x 1: program 0 of sum_normalise_kernel does a load outside a tensor",
        "tl.load(x_ptr + offs_n, mask=offs_n < N, other=0.0)",
        "tl.load(x_ptr + offs_n)",
    ),
    (
        "2 x 1: a program of sum_normalise_kernel has run 1000 statements: does a loop never end?",
        "for start in range(0, N, BLOCK_N):\n        offs_n = start + tl.arange(0, BLOCK_N)\n        acc",
        "start = 0\n    while start < N:\n        offs_n = start + tl.arange(0, BLOCK_N)\n        acc",
    ),
    (
        "2 x 1: program 0 of sum_normalise_kernel does a store outside a tensor",
        "x / total, mask=mask)",
        "x / total)",
    ),
    (
        "1 x 9: y[0, 0] is",
        "/ total",
        "/ tl.sum(x, axis=0)",
    ),
    ("tiny numbers in x", "x / total", "x / tl.maximum(total, 1e-6)"),
)
RIGHT = (
    (
        "x / total",
        "x * (1 / total)",
    ),
    (
        "total = 0.0\n"
        "for start in range(0, N, BLOCK_N):\n"
        "    offs_n = start + tl.arange(0, BLOCK_N)\n"
        "    total += tl.sum(tl.load(x_ptr + offs_n, mask=offs_n < N, other=0.0).to(tl.float32), axis=0)\n"
        "for start in range(0, N, BLOCK_N):\n"
        "    offs_n = start + tl.arange(0, BLOCK_N)\n"
        "    x = tl.load(x_ptr + offs_n, mask=offs_n < N, other=0.0).to(tl.float32)\n"
        "    tl.store(y_ptr + offs_n, x / total, mask=offs_n < N)",
    ),
)
