"""The run of a reader's text that a check ended with, recorded with all values: what the viewer shows of an exercise.

A check only watches accesses. So the check is done twice with the same seed: the first time counts the calls, and in
the second the one that matters is recorded instead, with its arguments as they were.
"""

# ruff: noqa: I001  academy.runtime.device must come before triton

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

from academy.runtime import device  # noqa: F401
import numpy as np
import torch

from academy import interpreter
from academy.exercises import marking
from academy.exercises.answer import Answer
from academy.traces import page, store, worker
from academy.traces.recording import Recording

#: Statements that a recorded case may take.
MAX_STEPS = 40_000
#: A case with so many numbers shows something; of those that do, the smallest is shown.
_WORTHWHILE = 6
_ELEMENT = re.compile(r"`?\w+\[([\d, ]+)\]`? (?:is|was)")


class _Recorded(Exception):
    """Ends the second check."""


class _Counting(Answer):
    def __init__(self, path: Path, sizes: list[int]):
        super().__init__(path)
        self.sizes = sizes

    def run(self, function: str, arguments: tuple, lanes: float | None = None):
        if lanes is None:
            self.sizes.append(sum(value.numel() for value in arguments if isinstance(value, torch.Tensor)))
        return super().run(function, arguments, lanes)


class _Recording(Answer):
    """Records call number `wanted`, counted from 0."""

    def __init__(self, path: Path, wanted: int, found: list[dict]):
        super().__init__(path)
        self.left, self.found = wanted, found

    def run(self, function: str, arguments: tuple, lanes: float | None = None):
        if lanes is None and self.left == 0:
            # A file of its own: the text of this one has been imported already.
            copy = self.path.with_name(f"shown_{self.path.name}")
            copy.write_text(self.path.read_text("utf-8"), "utf-8")
            with contextlib.suppress(ValueError, RuntimeError):
                self.found.append(recorded(copy, function, arguments))
            interpreter.forget(str(copy))
            raise _Recorded
        self.left -= lanes is None
        return super().run(function, arguments, lanes)


def watched(name: str, source: str, seed: int | None = None) -> dict:
    """The case that a check of the text ends with: the one that fails, or else a small one.

    Returns:
        message, problems, as the check has them. data: what the viewer shows; None if the check called nothing that
        launches a kernel. at: launch, program and step that are to blame, or `whole` for an element that nobody wrote.
    """
    sizes: list[int] = []
    outcome = marking.mark(name, source, seed, start=lambda path: _Counting(path, sizes), compiled=False)
    passed = outcome.state == "passed"
    message = outcome.message if passed or sizes else f"There is no run to show. {outcome.message}"
    shown = {
        "state": outcome.state,
        "message": message if passed else "",
        "seed": outcome.seed,
        "data": None,
        "at": None,
    }
    shown["problems"] = [] if passed else [{"line": outcome.line, "message": message}]
    if not sizes:
        return shown
    worthwhile = [size for size in sizes if size >= _WORTHWHILE]
    wanted = sizes.index(min(worthwhile, default=max(sizes))) if passed else len(sizes) - 1
    found: list[dict] = []
    with contextlib.suppress(_Recorded):
        marking.mark(name, source, outcome.seed, start=lambda path: _Recording(path, wanted, found), compiled=False)
    if found and found[0]["recording"].launches:
        recording = found[0]["recording"]
        shown["data"] = found[0]["data"]
        shown["at"] = None if passed else blamed(recording, outcome.message, outcome.line)
        if passed:
            shown["message"] = f"{outcome.message} Here is one of its cases."
    return shown


def recorded(path: Path, function: str, arguments: tuple) -> dict:
    data = worker.record(
        path, store.built_on(path), MAX_STEPS, example=lambda module: getattr(module, function)(*arguments)
    )
    recording = Recording(data)
    return {"recording": recording, "data": page.viewer_data(path, recording)}


def blamed(recording: Recording, message: str, line: int | None) -> dict | None:
    """Where the viewer has to go: the step that wrote the element a message names, else the line it names."""
    if stopped := recording.stopped:
        launch, pid = stopped
        return {"launch": launch, "pid": list(pid), "step": 1_000_000}
    found = _ELEMENT.search(message)
    if found and line is None:
        index = tuple(map(int, found[1].split(", ")))
        for number, tensor in reversed([each for each in written(recording) if len(each[1]["shape"]) == len(index)]):
            if all(i < size for i, size in zip(index, tensor["shape"])):
                element = int(np.ravel_multi_index(index, tensor["shape"]))
                launch = recording.launches[number]
                if place := recording.writer(launch, launch["tensors"].index(tensor), element):
                    return {"launch": number, "pid": list(place[0]), "step": place[1]}
                return {"launch": number, "whole": True}
    for number, each in enumerate(recording.launches):
        for pid, _ in each["programs"]:
            steps = recording.steps(each, tuple(pid)) or []
            at = next((i for i, step in enumerate(steps) if step.line == line), None)
            if at is not None:
                return {"launch": number, "pid": list(pid), "step": at}
    return None


def written(recording: Recording) -> list[tuple[int, dict[str, Any]]]:
    """The tensors that launches write, with the number of the launch, in the order of the run."""
    found = []
    for number, launch in enumerate(recording.launches):
        stores = {a[1] for _, rows in launch["programs"] for *_, accesses in rows for a in accesses if a[0] != "load"}
        found += [(number, launch["tensors"][tensor]) for tensor in sorted(stores)]
    return found
