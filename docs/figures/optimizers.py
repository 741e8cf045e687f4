"""The optimizers: tensors cut into chunks, and what the correction of an average does."""

from draw import Axes, Panel, Picture, picture

NAMES, LENGTHS, BLOCK = ("weight", "bias", "empty", "scale"), (10, 3, 0, 5), 4


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
    """An average of gradients that are all 1, and what it becomes by the division."""
    panel, betas = Panel(292, "The average of gradients that are all 1"), ((0.9, "a"), (0.99, "b"), (0.999, "p"))
    axes = Axes(panel, (36, 34, 316, 216), (0, 25, 50, 75, 100), (0, 0.25, 0.5, 0.75, 1), ("steps", ""))
    for beta, kind in betas:
        axes.curve(lambda t, beta=beta: 1 - beta**t, kind)
    axes.curve(lambda t: 1.0, "g")
    after = {beta: 1 - beta**10 for beta, _ in betas}
    said = ", ".join(f"{value:.3f} with β = {beta}" for beta, value in after.items())
    return Picture(
        "The average begins at 0 and is too small for long: amber with β = 0.9, blue with 0.99, purple with 0.999. Divided by "
        "1 − βᵗ it is 1 from the first step on (green).",
        f"After ten steps the average of gradients that are all 1 is {said}; divided by 1 − βᵗ it is 1 at every step.",
        [panel],
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
