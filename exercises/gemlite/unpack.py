"""# Unpack eight weights

Write the kernel of `unpack(words)`: each int32 word holds eight 4-bit weights, the first in the lowest bits.
The result has one int32 number for each weight.

[[figure: layout/packed]]
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def unpack_kernel(words_ptr, out_ptr, n, BLOCK: tl.constexpr):
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # the weights of this program
    # <<<
    word = tl.load(words_ptr + k // 8, mask=k < n, other=0)
    tl.store(out_ptr + k, (word >> (k % 8) * 4) & 0xF, mask=k < n)
    # >>>


def unpack(words):
    n = 8 * len(words)
    out = torch.empty(n, dtype=torch.int32, device=words.device)
    unpack_kernel[(triton.cdiv(n, 16),)](words, out, n, BLOCK=16)
    return out


# %% checks
PAGE = "kernels/gemlite/gemm.md"
KIND = "fill in"
ORDER = 2
HINTS = (
    "Weight `k` is in word `k // 8`, and it is number `k % 8` there.",
    "Number `j` of a word sits at bit `4 * j`: shift it down with `>>`, and keep four bits with `& 0xF`.",
)
WHY = """A shift brings the weight to the lowest four bits, and `& 0xF` removes everything above. That also removes
the copies of the sign bit that `>>` moves in from the left."""


def check(t):
    def want(words):
        shifts = torch.arange(0, 32, 4, device=words.device)
        return ((words.to(torch.int64)[:, None] >> shifts[None, :]) & 15).reshape(-1).to(torch.int32)

    plain = t.surrounded(torch.tensor([0x76543210, 0x0FEDCBA9, 0x11112222], dtype=torch.int32))
    t.compare("three words", "unpack", want, plain, name="q")
    top = t.surrounded(torch.tensor([-0x12345678], dtype=torch.int32))
    t.compare("a word with its top bit set", "unpack", want, top, name="q")
    for n in (1, 2, 3, 40):
        words = torch.tensor([t.random.choice((-1, 0, -(2**31), t.random.randrange(2**31))) for _ in range(n)])
        t.compare(t.counted(n, "word"), "unpack", want, t.surrounded(words.to(torch.int32)), name="q")
    drawn = torch.tensor([t.random.randrange(-(2**31), 2**31) for _ in range(17)], dtype=torch.int32)
    t.compare("drawn", "unpack", want, t.surrounded(drawn), name="q")


WRONG = (
    ("three words: unpack_kernel stores nothing yet",),
    (
        "three words: q[0] is 7, should be 0",
        "(k % 8) * 4",
        "(7 - k % 8) * 4",
    ),
    (
        "three words: q[1] is",
        "(k % 8) * 4",
        "(k % 8)",
    ),
    (
        "three words: q[0] is 1985229328, should be 0",
        "(word >> (k % 8) * 4) & 0xF",
        "word >> (k % 8) * 4",
    ),
    (
        "three words: program 0 of unpack_kernel does a load outside a tensor: element 3 of words_ptr",
        "k // 8",
        "k",
    ),
)
RIGHT = (
    (
        "(word >> (k % 8) * 4) & 0xF",
        "(word >> 4 * (k & 7)) & 15",
    ),
    (
        "k // 8",
        "(k >> 3)",
        "(k % 8) * 4",
        "(k - k // 8 * 8) * 4",
    ),
)
