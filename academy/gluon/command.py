"""`academy simulate FILE`: run a Gluon file in the simulator, in several schedules, and say what is wrong and where."""

# ruff: noqa: I001  academy.runtime.device must come before triton

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import os
import runpy
import sys
from pathlib import Path
from shlex import quote
from unittest import mock

os.environ["TRITON_INTERPRET"] = "1"  # also where there is a GPU

from academy.runtime import device  # noqa: F401

from academy import gluon
from academy.command import trouble
from academy.compiler import messages
from academy.gluon import lanes, simulator
from academy.files.textfiles import check_writable, read_python, write_text


def main(arguments: list[str]) -> int:
    """Exit status: 0 if nothing is wrong in any schedule, 1 if something is, 2 for a file that can't be run."""
    options = _parser().parse_args(arguments)
    seeds = range(options.seeds) if options.seed is None else [options.seed]
    try:
        text = read_python(options.file)
    except ValueError as error:
        return _wrong(str(error))
    check_writable(options.json)
    launches: list[str] = []
    events: list[dict] = []
    for seed in seeds:
        try:
            with _collecting(launches, events, seed == seeds[0] and (options.lanes or options.json)):
                _run(options.file, text, seed)
        except gluon.GluonError as error:
            print(f"{options.file}: {type(error).__name__}\n{error}")
            print(f"To see it again: academy simulate {quote(str(options.file))} --seed {seed} --lanes")
            _show(events, options)
            return 1
        except (Exception, SystemExit) as error:
            trouble.let_through(error)
            message, line = messages.cause_of(error, str(options.file))
            return _wrong(f"{options.file}:{line}: {message}")
        if not launches:
            return _wrong(f"{options.file} launches no Gluon kernel")
    _show(events, options)
    kernels = ", ".join(dict.fromkeys(launches))
    print(f"{options.file}: nothing is wrong with {kernels} in {len(seeds)} schedule{'s' * (len(seeds) != 1)}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="academy simulate",
        description="Run a file with Gluon kernels in a simulator of Hopper: its function EXAMPLE(), or the file as "
        "a script. Missing waits and fences, deadlocks, miscounted barriers and wrong layouts are named with lines, "
        "partitions, buffer and phase. Needs no GPU. The file is executed.",
        epilog=trouble.STATUS,
    )
    add = parser.add_argument
    add("file", metavar="FILE", type=Path)
    add("--seeds", type=int, default=10, help="how many schedules (default: 10)")
    add("--seed", type=int, help="only this schedule: to repeat one that failed")
    add("--lanes", action="store_true", help="draw what overlapped in the first program of the first launch")
    add("--json", type=Path, metavar="FILE", help="write that as JSON: lanes, spans, phases")
    return parser


def _wrong(message: str) -> int:
    print(f"academy simulate: {message}", file=sys.stderr)
    return 2


def _run(file: Path, text: str, seed: int) -> None:
    """EXAMPLE(), or the file as a script, whose own output and exit status don't matter here."""
    with gluon.schedule(seed), contextlib.redirect_stdout(io.StringIO()):
        sys.path.insert(0, str(file.resolve().parent))
        try:
            if "\ndef EXAMPLE(" in text:
                runpy.run_path(str(file))["EXAMPLE"]()
            else:
                with mock.patch.object(sys, "argv", [str(file)]), contextlib.suppress(SystemExit):
                    runpy.run_path(str(file), run_name="__main__")
        finally:
            sys.path.pop(0)


@contextlib.contextmanager
def _collecting(launches: list[str], events: list[dict], keep: bool):
    """Note each launch, and what happens in the first program of the first one."""
    simulate = simulator.simulate

    def noted(kernel, grid, *args, **kwargs):
        first = keep and not launches and not events
        if first and math.prod(grid) > 1:
            print(
                f"The lanes are those of the first of {math.prod(grid)} programs of {kernel.fn.__name__}.",
                file=sys.stderr,
            )
        launches.append(kernel.fn.__name__)
        simulate(kernel, grid, *args, events=events if first else None, **kwargs)

    with mock.patch.object(simulator, "simulate", noted):
        yield


def _show(events: list[dict], options: argparse.Namespace) -> None:
    drawn = lanes.timeline(events)
    if options.lanes and events:
        print(lanes.text(drawn))
    if options.json:
        write_text(options.json, json.dumps(drawn, separators=(",", ":")))
        print(f"wrote {options.json}")
