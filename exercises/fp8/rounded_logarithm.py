"""# A logarithm that rounds

`exponents(largest)` gives, for each group's largest magnitude, the smallest whole number `e` for which `largest` is at
most 448 · 2ᵉ: the scale as a power of two. (`tl.log2` takes the binary logarithm, and `tl.ceil` rounds up.) Next to
powers of two it is sometimes one too small, and then codes saturate. Find the bug.

All magnitudes are normal numbers, and 448 is 1.75 · 2⁸.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def exponents_kernel(largest_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    largest = tl.load(largest_ptr + offs, mask=offs < n, other=1.0)
    # <<<
    bits = largest.to(tl.int32, bitcast=True)
    exponent = (bits >> 23) - 127 - 8
    exponent += ((bits & 0x7FFFFF) > 0x600000).to(tl.int32)
    # ===
    # exponent = tl.ceil(tl.log2(largest / 448.0)).to(tl.int32)
    # >>>
    tl.store(out_ptr + offs, exponent, mask=offs < n)


def exponents(largest):
    out = torch.empty(len(largest), dtype=torch.int32, device=largest.device)
    exponents_kernel[(triton.cdiv(len(largest), 4),)](largest, out, len(largest), BLOCK=4)
    return out


# %% checks
PAGE = "kernels/fp8/quantize.md"
KIND = "find the bug"
ORDER = 3
HINTS = (
    "In float32, which number lies next to 60? Can a logarithm say that its argument is one bit above 2⁶⁰?",
    "The exponent of a float32 stands in its bits 23 to 30, with 127 added: `(bits >> 23) - 127`.",
    "Less 8, it is `e`, and one more is needed if the mantissa is beyond 1.75. The mantissa is the lower 23 bits: "
    "those of 1.75 are `0x600000`.",
)
WHY = """Numbers next to 60 are 2⁻¹⁸ apart, so the logarithm of a number one bit above 2⁶⁰ is rounded to 60, and
rounding up changes nothing any more. The bits hold the exponent exactly."""


def check(t):
    def want(largest):
        exact = largest.double()
        e = torch.floor(torch.log2(exact)) - 10
        for _ in range(4):
            e = torch.where(exact > 448 * torch.exp2(e), e + 1, e)
        return e.to(torch.int32)

    def numbers(values):
        return t.surrounded(torch.tensor(values, dtype=torch.float32).to(device.DEVICE))

    def beside(exponent):
        number = 448 * 2.0**exponent
        return [number * (1 - 2.0**-24), number, number * (1 + 2.0**-22)]

    t.compare("448, 449, 1 and 1000", "exponents", want, numbers([448.0, 449.0, 1.0, 1000.0]), spare=("*",))
    t.compare(
        "beside 448 * 2**60", "exponents", want, numbers([448 * 2.0**60 * (1 + 2.0**-23)]),
        note="Can its logarithm be told from 60 in float32?", spare=("*",),
    )  # fmt: skip
    drawn = t.random.randint(30, 100)
    for exponent in (0, -20, drawn, -drawn, 118, -120, 1, -1):
        t.compare(f"beside 448 * 2**{exponent}", "exponents", want, numbers(beside(exponent)), spare=("*",))
    ends = [2.0**-126, 448 * 2.0**-126, 448 * 2.0**-126 * (1 + 2.0**-22), (2 - 2.0**-23) * 2.0**127]
    t.compare("the smallest and the largest", "exponents", want, numbers(ends), spare=("*",))
    values = [2.0 ** t.random.randint(-100, 100) * t.random.uniform(1, 2) for _ in range(t.random.randint(5, 9))]
    t.compare("drawn", "exponents", want, numbers(values), spare=("*",))


WRONG = (
    ("beside 448 * 2**60: out[0] is",),
    ("448, 449, 1 and 1000: out[0] is", "> 0x600000", ">= 0x600000"),
    ("448, 449, 1 and 1000: out[0] is", "- 127 - 8", "- 127"),
    ("the smallest and the largest: out[3] is", "- 127 - 8", "- 127 - 8 + (bits == 0x7F7FFFFF).to(tl.int32)"),
    ("448, 449, 1 and 1000: out[1] is", "((bits & 0x7FFFFF) > 0x600000).to(tl.int32)", "0"),
)
RIGHT = (
    ("bits = largest.to(tl.int32, bitcast=True)\nexponent = ((bits + 0x1FFFFF) >> 23) - 127 - 8",),
    (
        "bits = largest.to(tl.int32, bitcast=True)\n"
        "exponent = tl.where((bits & 0x7FFFFF) <= 0x600000, (bits >> 23) - 135, (bits >> 23) - 134)",
    ),
)
