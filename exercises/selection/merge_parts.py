"""# Two parts of a long row

The scores of a row don't fit into memory at once, so it is scored in two parts. Each part has selected the positions of
its own `k` best keys, in ascending order; the second part lies behind the first one, and its positions count from the
row's beginning.

Write `merged(first, second, score, k)`: the positions of the row's `k` best keys, ascending. `first` and `second` are
lists of positions, `score` is a dictionary from a position to its score. Of equal scores the lower position comes
first. There may be fewer than `k` keys in all.
"""


# %% solution
def merged(first, second, score, k):
    # <<<
    best = sorted(first + second, key=lambda position: (-score[position], position))[:k]
    return sorted(best)
    # >>>


# %% checks
PAGE = "kernels/attention/select_keys.md"
KIND = "fill in"
ORDER = 3
HINTS = (
    "What isn't among the k best of its own part has k better ones before it, and they are in the row, too.",
    "Order all candidates by score, falling, and then by position. Take k of them, and sort these by position.",
)
WHY = """The candidates of the parts are enough: nothing that a part has left out can come back. That also holds with
ties, because both parts break them in the same way as the whole, and positions of the second part are larger than those
of the first. So rows of any length can be selected from, and cards that each hold a part of the keys exchange `k`
candidates and no scores but theirs."""


def check(t):
    cases = [([0, 2], [5, 6], {0: 1, 2: 3, 5: 3, 6: 2}, 2), ([1], [4], {1: 0, 4: 0}, 1), ([], [3, 4], {3: 1, 4: 5}, 3)]
    cases.append(([0, 1, 2], [7, 8, 9], {0: 0, 1: -1, 2: 0, 7: 0, 8: 2, 9: -1}, 3))
    for _ in range(5):
        row, k = [t.random.randint(-1, 2) for _ in range(t.random.randint(4, 14))], t.random.randint(1, 5)
        cut = t.random.randint(1, len(row) - 1)
        parts = [
            sorted(sorted(part, key=lambda at, row=row: (-row[at], at))[:k])
            for part in (range(cut), range(cut, len(row)))
        ]
        cases.append((*parts, {at: row[at] for part in parts for at in part}, k))

    def best(first, second, score, k, last=1):
        return sorted(first + second, key=lambda at: (-score[at], last * at))[:k]

    mistakes = {
        best: "The positions come back in ascending order.",
        lambda *given: sorted(best(*given, last=-1)): "Of equal scores the lower position comes first.",
        lambda first, second, score, k: first[: k - k // 2] + second[: k // 2]: "All keys of both parts compete.",
    }
    for first, second, score, k in cases:
        t.value("merged", (first, second, score, k), sorted(best(first, second, score, k)), mistakes=mistakes)


WRONG = (
    ("merged([0, 2], [5, 6], ",),
    ("is [5, 2], should be [2, 5]", "    return sorted(best)", "    return sorted(best, reverse=True)"),
    ("Of equal scores the lower position comes first", "(-score[position], position)", "(-score[position], -position)"),
)
RIGHT = (
    ("both = sorted(first + second)\nreturn sorted(sorted(both, key=lambda at: -score[at])[:k])",),
    (
        "better = lambda a, b: score[a] > score[b] or score[a] == score[b] and a < b\n"
        "both = first + second\n"
        "return sorted(at for at in both if sum(better(other, at) for other in both) < k)",
    ),
)
