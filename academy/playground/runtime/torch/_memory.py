"""Memory at addresses of our own, so that an access outside every tensor is seen, whatever lies beside it.

Every block of bytes owns a range of addresses, with a gap behind it. `libtriton` loads and stores through `parts`.
"""

from __future__ import annotations

import weakref
from bisect import bisect_right, insort
from collections.abc import Iterator

import numpy as np

#: Blocks begin at multiples of this; no two share one.
SPAN = 1 << 28
_starts: list[int] = []
_blocks: dict[int, np.ndarray] = {}
#: Starts of blocks that are no more. They leave `_starts` when the next one is made: a block may go at any moment, also
#: while a place is looked up there.
_gone: list[int] = []
_next = SPAN


class Block:
    """The addresses of an array of bytes, for as long as this object lives."""

    def __init__(self, data: np.ndarray):
        global _next
        while _gone:
            _starts.pop(bisect_right(_starts, _gone.pop()) - 1)
        self.start, self.data = _next, data
        _next += (data.nbytes // SPAN + 2) * SPAN
        insort(_starts, self.start)
        _blocks[self.start] = data
        weakref.finalize(self, _forget, self.start)


def _forget(start: int) -> None:
    del _blocks[start]
    _gone.append(start)


def parts(addresses: np.ndarray, itemsize: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """For each block that some addresses point into: its bytes, the numbers of those addresses, their offsets in bytes.

    Raises IndexError for an address outside every block.
    """
    if not addresses.size:
        return
    low, high = int(addresses.min()), int(addresses.max())
    first = bisect_right(_starts, low) - 1
    if first == bisect_right(_starts, high) - 1:  # all of them, as in nearly every load and store
        yield _inside(first, np.arange(addresses.size), addresses, itemsize)
        return
    owners = np.searchsorted(np.array(_starts), addresses, side="right") - 1
    for owner in np.unique(owners):
        lanes = np.flatnonzero(owners == owner)
        yield _inside(int(owner), lanes, addresses[lanes], itemsize)


def _inside(owner: int, lanes: np.ndarray, addresses: np.ndarray, itemsize: int):
    start = _starts[owner] if owner >= 0 else 0
    block = _blocks.get(start, np.zeros(0, dtype=np.uint8))
    offsets = addresses - start
    if int(offsets.min()) < 0 or int(offsets.max()) + itemsize > block.nbytes:
        raise IndexError("an address outside of every tensor")
    if (offsets % itemsize).any():
        raise IndexError(f"an address that isn't a multiple of {itemsize} bytes")
    return block, lanes, offsets
