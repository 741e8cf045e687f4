"""# Squares down the columns

Write the kernel of `column_sums_of_squares(x)`: the sum of the squares of each column, by partial sums. `P` programs
share the rows of each block of columns, and each stores its sums in its own row of `partial`.

[[figure: rows/directions]]
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def partial_squares_kernel(x_ptr, partial_ptr, M, N, stride_xm, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    offs_n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    p = tl.program_id(1)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(p * BLOCK_M, M, tl.num_programs(1) * BLOCK_M):
        offs_m = (start + tl.arange(0, BLOCK_M)).to(tl.int64)
        # <<<
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x_ptrs = x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :]
        x = tl.load(x_ptrs, mask=mask, other=0.0).to(tl.float32)
        acc += x * x
        # >>>
    tl.store(partial_ptr + p * N + offs_n, tl.sum(acc, axis=0), mask=offs_n < N)


def column_sums_of_squares(x, P=2):
    M, N = x.shape
    P = min(P, triton.cdiv(M, 16))
    partial = torch.empty(P, N, device=x.device)
    partial_squares_kernel[(triton.cdiv(N, 16), P)](x, partial, M, N, x.stride(0), BLOCK_M=16, BLOCK_N=16)
    return partial.sum(0)


# %% checks
PAGE = "learn/reductions.py"
KIND = "fill in"
ORDER = 4
HINTS = (
    "One line differs from the column sums of the chapter.",
    "A tile of pointers: `x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :]`. It needs a mask for both directions.",
    "What must masked lanes read, so that their square adds nothing?",
)
WHY = """`other=0.0` is still right, because the square of zero is zero. For a product of all rows it would have to be
one."""


def check(t):
    def want(x):
        return (x * x).sum(0)

    for case, x, options in (
        ("1 x 1", t.values(1, 1), ()),
        ("40 x 20", t.values(40, 20), ()),
        ("rows cut out of wider ones, 35 x 5", t.cut(35, 5), ()),
        ("17 x 16, 3 programs for each block of columns", t.values(17, 16), (3,)),
        ("130 x 33, 5 programs", t.values(130, 33), (5,)),
        ("16 x 1", t.values(16, 1), ()),
        ("drawn", t.cut(t.random.randint(36, 60), t.random.randint(17, 20)), (t.random.randint(1, 4),)),
    ):
        run = t.compare(case, "column_sums_of_squares", lambda x, P=2: want(x), x, *options, host=("result",))
        P = min(options[0] if options else 2, -(-len(x) // 16))
        t.grid(case, run, (-(-x.shape[1] // 16), P))
        if run.launches:
            partial = run.stored.get("partial_ptr")
            own = partial is not None and torch.allclose(partial.sum(0), run.result)
            t.require(own, "PyTorch may add up what the kernel has stored in `partial`, and nothing else", case)


WRONG = (
    (
        "PyTorch may add up what the kernel has stored in `partial`, and nothing else",
        "return partial.sum(0)",
        "return (x * x).sum(0)",
        "acc += x * x",
        "acc += x",
    ),
    (
        "PyTorch computes what the kernel loads as x_ptr",
        "acc += x * x",
        "acc += x",
        "(x, partial, M",
        "((x * x).contiguous(), partial, M",
    ),
    ("1 x 1: out[0] is 0, should be",),
    (
        "1 x 1: program 0 of partial_squares_kernel does a load outside a tensor",
        "(offs_m[:, None] < M) & (offs_n[None, :] < N)",
        "offs_n[None, :] < N",
    ),
    (
        "40 x 20: out[0] is",
        "acc += x * x",
        "acc = x * x",
    ),
    (
        "rows cut out of wider ones, 35 x 5: program",
        "offs_m[:, None] * stride_xm",
        "offs_m[:, None] * N",
    ),
    (
        "1 x 1: out[0] is",
        "other=0.0",
        "other=1.0",
    ),
)
RIGHT = (
    (
        "acc += x * x",
        "acc = acc + x * x",
    ),
    (
        "x_ptrs = x_ptr + offs_m[:, None] * stride_xm",
        "rows = x_ptr + offs_m * stride_xm\n        x_ptrs = rows[:, None]",
    ),
)
