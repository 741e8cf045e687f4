"""# The sign of a NaN

`order_of(x)` makes whole numbers of floats, so that a larger float has a larger number. Zeros of either sign are equal,
and NaN comes above everything, infinity included. It is right for NaN as PyTorch's `torch.nan` has it. But a NaN has a
sign bit, too, and some operations set it. Those end up below minus infinity. Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def order_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    bits = tl.where(x == 0.0, 0.0, x).to(tl.int32, bitcast=True)
    order = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    # <<<
    order = tl.where(x == x, order, 0x7FFFFFFF)
    # ===
    # order = tl.where(bits > 0x7F800000, 0x7FFFFFFF, order)
    # >>>
    tl.store(out_ptr + offsets, order, mask=offsets < n)


def order_of(x):
    out = torch.empty(len(x), dtype=torch.int32, device=device.DEVICE)
    order_kernel[(triton.cdiv(len(x), 8),)](x, out, len(x), BLOCK=8)
    return out


# %% checks
PAGE = "kernels/attention/select_keys.md"
KIND = "find the bug"
ORDER = 2
HINTS = (
    "The bits of a NaN with a sign are negative, and are turned round like those of a negative number.",
    "Only a NaN differs from itself. All of them can get the largest whole number, 0x7FFFFFFF.",
)
WHY = """`0 * inf` gives a NaN with the sign bit on x86 processors, and `torch.nan` has none. A selection that reads the
bits alone keeps one and drops the other, so a fault upstream shows in some runs and hides in others. In `torch.topk`
every NaN comes first."""


def check(t):
    def want(x):
        order = []
        for value, bits in zip(x.tolist(), x.view(torch.int32).tolist()):
            bits = 0 if value == 0 else bits
            order.append(0x7FFFFFFF if value != value else bits ^ 0x7FFFFFFF if bits < 0 else bits)
        return torch.tensor(order, dtype=torch.int32, device=device.DEVICE)

    nan, inf = float("nan"), float("inf")

    def floats(*numbers):
        return t.surrounded(torch.tensor(numbers, dtype=torch.float32))

    def signed(x):
        return t.surrounded((x.view(torch.int32) | -0x80000000).view(torch.float32))

    t.compare("ordinary numbers", "order_of", want, t.values(17), exact=True)
    t.compare("zeros and infinities", "order_of", want, floats(0.0, -0.0, inf, -inf, 1e-45, -1e-45), exact=True)
    note = "A comparison with NaN is never true, not even of NaN with itself."
    t.compare("a NaN", "order_of", want, floats(1.0, nan, -2.0), exact=True, note=note)
    t.compare("a NaN with a sign", "order_of", want, signed(floats(-1.0, nan, -2.0)), exact=True)


WRONG = (
    ("a NaN with a sign: out[1] is",),
    ("a NaN: out[1] is", "tl.where(x == x, order, 0x7FFFFFFF)", "tl.where(x == x, order, -0x7FFFFFFF)"),
    ("zeros and infinities: out[1] is", "tl.where(x == 0.0, 0.0, x).to", "x.to"),
)
RIGHT = (
    ("order = tl.where(x != x, 0x7FFFFFFF, order)",),
    ("order = tl.where((bits & 0x7FFFFFFF) > 0x7F800000, 0x7FFFFFFF, order)",),
)
