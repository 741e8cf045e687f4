"""The same values in hostile places: what lies between and around them is NaN, or the largest integer."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch


def poisoned(shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    """Memory that nobody may read, in the dtype and on the device of `like`."""
    other = math.nan if like.is_floating_point() else like.dtype == torch.bool or torch.iinfo(like.dtype).max
    return torch.full(shape, other, dtype=like.dtype, device=like.device)


def nan_fenced(values: torch.Tensor, width: int = 64) -> torch.Tensor:
    """The same values, contiguous, with `width` poisoned elements on either side."""
    memory = poisoned((values.numel() + 2 * width,), values)
    inside = memory[width : width + values.numel()].view(values.shape)
    inside.copy_(values)
    return inside


def offset(values: torch.Tensor) -> torch.Tensor:
    """The same: contiguous, but an odd number of elements into its memory, so that no wide load is aligned."""
    return nan_fenced(values, 3)


def transposed(values: torch.Tensor) -> torch.Tensor:
    """The same values, stored column-major."""
    return values.transpose(-1, -2).contiguous().transpose(-1, -2) if values.dim() > 1 else values


def strided(values: torch.Tensor) -> torch.Tensor:
    """The same values at every third element of memory, in padded rows."""
    if not values.dim():
        memory = poisoned((3,), values)
        memory[2] = values
        return memory[2]
    memory = poisoned((*values.shape[:-1], 3 * values.shape[-1] + 5), values)
    view = memory[..., 2 : 2 + 3 * values.shape[-1] : 3]
    view.copy_(values)
    return view


def sliced(values: torch.Tensor, padding: int = 7) -> torch.Tensor:
    """The same values as the left part of wider rows."""
    if not values.dim():
        return values
    memory = poisoned((*values.shape[:-1], values.shape[-1] + padding), values)
    memory[..., : values.shape[-1]] = values
    return memory[..., : values.shape[-1]]


def apart(values: torch.Tensor, axis: int) -> torch.Tensor:
    """The same values, contiguous but for one dim, whose elements lie farther apart than all others together."""
    strides = [*values.contiguous().stride()]
    strides[axis] = values.numel() + 3
    memory = poisoned((64 + strides[axis] * max(values.shape[axis], 1) + 64,), values)
    return memory.as_strided(values.shape, strides, memory.storage_offset() + 64).copy_(values)


def expanded(values: torch.Tensor, axis: int) -> torch.Tensor:
    """What stands first in a dim, in the whole dim: its stride is zero."""
    return values.narrow(axis, 0, 1).expand(values.shape) if values.shape[axis] else values


def longer(values: torch.Tensor, axis: int) -> torch.Tensor:
    """One more in a dim: what stands first there again."""
    size = values.shape[axis]
    shape = [*values.shape[:axis], size + 1, *values.shape[axis + 1 :]]
    found = nan_fenced(torch.zeros(shape, dtype=values.dtype, device=values.device))
    found.narrow(axis, 0, size).copy_(values)
    if size:
        found.narrow(axis, size, 1).copy_(values.narrow(axis, 0, 1))
    return found


#: name -> function from a tensor to the same values in another layout
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "nan_fenced": nan_fenced,
    "transposed": transposed,
    "strided": strided,
    "sliced": sliced,
}


def laid_out(values: torch.Tensor, name: str, place: int = 0) -> torch.Tensor:
    """The values in a layout by name: one of `LAYOUTS`, `offset`, `contiguous` (with nothing around), or `apart 1`,
    `expanded 0` with the dim that is meant (a tensor without that dim stays as it is). place: among the inputs, each of
    which is a slice of rows of another width, so that the stride of one is wrong for the next."""
    name, _, axis = name.partition(" ")
    if axis:
        change = {"apart": apart, "expanded": expanded}[name]
        return change(values, int(axis)) if int(axis) < values.dim() else values
    if name == "sliced":
        return sliced(values, 7 + place)
    return {**LAYOUTS, "offset": offset, "contiguous": torch.Tensor.contiguous}[name](values)


def in_words(what: str, name: str) -> str:
    """`sliced inputs`, `inputs with dim 1 expanded`."""
    name, _, axis = name.partition(" ")
    words = {"apart": f"with dim {axis} alone farther apart", "expanded": f"with dim {axis} expanded"}
    return f"{what} {words[name]}" if axis else f"{name.replace('_', '-')} {what}"
