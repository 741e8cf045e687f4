"""# The NaN that was never there

`scales(x)` gives each row of `x` the scale that puts its largest magnitude at 448, and a row of zeros the scale 1. If
there is a NaN in a row, its scale must be NaN, so that somebody notices. It isn't. Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def scales_kernel(x_ptr, scale_ptr, N, stride, BLOCK_N: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + row * stride + columns, mask=columns < N, other=0.0)
    # <<<
    bits = x.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    largest = tl.max(bits, axis=0).to(tl.float32, bitcast=True)
    # ===
    # largest = tl.max(tl.abs(x), axis=0)
    # >>>
    scale = tl.where(largest == 0, 1.0, tl.div_rn(largest, 448.0))
    tl.store(scale_ptr + row, scale)


def scales(x):
    scale = torch.empty(x.shape[0], device=x.device)
    scales_kernel[(x.shape[0],)](x, scale, x.shape[1], x.stride(0), BLOCK_N=triton.next_power_of_2(x.shape[1]))
    return scale


# %% checks
PAGE = "kernels/fp8/quantize.md"
KIND = "find the bug"
ORDER = 2
HINTS = (
    "What does `tl.max` do with a NaN beside numbers?",
    "The bits of a float32 without the sign, read as an integer, have the order of the magnitudes. Where in that order "
    "is NaN?",
    "`.to(tl.int32, bitcast=True)` gives the bits, and `.to(tl.float32, bitcast=True)` the number back.",
)
WHY = """Of a number and a NaN, the maximum that `tl.max` takes is the number. Read as integers, the bits of NaN are
larger than those of any number, so an integer maximum keeps it."""


def check(t):
    def want(x):
        largest = x.abs().amax(1)
        largest = torch.where(x.isnan().any(1), float("nan"), largest)
        return torch.where(largest == 0, 1.0, largest / 448)

    for rows, columns in (
        (3, 5),
        (2, t.random.randint(2, 12)),
        (1, 1),
        (40, 3),
        *((2, columns) for columns in t.sizes(32)),
    ):
        t.compare(f"{rows} x {columns}", "scales", want, t.values(rows, columns))
    t.compare("2 x 4, tiny", "scales", want, t.values(2, 4, scale=1e-30))
    zeros = t.values(3, 6)
    zeros[1] = 0
    t.compare("3 x 6, a row of zeros", "scales", want, zeros)
    for sign in (1, -1):
        x = t.values(3, 6)
        x[1, t.random.randint(0, 5)] = sign * float("nan")
        t.compare("3 x 6, a NaN in row 1", "scales", want, x, note="What does `tl.max` do with it?")
        x = t.values(3, 6)
        x[2, 3] = sign * float("inf")
        t.compare("3 x 6, an infinity in row 2", "scales", want, x, note="It is the largest, and no NaN.")


WRONG = (
    ("3 x 6, a NaN in row 1: out[1] is",),
    ("3 x 5: out[", "x.to(tl.int32, bitcast=True) & 0x7FFFFFFF", "x.to(tl.int32, bitcast=True)"),
    ("3 x 5: out[0] is", "tl.max(bits, axis=0).to(tl.float32, bitcast=True)", "tl.max(bits, axis=0).to(tl.float32)"),
    ("3 x 6, a NaN in row 1: out[1] is", "largest = tl.max(tl.where(x == x, tl.abs(x), 0.0), axis=0)"),
)
RIGHT = (
    (
        "nan = tl.max((x != x).to(tl.int32), axis=0)\n"
        'largest = tl.where(nan > 0, float("nan"), tl.max(tl.abs(x), axis=0))',
    ),
    ("largest = tl.max(tl.abs(x).to(tl.int32, bitcast=True), axis=0).to(tl.float32, bitcast=True)",),
)
