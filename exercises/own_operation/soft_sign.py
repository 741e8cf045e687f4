"""# From the result alone

`y = x / (1 + |x|)` lies between -1 and 1. Its derivative is `1 / (1 + |x|)²`, so the backward pass seems to need `x`.
But `1 / (1 + |x|)` is the same as `1 - |y|`. Write the kernel of `soft_sign_gradient(dy, y)`, which needs only what
forward has returned. (`tl.abs` takes the absolute value in each lane.)
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def soft_sign_backward_kernel(dy_ptr, y_ptr, dx_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    # <<<
    dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    rest = 1.0 - tl.abs(y)
    tl.store(dx_ptr + offsets, dy * rest * rest, mask=mask)
    # >>>


def soft_sign_gradient(dy, y, BLOCK=64):
    dx = torch.empty_like(y)
    soft_sign_backward_kernel[(triton.cdiv(y.numel(), BLOCK),)](dy, y, dx, y.numel(), BLOCK=BLOCK)
    return dx


# %% checks
PAGE = "learn/own_operation.py"
KIND = "fill in"
ORDER = 1
HINTS = (
    "The chain rule: the upstream gradient times the derivative, lane by lane.",
    "The derivative is `(1 - |y|)` times itself. Load `dy` and `y` with the mask, store with the mask.",
)
WHY = """If the derivative can be written with `y`, save `y`: the next operation mostly keeps it anyway, so it costs
no memory of its own. Then `x` can be freed."""


def check(t):
    def want(dy, y):
        return dy * (1 - y.abs()) ** 2

    for n in (1, 64, 70, *t.sizes(64)):
        y = t.values(n, scale=0.3)
        t.compare(f"n = {n}", "soft_sign_gradient", want, t.values(n), y, name="dx")
    y = t.surrounded(torch.tensor([1.0, -1.0, 0.0, -0.0, 1 - 2.0**-24, 2.0**-24 - 1, 1e-30]))
    t.compare("y from -1 to 1", "soft_sign_gradient", want, t.values(7), y, name="dx")
    y = t.values(9, scale=0.3, dtype=torch.bfloat16)
    t.compare("bfloat16, n = 9", "soft_sign_gradient", want, t.values(9, dtype=torch.bfloat16), y, name="dx")


WRONG = (
    ("n = 1: soft_sign_backward_kernel stores nothing yet",),
    (
        "n = 1: dx[0] is",
        "dy * rest * rest",
        "dy * rest",
    ),
    (
        "n = 1: dx[0] is",
        "dy * rest * rest",
        "rest * rest",
    ),
    (
        ": dx[",
        "tl.abs(y)",
        "y",
    ),
    (
        "PyTorch computes what the kernel loads as dy_ptr",
        "(dy, y, dx, y.numel()",
        "(dy * (1 - y.abs()) ** 2, y, dx, y.numel()",
        "dy * rest * rest",
        "dy",
    ),
)
RIGHT = (
    (
        "1.0 - tl.abs(y)",
        "1.0 - tl.maximum(y, -y)",
    ),
    (
        "dy * rest * rest",
        "dy * (rest * rest)",
    ),
    (
        "    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)\n"
        "    mask = offsets < n\n"
        "    dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(tl.float32)\n"
        "    y = tl.load(y_ptr + offsets, mask=mask, other=0.0).to(tl.float32)\n"
        "    rest = 1.0 - tl.abs(y)\n"
        "    tl.store(dx_ptr + offsets, dy * rest * rest, mask=mask)",
        "    step = tl.num_programs(0) * BLOCK\n"
        "    for start in range(tl.program_id(0) * BLOCK, n, step):\n"
        "        places = start + tl.arange(0, BLOCK)\n"
        "        inside = places < n\n"
        "        y = tl.load(y_ptr + places, mask=inside).to(tl.float32)\n"
        "        factor = tl.where(y < 0, 1.0 + y, 1.0 - y)\n"
        "        tl.store(dx_ptr + places, tl.load(dy_ptr + places, mask=inside).to(tl.float32) * "
        "(factor * factor), mask=inside)",
        "BLOCK=64",
        "BLOCK=32",
        "triton.cdiv(y.numel(), BLOCK)",
        "2",
    ),
)
