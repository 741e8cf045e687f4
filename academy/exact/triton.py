"""Kernels in Triton's interpreter, unchanged, with a residue beside each float.

The interpreter hands every operation of a kernel to a builder, with operands that hold a numpy array. `following`
wraps the builder's methods for as long as it lasts: the operation is done as ever, and the residues that `array` makes
of the operands' are put beside the result. Loads and stores find theirs by address (`memory`). So neither the kernel
nor its numbers change, and without `following` nothing is wrapped.

- A number that a kernel is handed, or that stands in it, is a literal (`residues.literal`).
- A cast between floats changes the float and not the residue. A cast to float8 rounds so coarsely that the kernel
  means it: there the residue is that of what it rounds to.
- Bits: of a float that was looked at as an integer, the residue is remembered by these bits. An integer that is made a
  float again gets it back if the bits are the same; two residues with the same bits are none. Other bits are a choice.
- A block of floats that no rule has made is no residue (NAR), and counted in `lost`, by the name of the operation.
- An atom is a jitted helper that approximates a function, and is taken for that function (see `Atoms`).
"""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
import triton.language as tl

from academy.exact import array
from academy.exact import residues as r
from academy.exact.array import Numbers
from academy.exact.memory import Memory
from academy.interpreter import libdevice
from academy.interpreter.bits import FLOAT8, decode
from academy.interpreter.internals import interpreter
from academy.interpreter.quick.kinds import afterwards
from academy.interpreter.quick.lanes import handles_beside

#: `package.module.function` of a jitted helper, or the end of that -> the rule of `array.RULES` that its result is
#: taken for; several rules, one after the other with spaces between, of a helper with several results.
Atoms = Mapping[str, str]

_ELEMENTWISE = {
    **{f"create_f{name}": name for name in ("add", "sub", "mul", "div")},
    **dict.fromkeys(["create_maximumf", "create_maxnumf"], "max"),
    **dict.fromkeys(["create_minimumf", "create_minnumf"], "min"),
    **{f"create_{name}": name for name in "exp exp2 log log2 sqrt rsqrt sin cos erf fma floor ceil".split()},
    "create_precise_sqrt": "sqrt",
    **dict.fromkeys(["create_precise_divf", "create_approx_divf"], "div"),
    "create_fneg": "neg",
    "create_frem": "fmod",
    "create_fabs": "abs",
}
#: Methods that only move elements -> the same of an array with one axis more, behind.
_MOVES: dict[str, Callable] = {
    "create_reshape": lambda out, x, *_: x.reshape(out),
    "create_expand_dims": lambda out, x, *_: x.reshape(out),
    "create_unsplat": lambda out, x, *_: x.reshape(-1, r.COUNT)[:1].reshape(out),
    "create_broadcast": lambda out, x, *_: np.broadcast_to(x, out),
    "create_trans": lambda out, x, order: np.transpose(x, (*(int(axis) for axis in order), len(order))),
    "create_cat": lambda out, x, y: np.concatenate([x, y]),
    "create_join": lambda out, x, y: np.stack([x, y], axis=-2),
    "create_gather": lambda out, x, at, axis: np.take_along_axis(x, at.data[..., None], axis),
}
_LIBDEVICE = {"divide": "div", "subtract": "sub", "multiply": "mul", "fabs": "abs", "fmax": "max", "fmin": "min"}
_LIBDEVICE |= {"rint": "round"}


def _is_float(dtype: tl.dtype) -> bool:
    return dtype.scalar.is_floating()


