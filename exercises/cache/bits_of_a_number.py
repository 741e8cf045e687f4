"""# How many bits has a number of four bits?

A row of `D` codes has a step beside it, in float32. Codes of eight bits need nothing else; codes of four bits need the
lowest value of the row, too, in float32 as well.

Write `bits_of_a_number(D, bits)`: how many bits of memory the cache takes for each number, steps and lowest values
included. `bits` is 4 or 8.

[[figure: quantized/bytes]]
"""


# %% solution
def bits_of_a_number(D, bits):
    # <<<
    beside = 64 if bits == 4 else 32
    return bits + beside / D
    # >>>


# %% checks
PAGE = "kernels/attention/quantized_cache.md"
KIND = "fill in"
ORDER = 2
HINTS = (
    "A float32 has 32 bits. How many numbers share it?",
    "With D = 64 and eight bits: 8 + 32 / 64.",
)
WHY = """With 128 numbers it is 4.5 and 8.25 bits, with 64 it is 5 and 8.5. So from bfloat16 to four bits is a factor of
3.2 with narrow heads, and not of 4. That is why some servers keep the step and the lowest value in sixteen bits."""


def check(t):
    mistakes = {
        lambda D, bits: bits + 32 / D: "A row of four bits has two numbers beside it, the step and the lowest value.",
        lambda D, bits: bits + 64 / D: "A row of eight bits has no lowest value beside it.",
        lambda D, bits: bits + (64 if bits == 4 else 32) // D: "What a row shares is a part of a bit for each number.",
        lambda D, bits: bits + (8 if bits == 4 else 4) / D: "A float32 has four bytes, which are 32 bits.",
        lambda D, bits: bits: "What stands beside the codes counts, too.",
    }
    for D in (128, 64, 256, 32, 40, 2, t.random.randint(1, 60) * 2, t.random.randint(60, 128) * 2):
        for bits in (4, 8):
            t.value("bits_of_a_number", (D, bits), bits + (64 if bits == 4 else 32) / D, mistakes=mistakes)


WRONG = (
    ("bits_of_a_number(128, 4) is None, should be 4.5",),
    ("A row of four bits has two numbers beside it", "64 if bits == 4 else 32", "32"),
    ("A row of eight bits has no lowest value beside it", "64 if bits == 4 else 32", "64"),
)
RIGHT = (
    ("return (D * bits + 32 * (1 + (bits == 4))) / D",),
    ("numbers_beside = {4: 2, 8: 1}[bits]\nreturn bits + 32 * numbers_beside / D",),
)
