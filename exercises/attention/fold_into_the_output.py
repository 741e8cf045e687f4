"""# Two matrices or one?

After decoding from latents each of `H` heads has `R` numbers. A matrix makes them `V`, and the output matrix makes
all heads together `N`. Both matrices are known before, so a model could multiply them once and for all, and apply a
single one from `R` to `N` for each head.

Write `operations(H, V, R, N)`: the operations for a token, as a pair: with two matrices, with one.
"""


# %% solution
def operations(H, V, R, N):
    # <<<
    return 2 * H * (R * V + V * N), 2 * H * R * N
    # >>>


# %% checks
PAGE = "kernels/attention/mla_decode.md"
KIND = "fill in"
ORDER = 3
HINTS = (
    "A matrix from `a` to `b` numbers takes `2 * a * b` operations for each vector.",
    "The output matrix has H · V numbers to start from; the folded one has H · R.",
)
WHY = """With 128 heads, values of 128, latents of 512 and 7168 outputs the folded matrix takes 940 million
operations, and the two take 252 million. It is larger, too: a narrow middle is what makes two matrices cheap. Folding
pays where R · N is less than V · (R + N): if a latent is hardly wider than a value."""


def check(t):
    mistakes = {
        lambda H, V, R, N: (2 * V * (H * R + N), 2 * H * R * N): "The output matrix takes H · V numbers.",
        lambda H, V, R, N: (2 * H * R * N, 2 * H * V * (R + N)): "The two matrices come first.",
        lambda H, V, R, N: (H * V * (R + N), H * R * N): "A multiplication and an addition are two operations.",
        lambda H, V, R, N: (2 * H * V * (R + N), 2 * R * N): "Each head has a folded matrix of its own.",
    }
    drawn = [(t.random.randint(1, 128), *(t.random.randint(1, 600) for _ in range(3))) for _ in range(5)]
    for H, V, R, N in ((128, 128, 512, 7168), (16, 128, 130, 2048), (1, 1, 1, 1), (3, 5, 2, 7), *drawn):
        t.value("operations", (H, V, R, N), (2 * H * V * (R + N), 2 * H * R * N), mistakes=mistakes)


WRONG = (
    ("operations(128, 128, 512, 7168) is None, should be (251658240, 939524096)",),
    ("Each head has a folded matrix of its own", "2 * H * R * N", "2 * R * N"),
    (
        "The output matrix takes H · V numbers",
        "2 * H * (R * V + V * N)",
        "2 * (H * R * V + V * N)",
    ),
)
RIGHT = (
    ("two = 2 * H * V * (R + N)\nreturn two, 2 * H * R * N",),
    ("return H * R * V * 2 + H * V * N * 2, H * R * N * 2",),
)
