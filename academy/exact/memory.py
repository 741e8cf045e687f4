"""Residues of what lies in memory: beside each storage of floats, by its address.

A view of a tensor, whatever its strides, is a part of its storage, and a kernel gets addresses. So residues are kept by
storage, and a place in it is found by its address.

With each residue goes a copy of the float's bits. If the bits in memory are others, somebody has written there unseen,
and what lies there is no residue (NAR), counted in `unseen`. A float that nobody has written since the memory was seen
first is data: its residue is its own. As long as a `Memory` lives it holds on to every storage that it knows, so that
no address is used twice.
"""

from __future__ import annotations

import bisect
import ctypes
from collections.abc import Callable

import numpy as np
import torch

from academy.exact import residues as r

_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
#: Bits -> floats.
Decode = Callable[[np.ndarray], np.ndarray]


class Region:
    """A storage, seen as elements of one size. live: its bits as they are now; seen: as they were when the residues
    were written; known: which elements have been written."""

    def __init__(self, storage: torch.UntypedStorage, itemsize: int):
        self.storage, self.base, self.itemsize = storage, storage.data_ptr(), itemsize
        count = storage.nbytes() // itemsize
        if (memory := getattr(storage, "data", None)) is None:  # the browser's torch has it, at no address
            memory = (ctypes.c_char * (count * itemsize)).from_address(self.base) if count else b""
        self.live = np.frombuffer(memory, dtype=_BITS[itemsize], count=count)
        self.seen = self.live.copy()
        self.residues = np.zeros((count, r.COUNT), np.uint64)
        self.known = np.zeros(count, bool)

    def __len__(self) -> int:
        return len(self.live)


class Memory:
    def __init__(self) -> None:
        self.regions: dict[tuple[int, int], Region] = {}
        self.storages: dict[int, torch.UntypedStorage] = {}
        self.bases: list[int] = []
        #: Places that were written by somebody whom nobody saw.
        self.unseen = 0
        #: If it is a set: what has been read that is data, by size and bits.
        self.given: set[tuple[int, int]] | None = None

    # ---------------------------------------------------------------- finding
    def know(self, tensor: torch.Tensor) -> None:
        """From now on its storage is found by address."""
        storage = tensor.untyped_storage()
        if (base := storage.data_ptr()) not in self.storages and storage.nbytes():
            self.storages[base] = storage
            bisect.insort(self.bases, base)
            if tensor.is_floating_point():
                self.region(base, tensor.element_size())

    def region(self, base: int, itemsize: int) -> Region:
        key = base, itemsize
        if key not in self.regions:
            self.regions[key] = Region(self.storages[base], itemsize)
        return self.regions[key]

    def at(self, first: int, last: int, itemsize: int) -> Region | None:
        """The region that two addresses lie in."""
        place = bisect.bisect_right(self.bases, first) - 1
        if place < 0 or last >= self.bases[place] + self.storages[self.bases[place]].nbytes():
            return None
        return self.region(self.bases[place], itemsize)

    def computed(self, address: int) -> list[Region]:
        """The storage at an address as floats of each size of which some have been computed. (A float8 is its bits.)"""
        place = bisect.bisect_right(self.bases, address) - 1
        if place < 0 or address >= self.bases[place] + self.storages[self.bases[place]].nbytes():
            return []
        found = (self.regions.get((self.bases[place], size)) for size in (2, 4, 8))
        return [region for region in found if region is not None and region.known.any()]

    # ---------------------------------------------------------------- reading and writing
    def read(self, region: Region, places: np.ndarray | slice, decode: Decode) -> np.ndarray:
        """Residues of some elements: shape of `places`, and the primes. Of a slice they may be the region's own, which
        the next `write` changes."""
        live, known = region.live[places], region.known[places]
        if region.itemsize == 1:  # a float8 is what it was rounded to, however it got there
            return r.embed(decode(live))
        strange, all_known = live != region.seen[places], bool(known.all())
        any_strange = bool(strange.any())
        if any_strange:
            self.unseen += int(strange.sum())
        if self.given is not None:
            self.given.update((region.itemsize, bits) for bits in live[~known].tolist())
        if len(region) == 1 and not all_known:
            own = np.broadcast_to(r.literal(float(decode(region.live)[0])), (*live.shape, r.COUNT))
        elif all_known:
            own = region.residues[places]
        else:
            own = np.where(known[..., None], region.residues[places], r.embed(decode(live)))
        return np.where(strange[..., None], r.NAR, own) if any_strange else own

    def write(self, region: Region, places: np.ndarray | slice, residues: np.ndarray) -> None:
        """After the floats have been written."""
        region.residues[places], region.known[places] = residues, True
        region.seen[places] = region.live[places]

    # ---------------------------------------------------------------- whole tensors
    def of(self, tensor: torch.Tensor) -> np.ndarray:
        """A tensor's residues: its shape, and the primes."""
        if not tensor.numel():
            return np.zeros((*tensor.shape, r.COUNT), np.uint64)
        dtype = tensor.dtype

        def decode(bits: np.ndarray) -> np.ndarray:
            return torch.from_numpy(np.array(bits)).view(dtype).double().numpy()

        return self.read(self.region_of(tensor), places(tensor), decode).reshape(*tensor.shape, r.COUNT)

    def put(self, tensor: torch.Tensor, residues: np.ndarray, mine: bool = False) -> None:
        """After a tensor's floats have been written. mine: nobody else has this array, so it needn't be copied."""
        if not tensor.numel():
            return
        region, where = self.region_of(tensor), places(tensor)
        if not isinstance(where, slice):
            return self.write(region, where, residues)
        residues = residues.reshape(-1, r.COUNT)
        if mine and len(residues) == len(region) and residues.flags.writeable and residues.flags.c_contiguous:
            region.residues, region.seen = residues, region.live.copy()
            region.known[:] = True
        else:
            self.write(region, where, residues)

    def region_of(self, tensor: torch.Tensor) -> Region:
        self.know(tensor)
        return self.region(tensor.untyped_storage().data_ptr(), tensor.element_size())


def places(tensor: torch.Tensor) -> np.ndarray | slice:
    """Which elements of its storage a tensor has, in its shape; as one run, if they lie side by side."""
    if tensor.is_contiguous():
        first = tensor.storage_offset()
        return slice(first, first + tensor.numel())
    index = np.full(tensor.shape, tensor.storage_offset())
    for axis, (size, stride) in enumerate(zip(tensor.shape, tensor.stride())):
        index = index + (np.arange(size) * stride).reshape([size if d == axis else 1 for d in range(tensor.dim())])
    return index
