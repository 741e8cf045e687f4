"""Kernels that people got wrong, and right ones that look like mistakes: what the tools say of each.

`tests/corpus/manifest.tsv`, and a manifest in any folder below it, has a row for each file:

- `kind`: the mistake, or what might be taken for one; `source`: where it was met.
- `tool`: the command, with its options: `judge --only layouts`.
- `expected`: `faulty` and `right`; `missed` is faulty and not found yet, `blamed` is right and refused as yet.
- `line`: of a faulty file what the verdict must name: a number is a line of the file, anything else a text. If it is
  empty, any line or element will do.
- `card`: why it is left out where kernels are compiled for a GPU; `nightly`: why it isn't tried in `make test`.
"""

import csv
import re
from dataclasses import dataclass, fields
from pathlib import Path

import pytest
import triton

from academy.runtime import device
from academy import cli

CORPUS = Path(__file__).resolve().parents[1] / "corpus"
TOOLS = ("judge", "trace", "compile", "simulate", "exercise check")
#: The exit status of a tool.
STATUS = {"faulty": 1, "right": 0, "missed": 1, "blamed": 0}
#: A line of the file, a line that a message mentions, or an element; of a result that is one number, the result.
PLACE = re.compile(r"\.py:\d+|\bline \d+|\[\d+(, \d+)*\]|\bout is \S+, should be ")


@dataclass(frozen=True)
class Row:
    path: Path
    kind: str
    source: str
    tool: str
    expected: str
    line: str
    card: str
    nightly: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(CORPUS).with_suffix('')} {self.tool}"

    def names(self, said: str) -> bool:
        if not self.line:
            return PLACE.search(said) is not None
        if self.line.isdecimal():
            return re.search(rf"{re.escape(self.path.name)}:{self.line}\b|\bline {self.line}\b", said) is not None
        return self.line in said


def rows() -> list[Row]:
    found = []
    for manifest in sorted(CORPUS.rglob("manifest.tsv")):
        with manifest.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
                row = row if "nightly" in row else row | OUTSIDE
                found.append(Row(manifest.parent / row["file"], **{name: row[name] or "" for name in COLUMNS}))
    return found


#: Of a manifest without these columns: kernels that were written and listed before a tool had seen them. Its lines say
#: where the mistake is, whichever element shows it.
OUTSIDE = {"line": "", "card": "", "nightly": "every trial of many kernels"}
#: Triton 3.9 has none any more.
BLOCK_POINTERS = tuple(map(int, triton.__version__.split(".")[:2])) < (3, 9)
COLUMNS = [field.name for field in fields(Row)][1:]
ROWS = rows()


def case(row: Row):
    marks = [pytest.mark.nightly, pytest.mark.timeout(3600)] if row.nightly else []  # every trial, and mutants
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
    assert status == 0 or row.names(said), said


def test_every_file_has_its_row():
    """Those that others import begin with `helper`."""
    files = {path for path in CORPUS.rglob("*.py") if not path.name.startswith("helper")}
    assert {row.path for row in ROWS} == files
    assert len({str(row) for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_its_row_is_whole(row):
    assert row.tool.startswith(TOOLS) and row.expected in STATUS and row.kind and row.source
