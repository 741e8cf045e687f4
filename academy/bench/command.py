"""`academy bench`: measure every operation on this machine's GPU, show a table, keep the results.

What is already measured, of the same source and with the versions that are here, is skipped: an interrupted run goes on
where it stopped, and one without a peer leaves what was measured with it. Each case is saved as soon as it is measured.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from academy.bench import store

ROOT = Path(__file__).resolve().parents[2]
SHORT = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
DESCRIPTION = """Measure the kernels against PyTorch, torch.compile and their peers on this machine's GPU.
Results go to benchmarks/results/<device>/<operation>.json; what is measured already is skipped."""
EPILOG = """Exit status: 0 all is measured; 1 one of our kernels failed or was wrong; 2 wrong arguments, no GPU, or
results of another device in the way; 3 the time was up, and the same command goes on."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--only",
        metavar="OP",
        action="append",
        help="only this operation (a file's name without .py; `matmul` also takes matmul_…); may be repeated",
    )
    target = parser.add_mutually_exclusive_group()
    target.add_argument("--json", metavar="FILE", type=Path, help="write all results to one file instead")
    target.add_argument(
        "--results",
        metavar="DIR",
        type=Path,
        default=ROOT / "benchmarks" / "results",
        help="folder of results, one folder per device inside (default: benchmarks/results)",
    )
    parser.add_argument("--minutes", type=float, help="start nothing that would not be done after this long")
    parser.add_argument("--again", action="store_true", help="measure again what is measured already")
    parser.add_argument("--list", action="store_true", help="list operations and the number of their cases, and stop")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="academy bench", description=DESCRIPTION, epilog=EPILOG)
    add_arguments(parser)
    return run(parser.parse_args(argv))


def run(arguments: argparse.Namespace) -> int:
    """Measure as the arguments say; the exit status is explained in `EPILOG`."""
    from academy import device
    from academy.bench import operation

    try:
        operations = select(operation.discover(), arguments.only)
    except ValueError as error:
        return _refuse(str(error))
    if arguments.list:
        for found in operations:
            print(f"{found.name:20} {len(list(found.cases())):4} cases  {', '.join(found.files.values())}")
        return 0
    if device.INTERPRET:
        return _refuse("no CUDA device here; the interpreter's times would say nothing about a kernel")
    from academy.bench.measure import Gpu

    gpu = Gpu()
    if arguments.json:
        results = store.Results(gpu.name, file=arguments.json)
    else:
        results = store.Results(gpu.name, folder=arguments.results)
    try:
        return Session(operations, results, gpu, arguments.minutes, arguments.again).run()
    except store.OtherDevice as error:
        return _refuse(str(error))


def select(operations: list, only: list[str] | None) -> list:
    """The operations named by `--only`. Raises ValueError for a name that fits none."""
    if not only:
        return operations
    chosen = []
    for name in only:
        fitting = [o for o in operations if o.name == name or o.name.startswith(f"{name}_")]
        if not fitting:
            raise ValueError(f"--only {name}: there are {', '.join(o.name for o in operations)}")
        chosen += [o for o in fitting if o not in chosen]
    return chosen


def _refuse(message: str) -> int:
    print(f"academy bench: {message}", file=sys.stderr)
    return 2


