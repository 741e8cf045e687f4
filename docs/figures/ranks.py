"""Ranks: what travels between cards."""

import math

from draw import Panel, Picture, picture

#: A row of logits, its label, and the four ranks that it is cut over.
ROW, LABEL, WORLD = (2, 0, 1, -1, 3, 1, 0, 2, -2, 1, 0, 1), 6, 4


@picture
def row():
    width = len(ROW) // WORLD
    top, cell = 40, 27
    panel = Panel(356, f"One row of {len(ROW)} logits on {WORLD} ranks")
    words, sent = [], []
    for rank in range(WORLD):
        columns = range(rank * width, (rank + 1) * width)
        left = rank * 92
        logits = [ROW[j] for j in columns]
        m = max(logits)
        s = sum(math.exp(z - m) for z in logits)
        a = sum(ROW[j] - m for j in columns if j == LABEL)
        b = sum(j == LABEL for j in columns)
        sent.append((m, s, a, b))
        panel.text(left, top - 6, f"rank {rank}", "small")
        panel.cells(
            left,
            top,
            1,
            width,
            (cell, 30),
            lambda r, c, j=columns: "a" if j[c] == LABEL else "b",
            lambda r, c, z=logits: z[c],
        )
        panel.arrow(left + 40, top + 34, left + 40, top + 58)
        for place, (name, value) in enumerate((("m", m), ("s", s), ("a", a), ("b", b))):
            panel.box(left, top + 62 + place * 28, 3 * cell, 28, "g", f"{name} = {value:.4g}".replace("-", "−"))
        panel.line([(left + 40, top + 178), (left + 40, top + 196), (180, top + 196)])
        words.append(f"rank {rank} sends m = {m}, s = {s:.4g}, a = {a}, b = {b}")
    largest = max(m for m, *_ in sent)
    total = sum(s * math.exp(m - largest) for m, s, *_ in sent)
    loss = math.log(total) + sum(b * (largest - m) - a for m, _, a, b in sent)
    panel.arrow(180, top + 196, 180, top + 216)
    panel.text(180, top + 234, "one gather: 16 bytes from each rank", "bold", "middle")
    facts = f"M = {largest}   S = {total:.4g}   loss = {loss:.4g}"
    panel.box(30, top + 246, 300, 32, "p", facts)
    panel.text(180, top + 300, "the same on every rank, to the last bit", "small", "middle")
    return Picture(
        f"The label is the amber logit. Every rank makes four numbers of its {width} columns: the largest logit, the sum of the "
        "exponentials relative to it, its part of the logits under the target, and its part of the target.",
        f"The row {', '.join(map(str, ROW))}, with its label in column {LABEL}, cut over {WORLD} ranks: "
        f"{'; '.join(words)}. Merged, the largest logit is {largest}, the sum {total:.4g} and the loss {loss:.4g}.",
        [panel],
    )
