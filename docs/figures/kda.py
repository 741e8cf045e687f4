"""Kimi delta attention: which level of halves holds a pair of tokens, its factors, and a state whose rows fade."""

import math

from draw import Control, Panel, Picture, picture
from moving import moving

#: Gates of one channel, for a chunk of eight tokens.
GATES = (-0.5, -0.25, -1.0, -0.5, -0.75, -0.25, -1.5, -0.5)


@picture
def levels():
    return moving(
        "halves",
        "Which gates are a row's, and which a column's?",
        "Move the writer from 0 to 6: where does the level change, and is any factor ever above 1?",
        "A number is how many tokens the halves have in which a pair lies: each pair is on exactly one level. The strip has the gates "
        "of one channel: blue ones are in the factor of the row, amber ones in that of the column.",
        (
            Control("i", "Reader", 6, 1, len(GATES) - 1),
            Control("j", "Writer", 1, 0, len(GATES) - 2),
        ),
        {"gates": GATES},
        f"Of {len(GATES)} tokens {len(GATES) // 2} pairs lie in halves of one token, {len(GATES)} in halves of two and "
        f"{len(GATES) * 2} in halves of four.",
    )


@picture
def factors():
    """One factor for each token and level: of a reader from the border on, of a writer up to it."""
    sums = [sum(GATES[: token + 1]) for token in range(len(GATES))]
    halves = (1, 2, 4)
    last = [[token // half // 2 * 2 * half + half - 1 for token in range(len(GATES))] for half in halves]
    left = [[math.exp(-abs(sums[t] - sums[last[level][t]])) for t in range(len(GATES))] for level in range(len(halves))]
    panel = Panel(46 + 40 * len(halves), "what is left between a token and the end of its first half")
    panel.cells(
        84, 40, len(halves), len(GATES), (34, 40),
        lambda r, c: "a" if c > last[r][c] else "b", lambda r, c: f"{left[r][c]:.2f}",
    )  # fmt: skip
    for row, half in enumerate(halves):
        panel.text(76, 40 + 40 * row + 25, f"halves of {half}", "small", "end")
    for token in range(len(GATES)):
        panel.text(84 + 34 * token + 17, 34, token, "small", "middle")
    told = "; ".join(
        f"halves of {half}: " + ", ".join(f"{x:.2f}" for x in row) for half, row in zip(halves, left, strict=True)
    )
    return Picture(
        "One channel of a chunk of eight tokens, with the gates of the picture in the lesson. In a second half, blue, a "
        "token reads; in a first one, amber, it is written. The last token of a first half has a factor of 1, and what a "
        "pair keeps is the product of its two factors: token 6 reads token 1 on the level with halves of 4.",
        f"A table with a row for each level and a column for each token. {told[0].upper()}{told[1:]}.",
        [panel],
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
    panel = Panel(46 + 40 * 4, "what the state keeps of token 0")
    panel.cells(
        104, 40, 4, tokens, (42, 40),
        lambda r, c: "a" if left[r][c] >= 0.5 else "b" if left[r][c] >= 0.05 else "off",
        lambda r, c: f"{left[r][c]:.2f}",
    )  # fmt: skip
    for row, gate in enumerate(gates):
        panel.text(96, 40 + 40 * row + 25, f"gate {gate:g}".replace("-", "−"), "small", "end")
    for token in range(tokens):
        panel.text(104 + 42 * token + 21, 34, token, "small", "middle")
    told = "; ".join(f"gate {gate:g}: " + ", ".join(f"{x:.2f}" for x in row) for gate, row in zip(gates, left))
    return Picture(
        f"Token 0 writes 1 to all four rows of a state with one column, the others write nothing. A column for each of {tokens} "
        "tokens: every row fades at the speed of its own gate.",
        f"A table with a row for each row of the state and a column for each token. What is left of what token 0 wrote: {told}.",
        [panel],
    )
