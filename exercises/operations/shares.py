"""# Enough programs

A launch should have at least `programs` programs, whatever the shape, so that the card is full. In it, `P` programs
share the rows of each block of columns. Write `shares(M, N, programs, BLOCK_M=32, BLOCK_N=128)`, which
returns the smallest `P` that gives enough programs. But no program may be left without a tile.
"""


# %% solution
def cdiv(a, b):
    """a / b, rounded up."""
    return -(-a // b)


def shares(M, N, programs, BLOCK_M=32, BLOCK_N=128):
    # <<<
    return min(cdiv(programs, cdiv(N, BLOCK_N)), cdiv(M, BLOCK_M))
    # >>>


# %% checks
PAGE = "learn/reductions.py"
KIND = "fill in"
ORDER = 2
HINTS = (
    "How many blocks of columns are there? Each of them gets `P` programs.",
    "How many tiles does a block of columns have? `P` may not be more than that.",
)
WHY = """A wide matrix has many blocks of columns and needs few shares. A narrow one needs many, and a short one doesn't
have enough tiles for them."""


def check(t):
    t.value("shares", (32768, 4096, 132), 5, note="4 · 32 programs are fewer than 132.")
    t.value("shares", (32768, 4096, 2048), 64)
    t.value("shares", (32768, 50000, 132), 1, note="391 blocks of columns are enough by themselves.")
    t.value("shares", (33, 128, 132), 2, note="33 rows make two tiles of 32.")
    t.value("shares", (100000, 100, 132), 132)
    t.value("shares", (33, 128, 132, 16), 3, note="33 rows make three tiles of 16.")
    t.value("shares", (32768, 4096, 132, 32, 256), 9, note="4096 columns make 16 blocks of 256.")
    t.value("shares", (1, 1, 1), 1)
    t.value("shares", (1, 1, 1000), 1, note="A single tile needs one program.")
    t.value("shares", (10**6, 1, 2000), 2000)
    t.value("shares", (64, 129, 4), 2)
    for _ in range(12):
        BLOCK_M, BLOCK_N = 2 ** t.random.randint(4, 7), 2 ** t.random.randint(4, 8)
        M, N, programs = (
            *(t.random.randint(1, 10 ** t.random.randint(1, 6)) for _ in range(2)),
            t.random.randint(1, 3000),
        )
        blocks, tiles = -(-N // BLOCK_N), -(-M // BLOCK_M)
        note = f"There are {blocks} blocks of columns, with {tiles} tiles each."
        t.value("shares", (M, N, programs, BLOCK_M, BLOCK_N), min(-(-programs // blocks), tiles), note=note)


WRONG = (
    (
        "33 rows make three tiles of 16",
        "min(cdiv(programs, cdiv(N, BLOCK_N)), cdiv(M, BLOCK_M))",
        "min(cdiv(programs, cdiv(N, 128)), cdiv(M, 32))",
    ),
    (
        "shares(",
        "return {132: 5, 2048: 64}.get(programs, 1)",
    ),
    ("shares(32768, 4096, 132) is None",),
    (
        "4 · 32 programs are fewer than 132",
        "cdiv(programs, cdiv(N, BLOCK_N))",
        "programs // cdiv(N, BLOCK_N)",
    ),
    (
        "33 rows make two tiles of 32",
        "min(cdiv(programs, cdiv(N, BLOCK_N)), cdiv(M, BLOCK_M))",
        "cdiv(programs, cdiv(N, BLOCK_N))",
    ),
    (
        "shares(100000, 100, 132)",
        "cdiv(programs, cdiv(N, BLOCK_N))",
        "cdiv(programs, max(1, N // BLOCK_N) + (N < BLOCK_N))",
    ),
    (
        "4 · 32 programs are fewer than 132",
        "min(cdiv(programs, cdiv(N, BLOCK_N)), cdiv(M, BLOCK_M))",
        "max(1, programs * BLOCK_N // N)",
    ),
    (
        "33 rows make two tiles of 32",
        "cdiv(M, BLOCK_M)",
        "M // BLOCK_M",
    ),
)
RIGHT = (
    ("P = 1\nwhile P * cdiv(N, BLOCK_N) < programs and P < cdiv(M, BLOCK_M):\n    P += 1\nreturn P",),
    (
        "blocks, tiles = (N + BLOCK_N - 1) // BLOCK_N, (M + BLOCK_M - 1) // BLOCK_M\n"
        "return min(tiles, (programs + blocks - 1) // blocks)",
    ),
)
