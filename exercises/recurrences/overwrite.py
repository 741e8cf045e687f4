"""# Write the difference

A state is a list of rows, one for each number of a key. What it reads at a key `k` is the sum of its rows, each times
its number of `k`. Write `overwrite(state, k, v, beta)`: the state after the delta rule has written a share `beta` of
the difference between `v` and what it read. `state` is a list of lists of floats, and so is what is returned; `k` and
`v` are lists.
"""


# %% solution
def overwrite(state, k, v, beta):
    # <<<
    read = [sum(k[a] * state[a][b] for a in range(len(k))) for b in range(len(v))]
    u = [beta * (v[b] - read[b]) for b in range(len(v))]
    return [[state[a][b] + k[a] * u[b] for b in range(len(v))] for a in range(len(k))]
    # >>>


# %% checks
PAGE = "learn/write_the_difference.py"
KIND = "fill in"
ORDER = 1
HINTS = (
    "Read first: one number for each column.",
    "The difference, times `beta`, is added to every row, times that row's number of the key.",
)
WHY = """With `beta = 1` and a key of length 1 the state reads `v` afterwards, whatever it held there before. A longer
key would overshoot."""


def check(t):
    def want(state, k, v, beta):
        read = [sum(k[a] * state[a][b] for a in range(len(k))) for b in range(len(v))]
        return [[state[a][b] + k[a] * beta * (v[b] - read[b]) for b in range(len(v))] for a in range(len(k))]

    def number():
        return round(t.random.uniform(-3, 3), 2)

    cases = [
        ([[0.0, 0.0], [0.0, 0.0]], [1.0, 0.0], [3.0, 4.0], 1.0),
        ([[1.0, 2.0], [5.0, 6.0]], [1.0, 0.0], [3.0, 4.0], 1.0),
    ]
    for rows, columns, beta in (
        (2, 3, 0.5),
        (2, 3, 1.0),
        (3, 2, 0.25),
        (2, 3, 0.0),
        (1, 1, 0.9),
        (17, 9, 0.7),
        (4, 4, -0.5),
    ):
        state = [[number() for _ in range(columns)] for _ in range(rows)]
        cases.append((state, [number() for _ in range(rows)], [number() for _ in range(columns)], beta))
    cases.append(([[1.0, 2.0], [5.0, 6.0]], [0.0, 0.0], [3.0, 4.0], 1.0))
    cases.append(([[1e8, -1e8]], [2.0], [0.0, 1e-8], 0.5))
    for state, k, v, beta in cases:
        t.value("overwrite", (state, k, v, beta), want(state, k, v, beta))


WRONG = (
    ("overwrite([[0, 0], [0, 0]], [1, 0], [3, 4], 1) is None",),
    ("overwrite([[1, 2], [5, 6]], [1, 0], [3, 4], 1) is", "beta * (v[b] - read[b])", "beta * v[b]"),
    ("is", "k[a] * u[b]", "u[b]"),
    ("is", "beta * (v[b] - read[b])", "v[b] - beta * read[b]"),
)
RIGHT = (
    (
        "out = [list(row) for row in state]\n"
        "for b in range(len(v)):\n"
        "    u = beta * (v[b] - sum(k[a] * state[a][b] for a in range(len(k))))\n"
        "    for a in range(len(k)):\n"
        "        out[a][b] += k[a] * u\n"
        "return out",
    ),
    (
        "read = [sum(x * row[b] for x, row in zip(k, state)) for b in range(len(v))]\n"
        "return [[old + x * beta * (new - r) for old, new, r in zip(row, v, read)] for x, row in zip(k, state)]",
    ),
)
