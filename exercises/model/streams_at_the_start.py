"""# Before anything is learned

At the start of training all of `phi` is 0, and so is all of `bias`. A token has four streams, and each of them holds 1
in a channel. The layer returns what it reads, as if it were the identity. Which number does each stream hold in this
channel after the layer? Put it into `answer`.
"""

# %% solution
# <<<
read, written, mixture = 0.5, 2 * 0.5, 1 / 4
y = 4 * read * 1
answer = 4 * mixture * 1 + written * y
# ===
# answer = None
# >>>


# %% checks
PAGE = "kernels/model/stream_coefficients.md"
KIND = "predict a number"
ORDER = 3
HINTS = (
    "The product is 0, whatever the token holds. What are the sigmoid of 0, and twice that?",
    "The mixture's logits are all 0. Which doubly stochastic matrix has equal numbers?",
    "A layer reads a weighted sum of the streams. Each stream becomes its mixture, plus what is written to it.",
)
WHY = """A half is read of each stream, 2 in all, and written to each with the factor 1. The mixture takes a quarter of
each stream, so equal streams stay as they are: 1 + 2. Twice the sigmoid is there for this start: the layer's result
comes into the streams whole, as in a plain residual connection."""


def check(t):
    mistakes = {
        2: "Is that what is read, or half of it written? What is written has twice the sigmoid of 0, and is added.",
        1: "That is the mixture. What the layer returns comes in addition.",
        5: "The sigmoid of 0 is a half, so a layer doesn't read whole streams.",
        6: "The mixture is doubly stochastic: its rows add up to 1.",
        1.5: "A layer reads the sum of all streams, each with its coefficient.",
        4: "The sigmoid of 0 is a half.",
        2.25: "A stream's mixture takes a quarter of each of the four streams.",
        0: "A product of 0 isn't a coefficient of 0: it goes through a sigmoid.",
    }
    t.number(3, mistakes, "Find the three coefficients first, then what is read, and what each stream gets.")


WRONG = (
    ("answer is still None",),
    ("twice the sigmoid of 0, and is added", "2 * 0.5", "0.5"),
    ("its rows add up to 1", "mixture = 0.5, 2 * 0.5, 1 / 4", "mixture = 0.5, 2 * 0.5, 1"),
    ("the sum of all streams", "y = 4 * read", "y = read"),
    ("a quarter of each of the four", "answer = 4 * mixture", "answer = mixture"),
    ("Find the three coefficients first", "answer = 4 * mixture * 1 + written * y", "answer = 7"),
)
RIGHT = (
    ("answer = 3",),
    ("answer = 1 + 2 / (1 + 1) * sum([1 / (1 + 1)] * 4)",),
)