class Following:
    """What is known of the values of kernels while they are followed.

    memory: the residues in memory. lost: operations that no rule is known for, or values that came out of nowhere, and
    how often. used: names of the atoms that were met.
    """

    def __init__(self, memory: Memory, atoms: Atoms):
        self.memory, self.atoms = memory, atoms
        self.lost, self.used = Counter[str](), set[str]()
        self.bits: dict[tuple[int, int], tuple[int, ...]] = {}

    # ---------------------------------------------------------------- values
    def numbers(self, handle: Any, what: str = "a block") -> Numbers:
        """An operand: its floats and residues."""
        floats = decode(handle.data, handle.dtype)
        residues = getattr(handle, "residues", None)
        if residues is None:
            if not _is_float(handle.dtype):
                residues = r.whole(floats)
            elif floats.size == 1:
                residues = r.literal(float(floats.reshape(())[()])).reshape(*floats.shape, r.COUNT)
            else:
                self.lost[what] += 1
                residues = r.marks(floats, np.full((*floats.shape, r.COUNT), r.NAR))
        return Numbers(floats, residues)

    def of(self, handle: Any, what: str = "a block") -> np.ndarray:
        return self.numbers(handle, what).residues

    def give(self, handle: Any, residues: np.ndarray) -> Any:
        shape = (*np.shape(handle.data), r.COUNT)
        handle.residues = array.spread(residues, shape)
        return handle

    # ---------------------------------------------------------------- memory
    def places(self, pointers: Any, mask: np.ndarray) -> Iterator[tuple[Any, np.ndarray, np.ndarray]]:
        """The regions that the lanes point into: each with the lanes and their elements. None for unknown memory."""
        size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        lanes, addresses = np.nonzero(mask.reshape(-1))[0], pointers.data.reshape(-1)
        while lanes.size:
            some = addresses[lanes].view(np.int64)
            if (region := self.memory.at(int(some.min()), int(some.max()), size)) is not None:
                yield region, lanes, (some - region.base) // size
                return
            region = self.memory.at(int(some[0]), int(some[0]), size)  # lanes in several tensors, or in none
            if region is None:
                inside = some == some[0]
                yield None, lanes[inside], some[inside]
            else:
                inside = (some >= region.base) & (some < region.base + len(region) * size)
                yield region, lanes[inside], (some[inside] - region.base) // size
            lanes = lanes[~inside]

    def load(self, pointers: Any, mask: np.ndarray, other: Any, out: Any) -> None:
        dtype = pointers.get_element_ty()
        kind = interpreter._get_np_dtype(dtype)
        if other is None:
            start = r.full(out.data.shape, r.NAR)
        elif getattr(other, "residues", None) is None:
            start = r.embed(decode(np.asarray(other.data), dtype))
        else:
            start = other.residues
        found: np.ndarray | None = None
        for region, lanes, elements in self.places(pointers, mask):
            if region is None:
                self.lost["a load from memory that no tensor was seen at"] += 1
                continue
            read = self.memory.read(region, elements, lambda bits: decode(bits.view(kind), dtype))
            if len(lanes) == out.data.size:
                found = read
                break
            if found is None:
                found = np.array(array.spread(start, (*out.data.shape, r.COUNT))).reshape(-1, r.COUNT)
            found[lanes] = read
        found = array.spread(start, (*out.data.shape, r.COUNT)) if found is None else found
        self.give(out, r.marks(decode(out.data, dtype), found.reshape(*out.data.shape, r.COUNT)))

    def load_bits(self, pointers: Any, mask: np.ndarray, out: Any) -> None:
        """Integers are loaded, where floats may lie that were computed."""
        on = np.atleast_1d(mask).reshape(-1)
        addresses = np.atleast_1d(pointers.data).reshape(-1)[on].astype(np.int64)
        bits = np.ascontiguousarray(out.data).view(f"u{out.data.itemsize}").reshape(-1)[on]
        for region in self.memory.computed(int(addresses[0])) if len(addresses) else ():
            inside = (addresses >= region.base) & (addresses < region.base + len(region) * region.itemsize)
            elements = (addresses[inside] - region.base) // region.itemsize
            if not (known := region.known[elements]).any():
                continue
            if region.itemsize != bits.itemsize or region.itemsize == 2:  # the latter are made wider by a shift
                self.lost["a load of floats as integers"] += 1
            if region.itemsize == bits.itemsize:
                self.remember(bits[inside][known], region.residues[elements[known]])

    def store(self, pointers: Any, value: Any, mask: np.ndarray) -> None:
        residues = array.spread(self.of(value, "store"), (*np.shape(pointers.data), r.COUNT)).reshape(-1, r.COUNT)
        for region, lanes, elements in self.places(pointers, mask):
            if region is None:
                self.lost["a store to memory that no tensor was seen at"] += 1
            else:
                self.memory.write(region, elements, residues[lanes])

    # ---------------------------------------------------------------- bits
    def as_bits(self, source: Any) -> None:
        """A float is looked at as an integer."""
        width, residues = source.data.itemsize, self.of(source, "bitcast")
        bits = np.ascontiguousarray(source.data).view(f"u{width}")
        sign = bits.dtype.type(1 << 8 * width - 1)
        size = array.choose(bits >= sign, r.minus(residues), residues)
        for keys, elements in ((bits, residues), (bits & ~sign, size)):  # magnitudes are compared as integers
            self.remember(keys, elements)

    def remember(self, bits: np.ndarray, residues: np.ndarray) -> None:
        """What some floats are, by their bits."""
        for key, element in zip(bits.reshape(-1).tolist(), residues.reshape(-1, r.COUNT).tolist()):
            known = self.bits.setdefault((bits.itemsize, key), tuple(element))
            if known != tuple(element):
                self.bits[bits.itemsize, key] = (int(r.NAR),) * r.COUNT

    def from_bits(self, out: Any) -> np.ndarray:
        width = out.data.itemsize
        bits = np.ascontiguousarray(out.data).view(f"u{width}").reshape(-1).tolist()
        floats = decode(out.data, out.dtype)
        own, sign = r.embed(floats).reshape(-1, r.COUNT), 1 << 8 * width - 1
        for place, key in enumerate(bits):
            if (known := self.bits.get((width, key))) is not None:
                own[place] = known
            elif (known := self.bits.get((width, key ^ sign))) is not None:  # its sign was changed as a bit
                own[place] = r.minus(np.array(known, r.U))
        return r.marks(floats, own.reshape(*out.data.shape, r.COUNT))


