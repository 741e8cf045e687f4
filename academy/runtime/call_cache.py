"""What the geometry of a call decides is worked out once: checks of arguments, plans, and all of a launch but the
addresses.

The *geometry* of a call is what can be seen without looking at memory: each tensor's dtype, shape, strides and device,
whether it requires a gradient and whether its address is a multiple of 16, and the options beside the tensors. A
training step or a decoder makes the same calls again and again, with other tensors of the same geometry.

- `remembered(function)` calls a function of the geometry once for each. A check that passed needs no second look; one
  that raised is asked again.
- `Prepared` is a launch for one geometry. From the second call on it asks the tensors for their addresses, and hands
  them to the driver.

A key may be finer than necessary, never coarser. A type counts as well as a value, because 1 equals 1.0 and True.
What isn't understood here is never remembered: a subclass of `torch.Tensor`, a list, `torch.compile`, `torch.func`,
forward-mode derivatives, the interpreter. No tensor is kept alive.

Names: `remembered`, `knowing`, `Known`, `Prepared`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import torch

from academy.runtime import launch
from academy.runtime.autograd import forward_mode
from academy.runtime.checks import looks_at_values, peek_interpreter_stack

_PLAIN = {int, float, bool, str}
_UNKNOWN = object()


class Known:
    """What stands for the geometry of a call once that has been looked at: as good as the tensors in a key, and sooner
    compared. A remembered function, usually the check of the arguments, returns it."""

    def __init__(self) -> None:
        self.remembered = False
        self.bound: dict[Callable, Callable] = {}

    def bind(self, launcher: Callable) -> Callable:
        """`launcher` with `known=self`; in `torch.compile` the launcher itself."""
        if torch.compiler.is_compiling():
            return launcher
        found = self.bound.get(launcher)
        if found is None:
            found = self.bound[launcher] = functools.partial(launcher, known=self)
        return found


def remembered(function: Callable, *, values: bool = False) -> Callable:
    """`function`, called once for each geometry of its arguments.

    Args:
        function: of positional arguments: tensors, numbers, names, None, and tuples of these. Its result must depend on
            the geometry only, and is shared by all calls. One that holds a tensor is not remembered.
        values: whether the function also looks at values where `ACADEMY_DEBUG=1` asks for that. Then it is called.

    Returns:
        A function of the same arguments, and of two more: `known`, a `Known` that decides everything about the
        arguments but what is in the tuple `besides`.
    """
    found: dict[tuple, Any] = {}
    launch.CACHES.append(found)

    def once(*arguments, known=None, besides=()):
        if known is None:
            if torch.compiler.is_compiling() or not launch.COMPILED:
                return function(*arguments)
            if forward_mode() or peek_interpreter_stack() is not None:
                return function(*arguments)
            if values and looks_at_values():
                return function(*arguments)
        elif not known.remembered:
            return function(*arguments)
        try:
            if known is None:
                key = tuple(_geometry(arguments, [launch.current_device(), torch.is_grad_enabled()]))
            else:
                key = tuple(_geometry(besides, [known]))
            result = found.get(key, _UNKNOWN)
        except (TypeError, RuntimeError):  # another kind of argument: no strides, no memory, no hash
            return function(*arguments)
        if result is _UNKNOWN:
            result = function(*arguments)
            if not _holds_tensor(result):
                launch.keep(found, key, result)
                if isinstance(result, Known):
                    result.remembered = True
        return result

    return functools.wraps(function)(once)


def knowing(check: Callable, *, values: bool = False) -> Callable:
    """`check`, a function that raises or returns nothing, `remembered`; what it returns is a `Known`."""

    @functools.wraps(check)
    def checked(*arguments):
        check(*arguments)
        return Known()

    return remembered(checked, values=values)


def _geometry(arguments: Sequence, key: list) -> list:
    """Adds everything that can be seen of these arguments without looking at memory."""
    for value in arguments:
        kind = type(value)
        if kind is torch.Tensor or kind is torch.nn.Parameter:
            aligned = value.data_ptr() % 16 == 0  # raises if it is sparse, as `shape` does if it is nested
            if value.is_neg():
                raise TypeError("a tensor that isn't what its memory says")
            key += value.dtype, value.shape, value.stride(), value.device, value.requires_grad, aligned
        elif value is None:
            key.append(None)
        elif kind in _PLAIN:
            key += kind, value
        elif isinstance(value, tuple):
            key += kind, len(value)
            _geometry(value, key)
        else:
            raise TypeError(f"{kind.__name__} is not remembered")
    return key


def _holds_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor) or isinstance(value, tuple | list) and any(map(_holds_tensor, value))


class Prepared:
    """`launch` for tensors of one geometry.

    Args:
        kernel, grid, numbers, constants: as those of `launch`. A grid with a zero launches nothing.
        arguments: a function of the tensors that a call gets. It returns the kernel's first arguments, as `launch`
            takes them: tensors, views of them, `Tiles`, tuples. All else in them is taken as it was at the first call.

    All calls must be made with tensors of the same geometry. `None` may stand for a tensor, then it does in all calls.
    """

    def __init__(self, kernel: Any, grid: tuple, arguments: Callable, numbers: tuple = (), **constants: Any):
        self.launch = launch.Launch(kernel, grid, numbers, **constants)
        self.arguments, self.empty, self.asked = arguments, 0 in grid, False
        self.ready: _Ready | None = None

    def __call__(self, *tensors: Any) -> None:
        ready = self.ready
        if ready is None or torch.compiler.is_compiling() or not ready(tensors):
            self._first(tensors)

    def _first(self, tensors: Sequence) -> None:
        if self.empty:
            return
        arguments = self.arguments(*tensors)
        self.launch(*arguments)
        if self.asked or not launch.REMEMBERS or torch.compiler.is_compiling() or not _aligned(tensors):
            return
        known = self.launch.known(arguments)
        if known is not None:
            self.asked, fills = True, _fills(self.arguments, tensors, known)
            if fills is not None:
                self.ready = _Ready(known, launch.current_device(), fills, self.launch.three, self.launch.numbers)


def _aligned(tensors: Sequence) -> bool:
    return all(x is None or x.data_ptr() % 16 == 0 for x in tensors)


class _Ready:
    """A launch that needs nothing but addresses, all of them multiples of 16."""

    def __init__(self, known: Any, device: int, fills: list, grid: tuple | None, numbers: tuple):
        self.known, self.device, self.grid = known, device, grid or known.grid
        self.values = [value for _, value in fills]
        self.values += [*numbers, *known.rest]
        self.fills = [(place, fill) for place, (fill, _) in enumerate(fills) if fill is not None]

    def __call__(self, tensors: Sequence) -> bool:
        """Whether it was launched."""
        together, addresses = 0, []
        for tensor in tensors:
            if tensor is None:
                addresses.append(0)
            elif type(tensor) is torch.Tensor or type(tensor) is torch.nn.Parameter:
                address = tensor.data_ptr()
                together |= address
                addresses.append(address)
            else:
                return False
        device, known = self.device, self.known
        if together & 15 or known.hooks or not launch.REMEMBERS or launch.current_device() != device:
            return False
        if launch.watched():
            return False
        values = self.values.copy()
        for place, fill in self.fills:
            values[place] = fill(addresses)
        known.run(self.grid, device, values)
        return True


def _fills(arguments: Callable, tensors: Sequence, known: Any) -> list | None:
    """For each value that the driver gets: a function of the tensors' addresses, or None and the value itself.

    Stand-ins without memory, each with a storage of its own, show where every tensor ends up, also when two tensors
    share memory. None if something else is made from them, such as a copy.
    """
    stand_ins = [
        None if x is None else torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta") for x in tensors
    ]
    places = {x.untyped_storage()._cdata: place for place, x in enumerate(stand_ins) if x is not None}
    fills: list = []
    try:
        with torch.no_grad():
            prepared = arguments(*stand_ins)
        for at, value in enumerate(prepared):
            if type(value) is launch.Tiles:
                address, encode = _fill(value.base, places), known.encoders[at]
                fills.append((lambda a, encode=encode, address=address, of=value: encode(address(a), *of[1:3]), None))
                fills += [(None, number) for number in (*value.shape, *value.strides)]
            else:
                fill = _fill(value, places)
                fills.append((fill, launch.look((value,))[2][0] if fill is None else None))
    except (KeyError, RuntimeError):  # another tensor's memory; no copy of a stand-in
        return None
    return fills


def _fill(value: Any, places: dict) -> Callable | None:
    """A function of the addresses, or None for what doesn't depend on them."""
    if isinstance(value, torch.Tensor):
        place, offset = places[value.untyped_storage()._cdata], value.storage_offset() * value.element_size()
        return (lambda a: a[place] + offset) if offset else itemgetter(place)
    if not isinstance(value, tuple):
        return None
    parts = [_fill(part, places) for part in value]
    if not any(parts):
        return None
    first, rest = parts[0], launch.look(value[1:])[2] if not any(parts[1:]) else None
    if rest is not None and first is not None:  # the usual case: a pointer and its strides
        return lambda a: (first(a), *rest)
    values = [None if part else launch.look((v,))[2][0] for part, v in zip(parts, value)]
    return lambda a: tuple(part(a) if part else v for part, v in zip(parts, values))
