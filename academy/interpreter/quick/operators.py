"""Operators between blocks and numbers of the usual types, in one step: a kernel is mostly these.

Triton asks of each operand what it is, promotes, broadcasts, and hands the result to NumPy, in some forty calls. What
comes of it depends on the two kinds alone (`quick.kinds`), so it is found out once for each pair. What is
not decided here (other types, a mistake) takes Triton's way, with its messages.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

from academy.interpreter.quick import lanes
from academy.interpreter.quick.kinds import Kind, Way, kind_of

INTEGERS = frozenset(["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
FLOATS = frozenset(["fp16", "fp32", "fp64"])
_ARITHMETIC = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.divide}
_METHODS: dict[Callable, str] = {
    np.add: "create_fadd",
    np.subtract: "create_fsub",
    np.multiply: "create_fmul",
    np.divide: "create_fdiv",
}
_COMPARISONS = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}
_COMPARISONS |= {"eq": np.equal, "ne": np.not_equal}
_BITS = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


def _quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Rounded towards zero, as the interpreter's builder does it."""
    return (a - np.fmod(a, b)) // b


_WHOLE: dict[str, Callable] = {"floordiv": _quotient, "mod": np.fmod}
#: Of `tl.tensor` -> NumPy's function, which of the tables has it, and whether the operands change places.
OPERATORS: dict[str, tuple[Callable, dict, bool]] = {
    **{
        f"__{name}__": (table[name], table, False)
        for table in (_ARITHMETIC, _COMPARISONS, _BITS, _WHOLE)
        for name in table
    },
    **{f"__r{name}__": (_ARITHMETIC[name], _ARITHMETIC, True) for name in _ARITHMETIC},
}


def quick(name: str, thorough: Callable) -> Callable:
    """One of `OPERATORS`. thorough: Triton's way."""
    function, table, swapped = OPERATORS[name]
    plans: dict[tuple[Kind, Kind], tuple | None] = {}
    of_numbers: dict[Kind | None, tuple | None] = {}
    compared, method = table is _COMPARISONS, _METHODS.get(function, "")

    @functools.wraps(thorough)
    def operator(self, other, **options):
        if type(other) is tl.constexpr and type(other.value) in (int, float):
            other = other.value
        if type(other) is tl.tensor and not swapped:
            kinds = self.type._kind, other.type._kind
            if kinds not in plans:
                plans[kinds] = _plan(function, table, *kinds)
            if (plan := plans[kinds]) is not None:
                compute, result = plan
                data = compute(self.handle.data, other.handle.data)
                if data.dtype is result.np_dtype and data.shape:
                    made = result.tensor(data)
                    if Way.after and result.floats:
                        operands = lanes.handles_beside(len(result.sizes), self.handle, other.handle)
                        Way.after[method](made.handle, *operands)
                    return made
        elif type(other) is int or type(other) is float:
            kind = self.type._kind
            if kind not in of_numbers:
                of_numbers[kind] = _plan_of_number(function, table, kind, swapped)
            if (plan := of_numbers[kind]) is not None and (number := number_of(other, plan[2], compared)) is not None:
                compute, result, _ = plan
                data = compute(number, self.handle.data) if swapped else compute(self.handle.data, number)
                if data.dtype is result.np_dtype and data.shape:
                    made = result.tensor(data)
                    if Way.after and result.floats:
                        beside = handle_of(number, result.dtype)
                        Way.after[method](made.handle, *((beside, self.handle) if swapped else (self.handle, beside)))
                    return made
        return thorough(self, other, **options)

    return operator


def number_of(number: int | float, kind: Kind, compared: bool = False) -> np.generic | None:
    """A number beside a block as Triton takes it: of the block's type, or, compared, of its own.

    None: it would promote the block, or be refused, or is -0.0, which some versions take for 0.0.
    """
    name, of_numpy = kind.dtype.name, kind.np_dtype.type
    if number == 0 and math.copysign(1, number) < 0:
        return None
    if name in FLOATS:
        exact = number == 0 or 2**-126 <= abs(number) < 2**127 if type(number) is float else abs(number) < 2**31
        usual = name == "fp32" and exact if compared else type(number) is float or exact
        return of_numpy(number) if usual else None
    if type(number) is float or name not in INTEGERS:
        return None
    least, most = _limits(of_numpy)
    return of_numpy(number) if least <= number <= most else None


def handle_of(number: int | float | np.generic, dtype: tl.dtype = tl.float32) -> interpreter.TensorHandle:
    """A number as the interpreter holds it."""
    return interpreter.TensorHandle(np.array(number, kind_of(dtype, ()).np_dtype), dtype)


@functools.cache
def _limits(of_numpy: type) -> tuple[int, int]:
    """What a type of integers holds, as far as Triton takes a Python number for an int32."""
    limits = np.iinfo(of_numpy)
    return max(limits.min, -(2**31)), min(limits.max, 2**31 - 1)


