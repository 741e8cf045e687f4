"""# Decompress or absorb?

A token's latent has `R` numbers. Keys of `D` numbers and values of `V` numbers can be made of it, once for each head:
`2 * R * (D + V)` operations. Then each query that meets the token takes `2 * (D + E + V)`, where `E` is the width of
the rotated part. Or the matrices go to the query and the output, and each query takes `2 * (R + E + R)`.

Write `fewest_queries(D, E, V, R)`: the smallest number of queries for which decompressing takes fewer operations. A
latent is wider than half of a key and a value together, so there is one. Do it without a loop.

[[figure: latent/orders]]
"""


# %% solution
def fewest_queries(D, E, V, R):
    # <<<
    return R * (D + V) // (2 * R - D - V) + 1
    # >>>


# %% checks
PAGE = "kernels/attention/mla.md"
KIND = "fill in"
ORDER = 1
HINTS = (
    "With q queries compare R (D + V) + q (D + E + V) with q (2 R + E). What is in both?",
    "q times 2 R − D − V has to be larger than R (D + V). Of the quotient, rounded down, take the next number.",
)
WHY = """The rotated part is in both forms, so its width drops out. With DeepSeek's sizes, 128, 64, 128 and 512, it is
171 queries. A prompt has more of them for nearly all its tokens, a new token is one. (What the matrices cost at a query
and its output is left out here: a query pays it once, however many tokens it meets.)"""


def check(t):
    mistakes = {
        lambda D, E, V, R: -(-R * (D + V) // (2 * R - D - V)): (
            "With so many both orders take the same, and decompressing has to take fewer."
        ),
        lambda D, E, V, R: R * (D + V) // (2 * R - D - V): "With so many decompressing doesn't take fewer yet.",
        lambda D, E, V, R: R * (D + V) / (2 * R - D - V): "There both take the same. Take the next whole number.",
        lambda D, E, V, R: 2 * R * (D + V) // (2 * R - D - V) + 1: "What a query takes has a factor of 2, too.",
        lambda D, E, V, R: R * (D + V) // max(2 * R - D - V + E, 1) + 1: "The rotated part is in both orders.",
        lambda D, E, V, R: R * (D + V) // max(2 * R - D - V - E, 1) + 1: "The rotated part is in both orders.",
    }
    drawn = []
    for _ in range(6):
        D, V = t.random.randint(1, 256), t.random.randint(1, 256)
        drawn.append((D, t.random.randint(0, 64), V, (D + V) // 2 + t.random.randint(1, 512)))
    for D, E, V, R in ((128, 64, 128, 512), (128, 0, 128, 256), (3, 1, 2, 4), (192, 64, 256, 512), *drawn):
        t.value("fewest_queries", (D, E, V, R), R * (D + V) // (2 * R - D - V) + 1, mistakes=mistakes)


WRONG = (
    ("fewest_queries(128, 64, 128, 512) is None, should be 171",),
    ("is 170, should be 171. With so many decompressing doesn't take fewer yet", ") + 1", ")"),
    ("is 170.667, should be 171. There both take the same", "// (2 * R - D - V) + 1", "/ (2 * R - D - V)"),
    ("is 342, should be 171. What a query takes has a factor of 2", "return R", "return 2 * R"),
    ("is 187, should be 171. The rotated part is in both orders", "2 * R - D - V", "2 * R - D - E - V"),
    (
        "is 256, should be 257. With so many both orders take the same",
        "return -(-R * (D + V) // (2 * R - D - V))",
    ),
    ("fewest_queries(128, 0, 128, 256) is 513, should be 257", "2 * R - D - V", "2 * R - D - V if R > 300 else R // 2"),
)
RIGHT = (
    ("once = 2 * R * (D + V)\nmore = 2 * (2 * R + E) - 2 * (D + E + V)\nreturn once // more + 1",),
    ("import math\nreturn math.floor(R * (D + V) / (2 * R - D - V)) + 1",),
)
