"""# The mean that fills the padding

`variance(x)` is right for rows of 4 or 8, and too large for rows of 5. Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def variance_kernel(x_ptr, out_ptr, N, stride, BLOCK_N: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK_N)
    mask = columns < N
    x = tl.load(x_ptr + row * stride + columns, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / N
    # <<<
    centred = tl.where(mask, x - mean, 0.0)
    # ===
    # centred = x - mean
    # >>>
    tl.store(out_ptr + row, tl.sum(centred * centred, axis=0) / N)


def variance(x):
    out = torch.empty(x.shape[0], device=x.device)
    variance_kernel[(x.shape[0],)](x, out, x.shape[1], x.stride(0), BLOCK_N=triton.next_power_of_2(x.shape[1]))
    return out


# %% checks
PAGE = "guides/debugging.md"
KIND = "find the bug"
ORDER = 7
HINTS = (
    "The masked lanes read 0, which adds nothing to the first sum. What do they hold after the mean is subtracted?",
    "`tl.where(mask, a, b)` takes `a` where the mask is true and `b` elsewhere.",
)
WHY = """Any statement after the load may make masked lanes nonzero again. It is an exhibit of the
[museum of bugs](../../docs/guides/debugging.md#4-the-mean-that-fills-the-padding)."""


def check(t):
    def want(x):
        return x.var(1, unbiased=False)

    centred_too_late = "0)-mean" in t.source.replace(" ", "")
    held = "minus the mean, which is subtracted after the `tl.where`" if centred_too_late else "0 when they are loaded"
    note = f"Three lanes of the block are masked off. They hold {held}."
    t.compare("2 x 8", "variance", want, t.values(2, 8) + 1)
    squares = "Squares of large numbers have lost their last digits."
    t.compare("mean 1000, 2 x 8", "variance", want, t.values(2, 8) + 1000, note=squares)
    t.compare("2 x 5", "variance", want, t.values(2, 5) + 5, note=note)
    t.compare("mean 1000, 3 x 5", "variance", want, t.cut(3, 5) + 1000)
    t.compare("rows cut out of wider ones", "variance", want, t.cut(2, t.random.randint(3, 12)))
    for columns in t.sizes(32):
        t.compare(f"2 x {columns}", "variance", want, t.cut(2, columns) + 2)
    t.compare("40 x 3", "variance", want, t.cut(40, 3))


WRONG = (
    (
        "They hold minus the mean, which is subtracted after the `tl.where`",
        "tl.where(mask, x - mean, 0.0)",
        "tl.where(mask, x, 0.0) - mean",
    ),
    ("2 x 5: out[0] is",),
    (
        "2 x 8: out[0] is",
        "centred = tl.where(mask, x, mean)",
    ),
    (
        "mean 1000, 2 x 8: out[0] is",
        "tl.sum(centred * centred, axis=0) / N",
        "tl.sum(x * x, axis=0) / N - mean * mean",
    ),
    (
        "2 x 5: out[0] is",
        "centred = x - tl.sum(x, axis=0) / BLOCK_N",
    ),
)
RIGHT = (
    ("centred = (x - mean) * mask.to(tl.float32)",),
    ("x = tl.load(x_ptr + row * stride + columns, mask=mask, other=mean)\ncentred = x - mean",),
)