class Session:
    """A run of the benchmark: goes through operations and cases, keeps to the time, shows progress and tables."""

    def __init__(self, operations: list, results: store.Results, gpu, minutes: float | None, again: bool):
        self.operations, self.results, self.gpu, self.again = operations, results, gpu, again
        self.begin = time.monotonic()
        self.seconds = None if minutes is None else 60 * minutes
        self.longest = 0.0
        self.failures: list[str] = []

    def run(self) -> int:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        from academy import device

        console = _console()
        records = {o.name: self.results.load(o.name) for o in self.operations}  # refuses before anything is measured
        todo = {o.name: self._todo(o, records[o.name]) for o in self.operations}
        console.print(device.describe())
        copied, multiplied = self.gpu.copy_rate(), self.gpu.matrix_rate(_bfloat16())
        console.print(f"This card copies {copied:.2f} TB/s and multiplies bf16 matrices at {multiplied:.0f} TFLOP/s.")
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task("", total=sum(map(len, todo.values())))
            for operation in self.operations:
                for case in todo[operation.name]:
                    if self._time_is_up():
                        left = progress.tasks[0].total - progress.tasks[0].completed
                        console.print(f"The time is up; {left:.0f} cases are left: the same command goes on with them.")
                        return 3
                    progress.update(task, description=f"{operation.name} {_label(case)}")
                    try:
                        self._measure(operation, case, records[operation.name])
                    except Exception as error:  # one case that can't be measured must not end the whole run
                        self.failures.append(f"{operation.name} {_label(case)}: {type(error).__name__}: {error}")
                    progress.advance(task)
                console.print(table(operation, records[operation.name]))
        for failure in self.failures:
            console.print(f"[red]{failure}")
        return 1 if self.failures else 0

    def _todo(self, operation, record: dict) -> list:
        from academy.bench.run import dtype_name, provenance

        now = provenance(operation)

        def is_done(old: dict | None) -> bool:
            if old is None or old["sources"] != now["sources"]:
                return False
            return now["versions"].items() <= old["versions"].items()

        cases = [
            (variant, shape, dtype)
            for variant, shape, dtype in operation.cases()
            if self.again or not is_done(store.find_case(record, variant.name, shape, dtype_name(dtype)))
        ]
        hosts = {h["variant"]: h for h in record.get("host", [])}
        return cases + [(v, None, None) for v in operation.variants if self.again or not is_done(hosts.get(v.name))]

    def _measure(self, operation, case: tuple, record: dict) -> None:
        from academy.bench.run import dtype_name, measure_case, measure_host

        begin = time.monotonic()
        variant, shape, dtype = case
        if shape is None:
            others = [h for h in record.get("host", []) if h["variant"] != variant.name]
            record["host"] = [*others, measure_host(operation, variant, self.gpu)]
        else:
            measured = measure_case(operation, variant, shape, dtype, self.gpu)
            store.put_case(record, measured)
            store.sort_cases(record, [(v.name, s, dtype_name(d)) for v, s, d in operation.cases()])
            for provider in operation.files:
                if "failed" in (note := measured["notes"].get(provider, {})):
                    self.failures.append(f"{operation.name} {_label(case)}: {provider}: {note['failed']}")
        self.results.save(record)
        self.longest = max(self.longest, time.monotonic() - begin)

    def _time_is_up(self) -> bool:
        if self.seconds is None:
            return False
        return time.monotonic() - self.begin + self.longest > self.seconds


def _bfloat16():
    import torch

    return torch.bfloat16


def _label(case: tuple) -> str:
    variant, shape, dtype = case
    if shape is None:
        return f"{variant.name} host time".strip()
    return f"{variant.name} {'x'.join(map(str, shape))} {str(dtype).removeprefix('torch.')}".strip()


def table(operation, record: dict):
    """All results of an operation as a rich table: time of each provider, share of the limit in brackets."""
    from rich.table import Table

    passes = [(case, which) for case in record["cases"] for which in case["passes"]]
    names = list(dict.fromkeys(n for case, which in passes for n in case["passes"][which]["providers"]))
    notes = [(name, note) for case in record["cases"] for name, note in case["notes"].items()]
    missing = {f"{name} is missing ({note['missing']})": None for name, note in notes if "missing" in note}
    failed = {f"{name} failed ({note['failed']})": None for name, note in notes if "failed" in note}
    caption = "; ".join([*missing, *failed]) or None
    result = Table(
        title=f"{operation.name}: ms (share of the limit)",
        title_justify="left",
        caption=caption,
        caption_justify="left",
    )
    for heading in ("shape", "pass"):
        result.add_column(heading)
    for name in names:
        result.add_column(name, justify="right")
    for case, which in passes:
        entry = case["passes"][which]
        dtype = SHORT.get(case["dtype"], case["dtype"])
        shape = f"{case['variant']} {'x'.join(map(str, case['shape']))} {dtype}".strip()
        times = [_time(entry["providers"].get(name), entry["limit_ms"]) for name in names]
        result.add_row(shape, which, *times)
    return result


def _time(measured: dict | None, limit_ms: float) -> str:
    return f"{measured['ms']:.3g} ({limit_ms / measured['ms']:.0%})" if measured else "-"


def _console():
    """The terminal; a file or a pipe has room for all columns."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 120)


def print_speed(kernel_file: Path, seconds: float = 15) -> None:
    """A quick table for a kernel script: lesson, fast, eager and torch.compile, share of the limit, in under 20 s.

    The shapes of its benchmark are taken in turn, first dtype only, no peers, until the time is up. Away from the
    repository there is no benchmark, and nothing is printed.
    """
    from academy.bench import measure, operation, run

    name = kernel_file.relative_to(kernel_file.parents[2]).as_posix()
    found = [path for path in store.benchmark_files(ROOT) if name in store.kernel_files(path).values()]
    if not found:
        return
    begin, gpu = time.monotonic(), measure.Gpu(warmup_ms=10, measure_ms=40)
    quick = operation.Operation.from_file(found[0])
    record: dict = {"cases": []}
    for variant, shape, dtype in quick.cases():
        if dtype != variant.dtypes[0]:
            continue
        alone = operation.without_peers(variant)
        case_begin = time.monotonic()
        record["cases"].append(run.measure_case(quick, alone, shape, dtype, gpu))
        now = time.monotonic()
        if now - begin + (now - case_begin) > seconds:
            break
    _console().print(table(quick, record))
