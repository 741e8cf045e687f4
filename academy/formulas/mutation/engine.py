"""`academy mutate`: change every formula (and kernel) in small ways, and see whether a check notices each change.

A mutant that nothing notices *survives*. Either a check is missing, or the changed text is right as well; those are
kept in `backprop_math/equivalent_mutants.toml`, each with its file and its reason, reviewed by a person. A survivor
that is not on the list is a failure; so is an entry whose mutant no longer survives or no longer exists.

Each file has a judge, which is made once and sent to the processes in which the mutants run: the page's own equations,
or the comparison of a kernel with its printed formula. Kernels run in Triton's interpreter, which shows what a GPU may
hide: a read past the end of a tensor, a masked lane without `other`.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from academy.book import reviewed
from academy.book.problems import PageError, Problem, report
from academy.command import trouble
from academy.command.progress import bar
from academy.formulas.cases import Comparison
from academy.formulas.comparing import coverage, equations, kernels
from academy.formulas.mutation import equations as formula_mutants
from academy.formulas.mutation.equal_values import same_value
from academy.formulas.project import Project
from academy.formulas.reading.page import Page
from academy.judge import kernel_mutants, process
from academy.judge.mutants import Mutant, import_source, sample

LIST = "backprop_math/equivalent_mutants.toml"
#: Seconds of processor time after which a process hangs, which counts as caught. (A busy machine is no hang.)
PATIENCE = 60
UNCHANGED = Mutant("", "", "", start=0)


# ---------------------------------------------------------------- who judges the mutants of a file
@dataclass
class Equations:
    """path: as messages show it. together: how many mutants share a process."""

    path: Path
    text: str
    together: int = 16

    def mutants(self) -> list[Mutant]:
        return formula_mutants.of_page(Page(self.path, self.text))

    def verdict(self, mutant: Mutant, walls: bool = True) -> str:
        """How it was caught (syntax, type or value), "survived", or "same value": it changes nothing."""
        original = Page(self.path, self.text)
        pos = max((block.pos for block in original.blocks if block.pos <= mutant.start), default=0)
        try:
            page = Page(self.path, mutant.apply(self.text))
            equations.check(page, start=pos)
        except PageError as error:
            return error.kind
        return "same value" if same_value(original, page, pos) else "survived"


@dataclass
class Kernels:
    """comparisons: those that call the module. memo: what PyTorch and the formulas give, for all mutants."""

    path: Path
    text: str
    comparisons: list[Comparison]
    memo: dict = field(default_factory=dict)
    #: A kernel without its mask writes where it likes.
    together: int = 1

    def mutants(self) -> list[Mutant]:
        # A result of 16 bits doesn't show that something was rounded to 16 bits on the way.
        wide = any("float32" in comparison.dtypes for comparison in self.comparisons)
        return [mutant for mutant in kernel_mutants.of_source(self.text) if wide or mutant.operator != "narrow cast"]

    def verdict(self, mutant: Mutant, walls: bool = True) -> str:
        """ "survived", or how it was caught: value (another result) or error. With `walls` it may kill the process."""
        changed = mutant.apply(self.text)
        try:
            module = import_source(changed, "mutant")
            for comparison in self.comparisons:
                found = kernels.run(comparison, module, first_only=True, memo=self.memo, walls=walls)
                if found:
                    what = found[0].message
                    return "value" if any(w in what for w in ("instead of", "prints", "outside")) else f"error: {what}"
        except Exception as error:
            trouble.let_through(error)
            return f"error: {type(error).__name__}"
        return "survived"


Judge = Equations | Kernels


@dataclass
class Score:
    """What became of the mutants of one file."""

    path: str
    total: int = 0
    caught: Counter = field(default_factory=Counter)
    listed: int = 0
    survived: int = 0

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.caught.most_common())
        return f"{self.path}: {self.total} mutants; caught: {kinds}; listed: {self.listed}; survived: {self.survived}"


# ---------------------------------------------------------------- the reviewed list
def entries(project: Project, kind: str, path: Path | None = None) -> list[dict]:
    """Entries (about a file) of a kind: mutant, which is no mistake; exempt, a kernel that computes no formula."""
    found = reviewed.entries(project.root / LIST, kind)
    return [entry for entry in found if path is None or entry["file"] == path.as_posix()]


def possible(project: Project, judge: Judge) -> list[Mutant]:
    """The mutants of a file, without those of kernels that compute no formula."""
    exempt = {entry["kernel"] for entry in entries(project, "exempt", judge.path)}
    return [mutant for mutant in judge.mutants() if mutant.function not in exempt]


def stale(project: Project, judge: Judge) -> list[Problem]:
    """Entries about a file that name no mutant of it any more, or give no reason. Nothing is run."""
    names, problems = {_key(mutant.name) for mutant in possible(project, judge)}, []
    for entry in entries(project, "mutant", judge.path):
        if not entry.get("reason"):
            problems.append(_listed(project, entry, "no reason is given"))
        if _key(entry["change"]) not in names:
            problems.append(_listed(project, entry, "no longer a mutant of the file: remove the entry"))
    return problems


def _listed(project: Project, entry: dict, what: str) -> Problem:
    text = (project.root / LIST).read_text("utf-8")
    return Problem.on(LIST, text, entry["line"], f"{entry['file']}: {what}: {entry['change']}")


def _key(name: str) -> str:
    return re.sub(r"\s", "", name)


# ---------------------------------------------------------------- one file
def score(project: Project, judge: Judge, count: int | None = None) -> tuple[Score, list[Problem]]:
    """Run the mutants of a file (at most `count`). Returns the score, and survivors and wrong entries as problems."""
    mutants = possible(project, judge)
    mutants = mutants if count is None else sample(mutants, count)
    result, problems = Score(judge.path.as_posix(), len(mutants)), stale(project, judge)
    # In this process, so that what PyTorch gives is remembered; then as the mutants run.
    verdict = judge.verdict(UNCHANGED, walls=False)
    if verdict == "survived":
        ((_, verdict),) = verdicts(judge, [UNCHANGED])
    if verdict != "survived":
        return result, [*problems, Problem.at(judge.path, judge.text, 0, f"before any change: {verdict}")]
    listed = {_key(entry["change"]): entry for entry in entries(project, "mutant", judge.path)}
    for mutant, verdict in with_progress(judge, mutants):
        entry = listed.get(_key(mutant.name))
        if verdict == "same value":
            result.total -= 1
        elif verdict != "survived":
            result.caught[verdict.partition(":")[0]] += 1
            problems += [_listed(project, entry, f"caught ({verdict}): remove the entry")] if entry else []
        elif entry:
            result.listed += 1
        else:
            result.survived += 1
            message = f"{_UNNOTICED} ({mutant.operator}): {mutant.name}"
            problems.append(Problem.at(judge.path, judge.text, mutant.start, message))
    return result, problems


def with_progress(judge: Judge, mutants: list[Mutant]) -> Iterator[tuple[Mutant, str]]:
    """`verdicts`, counted on the terminal."""
    with bar(threads=False) as progress:
        yield from progress.track(verdicts(judge, mutants), len(mutants), description=judge.path.as_posix())


def verdicts(judge: Judge, mutants: list[Mutant]) -> Iterator[tuple[Mutant, str]]:
    """Each mutant's verdict, from processes that take a few mutants each: a crash ends no more than one of these."""
    jobs = [(judge, mutants[at : at + judge.together]) for at in range(0, len(mutants), judge.together)]
    place = {id(chunk): 0 for _, chunk in jobs}
    for (_, chunk), verdict in process.stream(_judged, jobs, process.Limits(PATIENCE)):
        number = place[id(chunk)]
        place[id(chunk)] += 1
        if isinstance(verdict, process.Death):
            if rest := chunk[number + 1 :]:
                jobs.append((judge, rest))
                place[id(rest)] = 0
            verdict = "hang" if verdict.kind == "hang" else "crash"
        yield chunk[number], verdict


