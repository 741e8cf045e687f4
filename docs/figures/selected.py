"""Attention to selected keys: who reads a key, what its gradient's sums move, what the time goes into, indices and slots,
worth and what is missed."""

from math import exp, log, log10

from academy.results import figures

import card
from draw import Control, Panel, Picture, picture
from moving import moving

QUERIES, KEYS = 12, 24


def scores():
    """A row for each query, of the keys up to its own. The first key suits everybody, late keys suit their neighbours."""
    last = [KEYS - QUERIES + query for query in range(QUERIES)]
    return [
        [(query * 7 + key * 13) % 17 + (12 if key == 0 else 0) + max(0, 8 - 2 * (end - key)) for key in range(end + 1)]
        for query, end in enumerate(last)
    ]


@picture
def columns():
    return moving(
        "selected",
        "Which queries add to the gradient of a key?",
        "Drag K, or press a column: its cells are the queries that read the key.",
        f"Lists of {QUERIES} queries, the last ones of {KEYS} tokens. A row is a query's list, and the way forward goes along it. The "
        "way back goes down the columns, and nobody has a list of those. Below, how many queries each key has.",
        (
            Control("k", "keys in each list, K", 6, low=1, high=KEYS),
            Control("key", "key that is looked at", 0, low=0, high=KEYS - 1),
        ),
        {"scores": scores()},
    )


#: A call that is measured: queries, heads, selected keys, numbers of a row and of a latent.
T, H, K, W, R = 4096, 128, 2048, 576, 512


def gigabytes(size):
    return f"{size / 1e9:,.0f} GB"


@picture
def traffic():
    pairs = T * K
    ways = (
        ("rows, written and read", 2 * 4 * pairs * W, "a"),
        ("atomics into the keys", 4 * pairs * W, "b"),
        ("a program for each key, no rows", 2 * pairs * H * (W + R), "r"),
    )
    low, high = 9, 13
    panel = Panel(58 + 56 * len(ways), "Bytes that the sums over the queries move")
    place = lambda exponent: 356 * (exponent - low) / (high - low)  # noqa: E731
    for row, (name, size, kind) in enumerate(ways):
        y = 34 + 56 * row
        panel.text(0, y + 12, name)
        panel.text(356, y + 12, gigabytes(size), "", "end")
        panel.box(0, y + 18, place(log10(size)), 18, kind)
    foot = 34 + 56 * len(ways)
    panel.line([[0, foot], [356, foot]], "rule")
    for exponent, name in ((9, "1 GB"), (10, "10 GB"), (11, "100 GB"), (12, "1 TB"), (13, "10 TB")):
        anchor = "start" if exponent == low else "end" if exponent == high else "middle"
        panel.text(place(exponent), foot + 16, name, "tiny", anchor)
    words = "; ".join(f"{name}: {gigabytes(size)}" for name, size, _ in ways)
    return Picture(
        f"{T} queries with lists of {K}, {H} heads, in bfloat16; every mark is ten times as much. Atomics add to a tensor of float32 "
        "that is small enough for the L2 cache, and rows have to go to memory and back. A program for each key that reads what "
        "its queries have, in place of rows, reads all heads again for each of them.",
        f"Three bars. {words}.",
        [panel],
    )


@picture
def left_out():
    """What the lesson's kernel and the one below Triton save where a part is left out."""
    rungs = {rung["name"]: rung for rung in figures.first(card.ROOT, "ladder/sparse_mla")["rungs"]}
    parts = (
        ("without masks", "no_masks_ms", ""),
        ("without the products for scores", "no_scores_ms", ""),
        ("with keys that lie side by side", "no_gather_ms", "no_gather_ms"),
        ("without the products with values", "no_values_ms", "no_values_ms"),
        ("without exponentials, maxima and sums", "no_softmax_ms", ""),
        ("without exponentials", "", "no_exp_ms"),
        ("without any copies of keys", "", "no_loads_ms"),
    )
    alone = (
        ("the lesson's copies, and nothing else", rungs["lesson"]["only_loads_ms"], "g"),
        ("products, at the data sheet's rate", 2e3 * T * H * K * (W + R) / (card.MATRIX_TFLOP_S * 1e12), "p"),
    )
    scale, panels, words, saved = 300 / rungs["lesson"]["128_ms"], [], [], []
    for column, (name, title) in enumerate((("lesson", "The lesson"), ("below Triton", "Below Triton")), 1):
        whole = rungs[name]["128_ms"]
        without = {part[0]: rungs[name][part[column]] - whole for part in parts if part[column]}
        panel = Panel(24 + 40 * (len(without) + len(alone)), f"{title}: {whole:.1f} ms")
        for row, (part, more) in enumerate(without.items()):
            y, left = 24 + 40 * row, whole + min(more, 0)
            panel.text(0, y + 12, part, "small")
            panel.box(0, y + 17, left * scale, 15, "b")
            panel.box(left * scale, y + 17, (whole - left) * scale, 15, "r")
            panel.text(whole * scale + 6, y + 29, f"{more:+.2f}".replace("-", "−"), "small")
        for row, (part, ms, kind) in enumerate(alone, len(without)):
            panel.text(0, 36 + 40 * row, part, "small")
            panel.box(0, 41 + 40 * row, ms * scale, 15, kind)
            panel.text(ms * scale + 6, 53 + 40 * row, f"{ms:.2f} ms", "small")
        panels.append(panel)
        saved.append(-sum(without.values()))
        words.append(f"{title}: {whole:.1f} ms; " + ", ".join(f"{part} {more:+.2f}" for part, more in without.items()))
    return Picture(
        "Red: what is saved. If parts ran side by side, only the longest would count, and leaving out another one would save "
        f"nothing. In the lesson all five savings add up to {saved[0]:.1f} of {rungs['lesson']['128_ms']:.1f} ms, so most parts "
        "are waited for. Below Triton the copies hardly are.",
        f"Bars on one scale. {'. '.join(words)}. {'; '.join(f'{part}: {ms:.2f} ms' for part, ms, _ in alone).capitalize()}.",
        panels,
    )


