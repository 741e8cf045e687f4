"""Eight-bit floats: which codes there are, and what a scale for a larger group loses."""

import math

from draw import Axes, Panel, Picture, picture

ROWS, COLUMNS, GROUP = 8, 12, 4


def _numbers():
    """Rows from 1 down to a millionth, and one outlier."""
    import torch

    sizes = torch.logspace(0, -6, ROWS)[:, None]
    numbers = sizes * torch.tensor([[math.sin(3.0 * r + 1.7 * c + 0.4) for c in range(COLUMNS)] for r in range(ROWS)])
    numbers[2, 9] = 10_000.0
    return numbers


@picture
def granularity():
    from annotated_examples.fp8.quantize import quantize_fp8_reference

    numbers, panels, words = _numbers(), [], []
    for name in ("tensor", "row", "1x128", "128x128"):
        codes, scale = quantize_fp8_reference(numbers, name, GROUP=GROUP)
        lost = codes.float() == 0
        panel = Panel(244, f"{name.replace('128', str(GROUP))}: {scale.numel()} scale{'s' * (scale.numel() > 1)}")
        panel.cells(
            36, 34, ROWS, COLUMNS, (24, 21),
            lambda r, c, lost=lost: "a" if lost[r, c] else "b",
            lambda r, c, lost=lost: "0" if lost[r, c] else "",
        )  # fmt: skip
        height, width = {"tensor": (ROWS, COLUMNS), "row": (1, COLUMNS), "1x128": (1, GROUP)}.get(name, (GROUP, GROUP))
        for row in range(0, ROWS, height):
            for column in range(0, COLUMNS, width):
                panel.box(36 + 24 * column, 34 + 21 * row, 24 * width, 21 * height, "strong")
        total = int(lost.sum())
        panel.text(36, 226, f"{total} of {lost.numel()} numbers become 0", "small")
        panels.append(panel)
        words.append(f"{name.replace('128', str(GROUP))}: {scale.numel()} scales, {total} of {lost.numel()} become 0")
    return Picture(
        "Rows from 1 at the top to a millionth at the bottom, and an outlier of 10000 in the third. Each frame has one scale, in "
        f"e4m3; blocks are drawn {GROUP} wide. Amber became zero.",
        f"A matrix of {ROWS} x {COLUMNS} whose rows are smaller from top to bottom, with one outlier, quantized to e4m3. "
        + "; ".join(words) + ".",
        panels,
    )  # fmt: skip


@picture
def stochastic_codes():
    """How often a number goes to either of its codes, by the kernel's `stochastic`, above and below 2⁻⁶."""
    from helpers import draws_of

    count, panels, words = 4096, [], []
    for value, where in ((18.5, "from 16 to 32 codes are 2 apart"), (0.003, "below 2⁻⁶ codes are 2⁻⁹ apart")):
        out = draws_of(value, count)
        low, high = min(out), max(out)
        share, ups = (value - low) / (high - low), out.count(high)
        panel = Panel(148, f"{value:g} in e4m3: {where}")
        at = lambda x, low=low, high=high: 50 + 250 * (x - low) / (high - low)  # noqa: E731
        panel.line([(50, 72), (300, 72)])
        panel.dot(at(value), 72, "strong")
        panel.text(at(value), 58, f"{value:g}", "small", "middle")
        for code, times, kind in ((low, count - ups, "b"), (high, ups, "a")):
            panel.line([(at(code), 64), (at(code), 80)])
            panel.text(at(code), 96, f"{code:g}", "small", "middle")
            panel.box(at(code) - 30, 104, 60, 26, kind, f"{times / count:.1%}")
        panel.text(175, 122, f"{share:.1%} of the way", "small", "middle")
        panels.append(panel)
        words.append(
            f"{value:g} lies {share:.1%} of the way from {low:g} to {high:g}; of {count} draws {ups / count:.1%} go up, and their "
            f"mean is {sum(out) / count:.4g}"
        )
    return Picture(
        f"{count} draws of the kernel for each number. It goes up as often as it has come far, so the mean is right.",
        ". ".join(words) + ".",
        panels,
    )