def _lanes(mask: Any) -> np.ndarray:
    return mask.data if isinstance(mask, interpreter.TensorHandle) else mask


def _wrappers(follow: Following) -> tuple[dict[str, Callable], dict[str, Callable]]:
    """The builder's methods, by name, with residues; and what alone makes the residues of a result, of most of them."""
    builder, handle = interpreter.InterpreterBuilder, interpreter.TensorHandle
    made: dict[str, Callable] = {}
    also: dict[str, Callable] = {}

    def wraps(name: str) -> Callable:
        """Decorates what is to be done with (result, *arguments) after the builder's own method."""

        def decorator(after: Callable) -> Callable:
            original = getattr(builder, name)

            @functools.wraps(original)
            def method(self, *args, **kwargs):
                out = original(self, *args, **kwargs)
                after(out, *args, **kwargs)
                return out

            made[name], also[name] = method, after
            return after

        return decorator

    def elementwise(name: str, rule: str) -> None:
        @wraps(name)
        def _(out, *operands):
            if _is_float(out.dtype):
                floats = decode(out.data, out.dtype)
                follow.give(out, array.apply(rule, floats, *(follow.numbers(each, name) for each in operands)))

    for name, rule in _ELEMENTWISE.items():
        if hasattr(builder, name):  # not every release has all
            elementwise(name, rule)

    def moving(name: str, move: Callable) -> None:
        @wraps(name)
        def _(out, x, *rest):
            if _is_float(out.dtype):
                others = [follow.of(each) if name in ("create_cat", "create_join") else each for each in rest]
                follow.give(out, move((*out.data.shape, r.COUNT), follow.of(x, name), *others))

    for name, move in _MOVES.items():
        moving(name, move)

    @wraps("create_splat")
    def _(out, ret_ty, x):
        if _is_float(out.dtype):
            follow.give(out, follow.of(x, "create_splat").reshape(-1, r.COUNT)[0])

    @wraps("create_split")
    def _(out, x):
        if _is_float(x.dtype):
            for side in (0, 1):
                follow.give(out[side], follow.of(x, "create_split")[..., side, :])

    @wraps("create_select")
    def _(out, condition, x, y):
        if _is_float(out.dtype):
            sides = follow.of(x, "create_select"), follow.of(y, "create_select")
            follow.give(out, array.choose(condition.data, *sides))

    @wraps("create_clampf")
    def _(out, x, low, high, *_):
        x, low, high = (follow.numbers(each, "create_clampf") for each in (x, low, high))
        floats = decode(out.data, out.dtype)
        inner = array.choose(floats == low.floats, low.residues, high.residues)
        follow.give(out, r.marks(floats, array.choose(floats == x.floats, x.residues, inner)))

    def cast(out, source, to_type, *_):
        if out is source or not _is_float(out.dtype):
            return
        floats, x = decode(out.data, out.dtype), follow.numbers(source, "a cast")
        rounded = out.dtype.scalar.name in FLOAT8 and _is_float(source.dtype)
        follow.give(out, r.marks(floats, r.embed(floats) if rounded else x.residues))

    for name in ("cast_impl", "create_fp_to_fp"):
        wraps(name)(cast)

    @wraps("create_bitcast")
    def _(out, source, *_):
        if _is_float(source.dtype) and _is_float(out.dtype):
            follow.give(out, follow.of(source, "bitcast"))
        elif _is_float(source.dtype):
            follow.as_bits(source)
        elif _is_float(out.dtype):
            follow.give(out, follow.from_bits(out))

    @wraps("create_dot")
    def _(out, a, b, accumulator, *_, **__):
        if _is_float(out.dtype):
            product = r.matmul(follow.of(a, "dot"), follow.of(b, "dot"))
            follow.give(out, r.marks(out.data, r.add(product, follow.of(accumulator, "dot"))))

    @wraps("create_extern_elementwise")
    def _(out, library, path, symbol, operands, *_):
        if not _is_float(out.dtype):
            return
        name = libdevice.named(symbol) or symbol
        rule = _LIBDEVICE.get(name, name)
        if rule not in array.RULES:
            follow.lost[f"libdevice.{name}"] += 1
            follow.give(out, r.full(out.data.shape, r.NAR))
            return
        numbers = [follow.numbers(each, name) for each in operands]
        follow.give(out, array.apply(rule, decode(out.data, out.dtype), *numbers))

    # ---------------------------------------------------------------- memory
    @wraps("create_masked_load")
    def _(out, pointers, mask, other, *_, **__):
        lanes = array.spread(_lanes(mask), np.shape(pointers.data))
        if _is_float(out.dtype):
            follow.load(pointers, lanes, other, out)
        else:
            follow.load_bits(pointers, lanes, out)

    @wraps("create_masked_store")
    def _(out, pointers, value, mask, *_, **__):
        if _is_float(value.dtype):
            follow.store(pointers, value, array.spread(_lanes(mask), np.shape(pointers.data)))

    original_rmw, atomics = builder.create_atomic_rmw, interpreter._ir.ATOMIC_OP

    def create_atomic_rmw(self, operation, pointers, value, mask, *args, **kwargs):
        if not _is_float(value.dtype):
            return original_rmw(self, operation, pointers, value, mask, *args, **kwargs)
        dtype, on = value.dtype.scalar, array.spread(_lanes(mask), np.shape(pointers.data))
        kind = interpreter._get_np_dtype(dtype)
        given = array.spread(follow.of(value, "an atomic"), (*on.shape, r.COUNT)).reshape(-1, r.COUNT)
        found, news = np.full_like(given, r.NAR), []
        for region, lanes, elements in follow.places(pointers, on):
            if region is None:
                follow.lost["an atomic on memory that no tensor was seen at"] += 1
                continue
            before = follow.memory.read(region, elements, lambda bits: decode(bits.view(kind), dtype))
            now = dict(zip(elements.tolist(), before))
            for lane, element in zip(lanes.tolist(), elements.tolist()):  # two lanes may meet
                found[lane] = now[element]
                now[element] = r.add(now[element], given[lane]) if operation == atomics.FADD else given[lane]
            news.append((region, elements, now))
        out = original_rmw(self, operation, pointers, value, mask, *args, **kwargs)
        for region, elements, now in news:
            residues = np.array([now[element] for element in elements.tolist()])
            if operation not in (atomics.FADD, atomics.XCHG):  # of MAX and MIN: changed, or as it was
                follow.lost["an atomic maximum of floats"] += 1
                residues = np.full_like(residues, r.NAR)
            follow.memory.write(region, elements, residues)
        return follow.give(out, found.reshape(*on.shape, r.COUNT))

    def create_descriptor_gather(self, desc, x_offsets, y_offset, type):
        rows = [
            self.create_descriptor_load(desc, [handle(offset, tl.int32), y_offset], None, None)
            for offset in x_offsets.data
        ]
        out = handle(np.stack([row.data[0] for row in rows]), desc.base.dtype.element_ty)
        return follow.give(out, np.stack([row.residues[0] for row in rows])) if _is_float(out.dtype) else out

    def create_descriptor_scatter(self, desc, value, x_offsets, y_offset):
        for place, offset in enumerate(x_offsets.data):
            row = handle(value.data[place][None], value.dtype)
            if _is_float(value.dtype):
                follow.give(row, follow.of(value)[place][None])
            self.create_descriptor_store(desc, row, [handle(offset, tl.int32), y_offset])

    made |= dict(
        create_atomic_rmw=create_atomic_rmw,
        create_descriptor_gather=create_descriptor_gather,
        create_descriptor_scatter=create_descriptor_scatter,
    )
    return made, also


