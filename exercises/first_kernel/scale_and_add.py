"""# Scale and add

Write `scale_and_add(alpha, x, y)`, which computes `alpha * x + y` in one kernel. `alpha` is a Python float,
`x` and `y` are float32 vectors of the same length, which can be any length. A result is right if its error is at most
twice that of PyTorch in the same dtype.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def scale_and_add_kernel(alpha, x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    # <<<
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    y = tl.load(y_ptr + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, alpha * x + y, mask=mask)
    # >>>


def scale_and_add(alpha, x, y, BLOCK=128):
    out = torch.empty_like(x)
    scale_and_add_kernel[(triton.cdiv(x.numel(), BLOCK),)](alpha, x, y, out, x.numel(), BLOCK=BLOCK)
    return out


# %% checks
PAGE = "learn/first_kernel.py"
KIND = "fill in"
ORDER = 1
HINTS = (
    "A float is passed to a kernel like any other argument, and used in it like any other number.",
    "Three lines: load a block of `x`, load a block of `y`, store what `alpha * x + y` gives. All three need the mask.",
)
WHY = "`alpha` isn't a `tl.constexpr`, so a new `alpha` compiles nothing."


def check(t):
    for n in (1, 128, 300, *t.sizes(128)):
        alpha = t.random.uniform(-4, 4)
        x, y = t.values(n), t.values(n)
        run = t.compare(f"n = {n}", "scale_and_add", lambda alpha, x, y: alpha * x + y, alpha, x, y)
        t.traffic(f"n = {n}", run, read=8 * n, written=4 * n)
    for alpha in (0.0, 1.0, -1e4, 1e-30):
        x, y = t.values(5), t.values(5)
        t.compare(f"alpha = {alpha:g}", "scale_and_add", lambda alpha, x, y: alpha * x + y, alpha, x, y)


WRONG = (
    (
        "n = 1: out[0] is",
        "alpha * x + y",
        "-2.5 * x + y",
    ),
    (
        "should be",  # 8 bits of the 24
        "alpha * x + y",
        "alpha * x.to(tl.bfloat16).to(tl.float32) + y",
    ),
    ("n = 1: scale_and_add_kernel stores nothing yet",),
    (
        "does a load outside a tensor: element 1 of x_ptr",
        "tl.load(x_ptr + offsets, mask=mask, other=0.0)",
        "tl.load(x_ptr + offsets)",
    ),
    (
        "n = 1: out[0] is",
        "alpha * x + y",
        "alpha * (x + y)",
    ),
    (
        "no program of scale_and_add_kernel writes out_ptr[128]",
        "triton.cdiv(x.numel(), BLOCK)",
        "1",
    ),
    (
        "n = 1: program 0 of scale_and_add_kernel does a store outside a tensor",
        "alpha * x + y, mask=mask)",
        "alpha * x + y)",
    ),
    (
        "n = 1: out[0] is",
        "alpha * x + y",
        "x + alpha * y",
    ),
)
RIGHT = (
    (
        "alpha * x + y",
        "tl.fma(x, x * 0 + alpha, y)",
    ),
    (
        "BLOCK=128",
        "BLOCK=64",
    ),
)
