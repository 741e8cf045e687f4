"""# Two streams, without any round

For two streams the limit of Sinkhorn's rounds has a closed form. Write `limit(a, b, c, d)`: what stands at the top left
after infinitely many rounds, if the logits are `a`, `b` in the first row and `c`, `d` in the second.
"""

# %% solution
import math


def limit(a, b, c, d):
    # <<<
    return 1 / (1 + math.exp(-(a + d - b - c) / 2))
    # >>>


# %% checks
PAGE = "derivations/hyper_connections.md"
KIND = "fill in"
ORDER = 2
HINTS = (
    "Rows and columns add up to 1, so one number s decides it all: s and 1 − s, below them 1 − s and s.",
    "Dividing a row or a column by a number leaves one thing as it is: both diagonals' products have the same ratio.",
    "So s² / (1 − s)² is the exponential of a + d − b − c.",
)
WHY = """The ratio of the two diagonals' products never changes, whatever rows and columns are divided by. At the limit
it is s² / (1 − s)², and so s is a sigmoid of half of a + d − b − c. Adding a number to a row or to a column of the
logits changes nothing. For more streams there is no such formula, and rounds are needed."""


def check(t):
    import math

    t.value("limit", (0.0, 0.0, 0.0, 0.0), 0.5)
    t.value(
        "limit",
        (2.0, 0.0, 0.0, 0.0),
        1 / (1 + math.exp(-1)),
        note="With s at the top left, the diagonals' products have the ratio s² / (1 - s)².",
    )
    t.value("limit", (0.0, 3.0, 0.0, 3.0), 0.5, note="A number that is added to a whole column cancels.")
    t.value("limit", (1.0, 1.0, -2.0, -2.0), 0.5, note="A number that is added to a whole row cancels.")
    note = "So far apart, rounds get nowhere near the limit."
    t.value("limit", (40.0, 0.0, 0.0, 0.0), 1 / (1 + math.exp(-20)), note=note)
    t.value("limit", (0.0, 25.0, 0.0, 0.0), 1 / (1 + math.exp(12.5)), note=note)
    for _ in range(8):
        a, b, c, d = (t.random.uniform(-1, 1) for _ in range(4))
        rows = [[math.exp(a), math.exp(b)], [math.exp(c), math.exp(d)]]
        for _ in range(400):
            rows = [[x / s for x, s in zip(row, map(sum, zip(*rows)))] for row in rows]
            rows = [[x / sum(row) for x in row] for row in rows]
        t.value("limit", (a, b, c, d), rows[0][0])


WRONG = (
    ("limit(0, 0, 0, 0) is None",),
    ("the diagonals' products have the ratio", "(a + d - b - c) / 2", "(a + d - b - c)"),
    (
        "rounds get nowhere near the limit",
        "m = [[math.exp(a), math.exp(b)], [math.exp(c), math.exp(d)]]\nfor _ in range(500):\n"
        "    m = [[x / s for x, s in zip(row, map(sum, zip(*m)))] for row in m]\n"
        "    m = [[x / sum(row) for x in row] for row in m]\nreturn m[0][0]",
    ),
    ("A number that is added to a whole column cancels", "(a + d - b - c) / 2", "(a - b) / 2"),
    ("the diagonals' products have the ratio", "-(a + d - b - c) / 2", "(a + d - b - c) / 2"),
)
RIGHT = (
    ("ratio = math.exp((a + d - b - c) / 2)\nreturn ratio / (1 + ratio)",),
    ("main, other = math.exp((a + d) / 2), math.exp((b + c) / 2)\nreturn main / (main + other)",),
)
