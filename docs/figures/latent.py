"""Latent attention: what a cache holds, two orders of one product, a tile of latents that is used twice."""

from draw import Axes, Control, Panel, Picture, picture, short
from moving import moving

#: DeepSeek's attention: the parts of a key, a value, a latent, and bytes of a number.
KEY, ROTATED, VALUE, LATENT, BYTES = 128, 64, 128, 512, 2
HEADS = 128


@picture
def cache():
    return moving(
        "latent",
        "From how many heads on is a latent smaller?",
        "Drag the heads: one for all, one for each group of heads, or one for each head.",
        f"Of each head a key of {KEY + ROTATED} numbers and a value of {VALUE}; or a latent of {LATENT} and a rotated part of "
        f"{ROTATED} numbers. All in bfloat16.",
        (Control("heads", "heads of keys and values", 8, stops=tuple(2**n for n in range(8))),),
        dict(key=KEY + ROTATED, value=VALUE, latent=LATENT + ROTATED, bytes=BYTES, most=HEADS),
    )


def operations(queries):
    """Of one head and one token, which so many queries meet: decompressed, and absorbed."""
    decompress = 2 * LATENT * (KEY + VALUE)
    return decompress + 2 * queries * (KEY + ROTATED + VALUE), 2 * queries * (2 * LATENT + ROTATED)


@picture
def orders():
    panel = Panel(250, "The same score in two orders")
    for row, (title, first, second, result) in enumerate(
        (
            ("decompress: once for each token", f"latent\n{LATENT}", f"matrix\n{KEY} x {LATENT}", f"key\n{KEY}"),
            ("absorb: once for each query", f"query\n{KEY}", f"matrix\n{KEY} x {LATENT}", f"query\n{LATENT}"),
        )
    ):
        y = 28 + 112 * row
        panel.text(0, y + 14, title, "small")
        panel.box(0, y + 24, 68, 44, "g" if row == 0 else "b", first)
        panel.text(78, y + 51, "·")
        panel.box(90, y + 24, 92, 44, "p", second)
        panel.arrow(186, y + 46, 208, y + 46)
        panel.box(212, y + 24, 62, 44, "a" if row == 0 else "b", result)
        panel.text(282, y + 51, "·")
        panel.box(294, y + 24, 62, 44, "b" if row == 0 else "g", f"query\n{KEY}" if row == 0 else f"latent\n{LATENT}")
        panel.text(0, y + 88, "then for each pair of a query and a token", "tiny")
    equal = next(q for q in range(1, 10**4) if operations(q)[0] <= operations(q)[1])
    plot = Panel(250, "Operations of a head for a token")
    axes = Axes(
        plot,
        (46, 40, 296, 160),
        (1, 10, 100, 1000),
        (1e5, 1e6, 1e7),
        ("queries that meet the token", ""),
        log=(True, True),
    )
    points = [10 ** (step / 10) for step in range(31)]
    for which, kind in ((0, "a"), (1, "b")):
        plot.line([axes(q, operations(q)[which]) for q in points if operations(q)[which] >= 1e5], f"curve {kind}")
    plot.dot(*axes(equal, operations(equal)[0]))
    plot.text(
        axes(equal, 1e5)[0] - 8, axes(equal, operations(equal)[0])[1] - 10, f"they cross before {equal}", "small", "end"
    )
    return Picture(
        "A key is the latent times a matrix, and a score is the query times the key. The matrix can be multiplied to the latent "
        f"first (amber) or to the query first (blue). With fewer than {equal} queries a token the second takes fewer operations.",
        f"Two chains of three factors: latent, matrix, query, multiplied from either end. A curve of operations against queries a "
        f"token: decompressed it starts at {short(operations(1)[0])} and grows slowly, absorbed it starts at "
        f"{short(operations(1)[1])} and grows faster; they cross just before {equal}.",
        [panel, plot],
    )


@picture
def tile_twice():
    panel = Panel(330, "A tile of latents, loaded once")
    panel.box(98, 30, 164, 60, "g", f"latents of a tile\n{LATENT} columns")
    panel.box(266, 30, 42, 60, "p", f"{ROTATED}")
    panel.arrow(130, 94, 80, 130)
    panel.arrow(220, 94, 282, 226)
    panel.box(0, 134, 160, 60, "b", "as keys:\nqueries x latentsᵀ")
    panel.arrow(80, 198, 80, 228)
    panel.box(0, 232, 160, 44, "a", "scores, softmax: p")
    panel.arrow(164, 254, 200, 254)
    panel.box(204, 232, 156, 44, "b", "as values:\np x latents")
    panel.text(312, 50, "rotated,", "small")
    panel.text(312, 66, "only in", "small")
    panel.text(312, 82, "scores", "small")
    panel.text(0, 310, "All heads are rows of the same two products.", "small")
    return Picture(
        "The absorbed form reads each latent once. The tile is the factor of both products: transposed it gives scores, as it is, it "
        "gives the mean.",
        f"A tile of latents with {LATENT} columns and a rotated part of {ROTATED} is loaded. First it is multiplied as keys with the "
        "queries of all heads, for the scores; then, as values, with the weights. The rotated part takes part in the scores only.",
        [panel],
    )
