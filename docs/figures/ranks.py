"""Ranks: what travels between cards."""

import math

from academy.results import figures

import card
from draw import Axes, Control, Panel, Picture, picture
from moving import moving

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
            lambda r, c, z=logits: str(z[c]).replace("-", "−"),
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


@picture
def meeting():
    """Two ranks over time: write, meet, read everything, meet again."""
    panel = Panel(300, "Two ranks meet twice")
    steps = (
        ("write mine", "b", (20, 60), (20, 90)),
        ("read all, add", "g", (96, 176), (96, 150)),
    )
    for rank, left in enumerate((10, 200)):
        panel.text(left, 40, f"rank {rank}", "bold")
        for name, kind, *spans in steps:
            start, end = spans[rank]
            panel.box(left, 30 + start, 150, end - start, kind, name)
        panel.box(left, 30 + (60, 90)[rank], 150, 96 - (60, 90)[rank], "off", "wait" if rank == 0 else None)
        panel.box(left, 30 + (176, 150)[rank], 150, 182 - (176, 150)[rank], "off", "wait" if rank == 1 else None)
        panel.box(left, 212, 150, 40, "b", "write the next")
    for y in (126, 212):
        panel.line([(0, y), (360, y)], "strong")
    panel.arrow(160, 122, 198, 122)
    panel.arrow(198, 122, 162, 122)
    panel.text(0, 276, "Line 1: nobody reads what isn't written yet.", "small")
    panel.text(0, 294, "Line 2: nobody overwrites what is still being read.", "small")
    return Picture(
        "Time runs down. A rank that is early waits (grey) at each line until the other has come. Both lines are needed.",
        "2 ranks over time. Each writes its own buffer, waits at the first meeting until the other has written, reads all "
        "buffers and adds, and waits at the second meeting until the other has read, before it writes the next tensor.",
        [panel],
    )


@picture
def overlap():
    """Four ranks: gather, then multiply; and both at once, seen by rank 1."""
    world, mine, copy, product = 4, 1, 50, 44
    panel = Panel(270, f"Rank {mine} of {world}")
    order = [(mine + step) % world for step in range(world)]
    top = 34
    panel.text(0, top, "gather, then multiply", "small")
    end = copy * (world - 1)
    for place, rank in enumerate(order[1:]):
        panel.box(place * copy, top + 8, copy, 26, "b", rank)
    for place, rank in enumerate(sorted(order)):
        panel.box(end + place * product, top + 42, product, 26, "g", rank)
    after = end + world * product
    panel.text(0, top + 100, "at once, own rows first", "small")
    clock, free = 0, 0
    for place, rank in enumerate(order):
        arrives = place * copy
        if place:
            panel.box((place - 1) * copy, top + 108, copy, 26, "b", rank)
        start = max(free, arrives)
        if start > free:
            panel.box(free, top + 142, start - free, 26, "off")
        panel.box(start, top + 142, product, 26, "g", rank)
        free = start + product
    clock = free
    panel.text(0, top + 196, "blue: a rank's rows travel; green: they are multiplied;", "small")
    panel.text(0, top + 214, "grey: the product waits for a flag", "small")
    return Picture(
        f"Time runs to the right. One after the other takes {after} units, at once {clock}: what is left of the links' time is "
        "where the product has to wait.",
        f"Two time lines of rank {mine} of {world}, which needs {copy} units to copy another rank's rows and {product} to multiply "
        f"one rank's rows. If it first gathers and then multiplies, it is done after {after} units. If it starts with its own rows "
        f"and multiplies each rank's rows as they arrive, after {clock}.",
        [panel],
    )


@picture
def layer():
    """Two products in a row, cut over two ranks."""
    panel = Panel(330, "A pair of products on two ranks")
    panel.box(105, 30, 150, 30, "", "x, the same on both")
    for rank, (left, kind) in enumerate(((0, "a"), (190, "b"))):
        middle = left + 85
        panel.arrow(180, 60, middle, 84)
        panel.box(left, 86, 170, 44, kind, f"rank {rank}: half of the\noutputs of weight 1")
        panel.arrow(middle, 130, middle, 148)
        panel.box(left, 150, 170, 30, kind, "its heads, alone")
        panel.arrow(middle, 180, middle, 198)
        panel.box(left, 200, 170, 44, kind, "the same half of the\ninputs of weight 2")
        panel.arrow(middle, 244, 180, 268)
    panel.box(90, 270, 180, 30, "g", "all-reduce: the sum")
    panel.text(180, 320, "backward, the other all-reduce is at x", "small", "middle")
    return Picture(
        "The first weight is cut by its outputs, the second by its inputs. Between the two nothing travels.",
        "2 ranks have the same input x. Each has half of the outputs of the first weight, so half of the heads or hidden "
        "units, works on these alone, and multiplies them with the same half of the inputs of the second weight. An all-reduce "
        "sums the two results. In the backward pass, the gradient of x is the sum of both ranks' parts.",
        [panel],
    )


@picture
def measured():
    """The one-shot sum and NCCL's between two cards, out of benchmarks/many_cards.py's results."""
    found = figures.first(card.ROOT, "experiments/many_cards")
    values = found["values"]
    sizes = sorted(int(key.split("/")[1]) for key in values if key.endswith("/nccl"))
    panel = Panel(310, f"A sum over {found['world']} cards, µs")
    axes = Axes(panel, (44, 42, 300, 206), (4, 64, 1024, 65536), (5, 10, 100, 500), ("KB", ""), (True, True))
    told = []
    for who, kind, words in (("ours", "b", "one-shot, this site's"), ("nccl", "a", "NCCL")):
        points = [(kb, values[f"all_reduce/{kb}/{who}"]["value"]) for kb in sizes]
        panel.line([axes(*point) for point in points], f"curve {kind}")
        for point in points:
            panel.dot(*axes(*point), kind, 3)
        told.append(f"{words}: " + ", ".join(f"{kb} KB {time:.3g} µs" for kb, time in points))
    panel.text(axes(5, 1)[0], axes(4, 15.5)[1], "one-shot, this site's", "small")
    panel.text(axes(5, 1)[0], axes(4, 6.4)[1], "NCCL", "small")
    return Picture(
        f"Measured between {found['world']} {found['device'].split()[1]}, each as a CUDA graph of 20 calls. Below 1 MB the time is "
        "that of the signals, above 4 MB that of the bytes.",
        "Two lines over the size of a tensor, both axes logarithmic. " + "; ".join(told) + ".",
        [panel],
    )


@picture
def algorithms():
    facts = {"latency": 1.0, "bandwidth": 300e3}  # microseconds, bytes a microsecond: those of the guide's snippet
    return moving(
        "all_reduce",
        "When is it better to send more, in fewer steps?",
        "Make the tensor small, then large; then add ranks.",
        "Time runs to the right; red is the latency of a step, the rest its bytes. A calculation, with a latency of 1 µs and "
        "300 GB/s in one direction.",
        (
            Control("size", "tensor", 256, stops=(1, 16, 64, 256, 1024, 4096, 65536)),
            Control("ranks", "ranks", 8, stops=(2, 4, 8, 16, 64)),
        ),
        facts,
    )
