"""Measure the rungs of ladders in one run: each is checked against float64 before it is timed.

See `academy.results.ladder` for what a ladder is, and for the files.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from academy.runtime import device, launch
from academy.bench import experiment, operation, run
from academy.bench.operation import Variant
from academy.book import facts
from academy.book.layout import ROOT
from academy.results import figures, ladder, store
from academy.results.tables import Table

#: What PyTorch's own operation is called in the records.
PYTORCH = "pytorch"


def variant(name: str, root: Path = ROOT) -> Variant:
    """What is measured of a ladder. `ours`: the word of each rung -> its function.

    Raises ValueError naming what is wrong with the ladder.
    """
    function, found = ladder.function_name(name, root), ladder.rungs(name, root)
    module = facts.load(root / ladder.BENCHMARKS / f"{name}.py")
    modules = {rung.word: importlib.import_module(rung.module) for rung in found}
    if missing := [rung.path for rung in found if not hasattr(modules[rung.word], function)]:
        raise ValueError(f"{missing[0]} has no function {function}, which {ladder.BENCHMARKS}/{name}.py names")
    functions = {word: getattr(module, function) for word, module in modules.items()}
    settings = {**module.LADDER, "compile": False, "eager_name": PYTORCH}
    variants = operation.read(settings, module.cost, functions, f"{ladder.BENCHMARKS}/{name}.py")
    if len(variants) != 1 or len(variants[0].passes) != 1:
        raise ValueError(f"{ladder.BENCHMARKS}/{name}.py: a ladder has one variant and one pass")
    return variants[0]


def measure(name: str, gpu, progress=lambda case, provider: None) -> dict:
    """The record of a ladder: every rung and PyTorch, in every case. `gpu`: an `academy.runtime.timing.Gpu`.

    `progress(case, provider)` is called before each provider.
    """
    what = variant(name)
    (which,) = what.passes
    found = ladder.rungs(name, ROOT)
    kinds = {
        kind: [rung.word for rung in found if bool(rung.number) == (kind == "rungs")] for kind in ("rungs", "tried")
    }
    record = {"ladder": name, **experiment.about(), **kinds, "sources": ladder.sources(name, ROOT), "cases": []}
    for shape in what.shapes:
        for dtype in what.dtypes:
            torch.manual_seed(0)
            inputs = what.inputs(shape, dtype, gpu.device)
            checker, notes = run.Checker(what, inputs), {}
            limits = run.pass_limits(what, shape, dtype, which, gpu)
            for provider, factory in what.providers().items():
                progress(f"{name} {figures.label(shape)}", provider)
                call, note = run.prepared(provider, factory, inputs, what, checker, ours=what.ours)
                if note:
                    notes[provider] = note
                if call:
                    limits["providers"][provider] = run.measure_time(call, which, what.timing, gpu)
                del call
                torch.cuda.empty_cache() if gpu.device.type == "cuda" else None
            head = {"shape": list(shape), "dtype": run.dtype_name(dtype), "pass": which}
            record["cases"].append(head | limits | {"notes": notes})
            del checker, inputs
    return record


def main(chosen: list[str], results: Path) -> int:
    """Measure these ladders ("all": every one), write them, show tables. Exit status: 1 if a rung failed or was wrong.

    Raises ValueError for a name that isn't a ladder's, or without a GPU.
    """
    known = ladder.names(ROOT)
    wanted = known if "all" in chosen else list(dict.fromkeys(chosen))
    if wrong := [name for name in wanted if name not in known]:
        raise ValueError(f"--ladder {wrong[0]}: there are {', '.join(known)}, and all")
    counts = {name: len(v.shapes) * len(v.dtypes) * len(v.providers()) for name in wanted for v in [variant(name)]}
    if device.INTERPRET:
        raise ValueError("no CUDA device here; the interpreter's times would say nothing about a kernel")
    from academy.runtime import timing as measuring

    gpu, console, failures = measuring.Gpu(), Console(width=None if sys.stdout.isatty() else 120), []
    console.print(f"{device.describe()}, launches {launch.describe()}")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        shown = progress.add_task("", total=sum(counts.values()))
        for name in wanted:
            record = measure(
                name, gpu, lambda case, provider: progress.update(shown, description=f"{case} {provider}", advance=1)
            )
            store.write(results / store.slug(gpu.name) / "ladders" / f"{name}.json", record)
            for case in record["cases"]:
                console.print(table(record, case))
                failures += [
                    f"{name} {figures.label(case['shape'])} {provider}: {note['failed']}"
                    for provider, note in case["notes"].items()
                    if "failed" in note
                ]
    for failure in failures:
        console.print(f"[red]{failure}")
    return 1 if failures else 0


def table(record: dict, case: dict):
    """A case for the terminal."""
    title = f"{record['ladder']}, {figures.label(case['shape'])} {case['dtype']}, {case['pass']}"
    rows = []
    for word, time in figures.ladder_times(record, case).items():
        values = [f"{time.ms:.4g}", f"{time.share:.0%}"] if time.ms and time.share else ["-", "-"]
        kind = "tried: " if word in record["tried"] else ""
        rows.append([kind + word, *values, f"{time.gain:.2f}x" if time.gain else ""])
    return Table(title, ["rung", "ms", "of the limit", "gain"], rows).terminal(words=1)
