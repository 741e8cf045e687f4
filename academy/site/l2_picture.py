"""The picture of L2 reuse: which blocks of X and Y the first programs of a product X · Y load, counted and drawn.

It is given the order of the programs, as a kernel's own index function computes it, for example
`matmul_grouped.program_order(9, 9, GROUP_M=3)`. Nothing here knows how that order comes about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import product

#: Side of a block in the drawing, gap between matrices, height of the lines of text (SVG units).
SIDE, GAP, LINE = 22, 34, 20
FILLS = {
    "": 'fill="none"',
    "x": 'fill="var(--fig-a, #e0993f)" fill-opacity="0.8"',
    "y": 'fill="var(--fig-b, #5b9bd5)" fill-opacity="0.8"',
    "computed": 'fill="var(--fig-g, #3f9b6d)" fill-opacity="0.8"',
}


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

    The text takes the colour of the page around it, the fills are those of this site's pictures; elsewhere they are
    colours that can be told apart on a light and on a dark ground.
    """
    running = _running(order, programs, blocks_k)
    loads = count(order, programs, blocks_k)
    rows, columns = (1 + max(block[axis] for block in order) for axis in (0, 1))
    loaded_rows, loaded_columns = ({block[axis] for block in running} for axis in (0, 1))

    # X stands left of the result, Y above it: a block of the result is where its row and its column meet.
    left, top = 1 + blocks_k * SIDE + GAP, 3 * LINE + blocks_k * SIDE + GAP
    drawing = [
        *_matrix("X", 1, top, rows, blocks_k, lambda row, _: "x" if row in loaded_rows else ""),
        *_matrix("Y", left, 3 * LINE, blocks_k, columns, lambda _, column: "y" if column in loaded_columns else ""),
        *_matrix("result", left, top, rows, columns, lambda *block: "computed" if block in running else ""),
    ]
    for (row, column), number in sorted((block, number) for number, block in enumerate(order)):
        x, y = left + (column + 0.5) * SIDE, top + (row + 0.5) * SIDE + 4.5
        drawing.append(f'<text x="{x:g}" y="{y:g}" text-anchor="middle" font-size="13">{number}</text>')
    width, height = left + columns * SIDE + 1, top + rows * SIDE + 1
    summary = f"The first {programs} programs load {loads.left} tiles of X and {loads.right} of Y."
    return "\n".join(
        [
            f'<svg class="l2-picture" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" aria-label="{escape(f"{title}. {summary}", quote=True)}" '
            'style="max-width: 100%; height: auto" font-family="inherit" font-size="14" fill="currentColor">',
            f'<text x="1" y="{LINE - 5}" font-weight="600">{escape(title)}</text>',
            f'<text x="1" y="{2 * LINE - 5}">{loads.left} + {loads.right} = {loads.total} tiles loaded</text>',
            *drawing,
            "</svg>",
        ]
    )


def _matrix(name: str, left: int, top: int, rows: int, columns: int, kind: Callable[[int, int], str]) -> Iterator[str]:
    """Its name and its blocks, filled according to their kind."""
    yield f'<text x="{left}" y="{top - 5}" font-style="italic">{name}</text>'
    for row, column in product(range(rows), range(columns)):
        fill = FILLS[kind(row, column)]
        place = f'x="{left + column * SIDE}" y="{top + row * SIDE}" width="{SIDE}" height="{SIDE}"'
        yield f'<rect {place} {fill} stroke="currentColor" stroke-opacity="0.45"/>'


def _running(order: Sequence[tuple[int, int]], programs: int, blocks_k: int) -> set[tuple[int, int]]:
    if not 1 <= programs <= len(order):
        raise ValueError(f"programs must be between 1 and {len(order)}, the number of blocks, got {programs}")
    if blocks_k < 1:
        raise ValueError(f"blocks_k must be at least 1, got {blocks_k}")
    if len(set(order)) != len(order):
        raise ValueError("order names a block twice: each must be the work of one program")
    return set(order[:programs])
