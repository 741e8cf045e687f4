"""Experts: tokens, the slots that their router gives them, and the rows of each expert."""

import math
import struct

from draw import Panel, Picture, picture

#: The experts that the router's example gives to its seven tokens.
KINDS = ("a", "b", "g", "p", "", "off")


def _routed():
    """The example of the router: experts of each token, and the plan."""
    import torch

    from annotated_examples.moe.router import route_reference, sort_by_expert_reference

    rows = [[0, 4, 1, 4, 0, 0], [5, 1, 2, 0, 0, 0], [3, 0, 0, 0, float("nan"), 0], [0, 0, 7, 6, 0, 0]]
    rows += [[2, 1, 0, 0, 0, -1], [1, 2, 0, 0, 0, 0], [0, 0, 3, 0, 3, 0]]
    experts = route_reference(torch.tensor(rows, dtype=torch.float32), 2)[1]
    return experts, sort_by_expert_reference(experts, 6)


@picture
def sorted_rows():
    experts, plan = _routed()
    tokens, k = experts.shape
    flat, order, offsets = experts.flatten().tolist(), plan.order.tolist(), plan.offsets.tolist()
    panel = Panel(60 + 22 * len(flat), "")
    panel.text(0, 15, "slots, token by token", "bold")
    panel.text(216, 15, "rows, sorted by expert", "bold")
    top = 34
    for slot, expert in enumerate(flat):
        y = top + 22 * slot
        if slot % k == 0:
            panel.text(0, y + 26, f"token {slot // k}", "small")
        panel.box(62, y, 40, 20, KINDS[expert], f"{expert}")
    for row, slot in enumerate(order):
        y = top + 22 * row
        panel.line([(104, top + 22 * slot + 10), (230, y + 10)], "rule")
        panel.box(232, y, 40, 20, KINDS[flat[slot]], f"{slot}")
    begin = 0
    for expert, end in enumerate(offsets):
        if end > begin:
            panel.line([(278, top + 22 * begin + 2), (278, top + 22 * end - 4)])
            panel.text(284, top + 11 * (begin + end) + 4, f"expert {expert}", "small")
        begin = end
    empty = [str(expert) for expert in range(len(offsets)) if expert not in flat]
    words = ", ".join(f"token {t} has experts {a} and {b}" for t, (a, b) in enumerate(experts.tolist()))
    return Picture(
        "Left the expert of each slot, two slots a token. Right the slots in the order of their experts: the array order names the slot "
        "of each row, position the row of each slot. Rows of one expert keep their order.",
        f"{words}. Sorted by expert the slots are {', '.join(map(str, order))}; the rows of the experts end at "
        f"{', '.join(map(str, offsets))}, and expert {' and '.join(empty)} has none.",
        [panel],
    )


@picture
def sort_keys():
    """What the router's `sort_key` makes of a score, for expert 1 of 8."""
    from helpers import keys_of

    values = [math.nan, math.inf, 1.0, 0.0, -0.0, -1.0, -2.0, -math.inf]
    bits_of = [struct.unpack("<I", struct.pack("<f", value))[0] for value in values]
    panel, words = Panel(40 + 26 * len(values)), []
    for x, title in ((0, "score"), (60, "its bits"), (160, "its key, for expert 1 of 8")):
        panel.text(x, 15, title, "bold")
    for row, (value, bits, key) in enumerate(zip(values, bits_of, keys_of(values, 1, 8))):
        y, upper, lower = 42 + 26 * row, key >> 32, key & 0xFFFFFFFF
        name = f"{value:g}".replace("inf", "∞").replace("-", "−").replace("nan", "NaN")
        panel.text(0, y, name)
        panel.box(56, y - 16, 90, 22, "a" if bits >> 31 else "b")
        panel.text(64, y, f"{bits:08X}")
        panel.box(158, y - 16, 90, 22, "g")
        panel.text(166, y, f"{upper & 0xFFFFFFFF:08X}")
        panel.box(250, y - 16, 90, 22, "p")
        panel.text(258, y, f"{lower:08X}")
        words.append(f"{name} has the bits {bits:08X} and the key {upper & 0xFFFFFFFF:08X} {lower:08X}")
    return Picture(
        "As whole numbers with a sign, the green halves fall from top to bottom: those that begin with 8 or more are negative. Zeros "
        "of either sign have one key. Purple is 7 less the expert, which decides between equal scores.",
        "; ".join(words) + ".",
        [panel],
    )


