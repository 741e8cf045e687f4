"""# How many waves?

A vector of 2²² elements is worked on in blocks of 2048, with `num_warps=8`. The compiled kernel takes 48
registers a thread and no shared memory. In how many waves does an H200 get through the grid? (It has 132 SMs,
each with 65,536 registers and room for 64 warps.) Put the number into `answer`.
"""

# %% solution
# <<<
programs = 2**22 // 2048
on_each = min(64 // 8, 65536 // (48 * 32 * 8))
answer = -(-programs // (132 * on_each))
# ===
# answer = None
# >>>


# %% checks
PAGE = "guides/how-a-gpu-runs-triton.md"
KIND = "predict a number"
ORDER = 8
HINTS = (
    "How many programs are in the grid, and how many of them does an SM have room for at a time?",
    "By its warps there is room for 64 / 8 programs. A program has 8 · 32 threads: how many registers is that? "
    "The scarcer of the two counts, and an SM takes whole programs only.",
)
WHY = """The grid has 2048 programs. A program takes 48 · 256 = 12,288 registers, so five fit where the warps alone
would allow eight. 132 · 5 = 660 programs run at a time, and 2048 of them take three full waves and a small part of a
fourth. Occupancy is 40 warps of 64."""


def check(t):
    mistakes = {
        2: "That counts the warps alone, eight programs on each SM. How many do the registers allow?",
        3: "Round twice: five programs and a third are five, and a last wave that is nearly empty is a wave.",
        16: "That is one program on each SM. There is room for more.",
        5: "That many programs fit on an SM. In how many rounds do 132 of these work through the grid?",
        660: "That many programs run at a time. How many are there?",
        2048: "That many programs are in the grid. How many run at a time?",
    }
    t.number(4, mistakes, "Divide the number of programs by those that run at a time: 132 times what fits on one.")


WRONG = (
    ("answer is still None",),
    (
        "That counts the warps alone",
        "on_each = min(64 // 8, 65536 // (48 * 32 * 8))",
        "on_each = 64 // 8",
    ),
    (
        "a last wave that is nearly empty is a wave",
        "-(-programs // (132 * on_each))",
        "programs // (132 * on_each)",
    ),
    (
        "five programs and a third are five",
        "65536 // (48 * 32 * 8)",
        "65536 / (48 * 32 * 8)",
    ),
    (
        "one program on each SM",
        "answer = -(-(2**22 // 2048) // 132)",
    ),
    (
        "In how many rounds do 132 of these",
        "answer = 65536 // (48 * 256)",
    ),
    (
        "Divide the number of programs",
        "answer = 1",
    ),
)
RIGHT = (
    ("answer = 4",),
    ("import math\nanswer = math.ceil(2048 / (132 * 5))",),
)
