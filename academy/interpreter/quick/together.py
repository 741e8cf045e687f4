"""The programs of a launch together: each operation once, on arrays with one axis more.

An operation on a block of 64 numbers takes as long as one on 4,096: nearly all of it is Python. So programs that take
the same way through a kernel are run as one. Their data has one axis more, in front (`lanes.Lanes`), and where it
doesn't depend on the program it has none.

- Where a condition or the bound of a loop differs (`Parted`), the programs are divided by its value, and each part
  starts from the beginning.
- Stores wait until all programs have ended. Then a look at the addresses tells whether one program has read or written
  what another wrote, or has read what it wrote itself. If so, or if there is an operation that can't be done together
  (`Apart`: atomics, say), nothing has happened yet, and the programs run one after the other, as ever.

So a kernel computes what it always does, bit for bit: no operation adds across programs.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import triton.language as tl
from triton.language import semantic
from triton.runtime import interpreter

from academy.interpreter.mistakes import TRITON
from academy.interpreter.quick.kinds import Way, kind_of
from academy.interpreter.quick.lanes import Lanes, reshaped, spread

#: Programs that run together, at most: more of them leave the processor's cache.
MOST = 64
#: A kernel that has had so many programs, and was run for more than this share of them, is better run as ever.
ENOUGH, MANY = 6, 0.7


class Parted(BaseException):
    """Programs go different ways. values: one a program. (No Exception: a helper's call would wrap it.)"""

    def __init__(self, values: np.ndarray):
        super().__init__()
        self.values = values


class Apart(BaseException):
    """These programs can't be run together."""


class _Switch:
    """on: whether launches try. apart: kernels that can't be run together, or part too often. counts: of a kernel, how
    many programs there were, and how often it was run for them."""

    on = False
    apart: weakref.WeakSet[Callable] = weakref.WeakSet()
    counts: weakref.WeakKeyDictionary[Callable, tuple[int, int]] = weakref.WeakKeyDictionary()


@contextlib.contextmanager
def together() -> Iterator[None]:
    """While this lasts, launches run their programs together, as far as that comes out the same."""
    before, _Switch.on = _Switch.on, True
    try:
        yield
    finally:
        _Switch.on = before


def install() -> None:
    owner = interpreter.GridExecutor
    original = owner.__call__

    @functools.wraps(original)
    def launch(self, *args, **kwargs):
        grid = self.grid
        if not _Switch.on or self.fn in _Switch.apart or callable(grid) or np.prod(grid) < 2:
            return original(self, *args, **kwargs)
        # Asked for its grid with the arguments as the kernel gets them: none is left if all programs have run.
        self.grid = lambda arguments: (0,) * len(grid) if _run(self.fn, arguments, grid) else grid
        try:
            return original(self, *args, **kwargs)
        finally:
            self.grid = grid

    owner.__call__ = launch


def _run(kernel: Callable, arguments: dict[str, Any], grid: tuple[int, ...]) -> bool:
    """Whether all programs of a launch have been run. If not, none has."""
    sizes = (*grid, 1, 1)[:3]
    builder = interpreter.interpreter_builder
    builder.set_grid_dim(*sizes)
    memory = _Memory(np.indices(sizes, np.int32).reshape(3, -1))
    count = memory.places.shape[1]
    programs, runs = _Switch.counts.get(kernel, (0, 0))
    waiting = [np.arange(start, min(start + MOST, count)) for start in range(0, count, MOST)]
    try:
        with _patched(memory):
            while waiting:
                memory.numbers, mark = waiting.pop(), memory.mark()
                runs += 1
                try:
                    kernel(**arguments)
                except Parted as parted:
                    memory.back_to(mark)
                    which = np.unique(parted.values, return_inverse=True)[1].reshape(-1)
                    waiting += [memory.numbers[which == each] for each in range(which.max() + 1)]
        if memory.conflict():
            raise Apart
    except (Apart, Exception):  # an error is found again, where it says which program it is in
        _Switch.apart.add(kernel)
        return False
    _Switch.counts[kernel] = programs + count, runs
    if programs + count >= ENOUGH and runs > (programs + count) * MANY:
        _Switch.apart.add(kernel)
    memory.write()
    return True


# ---------------------------------------------------------------- memory
class _Access:
    """Addresses, each of so many bytes, and the numbers of the programs; -1: of all that run together."""

    def __init__(self, addresses: np.ndarray, programs: np.ndarray | None, width: int):
        self.addresses, self.programs, self.width = addresses, programs, width
        self.first, self.last = int(addresses.min()), int(addresses.max()) + width - 1

    def owners(self) -> np.ndarray:
        return np.full(self.addresses.shape, -1) if self.programs is None else self.programs


class _Memory:
    """What was read, and what is to be written when all programs have ended. places: of each program in the grid.
    numbers: of the programs that run now."""

    def __init__(self, places: np.ndarray):
        self.places, self.numbers = places, np.zeros(0, np.int64)
        self.reads, self.writes, self.waiting = list[_Access](), list[_Access](), list[Callable[[], None]]()

    def mark(self) -> tuple[int, int, int]:
        return len(self.reads), len(self.writes), len(self.waiting)

    def back_to(self, mark: tuple[int, int, int]) -> None:
        del self.reads[mark[0] :], self.writes[mark[1] :], self.waiting[mark[2] :]

    def access(self, pointers: np.ndarray, mask: np.ndarray, width: int) -> _Access | None:
        """What the lanes touch; None for nothing."""
        numbers, everywhere = self.numbers, bool(mask.all())
        addresses = (pointers.reshape(-1) if everywhere else pointers[mask]).view(np.ndarray)
        if not addresses.size:
            return None
        if type(pointers) is not Lanes:
            return _Access(addresses, numbers if len(numbers) == 1 else None, width)
        owners = np.broadcast_to(numbers.reshape(-1, *[1] * (pointers.ndim - 1)), pointers.shape)
        return _Access(addresses, owners.reshape(-1) if everywhere else owners[mask.view(np.ndarray)], width)

    def read(self, access: _Access | None) -> None:
        """Raises Apart if one of these programs, or another, has written there."""
        if access is None:
            return
        for other in self.writes:
            if access.first <= other.last and other.first <= access.last:
                if access.width != other.width or np.isin(access.addresses, other.addresses).any():
                    raise Apart
        self.reads.append(access)

    def conflict(self) -> bool:
        """Whether one program touches what another writes."""
        if not self.writes:
            return False
        addresses = np.concatenate([each.addresses for each in self.writes])
        owners = np.concatenate([np.broadcast_to(each.owners(), each.addresses.shape) for each in self.writes])
        order = np.argsort(addresses, kind="stable")
        addresses, owners = addresses[order], owners[order]
        if ((addresses[1:] == addresses[:-1]) & (owners[1:] != owners[:-1])).any():
            return True
        spans = self.spans()
        if spans is None:
            return True
        firsts, lasts, widths = spans
        for access in self.reads:
            place = int(np.searchsorted(lasts, access.first))
            if place == len(lasts) or firsts[place] > access.last:
                continue
            until = int(np.searchsorted(firsts, access.last, side="right"))
            if any(width != access.width for width in widths[place:until]):
                return True
            found = np.minimum(np.searchsorted(addresses, access.addresses), len(addresses) - 1)
            same = addresses[found] == access.addresses
            if (same & (owners[found] != np.broadcast_to(access.owners(), same.shape))).any():
                return True
        return False

    def spans(self) -> tuple[list[int], list[int], list[int]] | None:
        """Runs of memory that writes lie in, in order; None if writes of several widths meet."""
        firsts, lasts, widths = list[int](), list[int](), list[int]()
        for each in sorted(self.writes, key=lambda each: each.first):
            if lasts and each.first <= lasts[-1]:
                if widths[-1] != each.width:
                    return None
                lasts[-1] = max(lasts[-1], each.last)
            else:
                firsts.append(each.first)
                lasts.append(each.last)
                widths.append(each.width)
        return firsts, lasts, widths

    def write(self) -> None:
        for store in self.waiting:
            store()


# ---------------------------------------------------------------- the builder's methods
def _is_together(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_is_together, value))
    return type(getattr(value, "data", None)) is Lanes


