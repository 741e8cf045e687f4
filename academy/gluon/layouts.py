"""Gluon's layouts as linear ones, and what has to fit: warps, shapes, instructions.

Names: `linear()`, `check()`, `same()`, `mismatch()`, `Inferred`, `ANY`.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

from triton.experimental.gluon import language as gl

from academy.gluon import linear as forms
from academy.gluon.errors import NotModelled, WrongLayout, need
from academy.gluon.linear import Linear, NoLinearForm

#: Of a tensor whose layout the compiler chooses.
ANY = gl.AutoLayout()
_CHOSEN = tuple(getattr(gl, name) for name in ("AutoLayout", "CoalescedLayout") if hasattr(gl, name))


@dataclass(frozen=True)
class Inferred:
    """What the compiler derives for the result of reshape, permute, split or join."""

    form: Linear
    how: str

    def __str__(self) -> str:
        return f"the layout that {self.how} leaves"


def chosen_by_compiler(layout: Any) -> bool:
    return isinstance(layout, _CHOSEN)


@functools.lru_cache(maxsize=4096)
def linear(layout: Any, shape: tuple[int, ...]) -> Linear:
    """The linear form of a distributed layout on a tile.

    Raises:
        NoLinearForm: the layout has another rank than the shape, or can't be applied to it.
        NotModelled: a layout that Hopper has no use for.
    """
    if isinstance(layout, Inferred):
        if layout.form.shape != shape:
            raise NoLinearForm(f"{layout} is one of {list(layout.form.shape)}, not of {list(shape)}")
        return layout.form
    if layout.rank != len(shape):
        raise NoLinearForm(f"{short(layout)} is for {layout.rank} dimensions, the tile has {len(shape)}: {list(shape)}")
    if isinstance(layout, gl.SliceLayout):
        wide = (*shape[: layout.dim], 1, *shape[layout.dim :])
        parent = layout.parent
        if isinstance(parent, gl.BlockedLayout):  # of the parent on any size along the dimension, the same is left
            wide = (*shape[: layout.dim], _span(parent, layout.dim), *shape[layout.dim :])
        elif isinstance(parent, gl.NVMMADistributedLayout):
            wide = (*shape[: layout.dim], _reach(parent, layout.dim), *shape[layout.dim :])
        return linear(parent, wide).sliced(layout.dim)
    if isinstance(layout, gl.BlockedLayout):
        parts = (layout.size_per_thread, layout.threads_per_warp, layout.warps_per_cta, layout.order)
        return forms.blocked(shape, *map(list, parts))
    if isinstance(layout, gl.NVMMADistributedLayout):
        return forms.mma(shape, layout.version[0], list(layout.warps_per_cta), list(layout.instr_shape))
    if isinstance(layout, gl.DotOperandLayout):
        return _operand(layout, shape)
    if isinstance(layout, gl.DistributedLinearLayout):
        bases = (layout.reg_bases, layout.lane_bases, layout.warp_bases)
        registers, lanes, warps = (tuple(tuple(basis) for basis in each) for each in bases)
        if len(layout.shape) != len(shape) or any(size > own for size, own in zip(shape, layout.shape)):
            raise NoLinearForm(f"{short(layout)} is for a tile of {list(layout.shape)}, not of {list(shape)}")
        # Of a smaller tile, such as one that will be broadcast, several threads hold the same element.
        inside = lambda basis: tuple(part if part < size else 0 for part, size in zip(basis, shape))  # noqa: E731
        registers, lanes, warps = (tuple(map(inside, each)) for each in (registers, lanes, warps))
        return Linear(shape, registers, lanes, warps)
    raise NotModelled(f"the simulator doesn't know {type(layout).__name__}")


def _span(parent: Any, axis: int) -> int:
    return parent.size_per_thread[axis] * parent.threads_per_warp[axis] * parent.warps_per_cta[axis]


def _reach(parent: Any, axis: int) -> int:
    return parent.instr_shape[axis] * parent.warps_per_cta[axis]


def _operand(layout: Any, shape: tuple[int, ...]) -> Linear:
    parent = layout.parent
    if isinstance(parent, gl.BlockedLayout):
        parts = (parent.size_per_thread, parent.threads_per_warp, parent.warps_per_cta, parent.order)
        size, threads, warps, order = map(list, parts)
        return forms.fma_operand(shape, size, threads, warps, order, layout.operand_index)
    return forms.mma_operand(
        shape, parent.version[0], list(parent.warps_per_cta), layout.operand_index, layout.k_width or 2
    )


def warps_of(layout: Any) -> int:
    """How many warps a layout is for."""
    while hasattr(layout, "parent"):
        layout = layout.parent
    if isinstance(layout, Inferred):
        return 1 << len(layout.form.warps)
    if isinstance(layout, gl.DistributedLinearLayout):
        return 1 << len(layout.warp_bases)
    return math.prod(layout.warps_per_cta)


def short(layout: Any) -> str:
    """A layout in a message: without the fields that are empty or stand for one CTA."""
    if isinstance(layout, Inferred):
        return str(layout)
    fields = {
        name: short(value) if hasattr(value, "rank") else value
        for name, value in vars(layout).items()
        if not (name in ("cga_layout", "ctas_per_cga", "cta_split_num", "cta_order") or value is None)
    }
    return f"{type(layout).__name__}({', '.join(f'{name}={value}' for name, value in fields.items())})"


def check(layout: Any, shape: tuple[int, ...], warps: int) -> None:
    """A tile of this shape can have this layout in a partition of so many warps. Raises WrongLayout."""
    if chosen_by_compiler(layout):
        return
    need(
        isinstance(layout, (gl._layouts.DistributedLayout, Inferred)),
        f"{layout!r} is no layout of registers",
        WrongLayout,
    )
    for size in shape:
        need(
            size > 0 and size & (size - 1) == 0,
            f"a tile of {list(shape)}: each size must be a power of two",
            WrongLayout,
        )
    have = warps_of(layout)
    need(have == warps, f"{short(layout)} is for {have} warps, and {warps} execute this line", WrongLayout)
    parent = layout
    while hasattr(parent, "parent"):
        parent = parent.parent
    if isinstance(parent, gl.BlockedLayout):
        for numbers in (parent.size_per_thread, parent.threads_per_warp, parent.warps_per_cta):
            powers = all(number > 0 and number & (number - 1) == 0 for number in numbers)
            need(powers, f"{short(parent)}: {list(numbers)} must be powers of two", WrongLayout)
        threads = math.prod(parent.threads_per_warp)
        need(threads == forms.LANES, f"{short(parent)} has {threads} threads a warp, not 32", WrongLayout)
    try:
        linear(layout, tuple(shape))
    except NoLinearForm as error:
        need(False, str(error), WrongLayout)


def same(one: Any, other: Any, shape: tuple[int, ...]) -> bool:
    """Whether the compiler takes two layouts for the same.

    It compares what was written, so two layouts that put the same elements in the same threads still have to be
    converted. What it has derived itself is compared by linear form.
    """
    if chosen_by_compiler(one) or chosen_by_compiler(other):
        return True
    if isinstance(one, Inferred) or isinstance(other, Inferred):
        return linear(one, shape) == linear(other, shape)
    return one == other


def mismatch(one: Any, other: Any, shape: tuple[int, ...]) -> str:
    """Why two tensors can't be combined lane by lane, and what to do."""
    moved = linear(one, shape).difference(linear(other, shape))
    why = moved or "they hold the same elements in the same threads, but the compiler compares how they are written"
    return (
        f"layouts differ: {short(one)} and {short(other)}. {why[0].upper()}{why[1:]}. "
        "Convert one of the two: gl.convert_layout(x, layout)"
    )
