"""# A gradient without the result

An expert's result for a token is `y = D a`, and the router's weight multiplies it: `out = w y`. The gradient of `w`
is the product of `y` with the upstream gradient `dout`. But `y` wasn't kept. `weight_gradient(u, a)` gets what the
backward pass has anyway, `u = Dᵀ dout` and `a`, as lists of numbers. What does it return?
"""


# %% solution
def weight_gradient(u, a):
    # <<<
    return sum(x * y for x, y in zip(u, a))
    # >>>


# %% checks
PAGE = "derivations/moe_mlp.md"
KIND = "fill in"
ORDER = 1
HINTS = (
    "Write the product of dout and y as a double sum, over the rows and the columns of D.",
    "The same double sum can be added up in the other order: first over the rows, which makes u.",
)
WHY = """Σ dout_m D_mn a_n, over m and n, is the product of dout with D a, and as well the product of Dᵀ dout with a. A
matrix may be moved from one factor of such a product to the other if it is transposed."""


def check(t):
    for columns in (1, 3, t.random.randint(4, 6), 40):
        rows = t.random.randint(2, 4)
        D = [[t.random.randint(-5, 5) for _ in range(columns)] for _ in range(rows)]
        a = [t.random.randint(-5, 5) for _ in range(columns)]
        dout = [t.random.randint(-5, 5) for _ in range(rows)]
        y = [sum(d * x for d, x in zip(row, a)) for row in D]
        u = [sum(dout[m] * D[m][column] for m in range(rows)) for column in range(columns)]
        t.value("weight_gradient", (u, a), sum(d * x for d, x in zip(dout, y)))
    for u, a in (([0.0, 0.0], [1.0, 2.0]), ([-1e8, 1e-8], [1e8, 1e8]), ([0.25], [-3.5])):
        t.value("weight_gradient", (u, a), sum(x * y for x, y in zip(u, a)))


WRONG = (
    ("should be",),
    ("should be", "x * y", "x + y"),
    ("should be", "return sum(u) * sum(a)"),
)
RIGHT = (
    ("return sum(u[i] * a[i] for i in range(len(a)))",),
    ("total = 0\nfor i, each in enumerate(u):\n    total += each * a[i]\nreturn total",),
)
