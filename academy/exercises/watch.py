"""Run a reader's function and watch its kernels, as `academy trace` does, but without keeping the values.

Compiled kernels can't be watched: there only results are compared.
"""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter

from academy import device
from academy.exercises.rounds import Endless, counted
from academy.traces import proof
from academy.traces.memory import Backend
from academy.traces.recorder import Launch, OutOfBounds, Recorder, Touch
from academy.traces.watched_memory import WatchedMemory

#: Statements of one program after which a loop counts as endless.
STATEMENTS = 1000


class Retyped(Exception):
    """A variable that gets another dtype in a loop, which the compiler refuses; with the line of the loop."""

    line = 1


#: What ends a run of kernels that are wrong; the others are errors of the text.
STOPPED = (OutOfBounds, Endless, Retyped)


class Watcher(Recorder):
    """A recorder of accesses. It keeps no values, and it ends a program that never ends.

    rewritten: as `Recorder.rewritten`. lanes: what a load without `other` leaves in the lanes that it masks off; None:
    what the interpreter puts there.
    """

    steps = 0

    def __init__(self, file: str, backend: Backend, rewritten: dict, lanes: float | None = None):
        super().__init__([file], backend)
        self.rewritten, self.lanes = rewritten, lanes

    def _around_create_masked_load(self, original, builder, pointers, mask, other, *args, **kwargs):
        if other is None and self.lanes is not None:
            dtype = pointers.get_element_ty()
            payload = np.full(np.shape(pointers.data), self.lanes, interpreter._get_np_dtype(dtype))
            other = interpreter.TensorHandle(payload, dtype)
        return super()._around_create_masked_load(original, builder, pointers, mask, other, *args, **kwargs)

    def _around_set_grid_idx(self, original, builder, *index):
        self.steps, self.carried = 0, {}
        return super()._around_set_grid_idx(original, builder, *index)

    def _hook(self, event, function, file, line, variables, value=None):
        self.steps += 1
        if self.steps > STATEMENTS:
            error = Endless(
                f"a program of {self._launch.kernel} has run {STATEMENTS} statements: does a loop never end?"
            )
            error.line = line
            raise error
        if event == "loop":
            self.carried[len(self._frames), line] = _dtypes(variables)
        if event in ("iteration", "endloop"):
            self._compare(self.carried[len(self._frames), line], _dtypes(variables), file, line)
        return super()._hook(event, function, file, line, variables, value)

    def _compare(self, before, now, file, line):
        """Only a loop that is unrolled may give a variable another dtype; the interpreter lets every loop do it."""
        for name, dtype in before.items():
            if now.get(name, dtype) != dtype and "static_range" not in linecache.getline(file, line):
                error = Retyped(
                    f"the compiler refuses this loop: loop-carried variable {name} has initial type {dtype} but is "
                    f"re-assigned to {now[name]} in loop. Its dtype has to stay the same"
                )
                error.line = line
                raise error

    def _end(self, frame, variables, everything=False):
        pass

    def _keep(self, touches, values):
        for touch in touches:
            touch.values = values.copy()
            self._launch.touches.append(touch)


def _dtypes(variables: dict[str, Any]) -> dict[str, tl.dtype]:
    """Of the local variables that are numbers or blocks of the kernel; what Python computes has no dtype yet."""
    return {name: value.dtype for name, value in variables.items() if isinstance(value, tl.tensor)}


@dataclass
class Run:
    """What a call gave, and its launches (none where kernels are compiled). given: the tensors it was called with."""

    result: Any
    launches: list[Launch] = field(default_factory=list)
    given: list[torch.Tensor] = field(default_factory=list)

    @property
    def findings(self) -> list[proof.Finding]:
        """Races, reads of memory that nobody wrote, elements of outputs that nobody writes."""
        found = [finding for launch in self.launches for finding in proof.findings(launch)]
        return found + proof.unwritten_outputs(self.launches)

    @property
    def stores_nothing(self) -> bool:
        return all(touch.operation == "load" for launch in self.launches for touch in launch.touches)

    def of_pytorch(self) -> str | None:
        """What PyTorch has computed: a tensor that a kernel loads, or a result that no kernel has stored."""
        known = {tensor.untyped_storage().data_ptr() for tensor in self.given}
        for touch in (touch for launch in self.launches for touch in launch.touches if (touch.elements >= 0).any()):
            if touch.operation == "load" and touch.argument.identity not in known:
                return f"what the kernel loads as {touch.argument.name}"
            known.add(touch.argument.identity)
        results = self.result if isinstance(self.result, tuple) else (self.result,)
        for value in results:
            if isinstance(value, torch.Tensor) and value.untyped_storage().data_ptr() not in known:
                return "the result"
        return None

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


def run(file: str, call: Callable[[], Any], rewritten: dict, lanes: float | None = None) -> Run:
    """Call a function whose kernels stand in `file`. What it raises is raised. rewritten, lanes: see `Watcher`."""
    if not device.INTERPRET:
        result = call()
        torch.cuda.synchronize()
        return Run(result)
    with WatchedMemory() as watched:
        watcher = Watcher(file, watched, rewritten, lanes)
        with watcher.running():
            result = counted(call)
    return Run(result, watcher.launches)


def cause_of(error: BaseException, file: str) -> tuple[BaseException, int | None]:
    """What went wrong first, without what the interpreter puts around it, and the line of `file` where it did."""
    line = None
    while True:
        places = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        line = places[-1] if places else line
        if isinstance(error, STOPPED):
            return error, error.line if getattr(error, "file", file) == file else line
        if error.__cause__ is None:
            return error, line
        error = error.__cause__
