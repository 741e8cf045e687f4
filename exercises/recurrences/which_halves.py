"""# In which halves?

Token `i` reads an earlier token `j` of its chunk. Blocks are of 2, 4, 8, … tokens, counted from 0, and in one of them
the writer lies in the first half and the reader in the second. Write `halves_of(i, j)`: how many tokens each of these
two halves has. Tokens 2 and 1, for one, lie in halves of two: 0 and 1, 2 and 3.

[[figure: kda/levels]]
"""


# %% solution
def halves_of(i, j):
    # <<<
    half = 1
    while i // (2 * half) != j // (2 * half):
        half *= 2
    return half
    # >>>


# %% checks
PAGE = "kernels/recurrences/kda.md"
KIND = "fill in"
ORDER = 1
HINTS = (
    "Blocks of two tokens are 0 and 1, 2 and 3, and so on. Tokens 2 and 5 aren't in one of them. And of four?",
    "The number of a block of n tokens is `token // n`. The smallest block that holds both is the one.",
    "In binary, 5 is 101 and 2 is 010: the highest place in which they differ says how large the half is.",
)
WHY = """A half has as many tokens as the highest bit is worth in which the two numbers differ. So each pair is on
exactly one level, and a chunk of C tokens has as many levels as C has doublings."""


def check(t):
    def want(i, j):
        return 1 << ((i ^ j).bit_length() - 1)

    mistakes = {
        lambda i, j: 2 * want(i, j): "That is the whole block. How many tokens has each of its halves?",
        lambda i, j: 1 << ((i - j).bit_length() - 1): "How far they are apart doesn't decide. Which block holds both?",
    }
    drawn = [sorted(t.random.sample(range(64), 2), reverse=True) for _ in range(12)]
    for i, j in ((5, 2), (1, 0), (2, 1), (3, 2), (7, 0), (4, 3), (31, 16), (16, 15), (63, 0), (6, 4), *drawn):
        t.value("halves_of", (i, j), want(i, j), mistakes=mistakes)


WRONG = (
    ("halves_of(5, 2) is None, should be 4",),
    ("That is the whole block", "return half", "return 2 * half"),
    ("How far they are apart doesn't decide", "i // (2 * half) != j // (2 * half)", "half * 2 <= i - j"),
    ("halves_of(5, 2) is 8, should be 4", "i // (2 * half) != j // (2 * half)", "i // half != j // half"),
)
RIGHT = (
    ("return 1 << ((i ^ j).bit_length() - 1)",),
    ("return max(2**n for n in range(30) if i // 2**n != j // 2**n)",),
)
