"""# A norm that is too small

`normalized(x)` divides numbers by the root of the sum of their squares, so that the result has the norm 1. The
optimizer after it doesn't forgive a norm above 1. But some results have 1.004. Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def normalize_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    # <<<
    norm = tl.sqrt(tl.sum(x * x, axis=0))
    # ===
    # norm = tl.sqrt(tl.sum(x * x, axis=0)).to(tl.bfloat16)
    # >>>
    tl.store(out_ptr + offsets, x / norm, mask=mask)


def normalized(x):
    out = torch.empty_like(x)
    normalize_kernel[(1,)](x, out, x.numel(), BLOCK=triton.next_power_of_2(x.numel()))
    return out


# %% checks
PAGE = "kernels/optimizers/muon.md"
KIND = "find the bug"
ORDER = 6
HINTS = (
    "How many digits does a bfloat16 have?",
    "The numbers may be rounded to bfloat16 afterwards. What they are divided by may not.",
)
WHY = """A bfloat16 has eight bits of a number, so it may be off by nearly 1/256. Rounded down, the norm is too small,
and the result too large. Polar Express carries a singular value of 1.015 to infinity within eight rounds."""


def check(t):
    def rounded(x):
        return x / (x * x).sum().sqrt().to(torch.bfloat16).to(x.dtype)

    mistakes = {rounded: "That is divided by a norm of eight bits."}
    for n in (1, 2, 37, 100, t.random.randint(130, 300)):
        t.compare(f"n = {n}", "normalized", lambda x: x / (x * x).sum().sqrt(), t.values(n), mistakes=mistakes)


WRONG = (
    ("That is divided by a norm of eight bits",),
    ("out[0] is", "norm = tl.sqrt(tl.sum(x * x, axis=0))", "norm = tl.sum(tl.abs(x), axis=0)"),
    ("out[0] is", "norm = tl.sqrt(tl.sum(x * x, axis=0))", "norm = tl.sqrt(tl.sum(x * x, axis=0)) * 1.004"),
)
RIGHT = (
    ("norm = tl.sqrt(tl.sum(x * x, axis=0))", "norm = tl.sqrt(tl.sum(x * x, axis=0).to(tl.float32))"),
    ("x / norm", "x * (1.0 / norm)"),
)
