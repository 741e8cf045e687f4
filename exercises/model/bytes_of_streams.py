"""# What four streams cost

A layer reads a weighted sum of `n` streams of `C` channels, which one kernel computes. Another one mixes the streams
and adds what the layer returned to each. Write `moved(n, C)`: how many bytes both kernels move for a token, read and
written, in bfloat16. (Coefficients are a few numbers: leave them out.)
"""


# %% solution
def moved(n, C):
    # <<<
    collapse = n * C + C
    expand = n * C + C + n * C
    return 2 * (collapse + expand)
    # >>>


# %% checks
PAGE = "kernels/model/hyper_connections.md"
KIND = "fill in"
ORDER = 2
HINTS = (
    "The first kernel reads all streams and writes one.",
    "The second one reads all streams, and what the layer returned, and writes all streams.",
)
WHY = """It is 3 n + 2 streams, 14 for four, where a plain residual connection reads two and writes one: nearly five
times as much. What a layer computes doesn't change, so the wider a model is, the less that counts. One kernel for
this layer's mixture and the next one's sum would save n of the 14."""


def check(t):
    t.value(
        "moved",
        (1, 100),
        1000,
        note="One stream is read twice and written once, and so is the layer's: five of 200 bytes.",
    )
    t.value(
        "moved", (4, 4096), 2 * 14 * 4096, note="Each kernel reads all four streams, and one of them writes all four."
    )
    for _ in range(6):
        n, C = t.random.randint(1, 8), t.random.randint(1, 9000)
        t.value("moved", (n, C), 2 * C * (3 * n + 2))


WRONG = (
    ("moved(1, 100) is None",),
    ("five of 200 bytes", "2 * (collapse + expand)", "collapse + expand"),
    ("five of 200 bytes", "n * C + C + n * C", "C + n * C"),
    ("Each kernel reads all four streams", "collapse = n * C + C", "collapse = C + C"),
)
RIGHT = (
    ("return 2 * C * (3 * n + 2)",),
    ("stream = 2 * C\nreturn stream * (n + 1) + stream * (2 * n + 1)",),
)
