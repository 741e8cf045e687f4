"""# The memory of logits

The model has a vocabulary of 65536 tokens, and a step takes 16 sequences of 1024 tokens. Plain PyTorch converts the
logits to float32. In the backward pass their gradient, as large and in float32 as well, is in memory at the same time.
How many GiB do the two take? (A GiB has 2³⁰ bytes.) Put the number into `answer`.
"""

# %% solution
# <<<
answer = 2 * 4 * 16 * 1024 * 65536 / 2**30
# ===
# answer = None
# >>>


# %% checks
PAGE = "learn/from_profile.py"
KIND = "predict a number"
ORDER = 1
HINTS = (
    "Every token of every sequence gets a logit for each token of the vocabulary.",
    "All of them are powers of two: 2⁴ · 2¹⁰ · 2¹⁶ logits, of 2² bytes each.",
)
WHY = """2³⁰ logits of 4 bytes are 4 GiB, and as many for their gradient. All the model's 125 million weights in float32
take less than half a GiB. That is why the loss is worth a kernel that never holds all logits at once."""


def check(t):
    mistakes = {
        4: "That is the logits alone: their gradient is in memory, too.",
        2: "The logits are float32, with 4 bytes each, and their gradient needs memory, too.",
        1: "That counts logits, not bytes, and no gradient.",
        0.5: "That is a single sequence. A step takes 16.",
        2**33 / 1e9: "That is in GB, of 10⁹ bytes. A GiB has 2³⁰.",
    }
    t.number(8, mistakes, "Count the logits, 4 bytes for each, and everything twice.")


WRONG = (
    ("answer is still None",),
    (
        "their gradient is in memory, too",
        "2 * 4 * 16",
        "4 * 16",
    ),
    (
        "That is in GB, of 10⁹ bytes",
        "2**30",
        "1e9",
    ),
    (
        "That is a single sequence",
        "4 * 16 * 1024",
        "4 * 1024",
    ),
    (
        "Count the logits, 4 bytes for each",
        "65536",
        "256",
    ),
)
RIGHT = (
    ("answer = 8",),
    ("tokens = 16 * 1024\nlogits = tokens * 65536\nanswer = 8 * logits >> 30",),
)
