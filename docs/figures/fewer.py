"""The chapter "Fewer bytes per token": what a new token reads, and what is kept of all tokens, counted for a layer."""

from draw import WIDTH, Axes, Panel, Picture, picture

#: DeepSeek's heads, heads that groups share, numbers of a key, keys that are selected; tokens of the bars.
HEADS, SHARED, NUMBERS, SELECTED, TOKENS = 128, 8, 128, 2048, 131072
ALL = f"{HEADS} heads, what a latent replaces"


def ways():
    """Name -> colour, bytes of a token that are kept, and bytes that a new token reads of so many."""
    from operations.mla_decode import RANK, ROTATED
    from operations.quantized_decode import bytes_of_a_row

    heads = {bits: SHARED * 2 * bytes_of_a_row(NUMBERS, bits) for bits in (8, 4)}
    latent, scorer, scores = 2 * (RANK + ROTATED), NUMBERS + 4, 3 * 4  # a score is written once and read twice
    whole = {
        ALL: ("r", HEADS * 2 * (2 * NUMBERS + ROTATED)),
        f"{SHARED} heads": ("a", SHARED * 2 * 2 * NUMBERS),
        f"{SHARED} heads, eight bits": ("p", heads[8]),
        f"{SHARED} heads, four bits": ("off", heads[4]),
        "a latent": ("g", latent),
    }
    found = {name: (kind, kept, lambda tokens, kept=kept: kept * tokens) for name, (kind, kept) in whole.items()}
    few = lambda tokens: (scorer + scores) * tokens + latent * min(SELECTED, tokens)  # noqa: E731
    return found | {f"latents, {SELECTED} selected": ("b", latent + scorer, few)}


@picture
def read():
    found, (least, most) = ways(), (0.1, 1e5)
    drawn = {name: found[name] for name in found if "bits" not in name}
    panel = Panel(330 + 20 * len(drawn), "MB that a new token reads in a layer")
    axes = Axes(
        panel, (46, 34, 300, 240), (1e3, 1e4, 1e5, 1e6), [10.0**power for power in range(-1, 6)],
        ("tokens in the cache", ""), log=(True, True),
    )  # fmt: skip
    points = [10 ** (3 + step / 20) for step in range(61)]
    for row, (name, (kind, _, bytes_of)) in enumerate(drawn.items()):
        panel.line([axes(x, bytes_of(x) / 1e6) for x in points if least <= bytes_of(x) / 1e6 <= most], f"curve {kind}")
        panel.box(46, 322 + 20 * row, 12, 12, kind)
        panel.text(66, 333 + 20 * row, name, "small")
    bars, words = Panel(26 + 62 * (len(found) - 1), f"After {TOKENS:,} tokens, in a layer"), []
    shown = {name: (kind, kept * TOKENS, bytes_of(TOKENS)) for name, (kind, kept, bytes_of) in found.items()}
    words = [f"{name}: kept {kept / 1e6:,.0f} MB, read {read / 1e6:,.0f} MB" for name, (_, kept, read) in shown.items()]
    del shown[ALL]  # twenty times the next
    longest = max(kept for _, kept, _ in shown.values())
    for row, (name, (kind, kept, read)) in enumerate(shown.items()):
        y = 40 + 62 * row
        bars.text(0, y, name, "small")
        for line, (what, size) in enumerate((("kept", kept), ("read", read))):
            width = (WIDTH - 130) * size / longest
            bars.text(0, y + 17 + 18 * line, what, "tiny")
            bars.box(34, y + 6 + 18 * line, max(1.5, width), 14, kind)
            bars.text(40 + width, y + 18 + 18 * line, f"{size / 1e6:,.0f} MB", "tiny")
    return Picture(
        "Each step moves the line down. Only a selection bends it, where a text is long enough; and it shortens what is "
        "read, not what is kept.",
        f"Curves of bytes against tokens, both logarithmic, and bars for {TOKENS:,} tokens. {'; '.join(words)}.",
        [panel, bars],
    )
