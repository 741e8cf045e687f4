"""# Two weights from a byte

`weights(packed)` decodes numbers of four bits, two in each byte: the first of them is in the low half. A code is a
sign, two bits of exponent and one of mantissa: codes 0 to 7 are 0, 0.5, 1, 1.5, 2, 3, 4 and 6. Fill in how a code
becomes a number.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def weights_kernel(packed_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    packed = tl.load(packed_ptr + offs // 2, mask=offs < n, other=0).to(tl.int32)
    code = (packed >> (4 * (offs % 2))) & 15
    # <<<
    exponent, mantissa = (code >> 1) & 3, code & 1
    halves = tl.where(exponent == 0, mantissa, (2 + mantissa) << tl.maximum(exponent - 1, 0))
    number = halves.to(tl.float32) / 2
    tl.store(out_ptr + offs, tl.where(code >= 8, -number, number), mask=offs < n)
    # >>>


def weights(packed):
    n = 2 * len(packed)
    out = torch.empty(n, device=packed.device)
    weights_kernel[(triton.cdiv(n, 16),)](packed, out, n, BLOCK=16)
    return out


# %% checks
PAGE = "kernels/mx/mx_matmul.md"
KIND = "fill in"
ORDER = 2
HINTS = (
    "Counted in halves the codes 0 to 7 are 0, 1, 2, 3, 4, 6, 8 and 12. What does each step of the exponent do?",
    "From code 2 on there are 2 or 3 halves, shifted left by the exponent less one.",
)
WHY = """With an exponent of 0 the mantissa counts halves. Otherwise a leading one stands in front of it: two or three
halves, doubled with each further exponent. The fourth bit is the sign."""


def check(t):
    def want(packed):
        table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
        codes = torch.stack([packed.to(torch.int64) & 15, packed.to(torch.int64) >> 4], 1).flatten()
        return table.to(packed.device)[codes]

    every = torch.tensor([low + 16 * ((low * 7 + 3) % 16) for low in range(16)], dtype=torch.uint8)
    for case, packed in (
        ("every code", every.to(device.DEVICE)),
        ("one byte", every[5:6].to(device.DEVICE)),
        ("two programs", torch.cat([every, every[:3]]).to(device.DEVICE)),
        ("any bytes", torch.arange(256, dtype=torch.uint8).to(device.DEVICE)),
        ("some bytes", every[: t.random.randint(9, 15)].to(device.DEVICE)),
    ):
        t.compare(case, "weights", want, packed, exact=True)


WRONG = (
    ("weights_kernel stores nothing yet",),
    ("every code: out[", "tl.where(exponent == 0, mantissa,", "tl.where(exponent == 5, mantissa,"),
    ("every code: out[", "tl.where(code >= 8, -number, number)", "number"),
    ("every code: out[", "tl.maximum(exponent - 1, 0)", "exponent"),
)
RIGHT = (
    ("tl.where(code >= 8, -number, number)", "number * (1 - 2 * (code >> 3)).to(tl.float32)"),
    ("tl.where(exponent == 0, mantissa, (2 + mantissa) << tl.maximum(exponent - 1, 0))",
     "tl.where(code & 7 < 2, mantissa, (2 + mantissa << exponent) >> 1)"),
)  # fmt: skip