# ---------------------------------------------------------------- reductions and scans
def _block(data: np.ndarray, dtype: tl.dtype, residues: np.ndarray | None) -> tl.tensor:
    handle = interpreter.TensorHandle(data, dtype)
    if residues is not None:
        handle.residues = residues
    return tl.tensor(handle, tl.block_type(dtype, list(data.shape)) if data.shape else dtype)


class _Parts:
    """Some elements of the operands of a reduction or scan, with their residues; None beside integers."""

    def __init__(self, follow: Following, blocks: list):
        self.dtypes = [block.dtype.scalar for block in blocks]
        self.data = [block.handle.data for block in blocks]
        floats = [_is_float(dtype) for dtype in self.dtypes]
        self.residues = [follow.of(block.handle) if isf else None for isf, block in zip(floats, blocks)]
        self.follow = follow

    def taken(self, function: Callable) -> _Parts:
        """function: of an array, whose axes are counted from the front."""
        out = object.__new__(_Parts)
        out.dtypes, out.follow = self.dtypes, self.follow
        out.data = [function(data) for data in self.data]
        out.residues = [None if each is None else function(each) for each in self.residues]
        return out

    def blocks(self) -> list[tl.tensor]:
        return [_block(*each) for each in zip(self.data, self.dtypes, self.residues)]

    def with_(self, other: _Parts, function: Any) -> _Parts:
        results = function.fn(*self.blocks(), *other.blocks())
        results = results if isinstance(results, (tuple, list, tl.tuple)) else (results,)
        return _Parts(self.follow, list(results))


