"""# Rows of somebody else

`sums(x, cuts)` adds up the rows of each expert: expert e has those from `cuts[e]` up to `cuts[e + 1]`. It takes four
rows at a time. The sums of some experts are wrong. Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def sums_kernel(x_ptr, cuts_ptr, out_ptr, R, N, stride, BLOCK_R: tl.constexpr, BLOCK_N: tl.constexpr):
    expert = tl.program_id(0)
    start = tl.load(cuts_ptr + expert)
    end = tl.load(cuts_ptr + expert + 1)
    columns = tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_N,), tl.float32)
    for first in range(start, end, BLOCK_R):
        rows = first + tl.arange(0, BLOCK_R)
        # <<<
        mask = (rows < end)[:, None] & (columns < N)[None, :]
        # ===
        # mask = (rows < R)[:, None] & (columns < N)[None, :]
        # >>>
        x = tl.load(x_ptr + rows[:, None] * stride + columns[None, :], mask=mask, other=0.0)
        total += tl.sum(x, 0)
    tl.store(out_ptr + expert * N + columns, total, mask=columns < N)


def sums(x, cuts):
    (R, N), E = x.shape, len(cuts) - 1
    out = torch.empty(E, N, device=x.device)
    sums_kernel[(E,)](x, cuts, out, R, N, x.stride(0), BLOCK_R=4, BLOCK_N=triton.next_power_of_2(N))
    return out


# %% checks
PAGE = "kernels/moe/grouped_matmul.md"
KIND = "find the bug"
ORDER = 2
HINTS = (
    "Which experts have right sums? How many rows do they have?",
    "With five rows, the second round of the loop takes four more. Whose are the last three?",
)
WHY = """The last tile of an expert reaches into the rows of the next one, and these exist: they are inside of the
matrix. The mask has to end where the expert does."""


def check(t):
    def want(x, cuts):
        at = cuts.tolist()
        found = torch.zeros(len(at) - 1, x.shape[1], dtype=x.dtype, device=x.device)
        for expert, (start, end) in enumerate(zip(at, at[1:])):
            for row in range(start, end):
                found[expert] += x[row]
        return found

    def case(*counts, behind=0):
        cuts = [0]
        for count in counts:
            cuts.append(cuts[-1] + count)
        x = t.cut(cuts[-1] + behind, t.random.choice((1, 33, t.random.randint(2, 7))))
        at = t.surrounded(torch.tensor(cuts, dtype=torch.int32))
        t.compare(f"{', '.join(map(str, counts))} rows", "sums", want, x, at)

    case(4, 8)
    case(5, 0, 3)
    case(1, 2, 3, 4, behind=2)
    case(0, t.random.randint(5, 7), t.random.randint(1, 3))
    case(0, 0, 0, behind=3)
    case(*t.sizes(4)[:-1])


WRONG = (
    ("5, 0, 3 rows: out[0, 0] is",),
    ("rows: program", "rows < end", "rows <= end"),
    ("4, 8 rows: out[0, 0] is", "rows < end", "rows < first"),
    ("rows: program", "rows < end", "rows < end + 1"),
)
RIGHT = (
    ("mask = (rows - end < 0)[:, None] & (columns < N)[None, :]",),
    ("mask = (tl.arange(0, BLOCK_R) < end - first)[:, None] & (columns < N)[None, :]",),
)
