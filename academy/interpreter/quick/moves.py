"""Loads, stores, casts and new axes of the usual types in one step, as `quick.operators` does operators.

The interpreter's builder still loads and stores, so whoever watches memory there sees the same accesses. What is not
decided here takes Triton's way, with its messages.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import triton.language as tl
from triton.language import semantic
from triton.runtime import interpreter

from academy.interpreter.bits import bf16_to_fp32, fp32_to_bf16
from academy.interpreter.quick import lanes
from academy.interpreter.quick.kinds import Kind, Way, kind_of
from academy.interpreter.quick.operators import FLOATS, INTEGERS, broadcast, handle_of, number_of, quick_minus, spread
from academy.interpreter.repairs import need

#: Types whose masked lanes may be given as a number.
FILLED = INTEGERS | FLOATS | {"bf16"}


class Told:
    """What Triton hands to a method of its builder after the operands: it depends on the version and the options."""

    def __init__(self) -> None:
        self.rest: dict[tuple, tuple] = {}

    def call(self, thorough: Callable, method: str, operands: tuple, options: dict) -> tuple[object, bool]:
        """The builder's result; or, the first time, that of `thorough`, and True."""
        builder, key = interpreter.interpreter_builder, (method, *options.items())
        if key in self.rest:
            return getattr(builder, method)(*operands, *self.rest[key]), False

        def told(*arguments):
            self.rest[key] = arguments[len(operands) :]
            return getattr(type(builder), method)(builder, *arguments)

        setattr(builder, method, told)
        try:
            return thorough(**options), True
        finally:
            delattr(builder, method)


def _element(pointer) -> tl.dtype | None:
    """What a number or block of pointers points to; None for anything else."""
    kind = pointer.type._kind if type(pointer) is tl.tensor else None
    if kind is None or not kind.dtype.is_ptr() or kind.dtype.element_ty.name == "int1":
        return None
    return kind.dtype.element_ty


def _lanes(value, sizes: tuple[int, ...]) -> tl.tensor | None:
    """A value with as many lanes as the pointers have, if it can have them."""
    kind = value.type._kind if type(value) is tl.tensor else None
    return None if kind is None or (kind.sizes and not sizes) else spread(value, sizes)


def _mask(mask, sizes: tuple[int, ...]) -> tl.tensor | None:
    lanes = _lanes(mask, sizes)
    return lanes if lanes is not None and lanes.dtype.name == "int1" else None


def quick_load(thorough: Callable) -> Callable:
    """`tl.load`. thorough: Triton's way."""
    fillers: dict[tuple[str, str], np.ndarray] = {}

    def filler(other: int | float, element: tl.dtype) -> np.ndarray:
        """A number as the type of what is loaded. (By its text: 0.0 and -0.0 are equal.)"""
        if (key := (element.name, repr(other))) not in fillers:
            own = interpreter.interpreter_semantic
            fillers[key] = own.cast(own.to_tensor(other), element).handle.data
        if element.name == "bf16":
            need("bf16 cast")
        return fillers[key]

    told = Told()

    @functools.wraps(thorough)
    def load(pointer, mask=None, other=None, **options):
        element, as_told = _element(pointer), functools.partial(thorough, pointer, mask, other)
        if element is None or not all(type(value) in (str, bool) for value in options.values()):
            return as_told(**options)
        kind = pointer.type._kind
        lanes, handle = _mask(mask, kind.sizes), None
        if (lanes is None and mask is not None) or (mask is None and other is not None):
            return as_told(**options)
        if (type(other) is float or type(other) is int) and element.name in FILLED:
            data = np.full(pointer.handle.data.shape, filler(other, element), kind_of(element, ()).np_dtype)
            handle = interpreter.TensorHandle(data, element)
            if Way.after and element.is_floating():
                Way.after["create_splat"](handle, None, handle_of(other))
        elif other is not None:
            if (others := _lanes(other, kind.sizes)) is None:
                return as_told(**options)
            handle = interpreter.interpreter_semantic.cast(others, element).handle
        if lanes is None:
            loaded, done = told.call(as_told, "create_load", (pointer.handle,), options)
        else:
            loaded, done = told.call(as_told, "create_masked_load", (pointer.handle, lanes.handle, handle), options)
        return loaded if done else kind_of(element, kind.sizes).holding(loaded)

    return load


