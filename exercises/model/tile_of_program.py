"""# Which tile has program 7?

A triangle of `tiles` rows of tiles is folded into a rectangle that is `tiles` wide. Row 0 of the rectangle is the
longest row of the triangle. Row r is the long row `tiles - 1 - r`, and beside it, as far as there is room, the short
row `r - 1`. Write `tile(pid, tiles)`: row and column of the tile of program `pid`, as a tuple.
"""


# %% solution
def tile(pid, tiles):
    # <<<
    row, column = pid // tiles, pid % tiles
    if column < tiles - row:
        return tiles - 1 - row, column
    return row - 1, column - (tiles - row)
    # >>>


# %% checks
PAGE = "kernels/optimizers/muon.md"
KIND = "fill in"
ORDER = 3
HINTS = (
    "In which row of the rectangle is the program, and in which column?",
    "The long row `tiles - 1 - r` has `tiles - r` tiles. What is right of it belongs to the short one.",
)
WHY = """Of 5 rows of tiles program 7 has row 3, column 2. All of this is arithmetic of whole numbers. Solved for the
row, `row * (row + 1) / 2 <= pid` needs a square root, and one that is rounded up in its last bit gives another row."""


def check(t):
    def want(pid, tiles):
        found = []
        for r in range(tiles):
            found += [(tiles - 1 - r, j) for j in range(tiles - r)] + [(r - 1, j) for j in range(r)]
        return found[pid]

    t.value("tile", (0, 5), (4, 0), note="The longest row comes first.")
    t.value("tile", (7, 5), (3, 2), note="The long row is on the left.")
    t.value("tile", (9, 5), (0, 0), note="Beside the second longest row lies the shortest.")
    t.value("tile", (0, 1), (0, 0))
    for _ in range(10):
        tiles = t.random.randint(2, 40)
        pid = t.random.randrange(tiles * (tiles + 1) // 2)
        t.value("tile", (pid, tiles), want(pid, tiles))
    for pid in range(10):
        t.value("tile", (pid, 4), want(pid, 4))


WRONG = (
    ("tile(0, 5) is None",),
    ("The longest row comes first", "return tiles - 1 - row, column", "return row, column"),
    ("Beside the second longest row lies the shortest", "row - 1, column - (tiles - row)", "row - 1, column"),
    ("tile(7, 5) is", "column < tiles - row", "column <= row"),
)  # fmt: skip
RIGHT = (
    (
        "r, c = divmod(pid, tiles)\nwide = tiles - r\n"
        "return (wide - 1, c) if c < wide else (r - 1, c - wide)",
    ),
    (
        "for row in range(tiles):\n    for part, count in ((tiles - 1 - row, tiles - row), (row - 1, row)):\n"
        "        if pid < count:\n            return part, pid\n        pid -= count",
    ),
)  # fmt: skip
