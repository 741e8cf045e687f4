"""# Two of three rounds

A scan turns 2, 7, 1, 8, 2, 8, 1, 8 into running sums in three rounds. What does the seventh lane, which began with 1,
hold after the second round? Put the number into `answer`. The picture has the rounds of another row.

[[figure: recurrences/tree]]
"""

# %% solution
# <<<
answer = 8 + 2 + 8 + 1
# ===
# answer = None
# >>>


# %% checks
PAGE = "kernels/recurrences/cumsum.md"
KIND = "predict a number"
ORDER = 1
HINTS = (
    "In the first round every lane adds the lane to its left, in the second the lane two places to its left.",
    "After the first round the lanes hold 2, 9, 8, 9, 10, 10, 9, 9.",
)
WHY = """After a round each lane holds the sum of twice as many elements: of 2, then of 4, then of 8. The seventh lane
has 8 + 2 + 8 + 1 after the second, and needs the third round for the first three elements."""


def check(t):
    mistakes = {
        29: "That is the running sum, which the third round finishes.",
        9: "That is what it holds after the first round.",
        1: "That is what it holds before the first round.",
        11: "That is the sum of three elements. After the second round a lane has added up four.",
    }
    t.number(19, mistakes, "After two rounds a lane holds the sum of four elements, its own and three to the left.")


WRONG = (
    ("answer is 29, which is not right. That is the running sum", "answer = 29"),
    ("That is what it holds after the first round", "answer = 9"),
    ("After two rounds a lane holds the sum of four elements", "answer = 12"),
    ("answer is still None",),
)
RIGHT = (
    ("answer = 19",),
    ("answer = 9 + 10",),
)
