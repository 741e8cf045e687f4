"""# Too small at first

An average begins at 0, and each step makes it `beta * average + (1 - beta) * gradient`. The gradients are all 1, so it
should be 1. Write `factor(beta, t)`: what is it after `t` steps? (AdamW divides by this number.)
"""


# %% solution
def factor(beta, t):
    # <<<
    return 1 - beta**t
    # >>>


# %% checks
PAGE = "derivations/adamw.md"
KIND = "fill in"
ORDER = 1
HINTS = (
    "Write down the average after one step, and after two. How far is each from 1?",
    "The distance from 1 is `beta` times what it was before, in every step. It begins at 1.",
)
WHY = """Among everything that was averaged, the zero at the beginning has the weight `beta ** t`, and the gradients
have the rest. With 0.999 that is a thousandth after one step, and 63 % after a thousand."""


def check(t):
    def want(beta, steps):
        average = 0.0
        for _ in range(steps):
            average = beta * average + (1 - beta)
        return average

    t.value("factor", (0.5, 1), 0.5, note="The first step takes half of the gradient, and half of the zero.")
    t.value("factor", (0.5, 2), 0.75, note="The second step takes half of the gradient, and half of the 0.5.")
    t.value("factor", (0.9, 3), want(0.9, 3))
    t.value("factor", (0.0, 5), 1.0, note="With `beta = 0` the average is the last gradient.")
    for _ in range(8):
        beta, steps = t.random.uniform(0.1, 0.99), t.random.randint(1, 40)
        t.value("factor", (beta, steps), want(beta, steps))


WRONG = (
    ("factor(0.5, 1) is None, should be 0.5",),
    ("factor(0.5, 2) is 0.5, should be 0.75", "1 - beta**t", "1 - beta"),
    ("The first step takes half of the gradient", "1 - beta**t", "1 - beta ** (t - 1)"),
    ("The second step takes half of the gradient", "1 - beta**t", "beta**t"),
)
RIGHT = (
    ("average = 0.0\nfor _ in range(t):\n    average = beta * average + (1 - beta)\nreturn average",),
    ("return (1 - beta) * sum(beta**k for k in range(t))",),
)
