"""Gluon kernels in the simulator, unchanged, with a residue beside each float.

The simulator computes with numpy's arrays. `Carried` is one that knows its residues: operations of numpy that the
simulator uses give another one, and an assignment to a part of one, as of a buffer in shared memory, changes both. What
has no rule here gives floats without residues; who uses them next finds no residue (NAR), and it is counted in `lost`.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import torch

from academy.exact import array
from academy.exact import residues as r
from academy.exact.array import Numbers
from academy.exact.memory import Memory
from academy.gluon import arrays

_RULES = {
    **dict(add="add", subtract="sub", multiply="mul", divide="div", true_divide="div", negative="neg", fmod="fmod"),
    **dict(absolute="abs", maximum="max", fmax="max", minimum="min", fmin="min", floor="floor", ceil="ceil"),
    **{name: name for name in "exp exp2 log log2 sqrt sin cos trunc".split()},
}
#: What was lost while residues are carried: the session's.
_LOST: list[Counter[str]] = []


def _inside(key: Any) -> Any:
    """The same part of an array with one axis more, behind."""
    key = key if isinstance(key, tuple) else (key,)
    return (*key, slice(None)) if any(each is Ellipsis for each in key) else key


def residues_of(values: Any) -> np.ndarray:
    """Of an array that carries them, and of what is written in code: one number everywhere, or zeros and infinities."""
    plain, lost = np.asarray(values), isinstance(values, Carried)
    if lost and values.residues is not None:
        return values.residues
    if plain.dtype.kind != "f":
        return r.whole(plain)
    if not lost and not np.isfinite(plain[plain != 0]).any():
        return r.marks(plain, r.full(plain.shape, np.uint64(0)))
    if not lost and (plain == plain.flat[0]).all():
        return r.full(plain.shape, r.literal(float(plain.flat[0])))
    _LOST[-1]["an operation of the simulator"] += 1
    return r.marks(plain, r.full(plain.shape, r.NAR))


def carried(floats: Any, residues: np.ndarray) -> Carried:
    made = np.asarray(floats).view(Carried)
    made.residues = residues if residues.shape[:-1] == made.shape else np.broadcast_to(residues, (*made.shape, r.COUNT))
    return made


class Carried(np.ndarray):
    """residues: None where an operation without a rule has made it."""

    residues: Any

    def __array_finalize__(self, made_from: Any) -> None:
        self.residues = None

    # ---------------------------------------------------------------- parts and shapes
    def _moved(self, move: Callable, of_residues: Callable) -> Carried:
        return carried(move(np.asarray(self)), of_residues(residues_of(self)))

    def __getitem__(self, key: Any) -> Any:
        return self._moved(lambda floats: floats[key], lambda residues: residues[_inside(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        np.asarray(self)[key] = np.asarray(value)
        self.residues[_inside(key)] = residues_of(value)

    def astype(self, dtype: Any, *args: Any, **kwargs: Any) -> Any:
        made = np.asarray(self).astype(dtype, *args, **kwargs)
        return carried(made, residues_of(self)) if made.dtype.kind == "f" else made

    def copy(self, *_: Any) -> Any:
        return self._moved(np.copy, np.copy)

    def reshape(self, *shape: Any, **_: Any) -> Any:
        made = np.asarray(self).reshape(*shape)
        return carried(made, residues_of(self).reshape(*made.shape, r.COUNT))

    def transpose(self, *axes: Any) -> Any:
        order = axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes
        order = [axis % self.ndim for axis in order] or [*range(self.ndim)][::-1]
        return self._moved(lambda floats: floats.transpose(order), lambda rs: rs.transpose(*order, self.ndim))

    def rounded(self, made: np.ndarray, choice: bool) -> np.ndarray:
        """As a dtype holds it. choice: whether it was rounded so coarsely that it is meant."""
        return carried(made, r.embed(made) if choice else residues_of(self)) if made.dtype.kind == "f" else made

    # ---------------------------------------------------------------- operations
    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        out = getattr(ufunc, method)(*map(np.asarray, inputs), **kwargs)
        if out.dtype.kind != "f" or method != "__call__":
            return out
        given = [Numbers(np.asarray(each), residues_of(each)) for each in inputs]
        if ufunc is np.matmul:
            return carried(out, array.matmul(out, given[0].residues, given[1].residues))
        if (rule := _RULES.get(ufunc.__name__)) is None:
            return out.view(Carried)
        return carried(out, array.apply(rule, out, *given))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if (rule := _FUNCTIONS.get(function)) is not None:
            return rule(*args, **kwargs)
        return super().__array_function__(function, types, args, kwargs)


def _where(condition: Any, x: Any, y: Any) -> Any:
    made = np.where(np.asarray(condition), np.asarray(x), np.asarray(y))
    return carried(made, array.choose(condition, residues_of(x), residues_of(y))) if made.dtype.kind == "f" else made


def _broadcast_to(values: Any, shape: Any) -> Carried:
    made = np.broadcast_to(np.asarray(values), shape)
    return carried(made, np.broadcast_to(_spread(values, made.ndim), (*made.shape, r.COUNT)))


def _spread(values: Any, dims: int) -> np.ndarray:
    """Residues with as many axes before them."""
    residues = residues_of(values)
    return residues.reshape(*(1,) * (dims + 1 - residues.ndim), *residues.shape)


def _broadcast_arrays(*values: Any) -> tuple:
    shape = np.broadcast_shapes(*map(np.shape, values))
    return tuple(
        _broadcast_to(each, shape) if isinstance(each, Carried) else np.broadcast_to(each, shape) for each in values
    )


def _stack(values: Any, axis: int = 0) -> Carried:
    made = np.stack([np.asarray(each) for each in values], axis)
    return carried(made, np.stack([residues_of(each) for each in values], axis % made.ndim))


def _sum(values: Any, axis: int) -> Carried:
    made = np.sum(np.asarray(values), axis=axis)
    return carried(made, r.marks(made, r.total(residues_of(values), axis)))


def _extremum(function: Callable, largest: bool) -> Callable:
    def rule(values: Any, axis: int) -> Carried:
        floats = np.asarray(values)
        made = function(floats, axis=axis)
        return carried(made, r.marks(made, array.extremum(Numbers(floats, residues_of(values)), axis, largest)))

    return rule


_FUNCTIONS: dict[Any, Callable] = {
    np.where: _where, np.broadcast_to: _broadcast_to, np.broadcast_arrays: _broadcast_arrays, np.stack: _stack,
    np.sum: _sum, np.max: _extremum(np.max, True), np.min: _extremum(np.min, False),
}  # fmt: skip


class Carrier(arrays.Plain):
    """Between torch, where `torch.Carrier` keeps residues in memory, and the simulator."""

    def __init__(self, memory: Memory):
        self.memory = memory

    def full(self, shape: Any, value: float, dtype: Any) -> np.ndarray:
        made = super().full(shape, value, dtype)
        return carried(made, np.array(residues_of(made))) if made.dtype.kind == "f" else made

    def from_torch(self, tensor: torch.Tensor) -> np.ndarray:
        made = super().from_torch(tensor)
        return carried(made, np.array(self.memory.of(tensor))) if made.dtype.kind == "f" else made

    def to_torch(self, values: np.ndarray) -> torch.Tensor:
        made = super().to_torch(np.asarray(values))
        if made.is_floating_point():
            self.memory.put(made, np.array(residues_of(values)))
        return made


@contextlib.contextmanager
def simulated(memory: Memory, lost: Counter[str]) -> Iterator[None]:
    """While this lasts, kernels that run in the simulator carry residues. lost: as of a session."""
    _LOST.append(lost)
    try:
        with mock.patch.object(arrays, "carrier", Carrier(memory)):
            yield
    finally:
        _LOST.pop()
