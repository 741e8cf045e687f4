"""Judge all functions of a file, in processes of its own, and keep what was found as it comes."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from academy.runtime import device
from academy.book.syntax import import_file
from academy.command import trouble
from academy.compiler import stand_in, tuning
from academy.files import cache
from academy.judge import batch, causes, configurations, interpreted, kernel_mutants, process, replay, sanitizers
from academy.judge.mutants import Mutant, import_source, sample
from academy.judge.subject import Subject, Unusable, from_file, of_module
from academy.judge.trials import GROUPS, USUAL, Plan, Trial, quick
from academy.judge.trying import Attempt, Outcome, attempt, gradient_mode, ranks, refusing
from academy.traces.observer import jitted_files

#: Mutants of a file that are tried, at most.
MUTANTS = 24
#: Seconds of processor time for one trial, and megabytes for one process.
SECONDS, MEGABYTES = 60.0, 4096


@dataclass(frozen=True)
class File:
    """The functions of a file, or those of them that are named. here: they are judged in this process, without limits:
    where the file can be trusted, and a process for each group would take longer than its trials."""

    path: Path
    names: tuple[str, ...] = ()
    here: bool = False

    def load(self) -> list[Subject]:
        return from_file(self.path, list(self.names) or None)

    def mutated(self, mutant: Mutant) -> list[Subject]:
        package = import_file(self.path.resolve(), cache.ROOT).__package__ or ""  # with the files that it imports
        module = import_source(mutant.apply(self.path.read_text("utf-8")), self.path.stem, package=package)
        return of_module(module, str(self.path), list(self.names) or None)

    def mutants(self) -> list[Mutant]:
        return kernel_mutants.of_source(self.path.read_text("utf-8"))


@dataclass(frozen=True)
class Given:
    """Functions that are there already. They are judged by forks of this process, or here, without limits: where there
    is a GPU, which no fork can use, and where it shall be quick."""

    subjects: tuple[Subject, ...]
    here: bool = not device.INTERPRET

    def load(self) -> list[Subject]:
        return list(self.subjects)

    def mutants(self) -> list[Mutant]:
        return []


Source = File | Given


@dataclass
class Judged:
    """One function: what it was tried with, and what became of it. gradients: see `trying.gradient_mode`. stand_ins:
    what its file asked of a GPU that isn't there, in a sentence. against: its reference. helpers: other
    files that have kernels of it. refused: inputs that may not require a gradient, beside others that may."""

    name: str
    gradients: str
    trials: list[Trial]
    outcomes: list[Outcome] = field(default_factory=list)
    stand_ins: str = ""
    against: str = ""
    helpers: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    #: Files of the function, its reference and its kernels, from the folder of the first -> SHA-256.
    hashes: dict[str, str] = field(default_factory=dict)

    @property
    def wrong(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.bad]

    @property
    def refuses_everything(self) -> bool:
        """Whether the function was never compared with its reference, because it took none of the inputs."""
        compared = [outcome for outcome in self.outcomes if outcome.trial.how == "compare"]
        return bool(compared) and not any(outcome.bad or outcome.state == "right" for outcome in compared)

    def of(self, group: str) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.trial.group == group]

    @property
    def plainly(self) -> set[str]:
        """Which of the plainest trials are wrong: "odd sizes", with which most groups begin, and "whole blocks"."""
        return {each.trial.name for each in self.of("sizes") if each.bad} & {"odd sizes", "whole blocks"}

    def cause(self, outcome: Outcome) -> causes.Cause:
        """The likely cause of what a wrong trial has shown."""
        found = causes.of(outcome.trial, outcome.message)
        return causes.AT_EVERY_SIZE if found is causes.CAUSES[-1] and len(self.plainly) == 2 else found


@dataclass(frozen=True)
class Fate:
    """What became of a mutant: value, error, died or survived."""

    mutant: Mutant
    fate: str
    line: int


@dataclass
class Report:
    """What a session has found so far. broken: why nothing could be judged. complete: whether all trials were made.
    left_out: groups that were asked for and need what isn't here, in a sentence."""

    file: str
    device: str
    judged: list[Judged] = field(default_factory=list)
    mutants: list[Fate] = field(default_factory=list)
    broken: str = ""
    left_out: str = ""
    complete: bool = False
    seconds: float = 0.0
    #: What the session was asked for: names, groups, mutants, seed, limits.
    asked: dict[str, Any] = field(default_factory=dict)

    @property
    def wrong(self) -> list[Outcome]:
        return [outcome for one in self.judged for outcome in one.wrong]

    @property
    def right(self) -> bool:
        """Whether every trial was made, and none showed anything wrong."""
        idle = any(not one.outcomes or one.refuses_everything for one in self.judged)
        return self.complete and not self.broken and not self.wrong and bool(self.judged) and not idle

    @property
    def stand_ins(self) -> str:
        """What the file asked of a GPU that isn't there, in a sentence; "" if nothing."""
        return next((one.stand_ins for one in self.judged), "")

    @property
    def survivors(self) -> list[Fate]:
        return [fate for fate in self.mutants if fate.fate == "survived"]

    def as_json(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "device": self.device,
            "right": self.right,
            "complete": self.complete,
            "broken": self.broken,
            "seconds": self.seconds,
            "stand_ins": self.stand_ins,
            "left_out": self.left_out,
            "asked": self.asked,
            "versions": replay.versions(),
            "functions": [
                {
                    "name": one.name,
                    "gradients": one.gradients,
                    "refused": one.refused,
                    "sha256": one.hashes,
                    "outcomes": [each.as_json(one.cause(each) if each.bad else None) for each in one.outcomes],
                }
                for one in self.judged
            ],
            "mutants": [
                {"change": fate.mutant.name, "line": fate.line, "operator": fate.mutant.operator, "fate": fate.fate}
                for fate in self.mutants
            ],
        }

    def __str__(self) -> str:
        lines = [f"{one.name}: {each.trial} ({each.trial.described()}): {each.message}"
                 for one in self.judged for each in one.wrong]  # fmt: skip
        lines += [f"{one.name} takes none of the inputs" for one in self.judged if one.refuses_everything]
        return self.broken or "\n".join(lines) or ("right" if self.right else "not all trials were made")


