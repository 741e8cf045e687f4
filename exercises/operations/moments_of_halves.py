"""# Three numbers of two halves

Two programs have each seen one half of a row, and know three numbers of it: its maximum M, the sum S of e^(u − M), and
the sum E of (u − M) e^(u − M). Write `merge(a, b)`, which takes two such triples and returns that of the whole row. A
half may be empty: maximum minus infinity, both sums 0.

[[figure: logprobs/pieces]]
"""

# %% solution
import math


def merge(a, b):
    # <<<
    largest = max(a[0], b[0])
    total, weighted = 0.0, 0.0
    for maximum, sum_e, sum_ue in (a, b):
        if sum_e > 0:  # an empty half has nothing to move
            shift = maximum - largest
            total += sum_e * math.exp(shift)
            weighted += (sum_ue + shift * sum_e) * math.exp(shift)
    return largest, total, weighted
    # >>>


# %% checks
PAGE = "derivations/token_logprobs.md"
KIND = "fill in"
ORDER = 1
HINTS = (
    "S is scaled by e^(M − the new maximum), as in every online softmax.",
    "In E each factor u − M becomes u − the new maximum. That adds the same number to all of them: how often does it "
    "come into the sum?",
    "E moves by the shift times S, before it is scaled.",
)
WHY = """Three numbers are all that the entropy needs of a row, however long it is: log S − E / S. The kernel does this
merge for each block, and ranks that share a vocabulary do it for each shard."""


def check(t):
    import math

    def state(row):
        largest = max(row)
        e = [math.exp(x - largest) for x in row]
        return largest, math.fsum(e), math.fsum((x - largest) * each for x, each in zip(row, e))

    def row(size, reach=3.0, around=0.0):
        return [around + t.random.uniform(-reach, reach) for _ in range(size)]

    def halves(left, right, note=""):
        t.value("merge", (state(left), state(right)), state(left + right), note=note)

    empty = (-math.inf, 0.0, 0.0)
    halves([0.0, 1.0], [3.0], note="The second half has the larger maximum.")
    halves([3.0], [0.0, 1.0], note="The first half has the larger maximum.")
    for size in (1, 2, 5, t.random.randint(6, 30)):
        halves(row(size), row(size + 1))
    halves(row(3, around=1000.0), row(4, around=1001.0), note="exp(1000) is infinite.")
    halves(row(3, around=-1000.0), row(4, around=-1003.0), note="exp(-1000) is 0.")
    halves(row(3, around=0.0), row(4, around=-40.0))
    halves([2.0, 2.0], [2.0], note="All are equal, and no factor has to move.")
    one = state(row(4))
    t.value("merge", (one, empty), one, note="The second half is empty.")
    t.value("merge", (empty, one), one, note="The first half is empty.")
    t.value("merge", (empty, empty), empty, note="Minus infinity minus itself is NaN.")


WRONG = (
    ("merge((1, 1.36788, -0.367879), (3, 1, 0)) is None",),
    (
        "The second half has the larger maximum",
        "(sum_ue + shift * sum_e) * math.exp(shift)",
        "sum_ue * math.exp(shift)",
    ),
    (
        "The second half has the larger maximum",
        "(sum_ue + shift * sum_e) * math.exp(shift)",
        "sum_ue * math.exp(shift) + shift * sum_e",
    ),
    ("The second half is empty", "if sum_e > 0:", "if True:"),
    ("The second half has the larger maximum", "shift = maximum - largest", "shift = largest - maximum"),
)
RIGHT = (
    (
        "if b[0] > a[0]:\n"
        "    return merge(b, a)\n"
        "if not b[1]:\n"
        "    return a\n"
        "shift = b[0] - a[0]\n"
        "scale = math.exp(shift)\n"
        "return a[0], a[1] + b[1] * scale, a[2] + scale * (b[2] + shift * b[1])",
    ),
    (
        "new = max(a[0], b[0])\n"
        "parts = [(s * math.exp(m - new), e * math.exp(m - new), m - new) for m, s, e in (a, b) if s]\n"
        "return new, sum(s for s, _, _ in parts), sum(e + d * s for s, e, d in parts)",
    ),
)
