"""# Which weights share a byte?

`packed(x)` gets whole numbers from 0 to 15, as floats, and puts two into each byte: numbers 2i and 2i + 1 of a row into
byte i, the first into the low half. Rows of two come out right, longer ones don't. Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def packed_kernel(x_ptr, out_ptr, K: tl.constexpr):
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * K + tl.arange(0, K)).to(tl.int32)
    # <<<
    low, high = tl.split(tl.reshape(x, (K // 2, 2)))
    # ===
    # low, high = tl.split(tl.trans(tl.reshape(x, (2, K // 2))))
    # >>>
    tl.store(out_ptr + row * (K // 2) + tl.arange(0, K // 2), (low | (high << 4)).to(tl.uint8))


def packed(x):
    M, K = x.shape
    out = torch.empty(M, K // 2, dtype=torch.uint8, device=x.device)
    packed_kernel[(M,)](x, out, K=K)
    return out


# %% checks
PAGE = "kernels/mx/microscaling.md"
KIND = "find the bug"
ORDER = 5
HINTS = (
    "`tl.split` takes apart what lies along the last dimension, which must be two. Which two elements should that be?",
    "In a block of K/2 rows of two, a row holds two neighbours.",
)
WHY = """Read row by row as K/2 pairs, the block has two neighbours in each pair, and `tl.split` separates firsts from
seconds. As two rows of K/2, transposed, element i would share a byte with element i + K/2. Some formats are packed like
that: ask which, before you decode one."""


def check(t):
    def want(x):
        x = x.to(torch.int32)
        return (x[:, ::2] | (x[:, 1::2] << 4)).to(torch.uint8)

    def whole(rows, columns):
        return torch.tensor(
            [[t.random.randint(0, 15) for _ in range(columns)] for _ in range(rows)], dtype=torch.float32
        ).to(device.DEVICE)

    first = torch.arange(8, dtype=torch.float32, device=device.DEVICE)[None]
    for case, x in (
        ("1 x 8", first),
        ("3 x 16", whole(3, 16)),
        ("some rows of 8", whole(t.random.randint(2, 6), 8)),
        ("2 x 2", whole(2, 2)),
        ("40 x 64", whole(40, 64)),
        ("zeros and fifteens", 15 * (whole(3, 8) > 7).float()),
    ):
        t.compare(case, "packed", want, x, exact=True, spare=("*",))


WRONG = (
    ("1 x 8: out[",),
    ("1 x 8: out[", "low | (high << 4)", "high | (low << 4)"),
    ("1 x 8: out[", "high << 4", "high << 3"),
)
RIGHT = (
    ("low | (high << 4)", "low + 16 * high"),
    (
        "tl.split(tl.reshape(x, (K // 2, 2)))",
        "tl.split(tl.trans(tl.reshape(tl.trans(tl.reshape(x, (K // 2, 2))), (2, K // 2))))",
    ),
)
