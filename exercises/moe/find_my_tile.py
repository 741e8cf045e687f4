"""# Find my tile

Each expert's rows end at `ends[e]` and are cut into tiles of `BLOCK` rows. `tile_of(program, ends, BLOCK)` says which
expert a program works for, and the first row of its tile; a program without a tile gets `None`. It is Python here, and
walks as the kernel does: as long as the expert at hand has no more than `program` tiles, go on to the next one.
"""


# %% solution
def tile_of(program, ends, BLOCK):
    start = 0
    for expert, end in enumerate(ends):
        tiles = (end - start + BLOCK - 1) // BLOCK
        # <<<
        if program < tiles:
            return expert, start + program * BLOCK
        program -= tiles
        start = end
        # >>>
    return None


# %% checks
PAGE = "kernels/moe/grouped_matmul.md"
KIND = "fill in"
ORDER = 3
HINTS = (
    "Is the program one of this expert's? Then the answer is at hand.",
    "If not, it is a later expert's, and that many tiles fewer are left to count: `program -= tiles`.",
    "The next expert's rows begin where these end.",
)
WHY = """The number of the program becomes its number among the tiles that are left. An expert without rows has no tiles
and is passed. Nobody had to know beforehand how many tiles there are."""


def check(t):
    def want(program, ends, BLOCK):
        firsts, start = [], 0
        for expert, end in enumerate(ends):
            firsts += [(expert, first) for first in range(start, end, BLOCK)]
            start = end
        return firsts[program] if program < len(firsts) else None

    def compare(ends, BLOCK):
        for program in range(ends[-1] // BLOCK + len(ends) + 1):
            t.value("tile_of", (program, ends, BLOCK), want(program, ends, BLOCK))

    compare((5, 5, 10, 11), 4)
    compare((0, 0, 3), 2)
    compare((0,), 4)
    compare((1,), 1)
    compare((64, 64, 130, 130, 131), 32)
    compare(tuple(range(0, 40, 3)), 2)
    ends, total = [], 0
    for _ in range(t.random.randint(3, 12)):
        total += t.random.choice((0, t.random.randint(0, 9), t.random.randint(10, 40)))
        ends.append(total)
    compare(tuple(ends), t.random.randint(2, 5))


WRONG = (
    ("tile_of(0, (5, 5, 10, 11), 4) is None",),
    ("tile_of(4, (5, 5, 10, 11), 4) is", "program -= tiles", "program -= 1"),
    ("tile_of(1, (5, 5, 10, 11), 4) is", "start + program * BLOCK", "start + program"),
    ("tile_of(2, (5, 5, 10, 11), 4) is", "start = end", "start = 0"),
)
RIGHT = (
    (
        "if program >= tiles:\n    program, start = program - tiles, end\n    continue\n"
        "return expert, start + BLOCK * program",
    ),
    ("program < tiles", "0 <= program <= tiles - 1"),
)
