"""Memory watched in a browser, where addresses are the torch shim's own: a backend of `memory.Memory`.

Each storage has a range of addresses to itself (`academy/playground/runtime/torch/_memory.py`), so a window is a second
range for the same bytes.
"""

from __future__ import annotations

import torch
from torch._tensor import UntypedStorage, on_empty


class BrowserMemory:
    """Inside `with BrowserMemory() as watched:`, memory allocated without a value holds 0xFF in every byte."""

    def __init__(self) -> None:
        self._fresh: dict[int, torch.Tensor] = {}  # kept alive, so that no address is used twice

    def __enter__(self) -> BrowserMemory:
        on_empty.append(self._allocated)
        return self

    def __exit__(self, *_) -> None:
        on_empty.remove(self._allocated)

    def _allocated(self, tensor: torch.Tensor) -> None:
        tensor.untyped_storage().fill_(0xFF)
        self._fresh[tensor.untyped_storage().data_ptr()] = tensor

    def is_fresh(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor's storage was allocated without a value."""
        return tensor.untyped_storage().data_ptr() in self._fresh

    def window(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same view of the same bytes at addresses of its own, as long as that tensor lives."""
        storage = UntypedStorage(tensor.untyped_storage().data)
        return torch.Tensor(storage, tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset())

    def give_back(self, placed: torch.Tensor) -> None:
        """A window is a second range for the same bytes."""

    def launched(self) -> None:
        """A launch is over."""
