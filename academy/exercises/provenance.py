"""Who has computed a result: the kernels, or PyTorch before or after them.

Followed byte by byte: what a launch finds in memory that no earlier launch has left there, and that the call wasn't
given, comes from the host. A constant may: an output begins with zeros. A kernel's numbers don't go through memory, so
`Reading` looks whether Python takes numbers out of a tensor.
"""

from __future__ import annotations

import functools
import sys
from types import FrameType
from typing import Any

import numpy as np
import torch

from academy.traces.memory import Argument
from academy.traces.observer import Launch

#: What may stand in an element before something is added to it, or a larger or smaller number replaces it.
_NEUTRAL = (0.0, float("inf"), -float("inf"))


#: How Python gets at numbers of a tensor. (A condition may look at one.)
_READS = ("item", "tolist", "numpy", "__float__", "__int__", "__index__", "__array__", "__format__", "__repr__")


class Reading:
    """Notes the first number that the code of `file` takes out of a tensor, by itself or through Python's library."""

    def __init__(self, file: str):
        self.file = file
        self.found = ""

    def __enter__(self) -> Reading:
        self._own = {name: vars(torch.Tensor).get(name) for name in _READS}
        for name in _READS:
            if hasattr(torch.Tensor, name):
                setattr(torch.Tensor, name, self._noted(name, getattr(torch.Tensor, name)))
        return self

    def __exit__(self, *_: object) -> None:
        for name, own in self._own.items():
            if own is not None:
                setattr(torch.Tensor, name, own)
            elif name in vars(torch.Tensor):  # PyTorch's base class has it
                delattr(torch.Tensor, name)

    def _noted(self, name: str, read: Any) -> Any:
        @functools.wraps(read)
        def noted(*args: Any, **kwargs: Any) -> Any:
            if not self.found and self._asked_by_the_text():
                self.found = f"{name.strip('_')}()"
            return read(*args, **kwargs)

        return noted

    def _asked_by_the_text(self) -> bool:
        frame: FrameType | None = sys._getframe(2)
        while frame:
            if frame.f_code.co_filename == self.file:
                return True
            if frame.f_globals.get("__name__", "").partition(".")[0] in ("torch", "triton", "academy"):
                return False
            frame = frame.f_back
        return False


def snapshot(given: list[torch.Tensor]) -> list[np.ndarray]:
    """The bytes of tensors, before anything runs."""
    return [_bytes(tensor).copy() for tensor in given]


