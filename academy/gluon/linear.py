"""Linear layouts: which element of a tile each register of each thread holds.

A register, a lane and a warp are numbers, and each of their bits moves the element by a fixed amount along each
dimension; two moves along the same dimension are combined by exclusive or. So a layout is a list of moves, its *bases*,
for the bits of the register, of the lane and of the warp. Everything else follows by arithmetic on these lists: whether
two layouts put the same elements in the same threads, what a reshape or a slice of one is, what a conversion moves.

Source: Zhou et al., "Linear Layouts: Robust Code Generation of Efficient Tensor Computation Using F2" (2025). A test
compares these layouts with those of Triton's compiler.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

Bases = tuple[tuple[int, ...], ...]
LANES = 32


class NoLinearForm(ValueError):
    """A layout that can't be applied to this shape."""


@dataclass(frozen=True)
class Linear:
    """registers, lanes, warps: one basis a bit, lowest bit first; a basis has one number for each dimension."""

    shape: tuple[int, ...]
    registers: Bases
    lanes: Bases
    warps: Bases

    def element(self, register: int, lane: int, warp: int) -> tuple[int, ...]:
        """Index of the element that a register of a thread holds."""
        index = [0] * len(self.shape)
        for number, bases in ((register, self.registers), (lane, self.lanes), (warp, self.warps)):
            for bit, basis in enumerate(bases):
                if number >> bit & 1:
                    index = [a ^ b for a, b in zip(index, basis)]
        return tuple(index)

    def holders(self, element: tuple[int, ...]) -> list[tuple[int, int]]:
        """(warp, lane) of the threads that hold an element."""
        return [
            (warp, lane)
            for warp in range(1 << len(self.warps))
            for lane in range(1 << len(self.lanes))
            if any(self.element(register, lane, warp) == element for register in range(1 << len(self.registers)))
        ]

    def same_threads(self, other: Linear) -> bool:
        """Whether every element is in the same threads: converting from one to the other moves nothing."""
        mine, theirs = (
            (each.lanes, each.warps, frozenset(each.registers) - {(0,) * len(each.shape)}) for each in (self, other)
        )
        return self.shape == other.shape and mine == theirs

    def difference(self, other: Linear) -> str:
        """The first element that lies in different threads, in words; "" if there is none."""
        for flat in range(math.prod(self.shape)):
            element = unflat(flat, self.shape)
            mine, theirs = self.holders(element)[:1], other.holders(element)[:1]
            if mine != theirs:
                (warp, lane), (warp2, lane2) = mine[0], theirs[0]
                return f"element {list(element)} is in warp {warp}, lane {lane}, and in warp {warp2}, lane {lane2}"
        return ""

    def _mapped(self, shape: tuple[int, ...], move) -> Linear:
        registers, lanes, warps = (
            tuple(tuple(move(basis)) for basis in bases) for bases in (self.registers, self.lanes, self.warps)
        )
        return Linear(shape, registers, lanes, warps)

    def reshaped(self, shape: tuple[int, ...]) -> Linear:
        """Of the same tile under another shape, row-major."""
        if math.prod(shape) != math.prod(self.shape):
            raise NoLinearForm(f"a tile of {list(self.shape)} can't be reshaped to {list(shape)}")
        return self._mapped(shape, lambda basis: unflat(flat(basis, self.shape), shape))

    def permuted(self, order: tuple[int, ...]) -> Linear:
        return self._mapped(tuple(self.shape[i] for i in order), lambda basis: [basis[i] for i in order])

    def sliced(self, axis: int) -> Linear:
        """Without one dimension: what is left of a tile after a reduction along it."""
        shape = self.shape[:axis] + self.shape[axis + 1 :]
        cut = self._mapped(shape, lambda basis: basis[:axis] + basis[axis + 1 :])
        return replace(cut, registers=tuple(basis for basis in cut.registers if any(basis)))

    def split(self) -> Linear:
        """Of each half of a tile whose last dimension is 2. Both halves must lie in the same thread."""
        last = (0,) * (len(self.shape) - 1) + (1,)
        if self.shape[-1] != 2 or last not in self.registers:
            raise NoLinearForm("split needs a last dimension of 2 whose two elements lie in one thread")
        kept = tuple(basis for basis in self.registers if basis != last)
        return replace(self, registers=kept)._mapped(self.shape[:-1], lambda basis: basis[:-1])

    def joined(self) -> Linear:
        """With a new last dimension of 2, both elements in one thread."""
        wider = self._mapped((*self.shape, 2), lambda basis: (*basis, 0))
        return replace(wider, registers=((0,) * len(self.shape) + (1,), *wider.registers))

    def expanded(self, axis: int) -> Linear:
        return self._mapped(
            (*self.shape[:axis], 1, *self.shape[axis:]), lambda basis: (*basis[:axis], 0, *basis[axis:])
        )


