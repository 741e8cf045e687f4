"""Eight-bit floats: which codes there are, and what a scale for a larger group loses."""

import math

from draw import Panel, Picture, picture

ROWS, COLUMNS, GROUP = 8, 12, 4


def _numbers():
    """Rows from 1 down to a millionth, and one outlier."""
    import torch

    sizes = torch.logspace(0, -6, ROWS)[:, None]
    numbers = sizes * torch.tensor([[math.sin(3.0 * r + 1.7 * c + 0.4) for c in range(COLUMNS)] for r in range(ROWS)])
    numbers[2, 9] = 10_000.0
    return numbers


@picture
def granularity():
    from annotated_examples.fp8.quantize import quantize_fp8_reference

    numbers, panels, words = _numbers(), [], []
    for name in ("tensor", "row", "1x128", "128x128"):
        codes, scale = quantize_fp8_reference(numbers, name, GROUP=GROUP)
        lost = codes.float() == 0
        panel = Panel(244, f"{name.replace('128', str(GROUP))}: {scale.numel()} scale{'s' * (scale.numel() > 1)}")
        panel.cells(
            36, 34, ROWS, COLUMNS, (24, 21),
            lambda r, c, lost=lost: "a" if lost[r, c] else "b",
            lambda r, c, lost=lost: "0" if lost[r, c] else "",
        )  # fmt: skip
        height, width = {"tensor": (ROWS, COLUMNS), "row": (1, COLUMNS), "1x128": (1, GROUP)}.get(name, (GROUP, GROUP))
        for row in range(0, ROWS, height):
            for column in range(0, COLUMNS, width):
                panel.box(36 + 24 * column, 34 + 21 * row, 24 * width, 21 * height, "strong")
        total = int(lost.sum())
        panel.text(36, 226, f"{total} of {lost.numel()} numbers become 0", "small")
        panels.append(panel)
        words.append(f"{name.replace('128', str(GROUP))}: {scale.numel()} scales, {total} of {lost.numel()} become 0")
    return Picture(
        "Rows from 1 at the top to a millionth at the bottom, and an outlier of 10000 in the third. Each frame has one scale, in "
        f"e4m3; blocks are drawn {GROUP} wide. Amber became zero.",
        f"A matrix of {ROWS} x {COLUMNS} whose rows are smaller from top to bottom, with one outlier, quantized to e4m3. "
        + "; ".join(words) + ".",
        panels,
    )  # fmt: skip


@picture
def codes():
    """The numbers of both formats around one, and where they end."""
    import torch

    panels, words = [], []
    for name, dtype in (("e4m3", torch.float8_e4m3fn), ("e5m2", torch.float8_e5m2)):
        numbers = torch.arange(256, dtype=torch.uint8).view(dtype).float()
        numbers = numbers[numbers.isfinite() & (numbers >= 0)].unique().tolist()
        panel = Panel(150, f"{name}: {len(numbers) - 1} numbers above zero")
        at = lambda value: 24 + 312 * value / 4  # noqa: E731
        panel.line([(24, 78), (336, 78)])
        shown = [value for value in numbers if value <= 4]
        for value in shown:
            panel.line([(at(value), 62 if math.log2(value or 1).is_integer() else 68), (at(value), 78)], "b")
        for value in (0, 1, 2, 4):
            panel.text(at(value), 98, f"{value}", "small", "middle")
        normal, least = torch.finfo(dtype).tiny, numbers[1]
        panel.text(24, 122, f"largest {numbers[-1]:g}, smallest normal {normal:.3g},", "small")
        panel.text(24, 140, f"smallest of all {least:.3g}; {len(shown)} lie from 0 to 4", "small")
        panels.append(panel)
        words.append(
            f"{name} has {len(numbers) - 1} numbers above zero, from {least:.3g} to {numbers[-1]:g}, normal ones from "
            f"{normal:.3g}; {len(shown)} of them lie from 0 to 4, half as dense from 2 to 4 as from 1 to 2"
        )
    return Picture(
        "All numbers of each format from 0 to 4. At each power of two the distance doubles. e5m2 has half as many in each "
        "interval, and reaches a hundred times further.",
        "; ".join(words) + ".",
        panels,
    )
