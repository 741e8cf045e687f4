"""Pictures of the fast versions: what one of them changes against its lesson."""

import inspect

from academy.results import figures

import card
from draw import Panel, Picture, picture


@picture
def loss_and_gradient():
    record = figures.first(card.ROOT, "ladders/cross_entropy")
    case = record["cases"][0]
    ms = {word: entry["ms"] for word, entry in case["providers"].items()}
    panel = Panel(292, "Passes over the logits")
    ways = (
        ("loss, then gradient", ("read", "read", "write"), "loss_then_gradient"),
        ("both in one kernel, row from the cache", ("read", "write"), "one_pass"),
        ("the fast version", ("read", "write"), "fast"),
    )
    words = []
    for row, (name, trips, word) in enumerate(ways):
        y = 34 + row * 84
        panel.text(0, y, name, "bold")
        for place, trip in enumerate(trips):
            panel.box(place * 84, y + 10, 80, 28, "b" if trip == "read" else "a", trip)
        panel.text(262, y + 29, figures.milliseconds(ms[word]))
        share = case["limit_ms"] / ms[word]
        panel.box(0, y + 46, 360 * min(1, share), 8, "g")
        words.append(f"{name}: {' and '.join(trips)}, {figures.milliseconds(ms[word])}")
    panel.text(0, 286, "green: share of copy speed, as wide as the picture is 100%", "small")
    shape = " x ".join(map(str, case["shape"]))
    return Picture(
        f"Measured at {shape} on an {record['device']}. One pass fewer alone gains little: what the kernel then "
        "waits for are its instructions, exponentials among them. The rungs below are about that.",
        f"{'; '.join(words)}, measured at {shape}.",
        [panel],
    )


@picture
def backward_walks():
    tiles = 6
    panels, words = [], []
    for title, owner, sums, products in (
        ("dQ: a program owns a row of tiles", "row", "dQ", ("S = Q Kᵀ", "dP = dO Vᵀ", "dQ += dS K")),
        (
            "dK, dV: a program owns a column",
            "column",
            "dK, dV",
            ("S = Q Kᵀ", "dP = dO Vᵀ", "dV += Pᵀ dO", "dK += dSᵀ Q"),
        ),
    ):
        panel = Panel(330, title)
        mine = 3
        panel.text(46, 40, "keys →", "small")
        panel.text(0, 66, "queries", "small")
        for q in range(tiles):
            for k in range(q + 1):
                here = (q if owner == "row" else k) == mine
                panel.box(60 + k * 34, 50 + q * 26, 32, 24, ("a" if here else "b"))
        if owner == "row":
            panel.arrow(60, 62 + mine * 26, 60 + (mine + 1) * 34 + 22, 62 + mine * 26)
        else:
            panel.arrow(76 + mine * 34, 50 + mine * 26, 76 + mine * 34, 50 + tiles * 26 + 22)
        for row, product in enumerate(products):
            panel.text(0, 248 + row * 19, product, "mono small")
        panel.text(360, 248, f"{len(products)} products", "bold", "end")
        panel.text(360, 268, f"a tile, for {sums}", "small", "end")
        panels.append(panel)
        words.append(f"for {sums} a program walks along a {owner} of tiles and makes {len(products)} products of each")
    return Picture(
        "Causal, with two kernels: only the tiles in blue and amber have scores that count. Amber: one program's. Both kernels compute S "
        "and dP: seven products where five would do. But no sum leaves its program, so nothing is added in a random order.",
        f"Two grids of {tiles} by {tiles} tiles under a causal mask: {'; '.join(words)}.",
        panels,
    )


@picture
def kept_logits():
    import torch

    from annotated_examples.fast import linear_cross_entropy as fast

    rows, hidden, vocab = 8192, 4096, 128256
    weight = torch.empty(vocab, hidden, dtype=torch.bfloat16, device="meta")
    defaults = inspect.signature(fast.linear_cross_entropy_forward).parameters
    inside, elsewhere = fast.plan(rows, weight, 2, True, defaults["KEPT"].default, defaults["STEP"].default)
    parts = (("g", "in the gradient of the weights", inside), ("b", "in memory of their own", elsewhere))
    parts += (("r", "computed twice", vocab - inside - elsewhere),)
    panel, x, words = Panel(178, f"{vocab:,} columns of logits, {rows:,} rows"), 0.0, []
    for row, (kind, name, count) in enumerate(parts):
        panel.box(x, 30, 360 * count / vocab, 34, kind)
        x += 360 * count / vocab
        panel.box(0, 86 + row * 28, 14, 14, kind)
        panel.text(22, 98 + row * 28, name, "small")
        panel.text(360, 98 + row * 28, f"{count:,} columns, {100 * count / vocab:.0f}%", "small", "end")
        words.append(f"{count:,} {name}")
    return Picture(
        f"With a hidden size of {hidden:,}. Where the gradient of the weights will stand, there is room for a third of the logits "
        "until it is written.",
        f"Of {vocab:,} columns of logits: {', '.join(words)}.",
        [panel],
    )


@picture
def plane_order():
    bits, columns = 4, 16
    planes = 16 // bits
    ordered = [c for plane in range(planes) for c in range(plane, columns, planes)]
    panel = Panel(170, "One row of A, in order of planes")
    panel.text(0, 44, "as it comes", "small dim")
    panel.text(0, 158, "as the products want it", "small dim")
    for place in range(columns):
        panel.box(place * 22.5, 50, 22, 26, "abgp"[place % planes], place)
        panel.box(place * 22.5, 114, 22, 26, "abgp"[ordered[place] % planes], ordered[place])
    for place in (0, 4, 8, 12):
        to = ordered.index(place)
        panel.arrow(place * 22.5 + 11, 78, to * 22.5 + 11, 112)
    return Picture(
        f"A half-word of 16 bits holds {planes} numbers of {bits} bits, one of each plane (a colour). A plane meets every "
        f"{planes}th column of A, so these are put side by side once, before the product.",
        f"Sixteen columns of A, sorted by their place in a half-word: {', '.join(map(str, ordered))}.",
        [panel],
    )
