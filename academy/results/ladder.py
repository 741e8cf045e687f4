"""Ladders: one short kernel a rung, from the naive one to the fast one. They are measured in one run, beside PyTorch.

`annotated_examples/ladders/<name>/` holds the rungs:

| file | is |
|---|---|
| `rung_<number>_<word>.py` | a rung; the last one imports the fast version |
| `tried_<word>.py` | something that was tried and not kept, measured in the same run |

Each file begins with a docstring: a heading with the rung's name, then what was slow, what changes, and what to expect.
It has, or imports, the function that `FUNCTION` of `benchmarks/ladders/<name>.py` names. That file also says what is
measured: `AXES`, `cost`, and `LADDER` with the keys of `BENCH` (see `academy.bench.operation`), of which the first
shape is the one that gains are quoted for.

`academy bench --ladder <name>` writes `benchmarks/results/<device>/ladders/<name>.json`. What was tried before rungs
could be run is in `benchmarks/results/<device>/ladder/`, in entries with `"tried": "<name>"` of any file.

Nothing here needs torch: the site reads rungs and results without it. `academy.bench.ladder_run` measures.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

from academy.book import layout, syntax
from academy.results import figures, store

FOLDER = f"{layout.KERNELS}/ladders"
BENCHMARKS = "benchmarks/ladders"
FILE = re.compile(r"(?:rung_(?P<number>[1-9]\d*)|tried)_(?P<word>\w+)\.py")


@dataclass(frozen=True)
class Rung:
    """A file of a ladder. `number` counts from 1, and is 0 for what was tried and not kept. `about`: Markdown."""

    path: str
    number: int
    word: str
    name: str
    about: str

    @property
    def module(self) -> str:
        return self.path.removesuffix(".py").replace("/", ".")


def names(root: Path) -> list[str]:
    """The ladders that can be measured."""
    return sorted(path.stem for path in (root / BENCHMARKS).glob("*.py"))


def rungs(name: str, root: Path) -> list[Rung]:
    """The rungs from first to last, then what was tried.

    Raises ValueError naming the file: another file is in the folder, a number is missing or there twice, or a file
    lacks its heading.
    """
    found = []
    for path in sorted((root / FOLDER / name).glob("*.py")):
        if path.name == "__init__.py":
            continue
        parts, place = FILE.fullmatch(path.name), path.relative_to(root).as_posix()
        if not parts:
            raise ValueError(f"{place} must be named rung_<number>_<word>.py or tried_<word>.py")
        heading, _, about = (ast.get_docstring(syntax.tree(path.read_text("utf-8"))) or "").partition("\n")
        if not heading.startswith("# ") or not about.strip():
            raise ValueError(f"{place} must begin with a docstring: a heading, then what was slow and what changes")
        found.append(Rung(place, int(parts["number"] or 0), parts["word"], heading[2:].strip(), about.strip()))
    found.sort(key=lambda rung: (rung.number == 0, rung.number))
    numbers = [rung.number for rung in found if rung.number]
    if not numbers or numbers != list(range(1, len(numbers) + 1)):
        raise ValueError(f"{FOLDER}/{name} must have the rungs 1, 2, 3 …, got {numbers}")
    return found


def function_name(name: str, root: Path) -> str:
    """What every rung's function is called. Raises ValueError if `benchmarks/ladders/<name>.py` doesn't say it."""
    path = root / BENCHMARKS / f"{name}.py"
    found = re.search(r'^FUNCTION = "(\w+)"', path.read_text("utf-8") if path.is_file() else "", re.M)
    if not found:
        raise ValueError(f"{BENCHMARKS}/{name}.py must say FUNCTION = the name of every rung's function")
    return found[1]


def sources(name: str, root: Path) -> dict[str, str]:
    """The word of each rung -> hash of its code and of what that builds on."""
    return {rung.word: store.source_hash(root / rung.path, root) for rung in rungs(name, root)}


def stale(record: dict, root: Path) -> list[str]:
    """Names of the rungs whose code isn't what was measured, or that weren't measured."""
    now = sources(record["ladder"], root)
    return [rung.name for rung in rungs(record["ladder"], root) if record["sources"].get(rung.word) != now[rung.word]]


def stale_note(root: Path) -> str:
    """One line on the ladders that have changed since they were measured; "" if there is none."""
    found = [name for name in names(root) if (r := figures.first(root, f"ladders/{name}")) and stale(r, root)]
    if not found:
        return ""
    return f"no error, but measured before a rung last changed: {', '.join(found)} (`academy bench --ladder NAME`)"
