"""# Keep the weights

In a product of experts, each tile of the result needs some rows of its expert and some columns of its weights. Where
the weights are more bytes than the rows, programs that run at the same time should share them: of one expert, all tiles
of rows for the first columns come first, then all for the next columns, and so on; then comes the next expert.
`place_of(program, tiles, columns)` gets how many tiles of rows each expert has, and how many tiles of columns all have.
It returns expert, tile of rows and tile of columns; a program without a tile gets `None`.
"""


# %% solution
def place_of(program, tiles, columns):
    for expert, rows in enumerate(tiles):
        # <<<
        if program < rows * columns:
            return expert, program % rows, program // rows
        program -= rows * columns
        # >>>
    return None


# %% checks
PAGE = "kernels/moe/grouped_matmul.md"
KIND = "fill in"
ORDER = 4
HINTS = (
    "How many programs does an expert have? If the program is none of them, it is that many programs further on.",
    "Among the programs of an expert, the tile of rows changes with every program, and that of columns after `rows`.",
)
WHY = """The remainder of a division changes fastest. So neighbours have the same columns of the same expert, whose
weights come from memory once and from the cache after that. An expert without rows has no program, and the division by
its zero tiles is never reached."""


def check(t):
    def want(program, tiles, columns):
        places = [
            (expert, row, column)
            for expert, rows in enumerate(tiles)
            for column in range(columns)
            for row in range(rows)
        ]  # fmt: skip
        return places[program] if program < len(places) else None

    def compare(tiles, columns):
        for program in range(sum(tiles) * columns + 2):
            t.value("place_of", (program, tiles, columns), want(program, tiles, columns))

    compare((2, 0, 1), 3)
    compare((0, 3), 2)
    compare((0, 0), 3)
    compare((5,), 1)
    compare((17, 0, 9), 8)
    compare(tuple(t.random.randint(0, 4) for _ in range(t.random.randint(3, 5))), t.random.randint(2, 4))


WRONG = (
    ("place_of(0, (2, 0, 1), 3) is None",),
    ("place_of(1, (2, 0, 1), 3) is", "program % rows, program // rows", "program // columns, program % columns"),
    ("place_of(6, (2, 0, 1), 3) is", "program -= rows * columns", "program -= rows"),
    ("raises ZeroDivisionError", "program < rows * columns", "program < rows"),
)
RIGHT = (
    (
        "if program >= rows * columns:\n    program -= rows * columns\n    continue\n"
        "column, row = divmod(program, rows)\nreturn expert, row, column",
    ),
    ("program < rows * columns", "rows and program // rows < columns"),
)