def _reduced(follow: Following, original: Callable) -> Callable:
    standard = tl.standard
    largest = {standard._elementwise_max: True, standard._argmax_combine_tie_break_left: True}
    largest |= {standard._elementwise_min: False, standard._argmin_combine_tie_break_left: False}
    largest |= {standard._argmax_combine_tie_break_fast: True, standard._argmin_combine_tie_break_fast: False}

    def apply_impl(self, operands):
        if not any(_is_float(each.dtype) for each in operands):
            return original(self, operands)
        known = self.combine_fn is standard._sum_combine or self.combine_fn in largest
        if not known:
            return _folded(self, _Parts(follow, list(operands)))
        out, x = original(self, operands), follow.numbers(operands[0].handle, "a reduction")
        first = out[0] if isinstance(out, (tuple, list)) else out
        if self.combine_fn is standard._sum_combine:
            residues = r.total(x.residues, self.axis, bool(self.keep_dims))
        else:
            residues = array.extremum(x, self.axis, largest[self.combine_fn], bool(self.keep_dims))
        shape = (*first.handle.data.shape, r.COUNT)
        follow.give(first.handle, r.marks(decode(first.handle.data, first.dtype), residues.reshape(shape)))
        return out

    return apply_impl


def _folded(operation: Any, parts: _Parts) -> list:
    """Neighbours are combined until one is left, as `academy.interpreter.reductions` does it."""
    shape = parts.data[0].shape
    axis = operation.axis or 0
    if operation.axis is None:
        parts = parts.taken(lambda a: a.reshape(-1, *a.shape[len(shape) :]))
    parts = parts.taken(lambda a: np.moveaxis(a, axis, 0))
    while len(parts.data[0]) > 1:
        parts = parts.taken(lambda a: a[0::2]).with_(parts.taken(lambda a: a[1::2]), operation.combine_fn)
    parts = parts.taken(lambda a: a[0])
    if operation.keep_dims:
        kept = [1 if operation.axis in (None, d) else size for d, size in enumerate(shape)]
        parts = parts.taken(lambda a: a.reshape(*kept, *a.shape[len(parts.data[0].shape) :]))
    made = []
    for data, dtype, residues in zip(parts.data, parts.dtypes, parts.residues):
        result = operation.to_tensor(data if data.ndim else data.item(), dtype)
        if residues is not None:
            parts.follow.give(result.handle, residues)
        made.append(result)
    return made


