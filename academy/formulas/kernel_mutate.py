"""Run the mutants of a kernel file: does the comparison with the printed formula notice each?

Each mutant runs in a forked process of its own, because a kernel without its mask writes where it likes. What the
interpreter can't show (a missing `other`, code that only runs on a GPU) is left to a machine with a GPU.
"""

from __future__ import annotations

import ast
import hashlib
import multiprocessing
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import wait
from pathlib import Path

import torch

from academy import device
from academy.formulas import compare, kernel_mutants
from academy.formulas.kernel_mutants import GPU_OPERATORS, KernelMutant
from academy.formulas.kernels import Comparison
from academy.formulas.mutate import KERNEL_SHARE, LIST, Score
from academy.formulas.project import Project, import_source
from academy.problems import Problem

#: Mutants of one file that are run: a fixed sample, spread over functions and kinds of change.
SAMPLE = 40
#: Seconds after which a mutant hangs, which counts as caught.
PATIENCE = 30


class Unfit(Exception):
    """The kernel itself differs from its formula, so its mutants say nothing."""


def score_module(
    project: Project, path: Path, entries: list[Comparison], count: int | None = None, workers: int | None = None
) -> tuple[Score, list[Problem]]:
    """Run `count` mutants (default: `SAMPLE`) of one module against the entries that name it."""
    name, shown = project.module_name(path), str(project.shown(path))
    entries = [entry for entry in entries if entry.module == name]
    source = path.read_text("utf-8")
    exempt = {entry["function"] for entry in _listed(project, path, "exempt")}
    mutants = [mutant for mutant in kernel_mutants.of_source(source) if mutant.function not in exempt]
    if not any("float32" in entry.dtypes for entry in entries):
        # A result of 16 bits doesn't show that something was rounded to 16 bits on the way.
        mutants = [mutant for mutant in mutants if mutant.operator != "narrow cast"]
    mutants = kernel_mutants.sample(mutants, SAMPLE if count is None else count)
    score = Score(shown, len(mutants))
    if not mutants:
        return score, []
    memo: dict = {}
    only_gpu = {entry["function"] for entry in _listed(project, path, "gpu")}
    here = [m for m in mutants if (m.operator in GPU_OPERATORS or m.function in only_gpu) != device.INTERPRET]
    if device.INTERPRET:
        score.skipped = len(mutants) - len(here)
        try:
            executed = _executed_lines(path, lambda: _compare(entries, project.module(name), memo))
        except Unfit as error:
            return score, [Problem.at(shown, source, 0, str(error))]
        here, idle = _split(here, source, executed)
    else:
        score.total, idle = len(here), []
    listed = {entry["change"]: entry for entry in _listed(project, path, "kernel")}
    problems = [Problem.at(shown, source, m.start, f"no comparison runs this line of {m.function}") for m in idle]
    alive: set[str] = set()
    judged = _verdicts(here, source, entries, memo, workers) if device.INTERPRET else _on_gpu(project, path, here)
    for mutant, verdict in judged:
        if verdict != "survived":
            score.caught[verdict] += 1
        elif mutant.name in listed:
            alive.add(mutant.name)
            score.listed += 1
        else:
            score.survivors.append((mutant.line, mutant.operator, mutant.name))
            message = f"no comparison notices this change ({mutant.operator}): {mutant.name}"
            problems.append(Problem.at(shown, source, mutant.start, message))
    problems += _about_list(path, listed, alive, here, score)
    return score, problems


def _listed(project: Project, path: Path, what: str) -> list[dict[str, str]]:
    """Entries about a file: kernel (a mutant that is no mistake), gpu (a function that only a GPU can run), exempt (one
    that computes no formula)."""
    file = project.root / LIST
    entries = tomllib.loads(file.read_text("utf-8")).get(what, []) if file.exists() else []
    return [entry for entry in entries if entry["file"] == project.shown(path).as_posix()]


def _about_list(path: Path, listed: dict, alive: set[str], here: list[KernelMutant], score: Score) -> list[Problem]:
    problems, names = [], {mutant.name for mutant in here}
    for name, entry in listed.items():
        if not entry.get("reason"):
            problems.append(Problem(LIST, 1, 1, f"{path.name}: no reason is given for {name}"))
        if name not in alive and name in names:
            problems.append(Problem(LIST, 1, 1, f"{path.name}: listed, but caught or no mutant any more: {name}"))
    if device.INTERPRET and score.listed > KERNEL_SHARE * score.total:
        problems.append(Problem(LIST, 1, 1, f"{path.name}: {score.listed} of {score.total} mutants listed, over 5 %"))
    return problems


