"""# The loss from what the ranks tell

A row of logits is cut over some ranks. Each has sent three numbers: the largest of its logits, the sum of the
exponentials relative to it, and the label's logit, or 0.0 if the label isn't among its columns. A rank without columns
sends minus infinity, 0.0 and 0.0. Write `loss(sent)`, where `sent` is a list with one such triple for each rank.

[[figure: ranks/row]]
"""

# %% solution
import math


def loss(sent):
    # <<<
    largest = max(m for m, s, t in sent)
    total = sum(s * math.exp(m - largest) for m, s, t in sent)
    return math.log(total) + largest - sum(t for m, s, t in sent)
    # >>>


# %% checks
PAGE = "kernels/distributed/vocab_parallel_cross_entropy.md"
KIND = "fill in"
ORDER = 2
HINTS = (
    "The loss is the log-sum-exp of the whole row, minus the label's logit.",
    "Sums that are relative to different numbers can't be added. Make all of them relative to the largest of all.",
    "Only one rank has the label, and the others have sent 0.0.",
)
WHY = """Every rank does this with the same numbers in the same order, so all have the same loss, to the last bit. The
lesson keeps the label's logit relative to a maximum, too, which saves digits."""


def check(t):
    import math

    def want(sent):
        largest = max(m for m, s, label in sent)
        total = sum(s * math.exp(m - largest) for m, s, label in sent)
        return math.log(total) + largest - sum(label for m, s, label in sent)

    def row(cuts, base=0.0, scale=5.0):
        """The triples of a row with a drawn label; the width of each shard is given."""
        logits = [base + t.random.uniform(-scale, scale) for _ in range(sum(cuts))]
        label, first, sent = t.random.randrange(len(logits)), 0, []
        for width in cuts:
            mine = logits[first : first + width]
            m = max(mine, default=-math.inf)
            here = first <= label < first + width
            sent.append((m, sum(math.exp(z - m) for z in mine), logits[label] if here else 0.0))
            first += width
        return sent

    one = [(2.0, 1.5, 1.0)]
    t.value("loss", (one,), want(one), note="One rank has the whole row.")
    two = [(2.0, 1.5, 0.0), (3.0, 1.25, 3.0)]
    t.value("loss", (two,), want(two), note="Relative to which number is each sum?")
    for base in (1000.0, -1000.0):
        sent = row((3, 4, 2), base)
        t.value("loss", (sent,), want(sent), note="exp(1000) is infinite, and exp(-1000) is 0.")
    for cuts in ((2, 0, 3), (0, 1), (5, 5, 5, 1), (0, 0, 2, 0), (1,) * 16):
        sent = row(cuts)
        t.value("loss", (sent,), want(sent), note="A rank may have no columns.")
    for scale in (0.0, 1e-3, 20.0, 60.0, 400.0, 1e5):
        wide = row((2, 3, 4), scale=scale)
        t.value("loss", (wide,), want(wide))


WRONG = (
    ("loss([(2, 1.5, 1)]) is None",),
    (
        "Relative to which number is each sum?",
        "s * math.exp(m - largest)",
        "s",
    ),
    (
        "OverflowError",
        "    largest = max(m for m, s, t in sent)\n",
        "    largest = 0.0\n",
    ),
    (
        "Relative to which number is each sum?",
        "sum(t for m, s, t in sent)",
        "sent[0][2]",
    ),
    (
        "One rank has the whole row",
        "math.log(total) + largest -",
        "math.log(total) -",
    ),
)
RIGHT = (
    (
        "m = -math.inf\n"
        "s = label = 0.0\n"
        "for its_m, its_s, its_label in sent:\n"
        "    largest = max(m, its_m)\n"
        "    if largest > -math.inf:\n"
        "        s = s * math.exp(m - largest) + its_s * math.exp(its_m - largest)\n"
        "    m, label = largest, label + its_label\n"
        "return math.log(s) + m - label",
    ),
    (
        "seen = [(m + math.log(s)) for m, s, t in sent if s]\n"
        "top = max(seen)\n"
        "return top + math.log(math.fsum(math.exp(x - top) for x in seen)) - math.fsum(t for m, s, t in sent)",
    ),
)
