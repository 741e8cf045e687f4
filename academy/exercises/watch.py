"""Run a reader's function and watch its kernels, as `academy trace` does, but without keeping the values.

Compiled kernels can't be watched: there only results are compared.
"""

# ruff: noqa: I001  academy.runtime.device must come before triton

from __future__ import annotations

import contextlib
import functools
import linecache
import math
import re
import sys
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from academy.runtime import device

import numpy as np
import torch
import triton.language as tl

from academy.command import misspelt, trouble
from academy.compiler import advice
from academy.exercises import provenance
from academy.exercises.loop_limit import Endless
from academy.gluon.watching import GluonError, schedule
from academy.traces import proof
from academy.traces.memory import Backend
from academy.traces.observer import Launch as Observed
from academy.traces.observer import Observer, OutOfBounds, Touch
from academy.traces.watched_memory import WatchedMemory
from academy.interpreter import mistakes
from academy.interpreter.internals import interpreter

#: Statements of one program after which a loop counts as endless.
STATEMENTS = 1000


class Retyped(Exception):
    """A variable that gets another dtype in a loop, which the compiler refuses; with the line of the loop."""

    line = 1


#: Orders in which a Gluon kernel is simulated. A race is found in any that reaches it; a deadlock may need its own.
SCHEDULES = 4
#: What ends a run of kernels that are wrong; the others are errors of the text.
STOPPED = (OutOfBounds, Endless, Retyped, GluonError)


class Watcher(Observer):
    """An observer that ends a program that never ends.

    rewritten: as `Observer.rewritten`. lanes: what a load without `other` leaves in the lanes that it masks off; None:
    what the interpreter puts there. stopped_by: the first error that ends a run; a text may have caught it.
    """

    steps = 0
    stopped_by: Exception | None = None

    def __init__(self, file: str, backend: Backend, rewritten: dict, lanes: float | None = None):
        super().__init__([file], backend)
        self.rewritten, self.lanes = rewritten, lanes
        self.small_dots: list[tuple[str, int | None]] = []
        self.found: list[tuple[str, int | None]] = []

    @contextlib.contextmanager
    def running(self):
        """As the observer's, and products of blocks are seen, and what Triton warns of."""
        functions, builder = interpreter.interpreter_builder.codegen_fns, interpreter.InterpreterBuilder
        with super().running(), warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = self._warned(warnings.showwarning)
            before, functions["min_dot_size"] = functions["min_dot_size"], self._least_of_a_dot
            create_dot, builder.create_dot = builder.create_dot, self._precision_of_a_dot(builder.create_dot)
            try:
                yield self
            finally:
                functions["min_dot_size"], builder.create_dot = before, create_dot

    def _found(self, message: str) -> None:
        self.found.append((message, self._frames[-1].line))

    def _warned(self, show):
        def warned(message, *args, **kwargs):
            said = str(message)
            if not self._frames or "deprecated" not in said:
                return show(message, *args, **kwargs)
            if "non-boolean" in said:
                said = (
                    f"the condition of this tl.where is {said.split()[-1]}, and Triton won't take that much longer: it "
                )
                said += "is a block of True and False, as `x != 0` gives"
            return self._found(said)

        return warned

    def _precision_of_a_dot(self, original):
        def create_dot(builder, left, right, sums, precision, *rest):
            if self._frames and left.dtype.scalar == tl.float32 and not str(precision).endswith("IEEE"):
                self._found(
                    "on a GPU this tl.dot rounds float32 to tf32, which keeps 10 bits of the 23 behind the first: it "
                    'needs input_precision="ieee"'
                )
            return original(builder, left, right, sums, precision, *rest)

        return create_dot

    def _least_of_a_dot(self, left, right) -> tuple[int, int, int]:
        """Of M, N and K: any, as the interpreter has it, but what an NVIDIA GPU refuses is noted."""
        least = 32 if left.scalar.primitive_bitwidth == 8 else 16
        if left.shape[-1] < least:
            message = (
                f"the compiler refuses this tl.dot: it sums over {left.shape[-1]} numbers, and tensor cores take at "
                f"least {least}. Small blocks are multiplied by tl.sum(a[:, :, None] * b[None, :, :], axis=1)"
            )
            self.small_dots.append((message, self._frames[-1].line if self._frames else None))
        return 1, 1, 1

    def _around_create_masked_load(self, original, builder, pointers, mask, other, *args, **kwargs):
        if other is None and self.lanes is not None:
            filled = undefined(np.shape(pointers.data), pointers.get_element_ty(), self.lanes)
            original = functools.partial(_with_other, original, filled)
        return super()._around_create_masked_load(original, builder, pointers, mask, other, *args, **kwargs)

    def _out_of_bounds(self, touch, outside):
        try:
            super()._out_of_bounds(touch, outside)
        except OutOfBounds as error:
            raise self._stop(error) from None

    def ends(self, error):
        if isinstance(error, GluonError):
            self._stop(error)
        super().ends(error)

    def _stop(self, error):
        self.stopped_by = self.stopped_by or error
        return error

    def _begins(self, program):
        self.steps, self.carried = 0, {}
        super()._begins(program)

    def _hook(self, event, function, file, line, variables, value=None):
        self.steps += 1
        if self.steps > STATEMENTS:
            error = Endless(
                f"a program of {self._launch.kernel} has run {STATEMENTS} statements: does a loop never end?"
            )
            error.line = line
            raise self._stop(error)
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
                raise self._stop(error)


