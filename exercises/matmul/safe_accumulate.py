"""# Tuning a kernel that adds

`accumulate` adds `x` to `out`. A tuner runs it with every block size before the real run, so the result of the first
call is several times too large. Write `safe_accumulate`, so that the first call is right: `x` replaces what is in
`out`.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def accumulate_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.atomic_add(out_ptr + offsets, x, mask=mask)


def accumulate(x, out, BLOCK):
    accumulate_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, out, x.numel(), BLOCK=BLOCK)


def safe_accumulate(x, out, BLOCK):
    # <<<
    out.zero_()
    accumulate(x, out, BLOCK)
    # ===
    # accumulate(x, out, BLOCK)
    # >>>


def first_call(x, old=7.0):
    """What a tuner does at the first call for a key: a trial for each block size, then the real run."""
    out = torch.full_like(x, old)
    for BLOCK in (16, 32, 64, 16):
        safe_accumulate(x, out, BLOCK)
    return out


# %% checks
PAGE = "learn/autotuning.py"
KIND = "fill in"
ORDER = 11
HINTS = (
    "What must be in `out` before each run, the trials included?",
    "`out.zero_()` sets a tensor to zero in place.",
)
WHY = "Each trial starts from zero, and so does the real run. That is what `reset_to_zero` does."


def check(t):
    note = "out held {:g} before the first trial."
    for n, old in (
        (16, 7.0),
        (50, t.random.uniform(-9, 9)),
        (t.random.randint(17, 40), float("nan")),
        (3, float("inf")),
        (1, 0.0),
        (64, -1e30),
        (65, 1e-30),
        (700, -float("inf")),
    ):
        t.compare(
            f"n = {n}", "first_call", lambda x, old: x.clone(), t.values(n), old, note=note.format(old), exact=True
        )


WRONG = (
    (
        "out held nan before the first trial",
        "out.zero_()",
        "out *= 0",
    ),
    (
        "out held nan before the first trial",
        "out.zero_()",
        "out -= out.clone()",
    ),
    ("n = 16: out[0] is",),
    (
        "n = 16: out[0] is",
        "out.zero_()",
        "out.fill_(1.0)",
    ),
    (
        "out held 7 before the first trial",
        "out.zero_()",
        "out -= x",
    ),
    (
        "out held 7 before the first trial",
        "    out.zero_()\n",
        "    out = torch.zeros_like(out)\n",
    ),
)
RIGHT = (
    ("out.fill_(0.0)\naccumulate(x, out, BLOCK)",),
    ("out.copy_(torch.zeros_like(out))\naccumulate(x, out, BLOCK)",),
)
