"""# How many products of tiles?

A matrix of 1000 x 3000 numbers is multiplied by one of 3000 x 500, in tiles of 128 x 64 with steps of 32 along K. How
many times does the whole grid execute `tl.dot`?

[[figure: products/k_loop]]
"""

# %% solution
# <<<
answer = 8 * 8 * 94
# ===
# answer = None
# >>>


# %% checks
PAGE = "learn/tiles_and_pointers.py"
KIND = "predict a number"
ORDER = 6
HINTS = (
    "How many programs? The result has 1000 rows and 500 columns, and each program owns 128 x 64 of them.",
    "Each program walks along K in steps of 32, and the last step may be shorter.",
)
WHY = """8 tiles down, 8 across, 94 steps each: 6016. Rounding up three times makes `tl.dot` do more work than the
formula asks for, 6016 · 128 · 64 · 32 multiplications instead of 1000 · 500 · 3000: five per cent more, for lanes
that are masked off."""


def check(t):
    mistakes = {
        7 * 7 * 93: "Round up, not down: the last tile is needed, even if it isn't full.",
        8 * 8 * 93: "3000 isn't a multiple of 32: the last step is shorter, and it is needed.",
        8 * 8: "That is the number of programs. Each of them walks along K.",
        94: "That is the number of steps of one program.",
        7 * 7 * 94: "Round the numbers of tiles up: 1000 / 128 is more than 7.",
    }
    t.number(8 * 8 * 94, mistakes, "Count the programs, then the steps of each: every division is rounded up.")


WRONG = (
    ("answer is still None",),
    ("Round up, not down", "answer = 8 * 8 * 94", "answer = 7 * 7 * 93"),
    ("That is the number of programs", "answer = 8 * 8 * 94", "answer = 64"),
    ("the last step is shorter", "answer = 8 * 8 * 94", "answer = 5952"),
)
RIGHT = (
    ("answer = 6016",),
    ("answer = -(-1000 // 128) * -(-500 // 64) * -(-3000 // 32)",),
)
