"""# The rows that are left over

`double_rows(x)` launches 4 programs, however many rows there are: each of them takes several. With 8 rows it
is right, with 10 some are missing. Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def double_rows_kernel(x_ptr, out_ptr, M, N, BLOCK_N: tl.constexpr):
    columns = tl.arange(0, BLOCK_N)
    mask = columns < N
    # <<<
    first, end, step = tl.program_id(0), M, tl.num_programs(0)
    # ===
    # each = M // tl.num_programs(0)
    # first, end, step = tl.program_id(0) * each, tl.program_id(0) * each + each, 1
    # >>>
    for row in range(first, end, step):
        x = tl.load(x_ptr + row * N + columns, mask=mask, other=0.0)
        tl.store(out_ptr + row * N + columns, 2 * x, mask=mask)


def double_rows(x):
    M, N = x.shape
    out = torch.empty_like(x)
    double_rows_kernel[(4,)](x, out, M, N, BLOCK_N=triton.next_power_of_2(N))
    return out


# %% checks
PAGE = "kernels/fast/layernorm.md"
KIND = "find the bug"
ORDER = 4
HINTS = (
    "Ten rows in four parts of two: which rows are left over?",
    "Program `p` can take row `p`, then row `p + 4`, and so on, as long as there are rows.",
    "`range(first, end, step)`: the step is the number of programs.",
)
WHY = """A grid-stride loop needs no division: the loop of every program ends where the rows end. Programs without a row
do nothing."""


def check(t):
    for M in (8, 10, 3, 1, t.random.randint(11, 20), 2, 4, 5, 33):
        x = t.values(M, t.random.choice((1, 8, 9, 33, t.random.randint(2, 5))))
        run = t.compare(f"{M} rows", "double_rows", lambda x: 2 * x, x, note="Which program takes that row?")
        t.grid(f"{M} rows", run, (4,))


WRONG = (
    ("10 rows: no program of double_rows_kernel writes out_ptr[8, 0]",),
    (
        "8 rows: program 0 of double_rows_kernel does a load outside a tensor",
        "tl.program_id(0), M, tl",
        "tl.program_id(0), M + 1, tl",
    ),
    (
        "8 rows: race in double_rows_kernel",
        "first, end, step = tl.program_id(0), M, 1",
    ),
    (
        "8 rows: no program of double_rows_kernel writes out_ptr[4, 0]",
        "tl.program_id(0), M, tl",
        "tl.program_id(0), 4, tl",
    ),
    (
        "10 rows: program 3 of double_rows_kernel does a load outside a tensor",
        "each = tl.cdiv(M, tl.num_programs(0))\nfirst, step = tl.program_id(0) * each, 1\nend = first + each",
    ),
)
RIGHT = (
    ("first, end, step = tl.program_id(0), M, 4",),
    (
        "each = tl.cdiv(M, tl.num_programs(0))\n"
        "first, step = tl.program_id(0) * each, 1\n"
        "end = tl.minimum(first + each, M)",
    ),
)
