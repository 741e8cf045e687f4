"""# The exponent of a group

`exponents(x)` gives each row of 32 a power of two, the smallest one over which nothing in the row passes 6, as a byte:
127 more than its exponent. It takes a logarithm, which just above a whole number is rounded down to it. Then the byte
is one too small. In the bits of a float32 the exponent stands as it is: find the byte without a logarithm. The largest
code, 6, is 1.5 times 4.
"""

# %% solution
import math

from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def exponents_kernel(x_ptr, byte_ptr):
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * 32 + tl.arange(0, 32))
    # <<<
    bits = tl.max(x.to(tl.int32, bitcast=True) & 0x7FFFFFFF, axis=0)
    byte = (bits >> 23) - 2 + ((bits & 0x7FFFFF) > 0x400000).to(tl.int32)
    # ===
    # largest = tl.max(tl.abs(x), axis=0)
    # logarithm = tl.log2(largest / 6)
    # byte = (127 + tl.ceil(logarithm)).to(tl.int32)
    # >>>
    tl.store(byte_ptr + row, byte.to(tl.uint8))


def exponents(x):
    byte = torch.empty(len(x), dtype=torch.uint8, device=x.device)
    exponents_kernel[(len(x),)](x, byte)
    return byte


# %% checks
PAGE = "kernels/mx/microscaling.md"
KIND = "find the bug"
ORDER = 4
HINTS = (
    "`x.to(tl.int32, bitcast=True)` are the bits. Bit 23 begins the exponent, 127 larger; below it is the mantissa.",
    "Four has the exponent 2. One more is needed if the mantissa of the largest is beyond 1.5, which is `0x400000`.",
)
WHY = """The exponent field is already 127 larger, as the byte is. Comparing two mantissas says whether to round up.
There is no logarithm, no division, and no rounding: the byte is right from 2⁻¹²⁵ to the largest float32. Below that a
kernel must see to it that the byte isn't negative: a row of zeros would get −2."""


def check(t):
    def byte(largest):
        mantissa, exponent = math.frexp(largest)
        return 127 + exponent - 1 - 2 + (2 * mantissa > 1.5)

    def want(x):
        found = [byte(largest) for largest in x.abs().amax(1).tolist()]
        return torch.tensor(found, dtype=torch.uint8).to(x.device)

    def rows(*largest):
        x = t.positive(len(largest), 32).contiguous() * 0
        x[:, 7] = torch.tensor(largest, device=device.DEVICE)
        return x

    some = ("zeros", "a NaN", "an infinity", "minus infinity")  # no power of two fits
    t.compare("4 rows", "exponents", want, t.values(4, 32).contiguous(), exact=True, spare=some)
    many = t.values(t.random.randint(5, 9), 32, scale=1e-6).contiguous()
    t.compare("small numbers", "exponents", want, many, exact=True, spare=some)
    t.compare(
        "6, and one bit more",
        "exponents",
        want,
        rows(6.0, 6.0 + 2.0**-21, -6.0 - 2.0**-21),
        exact=True,
        spare=("*",),
        note="The largest of the rows are 6, 6 and one bit more, and the same, negative.",
    )
    t.compare(
        "1.5 times 1024",
        "exponents",
        want,
        rows(1536.0, 1536.0 + 2.0**-13, 1536.0 - 2.0**-13),
        exact=True,
        spare=("*",),
        note="The largest of the rows are 1536, one bit more, and one bit less.",
    )
    t.compare(
        "near 2 to the 100", "exponents", want, rows(1.5 * 2.0**100, 2.0**100, 1.5 * 2.0**100 + 2.0**77), exact=True,
        spare=("*",),
    )  # fmt: skip
    far = [1.5 * 2.0**exponent for exponent in range(-120, 125, 7)]
    t.compare("1.5 times any power", "exponents", want, rows(*far), exact=True, spare=("*",))
    t.compare("beside it", "exponents", want, rows(*(x * (1 + 2.0**-23) for x in far)), exact=True, spare=("*",))


WRONG = (
    ("1.5 times 1024: out[",),
    ("one bit more: out[", "> 0x400000", ">= 0x400000"),
    ("4 rows: out[", "0x400000", "0x600000"),
    ("small numbers: out[", "& 0x7FFFFFFF", "& -1"),
    ("4 rows: out[", "(bits >> 23) - 2 +", "(bits >> 23) +"),
)
RIGHT = (
    ("((bits & 0x7FFFFF) > 0x400000).to(tl.int32)", "tl.where((bits & 0x7FFFFF) > 0x400000, 1, 0)"),
    ("(bits >> 23) - 2 + ((bits & 0x7FFFFF) > 0x400000).to(tl.int32)", "((bits + 0x3FFFFF) >> 23) - 2"),
)
