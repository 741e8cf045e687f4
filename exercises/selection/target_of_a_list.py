"""# The target of a list

`scores[h][j]` is the score of key `j` in head `h`, for one query, and `indices` is its list: numbers of keys, −1 for
none. A head's attention is a softmax over the list, in which a key that is named twice counts twice.

Write `target(scores, indices)`: for each number of the list, the probability of that one copy, averaged over the heads.
None gets 0.

[[figure: selected/target]]
"""

# %% solution
import math


def target(scores, indices):
    # <<<
    found = [0.0] * len(indices)
    for row in scores:
        listed = [row[j] for j in indices if j >= 0]
        largest = max(listed, default=0.0)
        total = sum(math.exp(score - largest) for score in listed)
        for place, j in enumerate(indices):
            if j >= 0:
                found[place] += math.exp(row[j] - largest) / total / len(scores)
    return found
    # >>>


# %% checks
PAGE = "kernels/attention/selected_probabilities.md"
KIND = "fill in"
ORDER = 1
HINTS = (
    "Take one head first. Which exponentials are in its sum? Keys that the list doesn't name aren't.",
    "`row[-1]` is the last key's score in Python, and no mistake is raised: leave −1 out yourself.",
    "Each head is divided by its own sum, and then the heads are averaged. An average of scores is something else.",
)
WHY = """The list adds up to 1, whether a key is named once or twice, because the sum counts the copies as well. That is
what makes it a target: the indexer's softmax over the same list adds up to 1, too. A log-sum-exp over all keys, or over
the set of the keys, is that of other scores, and then the target adds up to something else."""


def check(t):
    def averaged(of_head, indices, scores):
        rows = [of_head(row) for row in scores]
        return [sum(column) / len(rows) for column in zip(*rows)]

    def softmax(summed, own=lambda row, indices, j: row[j]):
        """With `summed(row, indices)` for the scores that are added up."""

        def want(scores, indices):
            def of_head(row):
                counted = summed(row, indices)
                largest = max(counted, default=0.0)
                total = math.fsum(math.exp(score - largest) for score in counted)
                return [math.exp(own(row, indices, j) - largest) / total if j >= 0 else 0.0 for j in indices]

            return averaged(of_head, indices, scores)

        return want

    def listed(row, indices):
        return [row[j] for j in indices if j >= 0]

    want = softmax(listed)
    mistakes = {
        softmax(lambda row, indices: row): "The sum goes over the list. Keys that it doesn't name aren't read.",
        softmax(lambda row, indices: [row[j] for j in indices]): "−1 is none, and in Python row[-1] is the last score.",
        softmax(lambda row, indices: [row[j] for j in {*indices} if j >= 0]): "Each copy of a key is in the sum.",
        lambda scores, indices: [
            x * indices.count(j) for x, j in zip(want(scores, indices), indices)
        ]: "In each place stands the probability of one copy.",
        lambda scores, indices: [x * len(scores) for x in want(scores, indices)]: "The heads are averaged.",
        lambda scores, indices: want(
            [[sum(column) / len(scores) for column in zip(*scores)]], indices
        ): "That is a softmax of averaged scores. Average the probabilities of the heads.",
    }

    def asked(scores, indices, note=""):
        t.value("target", (scores, indices), want(scores, indices), note=note, mistakes=mistakes)

    asked([[0.0, 1.0, 2.0]], [0, 2])
    asked([[0.0, 1.0, 0.0], [2.0, 0.0, 1.0]], [1, 0])
    asked([[0.0, 1.0, 3.0, 2.0]], [1, -1, 0])
    asked([[0.0, 1.0, 0.5]], [0, 1, 0])
    asked([[0.0, 1.0], [1.0, 0.0]], [-1, -1], note="Nothing is selected, and nothing has a probability.")
    asked([[1000.0, 999.0], [-1000.0, -1001.0]], [0, 1], note="exp(1000) is infinite, and exp(-1000) is 0.")
    for _ in range(4):
        heads, keys = t.random.randint(1, 4), t.random.randint(2, 6)
        scores = [[t.random.uniform(-3, 3) for _ in range(keys)] for _ in range(heads)]
        asked(scores, [t.random.randint(-1, keys - 1) for _ in range(t.random.randint(1, 7))])


WRONG = (
    ("target([[0, 1, 2]], [0, 2]) is None",),
    ("Keys that it doesn't name aren't read", "for j in indices if j >= 0]", "for j in range(len(row))]"),
    ("row[-1] is the last score", "for j in indices if j >= 0]", "for j in indices]"),
    ("Each copy of a key is in the sum", "for j in indices if j >= 0]", "for j in set(indices) if j >= 0]"),
    ("The heads are averaged", " / total / len(scores)", " / total"),
    ("raises ", "largest = max(listed, default=0.0)", "largest = 0.0"),
    (
        "That is a softmax of averaged scores",
        "    for row in scores:\n        listed",
        "    scores = [[sum(column) / len(scores) for column in zip(*scores)]]\n    for row in scores:\n        listed",
    ),
)
RIGHT = (
    (
        "def of_head(row):\n"
        "    listed = [row[j] if j >= 0 else -math.inf for j in indices]\n"
        "    largest = max([*listed, -1e300])\n"
        "    weights = [math.exp(score - largest) for score in listed]\n"
        "    return [weight / (sum(weights) or 1.0) for weight in weights]\n"
        "rows = [of_head(row) for row in scores]\n"
        "return [sum(column) / len(rows) for column in zip(*rows)]",
    ),
    (
        "found = [0.0 for _ in indices]\n"
        "for row in scores:\n"
        "    for place, j in enumerate(indices):\n"
        "        if j != -1:\n"
        "            others = sum(math.exp(min(row[i] - row[j], 700.0)) for i in indices if i != -1)\n"
        "            found[place] += 1 / others\n"
        "return [x / len(scores) for x in found]",
    ),
)
