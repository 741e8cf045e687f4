"""Kernels that people got wrong, and right ones that look like mistakes: what the tools say of each.

`tests/corpus/manifest.tsv`, and a manifest in any folder below it, has a row for each file:

- `kind`: the mistake, or what might be taken for one; `source`: where it was met.
- `tool`: the command, with its options: `judge --only layouts`.
- `expected`: `faulty` and `right`; `missed` is faulty and not found yet, `blamed` is right and refused as yet.
- `line`: of a faulty file what the verdict must name: a number is a line of the file, anything else a text. If it is
  empty, any line or element will do.
- `card`: why it is left out where kernels are compiled for a GPU; `nightly`: why it isn't tried in `make test`, which
  takes a third of these: the first row of each tool, and every second of the others.
"""

import difflib
import re
from pathlib import Path

import pytest
import triton

from academy.runtime import device
from academy import cli
from benchmarks import corpus

TOOLS = ("judge", "trace", "compile", "simulate")
#: The exit status of a tool.
STATUS = {"faulty": 1, "right": 0, "missed": 1, "blamed": 0}
#: A line of the file, a line that a message mentions, or an element; of a result that is one number, the result; of one
#: that is no memory of its own, the argument.
PLACE = re.compile(r"\.py:\d+|\bline \d+|\[\d+(, \d+)*\]|\bout is \S+, should be |\blies in the memory of \w+")


def names_it(row: corpus.Row, said: str) -> bool:
    if not row.line:
        return PLACE.search(said) is not None
    if row.line.isdecimal():
        return re.search(rf"{re.escape(Path(row.name).name)}:{row.line}\b|\bline {row.line}\b", said) is not None
    return row.line in said


#: Triton 3.9 has none any more.
BLOCK_POINTERS = tuple(map(int, triton.__version__.split(".")[:2])) < (3, 9)
ROWS = corpus.rows()
#: The first row of each command with its options: `make test` tries all of these.
FIRST = {row.tool: row for row in reversed(ROWS) if not row.nightly}


def case(row: corpus.Row):
    marks = [pytest.mark.nightly, pytest.mark.timeout(3600)] if row.nightly else []  # every trial, and mutants
    if ROWS.index(row) % 2 and row is not FIRST.get(row.tool):
        marks.append(pytest.mark.nightly)
    if not device.INTERPRET and row.card:
        marks.append(pytest.mark.skip(reason=row.card))
    if not BLOCK_POINTERS and "make_block_ptr" in row.path.read_text("utf-8"):
        marks.append(pytest.mark.skip(reason="Triton 3.9 has no block pointers any more"))
    if row.expected in ("missed", "blamed"):
        marks.append(pytest.mark.xfail(reason=f"{row.expected}: {row.kind}", raises=AssertionError))
    return pytest.param(row, id=str(row), marks=marks)


@pytest.mark.parametrize("row", list(map(case, ROWS)))
def test_it_is_told_what_it_is(row, capfd):
    status = cli.main([*row.tool.split(), str(row.path)])
    said = "".join(capfd.readouterr())
    assert status == STATUS[row.expected], said
    assert status == 0 or names_it(row, said), said


def test_every_file_has_its_row():
    """Those that others import begin with `helper`."""
    assert {row.name for row in ROWS} == corpus.files()
    assert len({str(row) for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_its_row_is_whole(row):
    assert row.tool.startswith(TOOLS) and row.expected in STATUS and row.kind and row.source


def test_an_edit_is_of_a_whole_file_and_shorter_than_the_rest():
    for name in corpus.files():
        whole = corpus.shown(name)
        if whole.name == "edits.toml":
            lines, of = corpus.path(name).read_text("utf-8").splitlines(), corpus._edits(whole)[Path(name).name]["of"]
            before = whole.with_name(of).read_text("utf-8").splitlines()
            assert difflib.SequenceMatcher(None, before, lines, autojunk=False).ratio() > 0.7, name
            assert lines != before, name


def test_an_edit_is_written_out_with_its_helpers_and_must_fit(monkeypatch, tmp_path):
    monkeypatch.setattr(corpus, "CORPUS", tmp_path / "corpus")
    monkeypatch.setattr(corpus, "MADE", tmp_path / "made")
    (folder := tmp_path / "corpus/last").mkdir(parents=True)
    (folder / "helper_signs.py").write_text("minus = -1\n")
    (folder / "add.py").write_text("a + b + b\n")
    edits = folder / "edits.toml"
    edits.write_text("['subtract.py']\nof = 'add.py'\nedits = [['+ b', '- b'], ['a ', 'a + 0 ']]\n")
    assert corpus.files() == {"last/add.py", "last/subtract.py"}
    assert corpus.shown("last/add.py") == corpus.path("last/add.py") == folder / "add.py"
    assert corpus.shown("last/subtract.py") == edits
    for text, expected in (("a + b + b\n", "a + 0 - b - b\n"), ("a + b\n", "a + 0 - b\n")):
        (folder / "add.py").write_text(text)
        made = corpus.path("last/subtract.py")
        assert made.read_text() == expected and (made.parent / "helper_signs.py").read_text() == "minus = -1\n"
    (folder / "add.py").write_text("a\n")
    with pytest.raises(ValueError, match=r"subtract\.py: add\.py has no '\+ b'"):
        corpus.path("last/subtract.py")
    with pytest.raises(KeyError, match="neither"):
        corpus.path("last/neither.py")
