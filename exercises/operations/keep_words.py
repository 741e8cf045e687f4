"""# Compare whole numbers

Fractions are rounded: float32 has nothing between 1 - 2⁻²⁴ and 1. Write `keeps(words, p)` without that loss.
`words` are random numbers from 0 to 2³² - 1, as int64, and each is kept with probability `1 - p`: those with
the smallest values are dropped. The result is a tensor of bool.
"""

# %% solution
import torch


def keeps(words, p):
    # <<<
    return words >= round(p * 2**32)
    # >>>


# %% checks
PAGE = "learn/random_numbers.py"
KIND = "fill in"
ORDER = 6
HINTS = (
    "Of the 2³² values, how many should be dropped?",
    "The smallest `p * 2**32` values are dropped: from 0 up to one less than that.",
    "If a tensor of int64 is compared with a Python float, both become float32. Make the threshold a whole number.",
)
WHY = """`p * 2**32` values lie below the threshold, so nothing is rounded, and `p = 0` and `p = 1` are right by
themselves. As float32 the largest word would become 2³², and even `p = 1` would keep it."""


def check(t):
    def want(words, p):
        return words >= int(p * 2**32)

    quarter, largest = 2**30, 2**32 - 1
    drawn = [t.random.uniform(0.01, 0.99) for _ in range(3)] + [2.0**-32, 1 - 2.0**-32, 3 * 2.0**-31, 0.999999]
    for p, words in (
        (0.5, [100, 2**31 - 1000, 2**31 + 1000, largest]),
        (0.25, [0, quarter - 1, quarter, quarter + 1]),
        (0.0, [0, 1, largest]),
        (1.0, [0, 2**31, largest]),
        (0.125, [2**29 - 1, 2**29, 2**29 + 1]),
        *((p, [0, int(p * 2**32) - 1, min(int(p * 2**32) + 1, largest), largest]) for p in drawn),
    ):
        given = t.surrounded(torch.tensor(words))
        word = "Neither the threshold nor a word may be rounded; words from p · 2³² on are kept."
        t.compare(f"p = {p}", "keeps", want, given, p, name="keep", kernel=False, exact=True, note=word)


WRONG = (
    (
        "Neither the threshold nor a word may be rounded",
        "round(p * 2**32)",
        "int(4 * p) * 2**30",
    ),
    (
        "Neither the threshold nor a word may be rounded",
        "round(p * 2**32)",
        "round(p * 256) * 2**24",
    ),
    ("p = 0.5: keeps returns None, not a tensor",),
    (
        "p = 0.25: keep[2] is False, should be True",
        "words >=",
        "words >",
    ),
    (
        "p = 0.5: keep[0] is True, should be False",
        "words >=",
        "words <",
    ),
    (
        "p = 0.25: keep[1] is True, should be False (1 of 4 elements are wrong)",
        "words >= round(p * 2**32)",
        "words.float() / 2**32 >= p",
    ),
    (
        "p = 1.0: keep[2] is True, should be False",
        "round(p * 2**32)",
        "round(p * largest)",
        "    return",
        "    largest = 2**32 - 1\n    return",
    ),
)
RIGHT = (
    ("return ~(words < int(p * 2**32))",),
    ("return words.double() / 2**32 >= p",),
)
