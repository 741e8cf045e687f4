"""# What is left of 20?

The group 3, −20, 7 and 840 is quantized to `float8_e4m3fn` with one scale, and turned back. What has become of −20? Put
the number into `answer`.

[[figure: fp8/codes]]
"""

# %% solution
# <<<
scale = 840 / 448
answer = -11 * scale
# ===
# answer = None
# >>>


# %% checks
PAGE = "derivations/fp8.md"
KIND = "predict a number"
ORDER = 1
HINTS = (
    "The scale puts the largest magnitude at 448. What is −20 divided by it?",
    "Three bits follow the leading one. So between 8 and 16 the codes are whole numbers.",
)
WHY = """The scale is 840 / 448 = 1.875, and 20 / 1.875 = 10.67. The nearest code is 11, and 11 times 1.875 is 20.625.
So −20 becomes −20.625."""


def check(t):
    scale = 840 / 448
    want = round(-20 / scale) * scale  # between 8 and 16 the codes are whole numbers
    mistakes = {
        -want: "The sign has a bit of its own, and stays.",
        -20: "Between 8 and 16 the codes are whole numbers, and 20 / 1.875 isn't one.",
        -11: "That is the code. What does it stand for?",
        -10 * 1.875: "10 is further away from 10.67 than 11 is.",
        -10.5 * 1.875: "Between 8 and 16 there are eight codes, one apart. Halves lie between 4 and 8.",
        -10.667 * 1.875: "10.67 is no code.",
    }
    t.number(want, mistakes, "Divide by the scale, take the nearest code, and multiply by the scale again.")


WRONG = (
    ("answer is still None",),
    ("That is the code", "answer = -11"),
    ("The sign has a bit of its own", "answer = 11 * 840 / 448"),
    ("10 is further away", "answer = -18.75"),
    ("take the nearest code, and multiply", "answer = 840 / 448"),
)
RIGHT = (
    ("answer = -20.625",),
    ("answer = round(-20 / 1.875) * 1.875",),
)
