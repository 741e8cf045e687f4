"""# Two of three rounds

A scan turns 3, 1, 4, 1, 5, 9, 2, 6 into running sums in three rounds. What does the seventh lane, which began with 2,
hold after the second round? Put the number into `answer`.

[[figure: recurrences/tree]]
"""

# %% solution
# <<<
answer = 1 + 5 + 9 + 2
# ===
# answer = None
# >>>


# %% checks
PAGE = "kernels/recurrences/cumsum.md"
KIND = "predict a number"
ORDER = 1
HINTS = (
    "In the first round every lane adds the lane to its left, in the second the lane two places to its left.",
    "After the first round the lanes hold 3, 4, 5, 5, 6, 14, 11, 8.",
)
WHY = """After a round each lane holds the sum of twice as many elements: of 2, then of 4, then of 8. The seventh lane
has 1 + 5 + 9 + 2 after the second, and needs the third round for the first three elements."""


def check(t):
    mistakes = {
        25: "That is the running sum, which the third round finishes.",
        11: "That is what it holds after the first round.",
        2: "That is what it holds before the first round.",
        16: "That is the sum of three elements. After the second round a lane has added up four.",
    }
    t.number(17, mistakes, "After two rounds a lane holds the sum of four elements, its own and three to the left.")


WRONG = (
    ("answer is 25, which is not right. That is the running sum", "answer = 25"),
    ("That is what it holds after the first round", "answer = 11"),
    ("After two rounds a lane holds the sum of four elements", "answer = 12"),
    ("answer is still None",),
)
RIGHT = (
    ("answer = 17",),
    ("answer = 11 + 6",),
)