def _plan(function: Callable, table: dict, left: Kind | None, right: Kind | None) -> tuple[Callable, Kind] | None:
    """What to do with the data of two operands, and the kind of the result. None: let Triton do it."""
    if left is None or right is None or (sizes := broadcast(left.sizes, right.sizes)) is None:
        return None
    ranks = len(left.sizes), len(right.sizes)
    if function is np.add and left.dtype.is_ptr():
        offset, moved = right.dtype.name in ("int32", "int64"), _moved(left.dtype.element_ty)
        return (lanes.of_ranks(moved, *ranks), kind_of(left.dtype, sizes)) if offset else None
    dtype = _common(function, table, left.dtype, right.dtype)
    if dtype is None:
        return None
    result = kind_of(tl.int1 if table is _COMPARISONS else dtype, sizes)
    if left.dtype.name == right.dtype.name or (dtype is tl.int64 and table is not _WHOLE):
        return lanes.of_ranks(function, *ranks), result  # of int32 and int64, NumPy makes the same
    wide = kind_of(dtype, ()).np_dtype
    return lanes.of_ranks(lambda a, b: function(a.astype(wide), b.astype(wide)), *ranks), result


def _plan_of_number(function: Callable, table: dict, kind: Kind | None, swapped: bool) -> tuple | None:
    """The same beside a number, with the kind that it has: the block's own, or int32 beside pointers."""
    pointers = kind is not None and kind.dtype.is_ptr()
    number = kind_of(tl.int32, ()) if pointers else kind
    plan = None if pointers and swapped else _plan(function, table, kind, number)
    return (*plan, number) if plan else None


def quick_minus(thorough: Callable) -> Callable:
    """`-x`, which Triton takes for `0 - x`. thorough: Triton's way."""
    subtract = quick("__rsub__", lambda *_, **__: None)

    @functools.wraps(thorough)
    def minus(self, **options):
        result = subtract(self, 0)
        return thorough(self, **options) if result is None else result

    return minus


def _moved(element: tl.dtype) -> Callable:
    width = np.uint64(max(1, element.primitive_bitwidth // 8))
    return lambda addresses, offsets: addresses + width * offsets.astype(np.uint64)


def broadcast(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...] | None:
    """The sizes of two blocks (`()`: a number) together, where both have as many dimensions; None: let Triton do it."""
    if not left or not right or left == right:
        return left or right
    if len(left) != len(right) or any(a != b and 1 not in (a, b) for a, b in zip(left, right)):
        return None
    return tuple(b if a == 1 else a for a, b in zip(left, right))


def _common(function: Callable, table: dict, left: tl.dtype, right: tl.dtype) -> tl.dtype | None:
    """The type that Triton promotes both to."""
    names = {left.name, right.name}
    if table is _WHOLE and not names <= {"int32", "int64"}:
        return None
    known = INTEGERS | {"int1"} if table is _BITS else INTEGERS | FLOATS
    if not names <= known or (function is np.divide and not names & {"fp32", "fp64"}):
        return None
    if len(names) == 1:
        return left
    if names == {"int32", "int64"}:
        return tl.int64
    return tl.float32 if "fp32" in names and "fp64" not in names else None


#: Types that an operation between two equal ones keeps, division aside.
_CLOSED = INTEGERS | FLOATS | {"bf16"}


def quicken_operands(semantic) -> None:
    """Of other operations: operands of one type and one shape need neither promotion nor broadcasting, and a number is
    spread over a block, before Triton asks about each dimension."""
    original_check, original_broadcast = semantic.binary_op_type_checking_impl, semantic.broadcast_impl_value

    @functools.wraps(original_check)
    def check(self, lhs, rhs, allow_lhs_ptr=False, allow_rhs_ptr=False, arithmetic_check=True, div_or_mod=False):
        if type(lhs) is type(rhs) is tl.tensor and lhs.shape is rhs.shape and not div_or_mod:
            if lhs.dtype is rhs.dtype and lhs.dtype.name in _CLOSED:
                return lhs, rhs
        return original_check(self, lhs, rhs, allow_lhs_ptr, allow_rhs_ptr, arithmetic_check, div_or_mod)

    @functools.wraps(original_broadcast)
    def broadcast_value(self, lhs, rhs):
        if type(lhs) is type(rhs) is tl.tensor and lhs.shape is rhs.shape:
            return lhs, rhs
        if type(lhs) is type(rhs) is tl.tensor and self is interpreter.interpreter_semantic:
            left, right = lhs.type._kind, rhs.type._kind
            if left is not None and right is not None and (sizes := broadcast(left.sizes, right.sizes)) is not None:
                left_lanes, right_lanes = spread(lhs, sizes), spread(rhs, sizes)
                if left_lanes is not None and right_lanes is not None:
                    return left_lanes, right_lanes
        return original_broadcast(self, lhs, rhs)

    semantic.binary_op_type_checking_impl, semantic.broadcast_impl_value = check, broadcast_value


def spread(value: tl.tensor, sizes: tuple[int, ...]) -> tl.tensor | None:
    """A value, of a known kind, with these sizes; None if it can't have them."""
    kind = value.type._kind
    if kind.sizes == sizes:
        return value
    if sizes not in kind.spread:
        kind.spread[sizes] = kind_of(kind.dtype, sizes) if broadcast(kind.sizes, sizes) == sizes else None
    if (wide := kind.spread[sizes]) is None:
        return None
    data = lanes.spread(value.handle.data, sizes)
    made = wide.tensor(data if kind.sizes else data.copy())
    if Way.after and kind.floats:
        if kind.sizes or type(data) is lanes.Lanes:
            Way.after["create_broadcast"](made.handle, *lanes.handles_beside(len(sizes), value.handle))
        else:
            Way.after["create_splat"](made.handle, None, value.handle)
    return made
