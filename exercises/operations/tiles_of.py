"""# Which tiles does a program take?

In a grid-stride loop program `p` of `P` takes tile `p`, then tile `p + P`, and so on. Write `tiles_of(p, P,
M, BLOCK_M)`: the list of the first rows of its tiles, in a matrix of `M` rows.
"""


# %% solution
def tiles_of(p, P, M, BLOCK_M):
    # <<<
    return list(range(p * BLOCK_M, M, P * BLOCK_M))
    # >>>


# %% checks
PAGE = "learn/reductions.py"
KIND = "fill in"
ORDER = 1
HINTS = (
    "Tile `i` begins with row `i * BLOCK_M`. With which row does the first tile of program `p` begin?",
    "From one tile of a program to its next one there are `P` tiles: `P * BLOCK_M` rows.",
    "`range(start, end, step)` does the rest.",
)
WHY = """A matrix of 200 rows has seven tiles of 32, the last one with eight rows. Of three programs, number 2 gets
those that begin with rows 64 and 160. Program 0 gets three tiles, the other two get two each."""


def check(t):
    t.value("tiles_of", (0, 1, 64, 32), [0, 32])
    t.value("tiles_of", (2, 3, 200, 32), [64, 160])
    t.value("tiles_of", (0, 3, 200, 32), [0, 96, 192], note="The last tile has 8 rows, and it counts.")
    t.value("tiles_of", (2, 3, 64, 32), [], note="There are only two tiles.")
    t.value("tiles_of", (0, 1, 1, 1), [0])
    t.value("tiles_of", (0, 2, 0, 4), [])
    for _ in range(9):
        P, BLOCK_M = t.random.randint(1, 40), t.random.choice([1, 8, 16, 64, 128, 100])
        p, M = t.random.randrange(P), t.random.randint(1, 90 * BLOCK_M)
        firsts = [row for row in range(M) if row % BLOCK_M == 0 and row // BLOCK_M % P == p]
        t.value("tiles_of", (p, P, M, BLOCK_M), firsts, note=f"A tile has {BLOCK_M} rows.")


WRONG = (
    (
        "A tile has",
        "range(p * BLOCK_M, M, P * BLOCK_M)",
        "range(p * 32, M, P * 32)",
    ),
    ("tiles_of(0, 1, 64, 32) is None",),
    (
        "tiles_of(2, 3, 200, 32) is [64, 96, 128, 160, 192], should be [64, 160]",
        "P * BLOCK_M))",
        "BLOCK_M))",
    ),
    (
        "The last tile has 8 rows",
        "M, P * BLOCK_M",
        "M - BLOCK_M + 1, P * BLOCK_M",
    ),
    (
        "tiles_of(0, 1, 64, 32) is [0, 1], should be [0, 32]",
        "list(range(p * BLOCK_M, M, P * BLOCK_M))",
        "list(range(p, -(-M // BLOCK_M), P))",
    ),
    (
        "tiles_of(0, 1, 64, 32) is [0, 32, 64], should be [0, 32]",
        "range(p * BLOCK_M, M, P * BLOCK_M)",
        "range(p * BLOCK_M, M + 1, P * BLOCK_M)",
    ),
)
RIGHT = (
    ("return [tile * BLOCK_M for tile in range(p, -(-M // BLOCK_M), P)]",),
    (
        "tiles, first = [], p * BLOCK_M\n"
        "while first < M:\n"
        "    tiles.append(first)\n"
        "    first += P * BLOCK_M\n"
        "return tiles",
    ),
)
