"""`academy check` of equations: each one holds, each kernel computes what is printed, each formula has one home."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from academy import syntax
from academy.formulas import case_reader, compare, coverage, verify
from academy.formulas.cases import Comparison
from academy.formulas.page import Page
from academy.formulas.processes import in_parallel
from academy.formulas.project import Project
from academy.problems import Problem

#: The lines of a summary: each count, what one of it is called, and what several are.
SUMMARY = {
    "equations": {
        "pages": ("derivation", "derivations"),
        "tags": ("tag", "tags"),
        "display": ("display", "displays"),
        "inline": ("inline relation", "inline relations"),
        "relations": ("relation or definition evaluated", "relations and definitions evaluated"),
        "prose": ("display marked as prose", "displays marked as prose"),
    },
    "kernels": {
        "cases": ("case compared with the printed formulas", "cases compared with the printed formulas"),
    },
    "notes, pages and notebooks": {
        "documents": ("file", "files"),
        "citations": ("citation of a tag", "citations of tags"),
        "prose elsewhere": ("display marked as prose", "displays marked as prose"),
        "unbound": ("inline relation where no symbols are bound", "inline relations where no symbols are bound"),
    },
}


@dataclass
class Result:
    """problems: all that is wrong. counts: what was looked at. exempt: derivations without a kernel."""

    problems: list[Problem] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    exempt: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def count(self, counts: dict[str, int]) -> None:
        for what, number in counts.items():
            self.counts[what] = self.counts.get(what, 0) + number

    def add(self, other: Result) -> None:
        self.problems += other.problems
        self.exempt += other.exempt
        self.count(other.counts)

    def summary(self) -> str:
        """What there was to look at, a line for each kind."""
        lines = [f"{kind}: {found}" for kind, entries in SUMMARY.items() if (found := self._counted(entries))]
        if self.exempt:
            lines.append(f"without a kernel (no case file): {', '.join(sorted(self.exempt))}")
        return (
            "\n".join(lines) or "nothing to look at: no derivation, case file, kernel, page or notebook of the project"
        )

    def _counted(self, entries: dict[str, tuple[str, str]]) -> str:
        counts = [(self.counts.get(key, 0), names) for key, names in entries.items()]
        return ", ".join(f"{count} {one if count == 1 else many}" for count, (one, many) in counts if count)


def run(files: Iterable[Path] | None = None, project: Project | None = None, workers: int | None = None) -> Result:
    """Check `files`, or the whole project.

    Derivations: equations and kernels. Case files: the same of their derivation. Kernel files: the same of those
    whose cases name them, and what their notes cite. Other pages and notebooks: what they cite.
    """
    from academy import device  # noqa: F401  before anything imports triton: here it decides where kernels run

    start, result = time.perf_counter(), Result()
    project = project or Project.here()
    chosen = None if files is None else [Path(file).resolve() for file in files]
    pages, errors = project.pages()
    if chosen is not None:
        errors = [error for error in errors if (project.root / error.problem.path) in chosen]
    result.problems += [error.problem for error in errors]
    found, faults = declared(project, pages)
    wanted = [page for page in pages if chosen is None or _touches(page, found, chosen, project)]
    looked_at = {str(page.path) for page in wanted} | {str(project.shown(path)) for path in chosen or ()}
    result.problems += [p for p in faults if chosen is None or p.path in looked_at]
    for path in project.kernels():
        if chosen is None or path in chosen:
            result.problems += coverage.uncovered_module(project, path, [c for cs in found.values() for c in cs])
    jobs = [(_equations, page, project) for page in wanted]
    jobs += [(_kernels, found[page.path], project) for page in wanted if found.get(page.path)]
    # In processes: a crash takes nothing else with it.
    for part in in_parallel(_run, jobs, workers):
        result.add(part)
    result.exempt += [str(page.path) for page in wanted if page.path not in found]
    result.count(dict(pages=len(wanted)))
    from academy.formulas import one_home

    result.add(one_home.check(project, chosen, {tag: page.path for page in pages for tag in page.tags()}))
    result.seconds = time.perf_counter() - start
    return result


def syntax_errors(files: Iterable[Path] | None = None, project: Project | None = None) -> list[Problem]:
    """Files among `files` (default: kernel and case files) that are no Python: nothing else can be said of them."""
    project = project or Project.here()
    everything = (*project.kernels(), *project.case_files())
    paths = [path for path in (everything if files is None else files) if path.suffix == ".py"]
    found = [syntax.problem(path.read_text("utf-8"), str(project.shown(path))) for path in paths]
    return [problem for problem in found if problem]


def declared(project: Project, pages: list[Page]) -> tuple[dict[Path, list[Comparison]], list[Problem]]:
    """The cases of each page that has a case file, and what is wrong with them before anything is run."""
    found, problems, owners = {}, [], {}
    files = {path.stem: path for path in project.case_files()}
    for page in pages:
        file = files.get(page.path.stem)
        if file:
            found[page.path], wrong = case_reader.read(file, project.shown(file), page, project.has_module)
            # A case that can't be read would make each of its tags one more problem.
            problems += wrong or coverage.uncompared_tags(page, found[page.path])
        for tag, steps in page.tags().items():
            if tag in owners:
                message = f"tag {tag} is also on {owners[tag]}: a tag has one home"
                problems.append(Problem.at(page.path, page.text, steps[0].pos, message))
            owners[tag] = page.path
    derivations = {path.stem for path in project.derivations()}
    for name in sorted(set(files) - derivations):
        message = f"there is no derivation backprop_math/{name}.md"
        problems.append(Problem.at(project.shown(files[name]), files[name].read_text("utf-8"), 0, message))
    return found, problems


def _touches(page: Page, found: dict, chosen: list[Path], project: Project) -> bool:
    files = {project.root / page.path, *(project.module_path(case.module) for case in found.get(page.path, ()))}
    files |= {path for path in project.case_files() if path.stem == page.path.stem}
    return not files.isdisjoint(chosen)


# ---------------------------------------------------------------- one page, in a process of its own
def _equations(page: Page, project: Project) -> Result:
    found = verify.problems(page)
    return Result([error.problem for error in found], page.summary())


def _kernels(comparisons: list[Comparison], project: Project) -> Result:
    result, memo = Result(), {}
    for comparison in comparisons:
        try:
            module = project.module(comparison.module)
        except (ImportError, SyntaxError) as error:
            result.problems.append(comparison.problem(f"{comparison.module}: {error}"))
            continue
        for miss in compare.run(comparison, module, first_only=True, memo=memo):
            result.problems.append(_where(miss))
        result.count({"cases": 1})
    return result


def _where(miss: compare.Mismatch) -> Problem:
    """At the formula that differs; without one, at the case."""
    if miss.target is None:
        return miss.comparison.problem(miss.message)
    page = miss.comparison.page
    return Problem.at(page.path, page.text, page.tags()[miss.target.tag][0].pos, miss.message)


def _run(job: tuple[Callable, Page | list[Comparison], Project]) -> Result:
    function, subject, project = job
    torch.set_num_threads(1)
    return function(subject, project)
