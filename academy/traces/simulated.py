"""Gluon kernels: what an observer is told by the simulator (`academy.gluon`), instead of by Triton's interpreter.

The partitions of a program go on in turns, so each has calls of its own, and the steps of a program come in the order
in which the simulator has run them. A copy of the TMA is an access of the statement that asks for it.
"""

from __future__ import annotations

import ast
import functools
import os
from collections.abc import Callable, MutableMapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from academy.traces.instrument import instrument
from academy.traces.memory import Backend, Memory, unwritten
from academy.traces.recording import Converted, Pointer, Program

#: Asked for at every call in a kernel.
_real = functools.lru_cache(maxsize=512)(os.path.realpath)


class Simulated:
    """The part of an observer that is `academy.gluon.watching.Watcher`."""

    files: set[str]
    backend: Backend
    generators: MutableMapping[Callable, Callable]
    _launch: Any
    _program: Program
    _frames: list[Any]

    def _launched(self, function: Callable, memory: Memory) -> None:
        raise NotImplementedError

    def _ended(self, failed: bool) -> None:
        raise NotImplementedError

    def _begins(self, program: Program) -> None:
        raise NotImplementedError

    def _hook(self, event: str, function: str, file: str, line: int, variables: dict, value: Any = None) -> Any:
        raise NotImplementedError

    def _touches(self, operation: str, pointers: Any, active: np.ndarray) -> list[Any]:
        raise NotImplementedError

    def _keep(self, touches: list[Any], values: np.ndarray) -> None:
        raise NotImplementedError

    #: The program that runs.
    _machine: Any = None

    # ---- what the simulator calls

    def simulates(self, kernel: Any, arguments: dict[str, Any], grid: tuple[int, ...]) -> dict[str, Any]:
        self._machine, memory = None, Memory(self.backend)
        placed = {name: placed_in(memory, name, value) for name, value in arguments.items()}
        self._launched(kernel.fn, memory)
        self._launch.grid = grid
        return placed

    def runs(self, machine: Any) -> None:
        self._machine = machine
        machine.events = [] if machine.events is None else machine.events
        self._launch.events = self._launch.events or machine.events
        self._stacks: dict[Any, list[Any]] = {}
        self._begins(machine.program)

    def follows(self, file: str) -> bool:
        return _real(file) in self.files

    def instruments(self, definition: ast.FunctionDef, file: str) -> None:
        self._instrument(definition, _real(file))

    def _instrument(self, definition: ast.FunctionDef, path: str) -> None:
        instrument(definition, path)

    def hook(self, event: str, function: str, file: str, line: int, variables: dict, value: Any = None) -> Any:
        self._frames = self._stacks.setdefault(self._machine.now, [])
        return self._hook(event, function, file, line, variables, value)

    def accesses(
        self, operation: str, addresses: np.ndarray, active: np.ndarray, values: np.ndarray, undefined: bool = False
    ) -> None:
        self._frames = self._stacks.setdefault(self._machine.now, [])
        touches = self._touches(operation, SimpleNamespace(data=addresses), np.asarray(active))
        for touch in touches if operation == "load" else []:
            touch.undefined = undefined
            if touch.argument.fresh:
                touch.unwritten = _first_unwritten(touch)
        self._keep(touches, np.asarray(values))

    def ends(self, error: BaseException | None) -> None:
        for argument in self._launch.arguments:
            self.backend.give_back(argument.tensor)
        if error is not None and self._machine is not None:
            self._launch.events = self._machine.events
        self._ended(error is not None)


@functools.cache
def _simulator() -> tuple[Any, Any, Any, Any]:
    """Imported only where there are Gluon kernels."""
    from academy.gluon import layouts, shared, units, values

    return layouts, shared, units, values


def plain(value: Any) -> Any:
    """What a kernel's variable is, as the recorder knows it: an array, text, or a tensor's `Pointer` with addresses.

    Only of the simulator's own values; any other comes back as it is.
    """
    if not type(value).__module__.startswith(("academy.gluon", "triton.experimental.gluon")):
        return value
    layouts, shared, units, values = _simulator()
    if isinstance(value, units.Product) and not (value.product if isinstance(value, units.Awaited) else value).done:
        return "a product under way"
    if isinstance(value, values.Tensor):
        array = value.values
        if value.dtype == values.gl.float16:
            return array.astype(np.float16)
        narrow = value.dtype.is_floating() and value.dtype.primitive_bitwidth < 32
        return Converted({"bf16": "bfloat16"}.get(value.dtype.name, value.dtype.name), array) if narrow else array
    if isinstance(value, values.Pointer):
        return Pointer(value.name, value.memory.data_ptr() + value.offset * value.memory.element_size())
    if isinstance(value, units.Descriptor):
        return f"descriptor of {value.name}, block {'×'.join(map(str, value.block_shape))}"
    if isinstance(value, shared.Shared):
        sizes = "×".join(map(str, value.shape))
        if value.barriers is None:
            return f"{value.name}: {value.dtype} {sizes} in shared memory"
        barrier = value.standing()
        return f"{value.name}: {sizes} barriers" if barrier is None else f"{value.name}: {barrier}"
    if isinstance(value, values.gl._layouts.DistributedLayout | values.gl._layouts.SharedLayout):
        return layouts.short(value)
    return f"<{type(value).__name__}>"


def _first_unwritten(touch: Any) -> int | None:
    """The element that is read and that nobody has written."""
    elements = touch.elements[touch.elements >= 0]
    content = touch.argument.tensor.reshape(-1)[torch.from_numpy(np.ascontiguousarray(elements))]
    holes = elements[unwritten(content)]
    return int(holes[0]) if holes.size else None


def placed_in(memory: Memory, name: str, value: Any) -> Any:
    """An argument whose tensors, those inside of it too, are in windows of their own."""
    if isinstance(value, torch.Tensor):
        return memory.place(name, value)
    if isinstance(value, tuple):
        named = getattr(value, "_fields", None)
        parts = [f"{name}.{part}" for part in named] if named else [f"{name}[{i}]" for i in range(len(value))]
        items = [placed_in(memory, part, item) for part, item in zip(parts, value)]
        return type(value)(*items) if named else tuple(items)
    if isinstance(getattr(value, "base", None), torch.Tensor):  # a tensor descriptor, Triton's or Gluon's
        return type(value)(**{**vars(value), "base": memory.place(name, value.base)})
    return value
