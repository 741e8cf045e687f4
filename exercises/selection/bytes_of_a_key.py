"""# What does a key of four bits save?

A key of the indexer has `D` numbers. In eight bits it has a scale of four bytes. In four bits, as *MXFP4*, each 32
numbers share a scale of one byte. For one new token an indexer reads the keys of all tokens before.

Write `bytes_of_a_key(D)`: the bytes of a key in eight bits and in four, as a pair. `D` is even, and the last group of
numbers may be a shorter one with a scale of its own.
"""


# %% solution
def bytes_of_a_key(D):
    # <<<
    return D + 4, D // 2 + (D + 31) // 32
    # >>>


# %% checks
PAGE = "kernels/attention/indexer.md"
KIND = "fill in"
ORDER = 3
HINTS = (
    "Two numbers of four bits are a byte.",
    "How many groups of 32 are needed for 40 numbers? Round up.",
)
WHY = """With 128 numbers it is 132 and 68 bytes, and a latent of attention has 1152. At 128 thousand tokens the indexer
reads 17 MB in eight bits, and attention 2.4 MB for the 2048 keys that were selected. So the scorer, and not the
attention, is what is worth making smaller then."""


def check(t):
    mistakes = {
        lambda D: (D + 4, D // 2 + D // 32): "The last group of numbers has a scale, too, if it is a shorter one.",
        lambda D: (D, D // 2 + -(-D // 32)): "A key in eight bits has a scale of four bytes.",
        lambda D: (D + 4, D // 2 + 4 * -(-D // 32)): "A scale of MXFP4 is one byte.",
        lambda D: (D + 4, D + -(-D // 32)): "Two numbers of four bits are a byte.",
    }
    for D in (128, 2, 32, 40, 64, 66, 2 * t.random.randint(1, 60), 2 * t.random.randint(60, 300)):
        t.value("bytes_of_a_key", (D,), (D + 4, D // 2 + -(-D // 32)), mistakes=mistakes)


WRONG = (
    ("bytes_of_a_key(128) is None, should be (132, 68)",),
    ("bytes_of_a_key(128) is (129, 68), should be (132, 68)", "D + 4", "D + 1"),
    ("is (6, 1), should be (6, 2). The last group of numbers has a scale, too", "(D + 31) // 32", "D // 32"),
)
RIGHT = (
    ("groups = -(-D // 32)\nreturn D + 4, D // 2 + groups",),
    ("import math\nreturn 4 + D, math.ceil(D / 32) + D // 2",),
)
