"""# Absorbed, in the wrong order

One head of one new token meets `N` latents of `R` numbers. Its query has `D` numbers, `w_uk` is (D, R), and a score is
the query times the matrix times the latent. Two programs, both right:

    scores = (q @ w_uk) @ c.T        scores = q @ (w_uk @ c.T)

A product of an (a, b) and a (b, c) matrix takes `2 * a * b * c` operations. Write `operations(D, R, N)`: what the first
and the second program take, as a pair.

[[figure: latent/orders]]
"""


# %% solution
def operations(D, R, N):
    # <<<
    return 2 * D * R + 2 * R * N, 2 * D * R * N + 2 * D * N
    # >>>


# %% checks
PAGE = "kernels/attention/mla_decode.md"
KIND = "fill in"
ORDER = 4
HINTS = (
    "`q` is (1, D) and `c.T` is (R, N). Which shape has what stands in the brackets?",
    "`q @ w_uk` is one row of R numbers. `w_uk @ c.T` has D rows of N numbers: the keys.",
)
WHY = """With keys of 128, latents of 512 and 4096 of them it is 4.3 million operations and 538 million, 124 times as
many. The second program makes a key of every latent, in every step, and for one query: it has the matrix on the wrong
side. Both give the same numbers, so no test of results tells them apart. A long product leaves the order to whoever
writes the brackets, or to a library's guess: `torch.einsum` with three factors goes from left to right unless it has a
package that plans."""


def check(t):
    mistakes = {
        lambda D, R, N: (R * (D + N), D * N * (R + 1)): "A product takes 2 · a · b · c operations.",
        lambda D, R, N: (2 * D * N * (R + 1), 2 * R * (D + N)): "The program that absorbs comes first.",
        lambda D, R, N: (2 * R * (D + N), 2 * R * N * (D + 1)): "A key has D numbers: the query meets those.",
    }
    drawn = [tuple(t.random.randint(1, 600) for _ in range(3)) for _ in range(5)]
    for D, R, N in ((128, 512, 4096), (1, 1, 1), (192, 512, 1), (5, 2, 3), *drawn):
        t.value("operations", (D, R, N), (2 * R * (D + N), 2 * D * N * (R + 1)), mistakes=mistakes)


WRONG = (
    ("operations(128, 512, 4096) is None, should be (4325376, 537919488)",),
    ("operations(128, 512, 4096) is (4325376, 536870912), should be", " + 2 * D * N", ""),
    ("operations(128, 512, 4096) is (131072, 537919488), should be", "2 * D * R + 2 * R * N", "2 * D * R"),
    (
        "The program that absorbs comes first",
        "2 * D * R + 2 * R * N, 2 * D * R * N + 2 * D * N",
        "2 * D * R * N + 2 * D * N, 2 * D * R + 2 * R * N",
    ),
)
RIGHT = (
    ("absorbed, keys = D * R, D * R * N\nreturn 2 * (absorbed + R * N), 2 * (keys + D * N)",),
    ("return 2 * R * (D + N), 2 * D * N * (R + 1)",),
)
