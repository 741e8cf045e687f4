"""The optimizers: tensors cut into chunks, and what the correction of an average does."""

import math

from draw import Control, Panel, Picture, picture
from moving import moving

NAMES, LENGTHS, BLOCK = ("weight", "bias", "empty", "scale"), (10, 3, 0, 5), 4
#: Around 1, and never twice the same.
GRADIENTS = tuple(round(1 + 0.8 * math.sin(1.7 * step * step), 2) for step in range(1, 101))


@picture
def chunks():
    """Which program has which elements: read from the table that the lesson makes."""
    import torch

    from annotated_examples.optimizers import adamw

    made = adamw.chunks_of(LENGTHS, BLOCK, torch.device("cpu"), None).tolist()
    panel, size = Panel(40 + 56 * len(NAMES), "Four tensors in chunks of 4"), 26
    for number, (name, length) in enumerate(zip(NAMES, LENGTHS)):
        y = 34 + 56 * number
        panel.text(0, y + 18, name, "small")
        if not length:
            panel.text(66, y + 18, "no elements, so no entry", "small")
        for pid, (which, first) in enumerate(made):
            if which == number:
                count, kind = min(BLOCK, length - first), "ab"[pid % 2]
                panel.cells(66 + size * first, y, 1, count, (size, 26), lambda r, c, kind=kind: kind, lambda r, c: "")
                panel.text(66 + size * first + size * count / 2, y + 42, f"pid {pid}", "small", "middle")
    table = Panel(40 + 56 * len(NAMES), "The table of chunks")
    for column, head in enumerate(("pid", "tensor", "first")):
        table.text(30 + 90 * column, 44, head, "small", "middle")
    for pid, (which, first) in enumerate(made):
        for column, value in enumerate((pid, which, first)):
            table.box(90 * column, 52 + 30 * pid, 60, 24, "ab"[pid % 2] if column else "", value)
        table.text(252, 52 + 30 * pid + 17, NAMES[which], "small")
    said = "; ".join(
        f"program {pid}: {NAMES[which]} from element {first} on" for pid, (which, first) in enumerate(made)
    )
    lengths = ", ".join(f"{name} with {length}" for name, length in zip(NAMES, LENGTHS))
    return Picture(
        "Each program looks up its own line: which tensor, and where in it to begin. The last chunk of a tensor is masked.",
        f"Tensors: {lengths} elements, in chunks of {BLOCK}. The table has a line for each program. {said}.",
        [panel, table],
    )


@picture
def correction():
    return moving(
        "average",
        "How many steps does an average need, with and without the division?",
        "Move β from 0.9 to 0.999, then back to 0.5: what becomes steady late, and what is steady early but restless?",
        "Gradients (grey) scatter around 1. Their average (amber) begins at 0 and is too small for long. Divided by 1 − βᵗ "
        "(green) it is a mean of the gradients so far from the first step on.",
        (
            Control("beta", "β", 0.9, stops=(0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)),
            Control("step", "Step", 10, 1, len(GRADIENTS)),
        ),
        {"gradients": GRADIENTS},
    )


@picture
def vectors():
    """Which thread has which element: by itself, and where 16 bytes may be loaded at a time."""
    threads, each = "abgp", 4
    elements = range(len(threads) * each)
    owners = {
        "The lesson": [place % len(threads) for place in elements],
        "Here": [place // each for place in elements],
    }
    panel, words = Panel(190, "Sixteen elements of float32, four threads"), []
    for row, (name, owner) in enumerate(owners.items()):
        y = 34 + 78 * row
        mine = [place for place in elements if owner[place] == 1]
        loads = 1 if mine == list(range(mine[0], mine[0] + each)) else each
        panel.text(0, y + 8, name, "bold")
        panel.text(
            360, y + 8, f"{loads} load{'s' * (loads > 1)} a thread, {4 * each // loads} bytes each", "small", "end"
        )
        panel.cells(
            0, y + 16, 1, len(owner), (22.5, 30),
            lambda r, c, owner=owner: threads[owner[c]], lambda r, c, owner=owner: owner[c],
        )  # fmt: skip
        words.append(f"{name}: thread 1 has the elements {', '.join(map(str, mine))}, {loads} load{'s' * (loads > 1)}")
    return Picture(
        "A colour and a number are a thread. Four neighbours are one load only if their address is known to be divisible by "
        "16 and none of them may be masked out.",
        ". ".join(words) + ".",
        [panel],
    )
