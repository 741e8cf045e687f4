"""Memory watched natively, with mappings of the operating system and torch's dispatcher: a backend of `memory.Memory`.

A pointer in Triton's interpreter is a plain address. Ordinary allocations lie side by side, so a pointer that runs off
the end of one tensor soon points into another, and a wrong access looks like a right one. Here each storage is copied
into a memory file, and each argument gets a mapping of that file at an address of its own, with empty pages on both
sides. Views of one storage still share their bytes.
"""

from __future__ import annotations

import os

import torch

from academy.runtime.modes import DispatchMode
from academy.traces.memory import GUARD


class NativeMemory(DispatchMode):
    """Inside `with NativeMemory() as watched:`, memory allocated without a value holds 0xFF in every byte.

    In every floating dtype that is a NaN which no arithmetic produces, so an element still holding it was never
    written.
    """

    ALLOCATIONS = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted"}

    def __init__(self):
        super().__init__()
        self._fresh: dict[int, torch.Tensor] = {}  # kept alive, so that no address is used twice
        self._files: dict[int, int] = {}  # address of a storage -> descriptor of its memory file, open during a launch
        self._behind: dict[int, torch.UntypedStorage] = {}  # address of a window -> the storage that it stands for

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if function.overloadpacket.__name__ in self.ALLOCATIONS:
            storage = result.untyped_storage()
            if storage.nbytes():
                storage.fill_(0xFF)
            self._fresh[storage.data_ptr()] = result
        return result

    def is_fresh(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor's storage was allocated without a value."""
        return tensor.untyped_storage().data_ptr() in self._fresh

    def window(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same view of the same bytes at addresses of its own, as long as that tensor lives."""
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._files:
            self._files[storage.data_ptr()] = os.memfd_create("academy-trace")
            os.ftruncate(self._files[storage.data_ptr()], storage.nbytes() + 2 * GUARD)
            if storage.nbytes():
                self._mapping(storage).copy_(storage)
        mapping = self._mapping(storage)
        self._behind[mapping.data_ptr()] = storage
        placed = torch.empty(0, dtype=tensor.dtype)
        return placed.set_(mapping, tensor.storage_offset(), tensor.size(), tensor.stride())

    def _mapping(self, storage: torch.UntypedStorage) -> torch.UntypedStorage:
        # PyTorch's mapping needs no open file afterwards. One of Python's keeps a descriptor as long as it lives, and
        # tensors live until their cycles are collected: a process came to more than a thousand.
        file = f"/proc/self/fd/{self._files[storage.data_ptr()]}"
        whole = torch.UntypedStorage.from_file(file, shared=True, nbytes=storage.nbytes() + 2 * GUARD)
        content = torch.empty(0, dtype=torch.uint8).set_(whole).numpy()[GUARD : GUARD + storage.nbytes()]
        return torch.from_numpy(content).untyped_storage()

    def __exit__(self, *raised):
        self.launched()  # a kernel that raised an error has not come to it
        return super().__exit__(*raised)

    def give_back(self, placed: torch.Tensor) -> None:
        """What a window holds now, its tensor holds too: for who doesn't copy it himself."""
        self._behind[placed.untyped_storage().data_ptr()].copy_(placed.untyped_storage())

    def launched(self) -> None:
        """A launch is over: the next one begins with copies of its own."""
        self._behind.clear()
        while self._files:
            os.close(self._files.popitem()[1])
