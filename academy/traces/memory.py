"""Which tensor, and which element of it, an address belongs to, in one recorded launch.

How tensors get addresses that tell them apart is the business of a backend, and nothing else here or in the recorder
depends on it: `native_memory.NativeMemory` on Linux, `browser_memory.BrowserMemory` in a browser. A backend has
`window(tensor)`, `is_fresh(tensor)`, `give_back(window)` and `launched()`.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
import torch

#: Empty bytes before and after each tensor. They are never touched, so they cost address space only.
GUARD = 1 << 20


class Backend(Protocol):
    """Watches memory: see `native_memory.NativeMemory`."""

    def is_fresh(self, tensor: torch.Tensor) -> bool: ...

    def window(self, tensor: torch.Tensor) -> torch.Tensor: ...

    def give_back(self, placed: torch.Tensor) -> None: ...

    def launched(self) -> None: ...


def unwritten(data: np.ndarray | torch.Tensor) -> np.ndarray:
    """Where an array from fresh memory still holds what a backend put there, 0xFF in every byte."""
    if isinstance(data, torch.Tensor):
        content, size = data.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy(), data.element_size()
    else:
        content, size = np.ascontiguousarray(data).view(np.uint8), data.itemsize
    return (content.reshape(*data.shape, size) == 0xFF).all(axis=-1)


@dataclass
class Argument:
    """A tensor argument of one launch, in its window.

    name: of the kernel's parameter. tensor: what the kernel works on. start: address of its first element. identity:
    equal for arguments that share a storage. fresh: the storage was allocated without a value. before, after: copies of
    the values before the launch and after it.
    """

    name: str
    tensor: torch.Tensor
    identity: int
    fresh: bool
    number: int
    before: torch.Tensor = field(init=False)
    after: torch.Tensor = field(init=False)

    def __post_init__(self):
        tensor = self.tensor
        self.start, self.itemsize = tensor.data_ptr(), tensor.element_size()
        self.before = tensor.detach().clone()
        offsets = np.zeros((), dtype=np.int64)
        for size, stride in zip(tensor.shape, tensor.stride()):
            offsets = offsets[..., None] + np.arange(size) * stride
        flat = offsets.reshape(-1)
        # offset from the first element -> number of the element; an expanded element gets its first number
        self._element_at = np.full(flat.max() + 1 if flat.size else 0, -1, dtype=np.int64)
        self._element_at[flat[::-1]] = np.arange(flat.size)[::-1]

    def elements(self, addresses: np.ndarray) -> np.ndarray:
        """Number of the element (row-major in the tensor's shape) at each address; -1 outside the tensor."""
        offsets = (addresses - self.start) // self.itemsize
        inside = (addresses >= self.start) & (offsets < self._element_at.size)
        elements = np.full(addresses.shape, -1, dtype=np.int64)
        elements[inside] = self._element_at[offsets[inside]]
        return elements

    def elements_in_storage(self, offsets: np.ndarray) -> np.ndarray:
        """The same for byte offsets in the storage."""
        return self.elements(offsets + self.start - self.tensor.storage_offset() * self.itemsize)

    def storage_offset(self, addresses: np.ndarray) -> np.ndarray:
        """Byte offset in the storage, the same for every view of it."""
        return addresses - self.start + self.tensor.storage_offset() * self.itemsize

    def element_name(self, element: int) -> str:
        """`y_ptr[1, 3]` for the seventh element of a tensor with rows of four."""
        index = np.unravel_index(element, tuple(self.tensor.shape)) if self.tensor.dim() else ()
        return f"{self.name}[{', '.join(str(int(i)) for i in index)}]"

    def describe(self, address: int) -> str:
        """`element 12 of x_ptr, which has shape (3, 4)`: for an address outside."""
        offset = (address - self.start) // self.itemsize
        text = f"element {offset} of {self.name}, which has shape {tuple(self.tensor.shape)}"
        return text if self.tensor.is_contiguous() else f"{text} and strides {self.tensor.stride()}"


class Memory:
    """All tensor arguments of one launch. `place` a tensor, then ask which argument an address belongs to."""

    def __init__(self, backend: Backend):
        self._backend = backend
        self.arguments: list[Argument] = []
        self._behind: dict[int, torch.Tensor] = {}

    def place(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """The same view of the same bytes, at addresses of its own."""
        placed, identity = self._backend.window(tensor), tensor.untyped_storage().data_ptr()
        self.arguments.append(Argument(name, placed, identity, self._backend.is_fresh(tensor), len(self.arguments)))
        storages = [argument.tensor.untyped_storage() for argument in self.arguments]
        self._starts = np.array([storage.data_ptr() - GUARD for storage in storages])
        self._ends = self._starts + [storage.nbytes() + 2 * GUARD for storage in storages]
        return placed

    def behind(self, name: str, address: int) -> int:
        """Where a tensor lies now that is no argument, but whose address is in one; any other address stays."""
        if address not in self._behind:
            tensor = self._alive.get(address)
            if tensor is None:
                return address
            self._behind[address] = self.place(name, tensor.detach())
        return self._behind[address].data_ptr()

    @cached_property
    def _alive(self) -> dict[int, torch.Tensor]:
        """Every tensor that there is as the launch begins to ask, by its address: a look through all objects of Python
        takes as long as recording a small kernel."""
        kinds = torch.Tensor, getattr(torch.nn, "Parameter", torch.Tensor)
        alive = [each for each in gc.get_objects() if type(each) in kinds and each.numel()]
        return {each.data_ptr(): each for each in reversed(alive)}

    def give_back(self) -> None:
        """What such tensors hold now; those of arguments the launch copies itself."""
        for placed in self._behind.values():
            self._backend.give_back(placed)
        vars(self).pop("_alive", None)  # so that it keeps none of them

    def owners(self, addresses: np.ndarray) -> np.ndarray:
        """Index into `arguments` for each address: its window, or the nearest one; -1 if there is none."""
        if not self.arguments:
            return np.full(addresses.shape, -1)
        if addresses.size:  # nearly always one window holds all of them
            holds = (self._starts <= addresses.min()) & (addresses.max() < self._ends)
            if holds.any():
                return np.full(addresses.shape, holds.argmax())
        flat = addresses.reshape(-1, 1)
        distance = np.maximum(np.maximum(self._starts - flat, flat - self._ends + 1), 0)
        return distance.argmin(axis=1).reshape(addresses.shape)
