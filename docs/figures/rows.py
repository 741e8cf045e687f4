"""Rows: softmax in chunks, cross entropy, norms, and the two kinds of gradient."""

import math

from draw import Control, Panel, Picture, picture
from moving import moving

#: The first row of the softmax lesson's example, in its chunks.
ROW, CHUNK = (1, 3, 2, 0, 4, 1), 4


@picture
def online():
    scores = tuple(Control(f"x{place}", f"x{place}", float(x), -4, 8, 0.5) for place, x in enumerate(ROW))
    return moving(
        "online",
        "How can one pass over a row give the exact softmax, when its largest number may come last?",
        "Step through the chunks. Then drag the last score up, and drag where the chunks end: the sum at the end is always right.",
        "Left the row, right e^(x − m) of what has been seen: the new chunk amber, what was there before blue. When a chunk brings a "
        "larger score, everything before shrinks by one common factor. Nothing is read again.",
        (
            Control("step", "Chunks seen", 2, 0, 3, plays=1200),
            *scores,
            Control("first", "First chunk ends after", CHUNK, 1, len(ROW)),
            Control("second", "Second chunk ends after", len(ROW), 1, len(ROW)),
        ),
    )


@picture
def directions():
    rows, columns, high = 5, 6, 2
    left = Panel(232, "dx: averages along a row")
    left.cells(10, 34, rows, columns, (40, 30), lambda r, c: "a" if r == 1 else "")
    left.arrow(10, 79, 262, 79)
    left.text(270, 84, "one number", "small")
    left.text(10, 206, f"{rows} rows, {rows} programs: none needs another", "small")
    right = Panel(232, "dweight, dbias: sums down a column")
    right.cells(10, 34, rows, columns, (40, 30), lambda r, c: "b" if c == 2 else "")
    for band in range(0, rows, high):
        right.box(10, 34 + band * 30, columns * 40, min(high, rows - band) * 30, "strong")
    right.arrow(110, 34, 110, 198)
    right.text(260, 70, "program 0", "small")
    right.text(260, 130, "program 1", "small")
    right.text(260, 174, "again 0", "small")
    right.text(10, 220, "every program has a part of each sum", "small")
    return Picture(
        "Same matrix, two directions. A sum along a row stays inside a program. A sum down a column needs something from every "
        "program: partial sums, added up afterwards.",
        f"A matrix of {rows} rows and {columns} columns, twice. Left, one row is summed by one program. Right, one column "
        f"crosses all rows; two programs take bands of {high} rows in turn, so each has only a part of the sum.",
        [left, right],
    )


@picture
def norms():
    row = (1, 5, -1, 5, 1, -1)  # the first row of the RMSNorm lesson's example
    mean, rms = sum(row) / len(row), math.sqrt(sum(x * x for x in row) / len(row))
    deviation = math.sqrt(sum((x - mean) ** 2 for x in row) / len(row))
    panel, words = Panel(306, "One row, normalised in two ways"), []
    lines = (
        ("x", row, f"mean {mean:.3g}, root mean square {rms:.3g}"),
        ("RMSNorm: x / rms", [x / rms for x in row], f"mean {mean / rms:.3g}, root mean square 1"),
        ("LayerNorm: (x − mean) / deviation", [(x - mean) / deviation for x in row], "mean 0, standard deviation 1"),
    )
    at = lambda x: 24 + (x + 1.6) * 48  # noqa: E731
    for place, (name, values, facts) in enumerate(lines):
        y = 42 + place * 96
        panel.text(0, y, name, "bold")
        panel.text(0, y + 64, facts, "small")
        panel.line([(at(-1.5), y + 26), (at(5.2), y + 26)], "rule")
        panel.line([(at(0), y + 14), (at(0), y + 38)])
        middle = sum(values) / len(values)
        panel.line([(at(middle), y + 14), (at(middle), y + 38)], "curve a")
        for turn, value in enumerate(sorted(set(values))):
            panel.dot(at(value), y + 26, "b", 5)
            label = f"{value:.3g}".replace("-", "−")
            panel.text(at(value), y + (49 if turn % 2 else 15), label, "tiny", "middle")
        words.append(f"{name}: {facts}")
    return Picture(
        "Each of the three values occurs twice. The thin tick is zero, the amber one the mean. RMSNorm only scales, and "
        "scales the mean with everything else; LayerNorm moves the mean to zero first.",
        f"The row {', '.join(map(str, row))} on a number line. " + "; ".join(words) + ".",
        [panel],
    )


@picture
def trips():
    """Adding the residual and normalising, in two kernels and in one: tensors of two bytes an element."""
    two = (("add", ("x in", "residual in", "s out")), ("norm", ("s in", "y out")))
    one = (("add + norm", ("x in", "residual in", "s out", "y out")),)
    panel, top, words = Panel(250), 0, []
    for title, kernels in (("Two kernels", two), ("One kernel", one)):
        count = sum(len(moved) for _, moved in kernels)
        panel.text(0, top + 15, f"{title}: {count} tensors, {count * 2} bytes an element", "bold")
        for row, (name, moved) in enumerate(kernels):
            y = top + 26 + row * 40
            panel.text(0, y + 20, name, "small")
            for place, each in enumerate(moved):
                panel.box(
                    84 + place * 70, y, 66, 30, "a" if each.startswith("s") else "b", each.replace("residual", "res.")
                )
        top += 26 + len(kernels) * 40 + 22
        words.append(f"{title}: {count} tensors read or written, {count * 2} bytes an element in bfloat16")
    panel.height = top - 10
    return Picture(
        "In one kernel the sum s goes out once. In two it goes out and comes back.", ". ".join(words) + ".", [panel]
    )


