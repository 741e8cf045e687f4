"""# Which digit is next?

A search for the 5 largest logits finds a key three bits a round. In this round the eight candidates 0 to 7 for the next
digit are reached by

| candidate | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 |
|---|---|---|---|---|---|---|---|---|
| logits with at least this key | 31 | 12 | 12 | 6 | 6 | 4 | 4 | 0 |

Which is the digit? Put it into `answer`.

[[figure: choosing/rounds]]
"""

# %% solution
# <<<
counts, k = (31, 12, 12, 6, 6, 4, 4, 0), 5
answer = sum(count >= k for count in counts) - 1
# ===
# answer = None
# >>>


# %% checks
PAGE = "kernels/sampling/sample.md"
KIND = "predict a number"
ORDER = 2
HINTS = (
    "The threshold is the largest key that at least five logits reach.",
    "Five candidates are reached by five logits or more, and the first of them is 0.",
)
WHY = """Six logits have a key of at least candidate 4, and only four reach candidate 5. So the fifth largest lies
between the two, and two logits are still in question: one of them is kept, besides the four beyond."""


def check(t):
    mistakes = {
        5: "Only four logits reach candidate 5, and five are wanted.",
        3: "Candidate 4 is reached by enough logits, too.",
        6: "Only four logits reach candidate 6.",
        2: "A larger candidate is still reached by five.",
    }
    t.number(4, mistakes, "Look for the last count that is at least 5.")


WRONG = (
    ("answer is still None",),
    ("Only four logits reach candidate 5", "answer = 5"),
    ("Candidate 4 is reached", "answer = 3"),
    ("Look for the last count", "answer = 31"),
)
RIGHT = (
    ("answer = 4",),
    ("answer = max(digit for digit, count in enumerate((31, 12, 12, 6, 6, 4, 4, 0)) if count >= 5)",),
)
