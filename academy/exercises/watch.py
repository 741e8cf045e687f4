"""Run a reader's function and watch its kernels, as `academy trace` does, but without keeping the values.

Compiled kernels can't be watched: there only results are compared.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from academy import device
from academy.traces import proof
from academy.traces.memory import OutOfBounds
from academy.traces.recorder import Launch, Recorder, Touch
from academy.traces.watched_memory import WatchedMemory

#: Statements of one program, and lines of Python of one call, after which a loop counts as endless.
STATEMENTS, LINES = 1000, 20_000


class Endless(Exception):
    """A loop that doesn't end, with the line at which it was stopped."""

    line = 1


#: What ends a run of kernels that are wrong; the others are errors of the text.
STOPPED = (OutOfBounds, Endless)


class Watcher(Recorder):
    """A recorder of accesses. It keeps no values, and it ends a program that never ends."""

    steps = 0

    def _around_set_grid_idx(self, original, builder, *index):
        self.steps = 0
        return super()._around_set_grid_idx(original, builder, *index)

    def _hook(self, event, function, file, line, variables, value=None):
        self.steps += 1
        if self.steps > STATEMENTS:
            error = Endless(
                f"a program of {self._launch.kernel} has run {STATEMENTS} statements: does a loop never end?"
            )
            error.line = line
            raise error
        return super()._hook(event, function, file, line, variables, value)

    def _end(self, frame, variables, everything=False):
        pass

    def _keep(self, touches, values):
        for touch in touches:
            touch.values = values.copy()
            self._launch.touches.append(touch)


@dataclass
class Run:
    """What a call gave, and its launches (none where kernels are compiled)."""

    result: Any
    launches: list[Launch] = field(default_factory=list)

    @property
    def findings(self) -> list[proof.Finding]:
        """Races, reads of memory that nobody wrote, elements of outputs that nobody writes."""
        found = [finding for launch in self.launches for finding in proof.findings(launch)]
        return found + proof.unwritten_outputs(self.launches)

    def most_often(self, operation: str) -> tuple[Touch, int, int] | None:
        """The element that is loaded (or stored) most often: an access to it, its number, how often."""
        counts: dict[tuple[int, int], int] = {}
        touches: dict[tuple[int, int], tuple[Touch, int]] = {}
        for touch in (touch for launch in self.launches for touch in launch.touches if touch.operation == operation):
            for element in touch.elements[touch.elements >= 0].tolist():
                key = touch.argument.identity, element
                counts[key] = counts.get(key, 0) + 1
                touches[key] = touch, element
        if not counts:
            return None
        key = max(counts, key=lambda key: counts[key])
        return *touches[key], counts[key]


def run(file: str, call: Callable[[], Any]) -> Run:
    """Call a function whose kernels stand in `file`. What it raises is raised."""
    if not device.INTERPRET:
        import torch

        result = call()
        torch.cuda.synchronize()
        return Run(result)
    with WatchedMemory() as watched:
        watcher = Watcher([file], watched)
        with watcher.running():
            result = counted(file, call)
    return Run(result, watcher.launches)


def counted(file: str, call: Callable[[], Any]) -> Any:
    """Call a function, and end it when the Python of `file` has run more than `LINES` lines (kernels not counted)."""
    lines = 0

    def on_call(frame, event, argument):
        inside = frame.f_code.co_filename == file and "__academy_trace__" not in frame.f_code.co_names
        return on_line if inside else None

    def on_line(frame, event, argument):
        nonlocal lines
        lines += event == "line"
        if lines > LINES:
            error = Endless(f"{frame.f_code.co_name} has run {LINES} lines: does a loop never end?")
            error.line = frame.f_lineno
            raise error
        return on_line

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        return call()
    finally:
        sys.settrace(before)


def cause_of(error: BaseException, file: str) -> tuple[BaseException, int | None]:
    """What went wrong first, without what the interpreter puts around it, and the line of `file` where it did."""
    line = None
    while True:
        places = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        line = places[-1] if places else line
        if isinstance(error, STOPPED):
            return error, error.line
        if error.__cause__ is None:
            return error, line
        error = error.__cause__
