"""# Once round, and once more

Eight ranks sum a tensor of 64 MB with a ring: first the sums are made, then they are handed on. How many MB does each
rank send? Put the number into `answer`.
"""

# %% solution
# <<<
answer = 2 * 7 / 8 * 64
# ===
# answer = None
# >>>


# %% checks
PAGE = "guides/many-cards.md"
KIND = "predict a number"
ORDER = 1
HINTS = (
    "The tensor is cut into as many parts as there are ranks. How large is a part?",
    "A part is sent in each step, and each round has one step fewer than there are ranks. There are two rounds.",
)
WHY = """Fourteen steps of 8 MB. With more ranks the parts become smaller and the steps more: a rank never sends
twice the tensor."""


def check(t):
    mistakes = {
        56: "That is one round, which makes the sums. They still have to get to the other ranks.",
        128: "A part that is back where it started has one step too many: a round has 7 steps.",
        448: "Only a part of the tensor is sent in each step.",
        896: "Only a part of the tensor is sent in each step.",
        64: "Each rank sends a part in every step: how many steps are there?",
    }
    t.number(112, mistakes, "How large is a part, and how often is one sent?")


WRONG = (
    ("answer is still None",),
    ("That is one round", "answer = 56"),
    ("a round has 7 steps", "answer = 128"),
    ("Only a part of the tensor", "answer = 7 * 64"),
    ("How large is a part", "answer = 8"),
)
RIGHT = (
    ("answer = 112",),
    ("part, steps = 64 / 8, 2 * (8 - 1)\nanswer = part * steps",),
)
