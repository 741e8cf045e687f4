"""# How many sets of codes?

A linear layer is trained with the recipe "block": `x` in 1x128, `weight` in 128x128, dY in 1x128, each along what its
product sums. How many *different* matrices of codes does a forward and a backward pass need, for all three products
together? Put the number into `answer`.
"""

# %% solution
# <<<
answer = 5
# ===
# answer = None
# >>>


# %% checks
PAGE = "kernels/fp8/linear.md"
KIND = "predict a number"
ORDER = 9
HINTS = (
    "There are three products with two operands each. Which matrices appear in two of them?",
    "Blocks of 1x128 of a matrix and of its transpose are different groups. Are squares?",
)
WHY = """`x` and dY need two each: groups along a row for one product, along a column for the other. A square of
`weight` is the same square in the transposed matrix, so its codes serve twice: 2 + 2 + 1."""


def check(t):
    mistakes = {
        6: "That is the number of operands. One matrix has the same groups, whichever way it is read.",
        3: "That would do with one scale for each matrix. 1x128 of a matrix and of its transpose are different groups.",
        4: "Which of the three matrices can use its codes twice? The two others need two sets each.",
    }
    t.number(5, mistakes, "Count, for each matrix, in which directions its groups lie.")


WRONG = (
    ("answer is still None",),
    ("the number of operands", "answer = 6"),
    ("one scale for each matrix", "answer = 3"),
    ("Count, for each matrix", "answer = 7"),
)
RIGHT = (
    ("answer = 2 + 2 + 1",),
    ("answer = 6 - 1",),
)
