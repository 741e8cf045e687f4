"""# Two writers, one element

`total(x)` adds up a vector with one program for every four elements. In the interpreter, which runs one
program after the other, the result is right. On a GPU some parts get lost, different ones every time. Find
the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def total_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.sum(tl.load(x_ptr + offsets, mask=offsets < n, other=0.0), axis=0)
    # <<<
    tl.atomic_add(out_ptr, part)
    # ===
    # tl.store(out_ptr, tl.load(out_ptr) + part)
    # >>>


def total(x):
    out = torch.zeros(1, device=x.device)
    total_kernel[(triton.cdiv(len(x), 4),)](x, out, len(x), BLOCK=4)
    return out


# %% checks
PAGE = "learn/reductions.py"
KIND = "find the bug"
ORDER = 3
HINTS = (
    "Between the load and the store of one program, another one may store. What becomes of its number?",
    "`tl.atomic_add` loads, adds and stores in one step that nothing can interrupt.",
)
WHY = """The result was right each time, so no comparison finds this bug in the interpreter. The recorded accesses do.
It is an exhibit of the [museum of bugs](../../docs/guides/debugging.md#9-two-writers-one-element)."""


def check(t):
    few = ("equal numbers",)  # 25 roundings in one direction
    for n in (4, 10, 1, *t.sizes(4, many=100)):
        run = t.compare(f"n = {n}", "total", lambda x: x.sum().view(1), t.values(n), spare=few if n > 40 else ())
        t.grid(f"n = {n}", run, (-(-n // 4),))


WRONG = (
    (
        "PyTorch computes out_ptr",
        "out = torch.zeros(1, device=x.device)",
        "out = x.sum().view(1)",
        "tl.atomic_add(out_ptr, part)",
        "tl.atomic_add(out_ptr, 0 * part)",
    ),
    ("n = 10: race in total_kernel: program 0 stores out_ptr[0] (line 12) and program 1 reads it too",),
    (
        "n = 10: race in total_kernel: program 0 stores out_ptr[0]",
        "tl.store(out_ptr, part)",
    ),
    (
        "n = 4: out[0] is",
        "tl.atomic_max(out_ptr, part)",
    ),
    (
        "n = 4: total_kernel reads out_ptr[0], which nobody has written",
        "out = torch.zeros(1, device=x.device)",
        "out = torch.empty(1, device=x.device)",
        "tl.atomic_add(out_ptr, part)",
        "tl.store(out_ptr, tl.load(out_ptr) + part)",
    ),
    (
        "n = 4: total_kernel updates out_ptr[0], which nobody has written",
        "out = torch.zeros(1",
        "out = torch.empty(1",
    ),
    (
        "the grid (1,)",
        "atomic_add",
        "store",
        "triton.cdiv(len(x), 4),)](x, out, len(x), BLOCK=4",
        "1,)](x, out, len(x), BLOCK=triton.next_power_of_2(len(x))",
    ),
)
RIGHT = (
    ("old = tl.atomic_add(out_ptr, part)",),
    (
        "BLOCK=4",
        "BLOCK=4, ALL=triton.next_power_of_2(len(x))",
        "BLOCK: tl.constexpr",
        "BLOCK: tl.constexpr, ALL: tl.constexpr",
        "    tl.atomic_add(out_ptr, part)\n",
        "    whole = tl.arange(0, ALL)\n"
        "    if tl.program_id(0) == 0:\n"
        "        tl.store(out_ptr, tl.sum(tl.load(x_ptr + whole, mask=whole < n, other=0.0), axis=0))\n",
    ),
)
