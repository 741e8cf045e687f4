"""One object for all tensors of one dtype and one shape: a third of the time went into making their types anew.

Every operation makes a type and a shape out of `constexpr` objects and checks. They are never changed afterwards, so
they are made once. A tensor's kind is `tensor.type._kind`; two kinds are the same if they are one object.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter


class Kind:
    """dtype: of a number, or of a pointer. sizes: of the block, `()` for a number. np_dtype: of the data. floats: that
    is what it holds. spread: the kinds of the same dtype that this one was broadcast to, by their sizes."""

    __slots__ = ("dtype", "floats", "np_dtype", "numel", "shape", "sizes", "spread", "type")

    def __init__(self, type, sizes: tuple[int, ...], of_sizes: tl.tensor):
        self.type, self.dtype, self.sizes, self.floats = type, type.scalar, sizes, type.scalar.is_floating()
        self.np_dtype: Any = interpreter._get_np_dtype(self.dtype) if self.dtype.name != "void" else None
        self.shape, self.numel = of_sizes.shape, of_sizes.numel
        self.spread: dict[tuple[int, ...], Kind | None] = {}

    def tensor(self, data: np.ndarray) -> tl.tensor:
        """As `tl.tensor(TensorHandle(data, dtype), type)`, for data that is known to fit."""
        handle = _new(_Handle)
        handle.data, handle.dtype, handle.attr = data, self.dtype, {}
        result = _new(_Tensor)  # as in `holding`: a call of it is a tenth of an operation
        result.handle, result.type, result.dtype = handle, self.type, self.dtype
        result.shape, result.numel = self.shape, self.numel
        return result

    def holding(self, handle: interpreter.TensorHandle) -> tl.tensor:
        """As `tl.tensor(handle, type)`."""
        result = _new(_Tensor)
        result.handle, result.type, result.dtype = handle, self.type, self.dtype
        result.shape, result.numel = self.shape, self.numel
        return result


#: A method of the interpreter's builder -> what follows it, called with handles: (result, *operands).
After = Mapping[str, Callable[..., object]]


class Way:
    """after: what else is to be done where an operation passes by the builder and its result is floats."""

    after: After = {}


@contextlib.contextmanager
def afterwards(after: After) -> Iterator[None]:
    """While this lasts, somebody follows floats through a kernel (`academy.exact`)."""
    before, Way.after = Way.after, after
    try:
        yield
    finally:
        Way.after = before


_new, _Tensor, _Handle = object.__new__, tl.tensor, interpreter.TensorHandle
_kinds: dict[tuple, Kind] = {}
#: sizes -> a tensor whose shape and number of elements all tensors of these sizes share.
_of_sizes: dict[tuple[int, ...], tl.tensor] = {}


def kind_of(dtype: tl.dtype, sizes: tuple[int, ...]) -> Kind:
    """The kind of blocks (`sizes == ()`: of numbers) of a dtype, or of pointers to numbers."""
    if (key := (_named(dtype), sizes)) not in _kinds:
        _find(tl.block_type(dtype, list(sizes)) if sizes else dtype)
    return _kinds[key]


def _find(type) -> Kind | None:
    """The kind of a type, which remembers it; None for what is neither numbers nor pointers to numbers."""
    if type._kind is None and (element := _named(type.scalar)) is not None:
        sizes = tuple(map(int, type.get_block_shapes())) if type.is_block() else ()
        if (key := (element, sizes)) not in _kinds:
            if sizes not in _of_sizes:
                _of_sizes[sizes] = _new(tl.tensor)
                _original_tensor(_of_sizes[sizes], None, type)
            _kinds[key] = Kind(type, sizes, _of_sizes[sizes])
        type._kind = _kinds[key]
    return type._kind


def _named(element) -> tuple | None:
    """What tells an element's type from others."""
    if type(element) is tl.dtype:
        return (element.name,)
    if type(element) is tl.pointer_type and type(element.element_ty) is tl.dtype:
        return element.name, element.address_space, element.const
    return None


_original_tensor = tl.tensor.__init__


def keep_types() -> None:
    """Build the type of a block, and the shape of a tensor, once for each dtype and shape."""
    original_block, original_like = tl.block_type.__init__, tl.block_type.with_element_ty
    known: dict[tuple, dict] = {}
    tl.core.base_type._kind = None

    @functools.wraps(original_block)
    def block_type(self, element_ty, shape):
        if (element := _named(element_ty)) is None:
            original_block(self, element_ty, shape)
            return
        sizes = shape.values if isinstance(shape, tl.tuple) else shape
        key = element, *[size.value if isinstance(size, tl.constexpr) else size for size in sizes]
        if key not in known:
            original_block(self, element_ty, shape)
            _find(self)
            known[key] = {**vars(self), "_alike": {}}
        vars(self).update(known[key])

    @functools.wraps(_original_tensor)
    def tensor(self, handle, type):
        kind = type._kind or _find(type)
        if kind is None:
            _original_tensor(self, handle, type)
            return
        self.handle, self.type, self.dtype = handle, type, kind.dtype
        self.shape, self.numel = kind.shape, kind.numel

    @functools.wraps(original_like)
    def with_element_ty(self, scalar_ty):
        alike, element = vars(self).get("_alike"), _named(scalar_ty)
        if alike is None or element is None:
            return original_like(self, scalar_ty)
        if element not in alike:
            alike[element] = original_like(self, scalar_ty)
        return alike[element]

    tl.block_type.with_element_ty = with_element_ty
    tl.block_type.__init__ = block_type
    tl.tensor.__init__ = tensor
