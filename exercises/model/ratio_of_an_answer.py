"""# Small differences add up

A sampler in eight bits is a little too sure of itself: its log-probability of each token that it draws is 0.002 above
the trainer's. An answer has 1500 tokens. What is the ratio of the whole answer, its probability for the trainer over
that for the sampler? Put the number into `answer`.
"""

# %% solution
import math

# <<<
answer = math.exp(-0.002 * 1500)
# ===
# answer = None
# >>>


# %% checks
PAGE = "learn/reward.py"
KIND = "predict a number"
ORDER = 2
HINTS = (
    "The probability of an answer is the product of its tokens' probabilities. What becomes of the logarithms?",
    "The trainer's log-probability of the answer is 3 below the sampler's.",
)
WHY = """About 0.05. For the trainer the answer is twenty times less likely than for the sampler, though no token
differs by more than 0.2 %. Differences with both signs add up more slowly, with the root of the length: that is the
reason for ratios of tokens, and why a sampler that always errs to the same side does the most harm."""


def check(t):
    mistakes = {
        math.exp(
            3
        ): "That is the sampler's probability over the trainer's. Which of the two is more likely to write it?",
        math.exp(-0.002): "That is the ratio of one token.",
        -3: "That is the logarithm of the ratio.",
        3: "That is how far the logarithms are apart.",
        1 - 0.002 * 1500: "A ratio can't be negative: add up logarithms, and then take the exponential.",
    }
    t.number(math.exp(-3), mistakes, "Add up the logarithms of 1500 ratios, then take the exponential.")


WRONG = (
    ("answer is still None",),
    ("Which of the two is more likely", "answer = math.exp(3)"),
    ("That is the ratio of one token", "answer = math.exp(-0.002)"),
    ("That is the logarithm", "answer = -0.002 * 1500"),
    ("Add up the logarithms of 1500", "answer = 0.0495"),
)
RIGHT = (
    ("answer = 1 / math.exp(3)",),
    ("answer = 0.0498",),
    ("answer = math.exp(-0.002) ** 1500",),
)