def _scanned(follow: Following, original: Callable) -> Callable:
    def apply_impl(self, operands):
        if not any(_is_float(each.dtype) for each in operands):
            return original(self, operands)
        parts, standard = _Parts(follow, list(operands)), tl.standard
        flipped = parts.taken(lambda a: np.flip(a, self.axis)) if self.reverse else parts
        if self.combine_fn in (standard._sum_combine, standard._prod_combine):
            out, step = original(self, operands), r.add if self.combine_fn is standard._sum_combine else r.mul
            residues = [None if each is None else r.running(each, self.axis, step) for each in flipped.residues]
        else:
            done = _climbed(self, flipped)
            residues = done.residues
            out = [
                _block(np.flip(d, self.axis) if self.reverse else d, t, None) for d, t in zip(done.data, done.dtypes)
            ]
        for result, each in zip(out, residues):
            if each is not None:
                each = np.flip(each, self.axis) if self.reverse else each
                follow.give(result.handle, r.marks(decode(result.handle.data, result.dtype.scalar), each))
        return out

    return apply_impl


def _climbed(operation: Any, parts: _Parts) -> _Parts:
    """Every element with the one 1, 2, 4 … places before it, as `academy.interpreter.reductions` does it."""
    axis, distance = operation.axis, 1
    size = parts.data[0].shape[axis]
    while distance < size:
        made = parts.taken(partial(np.roll, shift=distance, axis=axis)).with_(parts, operation.combine_fn)
        either = partial(_from, distance, axis)
        parts.data = list(map(either, parts.data, made.data))
        pairs = zip(parts.residues, made.residues)
        parts.residues = [None if old is None or new is None else either(old, new) for old, new in pairs]
        distance *= 2
    return parts


def _from(place: int, axis: int, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """`after` from a place along an axis on."""
    far = np.arange(before.shape[axis]) >= place
    return np.where(far.reshape([-1 if d == axis else 1 for d in range(before.ndim)]), after, before)


# ---------------------------------------------------------------- the switch
def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """All tensors in an argument of a launch: in tuples, behind descriptors."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from tensors_in(each)
    elif isinstance(base := getattr(value, "base", None), torch.Tensor):
        yield base


@contextlib.contextmanager
def replaced(owner: type, name: str, value: Any) -> Iterator[None]:
    """While this lasts, a class has another attribute. The browser's Python has no `unittest.mock`."""
    own = vars(owner)
    before = [own[name]] if name in own else []
    setattr(owner, name, value)
    try:
        yield
    finally:
        delattr(owner, name)
        for kept in before:
            setattr(owner, name, kept)


@contextlib.contextmanager
def following(memory: Memory, atoms: Atoms, apart: Callable[[], Any] = contextlib.nullcontext) -> Iterator[Following]:
    """While this lasts, kernels that run in the interpreter carry residues. apart: a context for each launch."""
    follow, executor, jitted = Following(memory, atoms), interpreter.GridExecutor, interpreter.InterpretedFunction
    launch, helper = executor.__call__, jitted.__call__

    @functools.wraps(launch)
    def followed(self, *args, **kwargs):
        for tensor in tensors_in([*args, *kwargs.values()]):
            memory.know(tensor)
        with apart():
            return launch(self, *args, **kwargs)

    @functools.wraps(helper)
    def called(self, *args, **kwargs):
        out = helper(self, *args, **kwargs)
        name = f"{self.fn.__module__}.{self.fn.__name__}"
        for atom, rule in follow.atoms.items():
            if name == atom or name.endswith(f".{atom}"):
                follow.used.add(atom)
                results = list(out) if isinstance(out, (tuple, list, tl.tuple)) else [out]
                handles = [arg.handle for arg in args if isinstance(arg, tl.tensor)]
                handles = handles_beside(len(results[0].shape), *handles)
                operands = [follow.numbers(handle, atom) for handle in handles]
                for result, each in zip(results, rule.split(), strict=True):
                    follow.give(result.handle, array.apply(each, decode(result.handle.data, result.dtype), *operands))
        return out

    with contextlib.ExitStack() as stack:
        methods, also = _wrappers(follow)
        stack.enter_context(afterwards(also))
        for name, method in methods.items():
            stack.enter_context(replaced(interpreter.InterpreterBuilder, name, method))
        for owner, wrapped in ((interpreter.ReduceOps, _reduced), (interpreter.ScanOps, _scanned)):
            stack.enter_context(replaced(owner, "apply_impl", wrapped(follow, owner.apply_impl)))
        stack.enter_context(replaced(executor, "__call__", followed))
        stack.enter_context(replaced(jitted, "__call__", called))
        yield follow
