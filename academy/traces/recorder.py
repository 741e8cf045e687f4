"""Record a run: every statement, with what each local variable is after it."""

from __future__ import annotations

import ast
import math
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
import triton.language as tl

from academy import interpreter
from academy.interpreter.internals import interpreter as triton_interpreter
from academy.traces import simulated
from academy.traces.instrument import assigned
from academy.traces.memory import Argument, Backend
from academy.traces.observer import Frame, Observer, Touch
from academy.traces.recording import Converted, Pointer, Pool

#: Programs of one launch whose values are kept. Accesses of the others are still checked and counted.
MAX_PROGRAMS = 256
#: Triton 3.9 has none any more.
_BLOCK_POINTER = getattr(triton_interpreter, "BlockPointerHandle", ())
_LARGEST = float(np.finfo(np.float32).max)


class Endless(RuntimeError):
    """More statements have run than were allowed: in a loop of a file, most likely."""

    def __init__(self, message: str, file: str, line: int):
        super().__init__(message)
        self.file, self.line = file, line


class Recorder(Observer):
    """An observer that keeps the steps of each program.

    pool, places: what the steps of all launches refer to, see `recording`. max_steps: of all launches together, before
    `Endless` is raised.
    """

    def __init__(self, files: Iterable[str], backend: Backend, max_steps: int | None = None):
        super().__init__(files, backend)
        self.pool, self.places = Pool(), dict[tuple, int]()
        self._steps_left = max_steps or sys.maxsize
        self._targets: dict[tuple[str, int], set[str]] = {}

    def _instrument(self, definition: ast.FunctionDef, path: str) -> None:
        for node in ast.walk(definition):
            if isinstance(node, ast.stmt):
                self._targets[path, node.lineno] = assigned(node)
        super()._instrument(definition, path)

    def _begin(self, line: int) -> None:
        """A new step of the innermost frame."""
        frame = self._frames[-1]
        self._steps_left -= 1
        if self._steps_left < 0:
            rounds = f", in round {frame.loops[-1][1] + 1} of the loop" if frame.loops else ""
            line = frame.loops[-1][0] if frame.loops else line
            raise Endless(f"this ran too long and was stopped{rounds}: does it ever end?", frame.file, line)
        place = frame.function, frame.file, line, len(self._frames) - 1, tuple(map(tuple, frame.loops))
        super()._begin(line)
        frame.step = [self.places.setdefault(place, len(self.places)), {}, []]
        self._launch.programs[self._program].append(frame.step)

    def _end(self, frame: Frame, variables: dict, everything: bool = False) -> None:
        targets = self._targets.get((frame.file, frame.line), ())
        previous, frame.previous = frame.previous, variables
        if len(self._launch.programs) <= MAX_PROGRAMS:
            for name, value in variables.items():
                if everything or name in targets or previous.get(name) is not value:
                    frame.step[1][name] = self.pool.add(self._value(value))

    def _returns(self, frame: Frame, value: Any) -> None:
        if value is not None:
            frame.step[1]["return"] = self.pool.add(self._value(value))

    def _value(self, value: Any) -> Any:
        """A local variable as plain data: numpy arrays, numbers, `Pointer`, text, tuples of these."""
        value = simulated.plain(value.value if isinstance(value, tl.constexpr) else value)
        if isinstance(value, Pointer):
            argument = self._owner(value.offsets)
            return Pointer(argument.name, (value.offsets - argument.start) // argument.itemsize)
        if isinstance(value, (Converted, np.ndarray)):
            return value
        if isinstance(value, tl.tensor):
            if isinstance(value.handle, _BLOCK_POINTER):
                return self._tiles("block pointer into", value.handle.base, value.handle.block_shape)
            data, shape = np.asarray(value.handle.data), tuple(int(size) for size in value.shape)
            if value.type.scalar.is_ptr():
                addresses = data.astype(np.int64).reshape(shape)
                argument = self._owner(addresses)
                return Pointer(argument.name, (addresses - argument.start) // argument.itemsize)
            decoded = np.array(interpreter.decode(data, value.type)).reshape(shape)
            name = value.type.scalar.name
            return decoded if decoded.dtype == data.dtype else Converted({"bf16": "bfloat16"}.get(name, name), decoded)
        if isinstance(value, float):  # what a kernel gets of Python's float64
            return np.float32(value) if abs(value) <= _LARGEST or not math.isfinite(value) else value
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, (tuple, tl.tuple)):
            return tuple(self._value(item) for item in value)
        if isinstance(value, tl.core.tensor_descriptor_base):
            return self._tiles("descriptor of", value.handle.base, value.block_shape)
        shown = str(value) if isinstance(value, tl.dtype) else f"<{type(value).__name__}>"
        return getattr(value, "__name__", None) or shown

    def _tiles(self, what: str, base: Any, block_shape: Iterable) -> str:
        name = self._owner(np.asarray(base.data).astype(np.int64)).name
        return f"{what} {name}, block {'×'.join(str(int(size)) for size in block_shape)}"

    def _owner(self, addresses: np.ndarray) -> Argument:
        return self._launch.arguments[int(self._launch.memory.owners(addresses.reshape(-1)[:1])[0])]

    def _keep(self, touches: list[Touch], values: np.ndarray) -> None:
        """It becomes part of its step, too; without a step it is left out."""
        super()._keep(touches if self._frames else [], values)
        for touch in touches if self._frames else []:
            pooled = self.pool.add(touch.elements), self.pool.add(touch.values)
            self._frames[-1].step[2].append([touch.operation, touch.argument.number, *pooled, int(touch.undefined)])