@picture
def codes():
    """The numbers of both formats around one, and where they end."""
    import torch

    panels, words = [], []
    for name, dtype in (("e4m3", torch.float8_e4m3fn), ("e5m2", torch.float8_e5m2)):
        numbers = torch.arange(256, dtype=torch.uint8).view(dtype).float()
        numbers = numbers[numbers.isfinite() & (numbers >= 0)].unique().tolist()
        panel = Panel(150, f"{name}: {len(numbers) - 1} numbers above zero")
        at = lambda value: 24 + 312 * value / 4  # noqa: E731
        panel.line([(24, 78), (336, 78)])
        shown = [value for value in numbers if value <= 4]
        for value in shown:
            panel.line([(at(value), 62 if math.log2(value or 1).is_integer() else 68), (at(value), 78)], "b")
        for value in (0, 1, 2, 4):
            panel.text(at(value), 98, f"{value}", "small", "middle")
        normal, least = torch.finfo(dtype).tiny, numbers[1]
        panel.text(24, 122, f"largest {numbers[-1]:g}, smallest normal {normal:.3g},", "small")
        panel.text(24, 140, f"smallest of all {least:.3g}; {len(shown)} lie from 0 to 4", "small")
        panels.append(panel)
        words.append(
            f"{name} has {len(numbers) - 1} numbers above zero, from {least:.3g} to {numbers[-1]:g}, normal ones from "
            f"{normal:.3g}; {len(shown)} of them lie from 0 to 4, half as dense from 2 to 4 as from 1 to 2"
        )
    return Picture(
        "All numbers of each format from 0 to 4. At each power of two the distance doubles. e5m2 has half as many in each "
        "interval, and reaches a hundred times further.",
        "; ".join(words) + ".",
        panels,
    )


def _operand(panel, place, cells, cuts, scales, name):
    """A matrix of codes with lines around the blocks that share a scale, and its scales beside it."""
    x, y, rows, columns = place
    panel.cells(x, y, rows, columns, 15)
    for row, column in cuts:
        height, width = cells
        panel.box(x + 15 * column, y + 15 * row, 15 * width, 15 * height, "strong")
    for sx, sy, many, wide, width, height in scales:
        panel.cells(sx, sy, many, wide, (width, height), lambda r, c: "a")
    panel.text(x + 15 * columns / 2, y + 15 * rows / 2 + 5, name, "bold", "middle")


