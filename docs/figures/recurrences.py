"""Recurrences: the rounds of a scan, a recurrence in chunks, and what each output of a short convolution sees."""

from draw import Panel, Picture, picture

#: A row of eight, as in the first exercise.
ROW = (3, 1, 4, 1, 5, 9, 2, 6)


@picture
def tree():
    rounds, distance = [list(ROW)], 1
    while distance < len(ROW):
        last = rounds[-1]
        rounds.append([last[t] + (last[t - distance] if t >= distance else 0) for t in range(len(ROW))])
        distance *= 2
    size, gap, left = 36, 72, 36
    panel = Panel(30 + gap * len(rounds), "Eight lanes, three rounds")
    for number, row in enumerate(rounds):
        y, reach = 34 + gap * number, 2 ** (number - 1)
        if number:
            for t in range(reach, len(ROW)):
                panel.arrow(left + size * (t - reach) + 14, y - 36, left + size * t + 12, y - 3, "a")
        panel.cells(
            left,
            y,
            1,
            len(ROW),
            (size, 36),
            lambda r, c, d=2**number: "b" if c < d else "",
            lambda r, c, row=row: row[c],
        )
        panel.text(0, y + 22, "x" if number == 0 else f"+{reach}", "small")
    chunks = ROW[:3], ROW[3:6], ROW[6:]
    carried = [sum(ROW[: 3 * k]) for k in range(3)]
    waits = Panel(30 + gap * len(rounds), "Three chunks, one carry")
    for number, (chunk, carry) in enumerate(zip(chunks, carried)):
        y = 40 + 88 * number
        sums = [carry + sum(chunk[: t + 1]) for t in range(len(chunk))]
        waits.text(0, y + 22, f"carry {carry}", "small")
        waits.cells(76, y, 1, len(chunk), (size, 36), lambda r, c: "", lambda r, c, chunk=chunk: chunk[c])
        waits.text(76 + size * 3 + 10, y + 22, "→", "")
        waits.cells(216, y, 1, len(sums), (size, 36), lambda r, c: "b", lambda r, c, sums=sums: sums[c])
        if number < 2:
            waits.arrow(216 + size * len(sums) - 18, y + 38, 40, y + 94, "a")
    shown = ". ".join(
        f"after adding the lane {2**k} places before: {', '.join(map(str, row))}" for k, row in enumerate(rounds[1:])
    )
    return Picture(
        "A scan of eight lanes: in each round every lane adds the one 1, 2, then 4 places before it; blue sums are finished. "
        "And the same row in chunks of three: a chunk waits for one number only.",
        f"A scan of {', '.join(map(str, ROW))}: {shown}. In chunks of three the carries are "
        f"{', '.join(map(str, carried))}: each is the last sum of the chunk before.",
        [panel, waits],
    )


@picture
def joined():
    """The first tile of the linear recurrence's example, joined pair by pair with the lesson's own function."""
    from annotated_examples.recurrences.linear_recurrence import join

    state, stretches = 16.0, [(0.5, 8.0), (0.5, 0.0), (0.5, 0.0), (0.5, 0.0)]
    named = [(f"token {t}", *stretch) for t, stretch in enumerate(stretches)]
    levels = [named]
    while len(levels[-1]) > 1:
        last = levels[-1]
        levels.append([
            (f"{a[0].split(' ')[-1].split('–')[0]}–{b[0].split(' ')[-1].split('–')[-1]}", *join.fn(*a[1:], *b[1:]))
            for a, b in zip(last[::2], last[1::2])
        ])  # fmt: skip
    panel, words, centre = Panel(30 + 78 * len(levels), "what a stretch of tokens does: h → a h + x"), [], {}
    for number, level in enumerate(levels):
        y, step = 36 + 78 * number, 88 * 2**number
        for place, (name, a, x) in enumerate(level):
            middle = step / 2 + place * step + 4
            centre[number, place] = middle
            panel.text(middle, y, name if number == 0 else f"tokens {name}", "small", "middle")
            panel.box(middle - 40, y + 6, 80, 26, "b" if number else "", f"{a:g}, {x:g}")
            if number:
                for child in (2 * place, 2 * place + 1):
                    panel.arrow(centre[number - 1, child], y - 44, middle + (child % 2 * 2 - 1) * 30, y - 12)
                words.append(f"tokens {name} together: a = {a:g}, x = {x:g}")
    a, x = levels[-1][0][1:]
    panel.text(
        4,
        18 + 78 * len(levels),
        f"From h = {state:g} all four make {a:g} · {state:g} + {x:g} = {a * state + x:g}.",
        "small",
    )
    return Picture(
        "Each box is a pair a, x. Two neighbours join into (a b, b x + y): the right one's gate also shrinks what the left one added.",
        "; ".join(words) + f". Applied to the state {state:g} that gives {a * state + x:g}.",
        [panel],
    )