@dataclass
class Session:
    """limits: of each process. groups: those that are asked for; None: all. mutants: how many are tried at most; None:
    MUTANTS of them, and none where only some groups are asked for."""

    source: Source
    groups: list[str] | None = None
    mutants: int | None = None
    seed: int = 0
    limits: process.Limits = field(default_factory=lambda: process.Limits(SECONDS, MEGABYTES))

    def __post_init__(self) -> None:
        shown = str(self.source.path) if isinstance(self.source, File) else "functions"
        names = list(self.source.names) if isinstance(self.source, File) else []
        limits = {"seconds": self.limits.seconds, "megabytes": self.limits.megabytes}
        asked = dict(names=names, groups=self.groups, mutants=self.mutants, seed=self.seed, **limits)
        self.report = Report(shown, device.describe(), asked=asked)

    @property
    def here(self) -> bool:
        """Whether trials are made in this process: functions can't be sent to one that is no fork of it."""
        return self.source.here

    def walk(self, planned: Callable[[int], object] = lambda count: None) -> Iterator[Outcome | Fate]:
        """Everything that is found, as it comes; `report` holds it too. planned: told how many there will be."""
        start = time.perf_counter()
        try:
            yield from self._walk(planned)
        finally:
            self.report.seconds = round(time.perf_counter() - start, 1)

    def _walk(self, planned: Callable[[int], object]) -> Iterator[Outcome | Fate]:
        missing = sanitizers.missing(self.groups or USUAL)
        groups = [group for group in self.groups or USUAL if group not in missing]
        self.report.left_out = sanitizers.in_words(missing)
        if not groups:
            self.report.broken = self.report.left_out
            return
        process.warm_up()
        if device.INTERPRET:
            interpreted.launch_once()
        jobs = [(self.source, groups, self.seed, True)]
        for job, found in process.stream(_plan, jobs, self.limits, self.here):
            if isinstance(found, process.Death) and job[-1]:
                jobs.append((*job[:-1], False))  # a call of a function may have been its end: the trials will show it
            elif isinstance(found, process.Death):
                self.report.broken = f"the file {found.message}, while it was imported or its inputs were made"
            elif isinstance(found, str):
                self.report.broken = found
            else:
                self.report.judged.append(found)
        if self.report.broken:
            return
        count = sum(len(one.trials) for one in self.report.judged)
        planned(count)
        yield from self._trials()
        most = self.mutants if self.mutants is not None else 0 if self.groups else MUTANTS
        chosen = [] if self.report.wrong else sample(self.source.mutants(), most)
        if chosen:
            planned(count + len(chosen))
            yield from self._mutants(chosen)
        self.report.complete = True

    def _trials(self) -> Iterator[Outcome]:
        """Each group of each function in a process of its own, and what is left of it after a death in another."""
        jobs = [
            (self.source, one.name, [trial for trial in one.trials if trial.group == group])
            for one in self.report.judged
            for group in GROUPS
        ]
        jobs = [job for job in jobs if job[2]]
        done: dict[tuple, int] = {}
        for job, outcome in process.stream(_tried, jobs, self.limits, self.here):
            _, name, trials = job
            number = done.get((name, *trials), 0)
            done[name, *trials] = number + 1
            if isinstance(outcome, process.Death):
                outcome = Outcome(trials[number], "died", f"the process {outcome.message}")
                if rest := trials[number + 1 :]:
                    jobs.append((self.source, name, rest))
            next(one for one in self.report.judged if one.name == name).outcomes.append(outcome)
            yield outcome

    def _mutants(self, mutants: list[Mutant]) -> Iterator[Fate]:
        text = self.source.path.read_text("utf-8") if isinstance(self.source, File) else ""
        jobs = [(self.source, mutant, self.seed) for mutant in mutants]
        for (_, mutant, _), fate in process.stream(_judge_mutant, jobs, replace(self.limits, seconds=SECONDS)):
            fate = "died" if isinstance(fate, process.Death) else fate
            found = Fate(mutant, fate, text.count("\n", 0, mutant.start) + 1)
            self.report.mutants.append(found)
            yield found

    def run(self) -> Report:
        for _ in self.walk():
            pass
        return self.report


