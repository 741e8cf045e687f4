"""The picture of L2 reuse: counted from the order that a kernel's own index function gives, and drawn from that."""

import functools
import xml.etree.ElementTree as ElementTree

import pytest

from academy.site import l2_picture
from annotated_examples.common import tile_order
from annotated_examples.tutorials import matmul_grouped as lesson
from tests.kernels import harness, matmul_cases
from tests.kernels.harness import Mutant


def order(module, rows, columns, group):
    """The order by the `grouped_order` of a module."""
    return matmul_cases.program_order(module.grouped_order, rows, columns, group)


def check(program_order):
    """9 x 9 blocks: a row of nine programs loads 90 blocks, a square of 3 x 3 loads 54."""
    plain, grouped = (l2_picture.count(program_order(9, 9, group), 9, 9) for group in (1, 3))
    assert (plain.left, plain.right, plain.total) == (9, 81, 90)
    assert (grouped.left, grouped.right, grouped.total) == (27, 27, 54)
    tiles = program_order(9, 9, 4)  # 9 rows in groups of 4: the last group has one row
    assert sorted(tiles) == [(m, n) for m in range(9) for n in range(9)]


def test_the_numbers_of_the_lesson():
    check(lesson.program_order)
    check(functools.partial(order, tile_order))


@pytest.mark.parametrize(("rows", "columns", "group"), [(8, 4, 3), (9, 9, 3), (1, 7, 4), (7, 1, 2), (5, 3, 8)])
def test_every_tile_is_computed_once(rows, columns, group):
    assert sorted(lesson.program_order(rows, columns, group)) == [(m, n) for m in range(rows) for n in range(columns)]


def test_rows_and_columns_stored_in_each_others_place(tmp_path):
    mutant = Mutant(
        "rows and columns exchanged",
        "2 * pid, pid_m)",
        "2 * pid, pid_n)",
        error="ValueError: order names a block twice",
    )
    harness.assert_caught(lesson, mutant, lambda broken: check(broken.program_order), tmp_path)


def test_group_of_one_is_row_by_row():
    assert lesson.program_order(3, 4, 1) == [(m, n) for m in range(3) for n in range(4)]


@pytest.mark.parametrize(
    ("rows", "columns", "group", "programs", "blocks_k"), [(9, 9, 3, 9, 9), (5, 8, 4, 11, 3), (1, 1, 8, 1, 1)]
)
def test_the_drawing_shows_what_was_counted(rows, columns, group, programs, blocks_k):
    order = lesson.program_order(rows, columns, group)
    counted = l2_picture.count(order, programs, blocks_k)
    drawing = ElementTree.fromstring(l2_picture.draw(order, programs, blocks_k, "Grouped <order>"))
    space = "{http://www.w3.org/2000/svg}"
    squares = drawing.findall(f"{space}rect")
    assert len(squares) == rows * blocks_k + blocks_k * columns + rows * columns
    filled = [square.get("fill") for square in squares]
    assert sum("--fig-a" in fill for fill in filled) == counted.left
    assert sum("--fig-b" in fill for fill in filled) == counted.right
    assert sum("--fig-g" in fill for fill in filled) == programs
    texts = [text.text for text in drawing.findall(f"{space}text")]
    assert "Grouped <order>" in texts and f"{counted.left} + {counted.right} = {counted.total} tiles loaded" in texts
    assert [int(text) for text in texts if text.isdigit()] == [
        order.index((m, n)) for m in range(rows) for n in range(columns)
    ]
    width, height = (float(v) for v in drawing.get("viewBox").split()[2:])
    for square in squares:
        assert 0 <= float(square.get("x")) <= width - l2_picture.SIDE
        assert 0 <= float(square.get("y")) <= height - l2_picture.SIDE


def test_colours_follow_the_page():
    drawing = l2_picture.draw(lesson.program_order(2, 2, 1), 2, 2, "Row by row")
    assert 'fill="currentColor"' in drawing and "var(--fig-a" in drawing and "#000" not in drawing


TWO = lesson.program_order(2, 2, 1)
test_bad_arguments = harness.raises_test(
    [
        (lambda: l2_picture.count(TWO, 5, 2), ValueError, "programs must be between 1 and 4"),
        (lambda: l2_picture.count(TWO, 2, 0), ValueError, "blocks_k must be at least 1"),
        (lambda: l2_picture.count(TWO * 2, 2, 2), ValueError, "names a block twice"),
    ]
)
