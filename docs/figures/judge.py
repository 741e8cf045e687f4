"""What the judge does to an input before a kernel gets it, and how judges compare."""

import json

import torch
from draw import WIDTH, Panel, Picture, bars, picture

from academy.book import layout
from academy.judge import layouts

ROWS, COLUMNS = 2, 3
SHOWN = {
    "contiguous, NaN around": lambda x: layouts.nan_fenced(x, 4),
    "shifted by 3 elements": layouts.offset,
    "transposed": layouts.transposed,
    "sliced out of wider rows": lambda x: layouts.sliced(x, 2),
    "every third element": layouts.strided,
    "one row, shown twice": lambda x: x[:1].expand(x.shape),
}


def lane(view: torch.Tensor) -> list[str]:
    """What lies in the view's memory, from its first element to its last: the names of its elements, and NaN."""
    storage = torch.empty(0, dtype=view.dtype).set_(view.untyped_storage())
    names = [""] * storage.numel()
    for row in range(ROWS):
        for column in range(COLUMNS):
            names[view.storage_offset() + row * view.stride(0) + column * view.stride(1)] = f"{row}{column}"
    return [name or ("NaN" if storage[place].isnan() else "") for place, name in enumerate(names)]


@picture
def hostile():
    x = torch.arange(1.0, 1 + ROWS * COLUMNS).view(ROWS, COLUMNS)
    panels, words = [], []
    shown = list(SHOWN.items())
    for part in (shown[:3], shown[3:]):
        panel, y = Panel(30 + 96 * len(part)), 0
        for title, lay in part:
            view = lay(x)
            cells = lane(view)
            per_row = 14
            panel.text(0, y + 15, f"{title}: strides {tuple(view.stride())}", "small")
            for start in range(0, len(cells), per_row):
                row = cells[start : start + per_row]
                panel.cells(
                    0, y + 24 + 26 * (start // per_row), 1, len(row), (WIDTH / per_row, 22),
                    lambda r, c, row=row: "off dashed" if row[c] in ("NaN", "") else "a" if row[c] < "1" else "b",
                    lambda r, c, row=row: row[c] if row[c] not in ("NaN", "") else "",
                )  # fmt: skip
            y += 36 + 26 * -(-len(cells) // per_row)
            nan = cells.count("NaN")
            words.append(f"{title}: strides {tuple(view.stride())}, {nan} of {len(cells)} elements of memory are NaN")
        panel.height = y
        panels.append(panel)
    return Picture(
        "The same matrix of 2 x 3 in six places, as it lies in memory. Dashed cells hold NaN: a kernel that reads one "
        "has a NaN in its result.",
        f"A matrix of {ROWS} x {COLUMNS}, laid out in memory in six ways. " + ". ".join(words) + ".",
        panels,
    )


@picture
def granularity():
    """Eight programs write a byte each; GSan has a clock for four."""
    panel, width = Panel(124), WIDTH / 8
    panel.text(0, 14, "what programs write", "small")
    panel.cells(0, 20, 1, 8, (width, 30), lambda r, c: "a" if c < 4 else "b", lambda r, c: f"byte {c}")
    panel.text(0, 74, "what GSan keeps a clock for", "small")
    panel.cells(0, 80, 1, 2, (WIDTH / 2, 30), lambda r, c: "ab"[c], lambda r, c: f"word {c}: 4 programs, 1 clock")
    return Picture(
        "Eight programs, each with a byte of its own. GSan's memory of who was where is coarser than the kernel's "
        "accesses, so that four programs look as if they had one place.",
        "Eight cells, byte 0 to byte 7, each written by another program. Below them two cells of four bytes, for each of "
        "which GSan keeps one clock.",
        [panel],
    )


@picture
def board():
    """Which share of the faults each judge finds: the committed scoreboard."""
    content = json.loads((layout.ROOT / "docs/guides/judged/scoreboard.json").read_text("utf-8"))
    rows = [
        (name, each["found"] / each["faults"], f"{each['found']} of {each['faults']}")
        for name, each in content["judges"].items()
    ]
    panel = Panel(40 * len(rows) + 10)
    bars(panel, 14, rows, ["g"] + ["b"] * len(rows))
    faults, right = (max(each[what] for each in content["judges"].values()) for what in ("faults", "right"))
    return Picture(
        f"The share of {faults} kernels with a known fault that each judge finds, all of them without a card. The table says "
        f"how many of {right} right kernels it blames.",
        "Faults found. " + ". ".join(f"{name}: {words}" for name, _, words in rows) + ".",
        [panel],
    )