def flat(index: tuple[int, ...], shape: tuple[int, ...]) -> int:
    return functools.reduce(lambda number, pair: number * pair[1] + pair[0], zip(index, shape), 0)


def unflat(number: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    index = []
    for size in reversed(shape):
        index.append(number % size)
        number //= size
    return tuple(reversed(index))


class _Builder:
    """Puts a layout together from identities: each further bit moves by twice as much along its dimension."""

    def __init__(self, rank: int):
        self.sizes = [1] * rank
        self.bases: dict[str, list[tuple[int, ...]]] = {"register": [], "lane": [], "warp": []}

    def add(self, kind: str, axis: int, count: int) -> None:
        for _ in range(count.bit_length() - 1):
            self.bases[kind].append(tuple(self.sizes[axis] * (i == axis) for i in range(len(self.sizes))))
            self.sizes[axis] *= 2

    def repeat(self, kind: str, count: int) -> None:
        """Bits that move nothing: these threads all hold the same."""
        self.bases[kind] += [(0,) * len(self.sizes)] * (count.bit_length() - 1)

    def cover(self, shape: tuple[int, ...], order: list[int]) -> Linear:
        """Repeat the layout in further registers until it covers the shape; what reaches beyond it holds copies."""
        for kind, bases in self.bases.items():
            self.bases[kind] = [tuple(step * (step < size) for step, size in zip(basis, shape)) for basis in bases]
        for axis in order:
            self.add("register", axis, max(1, shape[axis] // self.sizes[axis]))
        return Linear(shape, *(tuple(self.bases[kind]) for kind in ("register", "lane", "warp")))


def blocked(shape: tuple[int, ...], size: list[int], threads: list[int], warps: list[int], order: list[int]) -> Linear:
    """BlockedLayout: `size` elements a thread, `threads` a warp, `warps` in each dimension; order: fastest first."""
    build = _Builder(len(shape))
    for kind, counts in (("register", size), ("lane", threads), ("warp", warps)):
        for axis in order:
            build.add(kind, axis, counts[axis])
    return build.cover(shape, order)


def fma_operand(
    shape: tuple[int, ...], size: list[int], threads: list[int], warps: list[int], order: list[int], operand: int
) -> Linear:
    """DotOperandLayout of a BlockedLayout: all of K in each thread."""
    build, k = _Builder(2), 1 - operand
    for axis in order:
        build.add("register", axis, shape[k] if axis == k else size[axis])
    for kind, counts in (("lane", threads), ("warp", warps)):
        for axis in order:
            if axis == k:
                build.repeat(kind, counts[axis])
            else:
                build.add(kind, axis, counts[axis])
    return build.cover(shape, order)


def _tile(build: _Builder, outer: int, inner: int, rows: int, columns: int, width: int) -> None:
    """What one instruction of a tensor core leaves in a warp: `width` neighbours a lane, 4 lanes a row, 8 rows."""
    build.add("register", inner, width)
    build.add("lane", inner, 4)
    build.add("lane", outer, 8)
    build.add("register", outer, rows // 8)
    build.add("register", inner, columns // (4 * width))


def mma(shape: tuple[int, ...], version: int, warps: list[int], instruction: list[int]) -> Linear:
    """NVMMADistributedLayout of rank 2: the accumulator of mma (version 2) or of wgmma (3)."""
    rows, columns = instruction[0], instruction[1]
    build = _Builder(2)
    _tile(build, 0, 1, rows, columns, 2)
    for axis in (0, 1) if version == 3 else (1, 0):
        build.add("warp", axis, warps[axis])
    return build.cover(shape, [1, 0])


def mma_operand(shape: tuple[int, ...], version: int, warps: list[int], operand: int, width: int) -> Linear:
    """DotOperandLayout of an NVMMADistributedLayout: `width` neighbours along K a lane."""
    k, other = 1 - operand, operand
    build = _Builder(2)
    _tile(build, other, k, 16 if operand == 0 else 8, 8 * width, width)
    for axis in (0, 1) if version == 3 else (1, 0):
        if axis == k:
            build.repeat("warp", warps[axis])
        else:
            build.add("warp", axis, warps[axis])
    return build.cover(shape, [k, other])
