"""Run kernels in Triton's interpreter, unchanged, and see every access to memory: where, by whom, and what was moved.

The interpreter rewrites a kernel's syntax tree before it runs it. `Observer` adds calls to that tree: one before and
one after each statement, with the local variables, so that an access has its line. Loads, stores and atomics are seen
where the interpreter performs them. Line numbers are those of the file. `recorder.Recorder` also keeps the values.

Lanes of a load that are masked off without `other` are undefined on a GPU. `academy.interpreter` poisons them; here
they are marked too.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Self

import numpy as np

from academy import interpreter
from academy.gluon import watching
from academy.gluon.watching import HOOK
from academy.interpreter.internals import interpreter as triton_interpreter
from academy.traces.memory import Argument, Backend, Memory, unwritten
from academy.traces.recording import Program, program_name
from academy.traces.simulated import Simulated, placed_in

_PATCHED = [
    *((triton_interpreter.GridExecutor, name) for name in ("__call__", "_init_args_hst")),
    (triton_interpreter.FunctionRewriter, "_transform_ast"),
    *((triton_interpreter.InterpreterBuilder, name) for name in ("set_grid_dim", "set_grid_idx")),
    *((triton_interpreter.InterpreterBuilder, f"create_{name}") for name in ("masked_load", "masked_store")),
    *((triton_interpreter.InterpreterBuilder, f"create_{name}") for name in ("atomic_rmw", "atomic_cas", "barrier")),
    (triton_interpreter.InterpreterBuilder, "create_int_to_ptr"),
]


@dataclass
class Touch:
    """What one load, store or atomic of one program did to one tensor.

    operation: load, store, atomic_add, ... elements: row-major number of the element for each lane, -1 where the lane
    is masked off. addresses: byte offsets in the storage, -1 where masked off. values: what was read or written.
    undefined: the load has masked lanes and no `other`. unwritten: element that was read and that nobody has written.
    barriers: how many barriers its program has met before; -1 in a Gluon kernel, where the simulator watches them.
    order: of an atomic, `acq_rel`, `acquire`, `release` or `relaxed`.
    """

    program: Program
    argument: Argument
    operation: str
    elements: np.ndarray
    addresses: np.ndarray
    file: str
    line: int
    values: np.ndarray | None = None
    undefined: bool = False
    unwritten: int | None = None
    barriers: int = -1
    order: str = ""


class OutOfBounds(IndexError):
    """A lane that is not masked off points outside its tensor, in a statement of a file."""

    file, line = "", 1
    touch: Touch  #: the access


@dataclass
class Launch:
    """One launch of one kernel. direction: forward or backward. call: number of the call in EXAMPLE that led to it.

    programs: per program the steps as a recording holds them. touches: every access, in the order of the run. events:
    of the first program of a Gluon kernel, or of the one that failed, what `academy.gluon.lanes` draws.
    """

    kernel: str
    file: str
    line: int
    direction: str
    call: int
    memory: Memory
    grid: tuple[int, ...] = ()
    programs: dict[Program, list[list]] = field(default_factory=dict)
    touches: list[Touch] = field(default_factory=list)
    repairs: list[str] = field(default_factory=list)
    events: list[dict] = field(default_factory=list)

    @property
    def arguments(self) -> list[Argument]:
        return self.memory.arguments


@dataclass
class Frame:
    """A call of a jitted function that is running, and its current step."""

    function: str
    file: str
    line: int = 0
    step: list = field(default_factory=list)
    loops: list[list[int]] = field(default_factory=list)
    previous: dict = field(default_factory=dict)


class Observer(Simulated):
    """Sees every launch inside `with observer.running():`.

    files: paths whose statements are followed. backend: watches memory. stopped: number of the launch, and program, in
    which the last launch failed; None if it came to its end. rewritten: functions of the files -> what this observer
    runs in their place; an observer of the same files may take it over.
    """

    def __init__(self, files: Iterable[str], backend: Backend):
        self.backend = backend
        self.files = {os.path.realpath(file) for file in files}
        self.launches: list[Launch] = []
        self.stopped: tuple[int, Program] | None = None
        self._launch: Any = None  # the one that runs
        self._program: Program = (0, 0, 0)
        self._barriers = -1  # that it has met
        self._frames: list[Frame] = []
        self._hooked: list[dict] = []
        self._calls: list = []  # frames, kept so that no two calls get one number
        self.rewritten: dict[Callable, Callable] = {}
        self.generators: MutableMapping[Callable, Callable] = {}

    @contextlib.contextmanager
    def running(self) -> Iterator[Self]:
        """Raises UnknownInterpreter where Triton's internals are not the ones known."""
        function = triton_interpreter.InterpretedFunction
        interpreter.require("academy.traces", [*_PATCHED, (function, "rewritten_fn")])
        own = self._taken_from(function.rewritten_fn)
        function.rewritten_fn.update(self.rewritten)
        for kernel in self.rewritten:
            self._give_hook(kernel)
        with contextlib.ExitStack() as stack:
            for owner, name in _PATCHED:
                original = getattr(owner, name)
                stack.callback(setattr, owner, name, original)
                setattr(owner, name, _around(original, getattr(self, "_around_" + name.strip("_"))))
            stack.callback(setattr, watching, "watcher", watching.watcher)
            watching.watcher = self
            try:
                yield self
            finally:
                self.rewritten.update(self._taken_from(function.rewritten_fn))
                function.rewritten_fn.update(own)
                self._calls.clear()
                for namespace in self._hooked:
                    namespace.pop(HOOK, None)

    def _taken_from(self, rewritten: dict) -> dict:
        """The entries for functions of the files; others are the same for every observer, and stay."""
        return {kernel: rewritten.pop(kernel) for kernel in list(rewritten) if _path(kernel.__code__) in self.files}

    def _give_hook(self, kernel: Callable) -> None:
        kernel.__globals__[HOOK] = self._hook
        self._hooked.append(kernel.__globals__)

    # ---- launches and programs: each method stands around the interpreter's own

    def _around_call(self, original: Callable, executor, *args, **kwargs):
        interpreter.used(reset=True)
        self.stopped, failed = None, True
        try:
            result = original(executor, *args, **kwargs)
            failed = False
            return result
        finally:
            self._ended(failed)

    def _launched(self, function: Callable, memory: Memory) -> None:
        """A launch begins."""
        self.stopped = None
        code = inspect.unwrap(function).__code__
        file, line = _path(code), code.co_firstlineno
        self._launch = Launch(code.co_name, file, line, *self._caller(), memory)
        self.launches.append(self._launch)

    def _ended(self, failed: bool) -> None:
        """It is over."""
        launch, self._launch = self._launch, None
        if launch is None:  # its arguments were refused
            return
        if failed and launch.programs:
            self.stopped = len(self.launches) - 1, next(reversed(launch.programs))
        launch.repairs = [interpreter.REPAIRS[name] for name in interpreter.used(reset=True)]
        for argument in launch.arguments:
            argument.after = argument.tensor.detach().clone()
        launch.memory.give_back()
        self.backend.launched()

    def _around_init_args_hst(self, original: Callable, executor, args, kwargs):
        memory = Memory(self.backend)
        args, kwargs = original(executor, args, kwargs)
        placed = [placed_in(memory, name, value) for name, value in zip(executor.arg_names, args)]
        named = {name: placed_in(memory, name, value) for name, value in kwargs.items()}
        self._launched(executor.fn, memory)
        return placed, named

    def _around_set_grid_dim(self, original: Callable, builder, *sizes):
        self._launch.grid = sizes
        return original(builder, *sizes)

    def _around_set_grid_idx(self, original: Callable, builder, *index):
        self._begins(index)
        self._barriers = 0
        return original(builder, *index)

    def _begins(self, program: Program) -> None:
        """A program begins."""
        self._frames = []
        self._program, self._barriers = program, -1
        self._launch.programs[program] = []

    def _caller(self) -> tuple[str, int]:
        """Direction and number of the call: backward where a recorded function with "backward" in its name runs."""
        frame: Any = sys._getframe(2)
        called, direction = None, "forward"
        while frame is not None:
            name = frame.f_code.co_name
            if _path(frame.f_code) in self.files:
                if name == "EXAMPLE":
                    break
                if "backward" in name or "bwd" in name:
                    direction = "backward"
            frame, called = frame.f_back, frame
        if called not in self._calls:
            self._calls.append(called)
        return direction, self._calls.index(called)

    # ---- statements

    def _around_transform_ast(self, original: Callable, rewriter, source):
        module = original(rewriter, source)
        path = _real(rewriter.filename)
        if path in self.files:
            self._instrument(module.body[0], path)
            ast.fix_missing_locations(module)
            self._give_hook(rewriter.fn)
        return module

    def _hook(self, event: str, function: str, file: str, line: int, variables: dict, value=None):
        """Called by the instrumented kernel; see `instrument` for the events."""
        if event == "enter":
            self._frames.append(Frame(function, file))
            self._begin(line)
            self._end(self._frames[-1], variables, everything=True)
            return None
        frame = self._frames[-1]
        if event == "loop":
            frame.loops.append([line, -1])
        elif event == "iteration":
            while frame.loops[-1][0] != line:  # an inner loop was left by `break`
                frame.loops.pop()
            frame.loops[-1][1] += 1
        elif event == "endloop":
            while frame.loops.pop()[0] != line:
                pass
        if event in ("begin", "iteration"):
            self._begin(line)
        if event in ("end", "iteration", "return"):
            self._end(frame, variables)
        if event == "return":
            self._returns(frame, value)
            self._frames.pop()
        return value

    def _begin(self, line: int) -> None:
        """A statement of the innermost frame begins."""
        self._frames[-1].line = line

    def _end(self, frame: Frame, variables: dict, everything: bool = False) -> None:
        """It ends, with these local variables."""

    def _returns(self, frame: Frame, value: Any) -> None:
        """The function of a frame returns a value."""

    # ---- memory

    def _around_create_masked_load(self, original: Callable, builder, pointers, mask, other, *args, **kwargs):
        active = _active(mask, pointers)
        touches = self._touches("load", pointers, active)
        result = original(builder, pointers, mask, other, *args, **kwargs)
        for touch in touches:
            touch.undefined = other is None and not active.all()
        _read(touches, result)
        self._keep(touches, interpreter.decode(result.data, result.dtype))
        return result

    def _around_create_masked_store(self, original: Callable, builder, pointers, value, mask, *args, **kwargs):
        self._written("store", pointers, _active(mask, pointers), value)
        return original(builder, pointers, value, mask, *args, **kwargs)

    def _around_create_atomic_rmw(self, original: Callable, builder, operation, pointer, value, mask, *args, **kwargs):
        name = "atomic_" + operation.name.lower().removeprefix("f").removeprefix("u")
        touches = self._written(name, pointer, _active(mask, pointer), value, _order(args))
        result = original(builder, operation, pointer, value, mask, *args, **kwargs)
        if name != "atomic_xchg":  # all others compute with what was there
            _read(touches, result)
        return result

    def _around_create_atomic_cas(self, original: Callable, builder, pointer, compare, value, *args, **kwargs):
        self._written("atomic_cas", pointer, np.ones(np.shape(pointer.data), dtype=bool), value, _order(args))
        return original(builder, pointer, compare, value, *args, **kwargs)

    def _around_create_barrier(self, original: Callable, builder):
        self._barriers += 1
        return original(builder)

    def _around_create_int_to_ptr(self, original: Callable, builder, value, *args, **kwargs):
        """A table of addresses, as grouped products have it: what they point to is watched, too."""
        loads = (touch.argument.name for touch in reversed(self._launch.touches) if touch.operation == "load")
        name, memory = f"*{next(loads, '')}", self._launch.memory
        moved = [memory.behind(name, address) for address in value.data.reshape(-1).tolist()]
        addresses = np.array(moved, dtype=value.data.dtype).reshape(value.data.shape)
        return original(builder, triton_interpreter.TensorHandle(addresses, value.dtype), *args, **kwargs)

    def _written(self, operation: str, pointers, active: np.ndarray, value, order: str = "") -> list[Touch]:
        values = interpreter.decode(np.asarray(value.data), value.dtype)
        touches = self._touches(operation, pointers, active)
        for touch in touches:
            touch.order = order
        self._keep(touches, np.broadcast_to(values, np.shape(pointers.data)))
        return touches

    def _touches(self, operation: str, pointers, active: np.ndarray) -> list[Touch]:
        """An access, one entry for each tensor that it touches (one, except for blocks of mixed pointers)."""
        addresses = np.asarray(pointers.data).astype(np.int64)
        owners = self._launch.memory.owners(addresses)
        result = []
        for index in np.unique(owners[active]) if active.any() else owners.reshape(-1)[:1]:
            argument = self._launch.arguments[index]
            mine = active & (owners == index)
            elements = np.full(addresses.shape, -1, dtype=np.int64)
            elements[mine] = argument.elements(addresses[mine])
            offsets = np.where(mine, argument.storage_offset(addresses), -1)
            place = self._frames[-1] if self._frames else self._launch
            touch = Touch(self._program, argument, operation, elements, offsets, place.file, place.line)
            touch.barriers = self._barriers
            if (elements[mine] < 0).any():
                self._out_of_bounds(touch, addresses[mine][elements[mine] < 0])
            result.append(touch)
        return result

    def _keep(self, touches: list[Touch], values: np.ndarray) -> None:
        """An access that was allowed becomes part of the launch."""
        for touch in touches:
            touch.values = values.copy()
            self._launch.touches.append(touch)

    def _out_of_bounds(self, touch: Touch, outside: np.ndarray) -> None:
        """outside: the addresses that are not in the tensor."""
        message = f"program {program_name(self._program)} of {self._launch.kernel} does a {touch.operation} "
        message += f"outside a tensor: {touch.argument.describe(int(outside[0]))}"
        lanes = touch.elements.size
        error = OutOfBounds(message + (f" ({outside.size} of {lanes} lanes are outside)" if lanes > 1 else ""))
        error.file, error.line, error.touch = touch.file, touch.line, touch
        raise error


