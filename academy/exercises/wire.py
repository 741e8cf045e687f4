"""Plain data as bytes and back, between the process that checks and the one that runs a reader's text.

JSON, because unpickling runs what the other side has sent. Tensors come with all of their memory, so that what lies
around them stays around them; several may share it. A function becomes a number, and its calls go back over the wire.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from academy import device
from academy.exercises import watch

_DTYPES = {
    str(dtype): dtype
    for dtype in (
        torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.bool, torch.uint8, torch.int8, torch.int16,
        torch.int32, torch.int64,
    )
}  # fmt: skip


class Malformed(Exception):
    """Bytes that no `pack` has made."""


def pack(value: Any, functions: list[Callable] | None = None) -> bytes:
    """functions: receives the functions inside of `value`; their number stands in their place. Raises TypeError."""
    packer = _Packer(functions)
    content = packer.packed(value)
    return json.dumps([content, packer.storages]).encode()


def unpack(data: bytes, called: Callable[[int, tuple], Any] | None = None) -> Any:
    """called: what a function of the other side does. Raises `Malformed`."""
    try:
        content, storages = json.loads(data)
        return _Unpacker([_array(storage) for storage in storages], called).unpacked(content)
    except (ValueError, TypeError, KeyError, IndexError, RuntimeError, RecursionError, OverflowError) as error:
        raise Malformed(f"{type(error).__name__}: {error}") from error


class _Packer:
    def __init__(self, functions: list[Callable] | None):
        self.functions, self.storages = functions, list[Any]()
        self._places: dict[int, int] = {}

    def packed(self, value: Any) -> Any:
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, float):
            return {"float": value.hex()}
        if isinstance(value, (list, tuple)):
            return {type(value).__name__ if type(value) is list else "tuple": [self.packed(item) for item in value]}
        if isinstance(value, dict):
            return {"dict": [[self.packed(key), self.packed(item)] for key, item in value.items()]}
        if isinstance(value, np.ndarray):
            return {"array": _text(value)}
        if isinstance(value, torch.Tensor):
            return {"tensor": self._tensor(value.detach())}
        if isinstance(value, _CLASSES):
            return {type(value).__name__: self.packed(vars(value))}
        if callable(value) and self.functions is not None:
            self.functions.append(value)
            return {"function": [len(self.functions) - 1, getattr(value, "__name__", "function")]}
        raise TypeError(f"{type(value).__name__} can't be sent")

    def _tensor(self, tensor: torch.Tensor) -> list:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._places:
            self._places[storage.data_ptr()] = len(self.storages)
            whole = tensor.as_strided((storage.nbytes() // tensor.element_size(),), (1,), 0)
            self.storages.append(_text(whole.cpu().view(torch.uint8).numpy()))
        place = self._places[storage.data_ptr()]
        return [place, str(tensor.dtype), list(tensor.shape), list(tensor.stride()), tensor.storage_offset()]


class _Unpacker:
    def __init__(self, storages: list[np.ndarray], called: Callable[[int, tuple], Any] | None):
        self._storages = [torch.from_numpy(storage).to(device.DEVICE) for storage in storages]
        self._called = called

    def unpacked(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        ((kind, content),) = value.items()
        if kind == "float":
            return float.fromhex(content)
        if kind in ("list", "tuple"):
            items = [self.unpacked(item) for item in content]
            return items if kind == "list" else tuple(items)
        if kind == "dict":
            return {self.unpacked(key): self.unpacked(item) for key, item in content}
        if kind == "array":
            return _array(content)
        if kind == "tensor":
            place, dtype, shape, stride, offset = content
            return self._storages[place].view(_DTYPES[dtype]).as_strided(shape, stride, offset)
        if kind == "function" and self._called:
            return self._function(self._called, *content)
        made = next(each for each in _CLASSES if each.__name__ == kind)
        return made(**self.unpacked(content))

    @staticmethod
    def _function(called: Callable[[int, tuple], Any], number: int, name: str) -> Callable:
        def function(*arguments):
            return called(number, arguments)

        function.__name__ = name
        return function


_CLASSES = (watch.Run, watch.Launch, watch.Access)


def _text(array: np.ndarray) -> list:
    return [str(array.dtype), list(array.shape), base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()]


def _array(text: list) -> np.ndarray:
    dtype, shape, content = text
    return np.frombuffer(base64.b64decode(content), np.dtype(dtype)).reshape(shape).copy()