@picture
def scales_of_a_product():
    """The strips of scales beside two matrices, under two recipes. Blocks are drawn four wide."""
    left, top = (64, 168, 6, 8), (224, 24, 8, 6)
    size, panels = 4096, []
    counts = {"row": 2 * size, "block": size * (size // 128) + (size // 128) ** 2}
    for recipe, title in (("row", "a scale for each row and column"), ("block", "scales of blocks")):
        panel = Panel(300, f"{recipe}: {title}")
        if recipe == "row":
            _operand(panel, left, (1, 8), [(row, 0) for row in range(6)], [(44, 168, 6, 1, 12, 15)], "a")
            _operand(panel, top, (8, 1), [(0, column) for column in range(6)], [(224, 150, 1, 6, 15, 12)], "b")
            lines = ("each element of c is", "scaled once, at the end")
        else:
            rows = [(row, column) for row in range(6) for column in (0, 4)]
            _operand(panel, left, (1, 4), rows, [(36, 168, 6, 2, 12, 15)], "a")
            blocks = [(row, column) for row in (0, 4) for column in (0, 4)]
            _operand(panel, top, (4, 4), [b for b in blocks if b[1] == 0], [(326, 24, 2, 2, 15, 60)], "b")
            for row in (0, 4):
                panel.box(224 + 60, 24 + 15 * row, 30, 60, "strong")
            lines = ("each element of c is", "scaled after each block of K")
        panel.cells(224, 168, 6, 6, 15)
        panel.text(224 + 45, 168 + 50, "c", "bold", "middle")
        panel.text(0, 60, lines[0], "small")
        panel.text(0, 78, lines[1], "small")
        panel.text(0, 290, f"at {size} in each direction: {counts[recipe]:,} scales", "small")
        panels.append(panel)
    return Picture(
        "Amber the scales, heavy lines around the codes that share one. Along K a scale can change only where the sum is taken "
        "apart. Blocks are drawn 4 wide.",
        "Two products of codes. With a scale for each row of a and each column of b, an element of c is scaled once, at the "
        f"end: {counts['row']:,} scales at {size} in each direction. With scales of blocks it is scaled after each block of K: "
        f"{counts['block']:,} scales, each of a's for 128 codes of a row, each of b's for a square of 128.",
        panels,
    )


def _kept(value: float, bits: int) -> float:
    """The leading bits of a number; the rest is cut off."""
    step = 2.0 ** (math.frexp(value)[1] - bits)
    return math.floor(value / step) * step


@picture
def promotion():
    """A model: an accumulator of 14 bits that takes 32 products at a time, alone and promoted."""
    products = [0.5 + (0.6180339887 * i) % 1.0 for i in range(1, 2**16 + 1)]
    alone, partial, promoted, exact, lines = 0.0, 0.0, 0.0, 0.0, {"alone": [], "promoted": []}
    for start in range(0, len(products), 32):
        total = sum(products[start : start + 32])
        exact += total
        alone, partial = _kept(alone + total, 14), _kept(partial + total, 14)
        if (start + 32) % 128 == 0:
            promoted, partial = promoted + partial, 0.0
            lines["alone"].append((start + 32, abs(alone - exact) / exact))
            lines["promoted"].append((start + 32, abs(promoted - exact) / exact))
    panel = Panel(286, "relative error of a sum of K products")
    axes = Axes(
        panel,
        (46, 44, 300, 190),
        (100, 1000, 10_000, 100_000),
        (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1),
        ("K", ""),
        (True, True),
    )
    for name, kind in (("alone", "a"), ("promoted", "b")):
        chosen = [lines[name][0]] + [point for point in lines[name] if math.log2(point[0]).is_integer()]
        panel.line([axes(k, max(error, 1e-5)) for k, error in chosen], f"curve {kind}")
    ends = {name: points[-1][1] for name, points in lines.items()}
    panel.text(*axes(3000, 0.02), "never promoted", "small", "end")
    panel.text(axes(100_000, 1)[0], axes(128, 3e-5)[1], "promoted every 128", "small", "end")
    return Picture(
        "A calculation, not a measurement: products between 0.5 and 1.5, 32 at a time into an accumulator that keeps 14 bits and "
        "cuts off the rest. Amber alone, blue promoted after each 128 of K.",
        f"At K = {len(products)} the sum of the accumulator alone is off by {ends['alone']:.2g} of itself, the promoted one by "
        f"{ends['promoted']:.1g}.",
        [panel],
    )


@picture
def operands():
    """The three products of a linear layer, and along which dimension a scale of each operand may vary."""
    panels = []
    products = (
        ("Y = X · Wᵀ", ("X", "m", "k"), ("Wᵀ", "k", "n"), ("Y", "m", "n")),
        ("dX = dY · W", ("dY", "m", "n"), ("W", "n", "k"), ("dX", "m", "k")),
        ("dW = dYᵀ · X", ("dYᵀ", "n", "m"), ("X", "m", "k"), ("dW", "n", "k")),
    )
    length = {"m": 66, "k": 96, "n": 54}
    words = []
    for title, left, right, result in products:
        panel = Panel(236, f"{title}: summed over {left[2]}")
        x, y = 210, 132
        tall, deep, wide = length[left[1]], length[left[2]], length[right[2]]
        for kind, (name, *_), place in (
            ("b", left, (x - deep - 10, y, deep, tall)),
            ("b", right, (x, y - deep - 4, wide, deep)),
            ("g", result, (x, y, wide, tall)),
        ):
            panel.box(*place, kind, name)
        panel.box(x - deep - 28, y, 10, tall, "a")
        panel.text(x - deep - 34, y + tall / 2 + 4, left[1], "small", "end")
        panel.text(x - 10 - deep / 2, y + tall + 18, left[2], "small", "middle")
        panel.box(x, y + tall + 8, wide, 10, "a")
        panel.text(x + wide + 8, y + tall + 18, right[2], "small")
        panel.text(0, 40, "amber: a scale for each", "small")
        panel.text(0, 58, f"{left[1]} of {left[0]}, {right[2]} of {right[0]}", "small")
        panels.append(panel)
        words.append(
            f"{title} sums over {left[2]}: scales of {left[0]} may follow {left[1]}, those of {right[0]} {right[2]}"
        )
    return Picture(
        "Tokens m, inputs k, outputs n. Each matrix is in two products, and the dimension that its scales may follow in one is "
        "summed in the other.",
        f"{len(words)} products of {2 * len(words)} factors. " + "; ".join(words) + ".",
        panels,
    )