#: The example of the lesson on decoding: two pages of three rows, in a pool of three.
TABLE, SIZE, POOL = (2, 0), 3, 3
LIST = (1, -1, 0, 4)


def slot(index):
    return -1 if index < 0 else TABLE[index // SIZE] * SIZE + index % SIZE


@picture
def slots():
    panel, width = Panel(246, "The same list twice"), 36
    tokens = SIZE * len(TABLE)
    panel.text(0, 40, "tokens of the sequence, by index", "small")
    for index in range(tokens):
        panel.box(index * (width + 3), 46, width, 28, "b" if index in LIST else "off", index)
    panel.text(0, 104, f"table: its pages are {' and '.join(map(str, TABLE))} of the pool", "small")
    panel.text(0, 134, "rows of the pool, by slot", "small")
    chosen = [slot(index) for index in LIST]
    for at in range(SIZE * POOL):
        x = at * (width + 3) + at // SIZE * 3
        panel.box(x, 140, width, 28, "g" if at in chosen else "off", at)
    for page in range(POOL):
        panel.text(page * (SIZE * (width + 3) + 3), 184, f"page {page}", "tiny")
    shown = [", ".join(str(each).replace("-", "−") for each in numbers) for numbers in (LIST, chosen)]
    panel.text(0, 214, f"indices  {shown[0]}", "")
    panel.text(0, 236, f"slots  {shown[1]}", "")
    return Picture(
        f"Pages of {SIZE} rows. Index {LIST[-1]} is in the sequence's second page, which is page {TABLE[1]} of the pool, and so it is "
        f"slot {chosen[-1]}. Read as a slot, {LIST[-1]} would be a row of page {LIST[-1] // SIZE}, which belongs to another sequence.",
        f"A sequence of {tokens} tokens whose pages are {TABLE} of a pool of {POOL}. A list of the indices {LIST} is the list of slots "
        f"{tuple(chosen)}.",
        [panel],
    )


#: Scores of three heads for five keys.
SCORES = ((2, 0, 1, -1, 0), (0, 0, 3, 0, 1), (-1, 1, 2, 0, 0))


@picture
def target():
    heads = [[exp(score) / sum(map(exp, row)) for score in row] for row in SCORES]
    mean = [sum(column) / len(heads) for column in zip(*heads)]
    panel = Panel(46 + 62 * (len(heads) + 1), "How much each of five selected keys is worth")
    for row, (name, shares) in enumerate(
        [*((f"head {number}", shares) for number, shares in enumerate(heads)), ("mean", mean)]
    ):
        y = 30 + 62 * row
        panel.text(0, y + 40, name)
        for key, share in enumerate(shares):
            x, kind = 70 + 58 * key, "g" if name == "mean" else "b"
            panel.box(x, y + 46 - 34 * share, 46, 34 * share, kind)
            panel.text(x + 23, y + 42 - 34 * share, f"{100 * share:.0f} %", "tiny", "middle")
        panel.line([[70, y + 46], [356, y + 46]], "rule")
    best = max(range(len(mean)), key=mean.__getitem__)
    words = ", ".join(f"{100 * share:.0f}" for share in mean)
    return Picture(
        f"Each head's probabilities add up to 100 %, and so do their means. Key {best} gets the most, {100 * mean[best]:.0f} %, "
        "and the indexer should say so.",
        f"Probabilities that {len(heads)} heads give to {len(mean)} keys, and their means: {words} %.",
        [panel],
    )


@picture
def missed():
    keys, k = range(12), 4
    heads = [[exp(key * (5 + 2 * head) % 11 / 3) for key in keys] for head in range(len(SCORES))]
    worth = [sum(row[key] / sum(row) for row in heads) / len(heads) for key in keys]
    scores = [log(worth[key]) + (key * 7 % 5 - 2) / 3 for key in keys]  # of an indexer that hasn't learnt enough
    best, chosen = (sorted(sorted(keys, key=of.__getitem__)[-k:]) for of in (worth, scores))
    share = {name: sum(worth[key] for key in those) for name, those in (("best", best), ("chosen", chosen))}
    panel = Panel(196, f"What {len(worth)} keys are worth, and the {k} that are selected")
    for key in keys:
        kind = "b" if key in chosen else "r" if key in best else "off"
        panel.box(key * 30, 150 - 400 * worth[key], 24, 400 * worth[key], kind)
        panel.text(key * 30 + 12, 168, key, "small", "middle")
    panel.line([[0, 150], [356, 150]], "rule")
    panel.text(0, 192, "blue: selected; red: worth more, and missed", "small")
    lost = ", ".join(str(key) for key in best if key not in chosen)
    return Picture(
        f"A bar is a key's share of attention, averaged over {len(heads)} heads. The selected {k} have {100 * share['chosen']:.0f} % of "
        f"it, and the best {k} would have {100 * share['best']:.0f} %. A key that no list has gets no gradient, so training begins with all.",
        f"Shares of {len(worth)} keys, in percent: {', '.join(f'{100 * each:.0f}' for each in worth)}. Selected: "
        f"{', '.join(map(str, chosen))}. Missed: {lost}.",
        [panel],
    )