def _path(code: CodeType) -> str:
    return _real(code.co_filename)


#: A path is asked for at every launch, once for each caller.
_real = functools.lru_cache(maxsize=512)(os.path.realpath)


def _around(original: Callable, method: Callable) -> Callable:
    return functools.wraps(original)(lambda *args, **kwargs: method(original, *args, **kwargs))


def _read(touches: list[Touch], result) -> None:
    """Note an element that was read and that nobody has written. result: what the access returns."""
    for touch in touches:
        if touch.argument.fresh:
            holes = unwritten(result.data).reshape(touch.elements.shape) & (touch.elements >= 0)
            touch.unwritten = int(touch.elements[holes][0]) if holes.any() else None


def _order(arguments: tuple) -> str:
    """Of an atomic, whose memory semantic comes before its scope."""
    named = getattr(arguments[0], "name", "") if arguments else ""
    return {"ACQUIRE": "acquire", "RELEASE": "release", "RELAXED": "relaxed"}.get(named, "acq_rel")


def _active(mask, pointers) -> np.ndarray:
    # Triton 3.6 and 3.7 pass a tensor descriptor's mask as a bare array.
    data = mask.data if isinstance(mask, triton_interpreter.TensorHandle) else mask
    return np.broadcast_to(np.asarray(data, dtype=bool), np.shape(pointers.data))


def jitted_files(module: ModuleType) -> list[str]:
    """The module's file, and those of the jitted functions that it uses: of any that it imports by name, and of files
    that lie beside it or in its package."""
    own = Path(module.__file__ or "").resolve()
    folder = own.parents[(module.__package__ or "").count(".")]
    found, waiting, known = {str(own): None}, [vars(module)], {id(vars(module))}
    while waiting:
        for value in list(waiting.pop().values()):
            function = value
            while hasattr(function, "fn") and not inspect.isroutine(function):  # jitted, tuned, with heuristics
                function = function.fn
            if function is not value and inspect.isfunction(function):
                found[function.__code__.co_filename] = None
            names = vars(value) if inspect.ismodule(value) else getattr(function, "__globals__", {})
            if not isinstance(names, dict):  # of a class of functions, it is a descriptor
                continue
            if id(names) not in known and Path(names.get("__file__") or "/").is_relative_to(folder):
                known.add(id(names))
                waiting.append(names)
    return [file for file in found if f"{os.sep}triton{os.sep}" not in file]