def quick_store(thorough: Callable) -> Callable:
    """`tl.store`. thorough: Triton's way."""

    told = Told()

    @functools.wraps(thorough)
    def store(pointer, value, mask=None, **options):
        element, as_told = _element(pointer), functools.partial(thorough, pointer, value, mask)
        usual = element is not None and not pointer.dtype.is_const()
        if not usual or not all(type(value) in (str, bool) for value in options.values()):
            return as_told(**options)
        kind = pointer.type._kind
        lanes, values = _mask(mask, kind.sizes), _lanes(value, kind.sizes)
        if (lanes is None and mask is not None) or values is None or values.dtype.is_ptr():
            return as_told(**options)
        handle = interpreter.interpreter_semantic.cast(values, element).handle
        if lanes is None:
            stored, done = told.call(as_told, "create_store", (pointer.handle, handle), options)
        else:
            operands = pointer.handle, handle, lanes.handle
            stored, done = told.call(as_told, "create_masked_store", operands, options)
        return stored if done else tl.tensor(stored, tl.void)

    return store


def quick_index(thorough: Callable) -> Callable:
    """`x[:, None]`, of a block with as many dimensions as there are colons. thorough: Triton's way."""
    indexed: dict[tuple, Kind | None] = {}

    @functools.wraps(thorough)
    def getitem(self, slices, **options):
        if type(slices) is not tuple or self.type._kind is None:
            return thorough(self, slices, **options)
        whole = [each is not None for each in slices]
        if any(wanted and (type(each) is not slice or each != _ALL) for wanted, each in zip(whole, slices)):
            return thorough(self, slices, **options)
        key = self.type._kind, *whole
        if key not in indexed:
            kind, sizes = self.type._kind, list(self.type._kind.sizes)
            fits = sizes and sum(whole) == len(sizes)
            sizes = [sizes.pop(0) if wanted else 1 for wanted in whole] if fits else []
            indexed[key] = kind_of(kind.dtype, tuple(sizes)) if fits else None
        if (kind := indexed[key]) is None:
            return thorough(self, slices, **options)
        made = kind.tensor(lanes.reshaped(self.handle.data, kind.sizes))
        if Way.after and kind.floats:
            Way.after["create_expand_dims"](made.handle, self.handle)
        return made

    return getitem


_ALL = slice(None)


def quick_arange(thorough: Callable) -> Callable:
    """`tl.arange` of numbers that Triton has taken once. thorough: Triton's way."""
    taken: dict[tuple[int, int], Kind] = {}

    @functools.wraps(thorough)
    def arange(start, end, **options):
        if type(start) is not int or type(end) is not int:
            return thorough(start, end, **options)
        if (start, end) not in taken:
            taken[start, end] = thorough(start, end, **options).type._kind
        return taken[start, end].tensor(np.arange(start, end, dtype=np.int32))

    return arange


def quick_full(thorough: Callable) -> Callable:
    """`tl.full` and `tl.zeros` with numbers that Triton has taken once. thorough: Triton's way."""
    taken: dict[tuple, tl.tensor] = {}

    @functools.wraps(thorough)
    def full(shape, value, dtype, **options):
        usual = type(value) in (int, float) and type(dtype) is tl.dtype and dtype.name in INTEGERS | FLOATS
        if not usual or not isinstance(shape, (tuple, list, tl.tuple)):
            return thorough(shape, value, dtype, **options)
        key = *(getattr(size, "value", size) for size in shape), repr(value), dtype.name
        if key not in taken:
            taken[key] = thorough(shape, value, dtype, **options)
        kind = taken[key].type._kind
        made = kind.tensor(taken[key].handle.data.copy())
        if Way.after and kind.floats:
            Way.after["create_splat"](made.handle, None, handle_of(value, dtype))
        return made

    return full


def quick_where(thorough: Callable) -> Callable:
    """`tl.where` between two of one type, or one and a number. thorough: Triton's way."""

    @functools.wraps(thorough)
    def where(condition, x, y, **options):
        if type(condition) is not tl.tensor or condition.dtype.name != "int1":
            return thorough(condition, x, y, **options)
        kinds = [value.type._kind for value in (x, y) if type(value) is tl.tensor]
        if not kinds or None in kinds or kinds[0].dtype is not kinds[-1].dtype or kinds[0].dtype.is_ptr():
            return thorough(condition, x, y, **options)
        sizes: tuple[int, ...] | None = condition.type._kind.sizes
        for kind in kinds:
            sizes = None if sizes is None else broadcast(sizes, kind.sizes)
        data = [_data_of(value, kinds[0]) for value in (x, y)]
        if sizes is None or data[0] is None or data[1] is None:
            return thorough(condition, x, y, **options)
        parts = [lanes.beside(each, len(sizes)) for each in (condition.handle.data, *data)]
        chosen = lanes.like(np.where(*parts), *parts)
        if chosen.dtype is not kinds[0].np_dtype or not chosen.shape:
            return thorough(condition, x, y, **options)
        made = kind_of(kinds[0].dtype, sizes).tensor(chosen)
        if Way.after and kinds[0].floats:
            sides = (value.handle if type(value) is tl.tensor else handle_of(value, kinds[0].dtype) for value in (x, y))
            Way.after["create_select"](made.handle, *lanes.handles_beside(len(sizes), condition.handle, *sides))
        return made

    return where


