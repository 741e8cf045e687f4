"""Latent attention: what a cache holds, two orders of one product, a tile of latents that is used twice."""

from draw import Axes, Panel, Picture, picture, short

#: DeepSeek's attention: the parts of a key, a value, a latent, and bytes of a number.
KEY, ROTATED, VALUE, LATENT, BYTES = 128, 64, 128, 512, 2
HEADS = 128


def bytes_of_heads(heads):
    """What a token takes in the cache if so many heads have keys and values of their own."""
    return heads * (KEY + ROTATED + VALUE) * BYTES


@picture
def cache():
    latent = (LATENT + ROTATED) * BYTES
    rows = [(f"{heads} head{'s' * (heads > 1)}", bytes_of_heads(heads)) for heads in (HEADS, 8, 1)] + [
        ("a latent", latent)
    ]
    panel = Panel(46 + 52 * len(rows), "Bytes of a token in the cache")
    for place, (name, size) in enumerate(rows):
        y = 34 + 52 * place
        panel.text(0, y + 12, name)
        panel.text(356, y + 12, f"{size:,} bytes", "", "end")
        panel.box(0, y + 18, 356 * size / rows[0][1], 16, "g" if name == "a latent" else "a")
    words = ", ".join(f"{name}: {size:,} bytes" for name, size in rows)
    return Picture(
        f"Keys and values of {HEADS} heads, of 8 that groups of heads share, of a single one, and a latent with the rotated part, in "
        f"bfloat16. A latent is as large as {latent / bytes_of_heads(1):.1f} heads, and serves all {HEADS}.",
        f"Four bars. {words}. A latent of {LATENT} and a rotated part of {ROTATED} numbers take "
        f"{rows[0][1] / latent:.0f} times less than {HEADS} heads.",
        [panel],
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
