"""Tensors in registers, run-time scalars, and pointers to global memory.

Values are numpy arrays; bfloat16 and float16 are kept as float32 and rounded after every operation, through torch.
A scalar is a tensor without dimensions. Integers wrap, and `//` and `%` round towards zero, as on a GPU.

Names: `Tensor`, `Pointer`, `unwrap()`, `scalar()`, `rounded()`, `tensor_of()`, `Range`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from triton.experimental.gluon import language as gl

from academy.gluon import arrays, layouts
from academy.gluon.errors import WrongLayout, need
from academy.gluon.linear import NoLinearForm
from academy.gluon.machine import machine

#: Gluon's dtypes -> torch's and numpy's. What numpy lacks is kept as float32.
_SMALL_FLOATS = {gl.bfloat16: torch.bfloat16, gl.float16: torch.float16}
for _name, _dtype in (("float8e4nv", "float8_e4m3fn"), ("float8e5", "float8_e5m2")):
    if hasattr(torch, _dtype):  # the browser's torch has neither
        _SMALL_FLOATS[getattr(gl, _name)] = getattr(torch, _dtype)
_NUMPY = {
    gl.float32: np.float32, gl.float64: np.float64, gl.int1: np.bool_, gl.int8: np.int8, gl.int16: np.int16,
    gl.int32: np.int32, gl.int64: np.int64, gl.uint8: np.uint8, gl.uint16: np.uint16, gl.uint32: np.uint32,
    gl.uint64: np.uint64,
}  # fmt: skip
_TORCH = {**{dtype: small for small, dtype in _SMALL_FLOATS.items()}, torch.bool: gl.int1}
for _name in ("float32", "float64", "int8", "int16", "int32", "int64", "uint8"):
    _TORCH[getattr(torch, _name)] = getattr(gl, _name)
_RANK = [gl.int1, gl.int8, gl.uint8, gl.int16, gl.uint16, gl.int32, gl.uint32, gl.int64, gl.uint64]


def unwrap(value: Any) -> Any:
    """A constexpr's value; anything else as it is."""
    while isinstance(value, gl.constexpr):
        value = value.value
    return value


def dtype_of(tensor: torch.Tensor) -> Any:
    """Gluon's dtype of a torch tensor."""
    need(tensor.dtype in _TORCH, f"the simulator doesn't know {tensor.dtype}")
    return _TORCH[tensor.dtype]


def numpy_type(dtype: Any) -> type:
    return _NUMPY.get(dtype, np.float32)


def rounded(values: Any, dtype: Any) -> np.ndarray:
    """As a dtype holds them: rounded once."""
    if (keeps := getattr(values, "rounded", None)) is not None:  # it carries something beside its numbers
        return keeps(rounded(np.asarray(values), dtype), choice=dtype.primitive_bitwidth == 8)
    values = np.asarray(values)
    if dtype in _SMALL_FLOATS:
        wide = torch.from_numpy(np.ascontiguousarray(values, np.float32)).reshape(values.shape)
        return wide.to(_SMALL_FLOATS[dtype]).to(torch.float32).numpy()
    if dtype.is_int() and values.dtype.kind == "f":
        values = np.trunc(np.nan_to_num(values))
    return values.astype(numpy_type(dtype))


def reinterpreted(values: Any, source: Any, target: Any) -> np.ndarray:
    """The same bits, read as another dtype of that width."""
    width = source.primitive_bitwidth
    need(width == target.primitive_bitwidth >= 8, f"{source} can't be read as {target}: another width")
    bits = np.ascontiguousarray(values)
    if source in _SMALL_FLOATS:
        bits = torch.from_numpy(bits).to(_SMALL_FLOATS[source]).view(getattr(torch, f"int{width}")).numpy()
    if target in _SMALL_FLOATS:
        small = torch.from_numpy(bits.view(f"int{width}")).view(_SMALL_FLOATS[target])
        return small.float().numpy().reshape(np.shape(values))
    return bits.view(numpy_type(target)).reshape(np.shape(values))


def result_type(one: Any, other: Any) -> Any:
    """Of two dtypes in one operation: Triton's rules."""
    if one == other:
        return one
    floats = [dtype for dtype in (one, other) if dtype.is_floating()]
    if len(floats) == 2:
        widest = max(dtype.primitive_bitwidth for dtype in floats)
        return gl.float64 if widest == 64 else gl.float32 if widest == 32 or floats[0] != floats[1] else floats[0]
    return floats[0] if floats else max(one, other, key=_RANK.index)


