"""# Steps that never start again

A persistent product takes 7 steps for each of its tiles, through a ring of 4 buffers. Its counter of steps goes on
from tile to tile. For which phase of `full` does step 3 of its third tile wait? Steps and phases are counted from 0.
Put the number into `answer`.

[[figure: below/phases]]
"""

# %% solution
# <<<
answer = (2 * 7 + 3) // 4
# ===
# answer = None
# >>>


# %% checks
PAGE = "learn/overlap.py"
KIND = "predict a number"
ORDER = 4
HINTS = (
    "How many steps have gone before this one, over all tiles?",
    "Each round through the ring is four steps, and each buffer gets through one phase in it.",
)
WHY = """Two tiles of 7 steps and three more have gone before: this is step 17, so it uses buffer 17 % 4 = 1 for the
fifth time, and that is phase 4. What it passes to `wait` is the parity, 0."""


def check(t):
    uses = [step % 4 for step in range(3 * 7)]
    step = 2 * 7 + 3
    mistakes = {
        0: "That would be right if the counter began again with each tile, or if the parity were asked for.",
        1: "That is the number of the buffer.",
        5: "It is the fifth use of the buffer. Phases are counted from 0.",
        17: "That is the number of the step. How often has its buffer been used before?",
        2: "The counter goes on over all tiles: the phase isn't the number of the tile.",
    }
    t.number(uses[:step].count(uses[step]), mistakes, "How many steps have used this buffer before?")


WRONG = (
    ("answer is still None",),
    ("if the counter began again", "answer = 3 // 4"),
    ("Phases are counted from 0", "answer = 17 // 4 + 1"),
    ("That is the number of the buffer", "answer = 17 % 4"),
    ("How many steps have used this buffer before?", "answer = 24 // 4"),
)
RIGHT = (
    ("answer = 4",),
    ("answer = len([step for step in range(17) if step % 4 == 17 % 4])",),
)
