"""# Tiles under a causal mask

A causal mask covers `N` queries and as many keys, in square tiles whose side `BLOCK` divides `N`. Write
`tiles_computed(N, BLOCK)`: how many tiles of scores are not skipped? Do it without loops.

[[figure: attention/tiles]]
"""


# %% solution
def tiles_computed(N, BLOCK):
    # <<<
    rows = N // BLOCK
    return rows * (rows + 1) // 2
    # >>>


# %% checks
PAGE = "learn/attention.py"
KIND = "fill in"
ORDER = 1
HINTS = (
    "A tile is skipped if none of its queries sees any of its keys. In the first row of tiles, how many are left?",
    "Row `m` of the tiles ends with the one on the diagonal: it has `m + 1` of them.",
    "1 + 2 + … + n is n · (n + 1) / 2.",
)
WHY = """Row `m` of the tiles ends with the one on the diagonal, so it has `m + 1` of them. Those on the diagonal are
partly masked, but they still have to be computed."""


def check(t):
    drawn = [(t.random.randint(2, 12), 2 ** t.random.randint(2, 7)) for _ in range(3)]
    for N, BLOCK in (
        (16, 16),
        (64, 8),
        (96, 32),
        (32, 16),
        (128, 1),
        (8192, 64),
        (1 << 20, 16),
        *((tiles * BLOCK, BLOCK) for tiles, BLOCK in drawn),
    ):
        tiles = N // BLOCK
        t.value("tiles_computed", (N, BLOCK), sum(row + 1 for row in range(tiles)))


WRONG = (
    (
        "tiles_computed(32, 16) is 2, should be 3",
        "    return rows * (rows + 1) // 2",
        "    return {1: 1, 8: 36, 3: 6}.get(rows, rows)",
    ),
    ("tiles_computed(16, 16) is None, should be 1",),
    (
        "tiles_computed(64, 8) is 64, should be 36",
        "rows * (rows + 1) // 2",
        "rows * rows",
    ),
    (
        "tiles_computed(16, 16) is 0, should be 1",
        "rows * (rows + 1) // 2",
        "rows * (rows - 1) // 2",
    ),
    (
        "tiles_computed(64, 8) is 32, should be 36",
        "rows * (rows + 1) // 2",
        "max(1, rows * rows // 2)",
    ),
)
RIGHT = (
    ("tiles = N // BLOCK\nreturn (tiles * tiles + tiles) // 2",),
    ("return sum(range(N // BLOCK + 1))",),
)