def _made(handle: Any, data: np.ndarray) -> Any:
    """A handle with the same data, spread."""
    made = interpreter.TensorHandle(data, handle.dtype)
    if (residues := getattr(handle, "residues", None)) is not None:
        made.residues = residues
    elif Way.after and handle.dtype.is_floating():
        if handle.data.size > 1:
            raise Apart
        Way.after["create_splat"](made, None, handle)
    return made


def _moved(function: Callable[..., np.ndarray], *handles: Any) -> Any:
    """What a function makes of the data of handles, and of each prime's residues, where there are some."""
    made = interpreter.TensorHandle(function(*(handle.data for handle in handles)).view(Lanes), handles[0].dtype)
    if Way.after and made.dtype.is_floating():
        residues: list[Any] = [getattr(handle, "residues", None) for handle in handles]
        if any(each is None for each in residues):
            raise Apart
        kinds = [type(handle.data) for handle in handles]
        every = range(residues[0].shape[-1])
        parts = [function(*(each[..., prime].view(kind) for each, kind in zip(residues, kinds))) for prime in every]
        made.residues = np.stack(parts, axis=-1)
    return made


class _Builder(interpreter.InterpreterBuilder):
    """The interpreter's builder while programs run together. What is not said here, and not in `_BY_LANE`, takes only
    what all programs have in common."""

    memory: _Memory

    def every(self, data: np.ndarray) -> np.ndarray:
        """The same data for each of the programs."""
        if type(data) is Lanes:
            return data
        return np.broadcast_to(data, (len(self.memory.numbers), *np.shape(data))).view(Lanes)

    def create_get_program_id(self, axis):
        numbers = self.memory.places[axis, self.memory.numbers]
        same = numbers[:1] if (numbers == numbers[0]).all() else numbers.reshape(-1, 1).view(Lanes)
        return interpreter.TensorHandle(same, tl.int32)

    # ------------------------------------------------------------ moves
    def create_splat(self, ret_ty, x):
        if type(x.data) is not Lanes:
            return super().create_splat(ret_ty, x)
        return _moved(lambda data: spread(data, tuple(ret_ty.shape)).copy(), x)

    def create_split(self, x):
        sides = super().create_split(x)
        if type(x.data) is Lanes and x.data.ndim == 2:
            sides = tuple(_moved(lambda data: data.reshape(-1, 1), side) for side in sides)
        return sides

    def create_join(self, x, y):
        if not _is_together((x, y)):
            return super().create_join(x, y)
        return _moved(lambda x, y: np.stack([self.every(x), self.every(y)], axis=-1), x, y)

    def create_cat(self, x, y):
        if not _is_together((x, y)):
            return super().create_cat(x, y)
        return _moved(lambda x, y: np.concatenate([self.every(x), self.every(y)], axis=1), x, y)

    def create_gather(self, x, at, axis):
        if not _is_together((x, at)):
            return super().create_gather(x, at, axis)
        places = self.every(at.data)
        return _moved(lambda x: np.take_along_axis(self.every(x), places, axis=axis + 1), x)

    def create_dot(self, a, b, accumulator, *rest):
        together = _is_together((a, b, accumulator))
        if together and Way.after:  # products of residues want as many axes of both
            a, b, accumulator = (_moved(self.every, each) for each in (a, b, accumulator))
        made = super().create_dot(a, b, accumulator, *rest)
        made.data = made.data.view(Lanes) if together else made.data
        return made

    # ------------------------------------------------------------ memory
    def create_masked_load(self, pointers, mask, other, *rest, **options):
        lanes = mask.data if isinstance(mask, interpreter.TensorHandle) else mask  # of a descriptor
        parts = [pointers.data, lanes] + ([] if other is None else [other.data])
        together = any(type(each) is Lanes for each in parts)
        if together:
            parts = [each.view(Lanes) for each in np.broadcast_arrays(*parts)]
            pointers, mask = _made(pointers, parts[0]), interpreter.TensorHandle(parts[1], tl.int1)
            other = None if other is None else _made(other, parts[2])
        width = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        self.memory.read(self.memory.access(parts[0], np.broadcast_to(parts[1], parts[0].shape), width))
        out = super().create_masked_load(pointers, mask, other, *rest, **options)
        out.data = out.data.view(Lanes) if together else out.data
        return out

    def create_masked_store(self, pointers, value, mask, *rest, **options):
        lanes = mask.data if isinstance(mask, interpreter.TensorHandle) else mask
        parts = [*np.broadcast_arrays(pointers.data, value.data, lanes)]
        if _is_together((pointers, value)) or type(lanes) is Lanes:
            parts = [each.view(Lanes) for each in parts]
        elif len(self.memory.numbers) > 1:
            raise Apart
        width = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        if (access := self.memory.access(parts[0], parts[2], width)) is not None:
            self.memory.writes.append(access)
        made = _made(pointers, parts[0]), _made(value, parts[1]), interpreter.TensorHandle(parts[2], tl.int1)
        store = super().create_masked_store
        self.memory.waiting.append(lambda: store(*made, *rest, **options))

    def create_print(self, *operands):
        raise Apart

    create_atomic_rmw = create_atomic_cas = create_print


