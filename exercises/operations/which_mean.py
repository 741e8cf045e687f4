"""# Which mean favours long answers?

A batch has two answers, one of 10 tokens and one of 90. With `reduction="token"` every token has the same weight. With
`reduction="sequence"` the loss is the mean of each answer's mean. How many times as much does a token of the *short*
answer weigh as one of the long answer, with "sequence"? Put the number into `answer`.
"""

# %% solution
# <<<
answer = (1 / 10) / (1 / 90)
# ===
# answer = None
# >>>


# %% checks
PAGE = "kernels/classics/policy_loss.md"
KIND = "predict a number"
ORDER = 1
HINTS = (
    "Both answers together weigh the same. How is that divided among their tokens?",
    "A token of the short answer has a tenth of a half.",
)
WHY = """Nine times. With "token" both weigh the same, so the long answer has nine tenths of the loss: that mean favours
long answers, the good ones and the bad ones. With "sequence" a mistake costs the less the longer the answer is, which
teaches a model that is wrong to go on. A constant divisor gives every token the same weight, too, and one that doesn't
change with the other answers in the batch."""


def check(t):
    mistakes = {
        1: 'That is "token". With "sequence" the two answers weigh the same, and the tokens don\'t.',
        1 / 9: "That is the weight of a token of the long answer beside one of the short one.",
        0.1: "That is a token's share of the short answer. What is it in the long one?",
        0.05: "That is a token's share of the loss. What is it in the long answer?",
        10: "The short answer has 10 tokens. The ratio of both lengths counts.",
        90: "The long answer has 90 tokens. The ratio of both lengths counts.",
    }
    t.number(9, mistakes, "Each answer has half of the weight. What is a token's share of it?")


WRONG = (
    ("answer is still None",),
    ('That is "token"', "answer = 1"),
    ("one of the short one", "answer = 0.111"),
    ("That is a token's share of the loss", "answer = 1 / 20"),
    ("Each answer has half of the weight", "answer = 81"),
)
RIGHT = (
    ("answer = 9",),
    ("short, long = 10, 90\nanswer = long / short",),
)
