"""# Adding to what was there

`copy(x)` adds `x` to a new output. In a fresh process it is right, because the memory happens to be zero. Later it is
wrong. Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def add_into_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(out_ptr + offsets, mask=mask, other=0.0) + tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, total, mask=mask)


def copy(x):
    # <<<
    out = torch.zeros_like(x)
    # ===
    # out = torch.empty_like(x)
    # >>>
    add_into_kernel[(triton.cdiv(len(x), 4),)](x, out, len(x), BLOCK=4)
    return out


# %% checks
PAGE = "kernels/tutorials/vector_add.md"
KIND = "find the bug"
ORDER = 7
HINTS = (
    "What is in `out` when the kernel begins?",
    "`torch.empty_like` takes memory as it is. Which function gives memory that holds zeros?",
    "Alternatively, the kernel doesn't have to read its output at all: then it stores `x` alone.",
)
WHY = """A kernel that adds to its output needs an output that has been set to zero. The other fix is a kernel that
stores `x` and reads no output: it moves half as many bytes, as no zeros are written and read. `academy trace` reports
the read of memory that nobody wrote. It is an exhibit of the [museum of
bugs](../../docs/guides/debugging.md#10-adding-to-what-was-there)."""


def check(t):
    for n in (8, 10, *t.sizes(4)):
        t.compare(f"n = {n}", "copy", lambda x: x.clone(), t.values(n), exact=True)
        t.compare(f"n = {n}, float16", "copy", lambda x: x.clone(), t.values(n, dtype=torch.float16), exact=True)


WRONG = (
    (
        "copy launches no kernel",
        "    add_into_kernel[(triton.cdiv(len(x), 4),)](x, out, len(x), BLOCK=4)\n    return out",
        "    return x.clone()",
    ),
    ("n = 8: add_into_kernel reads out_ptr[0], which nobody has written",),
    (
        "n = 8: out[0] is",
        "out = torch.ones_like(x)",
    ),
    (
        "n = 8: out[0] is",
        "out = x.clone()",
    ),
    (
        "float16: out has dtype torch.float32, should have torch.float16",
        "out = torch.zeros(len(x), device=x.device)",
    ),
)
RIGHT = (
    (
        "out = torch.zeros_like(x)",
        "out = torch.empty_like(x)",
        "tl.load(out_ptr + offsets, mask=mask, other=0.0) + tl.load(",
        "tl.load(",
    ),
    ("out = torch.zeros(len(x), dtype=x.dtype, device=x.device)",),
    ("out = torch.empty_like(x)\nout.zero_()",),
)