#: Lane by lane, whatever the shape.
_BY_LANE = """add and ashr assert assume bitcast ceil clampf cos erf exp exp2 extern_elementwise fabs fadd fcmpOEQ
fcmpOGE fcmpOGT fcmpOLE fcmpOLT fcmpONE fcmpUEQ fcmpUGE fcmpUGT fcmpULE fcmpULT fcmpUNE fdiv floor fma fmul fp_ext
fp_to_fp fp_to_si fp_to_ui fp_trunc frem fsub iabs icmpEQ icmpNE icmpSGE icmpSGT icmpSLE icmpSLT icmpUGE icmpUGT icmpULE
icmpULT idiv int_cast int_to_ptr log log2 lshr maximumf maxnumf maxsi maxui minimumf minnumf minsi minui mul or
precise_divf precise_sqrt ptr_to_int rsqrt sdiv select shl si_to_fp sin sqrt srem sub udiv ui_to_fp umulhi urem xor
addptr""".split()
#: These call others.
_BY_OTHERS = "create_load create_store create_descriptor_load create_descriptor_store".split()
#: How the rest moves data.
_MOVES: dict[str, Callable[..., np.ndarray]] = {
    "create_reshape": lambda data, shape, *_: reshaped(data, tuple(shape)),
    "create_trans": lambda data, order: np.transpose(data, (0, *(int(axis) + 1 for axis in order))),
    "create_expand_dims": lambda data, axis: np.expand_dims(data, axis + 1),
    "create_broadcast": lambda data, shape: spread(data, tuple(shape)),
    "create_unsplat": lambda data: data.reshape(len(data), -1)[:, :1],
}


