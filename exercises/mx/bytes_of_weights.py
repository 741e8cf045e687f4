"""# How many bytes?

A matrix of 4096 x 4096 weights is stored in MXFP4: four bits for each, and one byte of exponent for every 32 along a
row. How many bytes are that, together? Put the number into `answer`.

[[figure: mx/blocks]]
"""

# %% solution
# <<<
weights = 4096 * 4096
answer = weights // 2 + weights // 32
# ===
# answer = None
# >>>


# %% checks
PAGE = "kernels/mx/microscaling.md"
KIND = "predict a number"
ORDER = 1
HINTS = (
    "Two weights share a byte.",
    "There are 4096 / 32 exponents in each row.",
)
WHY = """8,388,608 bytes of codes and 524,288 of exponents: 8,912,896, which is 4.25 bits for each weight. In bfloat16
it would be 33,554,432."""


def check(t):
    weights = 4096 * 4096
    mistakes = {
        weights // 2: "Those are the codes. The exponents are bytes, too.",
        weights // 32: "Those are the exponents. The codes take more.",
        weights // 2 + weights // 16: "That would be a byte for every 16, as in NVFP4.",
        weights + weights // 32: "A code has four bits, and a byte eight.",
        weights * 4 + weights // 4: "That is the number of bits.",
        weights // 2 + weights // 8: "An exponent is one byte, not a float32.",
    }
    t.number(weights // 2 + weights // 32, mistakes, "Count the bytes of the codes and those of the exponents.")


WRONG = (
    ("answer is still None",),
    ("The exponents are bytes, too", "answer = 4096 * 4096 // 2"),
    ("as in NVFP4", "answer = 4096 * 4096 // 2 + 4096 * 4096 // 16"),
    ("Count the bytes", "answer = 1"),
)
RIGHT = (
    ("answer = 8912896",),
    ("answer = 4096 * 4096 * 17 // 32",),
)
