"""Calls with tensors that have a size and no memory, which shows what a kernel does with sizes that fit nowhere.

PyTorch's fake tensors go through the host code. Of each launch a few programs are interpreted: what they store goes
nowhere, and what they load is zeros, or the largest number that an argument may hold. Their addresses are looked at.
"""

from __future__ import annotations

import contextlib
import itertools
import linecache
import math
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
import torch
import triton.language as tl

from academy.command import trouble
from academy.interpreter.internals import interpreter
from academy.runtime.modes import DispatchMode

#: Seconds of processor time that the programs of one launch may take.
SECONDS = 1.5
#: Addresses between one storage and the next: far more than what wraps around in 32 bits.
_APART = 1 << 44
_OPERATORS = {"mul": (np.multiply, "product"), "add": (np.add, "sum"), "sub": (np.subtract, "difference")}
_METHODS = [("mul", "__mul__"), ("mul", "__rmul__"), ("add", "__add__"), ("add", "__radd__"), ("sub", "__sub__")]


class _Answers(DispatchMode):
    """What the host code reads of a tensor that isn't there: nothing is wrong with it (`if (x < 0).any(): raise`)."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten._local_scalar_dense.default:
            dtype = args[0].dtype
            return 1.0 if dtype.is_floating_point else False if dtype == torch.bool else 0
        return function(*args, **(kwargs or {}))


class _Enough(Exception):
    """The programs of this launch have had their time."""


@dataclass(frozen=True)
class Wrapped:
    """An int32 that wrapped around and became part of an address. tile: it is a number of programs times a tile, which
    no size or stride is part of."""

    file: str
    line: int
    message: str
    tile: bool


@dataclass
class Unbacked:
    """What became of the launches of a call. wrapped: the first of each line. untried: why a launch was not followed to
    its end."""

    wrapped: list[Wrapped] = field(default_factory=list)
    untried: str = ""
    launches: int = 0
    #: How many programs the launch has that is running.
    _grid: int = 0
    #: Numbers that every element of a tensor holds.
    _fills: dict[int, int] = field(default_factory=dict)
    _storages: dict[int, tuple[int, Any]] = field(default_factory=dict)
    _nbytes: list[int] = field(default_factory=list)
    _overflows: list[tuple] = field(default_factory=list)

    def hold(self, tensor: torch.Tensor, number: int) -> None:
        """What loads from it give."""
        self._fills[self._number(tensor)] = number

    def _number(self, tensor: torch.Tensor) -> int:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._storages:
            self._storages[storage._cdata] = len(self._storages), storage
            self._nbytes.append(storage.nbytes())
        return self._storages[storage._cdata][0]

    def address(self, tensor: torch.Tensor) -> int:
        return (self._number(tensor) + 1) * _APART + tensor.storage_offset() * tensor.element_size()

    def looks_at(self, operation: str, pointers: Any, mask: Any) -> int:
        """The number that is loaded there."""
        data = mask.data if isinstance(mask, interpreter.TensorHandle) else mask
        addresses = np.asarray(pointers.data).astype(np.int64)
        if data is not None:
            addresses = addresses[np.broadcast_to(np.asarray(data, bool), addresses.shape)]
        if not addresses.size:
            return 0
        width = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        number = int(addresses.flat[0] + _APART // 2) // _APART - 1
        start, size = (number + 1) * _APART, self._nbytes[number] if 0 <= number < len(self._nbytes) else 0
        outside = addresses[(addresses < start) | (addresses >= start + size)] - start
        meant = outside + width * 2**32  # one that comes back into the tensor has lost just that
        wrapped = outside[(meant >= 0) & (meant < size)]
        if wrapped.size and self._overflows:
            self._found(operation, int(wrapped.flat[0]) // width)
        return self._fills.get(number, 0)

    def _found(self, operation: str, offset: int) -> None:
        products = [each for each in self._overflows if each[2] == "product"]
        (file, line), code, what, factor, value = (products or self._overflows)[-1]
        tile = factor is not None and factor & (factor - 1) == 0
        message = (
            f"the int32 {what}{code} overflows where a tensor has more than 2³¹ elements: it is {value:,} there, and "
        )
        message += f"this {operation} goes to element {offset:,}. Make one of its factors an int64 first, as in "
        message += "`row = tl.program_id(0).to(tl.int64)`"
        if all((each.file, each.line) != (file, line) for each in self.wrapped):
            self.wrapped.append(Wrapped(file, line, message, tile))

    def notes(self, name: str, original: Callable) -> Callable:
        """An operator of `tl.tensor` that sees when its int32 wraps around."""
        function, what = _OPERATORS[name]

        def operator(one: tl.tensor, other: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(one, other, *args, **kwargs)
            if isinstance(result, tl.tensor) and result.type.scalar is tl.int32:
                plain = other.value if isinstance(other, tl.constexpr) else other
                numbers = plain.handle.data if isinstance(plain, tl.tensor) else plain
                exact = function(one.handle.data.astype(np.int64), np.asarray(numbers).astype(np.int64))
                found = result.handle.data
                if (lost := exact.reshape(found.shape) != found).any():
                    frame = sys._getframe(1)
                    factor = None if isinstance(plain, tl.tensor) else abs(int(plain))
                    place = frame.f_code.co_filename, frame.f_lineno
                    if np.abs(one.handle.data).max() >= self._grid:  # a size or a stride is part of it
                        factor = None
                    self._overflows.append((place, _code(frame), what, factor, int(found[lost].flat[0])))
            return result

        return operator


def _code(frame: Any) -> str:
    """The expression that is running, if it stands in one line."""
    positions = next(itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), (None,) * 4)
    first, last, start, end = positions
    text = linecache.getline(frame.f_code.co_filename, first) if first and first == last else ""
    return f" `{text[start:end]}`" if text[start:end].strip() else ""


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """Raises _Enough after a while, where signals can do that: in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: Any) -> None:
        raise _Enough

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _programs(grid: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The first, the last, and some between: the last has the largest offsets, unless it has nothing left to do."""
    last = [size - 1 for size in grid]
    found = [tuple(last), tuple(each * 15 // 16 for each in last)]
    found += [tuple(each if axis == other else 0 for other, each in enumerate(last)) for axis in range(len(last))]
    return list(dict.fromkeys([*found, (0,) * len(last)])) if all(grid) else []


@contextlib.contextmanager
def launches() -> Iterator[Unbacked]:
    """Inside, tensors are made without memory, and kernels are launched as this module says."""
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode  # a second, which only this needs

    seen = Unbacked()
    builder, executor = interpreter.InterpreterBuilder, interpreter.GridExecutor
    original_call, handle = executor.__call__, interpreter.TensorHandle
    chosen: list[tuple[int, ...]] = []

    def call(self, *args, **kwargs):
        seen.launches += 1
        try:
            with _limited():
                original_call(self, *args, **kwargs)
        except (interpreter.InterpreterError, _Enough) as error:
            cause = trouble.causes(error)[-1]
            if not isinstance(cause, _Enough):
                seen.untried = f"{type(cause).__name__}: {cause}"

    def arguments(self, args, kwargs):
        grid = (*self.grid, 1, 1)[:3]
        chosen[:] = [grid, *_programs(grid)]
        seen._grid = math.prod(grid)
        self.grid = (len(chosen) - 1, 1, 1)
        return list(args), kwargs

    def index(self, x, y, z):
        self.grid_dim, self.grid_idx = chosen[0], chosen[x + 1]
        seen._overflows.clear()
        if x == 0:  # now the launch has put the interpreter's operators in place, and takes them away at its end
            for name, method in _METHODS:
                setattr(tl.tensor, method, seen.notes(name, getattr(tl.tensor, method)))

    def loads(self, pointers, mask, *args, **kwargs):
        dtype = pointers.get_element_ty()
        number = seen.looks_at("load", pointers, mask)
        return handle(np.full(np.shape(pointers.data), number, interpreter._get_np_dtype(dtype)), dtype)

    def stores(self, pointers, value, mask, *args, **kwargs):
        seen.looks_at("store", pointers, mask)

    def updates(self, operation, pointers, value, mask, *args, **kwargs):
        seen.looks_at("atomic", pointers, mask)
        return handle(np.zeros_like(value.data), value.dtype.scalar)

    def swaps(self, pointers, compared, *args, **kwargs):
        seen.looks_at("atomic", pointers, None)
        return handle(np.zeros_like(compared.data), compared.dtype.scalar)

    with contextlib.ExitStack() as stack:
        put = lambda owner, name, new: stack.enter_context(mock.patch.object(owner, name, new))  # noqa: E731
        put(executor, "__call__", call), put(executor, "_init_args_hst", arguments)
        put(executor, "_restore_args_dev", lambda *args: None)
        put(builder, "set_grid_idx", index)
        put(builder, "create_masked_load", loads), put(builder, "create_masked_store", stores)
        put(builder, "create_atomic_rmw", updates), put(builder, "create_atomic_cas", swaps)
        stack.enter_context(mock.patch.object(FakeTensor, "data_ptr", lambda tensor: seen.address(tensor), create=True))
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        stack.enter_context(_Answers())
        yield seen
