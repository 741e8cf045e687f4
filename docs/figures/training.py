"""The capstone: how far two optimizers' losses come apart, and a cache in pages while three texts are written."""

import json

import card
from draw import Axes, Panel, Picture, picture

from academy.book import layout


def _curves() -> dict[str, list[list[float]]]:
    """The losses that were measured in Triton's interpreter."""
    path = card.ROOT / layout.RESULTS / "triton-s-interpreter/experiments/capstone_optimizers.json"
    return json.loads(path.read_text("utf-8"))["losses"]


def _difference(losses: dict, form: str, *pair: str) -> list[float]:
    """Of each step's losses of two runs, in the mean of the seeds."""
    runs = [losses[f"{form}: {name}"] for name in pair]
    each = [[abs(a - b) for a, b in zip(*pair)] for pair in zip(*runs)]
    return [sum(step) / len(step) for step in zip(*each)]


FORMS = (("attention", "With attention"), ("kda", "With a gate for each channel"), ("streams", "With four streams"))
#: What a line is called, the two runs that it compares, and its colour.
PAIRS = (
    ("PyTorch's AdamW, nudged", ("adamw of PyTorch", "adamw of PyTorch, nudged"), "p dashed"),
    ("AdamW", ("adamw", "adamw of PyTorch"), "b"),
    ("Muon", ("muon", "muon of PyTorch"), "a"),
)


@picture
def apart():
    """The difference of each step's losses, ours and PyTorch's, on a logarithmic scale."""
    losses, panels, said = _curves(), [], []
    steps = len(losses["attention: adamw"][0])
    for form, title in FORMS:
        panel = Panel(300, title)
        axes = Axes(
            panel, (46, 40, 300, 210), range(0, steps + 1, steps // 4), [10.0**k for k in range(-7, 0)],
            ("steps", "difference of the losses"), (False, True),
        )  # fmt: skip
        for name, pair, kind in [each for each in PAIRS if f"{form}: {each[1][1]}" in losses]:
            means = _difference(losses, form, *pair)
            panel.line([axes(step, max(mean, 1e-7)) for step, mean in enumerate(means)], f"curve {kind}")
            said.append(f"{title}, {name}: {means[10]:.1e} after ten steps, {means[-1]:.1e} after {steps - 1}")
        panels.append(panel)
    return Picture(
        "Blue, our AdamW and PyTorch's: only their last digits differ for long. Purple and dashed, PyTorch's and itself, begun "
        "one float higher in each weight (not measured with streams): they come apart alike. Amber, our Muon and PyTorch's: from the first update on.",
        f"The size of the difference of the losses of two runs. {'; '.join(said)}.",
        panels,
    )


PROMPTS, SIZE = (5, 1, 3), 4


@picture
def pages():
    """Which page of the pool belongs to which text: asked of the cache of generate.py."""
    from annotated_examples.capstone import generate, gpt

    longest = [length + 6 for length in PROMPTS]
    cache = generate.Cache(gpt.GPT(gpt.SMALL, gpt.OURS), longest, SIZE)
    for text, length in enumerate(PROMPTS):
        cache.next([text], length, True)
    for _ in range(5):
        cache.next(range(len(PROMPTS)), 1, False)
    table, total = (
        cache.table.tolist(),
        len(cache.free) + sum(page >= 0 for row in cache.table.tolist() for page in row),
    )
    owner = {page: text for text, row in enumerate(table) for page in row if page >= 0}
    place = {page: row.index(page) for row in table for page in row if page >= 0}
    panel, kinds = Panel(60 + 32 * total, f"The pool: {total} pages of {SIZE} tokens"), "abg"
    for page in range(total):
        y = 30 + 32 * page
        panel.text(0, y + 17, f"page {page}", "small")
        text = owner.get(page)
        used = 0 if text is None else min(SIZE, cache.lengths[text] - place[page] * SIZE)
        fill = lambda r, c, used=used, text=text: kinds[text] if c < used else "off"  # noqa: E731
        panel.cells(60, y, 1, SIZE, (40, 24), fill, lambda r, c: "")
        panel.text(230, y + 17, "free" if text is None else f"text {text}", "small")
    side = Panel(60 + 32 * total, "The table: a row for each text")
    for text, row in enumerate(table):
        y = 34 + 56 * text
        side.text(0, y + 17, f"text {text}", "small")
        for at, page in enumerate(row):
            side.box(60 + 60 * at, y, 54, 24, kinds[text] if page >= 0 else "off", page if page >= 0 else "")
        side.text(60, y + 42, f"{cache.lengths[text]} tokens", "small")
    rows = "; ".join(f"text {text}: pages {[p for p in row if p >= 0]}" for text, row in enumerate(table))
    return Picture(
        "Three prompts came in, one behind the other, and then a token of each at a time. A page is taken when the one "
        "before is full, so the pages of a text lie wherever there was room.",
        f"A pool of {total} pages of {SIZE} tokens after prompts of {PROMPTS} tokens and five more of each. {rows}.",
        [panel, side],
    )
