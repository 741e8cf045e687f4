"""Record kernel files: `python -m academy.traces.worker PIPE`, as `academy.traces.store` starts it, with jobs on stdin.

PIPE: number of the end of a pipe whose other end is held by the process that waits for this one.
"""

# ruff: noqa: I001  academy.runtime.device must come before triton

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

from academy.runtime import device

from academy import interpreter
from academy.command import garbage, misspelt, parent, trouble
from academy.book.layout import KERNELS
from academy.book.syntax import import_file
from academy.traces import births, inputs, proof, store
from academy.traces.observer import Launch, Observer, OutOfBounds, jitted_files
from academy.traces.recorder import Endless, Recorder
from academy.traces.recording import launch_data
from academy.traces.watched_memory import WatchedMemory
from academy.gluon.watching import GluonError, schedule

import torch
import triton


#: Seeds of the orders in which Gluon kernels are simulated.
ORDERS = (0, 1, 2, 3, 4)


def record(
    path: Path,
    files: list[Path],
    max_steps: int | None = None,
    example: Callable[[ModuleType], object] = lambda module: module.EXAMPLE(),
    seeds: Sequence[int] = ORDERS,
) -> dict:
    """The data of one file's recording. What goes wrong in it is an entry of the data, not an exception.

    max_steps: how many statements may run before a loop is taken for one that never ends. example: what is recorded of
    the imported file. seeds: of the orders in which Gluon kernels are simulated; the first one is recorded, of the
    others only what overlaps.

    Raises:
        RuntimeError: kernels are compiled here, not interpreted; or triton's internals are not the known ones.
    """
    if not device.INTERPRET:
        raise RuntimeError("recording needs Triton's interpreter: set TRITON_INTERPRET=1")
    error, failed, printed, others = None, None, io.StringIO(), list[list[Launch]]()
    with WatchedMemory() as watched, contextlib.redirect_stdout(printed):
        recorder = Recorder(map(str, files), watched, max_steps)
        try:
            module = import_file(path, store.ROOT)
            if not path.is_relative_to(store.ROOT):  # what it imports wasn't known before
                files = list(dict.fromkeys([*files, *map(Path, jitted_files(module))]))
                recorder.files |= {str(file.resolve()) for file in files}
            torch.manual_seed(0)
            with recorder.running(), schedule(seeds[0]):
                example(module)
            if any(launch.events for launch in recorder.launches):
                others = _others(watched, lambda: example(module), seeds[1:])
        except interpreter.UnknownInterpreter:
            raise
        except Exception as raised:
            trouble.let_through(raised)
            if isinstance(raised, GluonError) and raised.seed not in (None, seeds[0]):
                return record(path, files, max_steps, example, (raised.seed,))
            error, failed = _where(raised, path, files), raised
            error["message"] += _cause(raised, recorder)
            error.update(zip(("launch", "program"), recorder.stopped or ()))
    whole = [] if error else recorder.launches  # what part of a run leaves out proves nothing
    findings = [finding for launch in whole for finding in proof.findings(launch)] + proof.unwritten_outputs(whole)
    warnings = [finding for launch in whole for finding in proof.suspicious_stores(launch)]
    if whole:
        undefined, made = births.births(recorder)
        findings += inputs.findings(whole) + undefined
        warnings += made
    orders = [_orders(launch, [other[n] for other in others], seeds) for n, launch in enumerate(recorder.launches)]
    if error and isinstance(failed, GluonError) and recorder.stopped:
        from academy.gluon import lanes

        error["fault"] = lanes.fault(failed, orders[recorder.stopped[0]][0])
    places = [(function, store.shorten(file), *where) for function, file, *where in recorder.places]
    return {
        "triton": triton.__version__,
        "files": {store.shorten(file): store.statement_lines(file) for file in files},
        "error": error,
        "findings": [{**vars(finding), "file": store.shorten(finding.file)} for finding in findings],
        "warnings": [{**vars(finding), "file": store.shorten(finding.file)} for finding in warnings],
        "traffic": proof.pass_traffic(whole),
        "printed": printed.getvalue(),
        "launches": [
            launch_data(launch, recorder.pool, places, store.shorten(launch.file), proof.traffic([launch]))
            | ({"orders": drawn} if drawn else {})
            for launch, drawn in zip(recorder.launches, orders)
        ],
        "places": places,
        "pool": recorder.pool.entries,
    }


def _others(watched: WatchedMemory, example: Callable[[], object], seeds: Sequence[int]) -> list[list[Launch]]:
    """The launches of Gluon kernels in other orders, one list for each seed."""
    found = []
    for seed in seeds:
        observer = Observer([], watched)
        with observer.running(), schedule(seed):
            example()
        found.append(observer.launches)
    return found


def _orders(launch: Launch, others: list[Launch], seeds: Sequence[int]) -> list[dict]:
    """What overlaps in the first program of a Gluon kernel, or in the one that failed, in each order."""
    if not launch.events:
        return []
    from academy.gluon import lanes  # what it imports is there, since the simulator has run

    drawn = [lanes.timeline(each.events, launch.file) for each in (launch, *others)]
    return [dict(seed=seed, **order) for seed, order in zip(seeds, drawn)]


def _where(error: BaseException, path: Path, files: list[Path]) -> dict:
    """The place and the message of what went wrong, without the interpreter's wrapping."""
    names, line, file = {str(file) for file in files}, 1, str(path)
    chain = trouble.causes(error)
    for frame in (frame for each in chain for frame in traceback.extract_tb(each.__traceback__)):
        if frame.filename in names:
            file, line = frame.filename, frame.lineno or 1
    error = chain[-1]
    message = "EXAMPLE fails: " + "".join(traceback.format_exception_only(error)).strip()
    message += "" if "Did you mean" in message else misspelt.suggestion(error)
    if isinstance(error, GluonError):
        message = error.message
        file, line = (error.file, error.line) if error.file in names else (file, line)
    if isinstance(error, (OutOfBounds, Endless)):
        file, line, message = error.file, error.line, str(error)
    return {"file": store.shorten(file), "line": line, "message": " ".join(message.split())}


def _cause(error: BaseException | None, recorder: Recorder) -> str:
    """Why a store ran out of its tensor, where the recording shows it."""
    while error is not None and not isinstance(error, OutOfBounds):
        error = error.__cause__
    if error is None or error.touch.operation != "store" or recorder.stopped is None:
        return ""
    number, _ = recorder.stopped
    return proof.wrong_stride(recorder.launches[number], error.touch.argument, error.line, error.touch)


def main() -> None:
    parent.end_with(int(sys.argv[1]))
    torch.set_num_threads(1)
    garbage.rarely()
    out = os.fdopen(os.dup(1), "w")  # results alone: what anything else prints goes to stderr
    os.dup2(2, 1)
    from academy.compiler import stand_in, tuning  # not where a browser records

    for job in json.load(sys.stdin):
        path = Path(job["path"])
        files = contextlib.nullcontext() if path.is_relative_to(store.ROOT / KERNELS) else stand_in.for_files()
        try:
            with files, tuning.chosen() as tuned:
                data = record(path, [Path(file) for file in job["files"]])
            told = [f"{one.named(0)}, the first of {one.total}" for one in tuned.values() if one.total > 1]
            data["notes"] = [*filter(None, [stand_in.used()]), *(f"nothing is tuned here: {each}" for each in told)]
        except trouble.Trouble as found:
            data = dict(trouble=str(found))
        print(json.dumps(data, separators=(",", ":")), file=out, flush=True)


if __name__ == "__main__":
    main()
