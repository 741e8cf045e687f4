"""# How many are kept?

Dropout drops each of `n` elements with probability `p`, and how many it keeps differs from seed to seed.
Write `spread(n, p)`, the standard deviation of that number.
"""


# %% solution
def spread(n, p):
    # <<<
    return (n * p * (1 - p)) ** 0.5
    # >>>


# %% checks
PAGE = "learn/random_numbers.py"
KIND = "fill in"
ORDER = 5
HINTS = (
    "Toss a coin that is 1 with probability `1 - p` and 0 otherwise. What is its variance?",
    "The coins are independent, so their variances add up. The standard deviation is the root of the sum.",
)
WHY = """A coin has variance `p * (1 - p)`, and `n` independent ones have `n` times as much. For 1000 elements and a
quarter the root of that is about 14: nineteen out of twenty seeds keep between 722 and 778 elements. A test of dropout
that counts elements must allow for that, and a difference of 100 is a bug."""


def check(t):
    t.value("spread", (4, 0.5), 1.0, note="Four coins: each has variance 1/4.")
    t.value("spread", (1000, 0.25), 187.5**0.5)
    t.value(
        "spread", (1000, 0.75), 187.5**0.5, note="The number that is dropped varies as much as the number that is kept."
    )
    t.value("spread", (50, 0.0), 0.0, note="Nothing is dropped, whatever the seed.")
    t.value("spread", (50, 1.0), 0.0, note="Nothing is kept, whatever the seed.")
    t.value("spread", (0, 0.5), 0.0)
    for _ in range(6):
        n, p = t.random.randint(1, 9000), t.random.choice((t.random.random(), 10.0 ** -t.random.randint(1, 5)))
        t.value("spread", (n, p), (n * p * (1 - p)) ** 0.5)


WRONG = (
    ("spread(4, 0.5) is None, should be 1",),
    (
        "spread(1000, 0.25) is 187.5, should be 13.6931",
        " ** 0.5",
        "",
    ),
    (
        "Four coins: each has variance 1/4",
        "n * p * (1 - p)",
        "n * p",
    ),
    (
        "spread(4, 0.5) is 2, should be 1",
        "(n * p * (1 - p)) ** 0.5",
        "n * (p * (1 - p)) ** 0.5",
    ),
)
RIGHT = (
    ("kept = 1 - p\nreturn (n * (kept - kept * kept)) ** 0.5",),
    ("import math\nreturn math.sqrt(sum(p * (1 - p) for _ in range(n)))",),
)