@picture
def cross_entropy():
    import torch

    at = torch.arange(3 * 11, dtype=torch.float32)
    row, label, chunk = ((at * 5 % 13 % 7 - 3).view(3, 11)[0]).tolist(), 4, 8  # row 0 of the lesson's example
    row_max = max(row)
    lse = row_max + math.log(sum(math.exp(x - row_max) for x in row))
    probabilities = [math.exp(x - lse) for x in row]
    gradient = [p - (place == label) for place, p in enumerate(probabilities)]
    left = Panel(216, f"{len(row)} logits, in chunks of {chunk}")
    left.cells(
        4,
        34,
        1,
        len(row),
        (32, 30),
        lambda r, c: "a" if c == label else "b" if c < chunk else "g",
        lambda r, c: f"{row[c]:g}",
    )
    left.text(4 + label * 32 + 16, 82, "label", "small", "middle")
    lses = [math.log(sum(math.exp(x) for x in part)) for part in (row[:chunk], row[chunk:])]
    left.text(4, 122, f"chunk 0: log-sum-exp {lses[0]:.3f}", "small")
    left.text(4, 144, f"chunk 1: log-sum-exp {lses[1]:.3f}", "small")
    left.text(4, 174, f"merged: {lse:.3f}", "bold")
    left.text(4, 204, f"loss = {lse:.3f} − (−{-row[label]:g}) = {lse - row[label]:.3f}", "bold")
    right = Panel(280, "The gradient: softmax, minus one at the label")
    for place, value in enumerate(gradient):
        high = abs(value) * 110
        right.box(4 + place * 32, 150 - (high if value > 0 else 0), 28, max(high, 1), "a" if place == label else "b")
        right.text(
            18 + place * 32,
            142 - high if value > 0 else 166 + high,
            f"{value:.2f}".replace("0.", "."),
            "tiny",
            "middle",
        )
    right.line([(0, 150), (360, 150)])
    right.text(356, 250, "the bars add up to 0", "small", "end")
    return Picture(
        "A row of logits is read once, chunk by chunk. Only one number is kept, and from it the backward pass computes every "
        "probability again.",
        f"A row of {len(row)} logits with label {label}. The two chunks have log-sum-exps {lses[0]:.3f} and {lses[1]:.3f}, "
        f"merged {lse:.3f}; the loss is {lse - row[label]:.3f}. The gradient is {gradient[label]:.2f} at the label and the "
        "probability elsewhere; it adds up to zero.",
        [left, right],
    )


@picture
def pieces():
    import inspect

    from annotated_examples.classics import linear_cross_entropy as lesson

    rows, hidden, vocab = 8192, 4096, 128256
    columns = inspect.signature(lesson.linear_cross_entropy_forward).parameters["COLUMNS"].default
    whole, piece = rows * vocab * 2 / 1e9, rows * columns * 2 / 1e9
    count = -(-vocab // columns)
    panel = Panel(300, f"{rows} tokens, {hidden} features, {vocab} words")
    panel.text(84, 40, f"weight.T: {hidden} x {vocab}", "small")
    panel.box(84, 48, 270, 60, "")
    strip = 270 * columns / vocab  # to scale
    panel.box(84, 48, strip, 60, "b")
    panel.text(0, 112, "x", "small")
    panel.box(0, 120, 60, 110, "a", f"{rows} x\n{hidden}")
    panel.box(84, 120, 270, 110, "off dashed")
    panel.box(84, 120, strip, 110, "g")
    panel.text(225, 170, f"all logits: {whole:.1f} GB", "small", "middle")
    panel.text(225, 190, "never there at once", "small", "middle")
    panel.text(84, 254, f"a piece: {columns} columns, {piece * 1000:.0f} MB", "bold")
    panel.text(84, 276, f"{count} pieces, one after another", "small")
    return Picture(
        "The logits come in strips of the vocabulary. Each row keeps a maximum and a sum, then the strip is overwritten by "
        "the next.",
        f"Hidden states of {rows} x {hidden} times weights of {hidden} x {vocab}. All logits would take {whole:.1f} GB in "
        f"bfloat16; a piece of {columns} columns takes {piece * 1000:.0f} MB, and there are {count} of them.",
        [panel],
    )


@picture
def softmax():
    import torch

    xs = torch.tensor([1.0, 3.0, 2.0])
    panels, words = [], []
    for shift in (0, 2):
        y = torch.softmax(xs + shift, 0).tolist()
        panel = Panel(214, "softmax(x)" if not shift else f"softmax(x + {shift})")
        panel.line([(20, 180), (340, 180)])
        for place, value in enumerate(y):
            left, high = 50 + place * 100, value * 200
            panel.box(left, 180 - high, 60, high, "a" if place == 1 else "b")
            panel.text(left + 30, 174 - high, f"{value:.3f}", "small", "middle")
            panel.text(left + 30, 198, f"x = {xs[place] + shift:g}", "small", "middle")
        panels.append(panel)
        words.append(
            f"softmax of {', '.join(f'{x + shift:g}' for x in xs.tolist())} is {', '.join(f'{v:.3f}' for v in y)}"
        )
    return Picture(
        "Adding the same number to a whole row changes nothing. That is why the maximum may be subtracted, and why the "
        "gradients of a row add up to zero.",
        "; ".join(words) + ": the same.",
        panels,
    )
