"""# Who wins on a plateau?

A query has scores for the keys 0 to 9:

| key | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 |
|---|---|---|---|---|---|---|---|---|---|---|
| score | 0 | 2 | −0 | −1 | 0 | 3 | 0 | 2 | 0 | −3 |

Six of them are selected: the larger score first, of equal ones the earlier key, and zeros of either sign are equal.
What is the *sum* of the six keys? Put it into `answer`.

[[figure: indexer/plateau]]
"""

# %% solution
# <<<
scores = (0, 2, 0, -1, 0, 3, 0, 2, 0, -3)
answer = sum(sorted(range(10), key=lambda key: (-scores[key], key))[:6])
# ===
# answer = None
# >>>


# %% checks
PAGE = "kernels/attention/select_keys.md"
KIND = "predict a number"
ORDER = 1
HINTS = (
    "Three keys have a score above 0. How many places are left for the zeros?",
    "The first three zeros are those of the keys 0, 2 and 4.",
)
WHY = """Keys 1, 5 and 7 lie above the threshold, which is 0, and of the five keys at it the first three have a place:
0, 2 and 4. Threads that race for the last places would take any three of the five, other ones in each run, and the
model would answer differently to the same question."""


def check(t):
    mistakes = {
        23: "A negative zero equals zero: key 2 comes before the keys 4 and 6.",
        27: "Of equal scores the earlier key comes first.",
        31: "Of equal scores the earlier key comes first.",
        7: "Add the keys, not the scores.",
        13: "Six keys are selected: there is room for three of the zeros.",
        33: "The two keys below 0 aren't selected as long as there are zeros.",
    }
    t.number(19, mistakes, "Three keys have a score above 0. Which three of the zeros are selected beside them?")


WRONG = (
    ("answer is still None",),
    ("A negative zero equals zero", "answer = 23"),
    ("the earlier key comes first", "answer = 27"),
    ("Add the keys, not the scores", "answer = 7"),
    ("Which three of the zeros", "answer = 20"),
)
RIGHT = (
    ("answer = 19",),
    ("answer = 1 + 5 + 7 + 0 + 2 + 4",),
)
