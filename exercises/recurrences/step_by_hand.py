"""# One token by hand

A state has two rows and one column, (3, 5). A token comes with the key (0.6, 0.8), the value 2, the query (1, 1) and a
`beta` of 0.5. The gates of the two rows are 0 and −∞: logarithms of what is left of each row. With a scale of 1, which
output does `kda_step_` give? Put it into `answer`.

[[figure: kda/rows]]
"""

# %% solution
import math

# <<<
state = [math.exp(0.0) * 3, math.exp(-math.inf) * 5]
u = 0.5 * (2 - (0.6 * state[0] + 0.8 * state[1]))
state = [state[0] + 0.6 * u, state[1] + 0.8 * u]
answer = state[0] + state[1]
# ===
# answer = None
# >>>


# %% checks
PAGE = "kernels/recurrences/kda_step.md"
KIND = "predict a number"
ORDER = 1
HINTS = (
    "First the rows fade: a gate of 0 leaves a row as it is, and one of −∞ leaves nothing.",
    "Then the state is asked by the key. `beta` times the difference of the value and the answer is written.",
    "The row that was forgotten is written to as well, and the query reads the new state.",
)
WHY = """The faded state is (3, 0). It answers 1.8, so 0.5 · 0.2 = 0.1 is written: 0.06 and 0.08 more. The query reads
3.06 + 0.08. A gate of −∞ clears its row, and the token writes into it at once: nothing is special about it, as long as
a logarithm goes into the exponential and no difference of two logarithms does."""


def check(t):
    mistakes = {
        3: "That is read before the token has written.",
        3.06: "The row that was forgotten is written to as well.",
        0.34: "The state was asked before it had faded: it answers 5.8 then, and not 1.8.",
        5.34: "Nothing has faded there. A gate of −∞ leaves nothing of its row.",
        3.28: "`beta` says how much of the difference is written: a half.",
        4.4: "What is written is the difference of the value and what the state answers.",
        3.7: "What is written is the difference of the value and what the state answers.",
        2.9: "A gate is a logarithm: 0 leaves all of its row.",
        0.1: "That is what the key writes, before its two numbers say how much each row gets.",
        3.2: "Each row gets its number of the key times what is written.",
    }
    t.number(3.14, mistakes, "Fade, ask, write, and read: in this order.")


WRONG = (
    ("answer is still None",),
    ("That is read before the token has written", "state = [state[0] + 0.6 * u, state[1] + 0.8 * u]\n", ""),
    (
        "asked before it had faded",
        "0.6 * state[0] + 0.8 * state[1]",
        "0.6 * 3 + 0.8 * 5",
    ),
    ("a half", "u = 0.5 * ", "u = "),
    ("Nothing has faded there", "math.exp(-math.inf) * 5", "5"),
    ("the difference of the value", "u = 0.5 * (2 - (0.6 * state[0] + 0.8 * state[1]))", "u = 0.5 * 2"),
    ("in this order", "answer = state[0] + state[1]", "answer = 4.0"),
)
RIGHT = (
    ("answer = 3.14",),
    ("u = 0.5 * (2 - 0.6 * 3)\nanswer = 3 + (0.6 + 0.8) * u",),
)
