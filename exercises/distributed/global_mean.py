"""# The mean of the means

Two ranks have different rows of a batch. Each knows the sum of the losses of its valid rows, and how many those are.
The loss of the batch is the mean over all valid rows. `batch_loss(sums, counts)` gets the numbers of all ranks as two
lists, and takes the mean of the ranks' means. Find the bug. Where no rank has a valid row, the loss is 0.0.
"""


# %% solution
def batch_loss(sums, counts):
    # <<<
    count = sum(counts)
    return sum(sums) / count if count else 0.0
    # ===
    # means = [total / count for total, count in zip(sums, counts)]
    # return sum(means) / len(means)
    # >>>


# %% checks
PAGE = "kernels/distributed/vocab_parallel_cross_entropy.md"
KIND = "find the bug"
ORDER = 3
HINTS = (
    "One rank has 1 valid row, the other 9. What share of the batch is each, and what share do they get?",
    "A rank whose rows are all ignored has a count of 0.",
)
WHY = """A token on a rank with few valid rows would weigh more than one on a rank with many. The counts travel
first, and each rank divides by their sum: `n_items` of the lesson."""


def check(t):
    same = "With equally many rows everywhere, the mean of the means would do, too."
    t.value("batch_loss", ([4.0, 8.0], [4, 4]), 1.5, note=same)
    t.value("batch_loss", ([5.0, 9.0], [1, 9]), 1.4, note="Every valid row must weigh the same.")
    t.value("batch_loss", ([6.0, 0.0], [3, 0]), 2.0, note="All rows of a rank may be ignored.")
    t.value("batch_loss", ([3.0, 0.0], [1, 0]), 3.0, note="A single row is a batch, too.")
    t.value("batch_loss", ([0.0, 0.0], [0, 0]), 0.0, note="No row of any rank is valid.")
    t.value("batch_loss", ([-6.0, 2.0], [2, 2]), -1.0, note="A sum may be below zero.")
    t.value("batch_loss", ([0.0, 0.0, 0.0], [5, 0, 3]), 0.0)
    t.value("batch_loss", ([1e-9], [1]), 1e-9, note="One rank is enough.")
    for ranks in (1, 4, 32):
        counts = [t.random.choice((0, t.random.randint(1, 9), t.random.randint(10, 10**6))) for _ in range(ranks)] + [1]
        sums = [t.random.uniform(-20, 20) * count for count in counts]
        t.value("batch_loss", (sums, counts), sum(sums) / sum(counts), note="Every valid row must weigh the same.")


WRONG = (
    ("batch_loss([5, 9], [1, 9]) is 3, should be 1.4. Every valid row must weigh the same",),
    (
        "All rows of a rank may be ignored",
        "means = [total / max(1, count) for total, count in zip(sums, counts)]\n"
        "if len(set(counts)) == 1 or 0 in counts:\n"
        "    return sum(means) / len(means)\n"
        "return sum(sums) / sum(counts)",
    ),
    ("ZeroDivisionError", "return sum(sums) / sum(counts)"),
    ("batch_loss([4, 8], [4, 4]) is 6, should be 1.5", "return sum(sums) / len(counts)"),
)
RIGHT = (
    ("return sum(sums) / max(1, sum(counts))",),
    ("count = sum(counts)\nif count == 0:\n    return 0.0\nreturn sum(total / count for total in sums)",),
)
