"""# What is left of the largest?

A group of 32 is quantized to `e2m1`, whose largest number is 6. Its largest element is 15. With the standard's rule the
scale is the power of two of the largest element, 8, over that of the largest code, 4. What does 15 become, after
decoding? Put the number into `answer`.

[[figure: mx/landing]]
"""

# %% solution
# <<<
scale = 8 / 4
answer = min(15 / scale, 6) * scale
# ===
# answer = None
# >>>


# %% checks
PAGE = "derivations/microscaling.md"
KIND = "predict a number"
ORDER = 3
HINTS = (
    "Divide 15 by the scale. Is there a code for that?",
    "What is larger than the largest code becomes the largest code.",
)
WHY = """15 / 2 is 7.5, and the largest code is 6: so 12 is left, and a fifth is lost. The other rule sees that the
mantissa of 15, 1.875, is more than the 1.5 of the largest code, and takes 4 for a scale. Then 3.75 becomes 4, and 15
becomes 16."""


def check(t):
    mistakes = {
        15: "15 divided by the scale is 7.5. Is there such a code?",
        16: "That is what the rule gives that rounds the exponent up, with a scale of 4.",
        6: "That is the code. What does it stand for?",
        7.5: "That is what would have to be stored, without the scale.",
        14: "There is no code 7.",
    }
    t.number(12, mistakes, "Divide by the scale, take the nearest code there is, and multiply by the scale again.")


WRONG = (
    ("answer is still None",),
    ("Is there such a code?", "answer = 15"),
    ("That is the code", "answer = 6"),
    ("a scale of 4", "answer = 16"),
    ("take the nearest code there is", "answer = 2"),
)
RIGHT = (
    ("answer = 12",),
    ("answer = 6 * 2.0",),
)
