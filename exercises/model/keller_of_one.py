"""# A singular value that is right already

Keller Jordan's polynomial is 3.4445 σ − 4.7750 σ³ + 2.0315 σ⁵. A singular value is exactly 1 before a round, which is
where all of them should end. What is it afterwards? Put the number into `answer`.
"""

# %% solution
# <<<
answer = 3.4445 - 4.7750 + 2.0315
# ===
# answer = None
# >>>


# %% checks
PAGE = "derivations/muon.md"
KIND = "predict a number"
ORDER = 1
HINTS = (
    "At 1 all three powers are 1.",
    "Add the coefficients, each with its sign.",
)
WHY = """It is 0.701, and after one round more 1.11. So 1 isn't where this polynomial ends: it grows so fast near 0 that
it can't rest at 1. What comes out lies between about 0.7 and 1.2, which is near enough for a step of an optimizer."""


def check(t):
    mistakes = {
        1: "The polynomial doesn't leave 1 where it is: what is the sum of its coefficients?",
        3.4445 + 4.7750 + 2.0315: "The second coefficient is negative.",
        3.4445: "That is the slope at 0. At 1 the other powers count as much.",
    }
    t.number(0.701, mistakes, "All powers of 1 are 1: add the three coefficients.")


WRONG = (
    ("answer is still None",),
    ("The polynomial doesn't leave 1 where it is", "3.4445 - 4.7750 + 2.0315", "1.0"),
    ("The second coefficient is negative", "- 4.7750", "+ 4.7750"),
    ("That is the slope at 0", "3.4445 - 4.7750 + 2.0315", "3.4445"),
    ("All powers of 1 are 1", "4.7750", "4.7750 * 2"),
)
RIGHT = (
    ("x = 1.0\nanswer = x * (3.4445 + x * x * (2.0315 * x * x - 4.7750))",),
    ("answer = 0.701",),
)
