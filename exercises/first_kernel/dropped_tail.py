"""# The tail that nobody owns

`double(x)` should double every element. With a length that the block divides it does. With others, the last
elements come out as 0, and there is no error. Find the bug. (You can [watch it
run](../../docs/guides/debugging.md#a-museum-of-classic-bugs), if you like.)
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def double_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, 2 * tl.load(x_ptr + offsets, mask=mask, other=0.0), mask=mask)


def double(x):
    out = torch.zeros_like(x)
    # <<<
    programs = triton.cdiv(len(x), 4)
    # ===
    # programs = len(x) // 4
    # >>>
    double_kernel[(programs,)](x, out, len(x), BLOCK=4)
    return out


# %% checks
PAGE = "learn/first_kernel.py"
KIND = "find the bug"
ORDER = 4
HINTS = (
    "Which elements are wrong for a length of 10? Which program should have had them?",
    "`10 // 4` is 2. Two programs of four lanes have eight elements.",
)
WHY = """`triton.cdiv` rounds up, so that the last, partly filled block has a program too. A test finds this bug with
a length that isn't a multiple of the block. It is the first exhibit of the [museum of
bugs](../../docs/guides/debugging.md#1-the-tail-that-nobody-owns)."""


def check(t):
    for n in (8, 10, 3, *t.sizes(4)):
        run = t.compare(f"n = {n}", "double", lambda x: 2 * x, t.values(n), note="Which program owns that element?")
        for launch in run.launches:
            programs, lanes = launch.grid[0], launch.accesses[0].elements.size
            enough = triton.cdiv(n, lanes)
            message = f"{programs} programs of {lanes} lanes are launched for {n} elements; {enough} are enough"
            t.require(programs == enough, message, f"n = {n}")


WRONG = (
    ("n = 10: out[8] is 0, should be",),
    (
        "n = 8: 3 programs of 4 lanes are launched for 8 elements; 2 are enough",
        "programs = len(x) // 4 + 1",
    ),
    (
        "n = 3: double launches no kernel",
        "if len(x) < 4:\n    return 2 * x\nprograms = triton.cdiv(len(x), 4)",
    ),
    (
        "n = 10: out[8] is 0",
        "programs = max(1, len(x) // 4)",
    ),
    (
        "Which program owns that element?",
        "programs = round(len(x) / 4)",
    ),
    (
        "n = 8: 2 programs of 8 lanes are launched for 8 elements; 1 are enough",
        "programs = triton.cdiv(len(x), 4)",
        "programs = len(x) // 4",
        "BLOCK=4",
        "BLOCK=8",
    ),
    (
        "double_kernel[(2.0,)]: there is no part of a program; round up with triton.cdiv(a, b)",
        "programs = len(x) / 4",
    ),
)
RIGHT = (
    ("programs = (len(x) + 3) // 4",),
    ("programs = -(-len(x) // 4)",),
)
