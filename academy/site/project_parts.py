"""What other parts of the project add to a page: recorded runs, check marks, measured numbers, results.

They are imported only when they are needed, for the site is built on machines without triton too. What takes long is
kept (`academy.files.cache`) under the text of all files that it is made from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from academy.book import facts, layout, syntax
from academy.book.layout import ROOT
from academy.book.tex import bare
from academy.book.texts import digest
from academy.files.cache import kept
from academy.files.dependencies import made_by
from academy.results import ladder as ladders
from academy.results import overview, pages
from academy.results import training as trained
from academy.results.tables import Html
from academy.site import background, ladder_page, taught_before_used
from academy.site.library import Library

#: What makes each kind of part, besides this file: see `academy.files.dependencies.made_by`.
RECORDER = ["academy.traces.page", "academy.traces.worker"]
CHECKER = ["academy.formulas.verify"]
RESULTS = ["academy.results.pages"]
TRAINING = ["academy.results.training"]
LADDERS = ["academy.results.ladder", "academy.site.ladder_page"]


def _recorder():
    from academy.traces import page

    return page


def _reports():
    from academy.formulas import reports

    return reports


def no_run() -> str:
    """Why pages have no recorded run, for the reader; "" where runs can be recorded."""
    return "" if find_spec("triton") else "The recorded run is left out: it needs Triton, which is not installed here"


def recorded_run(path: str) -> tuple[str, str, str]:
    """The viewer of a kernel file's recorded run, the data that it loads, and its place under assets/traces."""
    if no_run() or not (ROOT / path).is_file():  # recordings are of this project
        return "", "", ""
    return tuple(_kept("run", [path], _built_on(path), RECORDER, lambda: _recorder().run(path))) or ("", "", "")


def recorded_number(key: str) -> tuple[str, str, int, str] | None:
    """A recorded number, its file, line and moment: `academy.traces.page.number(key)`. None where triton is missing.

    Raises ValueError for a key that stands for nothing.
    """
    if no_run():
        return None
    path = layout.module_path(ROOT, layout.dotted(key.partition(":")[0].strip())).relative_to(ROOT).as_posix()
    return tuple(_kept("number", [key], _built_on(path), RECORDER, lambda: _recorder().number(key)))


def check_mark(path: str, tex: str, tag: str | None) -> str:
    """What was checked about a display equation of a derivation, as HTML; where nothing was, a warning is logged."""
    if not (ROOT / path).is_file():
        return ""
    background.answer("marks", path)
    found = {(each, of): mark for each, of, mark in marks(path)}
    return found.get((bare(tex), tag)) or found.get((bare(tex), None)) or _reports().unmarked(path, tex)


def marks(path: str) -> list[list]:
    """What was checked about each display equation of a derivation: `academy.formulas.reports.marks`."""
    return _kept("marks", [path], _checked([path]), CHECKER, lambda: _reports().marks(path))


def verified(library: Library) -> list[str]:
    """Markdown for the table of all that is verified: `academy.formulas.reports.table`."""
    background.answer("verified", library.docs)
    paths = [path.relative_to(ROOT).as_posix() for path in layout.derivations(ROOT)]

    def holds(_) -> bool:
        """Whether nothing is wrong with these derivations: a warning about one is said again in every build."""
        return not any(_reports().report(path).problem for path in paths)

    return _kept("verified", [], _checked(paths), CHECKER, lambda: _reports().table(home=library.home), holds)


def results(operation: str) -> list[str]:
    """An operation's committed results, or ("") all: Markdown, and finished HTML (`academy.results.tables.Html`)."""
    background.answer("results", operation)
    files = sorted((ROOT / layout.RESULTS).rglob(f"{operation or '*'}.json"))
    measuring = [file for file in facts.measured(ROOT) if operation in ("", file.stem)]
    kernels = [path for file in measuring for path in facts.kernels(file).values()]
    shown = [*files, *measuring, *map(facts.axes_home, measuring), *_built_on(*kernels)]
    key = [operation, [str(file) for file in files]]
    made = partial(pages.operation, operation, ROOT) if operation else partial(overview.summary, ROOT)
    return _kept_pieces("results", key, shown, RESULTS, made)


def ladder(name: str) -> list[str]:
    """A ladder, rung by rung: `academy.site.ladder_page.pieces`. Raises ValueError if something is wrong with it."""
    background.answer("ladder", name)
    files = [*layout.results(ROOT, "ladder/*"), *layout.results(ROOT, f"ladders/{name}")]
    file = ROOT / ladders.BENCHMARKS / f"{name}.py"
    files += [file, facts.axes_home(file)] if file.is_file() else [file]
    shown = [*files, *_built_on(*(rung.path for rung in ladders.rungs(name, ROOT)))]
    key = [name, [str(file) for file in files]]
    return _kept_pieces("ladder", key, shown, LADDERS, lambda: ladder_page.pieces(name, ROOT))


def taught(library: Library, names: Iterable[str]) -> dict[str, str]:
    """Name -> the page by which it was used and explained: `academy.site.taught_before_used.taught`."""
    background.answer("taught", library.docs)
    root, path = library.root, library.path.pages
    kernels = sorted((root / layout.KERNELS).rglob("*.py"))
    files = [*kernels, *layout.derivations(root), *layout.documents(root), *layout.exercises(ROOT)]
    made = partial(taught_before_used.taught, root, path, set(names))
    return _kept("taught", [path, sorted(names)], files, ["academy.site.taught_before_used"], made)


def training(name: str) -> list[str]:
    """What a script that trains models has committed: `academy.results.training.pieces`."""
    files = layout.results(ROOT, f"experiments/{name}")
    key = [name, [str(file) for file in files]]
    return _kept_pieces("training", key, files, TRAINING, lambda: trained.pieces(name, ROOT))


def _kept(kind: str, key: list, files: list[Path], code: list[str], make, keep=bool):
    """What `make()` gives, made again when one of the files or the code has changed: see `academy.files.cache`."""
    return kept(kind, [key, [digest(file) for file in files], made_by(*code), digest(Path(__file__))], make, keep)


def _kept_pieces(kind: str, key: list, files: list[Path], code: list[str], make: Callable[[], list[str]]) -> list[str]:
    """`_kept` for Markdown with finished HTML in it."""
    found = _kept(kind, key, files, code, lambda: [[isinstance(piece, Html), piece] for piece in make()])
    return [Html(piece) if finished else piece for finished, piece in found]


def _built_on(*paths: str) -> list[Path]:
    """These kernel files and those that they build on."""
    return syntax.built_on([ROOT / path for path in paths if (ROOT / path).is_file()], ROOT)


def _checked(pages: list[str]) -> list[Path]:
    """What the reports of derivations are made from: their texts, the files with their cases, and what was decided."""
    files = [file for page in pages for file in (ROOT / page, *facts.of_derivation(ROOT, Path(page).stem))]
    files.append(ROOT / layout.DERIVATIONS / "decided.json")
    return [file for file in files if file.is_file()]
