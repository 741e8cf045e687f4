"""Linear attention and the delta rule in chunks: which pairs of tokens are computed, what a state stands for."""

from draw import Panel, Picture, picture

TOKENS, CHUNK, SIDE = 12, 4, 25


def _scores(decay: float) -> list[list[float]]:
    """What each token reads of each earlier one, from the kernel: the identity for values leaves the scores."""
    import torch

    from annotated_examples.recurrences.linear_attention import linear_attention

    ones = torch.ones(1, TOKENS, 1, 1)
    g = torch.full((1, TOKENS, 1), decay)
    return linear_attention(ones, ones, torch.eye(TOKENS)[None, :, None], g, scale=1.0)[0, :, 0].tolist()


@picture
def pairs():
    return _pairs(-0.25, "each gate −0.25", "Each state is the one before it, faded,")


@picture
def plain_pairs():
    """The same for linear attention without gates."""
    return _pairs(0.0, "without gates", "Each state is the one before it,")


def _pairs(decay: float, gates: str, states: str) -> Picture:
    left = _scores(decay)
    last = [row[0] for row in left]
    grid = Panel(34 + SIDE * TOKENS + 34, "what is left of token j (column) at token i (row)")
    same = lambda r, c: r // CHUNK == c // CHUNK  # noqa: E731
    grid.cells(
        30, 34, TOKENS, TOKENS, (SIDE, SIDE),
        lambda r, c: "off" if c > r else "b" if same(r, c) else "a",
        lambda r, c: "" if c > r else f"{left[r][c]:.2f}".replace("0.", ".").replace("1.00", "1"),
    )  # fmt: skip
    for place in range(0, TOKENS, CHUNK):
        grid.box(30 + SIDE * place, 34 + SIDE * place, SIDE * CHUNK, SIDE * CHUNK, "strong")
    for place in range(CHUNK, TOKENS, CHUNK):
        grid.box(30, 34 + SIDE * place, SIDE * place, SIDE * CHUNK, "strong")
    for row in range(TOKENS):
        grid.text(24, 34 + SIDE * row + 16, row, "tiny", "end")
    walk = Panel(200, "what is computed")
    chunks = TOKENS // CHUNK
    for n in range(chunks):
        x = 12 + 118 * n
        walk.box(x, 44, 76, 34, "b", f"{n * CHUNK} to {n * CHUNK + CHUNK - 1}")
        walk.text(x + 38, 36, f"chunk {n}", "small", "middle")
        walk.box(x + 12, 116, 52, 30, "a", f"S{n}")
        walk.arrow(x + 38, 114, x + 38, 82)
        if n + 1 < chunks:
            walk.arrow(x + 66, 131, x + 128, 131)
            walk.arrow(x + 70, 80, x + 134, 114)
    walk.text(12, 172, f"S0 is given or 0. {states}", "small")
    walk.text(12, 190, "and what the tokens of the chunk have added.", "small")
    computed = TOKENS * (CHUNK + 1) // 2
    return Picture(
        f"{TOKENS} tokens in chunks of {CHUNK}, {gates}. Blue pairs are computed, as in attention. Each amber block is "
        "one product of the chunk's queries with a state.",
        f"A triangle of {TOKENS} by {TOKENS} numbers, cut into chunks of {CHUNK}. The {computed} pairs inside of a chunk are "
        f"computed; the {TOKENS * (TOKENS + 1) // 2 - computed} pairs across chunks are read from {chunks - 1} states. The first "
        f"token is worth {last[0]:.2f} at itself, {last[CHUNK]:.2f} at token {CHUNK} and {last[-1]:.2f} at the last.",
        [grid, walk],
    )  # fmt: skip


@picture
def corrections():
    """What the kernel solves for eight tokens, of which the second and the fifth, and the first and the seventh, share a
    key."""
    import torch

    from annotated_examples.recurrences import gated_delta_rule as lesson

    keys = [0, 1, 2, 3, 1, 4, 0, 5]
    k = torch.eye(8)[keys][None, None]
    v, beta = torch.arange(1.0, 9.0)[None, None, :, None], torch.ones(1, 1, 8)
    launch = lesson.sizes(k, v, 8, 16)
    inverse = torch.empty(1, 1, 8, 8)
    u, _, _ = lesson.differences(k, v, None, beta, None, None, lesson.cut(k, None, 8), launch, inverse)
    panel = Panel(34 + 27 * 8 + 30, "the inverse: which token corrects which")
    solved = inverse[0, 0]
    panel.cells(
        60, 34, 8, 8, (27, 27),
        lambda r, c: "off" if c > r else "b" if r == c else "a" if solved[r, c] else "",
        lambda r, c: f"{solved[r, c]:g}" if solved[r, c] else "",
    )  # fmt: skip
    for row, key in enumerate(keys):
        panel.text(52, 34 + 27 * row + 18, f"key {key}", "small", "end")
        panel.text(290, 34 + 27 * row + 18, f"u = {u[0, 0, row, 0]:g}", "small")
    pairs = ", ".join(f"token {r} takes back what token {c} wrote" for r in range(8) for c in range(r) if solved[r, c])
    return Picture(
        "Eight tokens with the values 1 to 8. Where a key comes again, only the difference to what it holds is written.",
        f"An 8 by 8 triangle with ones on its diagonal. Besides, {pairs}. The differences are "
        + ", ".join(f"{value:g}" for value in u[0, 0, :, 0].tolist()) + ".",
        [panel],
    )  # fmt: skip


