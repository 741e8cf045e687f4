"""The memory of a recorded launch: every tensor argument in a window of its own, so that each address names its tensor.

A pointer in Triton's interpreter is a plain address. Ordinary allocations lie side by side, so a pointer that runs off
the end of one tensor soon points into another, and a wrong access looks like a right one. Here each storage is copied
into a memory file, and each argument gets a mapping of that file at an address of its own, with empty pages on both
sides. Views of one storage still share their bytes.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass, field

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

#: Empty bytes before and behind each tensor. They are never touched, so they cost address space only.
GUARD = 1 << 20


class OutOfBounds(IndexError):
    """A lane that is not masked off points outside its tensor, in a statement of a file."""

    file, line = "", 1


class FreshMemory(TorchDispatchMode):
    """Inside `with FreshMemory() as fresh:`, memory allocated without a value holds 0xFF in every byte.

    In every floating dtype that is a NaN which no arithmetic produces, so an element still holding it was never
    written.
    """

    ALLOCATIONS = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted"}

    def __init__(self):
        super().__init__()
        self._tensors: dict[int, torch.Tensor] = {}  # kept alive, so that no address is used twice

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__
        if name in self.ALLOCATIONS:
            storage = result.untyped_storage()
            if storage.nbytes():
                storage.fill_(0xFF)
            self._tensors[storage.data_ptr()] = result
        return result

    def __contains__(self, storage_address: int) -> bool:
        return storage_address in self._tensors


def unwritten(data: np.ndarray | torch.Tensor) -> np.ndarray:
    """Where an array from fresh memory still holds what `FreshMemory` put there."""
    if isinstance(data, torch.Tensor):
        content, size = data.detach().reshape(-1).contiguous().view(torch.uint8).numpy(), data.element_size()
    else:
        content, size = np.ascontiguousarray(data).view(np.uint8), data.itemsize
    return (content.reshape(*data.shape, size) == 0xFF).all(axis=-1)


class File:
    """One storage, copied into a memory file."""

    def __init__(self, storage: torch.UntypedStorage):
        self.nbytes = storage.nbytes()
        self.descriptor = os.memfd_create("academy-trace")
        os.ftruncate(self.descriptor, self.nbytes + 2 * GUARD)
        if self.nbytes:
            self.window().copy_(storage)

    def window(self) -> torch.UntypedStorage:
        """A new mapping of the same bytes, as a storage. It lives as long as that storage."""
        mapping = mmap.mmap(self.descriptor, self.nbytes + 2 * GUARD)
        content = np.frombuffer(mapping, dtype=np.uint8)[GUARD : GUARD + self.nbytes]
        return torch.from_numpy(content).untyped_storage()

    def close(self) -> None:
        os.close(self.descriptor)


@dataclass
class Argument:
    """A tensor argument of one launch, in its window.

    name: of the kernel's parameter. tensor: what the kernel works on. start: address of its first element.
    identity: equal for arguments that share a storage. fresh: the storage was allocated without a value. before, after:
    copies of the values at the launch and behind it.
    """

    name: str
    tensor: torch.Tensor
    identity: int
    fresh: bool
    before: torch.Tensor = field(init=False)
    after: torch.Tensor = field(init=False)

    def __post_init__(self):
        tensor = self.tensor
        self.start = tensor.data_ptr()
        self.itemsize = tensor.element_size()
        self.before = tensor.detach().clone()
        axes = list(zip(tensor.shape, tensor.stride()))
        span = sum((size - 1) * stride for size, stride in axes) + 1 if tensor.numel() else 0
        offsets = np.zeros((), dtype=np.int64)
        for size, stride in axes:
            offsets = offsets[..., None] + np.arange(size) * stride
        self._element_at = np.full(span, -1, dtype=np.int64)  # offset from the first element -> number of the element
        flat = offsets.reshape(-1)
        self._element_at[flat[::-1]] = np.arange(flat.size)[::-1]  # an expanded element gets its first number

    def elements(self, addresses: np.ndarray) -> np.ndarray:
        """Number of the element (row-major in the tensor's shape) at each address; -1 outside the tensor."""
        offsets = (addresses - self.start) // self.itemsize
        inside = (addresses >= self.start) & (offsets < self._element_at.size)
        elements = np.full(addresses.shape, -1, dtype=np.int64)
        elements[inside] = self._element_at[offsets[inside]]
        return elements

    def storage_offset(self, addresses: np.ndarray) -> np.ndarray:
        """Byte offset in the storage, the same for every view of it."""
        return addresses - self.start + self.tensor.storage_offset() * self.itemsize

    def describe(self, address: int) -> str:
        """`element 12 of x_ptr, which has shape (3, 4)`: for an address outside."""
        offset = (address - self.start) // self.itemsize
        text = f"element {offset} of {self.name}, which has shape {tuple(self.tensor.shape)}"
        return text if self.tensor.is_contiguous() else f"{text} and strides {self.tensor.stride()}"


class Memory:
    """All tensor arguments of one launch. `place` a tensor, then ask which argument an address belongs to."""

    def __init__(self, fresh: FreshMemory):
        self._fresh = fresh
        self.arguments: list[Argument] = []
        self._files: dict[int, File] = {}
        self._bounds: tuple[np.ndarray, np.ndarray] | None = None

    def place(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """The same view of the same bytes in a window of its own."""
        storage = tensor.untyped_storage()
        identity = storage.data_ptr()
        if identity not in self._files:
            self._files[identity] = File(storage)
        placed = torch.empty(0, dtype=tensor.dtype)
        placed.set_(self._files[identity].window(), tensor.storage_offset(), tensor.size(), tensor.stride())
        self.arguments.append(Argument(name, placed, identity, identity in self._fresh))
        self._bounds = None
        return placed

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def owners(self, addresses: np.ndarray) -> np.ndarray:
        """Index into `arguments` for each address: its window, or the nearest one; -1 if there is none."""
        if not self.arguments:
            return np.full(addresses.shape, -1)
        if self._bounds is None:
            storages = [argument.tensor.untyped_storage() for argument in self.arguments]
            starts = np.array([storage.data_ptr() - GUARD for storage in storages])
            self._bounds = starts, starts + [storage.nbytes() + 2 * GUARD for storage in storages]
        flat, (starts, ends) = addresses.reshape(-1, 1), self._bounds
        distance = np.maximum(np.maximum(starts - flat, flat - ends + 1), 0)
        return distance.argmin(axis=1).reshape(addresses.shape)
