"""`academy bench`: measure every operation on this machine's GPU, show a table, keep the results.

What has already been measured, from the same source and with the versions installed here, is skipped: an interrupted
run continues where it stopped, and a run without a peer keeps that peer's earlier results. Each case is saved as soon
as it is measured.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import fnmatch
import math
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from rich.console import Console

from academy.runtime import device, launch, timing  # before anything imports triton
from academy.bench import run
from academy.bench.operation import ROOT, Operation, Variant, discover
from academy.bench.run import dtype_name
from academy.book import facts, layout
from academy.command.progress import bar
from academy.files import cache
from academy.results import figures, store
from academy.results.tables import Table

#: How long a quick look measures, about.
QUICK_SECONDS = 15
SHORT = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
DESCRIPTION = """Measure the kernels against PyTorch, torch.compile and their peers on this machine's GPU.
Results go to benchmarks/results/<device>/<operation>.json; what has already been measured is skipped."""
EPILOG = """Exit status: 0 everything is measured; 1 one of our kernels failed or was wrong; 2 wrong arguments, no GPU,
or results of another device in the way; 3 the time was up, and the same command continues."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--only",
        metavar="OP",
        action="append",
        help="only this operation (a file's name without .py, or a pattern such as 'matmul*'); may be repeated",
    )
    target = parser.add_mutually_exclusive_group()
    target.add_argument("--json", metavar="FILE", type=Path, help="write all results to one file instead")
    target.add_argument(
        "--results",
        metavar="DIR",
        type=Path,
        default=ROOT / layout.RESULTS,
        help="folder of results, one folder per device inside (default: benchmarks/results)",
    )
    parser.add_argument(
        "--ladder",
        metavar="NAME",
        action="append",
        help="measure each rung of this ladder (`all`: of every one) instead, in one run with PyTorch; may be repeated",
    )
    parser.add_argument(
        "--part",
        metavar="K/N",
        help="only the K-th of N parts of about the same length, so that each card of a machine takes one",
    )
    parser.add_argument("--minutes", type=float, help="start nothing that would not finish within this time")
    parser.add_argument("--again", action="store_true", help="measure again what has already been measured")
    parser.add_argument("--list", action="store_true", help="list operations and the number of their cases, and stop")


def main(argv: list[str] | None = None) -> int:
    """Measure as the arguments say; the exit status is explained in `EPILOG`."""
    parser = argparse.ArgumentParser(prog="academy bench", description=DESCRIPTION, epilog=EPILOG)
    add_arguments(parser)
    arguments = parser.parse_args(argv)
    beside = [arguments.only, arguments.json, arguments.list, arguments.minutes, arguments.part]
    if arguments.ladder and any(beside):
        parser.error("--ladder goes with --results only")
    try:
        if not (ROOT / layout.OPERATIONS).is_dir():
            raise ValueError("benchmarks are part of the repository, not of the installed package: run it in a clone")
        if arguments.ladder:
            from academy.bench import ladder_run

            with only_one(_lock()):
                return ladder_run.main(arguments.ladder, arguments.results)
        operations = part(select(discover(), arguments.only), arguments.part)
        if arguments.list:
            for found in operations:
                print(f"{found.name:20} {len(list(found.cases())):4} cases  {', '.join(found.files.values())}")
            return 0
        if device.INTERPRET:
            raise ValueError("no CUDA device here; the interpreter's times would say nothing about a kernel")
        gpu = timing.Gpu()
        results = store.Results(gpu.name, folder=None if arguments.json else arguments.results, file=arguments.json)
        with only_one(_lock()):
            return Session(operations, results, gpu, arguments.minutes, arguments.again).run()
    except ValueError as error:
        print(f"academy bench: {error}", file=sys.stderr)
        return 2


def select(operations: list, only: list[str] | None) -> list:
    """The operations named by `--only`. Raises ValueError for a name that fits none."""
    if not only:
        return operations
    chosen = []
    for name in only:
        fitting = [o for o in operations if fnmatch.fnmatchcase(o.name, name)]
        if not fitting:
            raise ValueError(f"--only {name}: there are {', '.join(o.name for o in operations)}")
        chosen += [o for o in fitting if o not in chosen]
    return chosen


def part(operations: list, which: str | None) -> list:
    """The K-th of N parts ("K/N") of the operations, dealt out by their number of cases. Raises ValueError."""
    if which is None:
        return operations
    given = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", which)
    if not given or int(given[1]) > int(given[2]):
        raise ValueError(f"--part {which}: write K/N with 1 <= K <= N, such as 1/4")
    loads: list[list] = [[] for _ in range(int(given[2]))]
    for operation in sorted(operations, key=lambda o: -len(list(o.cases()))):
        min(loads, key=lambda load: sum(len(list(o.cases())) for o in load)).append(operation)
    return loads[int(given[1]) - 1]


def _lock() -> Path:
    """One for each card, whatever number it has in this process."""
    card = torch.cuda.get_device_properties().uuid if torch.cuda.is_available() else "none"
    return cache.FILE.with_name(f"bench-{card}.lock")


