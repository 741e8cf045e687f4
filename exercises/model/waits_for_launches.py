"""# Who waits for whom?

A model has 124 million float32 weights, and a step of AdamW moves 28 bytes for each, on a card that moves 4.25 TB a
second. Tensor by tensor the step is written in 12 PyTorch operations, and each takes the host 5 µs to launch. Host and
card work at the same time. From how many tensors on does the host take longer than the card's bytes? Put the number
into `answer`.
"""

# %% solution
# <<<
import math

card = 124e6 * 28 / 4.25e12
answer = math.ceil(card / (12 * 5e-6))
# ===
# answer = None
# >>>


# %% checks
PAGE = "kernels/optimizers/adamw.md"
KIND = "predict a number"
ORDER = 4
HINTS = (
    "How long does the card need? Bytes over bytes a second.",
    "A tensor takes the host 12 times 5 µs. How many of these fit into the card's time?",
)
WHY = """The card needs 0.82 ms, and the host 60 µs for each tensor. So with 14 tensors one already waits for the host,
and this model has 148: almost 9 ms. (The 12 operations also read and write their results, so the card takes longer
than its 0.82 ms, too.) One launch for all tensors leaves only the table to be made."""


def check(t):
    mistakes = {
        13: "13 tensors take the host 0.78 ms, and the card needs 0.82.",
        13.62: "That is how many fit. Tensors are whole, and the host should take longer.",
        164: "That is one launch for each tensor. There are 12.",
        163: "That is one launch for each tensor. There are 12.",
        0.82: "That is the card's time in milliseconds. How many tensors' launches take as long?",
    }
    t.number(14, mistakes, "Divide the card's time by the host's for one tensor.")


WRONG = (
    ("answer is still None",),
    ("13 tensors take the host", "answer = 13"),
    ("Tensors are whole", "answer = 124e6 * 28 / 4.25e12 / 60e-6"),
    ("There are 12", "answer = 164"),
    ("the card's time in milliseconds", "answer = 0.82"),
)
RIGHT = (
    ("answer = 14",),
    ("answer = int(124e6 * 28 / 4.25e12 / (12 * 5e-6)) + 1",),
)