class Provenance:
    """given: the tensors that the call was given. before: their `snapshot`. stored: what kernels left behind, by the
    parameter's name."""

    def __init__(self, given: list[torch.Tensor], before: list[np.ndarray]):
        self._given = given
        self._state: dict[int, np.ndarray] = {}  # storage -> its bytes, as the call was given or a launch left them
        self._known: dict[int, np.ndarray] = {}  # storage -> which of them that is
        self._by_kernel: dict[int, np.ndarray] = {}  # storage -> which of them a kernel has stored
        self._host: dict[str, str] = {}
        self.stored: dict[str, torch.Tensor] = {}
        for tensor, content in zip(given, before):
            identity = tensor.untyped_storage().data_ptr()
            self._memory(identity, tensor)
            self._state[identity][_places(tensor)] = content
            self._known[identity][_places(tensor)] = True

    def launch(self, launch: Launch) -> None:
        """The next launch: compare what it finds, remember what it leaves."""
        for argument in launch.arguments:
            self._found(launch, argument)
        for argument in launch.arguments:
            touched = [t for t in launch.touches if t.argument is argument and t.operation != "load"]
            self._memory(argument.identity, argument.tensor)
            state, known = self._state[argument.identity], self._known[argument.identity]
            places, content = _places(argument.tensor), _bytes(argument.after)
            known[places] &= state[places] == content  # what the host has changed since stays the host's
            state[places] = content
            for touch in touched:
                active = touch.elements[touch.elements >= 0]
                known[places[active]] = self._by_kernel[argument.identity][places[active]] = True
                self.stored[argument.name] = argument.after

    def _memory(self, identity: int, tensor: torch.Tensor) -> None:
        if identity not in self._state:
            size = tensor.untyped_storage().nbytes()
            self._state[identity] = np.zeros(size, np.uint8)
            self._known[identity], self._by_kernel[identity] = np.zeros(size, bool), np.zeros(size, bool)

    def _found(self, launch: Launch, argument: Argument) -> None:
        """What this launch reads, or adds to, that neither a kernel nor the caller has put there."""
        loaded, added = _before_a_store(launch, argument)
        self._memory(argument.identity, argument.tensor)
        state, known = self._state[argument.identity], self._known[argument.identity]
        places, content = _places(argument.tensor), _bytes(argument.before)
        own = (known[places] & (state[places] == content)).all(axis=-1)
        numbers = _numbers(argument.before)
        foreign = loaded[~own[loaded]]
        if foreign.size and not _constant(numbers[foreign]):
            values = [_numbers(tensor) for tensor in self._given if tensor.dtype == argument.before.dtype]
            copied = bool(values) and _among(numbers[foreign], np.concatenate(values))
            self._host.setdefault("copies" if copied else "loads", argument.name)
        foreign = added[~own[added]]
        if foreign.size and not np.isin(numbers[foreign], _NEUTRAL).all():
            self._host.setdefault("result", argument.name)

    def of_host(self, results: tuple[Any, ...]) -> dict[str, str]:
        """`loads`: the parameter as which a kernel loads what PyTorch has computed. `copies`: or copied from an
        argument. `result`: what PyTorch has computed of the result, as a message says it."""
        for value in results:
            if not isinstance(value, torch.Tensor) or not value.numel():
                continue
            identity = value.untyped_storage().data_ptr()
            if identity not in self._state:
                self._host.setdefault("result", "the result")
                continue
            places = _places(value)
            if not self._by_kernel[identity][places].all():
                self._host.setdefault("result", "elements of the result that no kernel stores")
            elif (self._state[identity][places] != _bytes(value)).any():
                self._host.setdefault("result", "the result from what the kernel has stored")
        return self._host


def _before_a_store(launch: Launch, argument: Argument) -> tuple[np.ndarray, np.ndarray]:
    """Elements that are loaded, and those that something is added to, as the launch finds them."""
    stored = np.zeros(argument.tensor.numel(), bool)
    loaded, added = stored.copy(), stored.copy()
    for touch in launch.touches:
        if touch.argument is argument:
            active = touch.elements[touch.elements >= 0]
            if touch.operation == "store":
                stored[active] = True
            else:
                found = loaded if touch.operation == "load" else added
                found[active[~stored[active]]] = True
                stored[active] |= touch.operation != "load"
    return np.flatnonzero(loaded), np.flatnonzero(added)


def _places(tensor: torch.Tensor) -> np.ndarray:
    """For each element, in row-major order, where its bytes lie in the storage."""
    offsets = np.full((), tensor.storage_offset(), dtype=np.int64)
    for size, stride in zip(tensor.shape, tensor.stride()):
        offsets = offsets[..., None] + np.arange(size) * stride
    return offsets.reshape(-1, 1) * tensor.element_size() + np.arange(tensor.element_size())


def _bytes(tensor: torch.Tensor) -> np.ndarray:
    """The bytes of each element, in row-major order."""
    plain = tensor.detach().reshape(-1).contiguous().view(torch.uint8).numpy()
    return plain.reshape(-1, tensor.element_size())


def _numbers(tensor: torch.Tensor) -> np.ndarray:
    return np.array(tensor.detach().reshape(-1).double().tolist(), dtype=np.float64)


def _among(numbers: np.ndarray, known: np.ndarray) -> bool:
    """Whether all of these are among the known ones; a NaN is equal to a NaN."""
    return bool((np.isin(numbers, known) | (np.isnan(numbers) & np.isnan(known).any())).all())


def _constant(numbers: np.ndarray) -> bool:
    """One number may be what PyTorch has computed, so it has to be zero; many that are equal are a filled tensor."""
    same = (numbers == numbers[0]).all() or np.isnan(numbers).all()
    return bool(same) and (numbers.size > 1 or numbers[0] in (*_NEUTRAL, 1.0))
