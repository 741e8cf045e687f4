"""`academy check` of equations: each one holds, each kernel computes what is printed, each formula has one home."""

from __future__ import annotations

import ast
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from academy.formulas import compare, coverage, kernels, verify
from academy.formulas.errors import PageError
from academy.formulas.page import Page
from academy.formulas.processes import in_parallel
from academy.formulas.project import Project
from academy.problems import Problem


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
        c = self.counts
        lines = [
            f"equations: {c.get('display', 0)} displays and {c.get('inline', 0)} inline relations on "
            f"{c.get('pages', 0)} derivations, {c.get('relations', 0)} relations and definitions evaluated; "
            f"{c.get('prose', 0)} marked as prose",
            f"kernels: {c.get('tags', 0)} tags, {c.get('entries', 0)} calls compared with the printed formulas",
        ]
        if self.exempt:
            lines.append(f"without a kernel (kernel: none): {', '.join(sorted(self.exempt))}")
        if "documents" in c:
            cited, unbound = c.get("citations", 0), c.get("unbound", 0)
            lines.append(
                f"elsewhere: {c['documents']} kernel files, pages and notebooks cite tags {cited} times; "
                f"{c.get('prose elsewhere', 0)} displays marked as prose, "
                f"{unbound} inline relations on pages that bind no symbols"
            )
        return "\n".join(lines)


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
    found = []
    for path in project.kernels() if files is None else files:
        if path.suffix != ".py":
            continue
        text = path.read_text("utf-8")
        try:
            ast.parse(text)
        except SyntaxError as error:
            line = text.split("\n")[error.lineno - 1]
            found.append(Problem(str(project.shown(path)), error.lineno, error.offset, error.msg, line))
    return found


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
