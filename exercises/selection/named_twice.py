"""# The same key twice

A query's list names key 5 twice, key 7 once and key 9 once. The keys 5 and 9 have the score 0, and key 7 has the
logarithm of 2. There is no sink. Which probability does attention give to key 5, in percent? Put it into `answer`.
"""

# %% solution
# <<<
weights = {5: 2 * 1, 7: 2, 9: 1}
answer = 100 * weights[5] / sum(weights.values())
# ===
# answer = None
# >>>


# %% checks
PAGE = "derivations/sparse_mla.md"
KIND = "predict a number"
ORDER = 1
HINTS = (
    "The exponentials of the scores are 1, 2 and 1. How often is each of them in the sum?",
    "The sum is 1 + 1 + 2 + 1. Two of its terms belong to key 5.",
)
WHY = """A kernel walks along the list and sees key 5 twice, so N is 2. A mask that is filled from the list has room
for a single one, and gives 25 %. Both are attention, but not the same one: forward and backward have to agree."""


def check(t):
    mistakes = {
        25: "That is the probability if the list were a set: a mask counts a key once.",
        20: "That is what one of the two copies has.",
        0.4: "That is a fraction. In percent it is a hundred times as much.",
        50: "The sum has four terms: two of key 5, one of key 7, and one of key 9.",
    }
    t.number(40, mistakes, "Each copy adds the exponential of its score to the sum.")


WRONG = (
    ("answer is still None",),
    ("if the list were a set", "answer = 25"),
    ("one of the two copies", "answer = 20"),
    ("That is a fraction", "answer = 2 / 5"),
    ("Each copy adds", "answer = 66"),
)
RIGHT = (
    ("answer = 40",),
    ("answer = 100 * 2 / (2 + 2 + 1)",),
)