def of_number(value: Any, other: Any = None) -> Any:
    """The dtype that a Python number takes on beside a tensor of dtype `other`."""
    if isinstance(value, (bool, np.bool_)):
        return gl.int1
    if isinstance(value, (float, np.floating)):
        return other if other is not None and other.is_floating() else gl.float32
    if other is not None and not other.is_int1() if hasattr(other, "is_int1") else other is not None:
        return other
    return gl.int32 if -(2**31) <= value < 2**31 else gl.int64


class Tensor:
    """A tile in the registers of a partition. layout: None for a scalar."""

    def __init__(self, values: Any, dtype: Any, layout: Any = None):
        self.array: np.ndarray = np.asanyarray(values, numpy_type(dtype))
        self.dtype, self.layout = dtype, layout

    @property
    def values(self) -> np.ndarray:
        return self.array

    @property
    def shape(self) -> list[int]:
        return list(self.values.shape)

    @property
    def numel(self) -> int:
        return self.values.size

    @property
    def type(self) -> SimpleNamespace:
        kind = dict(layout=self.layout, shape=self.shape, scalar=self.dtype, element_ty=self.dtype)
        return SimpleNamespace(**kind, is_block=lambda: bool(self.shape))

    def like(self, values: Any, dtype: Any = None, layout: Any = None) -> Tensor:
        return Tensor(values, dtype or self.dtype, layout if layout is not None else self.layout)

    # A scalar decides a branch, counts a loop and indexes a buffer; a tile does none of these.
    def _one(self, what: str) -> Any:
        need(not self.shape, f"a tensor of {self.shape} can't be {what}; only a scalar can")
        return self.values[()]

    def __bool__(self) -> bool:
        return bool(self._one("a condition"))

    def __index__(self) -> int:
        need(self.dtype.is_int(), f"a scalar of {self.dtype} can't be an index")
        return int(self._one("an index"))

    def __int__(self) -> int:
        return int(self._one("one number"))

    def __float__(self) -> float:
        return float(self._one("one number"))

    __hash__ = None  # type: ignore[assignment]

    def combine(self, other: Any, function: Callable, swap: bool = False, to: Any = None) -> Tensor:
        """An operation lane by lane. to: the result's dtype, if it isn't that of the operands."""
        x, y = self, other if isinstance(other, Tensor) else Tensor(other, of_number(other, self.dtype))
        kind = result_type(x.dtype, y.dtype)
        layout = common_layout(x, y)
        if swap:
            x, y = y, x
        with np.errstate(all="ignore"):
            values = function(rounded(x.values, kind), rounded(y.values, kind))
        kind = to or kind
        return Tensor(rounded(values, kind), kind, layout)

    def to(self, dtype: Any, fp_downcast_rounding: Any = None, bitcast: bool = False) -> Tensor:
        dtype = unwrap(dtype)
        change = reinterpreted(self.values, self.dtype, dtype) if unwrap(bitcast) else rounded(self.values, dtype)
        return self.like(change, dtype)

    def reshape(self, *shape: Any) -> Tensor:
        sizes = tuple(int(unwrap(size)) for size in (shape[0] if isinstance(shape[0], (list, tuple)) else shape))
        return self._moved(self.values.reshape(sizes), "reshape", lambda form: form.reshaped(sizes))

    def permute(self, *order: Any) -> Tensor:
        axes = tuple(int(unwrap(axis)) for axis in (order[0] if isinstance(order[0], (list, tuple)) else order))
        return self._moved(self.values.transpose(axes), "permute", lambda form: form.permuted(axes))

    trans = permute

    def split(self) -> tuple[Tensor, Tensor]:
        need(self.shape and self.shape[-1] == 2, f"split needs a last dimension of 2, not {self.shape}")
        halves = [self._moved(self.values[..., i], "split", lambda form: form.split()) for i in (0, 1)]
        return halves[0], halves[1]

    def join(self, other: Tensor) -> Tensor:
        self.combine(other, np.add)  # the same shape and layout
        return self._moved(np.stack([self.values, other.values], -1), "join", lambda form: form.joined())

    def broadcast_to(self, *shape: Any) -> Tensor:
        sizes = [int(unwrap(size)) for size in (shape[0] if isinstance(shape[0], (list, tuple)) else shape)]
        return self.like(np.broadcast_to(self.values, sizes))

    def _moved(self, values: np.ndarray, how: str, move: Callable) -> Tensor:
        """After an operation that leaves every element where it is, and gives it another index."""
        if layouts.chosen_by_compiler(self.layout):
            return self.like(values)
        try:
            form = move(layouts.linear(self.layout, tuple(self.shape)))
        except NoLinearForm as error:
            need(False, str(error), WrongLayout)
        return self.like(values, layout=layouts.Inferred(form, how))

    def __getitem__(self, key: Any) -> Tensor:
        key = key if isinstance(key, tuple) else (key,)
        need(
            all(each is None or each == slice(None) for each in map(unwrap, key)), "index a tensor with None and : only"
        )
        result = self
        for axis, each in enumerate(map(unwrap, key)):
            result = result.expand_dims(axis) if each is None else result
        return result

    def expand_dims(self, axis: Any) -> Tensor:
        axis = unwrap(axis)
        values, layout = np.expand_dims(self.values, axis), self.layout
        if layouts.chosen_by_compiler(layout):
            return self.like(values)
        fits = isinstance(layout, gl.SliceLayout) and layout.dim == axis
        need(
            fits,
            f"a new dimension {axis} needs a tensor with SliceLayout({axis}, …), and this one has "
            f"{layouts.short(layout)}. Make it with that layout, or convert it",
            WrongLayout,
        )
        return self.like(values, layout=layout.parent)


