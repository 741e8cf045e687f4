"""# How undecided between two?

A model has two logits, `a` and `b`. Write `entropy(a, b)`, the entropy of its distribution in nats: the mean of
−log p. It must be right for logits of 1000 and for logits that are 1000 apart, and either may be minus infinity, but
not both.
"""

# %% solution
import math


def entropy(a, b):
    # <<<
    gap = abs(a - b)
    e = math.exp(-gap)
    if e == 0.0:  # one of them has everything
        return 0.0
    return math.log(1 + e) + gap * e / (1 + e)
    # >>>


# %% checks
PAGE = "derivations/token_logprobs.md"
KIND = "fill in"
ORDER = 3
HINTS = (
    "Subtract the larger logit from both. Then one exponential is 1, and the other at most 1.",
    "With S and E of the page, the entropy is log S − E / S.",
    "If one logit is minus infinity, its term is 0 · (−∞). What is it in the limit?",
)
WHY = """Only the distance of both counts. At equal logits it is log 2, and it goes to 0 as they part: who is sure has
nothing left to decide."""


def check(t):
    import math

    def want(a, b):
        gap = abs(a - b)
        e = math.exp(-gap)
        return math.log1p(e) + gap * e / (1 + e) if e > 0 else 0.0

    def try_it(a, b, note=""):
        t.value("entropy", (a, b), want(a, b), note=note)

    try_it(0.0, 0.0, "Of two equal logits it is log 2.")
    try_it(1.0, 0.0)
    try_it(0.0, 1.0, "Which of them is larger doesn't matter.")
    try_it(1000.0, 1001.0, "exp(1000) is infinite.")
    try_it(-1000.0, -1002.0, "exp(-1000) is 0.")
    try_it(1000.0, 0.0, "Where one has everything, the entropy is 0.")
    try_it(-2.0, -math.inf, "What is impossible adds nothing.")
    try_it(-math.inf, 3.0, "What is impossible adds nothing.")
    for _ in range(8):
        try_it(t.random.uniform(-5, 5), t.random.uniform(-5, 5))  # further apart 1 - p has too few digits by chance


WRONG = (
    ("entropy(0, 0) is None",),
    ("entropy(1, 0) is", "math.log(1 + e) + gap * e / (1 + e)", "math.log(1 + e)"),
    ("entropy(1, 0) is", "gap * e / (1 + e)", "gap / (1 + e)"),
    ("What is impossible adds nothing", "if e == 0.0:", "if gap == 1000.0:"),
    ("raises OverflowError", "e = math.exp(-gap)", "e = math.exp(min(a, b)) / math.exp(max(a, b))"),
)
RIGHT = (
    (
        "e = math.exp(-abs(a - b))\n"
        "p = 1 / (1 + e)\n"
        "q = 1 - p\n"
        "return -p * math.log(p) - (q * math.log(q) if q else 0.0)",
    ),
    (
        "top = max(a, b)\n"
        "p = [math.exp(x - top) for x in (a, b)]\n"
        "p = [each / sum(p) for each in p]\n"
        "return -sum(each * math.log(each) for each in p if each)",
    ),
    (
        "gap = min(abs(a - b), 2000.0)\n"
        "p = 1 / (1 + math.exp(min(gap, 700)))\n"
        "return 0.0 if gap > 700 else p * gap - math.log1p(-p)",
    ),
)