# ---------------------------------------------------------------- what the interpreter can show
def _split(mutants: list[KernelMutant], source: str, executed: set[int]) -> tuple[list, list]:
    """Those in statements that ran, and those in statements that no comparison has run."""
    ran, idle = [], []
    for mutant in mutants:
        first, last = _statement(source, mutant.line)
        (idle if executed.isdisjoint(range(first, last + 1)) else ran).append(mutant)
    return ran, idle


def _statement(source: str, line: int) -> tuple[int, int]:
    """First and last line of the innermost statement at a line (of a loop or branch: its head)."""
    best = (line, line)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            last = max(node.lineno, body[0].lineno - 1) if body else node.end_lineno
            if node.lineno <= line <= last and (best == (line, line) or node.lineno >= best[0]):
                best = (node.lineno, last)
    return best


def _executed_lines(path: Path, action) -> set[int]:
    """Lines of the file that run during `action`, jitted functions in the interpreter included."""
    lines: set[int] = set()
    wanted = str(path)

    def local(frame, event, argument):
        lines.add(frame.f_lineno)
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
def _compare(entries: list[Comparison], module, memo: dict, walls: bool = False) -> str | None:
    for entry in entries:
        found = compare.run(entry, module, first_only=True, memo=memo, walls=walls)
        if found:
            return found[0].message
    return None


def try_mutant(mutant: KernelMutant, source: str, entries: list[Comparison], memo: dict, walls: bool = False) -> str:
    """ "survived", or how it was caught: value (another result) or error. With `walls` it may kill the process."""
    changed = mutant.apply(source)
    name = "mutant_" + hashlib.sha256(changed.encode()).hexdigest()[:16]
    try:
        module = import_source(changed, name)
        found = _compare(entries, module, memo, walls)
    except Exception:
        return "error"
    if found is None:
        return "survived"
    return "value" if "instead of" in found or "prints" in found or "outside" in found else "error"


def _verdicts(
    mutants: list[KernelMutant], source: str, entries: list[Comparison], memo: dict, workers: int | None
) -> Iterator[tuple[KernelMutant, str]]:
    """Each mutant in a process of its own, a few at a time."""
    torch.set_num_threads(1)
    workers, waiting, running = workers or min(os.cpu_count() or 1, 8), list(mutants), {}
    while waiting or running:
        while waiting and len(running) < workers:
            mutant = waiting.pop(0)
            running.update([_start(mutant, source, entries, memo)])
        ready = wait(running, timeout=PATIENCE)
        for receiver in ready or list(running):
            mutant, process = running.pop(receiver)
            yield mutant, _verdict(receiver, process, bool(ready))


def _start(mutant, source, entries, memo):
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(sender, mutant, source, entries, memo), daemon=True)
    process.start()
    sender.close()
    return receiver, (mutant, process)


def _child(sender, mutant, source, entries, memo) -> None:
    # What a broken kernel prints on its way down is of no interest.
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1), os.dup2(quiet, 2)
    sender.send(try_mutant(mutant, source, entries, memo, walls=True))
    os._exit(0)


def _verdict(receiver, process, ready: bool) -> str:
    try:
        verdict = receiver.recv() if ready else "hang"
    except EOFError:
        verdict = "crash"
    process.kill() if verdict == "hang" else None
    process.join()
    receiver.close()
    return verdict


# ---------------------------------------------------------------- on a GPU: a fresh Python for each mutant
def _python(project: Project, *arguments: str) -> str:
    command = [sys.executable, "-m", "academy.formulas.kernel_mutate", *arguments]
    python_path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": python_path}
    done = subprocess.run(command, cwd=project.root, env=environment, capture_output=True, text=True, timeout=300)
    return done.stdout.strip().rsplit("\n", 1)[-1] if done.returncode == 0 else ""


def _on_gpu(project: Project, path: Path, mutants: list[KernelMutant]) -> list[tuple[KernelMutant, str]]:
    """A broken kernel can leave the GPU unusable for its process, so nothing else runs in that process."""
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        verdicts = pool.map(lambda mutant: _python(project, str(path), mutant.name, str(mutant.start)), mutants)
        return [(mutant, verdict or "crash") for mutant, verdict in zip(mutants, verdicts)]


def main(arguments: list[str]) -> None:
    """`FILE NAME START`: print the verdict on one mutant."""
    from academy.formulas.check import declared

    project, path = Project.here(), Path(arguments[0]).resolve()
    name, source = project.module_name(path), path.read_text("utf-8")
    entries = [entry for found in declared(project.pages()[0])[0].values() for entry in found if entry.module == name]
    known = {(mutant.name, str(mutant.start)): mutant for mutant in kernel_mutants.of_source(source)}
    print(try_mutant(known[arguments[1], arguments[2]], source, entries, {}))


if __name__ == "__main__":
    main(sys.argv[1:])
