"""# One round by hand

Sinkhorn's rounds divide each column by its sum, then each row by its sum. Begin with this matrix of exponentials:

    1  3
    1  1

What stands at the top left after one round? Put the number into `answer`.
"""

# %% solution
# <<<
answer = 0.5 / (0.5 + 0.75)
# ===
# answer = None
# >>>


# %% checks
PAGE = "derivations/hyper_connections.md"
KIND = "predict a number"
ORDER = 1
HINTS = (
    "The columns add up to 2 and 4.",
    "After the columns were divided, the first row is 1/2, 3/4.",
)
WHY = """Columns first: 1/2, 3/4 and 1/2, 1/4. The first row adds up to 5/4, so 2/5 is left at the top left, and the
rows are 2/5, 3/5 and 2/3, 1/3. Now the columns add up to 16/15 and 14/15: the rows have spoilt them, but far less than
they were at the start."""


def check(t):
    mistakes = {
        0.5: "That is after the columns. The rows come next.",
        1 / 3: "Columns are divided first, then rows.",
        0.25: "That is the row alone: columns are divided first.",
        0.375: "Two rounds would end near there. How much is it after one?",
    }
    t.number(0.4, mistakes, "Divide the columns by 2 and 4, then the first row by what it adds up to.")


WRONG = (
    ("answer is still None",),
    ("That is after the columns", "0.5 / (0.5 + 0.75)", "0.5"),
    ("Columns are divided first, then rows", "0.5 / (0.5 + 0.75)", "0.25 / 0.75"),
    ("That is the row alone", "0.5 / (0.5 + 0.75)", "1 / 4"),
    ("Divide the columns by 2 and 4", "0.75)", "0.25)"),
)
RIGHT = (
    ("answer = 2 / 5",),
    ("columns = [1 + 1, 3 + 1]\nfirst = [1 / columns[0], 3 / columns[1]]\nanswer = first[0] / sum(first)",),
)
