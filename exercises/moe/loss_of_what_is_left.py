"""# A loss that sees what is left

A router with four experts sends five of eight tokens to expert 0, and one to each of the others; its mean probabilities
are 5/8, 1/8, 1/8 and 1/8. The balancing loss is 4 · Σ f p, where f is an expert's share of all slots and p its mean
probability: here 1.75. Now each expert has room for two tokens only, and the others are dropped. Dropped slots count
for nobody, neither in an expert's share nor in the number of all slots. What is the loss then? Put it into `answer`.
"""

# %% solution
# <<<
kept = (2, 1, 1, 1)
p = (5 / 8, 1 / 8, 1 / 8, 1 / 8)
answer = 4 * sum(count / sum(kept) * each for count, each in zip(kept, p))
# ===
# answer = None
# >>>


# %% checks
PAGE = "kernels/moe/router.md"
KIND = "predict a number"
ORDER = 5
HINTS = (
    "How many slots are left? Expert 0 has two of them.",
    "The shares are 2/5 and three times 1/5. The probabilities are what they were.",
)
WHY = """Five slots are left, and expert 0 has two of them: 4 · (2/5 · 5/8 + 3 · 1/5 · 1/8) = 1.3. The router still
prefers expert 0 as much as before, but the loss reports less of it, and so does its gradient. Where slots are dropped,
the loss should be computed from what the router chose, before anything is dropped."""


def check(t):
    mistakes = {
        1.75: "That is the loss before anything was dropped.",
        0.8125: "Dropped slots don't count in the number of all slots either: five are left.",
        1: "That would be the loss if all experts had the same share. Expert 0 still has two of five.",
        0.325: "The sum is right, but the number of experts is missing.",
    }
    t.number(1.3, mistakes, "Four times the sum of share times probability, of the slots that are left.")


WRONG = (
    ("answer is still None",),
    ("before anything was dropped", "answer = 1.75"),
    ("five are left", "answer = 0.8125"),
    ("Four times the sum", "answer = 2.5"),
)
RIGHT = (
    ("answer = 1.3",),
    ("answer = 4 * (2 * 5 + 3) / (5 * 8)",),
    (
        "kept = (2, 1, 1, 1)\n"
        "p = (5 / 8, 1 / 8, 1 / 8, 1 / 8)\n"
        "answer = 4 * sum(count / sum(kept) * each for count, each in zip(kept, p))",
        "from fractions import Fraction\n"
        "\n"
        "kept, p = [2, 1, 1, 1], [Fraction(k, 8) for k in (5, 1, 1, 1)]\n"
        "answer = 4 * sum(Fraction(a, sum(kept)) * b for a, b in zip(kept, p))",
    ),
)