@contextlib.contextmanager
def only_one(lock: Path) -> Iterator[None]:
    """Two sessions on one card would disturb each other. Raises ValueError if one is running already."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with open(lock, "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            message = "is measuring on this card, and the two would disturb each other; wait until it ends"
            raise ValueError(f"another academy bench (process {file.read() or 'unknown'}) {message}") from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
        file.truncate(0)


@dataclass(frozen=True)
class Task:
    """Something to measure: a case of a variant or, without a shape, its host time."""

    variant: Variant
    shape: tuple[int, ...] = ()
    dtype: torch.dtype | None = None

    def __str__(self) -> str:
        if self.dtype is None:
            return f"{self.variant.name} host time".strip()
        return f"{self.variant.name} {figures.label(self.shape)} {dtype_name(self.dtype)}".strip()


class Session:
    """A run of the benchmark: goes through operations and cases, keeps to the time, shows progress and tables."""

    def __init__(self, operations: list[Operation], results: store.Results, gpu, minutes: float | None, again: bool):
        self.operations, self.results, self.gpu, self.again = operations, results, gpu, again
        self.begin = time.monotonic()
        self.seconds = math.inf if minutes is None else 60 * minutes
        self.longest = 0.0
        self.failures: list[str] = []

    def run(self) -> int:
        console = _console()
        records = {o.name: self.results.load(o.name) for o in self.operations}  # refuses before anything is measured
        todo = {o.name: self._todo(o, records[o.name]) for o in self.operations}
        console.print(f"{device.describe()}, launches {launch.describe()}")
        copied, multiplied = self.gpu.copy_rate(), self.gpu.matrix_rate(torch.bfloat16)
        console.print(f"This card copies {copied:.2f} TB/s and multiplies bf16 matrices at {multiplied:.0f} TFLOP/s.")
        left = sum(map(len, todo.values()))
        with bar(console) as progress:
            shown = progress.add_task("", total=left)
            for operation in self.operations:
                for task in todo[operation.name]:
                    if time.monotonic() - self.begin + self.longest > self.seconds:
                        console.print(f"The time is up; {left} cases are left: the same command continues with them.")
                        return 3
                    progress.update(shown, description=f"{operation.name} {task}")
                    try:
                        self._measure(operation, task, records[operation.name])
                    except Exception as error:  # one case that can't be measured must not end the whole run
                        self.failures.append(f"{operation.name} {task}: {type(error).__name__}: {error}")
                    left -= 1
                    progress.advance(shown)
                console.print(table(operation, records[operation.name]))
        for failure in self.failures:
            console.print(f"[red]{failure}")
        return 1 if self.failures else 0

    def _todo(self, operation: Operation, record: dict) -> list[Task]:
        now = run.provenance(operation)
        cases = {store.key_of(case): case for case in record["cases"]}
        hosts = {host["variant"]: host for host in record.get("host", [])}

        def is_done(task: Task) -> bool:
            name = task.variant.name
            old = cases.get((name, task.shape, dtype_name(task.dtype))) if task.dtype else hosts.get(name)
            if old is None or old["sources"] != now["sources"]:
                return False
            return now["versions"].items() <= old["versions"].items()

        tasks = [*(Task(*case) for case in operation.cases()), *map(Task, operation.variants)]
        return [task for task in tasks if self.again or not is_done(task)]

    def _measure(self, operation: Operation, task: Task, record: dict) -> None:
        begin = time.monotonic()
        if task.dtype is None:
            others = [h for h in record.get("host", []) if h["variant"] != task.variant.name]
            record["host"] = [*others, run.measure_host(operation, task.variant, self.gpu)]
        else:
            measured = run.measure_case(operation, task.variant, task.shape, task.dtype, self.gpu)
            store.put_case(record, measured, [(v.name, s, dtype_name(d)) for v, s, d in operation.cases()])
            for provider in operation.files:
                if "failed" in (note := measured["notes"].get(provider, {})):
                    self.failures.append(f"{operation.name} {task}: {provider}: {note['failed']}")
        self.results.save(record)
        self.longest = max(self.longest, time.monotonic() - begin)


def table(operation: Operation, record: dict):
    """All results of an operation for the terminal: time of each provider, share of the limit in brackets."""
    found = figures.passes(record["cases"], measured=False)
    names = list(dict.fromkeys(name for each in found for name in each.providers))
    notes = [(name, note) for case in record["cases"] for name, note in case["notes"].items()]
    missing = {f"{name} is missing ({note['missing']})": None for name, note in notes if "missing" in note}
    failed = {f"{name} failed ({note['failed']})": None for name, note in notes if "failed" in note}
    rows = []
    for each in found:
        dtype = SHORT.get(each.case["dtype"], each.case["dtype"])
        shape = f"{each.case['variant']} {figures.label(each.case['shape'])} {dtype}".strip()
        times = [f"{each.ms(n):.3g} ({each.share(n):.0%})" if n in each.providers else "-" for n in names]
        rows.append([shape, each.which, *times])
    drawn = Table(f"{operation.name}: ms (share of the limit)", ["shape", "pass", *names], rows)
    return drawn.terminal(words=2, caption="; ".join([*missing, *failed]))


def _console() -> Console:
    """The terminal; a file or a pipe has room for all columns."""
    return Console(width=None if sys.stdout.isatty() else 120)


def print_speed(kernel_file: Path) -> None:
    """A quick table for a kernel script: lesson, fast, eager and torch.compile, share of the limit, in under 20 s.

    The shapes of its benchmark are taken in turn, first dtype only, no peers, until the time is up. Away from the
    repository there is no benchmark, and nothing is printed.
    """
    name = kernel_file.relative_to(kernel_file.parents[2]).as_posix()
    found = [path for path in facts.measured(ROOT) if name in facts.kernels(path).values()]
    if not found:
        return
    begin, gpu = time.monotonic(), timing.Gpu(warmup_ms=10, measure_ms=40)
    quick = Operation.from_file(found[0])
    record: dict = {"cases": []}
    for variant, shape, dtype in quick.cases():
        if dtype != variant.dtypes[0]:
            continue
        case_begin = time.monotonic()
        record["cases"].append(run.measure_case(quick, replace(variant, peers={}), shape, dtype, gpu))
        now = time.monotonic()
        if now - begin + (now - case_begin) > QUICK_SECONDS:
            break
    _console().print(table(quick, record))
