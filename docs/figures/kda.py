"""Kimi delta attention: which level of halves holds a pair of tokens, and a state whose rows fade at different speeds."""

from draw import Panel, Picture, picture

TOKENS, SIDE = 8, 34
#: Of the levels, from halves of one token on.
KINDS = ("a", "b", "g", "p")


def level_of(i, j):
    """The level on which tokens j < i lie in two halves of a block: the highest bit in which their numbers differ."""
    return (i ^ j).bit_length() - 1


def sums_of(i, j):
    """The tokens whose gates go to the row and to the column of the pair (i, j), in the order of the sequence."""
    half = 2 ** level_of(i, j)
    middle = i // half * half
    return range(middle, i + 1), range(j + 1, middle)


@picture
def levels():
    panel = Panel(46 + SIDE * TOKENS + 30, "which level a pair of tokens is on")
    panel.cells(
        40, 34, TOKENS, TOKENS, (SIDE, SIDE),
        lambda r, c: "off" if c > r else "strong" if c == r else KINDS[level_of(r, c)],
        lambda r, c: "" if c > r else "·" if c == r else str(2 ** level_of(r, c)),
    )  # fmt: skip
    for place in range(TOKENS):
        panel.text(32, 34 + SIDE * place + 22, place, "small", "end")
        panel.text(40 + SIDE * place + SIDE / 2, 34 + SIDE * TOKENS + 18, place, "small", "middle")
    i, j = 6, 1
    rows, columns = sums_of(i, j)
    gates = Panel(190, f"the gates between tokens {j} and {i}")
    for token in range(TOKENS):
        kind = "b" if token in rows else "a" if token in columns else ""
        gates.box(8 + 43 * token, 44, 41, 34, kind, f"g{token}")
    left = 8 + 43 * columns[0]
    gates.text(left, 100, "to the column", "small")
    gates.text(8 + 43 * rows[0], 100, "to the row", "small")
    gates.line([(8 + 43 * rows[0] - 1, 36), (8 + 43 * rows[0] - 1, 86)])
    gates.text(8, 136, f"Halves of {2 ** level_of(i, j)} tokens: {j} is in the first half,", "small")
    gates.text(8, 154, f"{i} in the second. Both sums end at the border.", "small")
    count = [sum(level_of(r, c) == level for r in range(TOKENS) for c in range(r)) for level in range(3)]
    said = ", ".join(f"{n} pairs in halves of {2**level}" for level, n in enumerate(count))
    return Picture(
        "Each pair of tokens, reader in its row and writer in its column, lies in the two halves of exactly one block. The number "
        "is how many tokens such a half has.",
        f"A triangle of {TOKENS} by {TOKENS} tokens, coloured by level: {said}. Tokens {j} and {i} lie in halves of "
        f"{2 ** level_of(i, j)}. The gates of tokens {columns[0]} to {columns[-1]} go to the column, those of tokens {rows[0]} to "
        f"{rows[-1]} to the row.",
        [panel, gates],
    )


@picture
def rows():
    """What a state keeps of one token, channel by channel, from the kernel."""
    import torch

    from annotated_examples.recurrences.kda import kda

    tokens, gates = 6, (0.0, -0.25, -1.0, -3.0)
    k = torch.zeros(1, tokens, 1, 4)
    k[0, 0] = 0.5
    q = torch.eye(4)[:, None, None].expand(4, tokens, 1, 4)
    same = lambda x: x.expand(4, *x.shape[1:]).contiguous()  # noqa: E731
    g = torch.tensor(gates).expand(1, tokens, 1, 4)
    v, beta = torch.full((1, tokens, 1, 1), 2.0), torch.ones(1, tokens, 1)
    left = kda(q.contiguous(), same(k), same(v), same(g), same(beta), scale=1.0)[:, :, 0, 0].tolist()
    panel = Panel(62 + 40 * 4 + 26, "what the state keeps of token 0")
    panel.cells(
        104, 40, 4, tokens, (42, 40),
        lambda r, c: "a" if left[r][c] >= 0.5 else "b" if left[r][c] >= 0.05 else "off",
        lambda r, c: f"{left[r][c]:.2f}",
    )  # fmt: skip
    for row, gate in enumerate(gates):
        panel.text(96, 40 + 40 * row + 25, f"gate {gate:g}".replace("-", "−"), "small", "end")
    for token in range(tokens):
        panel.text(104 + 42 * token + 21, 34, token, "small", "middle")
        panel.text(104 + 42 * token + 21, 40 + 40 * 4 + 18, "", "small", "middle")
    told = "; ".join(f"gate {gate:g}: " + ", ".join(f"{x:.2f}" for x in row) for gate, row in zip(gates, left))
    return Picture(
        f"Token 0 writes 1 to all four rows of a state with one column, the others write nothing. A column for each of {tokens} "
        "tokens: every row fades at the speed of its own gate.",
        f"A table with a row for each row of the state and a column for each token. What is left of what token 0 wrote: {told}.",
        [panel],
    )
