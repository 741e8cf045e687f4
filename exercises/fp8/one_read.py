"""# Round a group with one read

`as_stored(x)` gives what is left of `x` after it has been stored in eight bits with a scale for every eight elements.
(Training does that to show a model its later rounding.) The kernel loads each element twice. Make it load each once.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def as_stored_kernel(x_ptr, y_ptr, n, GROUP: tl.constexpr):
    offs = tl.program_id(0) * GROUP + tl.arange(0, GROUP)
    mask = offs < n
    # <<<
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    largest = tl.max(tl.abs(x), axis=0)
    scale = tl.where(largest == 0, 1.0, tl.div_rn(largest, 448.0))
    codes = (x * tl.div_rn(1.0, scale)).to(tl.float8e4nv)
    # ===
    # largest = tl.max(tl.abs(tl.load(x_ptr + offs, mask=mask, other=0.0)), axis=0)
    # scale = tl.where(largest == 0, 1.0, tl.div_rn(largest, 448.0))
    # codes = (tl.load(x_ptr + offs, mask=mask, other=0.0) * tl.div_rn(1.0, scale)).to(tl.float8e4nv)
    # >>>
    tl.store(y_ptr + offs, codes.to(tl.float32) * scale, mask=mask)


def as_stored(x):
    y = torch.empty(len(x), device=x.device)
    as_stored_kernel[(triton.cdiv(len(x), 8),)](x, y, len(x), GROUP=8)
    return y


# %% checks
PAGE = "kernels/fp8/quantize.md"
KIND = "read fewer bytes"
ORDER = 4
HINTS = (
    "What is in a variable is in registers. How often can it be used?",
    "Load into `x` first, and use `x` in both places.",
)
WHY = """A group fits into registers, so the scale and the codes come from one load. Rows that don't fit have to be read
twice."""


def check(t):
    def want(x):
        groups = torch.cat([x, torch.zeros(-len(x) % 8, device=x.device)]).view(-1, 8)
        largest = groups.abs().amax(1)
        scale = torch.where(largest == 0, 1.0, largest / 448)[:, None]
        return ((groups * (1 / scale)).to(torch.float8_e4m3fn).float() * scale).flatten()[: len(x)]

    def joined(*parts):
        return t.surrounded(torch.cat(parts))

    for case, x in (
        ("8 numbers", t.values(8)),
        ("25 numbers", t.values(25)),
        ("20 small numbers", t.values(20, scale=1e-3)),
        ("a group of zeros", joined(t.values(8), torch.zeros(8, device=device.DEVICE), t.values(3))),
        *((f"{n} numbers", t.values(n)) for n in t.sizes(8)),
        ("an outlier", joined(t.values(15), 1000 * t.positive(1), t.values(t.random.randint(1, 9)))),
    ):
        run = t.compare(case, "as_stored", want, x, exact=True, spare=("a NaN", "an infinity", "minus infinity"))
        t.traffic(case, run, read=4 * x.numel(), written=4 * x.numel())


WRONG = (
    ("8 numbers: 64 bytes are read, 32 are enough",),
    ("numbers: out[", "other=0.0)", "other=1.0)"),
    ("numbers: out[", "tl.max(tl.abs(x), axis=0)", "tl.max(x, axis=0)"),
    (
        "a group of zeros: out[8] is",
        "tl.where(largest == 0, 1.0, tl.div_rn(largest, 448.0))",
        "tl.div_rn(largest, 448.0)",
    ),
)
RIGHT = (
    ("x = tl.load(x_ptr + offs, mask=mask, other=0.0)\n"
     "largest = tl.max(tl.where(mask, tl.abs(x), 0.0), axis=0)\n"
     "scale = tl.where(largest > 0, tl.div_rn(largest, 448.0), 1.0)\n"
     "codes = (x * tl.div_rn(1.0, scale)).to(tl.float8e4nv)",),
    ("tl.max(tl.abs(x), axis=0)", "tl.maximum(tl.max(x, axis=0), -tl.min(x, axis=0))"),
)  # fmt: skip
