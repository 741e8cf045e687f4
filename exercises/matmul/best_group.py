"""# The best group

`loads(rows, columns, GROUP_M, programs, blocks_k)` counts how many blocks of both inputs the first programs load. Write
`best_group(rows, columns, programs, blocks_k)`: the `GROUP_M` from 1 to `rows` with which they load the fewest blocks,
or the smallest such `GROUP_M` if there are several.
"""


# %% solution
def loads(rows, columns, GROUP_M, programs, blocks_k):
    """Blocks of both inputs that the first programs of a grouped launch need; each counts once."""
    order = []
    for first in range(0, rows, GROUP_M):
        group = range(first, min(first + GROUP_M, rows))
        order += [(row, column) for column in range(columns) for row in group]
    running = order[:programs]
    return blocks_k * (len({row for row, _ in running}) + len({column for _, column in running}))


def best_group(rows, columns, programs, blocks_k):
    # <<<
    def loaded(GROUP_M):
        return loads(rows, columns, GROUP_M, programs, blocks_k)

    return min(range(1, rows + 1), key=loaded)
    # >>>


# %% checks
PAGE = "learn/l2_reuse.py"
KIND = "fill in"
ORDER = 7
HINTS = (
    "Try every `GROUP_M` from 1 to `rows`, and keep the one with the smallest count.",
    "`min(candidates, key=function)` returns the first candidate with the smallest value.",
)
WHY = "For nine programs in a 9 x 9 grid it is 3: a square has the shortest sides for its area."


def check(t):
    def first_rows(rows, columns, GROUP_M, programs):
        """Blocks that the first programs need, counted program by program."""
        row_blocks, column_blocks = set(), set()
        for pid in range(min(programs, rows * columns)):
            first = pid // (GROUP_M * columns) * GROUP_M
            height = min(rows - first, GROUP_M)
            row_blocks.add(first + pid % (GROUP_M * columns) % height)
            column_blocks.add(pid % (GROUP_M * columns) // height)
        return len(row_blocks) + len(column_blocks)

    note = "Several may load equally few: take the smallest."
    drawn = []
    for _ in range(4):
        rows, columns = t.random.randint(3, 9), t.random.randint(3, 9)
        drawn.append((rows, columns, t.random.randint(2, rows * columns - 1), t.random.randint(1, 5)))
    for arguments in (
        (9, 9, 9, 9), (4, 1, 4, 5), (6, 3, 6, 2), (2, 8, 16, 4), (8, 8, 16, 1), (2, 8, 4, 3), (5, 9, 4, 1),
        (7, 9, 9, 2), (1, 5, 3, 1), (12, 12, 144, 3), (20, 4, 60, 2), (4, 30, 1, 7), (3, 3, 99, 1), *drawn,
    ):  # fmt: skip
        rows, columns, programs, _ = arguments
        counts = [first_rows(rows, columns, group, programs) for group in range(1, rows + 1)]
        best = counts.index(min(counts)) + 1
        t.value("best_group", arguments, best, note=note if counts.count(min(counts)) > 1 else "")


WRONG = (
    (
        "best_group(5, 9, 4, 1) is 1, should be 2",
        "min(range(1, rows + 1), key=loaded)",
        "min((group for group in range(1, rows + 1) if rows % group == 0), key=loaded)",
    ),
    (
        "should be",
        "min(range(1, rows + 1), key=loaded)",
        "min(rows, round(programs**0.5))",
    ),
    ("best_group(9, 9, 9, 9) is None",),
    (
        "best_group(2, 8, 4, 3) is 1, should be 2",
        "min(range(1, rows + 1), key=loaded)",
        "min(range(1, rows), key=loaded, default=1)",
    ),
    (
        "best_group(9, 9, 9, 9) is 1, should be 3",
        "min(range(1, rows + 1), key=loaded)",
        "max(range(1, rows + 1), key=loaded)",
    ),
    (
        "best_group(9, 9, 9, 9) is 54, should be 3",
        "min(range(1, rows + 1), key=loaded)",
        "min(map(loaded, range(1, rows + 1)))",
    ),
    (
        "Several may load equally few",
        "min(range(1, rows + 1), key=loaded)",
        "min(range(rows, 0, -1), key=loaded)",
    ),
)
RIGHT = (
    (
        "counts = [loads(rows, columns, group, programs, blocks_k) for group in range(1, rows + 1)]\n"
        "return counts.index(min(counts)) + 1",
    ),
    ("return min((loads(rows, columns, group, programs, blocks_k), group) for group in range(1, rows + 1))[1]",),
)
