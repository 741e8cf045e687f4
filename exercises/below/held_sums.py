"""# Where the sums are

A warpgroup, 4 warps of 32 threads, multiplies with `warpgroup_mma`. Its sums, a tile of 64 x 192 in float32, are in
registers, each of 32 bits. How many registers of each thread do they take? Put the number into `answer`.

[[figure: products/k_loop]]
"""

# %% solution
# <<<
answer = 64 * 192 // (4 * 32)
# ===
# answer = None
# >>>


# %% checks
PAGE = "kernels/gluon/matmul.md"
KIND = "predict a number"
ORDER = 4
HINTS = (
    "How many sums are there, and how many threads share them?",
    "Every sum is in one thread only, and a float32 fills a register.",
)
WHY = """12,288 sums, 128 threads: 96 each. A thread can have 255 registers, so a tile of 128 x 256, 256 sums for each
of 128 threads, is too much for one warpgroup. Two of them share it."""


def check(t):
    mistakes = {
        384: "A warpgroup has four warps, and they share the tile.",
        48: "Two of them would fit into a register if they were 16-bit numbers. Sums are float32.",
        192: "A thread doesn't hold a row: 64 rows are shared by 128 threads.",
        12288: "That is the number of sums. How many threads share them?",
        24: "Every warp holds a quarter of the rows; then its 32 threads share that.",
    }
    t.number(64 * 192 / 128, mistakes, "Divide the sums by the threads.")


WRONG = (
    ("answer is still None",),
    ("A warpgroup has four warps", "answer = 64 * 192 // 32"),
    ("Sums are float32", "answer = 64 * 192 // 128 // 2"),
    ("A thread doesn't hold a row", "answer = 192"),
    ("Divide the sums by the threads", "answer = 64"),
)
RIGHT = (
    ("answer = 96",),
    ("rows_of_a_warp, threads = 16, 32\nanswer = rows_of_a_warp * 192 / threads",),
)
