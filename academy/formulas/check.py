"""`academy check` of equations: each one holds, each kernel computes what is printed, each formula has one home."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from academy import syntax
from academy.formulas import compare, coverage, kernels, verify
from academy.formulas.errors import PageError
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
    "kernels": {"entries": ("call compared with the printed formulas", "calls compared with the printed formulas")},
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
            lines.append(f"without a kernel (kernel: none): {', '.join(sorted(self.exempt))}")
        return "\n".join(lines) or "nothing to look at: no derivation, kernel file, page or notebook of the project"

    def _counted(self, entries: dict[str, tuple[str, str]]) -> str:
        counts = [(self.counts.get(key, 0), names) for key, names in entries.items()]
        return ", ".join(f"{count} {one if count == 1 else many}" for count, (one, many) in counts if count)


def run(files: Iterable[Path] | None = None, project: Project | None = None, workers: int | None = None) -> Result:
    """Check `files`, or the whole project.

    Derivations: equations and kernels. Kernel files: the derivations that name them, and what their notes cite.
    Other pages and notebooks: what they cite.
    """
    from academy import device  # noqa: F401  before anything imports triton: here it decides where kernels run

    start, result = time.perf_counter(), Result()
    project = project or Project.here()
    chosen = None if files is None else [Path(file).resolve() for file in files]
    pages, errors = project.pages()
    if chosen is not None:
        errors = [error for error in errors if (project.root / error.problem.path) in chosen]
    result.problems += [error.problem for error in errors]
    entries, faults = declared(pages)
    wanted = [page for page in pages if chosen is None or _touches(page, entries, chosen, project)]
    result.problems += [p for p in faults if chosen is None or p.path in {str(page.path) for page in wanted}]
    for path in project.kernels():
        if chosen is None or path in chosen:
            shown, name = project.shown(path), project.module_name(path)
            result.problems += coverage.uncovered_module(path, shown, name, [e for es in entries.values() for e in es])
    jobs = [(_equations, page, project) for page in wanted]
    jobs += [(_kernels, page, project) for page in wanted if entries.get(page.path)]
    # In processes: a crash takes nothing else with it.
    for part in in_parallel(_run, jobs, workers):
        result.add(part)
    result.exempt += [str(page.path) for page in wanted if kernels.exempt(page)]
    result.count(dict(pages=len(wanted)))
    from academy.formulas import one_home

    result.add(one_home.check(project, chosen, {tag: page.path for page in pages for tag in page.tags()}))
    result.seconds = time.perf_counter() - start
    return result


def syntax_errors(files: Iterable[Path] | None = None, project: Project | None = None) -> list[Problem]:
    """Files among `files` (default: all kernel files) that are no Python: nothing else can be said of them."""
    project = project or Project.here()
    paths = [path for path in (project.kernels() if files is None else files) if path.suffix == ".py"]
    found = [syntax.problem(path.read_text("utf-8"), str(project.shown(path))) for path in paths]
    return [problem for problem in found if problem]


def declared(pages: list[Page]) -> tuple[dict[Path, list[kernels.Comparison]], list[Problem]]:
    """The kernel entries of each page, and what is wrong with them before anything is run."""
    entries, problems, owners = {}, [], {}
    for page in pages:
        try:
            entries[page.path] = kernels.comparisons(page)
        except PageError as error:
            problems.append(error.problem)
            continue
        if not kernels.exempt(page):
            problems += coverage.uncompared_tags(page, entries[page.path])
        for tag, steps in page.tags().items():
            if tag in owners:
                message = f"tag {tag} is also on {owners[tag]}: a tag has one home"
                problems.append(Problem.at(page.path, page.text, steps[0].pos, message))
            owners[tag] = page.path
    return entries, problems


def _touches(page: Page, entries: dict, chosen: list[Path], project: Project) -> bool:
    modules = {project.module_path(entry.module) for entry in entries.get(page.path, ())}
    return (project.root / page.path) in chosen or not modules.isdisjoint(chosen)


# ---------------------------------------------------------------- one page, in a process of its own
def _equations(page: Page, project: Project) -> Result:
    found = verify.problems(page)
    return Result([error.problem for error in found], page.summary())


def _kernels(page: Page, project: Project) -> Result:
    result = Result()
    for entry in kernels.comparisons(page):
        position = page.front.offsets[("kernel", entry.number)]
        try:
            module = project.module(entry.module)
        except (ImportError, SyntaxError) as error:
            problem = Problem.at(page.path, page.text, position, f"front matter: kernel.module {entry.module}: {error}")
            result.problems.append(problem)
            continue
        for miss in compare.run(entry, module, first_only=True):
            at = page.tags()[miss.target.tag][0].pos if miss.target else position
            result.problems.append(Problem.at(page.path, page.text, at, miss.message))
        result.count({"entries": 1})
    return result


def _run(job: tuple[Callable, Page, Project]) -> Result:
    function, page, project = job
    torch.set_num_threads(1)
    return function(page, project)
