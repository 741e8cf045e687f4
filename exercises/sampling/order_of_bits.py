"""# The order in the bits

`keys(x)` gives each float32 a whole number, so that a larger float has a larger key, and equal ones the same. The bits
of a negative float are inverted, and of any other the sign bit is set. Minus zero counts as zero. There is no NaN.

The kernel has the bits of each element as an int32, so those of negative floats are below 0. The result is an int64
from 0 to 2³² − 1.

[[figure: choosing/keys]]
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def keys_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    # <<<
    bits = tl.where(x == 0.0, 0.0, x).to(tl.int32, bitcast=True).to(tl.int64)
    key = tl.where(bits < 0, -1 - bits, bits + 2147483648)
    # ===
    # bits = x.to(tl.int32, bitcast=True).to(tl.int64)
    # key = bits  # your code here
    # >>>
    tl.store(out_ptr + offsets, key, mask=mask)


def keys(x):
    out = torch.empty(x.shape, dtype=torch.int64, device=x.device)
    keys_kernel[(triton.cdiv(x.numel(), 8),)](x, out, x.numel(), BLOCK=8)
    return out


# %% checks
PAGE = "kernels/sampling/sample.md"
KIND = "fill in"
ORDER = 1
HINTS = (
    "Inverting all bits of a whole number n gives −1 − n. What does that make of the bits of −1 and of −2?",
    "As an int32 a number below 0 becomes one from 0 to 2³¹ − 1. Setting the sign bit of the others adds 2³¹.",
    "`tl.where(x == 0.0, 0.0, x)` replaces a minus zero before its bits are taken.",
)
WHY = """In each half the keys run the same way as the floats, and every key of the negative half is below 2³¹. All
that an order is good for, such as a maximum, a count, a threshold, now works with whole numbers."""


def check(t):
    def want(x):
        import struct

        found = []
        for value in x.tolist():
            bits = struct.unpack("<I", struct.pack("<f", value + 0.0))[0]
            found.append(bits ^ 0xFFFFFFFF if bits >> 31 else bits | 0x80000000)
        return torch.tensor(found, dtype=torch.int64, device=device.DEVICE)

    def floats(numbers):
        return t.surrounded(torch.tensor(numbers, dtype=torch.float32))

    no_nan = ("a NaN",)
    t.compare("1, 2, 3", "keys", want, floats([1.0, 2.0, 3.0]), spare=no_nan)
    t.compare("-1, -2, 1", "keys", want, floats([-1.0, -2.0, 1.0]), spare=no_nan)
    t.compare("0 and minus 0", "keys", want, floats([0.0, -0.0, 1e-30, -1e-30]), spare=no_nan)
    t.compare("infinities", "keys", want, floats([float("inf"), -float("inf"), 3e38, -3e38]), spare=no_nan)
    t.compare("9 numbers", "keys", want, t.values(9), spare=no_nan)
    tiny = [2.0**-149, -(2.0**-149), 2.0**-127, -(2.0**-127), 2.0**-126, 1 + 2.0**-23, -1 - 2.0**-23]
    t.compare("the smallest there are", "keys", want, floats(tiny), spare=no_nan)
    for n in t.sizes(8):
        values = t.values(n, scale=10.0 ** t.random.randint(-30, 30))
        t.compare(f"{n} numbers", "keys", want, values, spare=no_nan)


WRONG = (
    ("1, 2, 3: out[0] is",),
    ("-1, -2, 1: out[0] is", "tl.where(bits < 0, -1 - bits, bits + 2147483648)", "bits + 2147483648"),
    ("0 and minus 0: out[1] is", "tl.where(x == 0.0, 0.0, x)", "x"),
    ("-1, -2, 1: out[0] is", "-1 - bits", "-bits"),
)
RIGHT = (
    (
        "bits = (x + 0.0).to(tl.int32, bitcast=True)\n"
        "key = tl.where(bits < 0, ~bits, bits ^ -2147483648).to(tl.uint32, bitcast=True).to(tl.int64)",
    ),
    (
        "bits = tl.where(x == 0.0, 0.0, x).to(tl.int32, bitcast=True).to(tl.int64)\n"
        "key = (bits ^ ((bits >> 63) & 2147483647)) + 2147483648",
    ),
)
