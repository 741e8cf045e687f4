"""Memory that shows a write outside of a tensor, and an element that nobody wrote."""

from __future__ import annotations

import ctypes
import mmap

import torch
from torch.utils._python_dispatch import TorchDispatchMode

#: Bytes in front of and behind each tensor, and what they hold.
WIDTH, FILL = 1 << 14, 0xA5
_UNWRITTEN = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
_FRESH = _UNWRITTEN | {"zeros", "zeros_like", "new_zeros", "ones", "full", "clone", "_to_copy"}


class Fences(TorchDispatchMode):
    """Inside `with Fences() as fences:`, new CPU tensors lie between fences; what is not written is NaN.

    `fences.broken()` tells afterwards whether a fence was written to. A kernel in Triton's interpreter writes through
    plain addresses, so without this a missing mask would go unnoticed.
    """

    def __init__(self):
        super().__init__()
        self._memory: list[torch.Tensor] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__
        if name not in _FRESH or not isinstance(result, torch.Tensor) or result.device.type != "cpu":
            return result
        return self._fenced(result, name in _UNWRITTEN)

    def _fenced(self, tensor: torch.Tensor, unwritten: bool) -> torch.Tensor:
        size = tensor.untyped_storage().nbytes()
        memory = torch.full((size + 2 * WIDTH,), FILL, dtype=torch.uint8)
        memory[WIDTH : WIDTH + size] = 0xFF
        view = torch.empty(0, dtype=tensor.dtype)
        view.set_(memory.untyped_storage(), WIDTH // tensor.element_size(), tensor.shape, tensor.stride())
        if not unwritten:
            view.copy_(tensor)
        self._memory.append(memory)
        return view

    def broken(self) -> bool:
        return any(bool((m[:WIDTH] != FILL).any() or (m[-WIDTH:] != FILL).any()) for m in self._memory)


def walled(values: torch.Tensor) -> torch.Tensor:
    """The same values, contiguous, at the end of readable memory: a read of the next byte kills the process."""
    size = values.numel() * values.element_size()
    pages = -(-max(size, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, pages + mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(address + pages), mmap.PAGESIZE, 0):
        raise OSError(ctypes.get_errno(), "mprotect failed")
    tensor = torch.frombuffer(memory, dtype=values.dtype, count=values.numel(), offset=pages - size).view(values.shape)
    return tensor.copy_(values)
