"""# A cap that comes too late

`weights(trainer, sampler, most)` makes a ratio of each pair of log-probabilities, and caps it at `most`. It works for
most answers. But where the sampler was nearly certain that a token would not come, it ends with an `OverflowError`.
Find the bug.
"""

# %% solution
import math


def weights(trainer, sampler, most):
    # <<<
    return [math.exp(min(now - then, math.log(most))) for now, then in zip(trainer, sampler)]
    # ===
    # return [min(math.exp(now - then), most) for now, then in zip(trainer, sampler)]
    # >>>


# %% checks
PAGE = "learn/reward.py"
KIND = "find the bug"
ORDER = 3
HINTS = (
    "For which difference of log-probabilities does the exponential overflow? Does its value matter there?",
    "A ratio is above `most` where the difference is above the logarithm of `most`.",
)
WHY = """What overflows has to be stopped before the exponential, not after it. On a GPU there is no error: the ratio is
∞, the cap makes a fine number of it, and the gradient that comes back through both is 0 · ∞, NaN."""


def check(t):
    def want(trainer, sampler, most):
        return [most if now - then > 50 else min(math.exp(now - then), most) for now, then in zip(trainer, sampler)]

    t.value("weights", ([-1.0, -2.0], [-1.0, -1.0], 2.0), [1.0, math.exp(-1)])
    t.value("weights", ([-0.5], [-3.0], 2.0), [2.0], note="A ratio of 12 is capped at 2.")
    t.value("weights", ([-0.5, -1.0], [-900.0, -1.0], 2.0), [2.0, 1.0], note="A ratio of e^899.5 is capped, too.")
    t.value("weights", ([-900.0], [-0.5], 2.0), [0.0], note="There is no cap below.")
    t.value("weights", ([-0.5], [-3.0], 5.0), [5.0])
    t.value("weights", ([-0.1, -3.0], [-800.0, -0.5], 0.5), [0.5, math.exp(-2.5)], note="A cap below 1 is a cap.")
    t.value("weights", ([], [], 3.0), [])
    for _ in range(8):
        n, most = t.random.randint(1, 5), t.random.choice((0.7, 1.0, 2.0, 10.0))
        trainer = [-t.random.uniform(0, 4) for _ in range(n)]
        sampler = [-t.random.choice((t.random.uniform(0, 4), t.random.uniform(720, 2000))) for _ in range(n)]
        t.value("weights", (trainer, sampler, most), want(trainer, sampler, most))


WRONG = (
    ("OverflowError",),
    (
        "A ratio of 12 is capped at 2",
        "return [math.exp(min(now - then, 700.0)) for now, then in zip(trainer, sampler)]",
    ),
    (
        "There is no cap below",
        "return [min(max(math.exp(min(now - then, 700.0)), 0.1), most) for now, then in zip(trainer, sampler)]",
    ),
    ("weights(", "now - then", "then - now"),
    ("weights(", "math.log(most)", "most"),
)
RIGHT = (
    ("return [min(math.exp(min(now - then, 700.0)), most) for now, then in zip(trainer, sampler)]",),
    (
        "found, limit = [], math.log(most)\nfor now, then in zip(trainer, sampler):\n"
        "    found.append(most if now - then > limit else math.exp(now - then))\nreturn found",
    ),
)