def undefined(shape: tuple[int, ...], dtype: tl.dtype, number: float) -> interpreter.TensorHandle:
    """A payload of this number; integers, and floats that don't reach so far, get their own largest or smallest."""
    np_dtype = interpreter._get_np_dtype(dtype)
    if not dtype.is_floating():
        limits = np.iinfo(np_dtype) if np_dtype != np.bool_ else None
        number = number > 0 if limits is None else limits.max if number > 0 else limits.min
    elif np_dtype == np.float16:
        number = math.copysign(min(abs(number), 60000.0), number)
    elif dtype.name not in ("fp32", "fp64"):  # stored as bits: 0x7F7F and 0xFF7F are bfloat16's largest and smallest
        last = b"\x7f" if number > 0 else b"\xff"
        number = int.from_bytes(last.rjust(np.dtype(np_dtype).itemsize, b"\x7f"), "little")
    return interpreter.TensorHandle(np.full(shape, number, np_dtype), dtype)


def _with_other(original, filled, builder, pointers, mask, _, *args, **kwargs):
    return original(builder, pointers, mask, filled, *args, **kwargs)


def _dtypes(variables: dict[str, Any]) -> dict[str, tl.dtype]:
    """Of the local variables that are numbers or blocks of the kernel; what Python computes has no dtype yet."""
    return {name: value.dtype for name, value in variables.items() if isinstance(value, tl.tensor)}


@dataclass
class Access:
    """One load, store or atomic of one program. elements: number of the element for each lane, -1 where masked off.

    tensor: the kernel's parameter. identity: the same for tensors that share memory.
    """

    operation: str
    tensor: str
    identity: int
    itemsize: int
    shape: tuple[int, ...]
    program: tuple[int, ...]
    elements: np.ndarray
    line: int

    def element_name(self, element: int) -> str:
        index = np.unravel_index(element, self.shape) if self.shape else ()
        return f"{self.tensor}[{', '.join(str(int(i)) for i in index)}]"


@dataclass
class Launch:
    """One launch: what the checks ask of it."""

    kernel: str
    grid: tuple[int, ...]
    accesses: list[Access]


