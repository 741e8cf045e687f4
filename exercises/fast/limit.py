"""# How fast can it be?

A LayerNorm reads 4000 rows of 5000 bfloat16 numbers and writes as many. A card moves 4 · 10¹² bytes a second, counting
both bytes read and bytes written. How many microseconds must the LayerNorm take at the very least? Put the number into
`answer`.
"""

# %% solution
# <<<
answer = 2 * 2 * 4000 * 5000 / 4e12 * 1e6
# ===
# answer = None
# >>>


# %% checks
PAGE = "kernels/fast/layernorm.md"
KIND = "predict a number"
ORDER = 1
HINTS = (
    "How many bytes are read, and how many are written? A bfloat16 number has 2 bytes.",
    "Divide by the bytes a second. A microsecond is 10⁻⁶ seconds.",
)
WHY = """40 million bytes are read and as many are written: at 4 million a microsecond, 80 million take 20 microseconds.
Mean and 1/std of each row add next to nothing."""


def check(t):
    mistakes = {
        10: "That counts the bytes that are read, and not those that are written.",
        40: "That is right for float32: a bfloat16 number has 2 bytes.",
        5: "That counts numbers, not bytes, and only one way.",
        0.02: "That is the time in milliseconds.",
    }
    t.number(20, mistakes, "Count the bytes that must move, and divide by the bytes a microsecond.")


WRONG = (
    ("answer is still None",),
    (
        "not those that are written",
        "answer = 10",
    ),
    (
        "a bfloat16 number has 2 bytes",
        "answer = 40",
    ),
    (
        "Count the bytes that must move",
        "answer = 30",
    ),
    (
        "That is the time in milliseconds",
        "answer = 0.02",
    ),
    (
        "That counts numbers, not bytes",
        "answer = 5",
    ),
)
RIGHT = (
    ("answer = 20",),
    ("moved = 4000 * 5000 * (2 + 2)\nanswer = moved / 4e6",),
)