# ---------------------------------------------------------------- in a process of its own
def _before_a_card(work: Callable) -> Callable:
    """Of what runs the file: where there is no GPU, it is told that there is one, see `academy.compiler.stand_in`.
    Nothing is tuned: an autotuned kernel runs with its first configuration."""

    @functools.wraps(work)
    def walk(job: Any) -> Iterator:
        with stand_in.for_files(), tuning.chosen():
            yield from work(job)

    return walk


@_before_a_card
def _plan(job: tuple[Source, list[str] | None, int, bool]) -> Iterator[Judged | str]:
    """The functions and their trials; or, as text, why there are none.

    The last of the job is whether each function is called once, to see whether it gives gradients.
    """
    source, groups, seed, call = job
    try:
        subjects = source.load()
        plans = []
        for subject in subjects:
            try:
                plans.append((subject, *_planned(subject, seed, call, groups or USUAL)))
            except Unusable:
                if not subject.derived:  # a guess by its name
                    raise
    except Unusable as error:
        yield str(error)
        return
    except Exception as error:
        trouble.let_through(error)
        yield f"the file can't be imported: {type(error).__name__}: {error}"
        return
    for subject, mode, plan in plans:
        against = f"{subject.name[:-1]}_reference, in place" if subject.derived else f"{subject.name}_reference"
        told: dict[str, Any] = dict(stand_ins=stand_in.used(), against=against, helpers=_helpers(subject))
        told |= dict(hashes=replay.hashes(subject), refused=sorted(refusing(subject)))
        yield Judged(subject.name, mode, plan.trials(groups), **told)


def _helpers(subject: Subject) -> list[str]:
    module = inspect.getmodule(inspect.unwrap(subject.function))
    return [Path(file).name for file in jitted_files(module)[1:]] if module and module.__file__ else []


def _planned(subject: Subject, seed: int, call: bool, groups: list[str]) -> tuple[str, Plan]:
    plan = Plan(subject, seed, device.INTERPRET)
    trial = plan.trial("odd sizes", options=tuple(subject.combinations()[0].items()))
    try:
        mode = gradient_mode(subject, trial, call)
    except Unusable:
        raise
    except Exception as error:
        trouble.let_through(error)
        sizes = ", ".join(f"{dim}={size}" for dim, size in trial.sizes)
        message = f"{subject.name}_reference fails with the inputs that it should take ({sizes}): "
        message += f"{type(error).__name__}: {error}. Say with INPUTS what the arguments look like"
        raise Unusable(message) from error
    plan.differentiable = mode == "gradients"
    plan.ranks = ranks(subject, trial)
    plan.batched = batch.dims(Attempt(subject, trial)) if "batch" in groups else []
    plan.configurations = configurations.of(Attempt(subject, trial)) if call else []
    return mode, plan


@_before_a_card
def _tried(job: tuple[Source, str, list[Trial]]) -> Iterator[Outcome]:
    source, name, trials = job
    (subject,) = [subject for subject in source.load() if subject.name == name]
    for trial in trials:
        yield attempt(subject, trial)


@_before_a_card
def _judge_mutant(job: tuple[File, Mutant, int]) -> Iterator[str]:
    source, mutant, seed = job
    try:
        subjects = source.mutated(mutant)
    except Exception as error:
        trouble.let_through(error)
        yield "error"
        return
    for subject in subjects:
        plan = Plan(subject, seed, device.INTERPRET)
        for trial in quick(plan):
            outcome = attempt(subject, trial)
            if outcome.bad or outcome.state == "refused":
                crashed = outcome.line is not None or outcome.state == "refused"
                yield "error" if crashed else "value"
                return
    yield "survived"