@dataclass
class Run:
    """What a call gave, and its launches (none where kernels are compiled): plain data, so that it can be sent.

    after: the tensors it was called with, as it left them. findings: message and line of races, reads of memory that
    nobody wrote, elements of outputs that nobody writes. host: what PyTorch did in a kernel's place. undefined:
    whether a load left lanes undefined. stored: what each tensor that a kernel wrote holds at the end, by its name.
    noted: the launches, as `academy.compiler.launches` describes them. simulated: whether there were Gluon kernels.
    small_dots: as findings, of products that only the interpreter computes. saved: what autograd keeps for a backward
    pass, as "argument 1", "result 1" or a shape.
    """

    result: Any
    after: list[torch.Tensor] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    findings: list[tuple[str, int | None]] = field(default_factory=list)
    host: dict[str, str] = field(default_factory=dict)
    undefined: bool = False
    stored: dict[str, torch.Tensor] = field(default_factory=dict)
    noted: list[dict] = field(default_factory=list)
    simulated: bool = False
    small_dots: list[tuple[str, int | None]] = field(default_factory=list)
    saved: list[str] = field(default_factory=list)

    @property
    def accesses(self) -> list[Access]:
        return [access for launch in self.launches for access in launch.accesses]

    @property
    def stores_nothing(self) -> bool:
        return all(access.operation == "load" for access in self.accesses)

    def requested(self, *, loads: bool) -> int:
        """Bytes that all lanes of all programs together load, or store."""
        wanted = (access for access in self.accesses if (access.operation == "load") == loads)
        return sum(int((access.elements >= 0).sum()) * access.itemsize for access in wanted)

    def most_often(self, operation: str) -> tuple[Access, int, int] | None:
        """The element that is loaded (or stored) most often: an access to it, its number, how often."""
        counts: dict[tuple[int, int], int] = {}
        found: dict[tuple[int, int], tuple[Access, int]] = {}
        for access in (access for access in self.accesses if access.operation == operation):
            for element in access.elements[access.elements >= 0].tolist():
                key = access.identity, element
                counts[key] = counts.get(key, 0) + 1
                found[key] = access, element
        if not counts:
            return None
        key = max(counts, key=lambda key: counts[key])
        return *found[key], counts[key]


def run(file: str, call: Callable[[], Any], given: list[torch.Tensor], rewritten: dict, lanes: float | None) -> Run:
    """Call a function whose kernels stand in `file`. What it raises is raised. rewritten, lanes: see `Watcher`.

    Gluon kernels run in the simulator, in `SCHEDULES` orders, and what it finds is raised. The result is that of the
    first one.
    """
    if not device.INTERPRET:
        result = call()
        torch.cuda.synchronize()
        return Run(result, given)
    before = provenance.snapshot(given)
    first = _watched(file, call, given, rewritten, lanes)
    for seed in range(1, SCHEDULES) if first[1].generators else ():
        with schedule(seed):
            _watched(file, call, given, rewritten, lanes)
    return _described(file, given, before, *first)


def _watched(file: str, call: Callable[[], Any], given: list[torch.Tensor], rewritten: dict, lanes: float | None):
    """What a call gives, who has watched it, its launches as `academy.compiler.launches` describes them, how Python
    has read numbers of a tensor ("" if it hasn't), and the tensors that autograd was asked to keep."""
    saved: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor.detach())
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    with WatchedMemory() as watched:
        watcher = Watcher(file, watched, rewritten, lanes)
        with watcher.running(), _noted() as noted, provenance.Reading(file) as reading, hooks:
            result = call()
        if watcher.stopped_by is not None:
            raise watcher.stopped_by
    return result, watcher, noted, reading.found, saved


def _described(
    file: str, given: list[torch.Tensor], before: list, result: Any, watcher: Watcher, noted: list[dict], read: str,
    saved: list[torch.Tensor],
) -> Run:  # fmt: skip
    found = [finding for launch in watcher.launches for finding in proof.findings(launch)]
    found += proof.unwritten_outputs(watcher.launches)
    origin = provenance.Provenance(given, before)
    for launch in watcher.launches:
        origin.launch(launch)
    results = result if isinstance(result, tuple) else (result,)
    host = origin.of_host(results)
    known = {"result": results, "argument": given}
    names = {
        value.untyped_storage().data_ptr(): f"{kind} {number}"
        for kind, values in known.items()
        for number, value in enumerate(values, 1)
        if isinstance(value, torch.Tensor)
    }
    if read:
        host.setdefault("numbers", read)
    return Run(
        result,
        given,
        [_plain(launch) for launch in watcher.launches],
        [*watcher.found[:1], *((each.message, each.line if each.file == file else None) for each in found)],
        host,
        any(touch.undefined for launch in watcher.launches for touch in launch.touches),
        origin.stored,
        noted,
        bool(watcher.generators),
        watcher.small_dots[:1],
        [names.get(each.untyped_storage().data_ptr(), f"a tensor of shape {tuple(each.shape)}") for each in saved],
    )


