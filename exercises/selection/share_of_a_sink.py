"""# What a sink leaves

Two heads attend to the same list, each with a sink: a score that is in the sum and has no value. The exponentials of
the first head's scores are 1, 2 and 3, and its sink adds 2. Those of the second head are 1, 1 and 0, and its sink adds
2 as well. The log-sum-exps have the sinks in them.

To how much do the numbers that `selected_probabilities` returns for this query add up, in percent? Put it into
`answer`.
"""

# %% solution
# <<<
first, second = 6 / (6 + 2), 2 / (2 + 2)
answer = 100 * (first + second) / 2
# ===
# answer = None
# >>>


# %% checks
PAGE = "kernels/attention/selected_probabilities.md"
KIND = "predict a number"
ORDER = 3
HINTS = (
    "Take one head: which share of its sum do the keys have, and which the sink?",
    "6 of 8 in the first head, 2 of 4 in the second. Heads are averaged, however large their sums are.",
)
WHY = """The keys have three quarters of the first head and a half of the second, 62.5 % on average. So such a target is
no distribution, while the indexer's softmax over the list always is. Divide the target by its sum first, or give
`selected_probabilities` the log-sum-exps of the keys alone."""


def check(t):
    mistakes = {
        100: "That is without sinks. A log-sum-exp with a sink in it is larger than that of the keys.",
        200 / 3: "That is 8 of 12. Each head is divided by its own sum first, and then heads are averaged.",
        37.5: "That is what the sinks have.",
        75: "That is the first head alone.",
        50: "That is the second head alone.",
        125: "Heads are averaged, and not added up.",
        0.625: "That is a fraction. In percent it is a hundred times as much.",
    }
    t.number(62.5, mistakes, "Take the share that the keys have of each head's sum, and average the two.")


WRONG = (
    ("answer is still None",),
    ("That is without sinks", "answer = 100"),
    ("divided by its own sum first", "answer = 100 * (6 + 2) / (8 + 4)"),
    ("That is what the sinks have", "answer = 37.5"),
    ("average the two", "answer = 60"),
)
RIGHT = (
    ("answer = 62.5",),
    ("answer = sum(100 * keys / (keys + 2) / 2 for keys in (6, 2))",),
)
