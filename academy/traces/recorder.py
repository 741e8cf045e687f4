"""Run kernels in Triton's interpreter, unchanged, and record every statement.

The interpreter rewrites a kernel's syntax tree before it runs it. `Recorder` adds calls to that tree: one before and
one after each statement, with the local variables. Loads, stores and atomics are recorded where the interpreter
performs them. Line numbers are those of the file.

Lanes of a load that are masked off without `other` are undefined on a GPU. `academy.interpreter` poisons them; here
they are marked too.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import os
import sys
from dataclasses import dataclass, field

import numpy as np
import torch
import triton
import triton.language as tl
from triton.runtime import interpreter as triton_interpreter
from triton.tools.tensor_descriptor import TensorDescriptor

from academy import interpreter
from academy.traces.instrument import HOOK, Instrument, assigned
from academy.traces.memory import Argument, FreshMemory, Memory, OutOfBounds, unwritten
from academy.traces.recording import program_name

#: Programs of one launch whose values are kept. Accesses of the others are still checked and counted.
MAX_PROGRAMS = 256
_BUILDER_METHODS = (
    "create_masked_load create_masked_store create_atomic_rmw create_atomic_cas set_grid_idx set_grid_dim".split()
)


@dataclass(frozen=True)
class Pointer:
    """A pointer or a block of pointers: element offsets from the first element of one tensor."""

    base: str
    offsets: np.ndarray


@dataclass(frozen=True)
class Converted:
    """A block of numbers of a dtype that numpy lacks, as float32."""

    dtype_name: str
    data: np.ndarray


@dataclass
class Access:
    """What one load, store or atomic did to one tensor.

    operation: load, store, atomic_add, ... elements: row-major number of the element for each lane, -1 where the lane
    is masked off. values: what was read or written. addresses: byte offsets in the storage, -1 where masked off.
    undefined: the load has masked lanes and no `other`. unwritten: element that was read and that nobody has written.
    """

    operation: str
    argument: int
    elements: np.ndarray
    values: np.ndarray | None
    addresses: np.ndarray
    undefined: bool = False
    unwritten: int | None = None


@dataclass
class Step:
    """One statement, once executed. loops: (line of the header, iteration) of every loop around it."""

    function: str
    file: str
    line: int
    depth: int
    loops: tuple[tuple[int, int], ...]
    values: dict[str, object] = field(default_factory=dict)
    accesses: list[Access] = field(default_factory=list)


@dataclass
class Launch:
    """One launch of one kernel.

    direction: forward or backward. call: number of the call in EXAMPLE that led to this launch.
    """

    kernel: str
    file: str
    line: int
    direction: str
    call: int
    memory: Memory
    grid: tuple[int, ...] = ()
    programs: dict[tuple[int, int, int], list[Step]] = field(default_factory=dict)
    repairs: list[str] = field(default_factory=list)
    values_kept: int = 0

    @property
    def arguments(self) -> list[Argument]:
        return self.memory.arguments


class Recorder:
    """Records every launch inside `with recorder.running():`.

    files: paths whose statements are recorded. fresh: knows the storages that were allocated without a value.
    stopped: number of the launch, and program, in which the last launch failed; None if it came to its end.
    """

    def __init__(self, files, fresh: FreshMemory):
        self.fresh = fresh
        self.files = {os.path.realpath(file) for file in files}
        self.launches: list[Launch] = []
        self.stopped: tuple[int, tuple[int, int, int]] | None = None
        self._launch: Launch | None = None
        self._program: list[Step] = []
        self._frames: list[dict] = []
        self._hooked: list[dict] = []
        self._calls: list = []  # frames, kept so that no two calls get one number
        self._targets: dict[tuple[str, int], set[str]] = {}

    @contextlib.contextmanager
    def running(self):
        """Raises RuntimeError where Triton's internals are not the ones known."""
        _check_internals()
        builder, executor = triton_interpreter.InterpreterBuilder, triton_interpreter.GridExecutor
        rewriter, function = triton_interpreter.FunctionRewriter, triton_interpreter.InterpretedFunction
        saved = [(builder, name, getattr(builder, name)) for name in _BUILDER_METHODS]
        saved += [(executor, name, getattr(executor, name)) for name in ("__call__", "_init_args_hst")]
        saved.append((rewriter, "_transform_ast", rewriter._transform_ast))
        rewritten = dict(function.rewritten_fn)
        function.rewritten_fn.clear()
        for owner, name, original in saved:
            setattr(owner, name, getattr(self, "_wrap_" + name.strip("_"))(original))
        try:
            yield self
        finally:
            for owner, name, original in saved:
                setattr(owner, name, original)
            function.rewritten_fn.clear()
            function.rewritten_fn.update(rewritten)
            self._calls.clear()
            for namespace in self._hooked:
                namespace.pop(HOOK, None)

    # ---- launches and programs

    def _wrap_call(self, original):
        def call(executor, *args, **kwargs):
            interpreter.used(reset=True)
            self._frames.clear()
            self.stopped = None
            try:
                return original(executor, *args, **kwargs)
            except Exception:
                if self._launch is not None and self._launch.programs:
                    self.stopped = len(self.launches) - 1, next(reversed(self._launch.programs))
                raise
            finally:
                self._end_launch()

        return call

    def _end_launch(self) -> None:
        launch, self._launch = self._launch, None
        if launch is None:  # the arguments were refused
            return
        launch.repairs = [interpreter.REPAIRS[name] for name in interpreter.used(reset=True)]
        for argument in launch.arguments:
            argument.after = argument.tensor.detach().clone()
        launch.memory.close()

    def _wrap_init_args_hst(self, original):
        def init_args_hst(executor, args, kwargs):
            memory = Memory(self.fresh)
            args, kwargs = original(executor, args, kwargs)
            placed = [_place(memory, name, value) for name, value in zip(executor.arg_names, args)]
            named = {name: _place(memory, name, value) for name, value in kwargs.items()}
            code = inspect.unwrap(executor.fn).__code__
            file, line = os.path.realpath(code.co_filename), code.co_firstlineno
            self._launch = Launch(code.co_name, file, line, *self._caller(), memory)
            self.launches.append(self._launch)
            return placed, named

        return init_args_hst

    def _caller(self) -> tuple[str, int]:
        """Direction and number of the call: backward where a recorded function with "backward" in its name runs."""
        frame, called, direction = sys._getframe(2), None, "forward"
        while frame is not None:
            name = frame.f_code.co_name
            if os.path.realpath(frame.f_code.co_filename) in self.files:
                if name == "EXAMPLE":
                    break
                if "backward" in name or "bwd" in name:
                    direction = "backward"
            frame, called = frame.f_back, frame
        if called not in self._calls:
            self._calls.append(called)
        return direction, self._calls.index(called)

    def _wrap_set_grid_dim(self, original):
        def set_grid_dim(builder, *sizes):
            self._launch.grid = sizes
            return original(builder, *sizes)

        return set_grid_dim

    def _wrap_set_grid_idx(self, original):
        def set_grid_idx(builder, *index):
            self._frames.clear()
            self._program = self._launch.programs[index] = []
            return original(builder, *index)

        return set_grid_idx

    # ---- statements

    def _wrap_transform_ast(self, original):
        def transform(rewriter, source):
            module = original(rewriter, source)
            path = os.path.realpath(rewriter.filename)
            if path in self.files:
                definition = module.body[0]
                for node in ast.walk(definition):
                    if isinstance(node, ast.stmt):
                        self._targets[path, node.lineno] = assigned(node)
                Instrument(definition.name, path).function(definition)
                ast.fix_missing_locations(module)
                rewriter.fn.__globals__[HOOK] = self._hook
                self._hooked.append(rewriter.fn.__globals__)
            return module

        return transform

    def _hook(self, event: str, function: str, file: str, line: int, variables: dict, value=None):
        """Called by the instrumented kernel; see `Instrument` for the events."""
        if event == "enter":
            frame = {"function": function, "file": file, "loops": [], "previous": {}}
            self._frames.append(frame)
            self._begin(frame, line)
            self._end(frame, variables, everything=True)
            return None
        frame = self._frames[-1]
        if event == "begin":
            self._begin(frame, line)
        elif event == "end":
            self._end(frame, variables)
        elif event == "loop":
            frame["loops"].append([line, -1])
        elif event == "iteration":
            while frame["loops"][-1][0] != line:  # an inner loop was left by `break`
                frame["loops"].pop()
            frame["loops"][-1][1] += 1
            self._begin(frame, line)
            self._end(frame, variables)
        elif event == "endloop":
            while frame["loops"].pop()[0] != line:
                pass
        elif event == "return":
            self._end(frame, variables)
            if value is not None:
                frame["step"].values["return"] = self._value(value)
            self._frames.pop()
        return value

    def _begin(self, frame: dict, line: int) -> None:
        loops = tuple((header, iteration) for header, iteration in frame["loops"])
        step = Step(frame["function"], frame["file"], line, len(self._frames) - 1, loops)
        frame["step"] = step
        self._program.append(step)

    def _end(self, frame: dict, variables: dict, everything: bool = False) -> None:
        step = frame["step"]
        targets = self._targets.get((frame["file"], step.line), ())
        previous, frame["previous"] = frame["previous"], variables
        if len(self._launch.programs) > MAX_PROGRAMS:
            return
        for name, value in variables.items():
            if everything or name in targets or previous.get(name) is not value:
                step.values[name] = self._value(value)

    def _value(self, value):
        """A local variable as plain data: numpy arrays, numbers, `Pointer`, text, tuples of these."""
        if isinstance(value, tl.constexpr):
            value = value.value
        if isinstance(value, tl.tensor):
            data, shape = value.handle.data, tuple(int(size) for size in value.shape)
            if value.type.scalar.is_ptr():
                addresses = np.asarray(data).astype(np.int64).reshape(shape)
                argument = self._launch.arguments[int(self._launch.memory.owners(addresses.reshape(-1)[:1])[0])]
                return Pointer(argument.name, (addresses - argument.start) // argument.itemsize)
            decoded = np.array(interpreter.decode(np.asarray(data), value.type)).reshape(shape)
            return decoded if decoded.dtype == np.asarray(data).dtype else Converted(_name(value.type), decoded)
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, (tuple, tl.tuple)):
            return tuple(self._value(item) for item in value)
        if isinstance(value, tl.core.tensor_descriptor_base):
            address = np.asarray(value.handle.base.data).astype(np.int64).reshape(-1)[:1]
            argument = self._launch.arguments[int(self._launch.memory.owners(address)[0])]
            return f"descriptor of {argument.name}, block {'×'.join(str(int(size)) for size in value.block_shape)}"
        return getattr(value, "__name__", None) or (
            str(value) if isinstance(value, tl.dtype) else f"<{type(value).__name__}>"
        )

    # ---- memory

    def _wrap_create_masked_load(self, original):
        def masked_load(builder, pointers, mask, other, *args, **kwargs):
            active = _active(mask, pointers)
            accesses = self._accesses("load", pointers, active)
            if other is None and not active.all():
                for access in accesses:
                    access.undefined = True
            result = original(builder, pointers, mask, other, *args, **kwargs)
            for access in accesses:
                access.values = interpreter.decode(result.data, result.dtype).copy()
                if self._launch.arguments[access.argument].fresh:
                    holes = unwritten(result.data) & (access.elements >= 0)
                    access.unwritten = int(access.elements[holes][0]) if holes.any() else None
            return result

        return masked_load

    def _wrap_create_masked_store(self, original):
        def masked_store(builder, pointers, value, mask, *args, **kwargs):
            self._accesses("store", pointers, _active(mask, pointers), value)
            return original(builder, pointers, value, mask, *args, **kwargs)

        return masked_store

    def _wrap_create_atomic_rmw(self, original):
        def atomic_rmw(builder, operation, pointer, value, mask, *args, **kwargs):
            name = "atomic_" + operation.name.lower().removeprefix("f").removeprefix("u")
            self._accesses(name, pointer, _active(mask, pointer), value)
            return original(builder, operation, pointer, value, mask, *args, **kwargs)

        return atomic_rmw

    def _wrap_create_atomic_cas(self, original):
        def atomic_cas(builder, pointer, compare, value, *args, **kwargs):
            self._accesses("atomic_cas", pointer, np.ones(np.shape(pointer.data), dtype=bool), value)
            return original(builder, pointer, compare, value, *args, **kwargs)

        return atomic_cas

    def _accesses(self, operation: str, pointers, active: np.ndarray, value=None) -> list[Access]:
        """Record an access, one entry for each tensor that it touches (one, but for blocks of mixed pointers)."""
        addresses = np.asarray(pointers.data).astype(np.int64)
        values = None
        if value is not None:
            values = np.broadcast_to(interpreter.decode(np.asarray(value.data), value.dtype), addresses.shape).copy()
        owners = self._launch.memory.owners(addresses)
        result = []
        for index in np.unique(owners[active]) if active.any() else owners.reshape(-1)[:1]:
            argument = self._launch.arguments[index]
            mine = active & (owners == index)
            elements = np.full(addresses.shape, -1, dtype=np.int64)
            elements[mine] = argument.elements(addresses[mine])
            if (elements[mine] < 0).any():
                self._out_of_bounds(operation, argument, addresses[mine][elements[mine] < 0], addresses.size)
            offsets = np.where(mine, argument.storage_offset(addresses), -1)
            result.append(Access(operation, int(index), elements, values, offsets))
        if self._frames:
            self._frames[-1]["step"].accesses += result
        return result

    def _out_of_bounds(self, operation: str, argument: Argument, outside: np.ndarray, lanes: int) -> None:
        step = self._frames[-1]["step"] if self._frames else None
        program = program_name(triton_interpreter.interpreter_builder.grid_idx)
        error = OutOfBounds(
            f"program {program} of {self._launch.kernel} does a {operation} outside a tensor: "
            f"{argument.describe(int(outside[0]))}"
            + (f" ({outside.size} of {lanes} lanes are outside)" if lanes > 1 else "")
        )
        error.file, error.line = (step.file, step.line) if step else (self._launch.file, self._launch.line)
        raise error


