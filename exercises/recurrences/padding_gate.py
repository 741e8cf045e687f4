"""# The gate of a lane that isn't there

A sequence of 6 tokens is scanned in a tile of 8 lanes. Its state begins at 64, every gate is 0.5, and all `x` are 0.
The kernel hands on the last lane as the final state, and the gates of the two lanes without a token come from `other`.
By how much does the final state with `other=0.5` differ from the right one? Put the difference, right minus wrong, into
`answer`.
"""

# %% solution
# <<<
answer = 64 * 0.5**6 - 64 * 0.5**8
# ===
# answer = None
# >>>


# %% checks
PAGE = "kernels/recurrences/linear_recurrence.md"
KIND = "predict a number"
ORDER = 7
HINTS = (
    "The right final state is that of the sixth token.",
    "With `other=0.5` the state is halved in the seventh and in the eighth lane as well.",
)
WHY = """After six tokens 64 has become 1. Two lanes more make 0.25 of it. A lane without a token must leave the state
as it is: gate 1, and nothing added. With `other=0.0` the final state would be 0, and the stored results would still be
right."""


def check(t):
    mistakes = {
        1: "That is the right final state, or the difference with `other=0.0`.",
        0.25: "That is the wrong final state.",
        -0.75: "Right minus wrong: the right one is larger.",
        0.5: "The state is halved in each of the two lanes.",
        0: "The stored results don't differ, but the final state does: it is the last lane.",
    }
    t.number(0.75, mistakes, "After six tokens 64 has become 1. Two lanes more halve it twice.")


WRONG = (
    ("That is the wrong final state", "answer = 0.25"),
    ("The state is halved in each of the two lanes", "answer = 0.5"),
    ("After six tokens 64 has become 1", "answer = 48"),
    ("answer is still None",),
)
RIGHT = (
    ("answer = 0.75",),
    ("answer = 1 - 1 / 4",),
)
