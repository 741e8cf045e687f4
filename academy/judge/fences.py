"""Memory that shows a write outside of a tensor, and an element that nobody wrote."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
from collections.abc import Iterator

import torch

from academy.runtime.modes import DispatchMode

#: Bytes before and after each tensor.
WIDTH = 1 << 17
_UNWRITTEN = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
_FILLED = "zeros zeros_like new_zeros ones ones_like new_ones full full_like new_full clone _to_copy".split()
_FRESH = _UNWRITTEN.union(_FILLED)
#: Bits of a NaN, by bytes of an element.
_NAN = {
    1: (torch.uint8, 0x7F),
    2: (torch.int16, 0x7E15),
    torch.bfloat16: (torch.int16, 0x7FD5),
    4: (torch.int32, 0x7FC00015),
    8: (torch.int64, 0x7FF8000000000015),
}


class Fences(DispatchMode):
    """Inside `with Fences() as fences:`, new tensors lie between fences; what is not written is NaN.

    A fence reads as NaN, or as the largest integer, so that a read outside poisons the result. `fences.broken()` tells
    afterwards how many elements of fences were written to. A kernel writes through plain addresses: without this a
    missing mask would go unnoticed, in the interpreter as on a GPU, or bring the process down.

    Args:
        walls: CPU tensors end where readable memory ends, instead of at a fence: reading or writing the next byte kills
            the process.
    """

    def __init__(self, walls: bool = False):
        super().__init__()
        self._walls = walls
        self._fences: list[tuple[torch.Tensor, torch.dtype]] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__
        if name not in _FRESH or not isinstance(result, torch.Tensor) or result.is_meta or result.is_complex():
            return result
        return self._fenced(result, name in _UNWRITTEN)

    def _fenced(self, tensor: torch.Tensor, unwritten: bool) -> torch.Tensor:
        size = tensor.untyped_storage().nbytes()
        if self._walls and tensor.device.type == "cpu":
            memory = _readable(WIDTH + size)
        else:
            memory = torch.empty(size + 2 * WIDTH, dtype=torch.uint8, device=tensor.device)
        _poison(memory, tensor.dtype)
        if unwritten and tensor.is_floating_point():
            memory[WIDTH : WIDTH + size] = 0xFF  # as `traces.memory.unwritten` knows it
        # `set_` rather than a slice: the result must be no view, as what `torch.empty` returns is none.
        placed = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        placed.set_(memory.untyped_storage(), WIDTH // tensor.element_size(), tensor.shape, tensor.stride())
        if not unwritten:
            placed.copy_(tensor)
        self._fences += [(memory[:WIDTH], tensor.dtype), (memory[WIDTH + size :], tensor.dtype)]
        return placed

    def broken(self) -> int:
        """How many elements outside of a tensor were written to."""
        return sum(_written(fence, dtype) for fence, dtype in self._fences)


def _poison(memory: torch.Tensor, dtype: torch.dtype) -> None:
    integer, bits = _poisonous(dtype)
    memory.view(integer).fill_(bits)


def _written(fence: torch.Tensor, dtype: torch.dtype) -> int:
    integer, bits = _poisonous(dtype)
    if fence.device.type == "cpu" and fence.numpy().tobytes() == _intact(integer, bits):
        return 0  # nearly always, and there are dozens of fences a call
    return int(torch.count_nonzero(fence.view(integer) != bits))


@functools.cache
def _intact(integer: torch.dtype, bits: int) -> bytes:
    return torch.full((WIDTH // integer.itemsize,), bits, dtype=integer).numpy().tobytes()


def _poisonous(dtype: torch.dtype) -> tuple[torch.dtype, int]:
    """What fences hold, as integers of an element's size: a NaN that no arithmetic produces, neither NumPy's own nor
    the one of memory that nobody wrote, or the largest integer."""
    if dtype.is_floating_point:
        return _NAN[torch.bfloat16 if dtype == torch.bfloat16 else dtype.itemsize]
    return (torch.uint8, 1) if dtype == torch.bool else (dtype, torch.iinfo(dtype).max)


@contextlib.contextmanager
def fenced_allocations() -> Iterator[None]:
    """`Fences` that raise AssertionError at the end if something was written outside of an allocation."""
    __tracebackhide__ = True
    with Fences() as fences:
        yield
    count = fences.broken()
    assert not count, f"{count} elements were written outside of an allocation"


def walled(values: torch.Tensor) -> torch.Tensor:
    """The same values, contiguous, at the end of readable memory: a read of the next byte kills the process."""
    size = values.numel() * values.element_size()
    return _readable(size).view(values.dtype).view(values.shape).copy_(values) if size else values


def far_apart(values: torch.Tensor) -> torch.Tensor:
    """A copy whose first dimension has a stride of 2³⁰: index 2 wraps around in 32 bits.

    There is as much memory before the first element as behind it, so that a wrapped offset reads zeros. Raises OSError
    or RuntimeError where there is no room.
    """
    room, strides = (1 << 30) * (2 * len(values) + 2), (1 << 30, *values.contiguous().stride()[1:])
    flat = zeros(room, values.dtype, values.device)
    return flat.as_strided(values.shape, strides, room // 2).copy_(values)


def zeros(room: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """So many elements. On a CPU only pages that are touched are taken."""
    if device.type != "cpu":
        return torch.zeros(room, dtype=dtype, device=device)
    lazily = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE
    return torch.frombuffer(mmap.mmap(-1, room * dtype.itemsize, flags=lazily), dtype=dtype)


def _readable(size: int) -> torch.Tensor:
    """`size` bytes, after which nothing can be read."""
    pages = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, pages + mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(address + pages), mmap.PAGESIZE, 0):
        raise OSError(ctypes.get_errno(), "mprotect failed")
    return torch.frombuffer(memory, dtype=torch.uint8, count=size, offset=pages - size)
