"""# In reverse order

Write `reverse(x)`, which returns the vector `x` from its last element to its first. Which of the two offsets changes,
and which mask do you need?

[[figure: hardware/launch]]
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def reverse_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    # <<<
    x = tl.load(x_ptr + (n - 1 - offsets), mask=mask, other=0.0)
    tl.store(out_ptr + offsets, x, mask=mask)
    # >>>


def reverse(x, BLOCK=64):
    out = torch.empty_like(x)
    reverse_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, out, x.numel(), BLOCK=BLOCK)
    return out


# %% checks
PAGE = "learn/first_kernel.py"
KIND = "fill in"
ORDER = 2
HINTS = (
    "Element 0 of the result is element `n - 1` of `x`. Which one is element 1?",
    "Load from `x_ptr + (n - 1 - offsets)`, store to `out_ptr + offsets`.",
    "Lanes past the end of the result would load from before the start of `x`: the store's mask is right for both.",
)
WHY = """The load runs backwards from `n - 1`. The mask stays: lanes past the end would load from before the start of
the vector."""


def check(t):
    for n in (1, 64, 150, *t.sizes(64)):
        t.compare(f"n = {n}", "reverse", lambda x: x.flip(0), t.values(n), exact=True)


WRONG = (
    (
        "PyTorch copies what the kernel loads as x_ptr. Here the kernel must do all of the work",
        "n - 1 - offsets",
        "offsets",
        "(x, out, x.numel()",
        "(x.flip(0), out, x.numel()",
    ),
    (
        "PyTorch computes elements of the result that no kernel stores",
        "out = torch.empty_like(x)",
        "out = x.flip(0)",
        "tl.store(out_ptr + offsets, x, mask=mask)",
        "tl.store(out_ptr + offsets, x, mask=offsets < 1)",
    ),
    (
        "PyTorch computes the result from what the kernel has stored",
        "n - 1 - offsets",
        "offsets",
        "return out",
        "out.copy_(out.flip(0))\n    return out",
    ),
    (
        "should be",
        "tl.store(out_ptr + offsets, x, mask=mask)",
        "tl.store(out_ptr + offsets, x.to(tl.bfloat16), mask=mask)",
    ),
    ("n = 1: reverse_kernel stores nothing yet",),
    (
        "outside a tensor: element -1 of x_ptr",
        "x = tl.load(x_ptr + (n - 1 - offsets), mask=mask, other=0.0)",
        "x = tl.load(x_ptr + (n - 1 - offsets))",
    ),
    (
        "outside a tensor: element 1 of x_ptr, which has shape (1,)",
        "n - 1 - offsets",
        "n - offsets",
    ),
    (
        "n = 150: out[0] is",
        "n - 1 - offsets",
        "tl.minimum(offsets // BLOCK * BLOCK + BLOCK, n) - 1 - offsets % BLOCK",
    ),
    ("writes out_ptr[256]", "triton.cdiv(x.numel(), BLOCK", "min(triton.cdiv(x.numel(), BLOCK), 4"),
)
RIGHT = (
    (
        "x_ptr + (n - 1 - offsets)",
        "x_ptr + offsets",
        "out_ptr + offsets",
        "out_ptr + (n - 1 - offsets)",
    ),
    (
        "BLOCK=64",
        "BLOCK=16",
    ),
)
