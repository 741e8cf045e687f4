"""# First k, then p

Five tokens have the probabilities 0.4, 0.3, 0.15, 0.1 and 0.05. Top-k keeps four of them. Then top-p is to keep the
shortest list of what is left that has at least 0.72 of its probability. How many tokens may be drawn? Put the number
into `answer`.
"""

# %% solution
# <<<
left = (0.4, 0.3, 0.15, 0.1)
answer, total = 0, 0.0
while total < 0.72 * sum(left):
    total += left[answer]
    answer += 1
# ===
# answer = None
# >>>


# %% checks
PAGE = "derivations/sample.md"
KIND = "predict a number"
ORDER = 2
HINTS = (
    "The four that are left have 0.95 of the probability. Divided by that, they add up to one.",
    "0.4 / 0.95 is 0.421, and 0.7 / 0.95 is 0.737.",
)
WHY = """Top-p looks at the probabilities of what top-k has left, and those are larger than before. The first two have
0.737 of it, which is enough. Of all five tokens they have 0.7, and a third one would be needed."""


def check(t):
    mistakes = {
        3: "0.72 is meant of what top-k has left, not of all five tokens.",
        1: "The first token alone has 0.4 of 0.95.",
        4: "That is what top-k keeps.",
    }
    t.number(2, mistakes, "Divide the four probabilities by their sum, and add them up until 0.72 is reached.")


WRONG = (
    ("answer is still None",),
    ("meant of what top-k has left", "answer = 3"),
    ("That is what top-k keeps", "answer = 4"),
    ("Divide the four", "answer = 5"),
)
RIGHT = (
    ("answer = 2",),
    ("answer = 1 + (0.4 / 0.95 < 0.72)",),
)
