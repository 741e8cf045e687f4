"""# A threshold, and what is left at it

The `k` largest of some whole numbers are wanted, and of equal ones the first. What a selection has to know is the
threshold, which is the `k`-th largest, and how many of the numbers *at* the threshold are kept. Then one walk does it.

Write `threshold_and_left(numbers, k)`, a pair. `k` is at least 1 and at most the number of numbers.
"""


# %% solution
def threshold_and_left(numbers, k):
    # <<<
    threshold = sorted(numbers, reverse=True)[k - 1]
    return threshold, k - sum(number > threshold for number in numbers)
    # >>>


# %% checks
PAGE = "derivations/indexer.md"
KIND = "fill in"
ORDER = 1
HINTS = (
    "In 7, 3, 7, 1, 7 and for k = 2 the threshold is 7. How many lie above it?",
    "Those above have a place for certain. The other places are left for the numbers that equal the threshold.",
)
WHY = """A rank is not needed for any number. Two numbers describe the set, however many are equal; and counting those
above a threshold is what a GPU does well: every thread counts some, and nobody has to wait for an order."""


def check(t):
    mistakes = {
        lambda numbers, k: (sorted(numbers)[-k], numbers.count(sorted(numbers)[-k])): (
            "So many of the numbers are at the threshold. How many of them are kept?"
        ),
        lambda numbers, k: (sorted(numbers)[-k], sum(n > sorted(numbers)[-k] for n in numbers)): (
            "So many lie above the threshold. How many places do they leave?"
        ),
        lambda numbers, k: (sorted({*numbers})[-min(k, len({*numbers}))], 0): "Equal numbers have a place each.",
    }
    drawn = []
    for _ in range(6):
        numbers = [t.random.randint(0, 5) for _ in range(t.random.randint(2, 12))]
        drawn.append((numbers, t.random.randint(1, len(numbers))))
    fixed = (([7, 3, 7, 1, 7], 2), ([4], 1), ([0] * 9, 4), ([5, 4, 3], 3), ([1, 2, 2, 3, -2], 3), ([-4, -1, -4], 2))
    for numbers, k in (*fixed, *drawn):
        found = sorted(numbers)[len(numbers) - k]
        above = len([number for number in numbers if number > found])
        t.value("threshold_and_left", (numbers, k), (found, k - above), mistakes=mistakes)


WRONG = (
    ("threshold_and_left([7, 3, 7, 1, 7], 2) is None, should be (7, 2)",),
    (
        "is (7, 3), should be (7, 2). So many of the numbers are at the threshold",
        "k - sum(number > threshold",
        "sum(number == threshold",
    ),
    (
        "threshold_and_left([7, 3, 7, 1, 7], 2) is (7, -1), should be (7, 2)",
        "number > threshold",
        "number >= threshold",
    ),
)
RIGHT = (
    ("ordered = sorted(numbers)\nat = ordered[-k]\nreturn at, k - len([x for x in numbers if x > at])",),
    (
        "threshold = max(c for c in numbers if sum(x >= c for x in numbers) >= k)\n"
        "return threshold, k - sum(x > threshold for x in numbers)",
    ),
)
