"""# Heads are matrices of their own

A weight of `rows` by `columns` numbers, contiguous in memory, has the rows of `heads` heads below each other. As a
batch of matrices it need not be copied: another shape and other strides are enough. Write `view(rows, columns, heads)`:
the shape and the strides (in elements) of the view, as a tuple of two tuples of three numbers.
"""


# %% solution
def view(rows, columns, heads):
    # <<<
    each = rows // heads
    return (heads, each, columns), (each * columns, columns, 1)
    # >>>


# %% checks
PAGE = "kernels/optimizers/muon.md"
KIND = "fill in"
ORDER = 7
HINTS = (
    "How many rows has a head? That is the second number of the shape.",
    "From one head to the next you pass all of its rows, each of `columns` numbers.",
)
WHY = """As one matrix, the rows of all heads would be made orthogonal to each other. As a batch, each head is
orthogonal in itself. `weight.view(heads, -1, columns)` is this view."""


def check(t):
    note = "Each head has 3 whole rows of 4 numbers, and the next head begins behind them."
    t.value("view", (6, 4, 2), ((2, 3, 4), (12, 4, 1)), note=note)
    t.value("view", (6, 4, 1), ((1, 6, 4), (24, 4, 1)), note="One head is the whole matrix.")
    t.value("view", (6, 4, 6), ((6, 1, 4), (4, 4, 1)), note="A head may be a single row.")
    for _ in range(8):
        heads, each, columns = (t.random.randint(1, 40) for _ in range(3))
        t.value("view", (heads * each, columns, heads), ((heads, each, columns), (each * columns, columns, 1)))


WRONG = (
    ("view(6, 4, 2) is None",),
    ("view(6, 4, 2) is", "(each * columns, columns, 1)", "(columns, each * columns, 1)"),
    ("view(6, 4, 2) is", "(heads, each, columns)", "(each, heads, columns)"),
    ("A head may be a single row", "(each * columns, columns, 1)", "(max(each, 2) * columns, columns, 1)"),
)
RIGHT = (
    ("return (heads, rows // heads, columns), (rows // heads * columns, columns, 1)",),
    ("each = rows * columns // heads\nreturn (heads, each // columns, columns), (each, columns, 1)",),
)
