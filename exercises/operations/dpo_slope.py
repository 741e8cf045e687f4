"""# A slope that isn't rounded to zero

DPO's loss without smoothing is log(1 + e^(−u)), where u = beta * margin. Write `slope(margin, beta)`, its derivative
with respect to the margin. It must keep its digits where the model is already sure of the chosen text, and overflow
neither there nor where it is sure of the other one.
"""

# %% solution
import math


def slope(margin, beta):
    # <<<
    u = beta * margin
    if u > 0:
        return -beta * math.exp(-u) / (1 + math.exp(-u))
    return -beta / (1 + math.exp(u))
    # >>>


# %% checks
PAGE = "derivations/policy_loss.md"
KIND = "fill in"
ORDER = 2
HINTS = (
    "It is beta times sigmoid(u) − 1. For u = 40 the sigmoid is 1 in every float. What does the difference leave?",
    "1 − sigmoid(u) is sigmoid(−u), which is a small number with all its digits.",
    "`math.exp(710)` raises an OverflowError, `math.exp(-710)` is nearly 0.",
)
WHY = """Pairs that the model has long sorted out have tiny slopes, and pairs that it is sure of the wrong way round
have slopes of −beta. A sigmoid of −u says both."""


def check(t):
    import math

    def want(margin, beta):
        u = beta * margin
        return -beta / (1 + math.exp(u)) if u < 0 else -beta * math.exp(-u) / (1 + math.exp(-u))

    def try_it(margin, beta, note=""):
        t.value("slope", (margin, beta), want(margin, beta), note=note)

    try_it(0.0, 0.1, note="Where nothing is preferred it is −beta / 2: a larger margin makes the loss smaller.")
    try_it(1.0, 0.5)
    try_it(-1.0, 0.5, note="It is larger where the model prefers the wrong text.")
    try_it(80.0, 0.5, note="sigmoid(40) is 1 in every float, but its distance from 1 isn't 0.")
    try_it(2000.0, 0.5, note="Not every exponential of 1000 may be computed.")
    try_it(-2000.0, 0.5, note="Not every exponential of 1000 may be computed.")
    for _ in range(8):
        try_it(t.random.uniform(-300, 300), t.random.uniform(0.05, 1))
    for _ in range(4):
        try_it(t.random.uniform(-3, 3), t.random.uniform(0.05, 1))


WRONG = (
    ("slope(0, 0.1) is None",),
    (
        "sigmoid(40) is 1 in every float",
        "return -beta * math.exp(-u) / (1 + math.exp(-u))",
        "return beta * (1 / (1 + math.exp(-u)) - 1)",
    ),
    ("raises OverflowError: math range error. Not every exponential", "if u > 0:", "if u > 1e9:"),
    ("Where nothing is preferred it is −beta / 2", "return -beta / (1 + math.exp(u))", "return -1 / (1 + math.exp(u))"),
    ("slope(0, 0.1) is 0.05", "return -beta / (1 + math.exp(u))", "return beta / (1 + math.exp(u))"),
)
RIGHT = (
    ("u = beta * margin\nsmall = math.exp(-abs(u))\nreturn -beta * (small if u > 0 else 1.0) / (1 + small)",),
    (
        "u = beta * margin\n"
        "return -beta * math.exp(-u - math.log1p(math.exp(-u))) if u > 0 else -beta / (1 + math.exp(u))",
    ),
)