def _method(name: str) -> Callable:
    """One that `_Builder` doesn't have itself."""
    owner, lanes, move = interpreter.InterpreterBuilder, name[7:] in _BY_LANE or name == "cast_impl", _MOVES.get(name)

    def method(self, *operands, **options):
        # (Looked for each time: who follows residues puts methods of its own there.)
        if not (_is_together(operands) or _is_together([*options.values()])):
            return getattr(owner, name)(self, *operands, **options)
        if move:
            return _moved(lambda data: move(data, *operands[1:]), operands[0])
        if not lanes:
            raise Apart
        made = getattr(owner, name)(self, *operands, **options)
        if made is not None:
            made.data = made.data.view(Lanes)
        return made

    return method


for _name in dir(interpreter.InterpreterBuilder):
    if (_name.startswith("create_") or _name == "cast_impl") and _name not in {*vars(_Builder), *_BY_OTHERS}:
        setattr(_Builder, _name, _method(_name))


def _descriptor(original: Callable) -> Callable:
    """The addresses of a descriptor's block, one program after the other."""

    def materialize_pointers(self, offsets):
        if not _is_together(offsets):
            return original(self, offsets)
        builder = interpreter.interpreter_builder
        every = zip(*(builder.every(offset.data) for offset in offsets))
        made = [original(self, [_made(offset, one) for offset, one in zip(offsets, ones)]) for ones in every]
        pointers, masks = zip(*made)
        return _made(pointers[0], np.stack([each.data for each in pointers]).view(Lanes)), np.stack(masks).view(Lanes)

    return materialize_pointers


