"""`academy mutate`: change every formula (and kernel) in small ways, and see whether a check notices each change.

A mutant that nothing notices *survives*. Either a check is missing, or the changed formula is true as well; those are
kept in `backprop_math/equivalent_mutants.toml`, each with its reason, reviewed by a person. A survivor that is not on
the list is a failure; so is an entry that no longer survives, and a page with more than 2 % of its mutants on the list.
"""

from __future__ import annotations

import os
import sys
import time
import tomllib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import torch

from academy.formulas import equivalence, mutants, verify
from academy.formulas.errors import PageError
from academy.formulas.page import Page
from academy.formulas.processes import in_parallel
from academy.formulas.project import Project
from academy.problems import Problem, report

LIST = "backprop_math/equivalent_mutants.toml"
#: Share of a page's (a module's) mutants that may be on the list.
LISTED_SHARE, KERNEL_SHARE = 0.02, 0.05


@dataclass
class Score:
    """What became of the mutants of one file. survivors: (line, what was changed to), unlisted."""

    path: str
    total: int = 0
    caught: Counter = field(default_factory=Counter)
    survivors: list[tuple[int, str, str]] = field(default_factory=list)
    listed: int = 0
    equations: int = 0

    def line(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.caught.most_common())
        rest = f"listed: {self.listed}; survived: {len(self.survivors)}"
        return f"{self.path}: {self.total} mutants; caught: {kinds}; {rest}"


def equivalents(project: Project) -> list[dict[str, str]]:
    """The reviewed list: entries with page, formula and reason."""
    path = project.root / LIST
    return tomllib.loads(path.read_text("utf-8")).get("mutant", []) if path.exists() else []


# ---------------------------------------------------------------- equations
def score_page(project: Project, path: Path, workers: int | None = None) -> tuple[Score, list[Problem]]:
    """Run all mutants of a derivation."""
    page = project.page(path)
    shown = str(page.path)
    found = mutants.of_page(page)
    score = Score(shown, len(found), equations=sum(step.kind in ("define", "claim") for step in page.steps))
    jobs = [(page.path, page.text, mutant) for mutant in found]
    listed = {mutants.squeeze(e["formula"]): e for e in equivalents(project) if e["page"] == path.name}
    problems, alive = [], set()
    for mutant, verdict in zip(found, in_parallel(try_page, jobs, workers, chunk=4)):
        if verdict == "same value":
            score.total -= 1
            continue
        if verdict != "survived":
            score.caught[verdict] += 1
            continue
        alive.add(mutant.name)
        if mutant.name in listed:
            score.listed += 1
        else:
            score.survivors.append((mutant.line, mutant.operator, mutant.name))
            message = f"no check notices this change ({mutant.operator}): {mutant.name}"
            problems.append(Problem(shown, mutant.line, 1, message))
    for name, entry in listed.items():
        if not entry.get("reason"):
            problems.append(Problem(LIST, 1, 1, f"{path.name}: no reason is given for {name}"))
        if name not in alive:
            problems.append(Problem(LIST, 1, 1, f"{path.name}: listed, but caught or no mutant any more: {name}"))
    if score.listed > LISTED_SHARE * score.total:
        problems.append(Problem(LIST, 1, 1, f"{path.name}: {score.listed} of {score.total} mutants listed, over 2 %"))
    return score, problems


def try_page(job: tuple[Path, str, mutants.Mutant]) -> str:
    """How the mutant was caught (syntax, type or value), "survived", or "same value": it changes nothing."""
    path, text, mutant = job
    torch.set_num_threads(1)
    start = mutant.block.source_pos
    changed = text[:start] + mutant.source + text[start + len(mutant.block.source) :]
    try:
        page = Page(path, changed)
        verify.check(page, start=mutant.block.pos)
    except PageError as error:
        return error.kind
    return "same value" if equivalence.same_value(Page(path, text), page, mutant.block.pos) else "survived"


# ---------------------------------------------------------------- the command
def main(files: list[Path] | None = None, only: str | None = None, every: bool = False) -> int:
    """Exit status 1 when a mutant survives that is not on the list, or the list is wrong.

    Args:
        every: all mutants of each kernel in place of a sample (equations: always all).
    """
    os.environ.setdefault("TRITON_INTERPRET", "1")
    from academy import device  # noqa: F401  before anything imports triton

    start, project = time.perf_counter(), Project.here()
    chosen = None if files is None else [file.resolve() for file in files]
    problems: list[Problem] = []
    if only != "kernels":
        pages = [path for path in project.derivations() if chosen is None or path in chosen]
        problems += _scored("equations", (score_page(project, path) for path in pages))
    if only != "equations":
        problems += _scored("kernels", _kernels(project, chosen, every))
    status = report(problems)
    print(f"{time.perf_counter() - start:.0f} s")
    return status


def _kernels(project: Project, chosen: list[Path] | None, every: bool):
    from academy.formulas import check, kernel_mutate

    pages, _ = project.pages()
    comparisons = [comparison for found in check.declared(project, pages)[0].values() for comparison in found]
    named = {comparison.module for comparison in comparisons}
    for path in project.kernels():
        if (chosen is None or path in chosen) and project.module_name(path) in named:
            count, progress = (None, _progress) if every else (kernel_mutate.SAMPLE, lambda done, total: None)
            yield kernel_mutate.score_module(project, path, comparisons, count, progress=progress)


def _progress(done: int, total: int) -> None:
    """A line that counts, on a terminal; elsewhere a line for every hundred."""
    terminal = sys.stderr.isatty()
    if terminal or done % 100 == 0:
        print(f"{done} of {total}", end="\r" if terminal else "\n", file=sys.stderr, flush=True)


def _scored(what: str, results) -> list[Problem]:
    """Print a line for each file and one for all; the problems found."""
    scores, problems = [], []
    for score, found in results:
        print(score.line(), flush=True)
        scores.append(score)
        problems += found
    total = sum(score.total for score in scores)
    if not total:
        return problems
    listed = sum(score.listed for score in scores)
    survived, equations = sum(len(score.survivors) for score in scores), sum(score.equations for score in scores)
    each = f" ({total / equations:.0f} for each of {equations} equations)" if equations else ""
    print(f"{what}: {total} mutants{each}: {listed} listed as true, {survived} survived, all others caught")
    return problems
