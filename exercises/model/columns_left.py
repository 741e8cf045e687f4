"""# How far off are the columns?

After a round of Sinkhorn's the rows of a matrix add up to 1, and its columns only nearly. Write
`left(weights, rounds)`: by how much the sum of a column differs from 1 at most, after so many rounds. `weights` is a
list of rows of positive numbers.
"""


# %% solution
def left(weights, rounds):
    # <<<
    for _ in range(rounds):
        sums = [sum(column) for column in zip(*weights)]
        weights = [[x / s for x, s in zip(row, sums)] for row in weights]
        weights = [[x / sum(row) for x in row] for row in weights]
    return max(abs(sum(column) - 1) for column in zip(*weights))
    # >>>


# %% checks
PAGE = "kernels/model/sinkhorn.md"
KIND = "fill in"
ORDER = 1
HINTS = (
    "`zip(*weights)` gives the columns.",
    "A round divides columns first and rows last. What is asked is about the columns, afterwards.",
)
WHY = """Five rounds of the small matrix leave the columns off by two millionths. With 10,000 in three
places and 1 in the fourth they are off by 0.09 then, and by 0.02 after twenty rounds. So twenty rounds aren't the
limit, and a gradient that takes them for it is wrong just where logits are large."""


def check(t):
    def want(weights, rounds):
        rows = [list(row) for row in weights]
        for _ in range(rounds):
            for j in range(len(rows)):
                total = sum(row[j] for row in rows)
                for row in rows:
                    row[j] /= total
            for row in rows:
                total = sum(row)
                row[:] = [x / total for x in row]
        return max(abs(sum(row[j] for row in rows) - 1) for j in range(len(rows)))

    t.value(
        "left", ([[1.0, 3.0], [1.0, 1.0]], 1), 1 / 15, note="After one round the columns add up to 16/15 and 14/15."
    )
    t.value("left", ([[1.0, 3.0], [1.0, 1.0]], 5), want([[1.0, 3.0], [1.0, 1.0]], 5))
    strong = [[1e4, 1e4], [1.0, 1e4]]
    t.value("left", (strong, 5), want(strong, 5))
    below = [[9.0, 1.0, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    t.value("left", (below, 1), want(below, 1), note="A sum may be further below 1 than another one is above.")
    for _ in range(4):
        n, rounds = t.random.randint(2, 4), t.random.randint(1, 3)
        weights = [[t.random.uniform(0.1, 20.0) for _ in range(n)] for _ in range(n)]
        t.value("left", (weights, rounds), want(weights, rounds))


WRONG = (
    ("left([[1, 3], [1, 1]], 1) is None",),
    (
        "After one round the columns add up to 16/15 and 14/15",
        "return max(abs(sum(column) - 1) for column in zip(*weights))",
        "return max(abs(sum(row) - 1) for row in weights)",
    ),
    ("further below 1 than another one is above", "abs(sum(column) - 1)", "sum(column) - 1"),
    (
        "left([[1, 3], [1, 1]], 5) is",
        "    return max(abs(sum(column) - 1) for column in zip(*weights))",
        "        break\n    return max(abs(sum(column) - 1) for column in zip(*weights))",
    ),
    (
        "After one round the columns add up to 16/15 and 14/15",
        "        weights = [[x / sum(row) for x in row] for row in weights]\n",
        "",
    ),
)
RIGHT = (
    (
        "for _ in range(rounds):\n    sums = [0.0] * len(weights)\n    for row in weights:\n"
        "        sums = [s + x for s, x in zip(sums, row)]\n    new = []\n    for row in weights:\n"
        "        row = [x / s for x, s in zip(row, sums)]\n        new.append([x / sum(row) for x in row])\n"
        "    weights = new\n"
        "return max(abs(1 - sum(row[j] for row in weights)) for j in range(len(weights)))",
    ),
    ("abs(sum(column) - 1)", "abs(1 - sum(column))"),
)
