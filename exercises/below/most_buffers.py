"""# How many buffers fit?

Each buffer of a product's ring holds a tile of `BLOCK_M` x `BLOCK_K`, one of `BLOCK_K` x `BLOCK_N`, and two barriers of
8 bytes. One tile of the result, `BLOCK_M` x `BLOCK_N`, leaves through shared memory as well. All elements take
`itemsize` bytes. On Hopper a program may have 227 KB. Write `most_buffers(BLOCK_M, BLOCK_N, BLOCK_K, itemsize)`: how
many buffers fit? It returns 0 if not even the result does.

[[figure: below/ring]]
"""

# %% solution
LIMIT = 227 * 1024


def most_buffers(BLOCK_M, BLOCK_N, BLOCK_K, itemsize):
    # <<<
    result = BLOCK_M * BLOCK_N * itemsize
    each = (BLOCK_M + BLOCK_N) * BLOCK_K * itemsize + 2 * 8
    return max(0, (LIMIT - result) // each)
    # >>>


# %% checks
PAGE = "learn/overlap.py"
KIND = "fill in"
ORDER = 6
HINTS = (
    "Take the result's tile off first. What is left is divided among the buffers.",
    "A tile of `a` has `BLOCK_M * BLOCK_K` elements, one of `b` has `BLOCK_K * BLOCK_N`. Two barriers are 16 bytes.",
    "`//` rounds down, for negative numbers too: a result that doesn't fit must not give -1.",
)
WHY = """128 x 256 tiles of bfloat16 with 64 along K take 48 KB a buffer, and the result 64 KB: three buffers fit. If
the result leaves in two halves, through a buffer of 32 KB, there is room for a fourth. That is what the lesson's
`HALVES` is for."""


def check(t):
    def want(M, N, K, itemsize):
        most = 0
        while M * N * itemsize + (most + 1) * ((M * K + K * N) * itemsize + 16) <= 227 << 10:
            most += 1
        return most

    cases = [
        (128, 256, 64, 2),
        (128, 128, 64, 2),
        (64, 64, 32, 4),
        (256, 256, 64, 4),
        (512, 256, 16, 2),
        (64, 64, 64, 1),
    ]
    cases += [(128, 128, 96, 2), (64, 768, 80, 2)]
    cases += [(1024, 1024, 64, 1), (480, 240, 33, 2), (128, 256, 1024, 2)]
    cases += [tuple(2 ** t.random.randint(4, 8) for _ in range(3)) + (t.random.choice((1, 2, 4)),) for _ in range(9)]
    for M, N, K, itemsize in cases:
        left = (227 << 10) - M * N * itemsize
        note = f"The result takes {M * N * itemsize:,} bytes, which leaves {left:,}; a buffer takes "
        note += f"{(M + N) * K * itemsize + 16:,}."
        t.value("most_buffers", (M, N, K, itemsize), want(M, N, K, itemsize), note=note)
    t.value("most_buffers", (16, 64, 1, 1), want(16, 64, 1, 1), note="Barriers take room, too.")


WRONG = (
    ("is None, should be 3",),
    (
        "most_buffers(128, 256, 64, 2) is 4, should be 3. The result takes 65,536 bytes",
        "return LIMIT // ((BLOCK_M + BLOCK_N) * BLOCK_K * itemsize + 16)",
    ),
    ("The result takes 262,144 bytes", "return max(0, (LIMIT - result) // each)", "return (LIMIT - result) // each"),
    ("Barriers take room, too", "* itemsize + 2 * 8", "* itemsize + 8"),
    (
        "most_buffers(128, 256, 64, 2) is 4, should be 3",
        "BLOCK_M * BLOCK_N * itemsize",
        "BLOCK_M * BLOCK_N // itemsize",
    ),
)
RIGHT = (
    (
        "left = LIMIT - BLOCK_M * BLOCK_N * itemsize\n"
        "return left // (itemsize * BLOCK_K * (BLOCK_M + BLOCK_N) + 16) if left > 0 else 0",
    ),
    (
        "most = 0\n"
        "tiles = BLOCK_M * BLOCK_K + BLOCK_K * BLOCK_N\n"
        "while (BLOCK_M * BLOCK_N + (most + 1) * tiles) * itemsize + 16 * (most + 1) <= LIMIT:\n"
        "    most += 1\nreturn most",
    ),
)