# ---------------------------------------------------------------- reductions and scans
def _along(original: Callable) -> Callable:
    """The axis of a reduction or scan is one further back."""

    def apply_impl(self, operands):
        several = isinstance(operands, (tuple, list))
        blocks = list(operands) if several else [operands]
        if not _is_together([block.handle for block in blocks]):
            return original(self, operands)
        builder, sizes, axis = interpreter.interpreter_builder, blocks[0].type._kind.sizes, self.axis
        validate, tl.core.validate_block_shape = tl.core.validate_block_shape, lambda shape: int(np.prod(shape))
        try:
            flat = (lambda data: data.reshape(len(data), -1)) if axis is None else (lambda data: data)
            moved = [_block(_moved(lambda data: flat(builder.every(data)), block.handle)) for block in blocks]
            self.axis = 1 if axis is None else axis + 1
            made = original(self, type(operands)(moved) if several else moved[0])
        finally:
            tl.core.validate_block_shape, self.axis = validate, axis
        if isinstance(self, interpreter.ReduceOps):
            left = [1 if d == axis or axis is None else size for d, size in enumerate(sizes)]
            sizes = tuple(size for d, size in enumerate(left) if self.keep_dims or not (d == axis or axis is None))
        results = list(made) if isinstance(made, (tuple, list)) else [made]
        count = len(builder.memory.numbers)
        handles = [_moved(lambda data: data.reshape(count, *(sizes or (1,))), each.handle) for each in results]
        results = [kind_of(each.dtype, sizes).holding(handle) for each, handle in zip(results, handles)]
        return type(made)(results) if isinstance(made, (tuple, list)) else results[0]

    return apply_impl


def _block(handle: Any) -> tl.tensor:
    """Programs beside each other as one block."""
    handle.data = handle.data.view(np.ndarray)
    return tl.tensor(handle, tl.block_type(handle.dtype, list(handle.data.shape)))


# ---------------------------------------------------------------- conditions
def _one(data: np.ndarray) -> Any:
    """The number that all programs have; Parted if they have several."""
    values = data.reshape(-1).view(np.ndarray)
    if (values == values[0]).all() or len(np.unique(values)) == 1:
        return values[0]
    raise Parted(values)


def _as_condition(self) -> bool:
    asks = sys._getframe(1).f_code.co_filename
    if asks == semantic.__file__:  # whether there is an operand
        return True
    data = self.handle.data
    if type(data) is Lanes:
        if self.type.is_block():
            raise Apart
        return bool(_one(data))
    if data.size > 1 and not asks.startswith(TRITON):
        raise Apart
    return bool(data) if data.size == 1 else True


def _as_index(self) -> int:
    data = self.handle.data
    return int(_one(data)) if type(data) is Lanes else int(data.squeeze())


@contextlib.contextmanager
def _patched(memory: _Memory) -> Iterator[None]:
    """While this lasts, the interpreter computes with the data of several programs."""
    builder, descriptor = interpreter.interpreter_builder, interpreter.TensorDescHandle
    changes: list[tuple[Any, str, Any]] = [
        (descriptor, "materialize_pointers", _descriptor(descriptor.materialize_pointers)),
        *((owner, "apply_impl", _along(owner.apply_impl)) for owner in (interpreter.ReduceOps, interpreter.ScanOps)),
        (tl.tensor, "__bool__", _as_condition),
        (tl.tensor, "__index__", _as_index),
    ]
    before = [(owner, name, vars(owner)[name]) for owner, name, _ in changes]
    for change in changes:
        setattr(*change)
    builder.memory, before_class = memory, builder.__class__
    builder.__class__ = _Builder
    try:
        yield
    finally:
        builder.__class__ = before_class
        for change in before:
            setattr(*change)
