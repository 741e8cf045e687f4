"""# An activation of your own

Write a jitted `hard_swish(z)`, which is z · min(max(z + 3, 0), 6) / 6, to be passed to a kernel as `ACTIVATION`. A NaN
must come out as NaN.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def hard_swish(z):
    # <<<
    return z * tl.minimum(tl.maximum(z + 3.0, 0.0), 6.0) / 6.0
    # ===
    # return z
    # >>>


@triton.jit
def activate_kernel(x_ptr, out_ptr, n, ACTIVATION: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, ACTIVATION(x), mask=mask)


def activate(x):
    out = torch.empty_like(x)
    activate_kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), ACTIVATION=hard_swish, BLOCK=64)
    return out


# %% checks
PAGE = "learn/autotuning.py"
KIND = "fill in"
ORDER = 10
HINTS = (
    "`tl.minimum` and `tl.maximum` work lane by lane, and a plain number applies to every lane.",
    "`tl.maximum` of NaN and 0 is 0 on a GPU. Which factor brings the NaN back?",
)
WHY = "`tl.maximum` of NaN and 0 is 0 on a GPU, but the product with `z` brings the NaN back."


def check(t):
    def want(x):
        return x * (x + 3).clamp(0, 6) / 6

    limit = ("minus infinity",)  # times 0 it is NaN; the limit is 0
    t.compare("numbers from -6 to 7", "activate", want, t.values(100, scale=2.0), spare=limit)
    t.compare("-3, 0 and 3", "activate", want, t.surrounded(torch.tensor([-3.0, 0.0, 3.0])), spare=limit)
    for n in t.sizes(64):
        t.compare(
            f"{n} numbers", "activate", want, t.values(n, scale=t.random.choice((0.01, 1.0, 1.4, 1e6))), spare=limit
        )
    near = [3.0 + 2.0**-20, 3.0 - 2.0**-20, -3.0 + 2.0**-20, -3.0 - 2.0**-20, 1e-30, -1e-30, 1e30, -1e30]
    t.compare("beside the ends", "activate", want, t.surrounded(torch.tensor(near)), spare=limit)
    t.compare("64 large numbers", "activate", want, t.values(64, scale=1e6), spare=limit)
    t.compare("NaN", "activate", want, t.surrounded(torch.tensor([float("nan"), 1.0])), spare=limit)


WRONG = (
    ("numbers from -6 to 7: out[0] is",),
    (
        "numbers from -6 to 7: out[",
        "tl.minimum(tl.maximum(z + 3.0, 0.0), 6.0)",
        "tl.maximum(z + 3.0, 0.0)",
    ),
    (
        "numbers from -6 to 7: out[",
        "/ 6.0",
        "/ 3.0",
    ),
    (
        "NaN: out[0] is 0, should be nan",
        "return z * tl.minimum(tl.maximum(z + 3.0, 0.0), 6.0) / 6.0",
        "return tl.where(z > 0, z, tl.where(z <= 0, z, 0.0)) * tl.minimum(tl.maximum(z + 3.0, 0.0), 6.0) / 6.0",
    ),
)
RIGHT = (
    ("return tl.where(z < -3.0, 0.0, tl.where(z > 3.0, z, z * (z + 3.0) / 6.0))",),
    ("gate = tl.maximum(z + 3.0, 0.0) / 6.0\nreturn tl.minimum(gate, 1.0) * z",),
)
