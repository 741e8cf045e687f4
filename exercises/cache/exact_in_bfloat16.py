"""# Exact in bfloat16

Codes are multiplied on tensor cores as bfloat16 numbers. bfloat16 has one bit of sign, eight of exponent and seven of
mantissa, beside the leading one, which isn't stored.

What is the largest `n` for which *every* whole number from 0 to n is exact in bfloat16? Put it into `answer`.
"""

# %% solution
# <<<
answer = 2 ** (7 + 1)
# ===
# answer = None
# >>>


# %% checks
PAGE = "kernels/attention/quantized_decode.md"
KIND = "predict a number"
ORDER = 3
HINTS = (
    "With seven bits behind the leading one, how far apart are the numbers between 128 and 256?",
    "From 256 on they are 2 apart: 256 is still there, 257 isn't.",
)
WHY = """Eight bits of precision hold all whole numbers up to 256. Codes of `int8` end at 127, codes of four bits at 15,
and `float8_e4m3fn` has fewer bits everywhere: all of them are exact, so a product of codes is as good as one of the
decoded numbers. float16 holds them up to 2048."""


def check(t):
    mistakes = {
        255: "256 is a power of two, and exact as well.",
        128: "The leading one isn't stored, and counts: eight bits of precision.",
        127: "The leading one isn't stored, and counts: eight bits of precision.",
        2048: "That is float16, with ten bits of mantissa.",
        257: "257 would need nine bits.",
    }
    t.number(256, mistakes, "Between 128 and 256 the numbers are 1 apart, from 256 on 2 apart.")


WRONG = (
    ("answer is still None",),
    ("is a power of two", "answer = 255"),
    ("eight bits of precision", "answer = 128"),
    ("That is float16", "answer = 2048"),
)
RIGHT = (
    ("answer = 256",),
    ("answer = 1 << 8",),
)
