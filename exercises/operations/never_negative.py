"""# A distance that came out negative

`k3(d)` is to be e^d − 1 − d, which is never negative. For a `d` near 0 both `math.exp(d) - 1` and `d` have the same
leading digits, and what is left of the difference is rounding. Make it right for every `d`.
"""

# %% solution
import math


def k3(d):
    # <<<
    if abs(d) < 0.5:
        total, term = 0.0, d
        for n in range(2, 20):
            term = term * d / n
            total += term
        return total
    return math.exp(d) - 1 - d
    # ===
    # return math.exp(d) - 1 - d
    # >>>


# %% checks
PAGE = "kernels/classics/policy_loss.md"
KIND = "find the bug"
ORDER = 3
HINTS = (
    "`math.expm1(d)` is e^d − 1 with all its digits. Does that help the second difference?",
    "The exponential is 1 + d + d²/2 + d³/6 + …. Which terms are left?",
    "A series converges fast where `d` is small. Elsewhere the difference is fine.",
)
WHY = """A model that has just left its reference has |d| below 0.001. There the difference in float32 is off by more
than 15 % half of the time. Python's floats have more digits, so the fault begins at smaller numbers; the mending is the
same."""


def check(t):
    def want(d):
        total = term = d * d / 2
        for n in range(3, 200):
            term = term * d / n
            total += term
        return total

    for d in (1e-9, -1e-9, 1e-12, 1e-7, -1e-6, 1e-5):
        t.value("k3", (d,), want(d), note="It is about half the square of d.")
    t.value("k3", (0.0,), 0.0)
    for d in (0.001, 0.01, 0.3, 0.49, -0.4, 0.51, -0.6, 1.0, -2.0, 3.0, 8.0):
        t.value("k3", (d,), want(d))
    t.value("k3", (-50.0,), 49.0, note="Far below 0 the exponential is nothing.")
    t.value("k3", (20.0,), 485165174.40979, note="Far above 0 it is all.")
    for _ in range(12):
        d = t.random.choice((-1, 1)) * 10 ** t.random.uniform(-12, 0.5)
        t.value("k3", (d,), want(d))


WRONG = (
    ("It is about half the square of d",),
    ("It is about half the square of d", "return math.expm1(d) - d"),
    ("It is about half the square of d", "return max(math.exp(d) - 1 - d, 0.0)"),
    ("It is about half the square of d", "return d * d / 2 if abs(d) < 0.1 else math.exp(d) - 1 - d"),
    ("k3(8) is", "if abs(d) < 0.5:", "if True:"),
)
RIGHT = (
    ("return math.fsum(d**n / math.factorial(n) for n in range(2, 20)) if abs(d) < 0.5 else math.exp(d) - 1 - d",),
    (
        "if abs(d) > 0.5:\n"
        "    return math.expm1(d) - d\n"
        "rest = 0.0\n"
        "for n in range(20, 2, -1):\n"
        "    rest = (rest + 1) * d / n\n"
        "return d * d / 2 * (1 + rest)",
    ),
)