def _data_of(value, kind: Kind):
    """None: let Triton see to it."""
    if type(value) is tl.tensor:
        return value.handle.data
    return number_of(value, kind) if type(value) in (int, float) else None


def quick_to(thorough: Callable) -> Callable:
    """`x.to(dtype)`. thorough: Triton's way."""

    @functools.wraps(thorough)
    def to(self, dtype, **options):
        if options or type(dtype) is not tl.dtype:
            return thorough(self, dtype, **options)
        return interpreter.interpreter_semantic.cast(self, dtype)

    return to


def quick_extremum(function: Callable) -> Callable:
    """`tl.minimum` and `tl.maximum` of integers. (What they make of a NaN is `academy.interpreter.arithmetic`'s.)"""

    def quick(thorough: Callable) -> Callable:
        @functools.wraps(thorough)
        def extremum(x, y, **options):
            if options or type(x) is not tl.tensor or x.dtype.name not in INTEGERS or x.type._kind is None:
                return thorough(x, y, **options)
            kind = x.type._kind
            if type(y) is tl.tensor and y.dtype is x.dtype and y.type._kind is not None:
                sizes, data = broadcast(kind.sizes, y.type._kind.sizes), y.handle.data
            else:
                whole = type(y) is int and x.dtype.name in ("int32", "int64")  # a number is an int32 here
                sizes, data = kind.sizes, number_of(y, kind) if whole else None
            if sizes is None or data is None:
                return thorough(x, y, **options)
            chosen = function(*(lanes.beside(each, len(sizes)) for each in (x.handle.data, data)))
            return kind_of(kind.dtype, sizes).tensor(chosen) if chosen.shape else thorough(x, y, **options)

        return extremum

    return quick


#: Of `triton.language` -> its quick version.
FUNCTIONS = {"load": quick_load, "store": quick_store, "arange": quick_arange, "full": quick_full, "where": quick_where}
FUNCTIONS |= {"minimum": quick_extremum(np.minimum), "maximum": quick_extremum(np.maximum)}
#: Of `triton.language.tensor` -> its quick version.
METHODS = {"__getitem__": quick_index, "to": quick_to, "__neg__": quick_minus}


def quicken_casts() -> None:
    """A cast between two of the usual types, and to the type that a value has."""
    owner = semantic.TritonSemantic
    original = owner.cast
    plans: dict[tuple[Kind, str], tuple[Callable, Kind] | None] = {}

    @functools.wraps(original)
    def cast(self, input, dst_ty, fp_downcast_rounding=None):
        usual = type(input) is tl.tensor and type(dst_ty) is tl.dtype and fp_downcast_rounding is None
        if not usual:
            return original(self, input, dst_ty, fp_downcast_rounding)
        if input.dtype is dst_ty:
            return input
        key = input.type._kind, dst_ty.name
        if key not in plans:
            convert = _conversion(input.dtype.name, dst_ty) if input.type._kind else None
            plans[key] = (convert, kind_of(dst_ty, input.type._kind.sizes)) if convert else None
        if (plan := plans[key]) is None:
            return original(self, input, dst_ty, fp_downcast_rounding)
        convert, result = plan
        data = input.handle.data
        made = result.tensor(lanes.like(convert(data), data))
        if Way.after and result.floats:
            Way.after["cast_impl"](made.handle, input.handle, dst_ty)
        return made

    owner.cast = cast


def _conversion(source: str, target: tl.dtype) -> Callable | None:
    """Of data; None: let Triton do it."""
    if (source, target.name) == ("bf16", "fp32"):
        return bf16_to_fp32
    if (source, target.name) == ("fp32", "bf16"):
        return _to_bf16
    usual = INTEGERS | FLOATS if source != "fp16" else FLOATS  # float16 goes to an integer through float32
    if source == target.name or source not in INTEGERS | FLOATS or target.name not in usual:
        return None
    np_dtype = interpreter._get_np_dtype(target)
    return lambda data: data.astype(np_dtype)


def _to_bf16(values: np.ndarray) -> np.ndarray:
    need("bf16 cast")
    return fp32_to_bf16(values)