@picture
def impulse():
    """Two numbers and a first state through two tiles, from the kernel."""
    import torch

    from annotated_examples.recurrences.linear_recurrence import linear_recurrence_forward

    tokens, tile, gate = 16, 8, 0.75
    a = torch.full((1, tokens, 1), gate)
    x, nothing = torch.zeros(1, tokens, 1), torch.zeros(1, tokens, 1)
    x[0, 2], x[0, 9] = 4.0, 2.0
    state = torch.tensor([[3.0]])
    whole = linear_recurrence_forward(a, x, state, BLOCK_T=tile, BLOCK_D=1)[0].flatten().tolist()
    carried = [3.0, whole[tile - 1]]
    old = []
    for number, first in enumerate(carried):
        piece = slice(number * tile, (number + 1) * tile)
        begun = linear_recurrence_forward(
            a[:, piece], nothing[:, piece], torch.tensor([[first]]), BLOCK_T=tile, BLOCK_D=1
        )
        old += begun[0].flatten().tolist()
    panel = Panel(196, f"Gates of {gate}: what is in the state")
    left, width, base, high = 12, 21, 150, 24
    for t in range(tokens):
        panel.box(left + width * t, base - high * old[t], width - 3, max(high * old[t], 0.5), "a")
        fresh = whole[t] - old[t]
        if fresh > 1e-6:
            panel.box(left + width * t, base - high * whole[t], width - 3, high * fresh, "b")
    panel.line([(left + width * tile - 1.5, 30), (left + width * tile - 1.5, base + 6)], "strong")
    for t, words in ((2, "+4"), (9, "+2")):
        panel.text(left + width * t + 9, base + 18, words, "small", "middle")
    panel.text(left, base + 38, "amber: from before the tile; blue: of the tile itself", "small")
    back = Panel(196, "The gradient, from the end")
    size = 40
    for t in range(tile):
        back.box(14 + size * t, 40, size - 6, 34, "b", f"λ{t + 1}")
        back.text(14 + size * t + 17, 112, f"g{t + 1}", "small", "middle")
        back.arrow(14 + size * t + 17, 98, 14 + size * t + 17, 77)
        if t:
            back.arrow(14 + size * t + 2, 57, 14 + size * (t - 1) + 35, 57, "a")
            back.text(14 + size * t - 3, 34, f"a{t + 1}", "tiny", "middle")
    back.text(0, 150, "Each λ is what arrives here, and the next gate", "small")
    back.text(0, 168, "times the next λ: the gates come one place later.", "small")
    return Picture(
        f"A recurrence in two tiles of {tile} tokens; the bars are the kernel's. In each tile, what was there before decays "
        "(amber), what is added decays too (blue), and their sum is the state. The arrows show the way of the gradient.",
        f"The state begins at 3 and every gate is {gate}. 4 is added at token 3 and 2 at token 10. It ends the first tile at "
        f"{whole[tile - 1]:.3g} and the second at {whole[-1]:.3g}, of which {old[-1]:.3g} come from the first. Beside it eight "
        "tokens with the gradients that arrive, and arrows from each λ to the one before, through the later token's gate.",
        [panel, back],
    )