def _noted() -> contextlib.AbstractContextManager[list[dict]]:
    if sys.platform == "emscripten":  # where there is no compiler
        return contextlib.nullcontext([])
    from academy.compiler import launches

    return launches.noted()


def _plain(launch: Observed) -> Launch:
    def access(touch: Touch) -> Access:
        argument = touch.argument
        shape = tuple(argument.tensor.shape)
        return Access(
            touch.operation, argument.name, argument.identity, argument.itemsize, shape, touch.program, touch.elements,
            touch.line,
        )  # fmt: skip

    return Launch(launch.kernel, tuple(launch.grid), [access(touch) for touch in launch.touches])


def cause_of(error: BaseException, file: str) -> tuple[BaseException, int | None]:
    """What went wrong first, without what the interpreter puts around it, and the line of `file` where it did."""
    first, line = trouble.first_cause(error, file)
    if isinstance(first, STOPPED) and getattr(first, "file", file) == file:
        line = first.line or line
    return first, line


_DOT = ": tl.dot multiplies a block of shape (M, K) by one of (K, N)"
#: A pattern of an error's text and of the functions that it came through -> what it means. What the compiler says as
#: well is in `academy.compiler.errors`.
_ADVICE = {
    "must have equal ranks": _DOT,
    "must have equal reduction dimensions": _DOT,
    "incorrect number of gradients": ": backward returns one for each argument of forward, in their order. It "
    "is None for what needs none",
    "not have been used in the graph": " Has backward returned None for it? Each argument of forward has its "
    "gradient, in their order",
    "Cannot (make_shape_compatible|broadcast)|remapped shapes": ". From the last axis on, two blocks must have the "
    "same size, or one of them 1: x[:, None] and x[None, :] add an axis of size 1",
    "cannot add pointers": ": add whole numbers to an address, and load what is there: tl.load(x_ptr + offsets)",
    "IncompatibleTypeErrorImpl|unary invert": ": & | ^ ~ are for masks and whole numbers, and tl.where(mask, x, 0.0) "
    "keeps some lanes of a block",
    "out of bounds for shape": ": axes are counted from 0, so a block of one axis has axis 0 alone",
    "'range' object has no attribute": ": a block of numbers is tl.arange(0, BLOCK), and range is for loops",
    r"'int' object is not iterable.*\b(zeros|full)\b": ": a shape is a tuple, as in (BLOCK,)",
    "unhashable type: 'tensor'": ": how large a block is must be known beforehand: declare it as BLOCK: tl.constexpr",
    "cannot convert .* to tensor|'(list|tuple|str|NoneType)' object has no attribute '(d?type)'": ": a kernel's "
    "arguments are tensors and numbers, and so is what it computes with",
}


def in_words(error: BaseException) -> str:
    """`NameError: name 'mas' is not defined. Did you mean: 'mask'?`"""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    functions = [frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)]
    if functions and functions[-1] == "flip" and "NoneType" in text:
        return "TypeError: tl.flip needs to know along which axis: tl.flip(x, 0)"
    frames = traceback.extract_tb(error.__traceback__)
    if frames and frames[-1].filename == mistakes.__file__:  # in words already
        return text
    line = next((frame.line or "" for frame in reversed(frames) if not frame.filename.startswith(mistakes.TRITON)), "")
    called, _ = advice.of_call(text, line)
    text = text.replace("_patch_attr.<locals>.new_member", f"tl.{called}" if called else "a function of tl")
    meant = next((said for piece, said in _ADVICE.items() if re.search(piece, f"{text} {functions}")), "")
    in_a_kernel = any(frame.filename.startswith(mistakes.TRITON) for frame in frames)
    known = "Did you mean" in text or isinstance(error, NameError) and not in_a_kernel  # Python's own rules are
    meant = misspelt.suggestion(error) + meant or ("" if known else advice.of(text, line))
    return f"{text}{'' if meant[:1] in ('', '.', ':', ' ') else ': '}{meant}"
