"""# Load each word once

`unpack(words)` has a lane for each weight, and each lane loads its word: every word is loaded eight times.
Make it load each word once.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def unpack_kernel(words_ptr, out_ptr, n_words, BLOCK: tl.constexpr):
    # <<<
    w = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.arange(0, 8)
    word = tl.load(words_ptr + w, mask=w < n_words, other=0)
    q = (word[:, None] >> (4 * j)[None, :]) & 0xF
    tl.store(out_ptr + w[:, None] * 8 + j[None, :], q, mask=w[:, None] < n_words)
    # ===
    # k = tl.program_id(0) * BLOCK * 8 + tl.arange(0, BLOCK * 8)
    # word = tl.load(words_ptr + k // 8, mask=k < n_words * 8, other=0)
    # tl.store(out_ptr + k, (word >> (k % 8) * 4) & 0xF, mask=k < n_words * 8)
    # >>>


def unpack(words):
    out = torch.empty(8 * len(words), dtype=torch.int32, device=words.device)
    unpack_kernel[(triton.cdiv(len(words), 4),)](words, out, len(words), BLOCK=4)
    return out


# %% checks
PAGE = "kernels/fast/low_bit.md"
KIND = "read fewer bytes"
ORDER = 6
HINTS = (
    "Give a program a block of words, one lane each, and load it.",
    "`word[:, None] >> shifts[None, :]` makes a tile of it, with eight weights in each row.",
    "Weight `j` of word `w` goes to element `8 * w + j`.",
)
WHY = """The word comes from memory once and is expanded in registers. On a GPU eight lanes that load one word cost
one transfer too, but eight addresses and eight masks."""


def check(t):
    def want(words):
        shifts = torch.arange(0, 32, 4, device=words.device)
        return ((words.to(torch.int64)[:, None] >> shifts[None, :]) & 15).reshape(-1).to(torch.int32)

    drawn = [t.random.randrange(-(2**31), 2**31) for _ in range(t.random.randint(6, 12))]
    for words in ([0x76543210], [0x0FEDCBA9, -0x12345678, 7, 8, 9], drawn, [0, -1, -(2**31), 2**31 - 1], drawn * 10):
        x = t.surrounded(torch.tensor(words, dtype=torch.int32))
        case = f"{len(words)} words"
        run = t.compare(case, "unpack", want, x, name="q")
        t.traffic(case, run, read=4 * len(words), written=32 * len(words))


WRONG = (
    ("1 words: 32 bytes are read, 4 are enough (an element is 4 bytes): words_ptr[0] is loaded 8 times",),
    (
        "1 words: program 0 of unpack_kernel does a load outside a tensor: element 1 of words_ptr",
        "tl.load(words_ptr + w, mask=w < n_words, other=0)",
        "tl.load(words_ptr + w)",
    ),
    (
        "1 words: q[1] is",
        "(4 * j)[None, :]",
        "(3 * j)[None, :]",
    ),
    (
        "5 words: ",
        "w[:, None] * 8 + j[None, :]",
        "w[:, None] + j[None, :] * n_words",
    ),
    (
        "1 words: q[0] is 1985229328, should be 0",
        ") & 0xF\n",
        ")\n",
    ),
    (
        "1 words: program 0 of unpack_kernel does a store outside a tensor",
        ", q, mask=w[:, None] < n_words)",
        ", q)",
    ),
)
RIGHT = (
    (
        "(4 * j)[None, :]",
        "j[None, :] * 4",
    ),
    (
        "word = tl.load(words_ptr + w, mask=w < n_words, other=0)\n    q = (word[:, None] >> (4 * j)[None, :]) & 0xF",
        "word = tl.load(words_ptr + w[:, None], mask=w[:, None] < n_words, other=0)\n"
        "    q = (word >> (4 * j)[None, :]) & 0xF",
    ),
)
