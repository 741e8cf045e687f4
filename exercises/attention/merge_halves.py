"""# Two halves of the keys

Two kernels have each seen one half of the keys, and returned an output and a log-sum-exp for each row. Write
`merge(o_a, lse_a, o_b, lse_b)`, which returns the output for all keys. A row may have seen nothing in one half, or in
both: output 0, log-sum-exp minus infinity.
"""

# %% solution
import math

import torch


def merge(o_a, lse_a, o_b, lse_b):
    # <<<
    lse = torch.logaddexp(lse_a, lse_b)
    lse = torch.where(lse == -math.inf, torch.zeros_like(lse), lse)  # nothing in both: −∞ minus −∞ would be NaN
    return torch.exp(lse_a - lse)[:, None] * o_a + torch.exp(lse_b - lse)[:, None] * o_b
    # >>>


# %% checks
PAGE = "learn/attention.py"
KIND = "fill in"
ORDER = 3
HINTS = (
    "The weight of each half is its share of the sum of all exponentials.",
    "`torch.logaddexp(a, b)` is the logarithm of the sum of both exponentials, and safe for large numbers.",
    "Where both halves are empty, the difference of two infinities is NaN: subtract 0 there.",
)
WHY = """The weight of each half is its share of the sum. That is how decode divides one row among many programs."""


#: A log-sum-exp is a number, or minus infinity.
FINITE = tuple(f"{kind} in lse_{half}" for kind in ("a NaN", "an infinity") for half in "ab")


def check(t):
    none = -float("inf")

    def want(o_a, lse_a, o_b, lse_b):
        lse = torch.logaddexp(lse_a, lse_b)
        lse = torch.where(lse == none, torch.zeros_like(lse), lse)
        return torch.exp(lse_a - lse)[:, None] * o_a + torch.exp(lse_b - lse)[:, None] * o_b

    def compared(case, lse_a, lse_b, spare=FINITE):
        o_a, o_b = t.values(len(lse_a), 2), t.values(len(lse_b), 2)
        for row, (a, b) in enumerate(zip(lse_a, lse_b)):
            o_a[row] = 0.0 if a == none else o_a[row]
            o_b[row] = 0.0 if b == none else o_b[row]
        lse_a, lse_b = t.surrounded(torch.tensor(lse_a)), t.surrounded(torch.tensor(lse_b))
        t.compare(case, "merge", want, o_a, lse_a, o_b, lse_b, name="o", kernel=False, spare=spare)

    compared("every row sees both halves", [0.5, 1.0, -2.0], [1.5, -1.0, 0.25])
    compared("drawn", *([t.random.uniform(-5, 5) for _ in range(4)] for _ in range(2)))
    high = t.random.randint(1000, 3000)
    compared(f"scores near {high}", [high, high - 1.0, -high], [high - 2.0, high + 1.0, 1.0 - high])
    compared("some rows see one half, one sees none", [none, 1.0, none], [0.5, none, none], ("*",))
    compared("halves that are empty beside low scores", [none, -high, none], [-high, none, none], ("*",))
    compared("equal", [0.0, 1000.0, -1000.0], [0.0, 1000.0, -1000.0])
    far = [10.0 ** t.random.randint(2, 30) for _ in range(4)]
    compared("one half far below the other", [*far, 0.0], [*(-x for x in far), -80.0])
    compared("40 rows", *([t.random.uniform(-30, 30) for _ in range(40)] for _ in range(2)))


WRONG = (
    (
        "scores near ",
        "most = torch.maximum(torch.maximum(lse_a, lse_b), torch.full_like(lse_a, -500.0))\n"
        "a, b = torch.exp(lse_a - most)[:, None], torch.exp(lse_b - most)[:, None]\n"
        "return (a * o_a + b * o_b) / torch.maximum(a + b, torch.full_like(a, 1e-30))",
    ),
    ("every row sees both halves: merge returns None, not a tensor",),
    (
        "every row sees both halves: o[0, 0] is",
        "return torch.exp(lse_a - lse)[:, None] * o_a + torch.exp(lse_b - lse)[:, None] * o_b",
        "return (o_a + o_b) / 2",
    ),
    (
        "some rows see one half, one sees none: o[2, 0] is nan, should be 0",
        "    lse = torch.where(lse == -math.inf, torch.zeros_like(lse), lse)  # nothing in both: −∞ minus −∞ "
        "would be NaN\n",
        "",
    ),
    (
        "every row sees both halves: o[0, 0] is",
        "lse = torch.logaddexp(lse_a, lse_b)",
        "lse = lse_a + lse_b",
    ),
    (
        "every row sees both halves: o[0, 0] is",
        "return (lse_a[:, None] * o_a + lse_b[:, None] * o_b) / (lse_a + lse_b)[:, None]",
    ),
    (
        "o[0, 0] is nan",
        "a, b = torch.exp(lse_a)[:, None], torch.exp(lse_b)[:, None]\nreturn (a * o_a + b * o_b) / (a + b)",
    ),
)
RIGHT = (
    (
        "most = torch.maximum(torch.maximum(lse_a, lse_b), torch.full_like(lse_a, -1e30))\n"
        "a, b = torch.exp(lse_a - most)[:, None], torch.exp(lse_b - most)[:, None]\n"
        "return (a * o_a + b * o_b) / torch.maximum(a + b, torch.full_like(a, 1e-30))",
    ),
    (
        "share = torch.sigmoid(lse_a - lse_b)\n"
        "share = torch.where(share == share, share, torch.zeros_like(share))[:, None]\n"
        "return share * o_a + (1 - share) * o_b",
    ),
    (
        "    lse = torch.logaddexp(lse_a, lse_b)",
        "    large, small = torch.maximum(lse_a, lse_b), torch.minimum(lse_a, lse_b)\n"
        "    lse = large + torch.log1p(torch.exp(torch.where(small == -math.inf, small, small - large)))",
    ),
)
