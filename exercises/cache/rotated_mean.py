"""# When does a rotation hurt?

A row has 64 numbers, and all of them are 3. Its range, the largest less the smallest, is 0: four bits hold it exactly.
Before it is quantized, it is rotated by Hadamard's matrix divided by √64. The matrix has 64 columns of ones and minus
ones; the first column has ones only, and every other one as many ones as minus ones.

What is the *range* of the rotated row? Put it into `answer`.

[[figure: quantized/rotation]]
"""

# %% solution
# <<<
first, others = 64 * 3 / 64**0.5, 0.0
answer = first - others
# ===
# answer = None
# >>>


# %% checks
PAGE = "derivations/quantized_cache.md"
KIND = "predict a number"
ORDER = 2
HINTS = (
    "An element of the rotated row is the sum of the row times a column, divided by √64 = 8.",
    "In the first column nothing cancels: 64 times 3, divided by 8. In the others everything does.",
)
WHY = """One element is 24 and 63 are 0. The step is 24 / 15 = 1.6 now, where it could have been nothing at all. Keys of
real models often have a common mean in some channels. Random signs before the rotation, the same for all tokens, make
half of the threes negative, and the sum that was 192 becomes small."""


def check(t):
    mistakes = {
        0: "The row had no range before it was rotated. What does the first column make of it?",
        192: "The matrix is divided by √64, so that rows keep their lengths.",
        3: "A rotation keeps the length of the row: 3 · √64, and it is all in one element now.",
        48: "The other elements are 0: nothing is below it.",
    }
    t.number(24, mistakes, "The first column adds up 64 threes and divides by 8; all others give 0.")


WRONG = (
    ("answer is still None",),
    ("had no range before", "answer = 0"),
    ("is divided by √64", "answer = 192"),
    ("The first column adds up", "answer = 8"),
)
RIGHT = (
    ("answer = 24",),
    ("answer = 3 * 64**0.5",),
)
