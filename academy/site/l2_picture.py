"""The picture of L2 reuse: which blocks of X and Y the first programs of a product X · Y load, counted and drawn.

It is handed the order of the programs, as a kernel's own index function computes it, for example
`matmul_grouped.program_order(9, 9, GROUP_M=3)`. Nothing here knows how that order comes about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

#: Side of a block in the drawing, gap between matrices, height of the lines of text (SVG units).
SIDE, GAP, LINE = 22, 34, 20


@dataclass(frozen=True)
class Loads:
    """Distinct blocks that some programs load: of the left factor, of the right factor, and together."""

    left: int
    right: int

    @property
    def total(self) -> int:
        return self.left + self.right


def count(order: Sequence[tuple[int, int]], programs: int, blocks_k: int) -> Loads:
    """Distinct blocks that the first `programs` of `order` need.

    Args:
        order: for each program the row and the column of its block of the result.
        programs: how many run at the same time.
        blocks_k: number of blocks along the inner dimension. A program needs all of them, from its row of the left
            factor and from its column of the right one.
    """
    running = _running(order, programs, blocks_k)
    return Loads(len({row for row, _ in running}) * blocks_k, len({column for _, column in running}) * blocks_k)


def draw(order: Sequence[tuple[int, int]], programs: int, blocks_k: int, title: str) -> str:
    """An SVG of X, Y and the result: filled what the first `programs` load and compute, numbered as they run.

    The text takes the colour of the page around it. `--l2-loaded` and `--l2-computed` set the two fills; without them
    it draws in colours that can be told apart on a light and on a dark ground.
    """
    running = _running(order, programs, blocks_k)
    loads = count(order, programs, blocks_k)
    rows, columns = (1 + max(block[axis] for block in order) for axis in (0, 1))
    loaded_rows, loaded_columns = ({block[axis] for block in running} for axis in (0, 1))

    # X stands left of the result, Y above it: a block of the result is where its row and its column meet.
    x_left, result_left = 1, 1 + blocks_k * SIDE + GAP
    y_top = 2 * LINE + LINE
    result_top = y_top + blocks_k * SIDE + GAP
    width, height = result_left + columns * SIDE + 1, result_top + rows * SIDE + 1
    numbers = {block: number for number, block in enumerate(order)}
    summary = f"The first {programs} programs load {loads.left} blocks of X and {loads.right} of Y."

    parts = [
        f'<svg class="l2-picture" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" aria-label="{escape(f"{title}. {summary}", quote=True)}" '
        'style="max-width: 100%; height: auto" font-family="inherit" font-size="13" fill="currentColor">',
        f'<text x="1" y="{LINE - 5}" font-weight="600">{escape(title)}</text>',
        f'<text x="1" y="{2 * LINE - 5}">{loads.left} + {loads.right} = {loads.total} blocks loaded</text>',
        _name("X", x_left, result_top),
        _name("Y", result_left, y_top),
        _name("result", result_left, result_top),
    ]
    for row in range(rows):
        for k in range(blocks_k):
            parts.append(_square(x_left + k * SIDE, result_top + row * SIDE, "loaded" if row in loaded_rows else None))
    for k in range(blocks_k):
        for column in range(columns):
            fill = "loaded" if column in loaded_columns else None
            parts.append(_square(result_left + column * SIDE, y_top + k * SIDE, fill))
    for row in range(rows):
        for column in range(columns):
            x, y, block = result_left + column * SIDE, result_top + row * SIDE, (row, column)
            parts.append(_square(x, y, "computed" if block in running else None))
            parts.append(
                f'<text x="{x + SIDE / 2:g}" y="{y + SIDE / 2 + 3.5:g}" text-anchor="middle" font-size="10">'
                f"{numbers[block]}</text>"
            )
    return "\n".join([*parts, "</svg>"])


def _running(order: Sequence[tuple[int, int]], programs: int, blocks_k: int) -> set[tuple[int, int]]:
    if not 1 <= programs <= len(order):
        raise ValueError(f"programs must be between 1 and {len(order)}, the number of blocks, got {programs}")
    if blocks_k < 1:
        raise ValueError(f"blocks_k must be at least 1, got {blocks_k}")
    if len(set(order)) != len(order):
        raise ValueError("order names a block twice: each must be the work of one program")
    return set(order[:programs])


def _name(text: str, x: float, y: float) -> str:
    return f'<text x="{x}" y="{y - 5}" font-style="italic">{text}</text>'


_FILLS = {"loaded": "var(--l2-loaded, #e0993f)", "computed": "var(--l2-computed, #5b9bd5)"}


def _square(x: float, y: float, fill: str | None) -> str:
    style = f'fill="{_FILLS[fill]}" fill-opacity="0.55"' if fill else 'fill="none"'
    return f'<rect x="{x}" y="{y}" width="{SIDE}" height="{SIDE}" {style} stroke="currentColor" stroke-opacity="0.45"/>'
