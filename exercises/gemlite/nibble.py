"""# Read a word

Eight 4-bit weights are packed into one 32-bit word, the first in the lowest bits. The word is `0x76543A10`.
Which number is weight 2 (counted from 0)? Put it into `answer`.
"""

# %% solution
# <<<
answer = (0x76543A10 >> (4 * 2)) & 0xF
# ===
# answer = None
# >>>


# %% checks
PAGE = "kernels/gemlite/gemm.md"
KIND = "predict a number"
ORDER = 1
HINTS = (
    "A hexadecimal digit is four bits. Which end of the number is the lowest?",
    "Weight `j` sits at bit `4 * j`: the last digit is weight 0.",
)
WHY = "The digits are read from the right: 0, 1, A, 3, … So weight 2 is A, which is 10."


def check(t):
    mistakes = {
        5: "That is digit 2 counted from the left. The first weight is in the lowest bits, at the right.",
        1: "That is weight 1: the first one is weight 0.",
        3: "That is weight 3: the first one is weight 0.",
        16: "A weight of four bits is at most 15.",
    }
    t.number((0x76543A10 >> 8) & 15, mistakes, "Each weight is one hexadecimal digit; the last digit is weight 0.")


WRONG = (
    ("answer is still None",),
    (
        "The first weight is in the lowest bits",
        "answer = 5",
    ),
    (
        "the first one is weight 0",
        "answer = 1",
    ),
    (
        "the last digit is weight 0",
        "answer = 0x3A10",
    ),
)
RIGHT = (
    ("answer = 10",),
    ("answer = 0x76543A10 // 16**2 % 16",),
)