@picture
def two_walks():
    """Three stretches of four tokens; the states are the kernel's."""
    import torch

    from annotated_examples.fast.linear_recurrence import linear_recurrence_forward

    rows, gate, before, x = 4, 0.5, 16.0, [8, 0, 4, 0, 0, 0, 8, 0, 16, 0, 0, 4]
    given = torch.tensor(x).float()[None, :, None]
    size = dict(ROWS=rows, STRETCHES=4, BLOCK_D=1, num_warps=1)
    a, first = torch.full_like(given, gate), torch.tensor([[before]])
    h = linear_recurrence_forward(a, given, first, **size)[0].flatten().tolist()
    pieces = [slice(k, k + rows) for k in range(0, len(x), rows)]
    added = [linear_recurrence_forward(a[:, piece], given[:, piece], 0 * first, **size)[1].item() for piece in pieces]
    starts = [before, *h[rows - 1 : -1 : rows]]
    panel, width = Panel(246, f"Gates of {gate}, twelve tokens, three threads"), 29
    for y, words, row in ((44, "what is added", x), (210, "second walk: the states", h)):
        panel.text(0, y - 6, words, "small")
        panel.cells(
            0,
            y,
            1,
            len(x),
            (width, 28),
            lambda r, c: "ab"[c // rows % 2],
            lambda r, c, row=row: f"{row[c]:.3g}",
        )
    panel.text(0, 94, "first walk: what a stretch does to a state h", "small")
    panel.text(0, 152, "scan", "small")
    for k, (plus, start) in enumerate(zip(added, starts)):
        left, wide = width * rows * k, width * rows - 4
        panel.box(left, 102, wide, 28, "ab"[k % 2], f"h/{round(gate**-rows)} + {plus:.3g}")
        panel.box(left, 160, 66, 24, "strong", f"h = {start:.4g}")
        if k:
            panel.arrow(left - wide / 2, 132, left + 26, 158)
    return Picture(
        "Each thread has a stretch of four tokens. The first walk finds what the stretch does to any state, the scan is of "
        "stretches only, and the second walk gives the states.",
        f"Twelve tokens in three stretches of {rows}, with gates of {gate}. A stretch leaves 1/{round(gate**-rows)} of the state "
        f"and adds {', '.join(f'{plus:.3g}' for plus in added)}. So the states before the stretches are "
        f"{', '.join(f'{start:.4g}' for start in starts)}, and the last state of all is {h[-1]:.3g}.",
        [panel],
    )


@picture
def taps():
    """What each output of two packed sequences sees."""
    W, lengths, size, left = 4, (5, 3), 27, 6
    names = [f"s{i + 1}" for i in range(W - 1)] + [f"x{t + 1}" for t in range(lengths[0])]
    panel = Panel(60 + 26 * lengths[0], "Five tokens behind a state")
    panel.cells(left, 30, 1, len(names), (size + 8, 24), lambda r, c: "a" if c < W - 1 else "b", lambda r, c: names[c])
    for t in range(lengths[0]):
        panel.box(left + (size + 8) * t, 62 + 26 * t, (size + 8) * W, 20, "strong", f"y{t + 1}")
    second = Panel(60 + 26 * lengths[0], "Packed beside it: three tokens, no state")
    names2 = ["0"] * (W - 1) + [f"x{t + 1}" for t in range(lengths[1])]
    second.cells(
        left, 30, 1, len(names2), (size + 8, 24), lambda r, c: "off" if c < W - 1 else "g", lambda r, c: names2[c]
    )
    for t in range(lengths[1]):
        second.box(left + (size + 8) * t, 62 + 26 * t, (size + 8) * W, 20, "strong", f"y{t + 1}")
    second.text(left, 160, "Nothing of the sequence before is seen.", "small")
    return Picture(
        f"{W} taps slide over the state and the tokens. Each output sees its own token and the {W - 1} inputs before it; the last "
        f"{W - 1} inputs are the next state.",
        f"Left, {lengths[0]} tokens behind a state of {W - 1}: output t sees {W} inputs in a row, of which the last is token t. "
        f"Right, a sequence of {lengths[1]} tokens without a state: zeros stand before it, although another sequence lies there.",
        [panel, second],
    )
