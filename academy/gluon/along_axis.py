"""Operations along an axis: sums and maxima, and `reduce` and `associative_scan` with a function of one's own.

Names: `reduction()`, `reduce()`, `associative_scan()`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from triton.experimental.gluon import language as gl

from academy.gluon import layouts
from academy.gluon.errors import WrongLayout, need
from academy.gluon.rewriting import Steps, call
from academy.gluon.values import Tensor, rounded, tensor_of, unwrap


def _axis(x: Tensor, axis: Any) -> int:
    number = int(unwrap(axis))
    need(-len(x.shape) <= number < len(x.shape), f"axis {number} of a tensor of {x.shape}")
    return number % len(x.shape)


def _reduced(x: Tensor, axis: int, values: Any, dtype: Any, keep_dims: Any) -> Tensor:
    if bool(unwrap(keep_dims)):
        return Tensor(np.expand_dims(values, axis), dtype, x.layout)
    return Tensor(values, dtype, _without(x.layout, axis, tuple(x.shape)) if np.ndim(values) else None)


def _without(layout: Any, axis: int, shape: tuple[int, ...]) -> Any:
    if layouts.chosen_by_compiler(layout):
        return layout
    if isinstance(layout, layouts.Inferred):
        return layouts.Inferred(layout.form.sliced(axis), "a reduction")
    return gl.SliceLayout(axis, layout)


def _flattened(x: Tensor, axis: Any) -> tuple[Tensor, int]:
    return (x.reshape([x.numel]), 0) if unwrap(axis) is None else (x, _axis(x, axis))


def reduction(function: Callable) -> Callable:
    """sum, max, min: computed exactly, rounded once."""

    def reduced(
        input: Tensor, axis: Any = None, *_: Any, keep_dims: Any = False, dtype: Any = None, **more: Any
    ) -> Tensor:
        need(not any(map(unwrap, more.values())), f"the simulator's reductions don't take {', '.join(more)}")
        x, number = _flattened(input, axis)
        kind = unwrap(dtype) or (x.dtype if x.dtype.is_floating() or x.dtype.primitive_bitwidth >= 32 else gl.int32)
        exact = x.values.astype(np.float64 if x.dtype.is_floating() else np.int64)
        return _reduced(x, number, rounded(function(exact, axis=number), kind), kind, keep_dims)

    return reduced


def reduce(input: Any, axis: Any, combine_fn: Any, keep_dims: Any = False) -> Steps:
    """With a function of one's own: neighbours are combined, then pairs of neighbours, and so on."""
    one = isinstance(input, Tensor)
    parts = [_flattened(each, axis) for each in ([input] if one else input)]
    tensors, number = [each for each, _ in parts], parts[0][1]
    for each in tensors:
        need(
            layouts.same(each.layout, tensors[0].layout, tuple(each.shape)),
            "tensors of one reduction need one layout",
            WrongLayout,
        )
    layout = _without(tensors[0].layout, number, tuple(tensors[0].shape)) if len(tensors[0].shape) > 1 else None
    values = [np.moveaxis(each.values, number, 0) for each in tensors]
    while len(values[0]) > 1:
        pairs = [(v[0::2], v[1::2]) for v in values]
        rows: list[list] = []
        for i in range(len(pairs[0][0])):
            rows.append(
                (yield from _combined(combine_fn, [p[0][i] for p in pairs], [p[1][i] for p in pairs], tensors, layout))
            )
        values = [np.stack([row[k] for row in rows]) for k in range(len(values))]
    results = tuple(_reduced(each, number, v[0], each.dtype, keep_dims) for each, v in zip(tensors, values))
    return results[0] if one else results


def associative_scan(input: Any, axis: Any, combine_fn: Any, reverse: Any = False) -> Steps:
    """Each element combined with all before it along an axis (or after it, if reverse)."""
    one = isinstance(input, Tensor)
    tensors = [input] if one else list(input)
    number = _axis(tensors[0], axis)
    layout = _without(tensors[0].layout, number, tuple(tensors[0].shape)) if len(tensors[0].shape) > 1 else None
    step = -1 if bool(unwrap(reverse)) else 1
    rows = [
        [np.moveaxis(each.values, number, 0)[::step][i] for each in tensors] for i in range(tensors[0].shape[number])
    ]
    done = [rows[0]]
    for row in rows[1:]:
        done.append((yield from _combined(combine_fn, done[-1], row, tensors, layout)))
    stacked = [np.moveaxis(np.stack([row[k] for row in done])[::step], 0, number) for k in range(len(tensors))]
    results = tuple(each.like(values) for each, values in zip(tensors, stacked))
    return results[0] if one else results


def _combined(function: Any, left: list, right: list, tensors: list[Tensor], layout: Any) -> Steps:
    arguments = [Tensor(v, each.dtype, layout) for side in (left, right) for v, each in zip(side, tensors)]
    found = yield from call(function, *arguments)
    return [
        rounded(tensor_of(v).values, each.dtype)
        for v, each in zip(found if isinstance(found, tuple) else (found,), tensors)
    ]
