"""# Where does program 5 begin?

Four experts have 6, 0, 9 and 3 rows, one after the other. A tile has four rows. Programs take the tiles in order,
those of expert 0 first. Which row of the matrix is the first of program 5? Put its number into `answer`; the matrix
begins with row 0.

[[figure: experts/ragged_tiles]]
"""

# %% solution
# <<<
counts, tile = (6, 0, 9, 3), 4
firsts, start = [], 0
for count in counts:
    firsts += range(start, start + count, tile)
    start += count
answer = firsts[5]
# ===
# answer = None
# >>>


# %% checks
PAGE = "kernels/moe/grouped_matmul.md"
KIND = "predict a number"
ORDER = 1
HINTS = (
    "How many tiles does each expert have? The last tile of an expert may have fewer rows than four.",
    "Expert 0 has programs 0 and 1, expert 1 none, and expert 2 three programs.",
)
WHY = """Expert 0's six rows take two tiles, expert 1 takes none, and expert 2's nine rows take three: programs 2, 3
and 4. So program 5 is the first of expert 3, whose rows begin after 6 + 0 + 9 = 15 others."""


def check(t):
    mistakes = {
        20: "A tile doesn't reach into the rows of the next expert: each expert begins with a tile of its own.",
        14: "That is program 4, the last of expert 2, with one row. An expert without rows has no tile.",
        16: "Rows are counted from 0, and 15 rows lie before.",
        0: "The row of the matrix is asked for, not that of the expert.",
    }
    t.number(15, mistakes, "Count the tiles of each expert, rounded up.")


WRONG = (
    ("answer is still None",),
    ("A tile doesn't reach", "answer = 20"),
    ("the last of expert 2", "answer = 14"),
    ("Count the tiles", "answer = 5"),
)
RIGHT = (
    ("answer = 15",),
    ("answer = 6 + 0 + 9",),
)
