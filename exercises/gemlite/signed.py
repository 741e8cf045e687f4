"""# Minus one is not fifteen

`weights(words)` unpacks signed 4-bit weights, from -8 to 7. They were stored with 8 added, so that they are
never negative. The result is wrong. Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def weights_kernel(words_ptr, out_ptr, n, BLOCK: tl.constexpr):
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    word = tl.load(words_ptr + k // 8, mask=k < n, other=0)
    q = (word >> (k % 8) * 4) & 0xF
    # <<<
    weight = q - 8
    # ===
    # weight = tl.where(q > 7, q - 16, q)
    # >>>
    tl.store(out_ptr + k, weight.to(tl.float32), mask=k < n)


def weights(words):
    n = 8 * len(words)
    out = torch.empty(n, device=words.device)
    weights_kernel[(triton.cdiv(n, 16),)](words, out, n, BLOCK=16)
    return out


# %% checks
PAGE = "kernels/gemlite/gemm.md"
KIND = "find the bug"
ORDER = 3
HINTS = (
    "What is stored for -8, for -1 and for 7?",
    "The starter undoes two's complement. What undoes an addition of 8?",
)
WHY = """A signed integer is stored with `2**(W_nbits - 1)` added, and that is its zero point. The group modes of the
lesson subtract it like any other zero point."""


def check(t):
    def want(words):
        shifts = torch.arange(0, 32, 4, device=words.device)
        return (((words.to(torch.int64)[:, None] >> shifts[None, :]) & 15) - 8).reshape(-1).to(torch.float32)

    drawn = [t.random.randrange(-(2**31), 2**31) for _ in range(17)]
    for case, words in (
        ("-8 to -1", [0x76543210]), ("7, then zeros", [-0x77777771]), ("all 7", [-1]), ("drawn", drawn),
        ("all -8", [0]), ("many", drawn * 3),
    ):  # fmt: skip
        t.compare(case, "weights", want, t.surrounded(torch.tensor(words, dtype=torch.int32)), name="w", exact=True)


WRONG = (
    ("-8 to -1: w[0] is 0, should be -8",),
    (
        "-8 to -1: w[0] is -7, should be -8",
        "weight = q - 7",
    ),
    (
        "-8 to -1: w[0] is 0, should be -8",
        "weight = q",
    ),
    (
        "-8 to -1: w[0] is -16, should be -8",
        "weight = q - 16",
    ),
    (
        "-8 to -1: w[0] is 8, should be -8",
        "weight = 8 - q",
    ),
)
RIGHT = (
    ("weight = q.to(tl.float32) - 8.0",),
    ("zero = 1 << 3\nweight = q - zero",),
)
