"""Memory that shows a write outside of a tensor, and an element that nobody wrote."""

from __future__ import annotations

import ctypes
import mmap

import torch
from torch.utils._python_dispatch import TorchDispatchMode

#: Bytes before and after each tensor, and what they hold.
WIDTH, FILL = 1 << 14, 0xA5
_UNWRITTEN = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
_FRESH = _UNWRITTEN | {"zeros", "zeros_like", "new_zeros", "ones", "full", "clone", "_to_copy"}


class Fences(TorchDispatchMode):
    """Inside `with Fences() as fences:`, new tensors lie between fences; what is not written is NaN.

    Args:
        walls: CPU tensors end where readable memory ends, instead of at a fence: reading or writing the next byte kills
            the process.

    `fences.broken()` tells afterwards whether a fence was written to. A kernel writes through plain addresses, so
    without this a missing mask would go unnoticed, in the interpreter as on a GPU.
    """

    def __init__(self, walls: bool = False):
        super().__init__()
        self._walls = walls
        self._fences: list[torch.Tensor] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__
        if name not in _FRESH or not isinstance(result, torch.Tensor):
            return result
        return self._fenced(result, name in _UNWRITTEN)

    def _fenced(self, tensor: torch.Tensor, unwritten: bool) -> torch.Tensor:
        size = tensor.untyped_storage().nbytes()
        if self._walls and tensor.device.type == "cpu":
            memory = _readable(WIDTH + size)
        else:
            memory = torch.empty(size + 2 * WIDTH, dtype=torch.uint8, device=tensor.device)
        memory.fill_(FILL)
        memory[WIDTH : WIDTH + size] = 0xFF
        view = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        view.set_(memory.untyped_storage(), WIDTH // tensor.element_size(), tensor.shape, tensor.stride())
        if not unwritten:
            view.copy_(tensor)
        self._fences += memory[:WIDTH], memory[WIDTH + size :]
        return view

    def broken(self) -> bool:
        return any(bool((fence != FILL).any()) for fence in self._fences)


def walled(values: torch.Tensor) -> torch.Tensor:
    """The same values, contiguous, at the end of readable memory: a read of the next byte kills the process."""
    size = values.numel() * values.element_size()
    return _readable(size).view(values.dtype).view(values.shape).copy_(values) if size else values


def _readable(size: int) -> torch.Tensor:
    """`size` bytes, after which nothing can be read."""
    pages = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, pages + mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(address + pages), mmap.PAGESIZE, 0):
        raise OSError(ctypes.get_errno(), "mprotect failed")
    return torch.frombuffer(memory, dtype=torch.uint8, count=size, offset=pages - size)