def _judged(job: tuple[Judge, list[Mutant]]) -> Iterator[str]:
    judge, mutants = job
    for mutant in mutants:
        yield judge.verdict(mutant)


# ---------------------------------------------------------------- the command
_UNNOTICED = "no check notices this change"
_UNCOMPARED = "no case compares it with a formula, so nothing is tried: name a file that uses it"
_ADVICE = (
    "Say it so that the change would be wrong, or add a case. If the change is true as well, or can't be\n"
    "observed, it goes into backprop_math/equivalent_mutants.toml with the reason:"
)


def _entry(survivor: Problem) -> str:
    change = survivor.message.partition("): ")[2]
    quoted = f"'{change}'" if "'" not in change and "\n" not in change else json.dumps(change, ensure_ascii=False)
    return f'\n[[mutant]]\nfile = "{survivor.path}"\nchange = {quoted}\nreason = ""\n'


def judges(project: Project, only: str | None = None) -> list[Judge]:
    """One for each derivation, and one for each kernel file that a case names."""
    pages, _ = project.pages()
    comparisons = [comparison for found in coverage.declared(project, pages)[0].values() for comparison in found]
    found: list[Judge] = [Equations(page.path, page.text) for page in pages if only != "kernels"]
    for path in project.kernels() if only != "equations" else ():
        name = project.module_name(path)
        here = [comparison for comparison in comparisons if comparison.module == name]
        found += [kernel_judge(project, path, here)] if here else []
    return found


def kernel_judge(project: Project, path: Path, comparisons: list[Comparison]) -> Kernels:
    return Kernels(project.shown(path), path.read_text("utf-8"), comparisons)


def main(files: list[Path] | None = None, only: str | None = None, count: int | None = None) -> int:
    """Exit status 1 when a mutant survives that is not on the list, or the list is wrong.

    Args:
        count: of mutants of each kernel file, a fixed sample of all functions and kinds; None for all (equations:
            always all).
    """
    os.environ.setdefault("TRITON_INTERPRET", "1")
    from academy.runtime import device

    if not device.INTERPRET:
        raise RuntimeError("mutants of kernels run in Triton's interpreter: set TRITON_INTERPRET=1")
    start, project = time.perf_counter(), Project.here()
    chosen = None if files is None else {project.shown(file) for file in files}
    problems = [
        _listed(project, entry, "there is no such file: remove the entry")
        for entry in entries(project, "mutant")
        if not (project.root / entry["file"]).is_file()
    ]
    known = judges(project, only)
    for path in sorted((chosen or set()) - {judge.path for judge in known}):
        problems.append(Problem.at(path, "", 0, _UNCOMPARED))
    for judge in known:
        if chosen is None or judge.path in chosen:
            result, found = score(project, judge, count if isinstance(judge, Kernels) else None)
            print(result, flush=True)
            problems += found
    status = report(problems)
    survivors = [each for each in problems if each.message.startswith(_UNNOTICED)]
    if survivors:
        print(f"\n{_ADVICE}\n" + "".join(map(_entry, survivors)), file=sys.stderr)
    print(f"{time.perf_counter() - start:.0f} s", file=sys.stderr)
    return status
