"""# What half of a product saves

A round for an `m` by `n` matrix has three products: A = X Xᵀ, then A Aᵀ, then B X with B of `m` by `m`. An ordinary
product of `m` by `k` and `k` by `n` matrices takes 2 m k n operations. The first two are symmetric, and may be computed
by half. Write `saved(m, n)`: which share of the operations is saved? (The matrices are large: the diagonal doesn't
count.)
"""


# %% solution
def saved(m, n):
    # <<<
    return (m * m * n + m**3) / (4 * m * m * n + 2 * m**3)
    # >>>


# %% checks
PAGE = "kernels/optimizers/muon.md"
KIND = "fill in"
ORDER = 5
HINTS = (
    "What do the three products take: 2 m² n, 2 m³, and 2 m² n?",
    "Half of the first, and half of the second.",
)
WHY = """A square matrix saves a third, and a step is 1.5 times as fast at best. At n = 4 m it is 5/18, 28 %. A very
wide matrix saves a quarter: the third product is as large as the first, and has no half."""


def check(t):
    def want(m, n):
        whole = [2 * m * n * m, 2 * m * m * m, 2 * m * m * n]
        return (whole[0] / 2 + whole[1] / 2) / sum(whole)

    t.value("saved", (1024, 1024), 1 / 3, note="All three products are alike, and two are done by half.")
    t.value("saved", (1024, 4096), 5 / 18, note="Of a wide matrix the product A Aᵀ is smaller than the other two.")
    t.value(
        "saved", (1, 10**9), want(1, 10**9), note="A wide matrix has two large products, and one of them is symmetric."
    )
    for _ in range(8):
        m = t.random.randint(1, 5000)
        n = m + t.random.randint(0, 9000)
        t.value("saved", (m, n), want(m, n))


WRONG = (
    ("saved(1024, 1024) is None",),
    ("All three products are alike", "(m * m * n + m**3)", "(m * m * n + m * m * n + m**3)"),
    ("saved(1024, 4096) is", "return (m * m * n + m**3) / (4 * m * m * n + 2 * m**3)", "return 1 / 3"),
    ("All three products are alike", "(m * m * n + m**3)", "(m**3)"),
)  # fmt: skip
RIGHT = (
    ("return (n + m) / (4 * n + 2 * m)",),
    ("whole = 2 * m * n + 2 * m * m + 2 * m * n\nreturn (m * n + m * m) / whole",),
)
