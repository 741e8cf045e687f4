"""# The store past the end

`ones(n)` returns a vector of ones. Its values are right, but now and then some **other** tensor of the program changes.
Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def ones_kernel(out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    # <<<
    tl.store(out_ptr + offsets, 1.0, mask=offsets < n)
    # ===
    # tl.store(out_ptr + offsets, 1.0)
    # >>>


def ones(n):
    out = torch.empty(n, device=device.DEVICE)
    ones_kernel[(triton.cdiv(n, 4),)](out, n, BLOCK=4)
    return out


# %% checks
PAGE = "learn/first_kernel.py"
KIND = "find the bug"
ORDER = 5
HINTS = (
    "For `n = 6` there are two programs of four lanes. Where do the last two lanes write?",
    "`tl.store` takes a `mask`: lanes in which it is false write nothing.",
)
WHY = """`academy trace` finds this bug, as the checker here does: it knows which element of which tensor each lane
touches. It is an exhibit of the [museum of bugs](../../docs/guides/debugging.md#2-the-store-past-the-end)."""


def check(t):
    for n in (4, 6, 1, 20, *t.sizes(4)):
        t.compare(f"n = {n}", "ones", lambda n: torch.ones(n, device=device.DEVICE), n)


WRONG = (
    (
        "PyTorch computes elements of the result that no kernel stores",
        "out = torch.empty(n",
        "out = torch.ones(n",
        "mask=offsets < n",
        "mask=offsets < 1",
    ),
    ("program 1 of ones_kernel does a store outside a tensor: element 6 of out_ptr",),
    (
        "does a store outside a tensor: element 6 of out_ptr, which has shape (6,) (1 of 4 lanes",
        "tl.store(out_ptr + offsets, 1.0, mask=offsets <= n)",
    ),
    (
        "no program of ones_kernel writes out_ptr[3]",
        "tl.store(out_ptr + offsets, 1.0, mask=offsets < n - 1)",
    ),
    (
        "n = 6: out has shape (8,), should have (6,)",
        "out = torch.empty(n, device=device.DEVICE)",
        "out = torch.empty(triton.cdiv(n, 4) * 4, device=device.DEVICE)",
        "mask=offsets < n",
        "mask=offsets < triton.cdiv(n, 4) * 4",
    ),
)
RIGHT = (
    ("mask = offsets < n\ntl.store(out_ptr + offsets, 1.0, mask=mask)",),
    ("tl.store(out_ptr + offsets, 1.0, offsets <= n - 1)",),
)