@picture
def prepared():
    """What the lesson's three kernels compute, and which of them has to go from chunk to chunk."""
    panel = Panel(348, f"{TOKENS} tokens in chunks of {CHUNK}")
    chunks, width = TOKENS // CHUNK, 100
    left = [8 + 122 * n for n in range(chunks)]
    panel.text(8, 40, "wy_kernel: all chunks at once, no state needed", "small")
    panel.text(8, 136, "delta_states_kernel: one chunk after the other", "small")
    panel.text(8, 282, "outputs_kernel: all chunks at once", "small")
    for n, x in enumerate(left):
        panel.box(x, 48, width, 52, "b", f"tokens {n * CHUNK} to {n * CHUNK + CHUNK - 1}\nT, then W, U⁰")
        panel.line([(x + 22, 100), (x + 22, 122)])
        panel.arrow(x + 22, 142, x + 22, 192)
        panel.box(x + 38, 146, 62, 28, "a", f"S{n}")
        panel.arrow(x + 69, 174, x + 69, 192)
        panel.box(x, 194, width, 30, "a", "U = U⁰ − W S")
        if n + 1 < chunks:
            panel.arrow(x + 96, 194, left[n + 1] + 40, 174)
        panel.arrow(x + 22, 224, x + 22, 264)
        panel.box(x, 290, width, 44, "g", "O from Q, K,\nU and S")
    return Picture(
        "Only the amber row waits: each chunk needs the state that the one before it leaves. It is kept as short as possible, "
        "two products a chunk.",
        f"{chunks} chunks of {CHUNK} tokens. The first kernel computes the inverse T, and from it W and U⁰, for all of them at "
        "once. The second goes from chunk to chunk: U is U⁰ less W times the state S before the chunk, and with U follows the "
        "next state. The third computes the outputs of all chunks at once.",
        [panel],
    )


@picture
def one_token():
    """A state of 2 by 2 before and after a token whose difference is written by half, from the kernel."""
    import torch

    from annotated_examples.recurrences.gated_delta_rule_step import gated_delta_rule_step_

    before, k, v, share = torch.tensor([[1.0, 2], [3, 4]]), torch.tensor([1.0, 0]), torch.tensor([5.0, 4]), 0.5
    state, at = before[None, None].clone(), lambda x: x[None, None]
    gated_delta_rule_step_(state, at(k), at(k), at(v), None, torch.full((1, 1), share), scale=1.0)
    answer, after = k @ before, state[0, 0]
    written = share * (v - answer)
    panel = Panel(250, "a state is asked, then corrected")

    def row(x, y, name, values, kind):
        panel.text(x, y - 6, name, "small")
        panel.cells(x, y, 1, 2, (36, 30), lambda r, c: kind, lambda r, c: f"{values[c]:g}")

    def matrix(x, y, name, values):
        panel.text(x, y - 6, name, "small")
        rows = [place for place in range(2) if k[place]]
        panel.cells(x, y, 2, 2, (36, 30), lambda r, c: "a" if r in rows else "", lambda r, c: f"{values[r][c]:g}")

    matrix(12, 52, "state before", before.tolist())
    row(140, 52, "its answer", answer.tolist(), "a")
    row(254, 52, "the value", v.tolist(), "b")
    panel.arrow(88, 67, 134, 67)
    row(200, 134, f"{share:g} × (value − answer)", written.tolist(), "b")
    panel.arrow(180, 86, 222, 112)
    panel.arrow(292, 86, 252, 112)
    matrix(12, 178, "state after", after.tolist())
    panel.arrow(194, 158, 92, 190)
    told = lambda values: "(" + ", ".join(f"{value:g}" for value in values) + ")"  # noqa: E731
    return Picture(
        f"The key is {told(k.tolist())}, so it reads the first row and writes to the first row.",
        f"A state with the rows {told(before[0].tolist())} and {told(before[1].tolist())}. The key {told(k.tolist())} reads "
        f"{told(answer.tolist())}. The value is {told(v.tolist())}; {share:g} of the difference, {told(written.tolist())}, is added. "
        f"The state then has the rows {told(after[0].tolist())} and {told(after[1].tolist())}.",
        [panel],
    )  # fmt: skip


@picture
def lengths():
    """What a key reads after the same value was written again and again, for keys of different lengths."""
    import torch

    from annotated_examples.recurrences.gated_delta_rule import gated_delta_rule

    writes, sizes = 6, (0.6, 1.0, 1.5)
    read = {}
    for size in sizes:
        k = torch.full((1, writes, 1, 1), size)
        ones = torch.ones(1, writes, 1)
        o = gated_delta_rule(k, k, torch.ones(1, writes, 1, 1), None, ones, scale=1.0)
        read[size] = o[0, :, 0, 0].tolist()
    panels, axis, unit = [], 96, 16
    said = lambda value: f"{value:.3g}".replace("-", "−")  # noqa: E731
    for size in sizes:
        panel = Panel(154, f"a key of length {size:g}")
        for n, value in enumerate(read[size]):
            high = max(min(abs(value), 3.0) * unit, 1)
            kind = "a" if abs(value - 1) < 0.01 else "b"
            panel.box(24 + 54 * n, axis - high if value > 0 else axis, 34, high, kind)
            panel.text(41 + 54 * n, axis + 14 if value > 0 else axis - 6, said(value), "tiny", "middle")
        panel.line([(12, axis - unit), (348, axis - unit)])
        panels.append(panel)
    told = "; ".join(f"length {size:g}: {', '.join(map(said, read[size]))}" for size in sizes)
    return Picture(
        f"The value 1 is written {writes} times to the same key, with all of the difference each time. Bars: what the key reads "
        "after each write. The line is 1, and bars end at 3.",
        f"What a key reads after each of {writes} writes of the value 1. {told}.",
        panels,
    )  # fmt: skip
