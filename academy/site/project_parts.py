"""What other parts of the project add to a page: recorded runs, check marks, measured numbers, results.

They are imported only when they are needed, for the site is built on machines without triton too. What takes long is
kept (`academy.cache`) under the text of all files that it is made from.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from academy import syntax
from academy.cache import kept, made_by
from academy.site.texts import read

ROOT = Path(__file__).resolve().parents[2]
HERE = "site/project_parts.py"
RECORDER = [HERE, "traces", "device.py", "checks.py", "interpreter.py", "libdevice.py"]
RECORDER += ["package:triton", "package:torch", "package:numpy"]


def no_run() -> str:
    """Why pages have no recorded run, for the reader; "" where runs can be recorded."""
    return "" if find_spec("triton") else "Run is left out: it needs Triton, which is not installed here"


def recorded_run(path: str) -> tuple[str, str, str]:
    """The viewer of a kernel file's recorded run, the data that it loads, and its place under assets/traces."""
    if no_run() or not (ROOT / path).is_file():  # recordings are of this project
        return "", "", ""

    def made() -> list[str]:
        from academy import traces

        panel = traces.panel(path)
        return [panel, *reversed(traces.viewer_script(path))] if panel else []

    return tuple(kept("run", [path, *_texts(path), made_by(*RECORDER)], made)) or ("", "", "")


def recorded_number(key: str) -> tuple[str, str, int, str] | None:
    """A recorded number, its file, line and moment: `academy.traces.number(key)`. None where triton is missing.

    Raises ValueError for a key that stands for nothing.
    """
    if no_run():
        return None

    def made() -> list:
        from academy import traces

        return list(traces.number(key))

    path = f"annotated_examples/{key.partition(':')[0].strip().removesuffix('.py')}.py"
    return tuple(kept("number", [key, *_texts(path), made_by(*RECORDER)], made))


def _texts(path: str) -> list[str]:
    """The text of a kernel file and of those that it builds on."""
    found = [ROOT / path] if (ROOT / path).is_file() else []
    for file in found:  # grows while it is walked
        found += [other for other in syntax.imported_kernels(read(file), ROOT) if other not in found]
    return [read(file) for file in found]


def check_mark(path: str, tex: str, tag: str | None) -> str:
    """What was checked about a display equation of a derivation, as HTML: `academy.formulas.mark(path, tex, tag)`."""
    if not (ROOT / path).is_file():
        return ""

    def made() -> str:
        from academy.formulas import reports

        return reports.mark(path, tex, tag)

    return kept(
        "mark", [path, tex, tag, *_checked(path), made_by("formulas", HERE)], made, keep=lambda _: _holds([path])
    )


def verified(home) -> list[str]:
    """Markdown for the table of all that is verified: `academy.formulas.reports.table`. `home(tag)` gives a link."""
    pages = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "backprop_math").glob("*.md"))]

    def made() -> list[str]:
        from academy.formulas import reports

        return reports.table(home=home)

    texts = [text for path in pages for text in _checked(path)]
    return kept("verified", [texts, made_by("formulas", HERE)], made, keep=lambda _: _holds(pages))


def _holds(pages: list[str]) -> bool:
    """Whether nothing is wrong with these derivations: a warning about one is said again in every build."""
    from academy.formulas import reports

    return not any(reports.report(path).problem for path in pages)


def _checked(path: str) -> list[str]:
    """What a derivation's report is made from: its text and its case file."""
    cases = ROOT / "tests/formulas/cases" / f"{Path(path).stem}.py"
    return [read(file) for file in (ROOT / path, cases) if file.is_file()]


def measured(key: str) -> str | None:
    """A measured number as text, from the committed results: `academy.bench.measured(key)`. None for an unknown key."""
    from academy import bench

    return bench.measured(key)


def results(operation: str) -> list[str]:
    """An operation's committed results, or ("") all: Markdown, and finished HTML (`academy.bench.pages.Html`)."""
    from academy.bench import pages, store

    def made() -> list[list]:
        pieces = pages.operation(operation, ROOT) if operation else pages.summary(ROOT)
        return [[isinstance(piece, pages.Html), piece] for piece in pieces]

    files = sorted((ROOT / "benchmarks/results").rglob(f"{operation or '*'}.json"))
    benchmarks = [file for file in store.benchmark_files(ROOT) if operation in ("", file.stem)]
    kernels = [path for file in benchmarks for path in store.kernel_files(file).values()]
    texts = [*map(read, [*files, *benchmarks]), *(text for path in dict.fromkeys(kernels) for text in _texts(path))]
    key = [operation, [str(file) for file in files], texts, made_by("bench", "package:matplotlib", HERE)]
    found = kept("results", key, made)
    return [pages.Html(piece) if finished else piece for finished, piece in found]
