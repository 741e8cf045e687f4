"""The live cells of chapters, as texts that run by themselves."""

import jupytext
import pytest

pytest.importorskip("triton")
from academy.book import layout
from academy.playground import run
from academy.site import change_it
from tests.site.conftest import ROOT

CELLS = {chapter.stem: jupytext.read(chapter).cells for chapter in layout.chapters(ROOT)}
LIVE = {name: (cells, i) for name, cells in CELLS.items() for i, cell in enumerate(cells) if change_it.is_live(cell)}


def test_some_chapters_have_one():
    assert {"first_kernel", "softmax", "tiles_and_pointers", "attention", "random_numbers", "reductions"} <= set(LIVE)


@pytest.mark.parametrize("name", LIVE)
def test_a_live_cell_runs_by_itself(name, tmp_path):
    """With what it needs of the cells above, and shows what the notebook's cells show."""
    cells, place = LIVE[name]
    text = change_it.text(cells, place)
    found = run.run(tmp_path / f"{name}.py", text)
    assert found["state"] == "passed", found["problems"]
    assert found["picture"] or found["printed"].strip()
    assert "import subprocess" not in text and "academy.bench" not in text and len(text.split("\n")) < 80
    assert cells[place].source.strip() in text


def test_only_what_is_needed_comes_along():
    cells, place = LIVE["softmax"]
    text = change_it.text(cells, place)
    assert "import math" in text, "a comment offers -math.inf"
    assert "def row_softmax(" in text and "def row_softmax_kernel(" in text and "\nexponentials" not in text
    with pytest.raises(ValueError, match="no cell of code after it"):
        change_it.text(cells[: place + 1], place)
