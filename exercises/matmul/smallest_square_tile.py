"""# How large must a tile be?

In bfloat16 an H200 does about 206 operations in the time it takes to load one byte from memory. How large must a square
tile be if loading is not to take longer than computing? Write `smallest_square_tile(operations_per_byte)`, which
returns a power of two.
"""


# %% solution
def smallest_square_tile(operations_per_byte):
    # <<<
    BLOCK = 1
    while 2 * BLOCK * BLOCK / (2 * (BLOCK + BLOCK)) < operations_per_byte:
        BLOCK *= 2
    return BLOCK
    # >>>


# %% checks
PAGE = "learn/tiles_and_pointers.py"
KIND = "fill in"
ORDER = 7
HINTS = (
    "For one step of K, a tile does `2 * BLOCK * BLOCK` operations. It loads a column of `BLOCK` numbers "
    "and a row of as many, 2 bytes each.",
    "So a square tile does `BLOCK / 2` operations for each byte.",
)
WHY = """A square tile does `BLOCK / 2` operations for each byte, so it takes 512. The sums of such a tile fill a
megabyte; all the registers of an SM hold a quarter of that. So tiles alone aren't enough. Loads must be
served by something faster than memory: that is the subject of the next chapter."""


def check(t):
    drawn = [2 ** t.random.uniform(1, 12) for _ in range(4)]
    for operations in (
        206,
        64,
        65,
        1,
        0.25,
        0.5,
        0.3,
        2 ** t.random.randint(2, 9),
        2**20 + 1,
        1e9,
        0.001,
        1.0000001,
        4095.5,
        *drawn,
    ):
        side = 1
        while side / 2 < operations:
            side *= 2
        t.value("smallest_square_tile", (operations,), side)


WRONG = (
    (
        "smallest_square_tile(0.25) raises ValueError: negative shift count",
        "import math\nreturn 1 << math.ceil(math.log2(2 * operations_per_byte))",
    ),
    ("smallest_square_tile(206) is None, should be 512",),
    (
        "smallest_square_tile(206) is 256, should be 512",
        "2 * BLOCK * BLOCK /",
        "4 * BLOCK * BLOCK /",
    ),
    (
        "smallest_square_tile(64) is 256, should be 128",
        "< operations_per_byte",
        "<= operations_per_byte",
    ),
    (
        "does a loop never end?",
        "        BLOCK *= 2\n",
        "        BLOCK *= 1\n",
    ),
)
RIGHT = (
    ("import math\nreturn 2 ** max(0, math.ceil(math.log2(2 * operations_per_byte)))",),
    ("BLOCK = 1\nwhile BLOCK < 2 * operations_per_byte:\n    BLOCK = 2 * BLOCK\nreturn BLOCK",),
)
