"""# Which z?

A mean of values with codes 0 to 15 is computed as a sum of *weight times (code − z)*, and what z took away is added
afterwards, in float32. The weights are rounded to sixteen bits. So the mistake of a term is proportional to the size of
code − z, and that of a long sum to the root of the mean square of it.

All sixteen codes are equally frequent. For the best whole number z, what is the *mean of (code − z)²*? Put it into
`answer`.
"""

# %% solution
# <<<
answer = min(sum((code - z) ** 2 for code in range(16)) / 16 for z in range(16))
# ===
# answer = None
# >>>


# %% checks
PAGE = "kernels/attention/quantized_decode.md"
KIND = "predict a number"
ORDER = 1
HINTS = (
    "The mean of the codes is 7.5. Which whole numbers are nearest to it?",
    "With z = 8 the squares are those of −8 to 7. Add them up and divide by 16.",
)
WHY = """With z = 8 (or 7) it is 21.5, with z = 0 it is 77.5: the root, and so the mistake, is 1.9 times as large. The
lesson's kernel subtracts 8 as it unpacks a code, which costs one subtraction for each element."""


def check(t):
    mistakes = {
        77.5: "That is for z = 0. Codes from 0 to 15 all lie on one side of it.",
        21.25: "That is for z = 7.5, which isn't a whole number.",
        344: "That is the sum over sixteen codes. Divide by 16.",
        8: "That is the z. What is the mean of the squares?",
        7: "That is the z. What is the mean of the squares?",
    }
    t.number(21.5, mistakes, "Take z = 8, add the squares of −8 to 7 up, and divide by 16.")


WRONG = (
    ("answer is still None",),
    ("That is for z = 0", "answer = 77.5"),
    ("isn't a whole number", "answer = 21.25"),
    ("Divide by 16", "answer = 344"),
)
RIGHT = (
    ("answer = 21.5",),
    ("answer = sum((code - 8) ** 2 for code in range(16)) / 16",),
)