def _check_internals() -> None:
    known = [
        (triton_interpreter.InterpreterBuilder, _BUILDER_METHODS),
        (triton_interpreter.GridExecutor, ["__call__", "_init_args_hst"]),
        (triton_interpreter.FunctionRewriter, ["_transform_ast"]),
        (triton_interpreter.InterpretedFunction, ["rewritten_fn"]),
    ]
    missing = [f"{owner.__name__}.{name}" for owner, names in known for name in names if not hasattr(owner, name)]
    if missing:
        raise RuntimeError(
            f"academy.traces does not know the interpreter of triton {triton.__version__} "
            f"(missing: {', '.join(missing)}); checked versions: {', '.join(interpreter.CHECKED_VERSIONS)}"
        )


def _name(dtype: tl.dtype) -> str:
    return {"bf16": "bfloat16"}.get(dtype.scalar.name, dtype.scalar.name)


def _place(memory: Memory, name: str, value):
    if isinstance(value, torch.Tensor):
        return memory.place(name, value)
    if isinstance(value, TensorDescriptor):
        copy = TensorDescriptor(**{**vars(value), "base": memory.place(name, value.base)})
        return copy
    if type(value) is tuple:
        return tuple(_place(memory, f"{name}[{i}]", item) for i, item in enumerate(value))
    return value


def _active(mask, pointers) -> np.ndarray:
    # Triton 3.6 and 3.7 pass a tensor descriptor's mask as a bare array.
    data = mask.data if isinstance(mask, triton_interpreter.TensorHandle) else mask
    return np.broadcast_to(np.asarray(data, dtype=bool), np.shape(pointers.data))
