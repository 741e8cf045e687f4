"""The data of several programs in one array: what the operations of `quick` ask of it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from triton.runtime import interpreter


class Lanes(np.ndarray):
    """Data of programs that run together (`quick.together`): one axis more, in front. Of numbers: (programs, 1)."""


def like(data: np.ndarray, *operands) -> np.ndarray:
    """What was made of some operands, lane by lane."""
    return data.view(Lanes) if type(data) is not Lanes and any(type(each) is Lanes for each in operands) else data


def reshaped(data: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
    """The data of a block with these sizes."""
    return data.reshape(len(data), *sizes) if type(data) is Lanes else data.reshape(sizes)


def spread(data: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
    """A block, or a number, with these sizes, in memory of another array."""
    if type(data) is not Lanes:
        return np.broadcast_to(data, sizes)
    return np.broadcast_to(beside(data, len(sizes)), (len(data), *sizes)).view(Lanes)


def beside(data: np.ndarray, rank: int) -> np.ndarray:
    """Numbers, one a program, as NumPy takes them beside blocks with so many dimensions. Anything else as it is."""
    return data.reshape(len(data), *[1] * rank) if type(data) is Lanes and data.ndim == 2 and rank > 1 else data


def handles_beside(rank: int, *handles: interpreter.TensorHandle) -> list[interpreter.TensorHandle]:
    """The same of handles, and of the residues that they may carry (`academy.exact`)."""
    made = []
    for handle in handles:
        data = beside(handle.data, rank)
        if data is not handle.data:
            residues = getattr(handle, "residues", None)
            handle = interpreter.TensorHandle(data, handle.dtype)
            if residues is not None:
                handle.residues = residues.reshape(*data.shape, -1)
        made.append(handle)
    return made


def of_ranks(function: Callable, left: int, right: int) -> Callable:
    """A function of two operands with so many dimensions, 0 those of a number."""
    if (left and right) or max(left, right) < 2:
        return function
    if left:
        return lambda a, b: function(a, beside(b, left))
    return lambda a, b: function(beside(a, right), b)
