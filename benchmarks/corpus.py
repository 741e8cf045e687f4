"""The kernels of `tests/corpus`, whose `README.md` says how they are written: whole files, and edits of them."""

from __future__ import annotations

import csv
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path

from academy.files.textfiles import write_text

ROOT = Path(__file__).resolve().parents[1]
CORPUS = ROOT / "tests/corpus"
#: Where edits are written out: git doesn't look there.
MADE = ROOT / ".cache/corpus"
#: Of a manifest without these columns: kernels that were written and listed before a tool had seen them. Its lines say
#: where the mistake is, whichever element shows it.
OUTSIDE = {"line": "", "card": "", "nightly": "every trial of many kernels"}


@dataclass(frozen=True)
class Row:
    """A line of a manifest. name: the file, below `tests/corpus`."""

    name: str
    kind: str
    source: str
    tool: str
    expected: str
    line: str
    card: str
    nightly: str

    def __str__(self) -> str:
        return f"{Path(self.name).with_suffix('')} {self.tool}"

    @property
    def path(self) -> Path:
        return path(self.name)

    @property
    def faulty(self) -> bool:
        return self.expected in ("faulty", "missed")

    @property
    def groups(self) -> str:
        """Of `academy judge`, what decides; empty: all of them."""
        return self.tool.partition(" --only ")[2]


def rows() -> list[Row]:
    found = []
    for manifest in sorted(CORPUS.rglob("manifest.tsv")):
        folder = manifest.parent.relative_to(CORPUS)
        with manifest.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
                row = row if "nightly" in row else row | OUTSIDE
                rest = (row[field.name] or "" for field in fields(Row)[1:])
                found.append(Row((folder / row["file"]).as_posix(), *rest))
    return found


def files() -> set[str]:
    """Of all kernels, whole files and edits."""
    whole = {each for each in CORPUS.rglob("*.py") if not each.name.startswith("helper")}
    edits = {each.parent / name for each in CORPUS.rglob("edits.toml") for name in _edits(each)}
    return {each.relative_to(CORPUS).as_posix() for each in whole | edits}


def path(name: str) -> Path:
    """The file of a kernel, by its name below `tests/corpus`. An edit is written out, with the folder's helpers beside
    it. Raises KeyError if there is neither, ValueError where the edit doesn't fit."""
    whole = CORPUS / name
    if whole.is_file():
        return whole
    made = MADE / name
    texts = {each.name: each.read_text("utf-8") for each in whole.parent.glob("helper*.py")}
    for beside, text in (texts | {made.name: edited(whole)}).items():
        place = made.with_name(beside)
        if not place.is_file() or place.read_text("utf-8") != text:
            place.parent.mkdir(parents=True, exist_ok=True)
            write_text(place, text)
    return made


def edited(whole: Path) -> str:
    """The text of an edit: of another file, with each old text replaced by the new one wherever it stands."""
    edit = _edits(whole.with_name("edits.toml"))[whole.name]
    text = whole.with_name(edit["of"]).read_text("utf-8")
    for old, new in edit["edits"]:
        if old not in text:
            raise ValueError(f"{whole.name}: {edit['of']} has no {old!r}")
        text = text.replace(old, new)
    return text


def shown(name: str) -> Path:
    """Where a kernel is written, to be linked: its file, or the table of edits."""
    return whole if (whole := CORPUS / name).is_file() else whole.with_name("edits.toml")


def _edits(file: Path) -> dict[str, dict]:
    return tomllib.loads(file.read_text("utf-8")) if file.is_file() else {}
