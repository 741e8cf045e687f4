"""# Two halves of a row

Two programs have each seen one half of a row and know the maximum of their half, and the sum of the
exponentials relative to it. Write `merge(max_a, sum_a, max_b, sum_b)`, which returns both for the whole row.
A half may be empty: maximum minus infinity, sum 0.

[[figure: rows/online]]
"""

# %% solution
import math


def merge(max_a, sum_a, max_b, sum_b):
    # <<<
    largest = max(max_a, max_b)
    if largest == -math.inf:  # both empty: minus infinity minus itself would be NaN
        return largest, 0.0
    return largest, sum_a * math.exp(max_a - largest) + sum_b * math.exp(max_b - largest)
    # >>>


# %% checks
PAGE = "learn/softmax.py"
KIND = "fill in"
ORDER = 5
HINTS = (
    "The maximum of the row is the larger of the two.",
    "`sum_a` is relative to `max_a`. To make it relative to the new maximum, multiply it by "
    "`math.exp(max_a - largest)`.",
    "If both halves are empty, that is minus infinity minus minus infinity, which is NaN: return early.",
)
WHY = """The chapter's loop does this merge one chunk at a time. The order doesn't matter, so the halves can be
processed at the same time."""


def check(t):
    import math

    def whole(max_a, sum_a, max_b, sum_b):
        largest = max(max_a, max_b)
        return largest, sum_a * math.exp(max_a - largest) + sum_b * math.exp(max_b - largest)

    def half(reach=9.0):
        return t.random.uniform(-reach, reach), t.random.uniform(1, 9)

    empty = (float("-inf"), 0.0)
    t.value("merge", (1.0, 2.0, 2.0, 3.0), whole(1.0, 2.0, 2.0, 3.0))
    for reach in (9.0, 9.0, 9.0):
        a, b = sorted((half(reach), half(reach)))
        t.value("merge", (*a, *b), whole(*a, *b))
        t.value("merge", (*b, *a), whole(*a, *b), note="The larger maximum may come first or second.")
    high = t.random.uniform(1000, 2000)
    t.value("merge", (high, 1.5, high + 1, 1.0), whole(high, 1.5, high + 1, 1.0), note="exp(1000) is infinite.")
    t.value("merge", (-high, 1.5, -high - 1, 1.0), whole(-high, 1.5, -high - 1, 1.0), note="exp(-1000) is 0.")
    one = half()
    t.value("merge", (*one, *empty), one, note="The second half is empty.")
    t.value("merge", (*empty, *one), one, note="The first half is empty.")
    t.value("merge", (*empty, *empty), empty, note="Minus infinity minus itself is NaN.")
    for reach in (1e-3, 1e-6, 30.0, 200.0, 1e4):
        a, b = half(reach), half(reach)
        t.value("merge", (*a, *b), whole(*a, *b))
    for gap in (0.0, 15.0, 19.5, 25.0, 35.0, 60.0, 300.0, 745.0, 1e6):
        low, sums = t.random.uniform(-50, 50), [10.0 ** t.random.uniform(0, 9) for _ in range(2)]
        sums[0] *= math.exp(min(gap, 300.0))  # it counts, however small what it is multiplied by
        wanted = whole(low, sums[0], low + gap, sums[1])
        note = f"The maxima are {gap:g} apart."
        t.value("merge", (low, sums[0], low + gap, sums[1]), wanted, note=note)
        t.value("merge", (low + gap, sums[1], low, sums[0]), wanted, note=note)
    t.value("merge", (0.0, 1.0, 0.0, 1e6), (0.0, 1000001.0), note="Both maxima are 0.")


WRONG = (
    (
        "The first half is empty",
        "    largest = max(max_a, max_b)\n",
        "    largest = max(max_a, max_b)\n    if max_a == -math.inf:\n        return max_a, sum_a\n",
    ),
    (
        "exp(1000) is infinite",
        "math.exp(max_a - largest) +",
        "math.exp(min(max_a, 700)) / math.exp(min(largest, 700)) +",
    ),
    ("merge(1, 2, 2, 3) is None, should be (2, 3.73576)",),
    (
        "The larger maximum may come first or second",
        "return largest, sum_a * math.exp(max_a - largest) + sum_b * math.exp(max_b - largest)",
        "return largest, sum_a * math.exp(max_a - max_b) + sum_b",
    ),
    (
        "merge(1, 2, 2, 3) is (2, 5), should be (2, 3.73576)",
        "sum_a * math.exp(max_a - largest) + sum_b * math.exp(max_b - largest)",
        "sum_a + sum_b",
    ),
    (
        "OverflowError",
        "sum_a * math.exp(max_a - largest) + sum_b * math.exp(max_b - largest)",
        "(sum_a * math.exp(max_a) + sum_b * math.exp(max_b)) / math.exp(largest)",
    ),
    (
        "Minus infinity minus itself is NaN",
        "    if largest == -math.inf:  # both empty: minus infinity minus itself would be NaN\n"
        "        return largest, 0.0\n",
        "",
    ),
    (
        "merge(",
        "max_a - largest) + sum_b * math.exp(max_b - largest",
        "max(max_a - largest, -19.0)) + sum_b * math.exp(max(max_b - largest, -19.0)",
    ),
)
RIGHT = (
    (
        "if max_b == -math.inf:\n"
        "    return max_a, sum_a\n"
        "if max_a > max_b:\n"
        "    return merge(max_b, sum_b, max_a, sum_a)\n"
        "return max_b, sum_b + sum_a * math.exp(max_a - max_b)",
    ),
    (
        "largest = max(max_a, max_b, -1e308)\n"
        "parts = [s * math.exp(m - largest) for m, s in ((max_a, sum_a), (max_b, sum_b)) if s]\n"
        "return max(max_a, max_b), math.fsum(parts)",
    ),
)
