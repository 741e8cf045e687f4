"""# The last wave

A product has 144 tiles, and a card has 132 multiprocessors with room for one program each. All tiles take
equally long. How many places stay empty in the last wave? Put the number into `answer`.

[[figure: hardware/waves]]
"""

# %% solution
# <<<
answer = -144 % 132
# ===
# answer = None
# >>>


# %% checks
PAGE = "kernels/fast/matmul.md"
KIND = "predict a number"
ORDER = 2
HINTS = (
    "The first wave takes 132 tiles. How many are left?",
    "A wave has 132 places, however few of them are used.",
)
WHY = """The second wave has 12 tiles, and 120 multiprocessors are idle. The product takes as long as one with 264
tiles: stream-K and split-K can avoid that."""


def check(t):
    mistakes = {
        12: "That many tiles are in the last wave. The question is how many places are empty.",
        0: "144 is more than 132: there is a second wave.",
        132: "The last wave isn't empty: 144 tiles don't fit into the first one.",
    }
    t.number(2 * 132 - 144, mistakes, "Two waves have 264 places. How many tiles are there?")


WRONG = (
    ("answer is still None",),
    (
        "The question is how many places are empty",
        "answer = 144 - 132",
    ),
    (
        "there is a second wave",
        "answer = 0",
    ),
    (
        "Two waves have 264 places",
        "answer = 144",
    ),
    (
        "144 tiles don't fit into the first one",
        "answer = 132",
    ),
)
RIGHT = (
    ("answer = 120",),
    ("waves = -(-144 // 132)\nanswer = waves * 132 - 144",),
)
