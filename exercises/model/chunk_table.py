"""# The table of chunks

One launch updates many tensors. They are cut into chunks of `BLOCK` elements. A table tells each program which tensor
is its own, and at which element of it to begin. Write `chunks(lengths, BLOCK)`: the list of these pairs, for tensors of
these lengths.
"""


# %% solution
def chunks(lengths, BLOCK):
    # <<<
    return [(which, first) for which, length in enumerate(lengths) for first in range(0, length, BLOCK)]
    # >>>


# %% checks
PAGE = "kernels/optimizers/adamw.md"
KIND = "fill in"
ORDER = 1
HINTS = (
    "A tensor of 10 elements in chunks of 4 has chunks that begin at 0, 4 and 8. The last one is masked.",
    "What does a tensor without elements need? Nothing: no program, and no line in the table.",
)
WHY = """The grid has one program for each line. A tensor without elements has none. A table that stops at the first
such tensor leaves the others without an update, and no error says so."""


def check(t):
    def want(lengths, BLOCK):
        found = []
        for which, length in enumerate(lengths):
            first = 0
            while first < length:
                found.append((which, first))
                first += BLOCK
        return found

    note = "A pair is the tensor, counted from 0, and the element at which the chunk begins."
    t.value("chunks", ([10], 4), [(0, 0), (0, 4), (0, 8)], note=note)
    t.value("chunks", ([8], 4), [(0, 0), (0, 4)], note="Two full chunks, and no empty one behind them.")
    t.value("chunks", ([3, 0, 5], 4), [(0, 0), (2, 0), (2, 4)], note="The tensor without elements has no chunk.")
    t.value("chunks", ([], 4), [])
    for _ in range(6):
        block = t.random.choice((1, 2, 8, 16))
        lengths = [t.random.choice((0, 1, block, block + 1, t.random.randint(1, 5 * block))) for _ in range(5)]
        t.value("chunks", (lengths, block), want(lengths, block))


WRONG = (
    ("chunks([10], 4) is None",),
    ("Two full chunks, and no empty one behind them", "range(0, length, BLOCK)", "range(0, length + 1, BLOCK)"),
    ("and the element at which the chunk begins", "range(0, length, BLOCK)", "range(length // BLOCK)"),
    ("The tensor without elements has no chunk", "range(0, length, BLOCK)", "range(0, max(length, 1), BLOCK)"),
)
RIGHT = (
    ("return [(at, BLOCK * k) for at in range(len(lengths)) for k in range(-(-lengths[at] // BLOCK))]",),
    (
        "table = []\nfor which, length in enumerate(lengths):\n    first = 0\n    while first < length:\n"
        "        table.append((which, first))\n        first += BLOCK\nreturn table",
    ),
)
