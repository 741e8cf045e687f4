"""# The group that is one row short

`visits(tiles_m, tiles_n)` counts how often each tile of a grouped order is visited. It should be once. With
8 rows of tiles in groups of 3, some are visited twice and others never. Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def visits_kernel(out_ptr, tiles_m, tiles_n, GROUP: tl.constexpr):
    pid = tl.program_id(0)
    per_group = GROUP * tiles_n
    first = (pid // per_group) * GROUP
    # <<<
    rows = tl.minimum(tiles_m - first, GROUP)  # the last group may have fewer
    # ===
    # rows = GROUP
    # >>>
    pid_m = first + (pid % per_group) % rows
    pid_n = (pid % per_group) // rows
    tl.atomic_add(out_ptr + pid_m * tiles_n + pid_n, 1, mask=pid_m < tiles_m)


def visits(tiles_m, tiles_n):
    out = torch.zeros(tiles_m, tiles_n, dtype=torch.int32, device=device.DEVICE)
    visits_kernel[(tiles_m * tiles_n,)](out, tiles_m, tiles_n, GROUP=3)
    return out


# %% checks
PAGE = "learn/l2_reuse.py"
KIND = "find the bug"
ORDER = 6
HINTS = (
    "With 8 rows of tiles there are groups of 3, 3 and 2 rows. What does the remainder of 3 do in the last one?",
    "Both the remainder and the quotient must use the number of rows that the group really has.",
    "`tl.minimum(a, b)` takes the smaller of two numbers.",
)
WHY = """It shows only if the number of rows of tiles isn't a multiple of the group size. It is an exhibit of the
[museum of bugs](../../docs/guides/debugging.md#11-the-group-that-is-one-row-short)."""


def check(t):
    def want(tiles_m, tiles_n):
        return torch.ones(tiles_m, tiles_n, dtype=torch.int32, device=device.DEVICE)

    for tiles_m, tiles_n in (
        (3, 2),
        (5, 2),
        (1, 3),
        (4, 1),
        (8, 3),
        (t.random.randint(6, 12), t.random.randint(2, 5)),
        (2, 1),
        (6, 1),
        (34, 3),
        (1, 40),
        (7, 20),
    ):
        t.compare(f"{tiles_m} x {tiles_n} tiles", "visits", want, tiles_m, tiles_n, name="visits")


WRONG = (
    (
        " tiles: visits[",
        "rows = tl.where(first > 0, 2, tl.minimum(tiles_m, GROUP))",
    ),
    (
        "PyTorch computes",
        "out = torch.zeros(tiles_m",
        "out = torch.ones(tiles_m",
        "pid_n, 1, mask",
        "pid_n, 0, mask",
    ),
    ("5 x 2 tiles: visits[4, 1] is 0, should be 1",),
    (
        "5 x 2 tiles: ",
        "% rows",
        "% GROUP",
    ),
    (
        "5 x 2 tiles: ",
        "// rows",
        "// GROUP",
    ),
    (
        "3 x 2 tiles: visits[",
        "rows = tl.minimum(tiles_m - first, 2)",
    ),
)
RIGHT = (
    ("rows = min(tiles_m - first, GROUP)",),
    ("rows = tl.where(first + GROUP > tiles_m, tiles_m - first, GROUP)",),
)