@picture
def ragged_tiles():
    """The rows of the grouped product's example, in tiles of four."""
    ends, rows, tile = (5, 5, 10, 11), 12, 4
    panel, program, start, words = Panel(50 + 22 * rows), 0, 0, []
    panel.text(0, 15, "rows", "bold")
    panel.text(96, 15, "tiles of four, by program", "bold")
    for expert, end in enumerate((*ends, rows)):
        name = f"expert {expert}" if expert < len(ends) else "nobody"
        for first in range(start, end, tile):
            used, top = min(tile, end - first), 30 + 22 * first
            for row in range(first, first + used):
                panel.box(0, 30 + 22 * row, 76, 20, KINDS[expert], name)
            panel.box(96, top, 60, 22 * used - 2, KINDS[expert], f"{program}")
            wasted = f", {tile - used} of {tile} rows wasted" if used < tile else ""
            which = f"rows {first} to {first + used - 1}" if used > 1 else f"row {first}"
            panel.text(166, top + 11 * used + 3, f"{which}{wasted}", "small")
            words.append(f"program {program} has {which} of {name}{wasted}")
            program += 1
        start = end
    launched = -(-rows // tile) + len(ends)
    return Picture(
        f"Each expert's rows are cut into tiles of their own; expert 1 has none. {launched} programs are launched along this axis, "
        f"and {launched - program} {'finds' if launched - program == 1 else 'find'} nothing to do. The row behind the last expert's is filled with zeros.",
        "; ".join(words) + f". {launched} programs are launched.",
        [panel],
    )


@picture
def turned_tiles():
    """What tiles of 256 columns, and of 128, make of a matrix whose columns are no multiple of 256."""
    columns, rows = 1408, 768
    panels, words = [], []
    for width, height, name in ((256, 128, "tiles of 128 x 256"), (128, 256, "tiles of 256 x 128, turned")):
        across, down = -(-columns // width), rows // height
        wide, high = 330 * width / (6 * 256), 150 * height / rows
        panel = Panel(200, f"{name}: {across * down} of them")
        for row in range(down):
            for column in range(across):
                used = min(width, columns - column * width) / width
                panel.box(column * wide, 28 + row * high, wide * used - 2, high - 2, "a")
                if used < 1:
                    panel.box(column * wide + wide * used, 28 + row * high, wide * (1 - used) - 2, high - 2, "off")
        wasted = 100 * (across * width - columns) / (across * width)
        panel.text(0, 195, f"{columns} columns in {across} tiles: {wasted:.0f} % of the sums are for nothing", "small")
        words.append(f"{name}: {across} columns of tiles, {down} rows of tiles, {wasted:.0f} % wasted")
        panels.append(panel)
    return Picture(
        f"{rows} rows of one expert, {columns} columns. Both kinds of tiles have {128 * 256} sums, and take as long.",
        "; ".join(words) + ".",
        panels,
    )


@picture
def layer():
    """What each step of the layer reads and writes, forward and backward, for one size."""
    tokens, k, width, inner, size = 8192, 6, 2048, 1408, 2
    rows = tokens * k
    mega = lambda count: f"{count * size / 1e6:.0f} MB"  # noqa: E731
    steps = (
        ("forward", (
            ("gather, gate and up, SwiGLU", f"x {mega(tokens * width)}", f"h {mega(rows * 2 * inner)}, a {mega(rows * inner)}"),
            ("down", f"a {mega(rows * inner)}", f"y {mega(rows * width)}"),
            ("collect", f"y {mega(rows * width)}", f"out {mega(tokens * width)}"),
        )),
        ("backward", (
            ("u, weights, gate and up", f"dout {mega(tokens * width)}, h {mega(rows * 2 * inner)}",
             f"dh {mega(rows * 2 * inner)}, wa {mega(rows * inner)}"),
            ("back to rows of x, collect", f"dh {mega(rows * 2 * inner)}", f"dx {mega(tokens * width)}"),
            ("both matrices", f"dh, x; dout, wa {mega(rows * inner)}", "dgate_up, ddown"),
        )),
    )  # fmt: skip
    panels, words = [], []
    for title, parts in steps:
        panel = Panel(24 + 74 * len(parts), title)
        for place, (name, read, written) in enumerate(parts):
            top = 28 + 74 * place
            panel.box(0, top, 340, 58, "b" if title == "forward" else "a")
            panel.text(10, top + 17, name, "bold")
            panel.text(10, top + 35, f"reads {read}", "small")
            panel.text(10, top + 51, f"writes {written}", "small")
            words.append(f"{title}, {name}: reads {read}, writes {written}")
        panels.append(panel)
    return Picture(
        f"{tokens} tokens of {width} numbers with {k} slots each, inner width {inner}, two bytes a number; matrices not counted. "
        f"Kept for the backward pass are x and h. y, {mega(rows * width)}, isn't.",
        "; ".join(words) + ".",
        panels,
    )
