"""`academy check` of equations: each one holds, each kernel computes what is printed, each formula has one home."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from operator import call
from pathlib import Path
from typing import Any

import torch

from academy.book import facts, syntax
from academy.book.problems import Problem
from academy.command.progress import counting
from academy.files import cache, dependencies
from academy.formulas.cases import Comparison
from academy.formulas.comparing import citations, coverage, decided, equations, kernels
from academy.formulas.comparing.result import Result
from academy.formulas.project import Project
from academy.formulas.reading.page import Page
from academy.judge.process import in_parallel

KIND = "checked"


def run(files: Iterable[Path] | None = None, beside: Iterable[Callable[[], Result]] = ()) -> Result:
    """Check `files`, or the whole project.

    beside: other checks, which go first in the same processes; what they find is in the result.

    What has passed is not looked at again as long as nothing of it changes (`academy.files.cache`).

    Derivations: equations and kernels. Files of operations: the same for their derivation. Kernel files: the same for
    the derivations whose cases name them, and what their notes cite. Other pages and notebooks: what they cite.
    """
    from academy.runtime import device  # noqa: F401  before anything imports triton: here it decides where kernels run

    project = Project.here()
    chosen = None if files is None else [Path(file).resolve() for file in files]
    pages, errors = project.pages()
    found, faults = coverage.declared(project, pages)
    wanted = [page for page in pages if chosen is None or _touches(page, found, chosen, project)]
    shown = None if chosen is None else {str(page.path) for page in wanted} | {str(project.shown(p)) for p in chosen}
    wrong = [error.problem for error in errors] + faults
    result = Result([problem for problem in wrong if shown is None or problem.path in shown])
    everything = [comparison for comparisons in found.values() for comparison in comparisons]
    for path in project.kernels():
        if chosen is None or path in chosen:
            result.problems += coverage.uncovered_module(project, path, everything)
    tags = {tag for page in pages for tag in page.tags()}
    # What takes longest goes first, so that all processes have work to the end.
    jobs: list[Callable[[], Result]] = [*beside, partial(citations.check, project, chosen, tags)]
    cases = [comparisons for page in wanted if (comparisons := found.get(page.path))]
    jobs += [partial(_unless_known, _kernels, each, project) for each in sorted(cases, key=len, reverse=True)]
    jobs += [partial(_unless_known, _equations, page, project) for page in wanted]
    # In processes: a crash takes nothing else with it.
    with counting("checking", len(jobs)) as done:
        for part in in_parallel(call, jobs, done):
            result.add(part)
    result.exempt += [str(page.path) for page in wanted if page.path not in found]
    result.counts["pages"] += len(wanted)
    return result


def syntax_errors(files: Iterable[Path] | None = None) -> list[Problem]:
    """Files among `files` (default: kernels and operations) that aren't valid Python: nothing else can be said about
    them."""
    project = Project.here()
    everything = (*project.kernels(), *project.case_files())
    paths = [path for path in (everything if files is None else files) if path.suffix == ".py"]
    found = [syntax.problem(path.read_text("utf-8"), str(project.shown(path))) for path in paths]
    return [problem for problem in found if problem]


def _touches(page: Page, found: dict, chosen: list[Path], project: Project) -> bool:
    files = [project.root / page.path, *(project.module_path(case.module) for case in found.get(page.path, ()))]
    files += facts.of_derivation(project.root, page.path.stem)
    return not set(files).isdisjoint(chosen)


# ---------------------------------------------------------------- one page, in a process of its own
def _unless_known(part: Callable[..., Result], what: Any, project: Project) -> Result:
    """What a part finds, or that it found nothing wrong when all that decides it was the same."""
    key = [part.__name__, *_decides(what, project)]
    if (counts := cache.get(KIND, key)) is not None:
        return Result(counts=Counter(counts))
    result = part(what, project)
    if not result.problems and not result.notes:
        cache.put(KIND, key, dict(result.counts))
    return result


def _decides(what: Page | list[Comparison], project: Project) -> list:
    """A page's text; of comparisons also the files of the cases, the kernels, and all that they build on. The code that
    compares and that those import, and what kernels run on."""
    from academy.runtime.device import INTERPRET

    page = what[0].page if isinstance(what, list) else what
    files: list[Path] = []
    if isinstance(what, list):
        modules = dict.fromkeys(comparison.module for comparison in what)
        said = dict.fromkeys(comparison.path for comparison in what)
        files = syntax.built_on([*said, *map(project.module_path, modules)], project.root)
    texts = {str(project.shown(file)): file.read_text("utf-8") for file in files}
    code = {name for text in texts.values() for name in dependencies.of_academy(text)}
    machine = "interpreter" if INTERPRET else torch.cuda.get_device_name()
    made_by = dependencies.made_by(__name__, "academy.gluon.simulator", *sorted(code))
    comparisons = what if isinstance(what, list) else []
    kept = [decided.kept_of_page(page, project.root), *(decided.kept_of_case(c, project.root) for c in comparisons)]
    return [str(page.path), page.text, texts, made_by, kept, sys.version_info[:2], machine]


def _equations(page: Page, project: Project) -> Result:
    from academy.formulas.comparing import both_sides  # lazy: it needs triton

    torch.set_num_threads(1)
    result = Result([error.problem for error in equations.problems(page)], Counter(page.summary()))
    if not result.problems:
        found = both_sides.compare(page)
        result.problems += both_sides.problems(page, found)
        result.notes += both_sides.undecided(page, found)
        result.counts["equal"] += sum(each.settled for each in found)
        if decided.page_as_kept(page, found) != decided.kept_of_page(page, project.root):
            result.notes.append(decided.stale(page))
    return result


def _kernels(comparisons: list[Comparison], project: Project) -> Result:
    """In one process for all cases of a page, so that its kernels are imported and rewritten there only."""
    from academy.runtime.device import INTERPRET
    from academy.formulas.comparing import exactly  # lazy: it needs triton

    torch.set_num_threads(1)
    result, memo, known, case = Result(), dict[tuple, Any](), dict[tuple, Any](), ""
    for comparison in comparisons:
        if comparison.case != case:  # what PyTorch gives is the same for a lesson and its fast version
            memo, case = {}, comparison.case
        try:
            module = project.module(comparison.module)
        except (ImportError, SyntaxError) as error:
            result.problems.append(comparison.problem(f"{comparison.module}: {error}"))
            continue
        result.problems += kernels.run(comparison, module, first_only=True, memo=memo)
        result.counts["cases"] += 1
        if INTERPRET:
            outcome = exactly.run(comparison, module, known)
            result.problems += outcome.problems()
            result.counts[outcome.kind] += 1
            if decided.case_as_kept(outcome) != decided.kept_of_case(comparison, project.root):
                result.notes.append(decided.stale(comparison.page))
    return result
