"""Run the mutants of a kernel file: does the comparison with the printed formula notice each?

Each mutant runs in a process of its own, because a kernel without its mask writes where it likes, and in Triton's
interpreter, which shows what a GPU may hide: a read behind the end of a tensor, a masked lane without `other`.
"""

from __future__ import annotations

import faulthandler
import hashlib
import os
import resource
import signal
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from multiprocessing.connection import wait
from pathlib import Path

import torch

from academy import device, syntax
from academy.formulas import compare, kernel_mutants, processes
from academy.formulas.cases import Comparison
from academy.formulas.kernel_mutants import KernelMutant
from academy.formulas.mutate import KERNEL_SHARE, LIST, Score
from academy.formulas.project import Project, import_source
from academy.problems import Problem

#: Mutants of one file that are run by default: a fixed sample, spread over functions and kinds of change.
SAMPLE = 32
#: Seconds of processor time after which a mutant hangs, which counts as caught. (A busy machine is no hang.)
PATIENCE = 60


class Unfit(Exception):
    """The kernel itself differs from its formula, so its mutants say nothing."""


def score_module(
    project: Project,
    path: Path,
    comparisons: list[Comparison],
    count: int | None = SAMPLE,
    workers: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[Score, list[Problem]]:
    """Run `count` mutants (None: all) of one module against the cases that name it.

    Args:
        progress: called with how many are done, and of how many, after each.

    Raises:
        RuntimeError: kernels are compiled here.
    """
    if not device.INTERPRET:
        raise RuntimeError("mutants of kernels run in Triton's interpreter: set TRITON_INTERPRET=1")
    name, shown = project.module_name(path), str(project.shown(path))
    comparisons = [comparison for comparison in comparisons if comparison.module == name]
    source = path.read_text("utf-8")
    exempt = {entry["function"] for entry in _listed(project, path, "exempt")}
    mutants = [mutant for mutant in kernel_mutants.of_source(source) if mutant.function not in exempt]
    if not any("float32" in comparison.dtypes for comparison in comparisons):
        # A result of 16 bits doesn't show that something was rounded to 16 bits on the way.
        mutants = [mutant for mutant in mutants if mutant.operator != "narrow cast"]
    applicable = mutants
    mutants = mutants if count is None else kernel_mutants.sample(mutants, count)
    score = Score(shown, len(mutants))
    if not mutants:
        return score, []
    memo: dict = {}
    try:
        statements = {_statement(source, mutant.line) for mutant in mutants}
        executed = _executed_lines(path, lambda: _compare(comparisons, project.module(name), memo), statements)
    except Unfit as error:
        return score, [Problem.at(shown, source, 0, str(error))]
    mutants, idle = _split(mutants, source, executed)
    unchanged = KernelMutant("none", "", 1, 0, 0, "", "")
    ((_, verdict),) = _verdicts([unchanged], source, comparisons, memo, workers)
    if verdict != "survived":
        message = f"before any change: {verdict}, in a process of its own, with memory that ends where tensors end"
        return score, [Problem.at(shown, source, 0, message)]
    listed = {entry["change"]: entry for entry in _listed(project, path, "kernel")}
    problems = [Problem.at(shown, source, m.start, f"no comparison runs this line of {m.function}") for m in idle]
    alive: set[str] = set()
    for done, (mutant, verdict) in enumerate(_verdicts(mutants, source, comparisons, memo, workers), 1):
        progress(done, len(mutants))
        if verdict != "survived":
            score.caught[verdict] += 1
        elif mutant.name in listed:
            alive.add(mutant.name)
            score.listed += 1
        else:
            score.survivors.append((mutant.line, mutant.operator, mutant.name))
            message = f"no comparison notices this change ({mutant.operator}): {mutant.name}"
            problems.append(Problem.at(shown, source, mutant.start, message))
    problems += _about_list(path, listed, alive, mutants, applicable)
    return score, problems


def _listed(project: Project, path: Path, what: str) -> list[dict[str, str]]:
    """Entries about a file: kernel (a mutant that is no mistake) or exempt (a function that computes no formula)."""
    file = project.root / LIST
    entries = tomllib.loads(file.read_text("utf-8")).get(what, []) if file.exists() else []
    return [entry for entry in entries if entry["file"] == project.shown(path).as_posix()]


def _about_list(
    path: Path, listed: dict, alive: set[str], mutants: list[KernelMutant], applicable: list[KernelMutant]
) -> list[Problem]:
    """The list holds mutants of the whole file, so it is measured by the whole, not by a sample."""
    problems, names, possible = [], {mutant.name for mutant in mutants}, {mutant.name for mutant in applicable}
    for name, entry in listed.items():
        if not entry.get("reason"):
            problems.append(Problem(LIST, 1, 1, f"{path.name}: no reason is given for {name}"))
        if name not in possible or (name not in alive and name in names):
            problems.append(Problem(LIST, 1, 1, f"{path.name}: listed, but caught or no mutant any more: {name}"))
    if len(listed) > KERNEL_SHARE * len(applicable):
        share = f"{len(listed)} of {len(applicable)} mutants listed"
        problems.append(Problem(LIST, 1, 1, f"{path.name}: {share}, over 5 %"))
    return problems


# ---------------------------------------------------------------- which lines the comparisons run
def _split(mutants: list[KernelMutant], source: str, executed: set[int]) -> tuple[list, list]:
    """Those in statements that ran, and those in statements that no comparison has run."""
    ran, idle = [], []
    for mutant in mutants:
        first, last = _statement(source, mutant.line)
        (idle if executed.isdisjoint(range(first, last + 1)) else ran).append(mutant)
    return ran, idle


@lru_cache(maxsize=1024)
def _statement(source: str, line: int) -> tuple[int, int]:
    """First and last line of the innermost statement at a line (of a loop or branch: its head)."""
    best = (line, line)
    for node in syntax.statements(syntax.tree(source)):
        body = getattr(node, "body", None)
        last = max(node.lineno, body[0].lineno - 1) if body else node.end_lineno
        if node.lineno <= line <= last and (best == (line, line) or node.lineno >= best[0]):
            best = (node.lineno, last)
    return best


def _executed_lines(path: Path, action, statements: Iterable[tuple[int, int]]) -> set[int]:
    """Lines of the file that run during `action`, jitted functions in the interpreter included.

    Following each line makes it three times as slow, so that ends when all `statements` (first and last line) have run.
    """
    lines: set[int] = set()
    missing = {statement: range(statement[0], statement[1] + 1) for statement in statements}
    wanted = str(path)

    def local(frame, event, argument):
        line = frame.f_lineno
        if line not in lines:
            lines.add(line)
            for statement in [key for key, inside in missing.items() if line in inside]:
                del missing[statement]
            if not missing:
                sys.settrace(None)
        return local

    def trace(frame, event, argument):
        return local if frame.f_code.co_filename == wanted else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        problems = action()
    finally:
        sys.settrace(before)
    if problems:
        raise Unfit(f"before any change: {problems}")
    return lines


# ---------------------------------------------------------------- one mutant
def _compare(comparisons: list[Comparison], module, memo: dict, walls: bool = False) -> str | None:
    for comparison in comparisons:
        found = compare.run(comparison, module, first_only=True, memo=memo, walls=walls)
        if found:
            return found[0].message
    return None


def try_mutant(
    mutant: KernelMutant, source: str, comparisons: list[Comparison], memo: dict, walls: bool = False
) -> str:
    """ "survived", or how it was caught: value (another result) or error. With `walls` it may kill the process."""
    changed = mutant.apply(source)
    name = "mutant_" + hashlib.sha256(changed.encode()).hexdigest()[:16]
    try:
        module = import_source(changed, name)
        found = _compare(comparisons, module, memo, walls)
    except Exception:
        return "error"
    if found is None:
        return "survived"
    return "value" if "instead of" in found or "prints" in found or "outside" in found else "error"


def _verdicts(
    mutants: list[KernelMutant], source: str, comparisons: list[Comparison], memo: dict, workers: int | None
) -> Iterator[tuple[KernelMutant, str]]:
    """Each mutant in a process of its own, a few at a time."""
    torch.set_num_threads(1)
    workers, waiting, running = workers or min(os.cpu_count() or 1, 8), list(mutants), {}
    while waiting or running:
        while waiting and len(running) < workers:
            mutant = waiting.pop(0)
            running.update([_start(mutant, source, comparisons, memo)])
        for receiver in wait(running):
            mutant, process = running.pop(receiver)
            yield mutant, _verdict(receiver, process)


def _start(mutant, source, comparisons, memo):
    context = processes.context()
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(sender, mutant, source, comparisons, memo), daemon=True)
    process.start()
    sender.close()
    return receiver, (mutant, process)


def _child(sender, mutant, source, comparisons, memo) -> None:
    # What a broken kernel prints on its way down is of no interest.
    faulthandler.disable()
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1), os.dup2(quiet, 2)
    resource.setrlimit(resource.RLIMIT_CPU, (PATIENCE, PATIENCE + 1))
    sender.send(try_mutant(mutant, source, comparisons, memo, walls=True))
    os._exit(0)


def _verdict(receiver, process) -> str:
    try:
        verdict = receiver.recv()
    except EOFError:
        verdict = "crash"
    process.join()
    receiver.close()
    return "hang" if process.exitcode == -signal.SIGXCPU else verdict
