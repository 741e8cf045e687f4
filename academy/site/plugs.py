"""Where other parts of the project add to a page. Each returns HTML, or "" when that part has nothing to say.

The parts are looked up by name and only when needed: a site is served on machines without triton, where the recorder
can't be imported.
"""

from __future__ import annotations

import logging
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from academy import syntax
from academy.cache import kept, question
from academy.site.library import read

ROOT = Path(__file__).resolve().parents[2]
log = logging.getLogger("mkdocs.academy.site")


def recorded_run(path: str) -> str:
    """The viewer of a kernel file's recorded run, for the Run side of the switch: `academy.traces.panel(path)`."""
    return _run(path)[2] if (ROOT / path).is_file() else ""  # recordings are of this project


def no_run() -> str:
    """Why a page has no recorded run, for the reader; "" where runs can be recorded."""
    return "" if find_spec("triton") else "Run is left out: it needs Triton, which is not installed here"


def recorded_data(path: str) -> tuple[str, str]:
    """The data that this viewer loads, and its place under assets/traces: `academy.traces.viewer_script(path)`."""
    place, data, _ = _run(path)
    return place, data


def _run(path: str) -> list[str]:
    """A recorded run's data, its place, and its panel: made together, from one reading of the recording."""
    data, panel = _find("academy.traces", "viewer_script"), _find("academy.traces", "panel")

    def made() -> list[str]:
        _depend_on_kernel(path)
        return [*data(path), panel(path) or ""]

    return kept("run", [path], made) if data and find_spec("triton") else ["", "", ""]


def recorded_number(key: str) -> tuple[str, str, int, str] | None:
    """A recorded number, its file, line and moment: `academy.traces.number(key)`. None where triton is missing.

    Raises ValueError for a key that stands for nothing.
    """
    number = _find("academy.traces", "number") if find_spec("triton") else None
    path = f"annotated_examples/{key.partition(':')[0].strip().removesuffix('.py')}.py"
    if number and (ROOT / path).is_file():
        _depend_on_kernel(path)
    return number(key) if number else None


def _depend_on_kernel(path: str) -> None:
    """A recorded run depends on the kernel file and those that it imports."""
    for file in _find("academy.traces.store", "built_on")(ROOT / path):
        read(file)


def check_mark(path: str, tex: str, tag: str | None) -> str:
    """What was checked about a display equation of a derivation: `academy.formulas.mark(path, tex, tag)`."""

    def made() -> str:
        _depend_on_report(path)
        mark = _find("academy.formulas", "mark")
        return (mark(path, tex, tag) or "") if mark else ""

    return kept("mark", [path, tex, tag], made) if (ROOT / path).is_file() else ""


def verified(home) -> list[str]:
    """Markdown for the table of all that is verified: `academy.formulas.reports.table`. `home(tag)` gives a link."""
    table = _find("academy.formulas.reports", "table")
    for path in sorted((ROOT / "backprop_math").glob("*.md")):
        _depend_on_report(path.relative_to(ROOT).as_posix())
    return table(home=home) if table else []


def _depend_on_report(path: str) -> None:
    """What was checked depends on the derivation and on its case file."""
    sources = _find("academy.formulas.reports", "sources")
    for file in sources(path, ROOT) if sources else [ROOT / path]:
        read(file)


@question
def measured(key: str) -> str | None:
    """A measured number as text, from the committed results: `academy.bench.measured(key)`. None for an unknown key."""
    number = _find("academy.bench", "measured")
    return number(key) if number else None


def results(operation: str | None, store) -> list[str]:
    """Markdown of an operation's results, or of all: `academy.bench.page(name)`, `academy.bench.summary()`.

    Their pieces are Markdown or finished HTML (`academy.bench.pages.Html`); `store(html)` returns a placeholder for it.
    """
    _results_read(operation or "")
    page = _find("academy.bench", "page" if operation else "summary")
    html = _find("academy.bench.pages", "Html")
    if not page:
        return ["", "*Results are not shown here: the part that draws them is missing.*", ""]
    pieces = page(operation) if operation else page()
    lines: list[str] = []
    for piece in pieces:
        lines += ["", store(str(piece)), ""] if html and isinstance(piece, html) else piece.split("\n")
    return lines


@question
def _results_read(operation: str) -> list[str]:
    """What an operation's results are drawn from, or those of all: the committed files, and the kernels' code, which
    tells whether they are still true."""
    files = sorted((ROOT / "benchmarks/results").rglob(f"{operation or '*'}.json"))
    for kernel in sorted((ROOT / "annotated_examples").rglob(f"{operation or '*'}.py")):
        files += [kernel, *syntax.imported_kernels(read(kernel), ROOT)]
    return [f"{path}: {read(path)}" for path in files]


@cache
def _find(module: str, name: str):
    from importlib import import_module

    try:
        return getattr(import_module(module), name, None)
    except ModuleNotFoundError as error:
        log.info("%s is left out of the pages: %s is not installed here", module, error.name)
        return None