def common_layout(x: Tensor, y: Tensor) -> Any:
    """Of two tensors that are combined: theirs, if it is the same. Raises WrongLayout or WrongUse."""
    if not x.shape or not y.shape:
        return x.layout if x.shape else y.layout
    fits = len(x.shape) == len(y.shape) and all(1 in pair or len(set(pair)) == 1 for pair in zip(x.shape, y.shape))
    need(fits, f"shapes {x.shape} and {y.shape} can't be combined")
    shape = tuple(map(max, x.shape, y.shape))
    need(layouts.same(x.layout, y.layout, shape), _mismatch(x.layout, y.layout, shape), WrongLayout)
    return y.layout if layouts.chosen_by_compiler(x.layout) else x.layout


def _mismatch(one: Any, other: Any, shape: tuple[int, ...]) -> str:
    return "" if layouts.same(one, other, shape) else layouts.mismatch(one, other, shape)


def _floor_free(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Quotient that rounds towards zero."""
    quotient = np.abs(x.astype(np.int64)) // np.maximum(np.abs(y.astype(np.int64)), 1)
    return np.sign(x.astype(np.int64)) * np.sign(y.astype(np.int64)) * quotient


_ARITHMETIC: dict[str, Callable] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor, "lshift": np.left_shift, "rshift": np.right_shift, "floordiv": _floor_free,
    "mod": lambda x, y: np.fmod(x, y) if x.dtype.kind == "f" else x - y * _floor_free(x, y),
}  # fmt: skip
_COMPARISONS = dict(lt=np.less, le=np.less_equal, gt=np.greater, ge=np.greater_equal, eq=np.equal, ne=np.not_equal)


def _operators() -> None:
    for name, function in _ARITHMETIC.items():
        setattr(Tensor, f"__{name}__", lambda x, y, f=function: x.combine(unwrap(y), f))
        setattr(Tensor, f"__r{name}__", lambda x, y, f=function: x.combine(unwrap(y), f, True))
    for name, function in _COMPARISONS.items():
        setattr(Tensor, f"__{name}__", lambda x, y, f=function: x.combine(unwrap(y), f, to=gl.int1))

    def divide(x: Tensor, y: Any, swap: bool = False) -> Tensor:
        other = y.dtype if isinstance(y, Tensor) else of_number(y, x.dtype)
        kind = result_type(x.dtype, other)
        return x.combine(y, np.true_divide, swap, kind if kind.is_floating() else gl.float32)

    more: dict[str, Callable] = dict(
        truediv=lambda x, y: divide(x, unwrap(y)), rtruediv=lambda x, y: divide(x, unwrap(y), True),
        neg=lambda x: x.like(-x.values), invert=lambda x: x.like(~x.values),
    )  # fmt: skip
    for name, function in more.items():
        setattr(Tensor, f"__{name}__", function)


_operators()


def tensor_of(value: Any) -> Tensor:
    value = unwrap(value)
    return value if isinstance(value, Tensor) else scalar(value)


def scalar(value: Any, dtype: Any = None) -> Tensor:
    """A run-time number."""
    return Tensor(value, dtype or of_number(value))


class Range:
    """`range` in a kernel: its variable is a run-time scalar."""

    def __init__(self, *bounds: Any, **options: Any):
        self.bounds = range(*(int(unwrap(bound)) for bound in bounds))

    def __iter__(self) -> Iterator[Tensor]:
        return (scalar(value) for value in self.bounds)


class Pointer:
    """The address of an element of a torch tensor, or a tile of such addresses."""

    def __init__(self, memory: torch.Tensor, offset: Any, layout: Any = None, name: str = "pointer"):
        self.memory, self.offset, self.layout, self.name = memory, np.asarray(offset, np.int64), layout, name
        self.dtype = SimpleNamespace(element_ty=dtype_of(memory))

    @classmethod
    def to_tensor(cls, tensor: torch.Tensor, name: str) -> Pointer:
        """All of the tensor's storage can be reached through the pointer, and nothing else."""
        storage = tensor.untyped_storage()
        memory = torch.empty(0, dtype=tensor.dtype).set_(storage, 0, (storage.nbytes() // tensor.element_size(),), (1,))
        return cls(memory, tensor.storage_offset(), name=name)

    def __add__(self, other: Any) -> Pointer:
        step = tensor_of(other)
        need(step.dtype.is_int(), f"a pointer moves by whole elements, not by {step.dtype}")
        offset, layout = Tensor(self.offset, gl.int64, self.layout), step.layout
        if self.offset.shape and step.shape:
            layout = common_layout(offset, step)
        elif self.offset.shape:
            layout = self.layout
        return Pointer(self.memory, self.offset + step.values.astype(np.int64), layout, self.name)

    __radd__ = __add__

    @property
    def shape(self) -> list[int]:
        return list(self.offset.shape)

    def __getitem__(self, key: Any) -> Pointer:
        moved = Tensor(self.offset, gl.int64, self.layout)[key]
        return Pointer(self.memory, moved.values, moved.layout, self.name)

    def _lanes(self, mask: Any, what: str) -> np.ndarray:
        """Which lanes take part; those that would leave the memory are an error."""
        on = np.ones(self.offset.shape, bool)
        if unwrap(mask) is not None:
            on = np.broadcast_to(tensor_of(mask).values.astype(bool), self.offset.shape)
            if isinstance(mask, Tensor):
                common_layout(Tensor(self.offset, gl.int64, self.layout), mask)
        outside = on & ((self.offset < 0) | (self.offset >= self.memory.numel()))
        if outside.any():
            first = int(self.offset[outside][0]) if self.offset.shape else int(self.offset)
            need(False, f"{what} element {first} of {self.name}, whose memory has {self.memory.numel()} elements")
        return on

    def told(self, operation: str, mask: Any, values: Any, other: Any = 0) -> None:
        """Tell whoever watches of an access that comes next. other: of a load."""
        watcher = machine().watcher
        if watcher is not None:
            on = self._lanes(mask, operation)
            addresses = self.memory.data_ptr() + self.offset * self.memory.element_size()
            undefined = unwrap(other) is None and not bool(on.all())
            watcher.accesses(operation, addresses, on, np.broadcast_to(values, on.shape), undefined)

    def load(self, mask: Any = None, other: Any = None) -> Tensor:
        """What `gl.load` returns."""
        result = self.read(mask, other)
        self.told("load", mask, result.values, other)
        return result

    def read(self, mask: Any = None, other: Any = None) -> Tensor:
        on = self._lanes(mask, "loads")
        kind = self.dtype.element_ty
        nothing = np.nan if kind.is_floating() else np.iinfo(numpy_type(kind)).max if kind != gl.int1 else False
        empty = nothing if unwrap(other) is None else tensor_of(other).values  # what other lanes hold is undefined
        values: np.ndarray = np.array(np.broadcast_to(np.asarray(empty, numpy_type(kind)), self.offset.shape))
        if on.any():
            index = np.where(on, self.offset, 0).reshape(-1)
            found = self.memory[torch.from_numpy(index)]
            wide = found.float() if kind.is_floating() and kind != gl.float64 else found
            values = np.where(on, arrays.from_torch(wide).reshape(on.shape), values)
        return Tensor(values, kind, self.layout)

    def store(self, value: Any, mask: Any = None) -> None:
        """What `gl.store` does."""
        self.told("store", mask, rounded(tensor_of(value).values, self.dtype.element_ty))
        self.write(value, mask)

    def write(self, value: Any, mask: Any = None) -> None:
        on = self._lanes(mask, "stores to")
        given = tensor_of(value)
        if given.shape and self.offset.shape:
            common_layout(Tensor(self.offset, gl.int64, self.layout), given)
        values = np.broadcast_to(rounded(given.values, self.dtype.element_ty), self.offset.shape)
        index = torch.from_numpy(np.ascontiguousarray(self.offset[on] if self.offset.shape else self.offset[None]))
        if on.any():
            chosen = values[on] if values.shape else values[None].copy()
            self.memory[index] = arrays.to_torch(chosen).to(self.memory.dtype)


def size_in_bytes(shape: Any, dtype: Any) -> int:
    return math.prod(shape) * dtype.primitive_bitwidth // 8
