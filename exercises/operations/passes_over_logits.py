"""# How often are the logits moved?

The logits are 2.5 GB in bfloat16. PyTorch computes log-probabilities of all entries and then the entropy in four
steps: a softmax's logarithm is written, in bfloat16; it is read and its exponential is written; both are read and their
product is written; the product is read and added up. How many GB are moved, the first reading of the logits included?
(What has one number a row doesn't count.) Put the number into `answer`.
"""

# %% solution
# <<<
reads, writes = 1 + 1 + 2 + 1, 3
answer = (reads + writes) * 2.5
# ===
# answer = None
# >>>


# %% checks
PAGE = "kernels/classics/token_logprobs.md"
KIND = "predict a number"
ORDER = 1
HINTS = (
    "Each step reads what it needs and writes what it makes. The last one makes one number a row.",
    "The product has two factors, and both have to be read.",
)
WHY = """Five readings and three writings, 20 GB. One kernel reads the logits once, 2.5 GB, and adds both sums up on the
way."""


def check(t):
    mistakes = {
        2.5: "That is what one kernel would move. Here each step writes its result, and the next one reads it.",
        10: "That is one trip for each step. A step reads as well as writes.",
        12.5: "That is what is read. Three results are written, too.",
        7.5: "That is what is written.",
        17.5: "One is missing: the first reading of the logits counts, and the product reads both of its factors.",
        8: "So many times the logits are moved. Each time it is 2.5 GB.",
        22.5: "The last step writes one number a row, which doesn't count.",
    }
    t.number(20, mistakes, "Count for each step how many such tensors it reads, and whether it writes one.")


WRONG = (
    ("answer is still None",),
    ("That is what one kernel would move", "answer = 2.5"),
    ("A step reads as well as writes", "answer = 4 * 2.5"),
    ("the product reads both", "answer = 7 * 2.5"),
    ("Each time it is 2.5 GB", "answer = 8"),
    ("which doesn't count", "answer = 9 * 2.5"),
)
RIGHT = (
    ("answer = 20",),
    ("answer = sum(tensors * 2.5 for tensors in (2, 2, 3, 1))",),
)
