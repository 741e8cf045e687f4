"""What the simulator does instead of each function of Gluon's language.

Importing this fills `rewriting.MODELLED`. Names: `Aggregate`.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from triton import JITFunction
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper

from academy.gluon import along_axis, layouts, rewriting, shared, units
from academy.gluon.errors import WrongLayout, WrongUse, need, place
from academy.gluon.machine import PARTITIONS, Agent, machine
from academy.gluon.rewriting import Steps
from academy.gluon.values import Pointer, Range, Tensor, of_number, rounded, scalar, tensor_of, unwrap


class Aggregate:
    """An instance of an aggregate class: its fields, and its jitted methods."""

    def __init__(self, kind: Any):
        self.__dict__["_kind"] = kind

    @classmethod
    def made(cls, kind: Any, args: Any, kwargs: Any) -> Steps:
        instance = cls(kind)
        constructor = kind.hash_attrs[0]
        while hasattr(constructor, "fn") and not isinstance(constructor, JITFunction):
            constructor = constructor.fn
        if constructor is object.__init__:
            vars(instance).update(zip(kind.__annotations__, map(unwrap, args)))
        else:
            yield from rewriting.call(
                constructor, instance, *map(unwrap, args), **{k: unwrap(v) for k, v in kwargs.items()}
            )
        for name, value in vars(instance).items():
            vars(instance)[name] = unwrap(value)
        return instance

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._kind, name)
        member = member if isinstance(member, JITFunction) else getattr(member, "fn", member)
        return _bound(self, member) if callable(member) or isinstance(member, JITFunction) else member


def _bound(instance: Aggregate, member: Any) -> Callable:
    return lambda *args, **kwargs: rewriting.call(member, instance, *args, **kwargs)


# ---- making tensors ----
def _laid_out(values: Any, dtype: Any, layout: Any) -> Tensor:
    layout = layouts.ANY if unwrap(layout) is None else unwrap(layout)
    if np.ndim(values):
        layouts.check(layout, np.shape(values), machine().now.warps)
    return Tensor(values, dtype, layout if np.ndim(values) else None)


def full(shape: Any, value: Any, dtype: Any, layout: Any = None) -> Tensor:
    sizes, dtype = [int(unwrap(size)) for size in unwrap(shape)], unwrap(dtype)
    return _laid_out(np.broadcast_to(rounded(tensor_of(value).values, dtype), sizes).copy(), dtype, layout)


def full_like(x: Tensor, value: Any, shape: Any = None, dtype: Any = None, layout: Any = None) -> Tensor:
    return full(x.shape if unwrap(shape) is None else shape, value, dtype or x.dtype, layout or x.layout)


def arange(start: Any, end: Any, layout: Any = None) -> Tensor:
    return _laid_out(np.arange(int(unwrap(start)), int(unwrap(end))), gl.int32, layout)


def convert_layout(value: Tensor, layout: Any, assert_trivial: Any = False) -> Tensor:
    layout = unwrap(layout)
    layouts.check(layout, tuple(value.shape), machine().now.warps)
    if bool(unwrap(assert_trivial)):
        shape = tuple(value.shape)
        kept = layouts.linear(value.layout, shape).same_threads(layouts.linear(layout, shape))
        need(kept, f"the conversion isn't trivial. {layouts.mismatch(value.layout, layout, shape)}", WrongLayout)
    return value.like(value.values, layout=layout)


def where(condition: Any, x: Any, y: Any) -> Tensor:
    condition, x, y = tensor_of(condition), tensor_of(x), tensor_of(y)
    chosen = x.combine(y, lambda a, b: np.broadcast_arrays(a, b)[0])  # dtype, layout and shape of the two together
    layout = condition.combine(chosen, lambda a, b: np.broadcast_arrays(a, b)[0]).layout
    return Tensor(
        np.where(condition.values, rounded(x.values, chosen.dtype), rounded(y.values, chosen.dtype)),
        chosen.dtype,
        layout,
    )


# ---- lane by lane ----
def _pair(function: Callable) -> Callable:
    def combined(x: Any, y: Any, *_: Any, **__: Any) -> Tensor:
        x = unwrap(x)
        return (x if isinstance(x, Tensor) else Tensor(x, of_number(x, getattr(y, "dtype", None)))).combine(
            unwrap(y), function
        )

    return combined


def _single(function: Callable) -> Callable:
    def mapped(x: Any, *_: Any, **__: Any) -> Tensor:
        x = tensor_of(x)
        kind = x.dtype if x.dtype.is_floating() else gl.float32
        with np.errstate(all="ignore"):
            return x.like(rounded(function(x.values.astype(np.float64)), kind), kind)

    return mapped


def _fma(x: Any, y: Any, z: Any) -> Tensor:
    wide = tensor_of(x).combine(y, lambda a, b: a.astype(np.float64) * b.astype(np.float64), to=gl.float64)
    kind = tensor_of(x).dtype
    return wide.combine(z, np.add, to=gl.float64).to(kind)


def _absolute(x: Any) -> Tensor:
    return tensor_of(x).like(np.abs(tensor_of(x).values))


# ---- global memory, the program, partitions ----
def _load(pointer: Pointer, mask: Any = None, other: Any = None, **_: Any) -> Tensor:
    machine().note(machine().now.what, "load", memory=pointer.name)
    return pointer.load(mask, other)


def _save(pointer: Pointer, value: Any, mask: Any = None, **_: Any) -> None:
    machine().note(machine().now.what, "store", memory=pointer.name)
    pointer.store(value, mask)


def _atomic(name: str, function: Callable) -> Callable:
    def atomic(pointer: Pointer, value: Any, mask: Any = None, sem: Any = None, **_: Any) -> Steps:
        yield
        if unwrap(sem) == "release":
            units.have_arrived(name, pointer.name)
        on = (
            np.ones(pointer.offset.shape, bool)
            if unwrap(mask) is None
            else np.broadcast_to(tensor_of(mask).values, pointer.offset.shape)
        )
        given = np.broadcast_to(tensor_of(value).values, pointer.offset.shape)
        machine().note(machine().now.what, name, memory=pointer.name)
        pointer.told(name, mask, given)
        old: np.ndarray = np.zeros(pointer.offset.shape, shared.numpy_type(pointer.dtype.element_ty))
        for index in np.ndindex(*pointer.offset.shape):  # lanes that share an address come one after another
            if on[index]:
                lane = Pointer(pointer.memory, pointer.offset[index], name=pointer.name)
                before = lane.read()
                old[index] = before.values
                lane.write(before.combine(scalar(given[index], pointer.dtype.element_ty), function))
        if unwrap(sem) == "acquire" and not pointer.offset.shape:
            machine().now.polls(name, pointer.name, old.item())
        return Tensor(old, pointer.dtype.element_ty, pointer.layout if pointer.offset.shape else None)

    return atomic


def warp_specialize(functions_and_args: Any, worker_num_warps: Any, worker_num_regs: Any = None) -> Steps:
    """Each partition becomes an agent; the first goes on with the warps that are already there."""
    state, parent = machine(), machine().now
    warps = [int(unwrap(each)) for each in unwrap(worker_num_warps)]
    workers = len(functions_and_args) - 1
    need(len(warps) == workers, f"{workers} worker partitions, and {len(warps)} numbers of warps")
    if unwrap(worker_num_regs) is not None:
        registers = [int(unwrap(each)) for each in unwrap(worker_num_regs)]
        need(len(registers) == workers, f"{workers} worker partitions, and {len(registers)} numbers of registers")
        fits = all(each % 8 == 0 and 24 <= each <= 256 for each in registers)
        need(fits, f"registers a thread must be multiples of 8 from 24 to 256, not {registers}")
    children: list[tuple[Agent, Steps]] = []
    answers: dict[Agent, Any] = {}
    names = [function.fn.__name__ for function, _ in functions_and_args]
    for number, (function, args) in enumerate(functions_and_args):
        name = (
            names[number]
            if names.count(names[number]) == 1
            else f"{names[number]} {names[:number].count(names[number])}"
        )
        child = Agent(name, parent, warps=parent.warps if number == 0 else warps[number - 1])
        if number:
            laid = [value for value in args if isinstance(value, Tensor) and value.shape]
            need(
                not laid, f"{name}: a worker partition has threads of its own and can't take tensors from the first one"
            )
        children.append((child, _partition(child, function, args, answers)))
    parent.tick()
    for child, code in children:
        state.add(child, code)
    agents = [child for child, _ in children]
    here = place()
    state.note(parent.what, "wait", awaits=PARTITIONS)
    yield (lambda: all(child.finished for child in agents)), here, lambda: PARTITIONS
    state.note(parent.what, "go on")
    for child in agents:
        parent.join(child.clock, child.fenced)
    parent.stores += agents[0].stores  # the same threads: they may still wait for these
    return answers.get(agents[0])


def _partition(child: Agent, function: Any, args: Any, answers: dict) -> Steps:
    answers[child] = yield from rewriting.call(function, *args)


def make_tensor_descriptor(
    base: Pointer, shape: Any, strides: Any, block_shape: Any, layout: Any, padding_option: Any = "zero"
) -> Any:
    sizes, steps, block = ([int(unwrap(each)) for each in values] for values in (shape, strides, block_shape))
    memory = base.memory[int(base.offset) :]
    return units.Descriptor(memory, sizes, steps, block, unwrap(layout), unwrap(padding_option) == "nan", base.name)


def _assembly(asm: Any, constraints: Any, args: Any, *rest: Any, **_: Any) -> Steps:
    """What Gluon has only as inline assembly: named barriers, the wait until copies have arrived, and a number's copy,
    which is for the compiler's sake."""
    if unwrap(asm) == "mov.b32 $0, $1;":
        return args[0]
    if found := re.match(r"\s*cp\.async\.bulk\.wait_group\s+(\d+)\s*;", unwrap(asm)):
        yield from units.arrival_wait(int(found.group(1)))
        return args[0]
    return (yield from shared.named_barrier(asm, constraints, args, *rest))


def _number_of_programs(axis: Any) -> Tensor:
    return scalar(machine().grid[int(unwrap(axis))])


def _static_assert(condition: Any, message: Any = "") -> None:
    need(bool(unwrap(condition)), f"static_assert: {unwrap(message)}")


def _device_assert(condition: Any, message: Any = "", mask: Any = None) -> None:
    need(bool(np.all(tensor_of(condition).values)), f"device_assert: {unwrap(message)}", WrongUse)


def _cdiv(x: Any, y: Any) -> Any:
    x, y = unwrap(x), unwrap(y)
    return (x + (y - 1)) // y


def _table() -> dict[str, Callable]:
    """Gluon's names -> what stands for them."""
    table: dict[str, Callable] = dict(
        full=full, full_like=full_like, arange=arange, convert_layout=convert_layout, where=where,
        reduce=along_axis.reduce,
        zeros=lambda shape, dtype, layout=None: full(shape, 0, dtype, layout),
        zeros_like=lambda x, shape=None, dtype=None, layout=None: full_like(x, 0, shape, dtype, layout),
        associative_scan=along_axis.associative_scan, load=_load, store=_save, warp_specialize=warp_specialize,
        allocate_shared_memory=shared.allocate, inline_asm_elementwise=_assembly, cdiv=_cdiv,
        num_warps=lambda: machine().now.warps, num_ctas=lambda: 1,
        program_id=lambda axis: scalar(machine().program[int(unwrap(axis))]), num_programs=_number_of_programs,
        static_range=lambda *bounds: range(*(int(unwrap(bound)) for bound in bounds)),
        static_assert=_static_assert, device_assert=_device_assert, assume=lambda condition: None,
        static_print=lambda *_, **__: None, device_print=lambda *_, **__: None,
        to_tensor=tensor_of, barrier=lambda **_: None, thread_barrier=lambda: None, dot_fma=units.product_now,
        sum=along_axis.reduction(np.sum), max=along_axis.reduction(np.max), min=along_axis.reduction(np.min),
        maximum=_pair(np.fmax), minimum=_pair(np.fmin), add=_pair(np.add),
        sub=_pair(np.subtract), mul=_pair(np.multiply),
        fma=_fma, abs=_absolute,
        exp=_single(np.exp), exp2=_single(np.exp2), log=_single(np.log), log2=_single(np.log2), sqrt=_single(np.sqrt),
        rsqrt=_single(lambda x: 1 / np.sqrt(x)), sin=_single(np.sin), cos=_single(np.cos), floor=_single(np.floor),
        ceil=_single(np.ceil), sqrt_rn=_single(np.sqrt), fdiv=lambda x, y, *_, **__: x / y, div_rn=lambda x, y: x / y,
        multiple_of=lambda x, *_: x, max_contiguous=lambda x, *_: x, max_constancy=lambda x, *_: x,
        set_auto_layout=convert_layout,
    )  # fmt: skip
    atomics: dict[str, Callable] = dict(
        add=np.add, max=np.maximum, min=np.minimum, xchg=lambda old, new: new,
        **{"and": np.bitwise_and, "or": np.bitwise_or},
    )  # fmt: skip
    table |= {f"atomic_{name}": _atomic(f"atomic_{name}", function) for name, function in atomics.items()}
    for name in ("reshape", "permute", "split", "join", "expand_dims"):
        table[name] = lambda x, *args, _name=name: getattr(x, _name)(*args)
    table["broadcast"] = lambda x, y: tuple(
        a.combine(b, lambda p, q: np.broadcast_arrays(p, q)[0], to=a.dtype) for a, b in ((x, y), (y, x))
    )
    table["cast"] = lambda x, dtype, *_, **__: tensor_of(x).to(dtype)
    return table


ATOMIC_COPIES = {f"async_atomic_{name}": units.tma_reduce(name) for name in ("add", "min", "max", "and", "or", "xor")}


def _modelled() -> dict[Any, Callable]:
    """id of a function -> what stands for it. The names that a release doesn't have are left out."""
    found: dict[Any, Any] = {
        id(getattr(gl, name)): function for name, function in _table().items() if hasattr(gl, name)
    }
    barriers = dict(
        init=shared.init, expect=shared.expect, arrive=shared.arrive, wait=shared.wait, invalidate=shared.invalidate
    )
    copies: dict[str, Any] = dict(
        async_copy_global_to_shared=units.tma_load, async_load=units.tma_load,
        async_copy_shared_to_global=units.tma_store,
        async_store=units.tma_store, store_wait=units.store_wait, make_tensor_descriptor=make_tensor_descriptor,
    )  # fmt: skip
    copies |= ATOMIC_COPIES
    elements = dict(
        async_copy_global_to_shared=units.copy_elements, async_load=units.copy_elements,
        commit_group=units.commit_group,
        wait_group=units.wait_group, mbarrier_arrive=units.copies_arrive,
    )  # fmt: skip
    products = dict(
        warpgroup_mma=units.product, warpgroup_mma_wait=units.product_wait, warpgroup_mma_init=lambda value: value,
        fence_async_shared=units.fence,
    )  # fmt: skip
    for module, names in (
        (hopper.mbarrier, barriers),
        (hopper.tma, copies),
        (hopper.async_copy, elements),
        (hopper, products),
    ):
        found |= {id(getattr(module, name)): function for name, function in names.items() if hasattr(module, name)}
    found[id(hopper.mma_v2)] = units.product_now
    found["aggregate"] = Aggregate.made
    found |= {id(gl.constexpr): unwrap, id(builtins.range): Range, id(gl.float32): gl.float32}
    return found


rewriting.MODELLED.update(_modelled())
rewriting.NAMED.update(ATOMIC_COPIES)


def _methods() -> None:
    """`x.sum(0)` is `gl.sum(x, 0)`."""
    names = ("sum", "max", "min", "reduce", "associative_scan", "abs", "exp", "exp2", "log", "log2", "sqrt", "rsqrt")
    for name in filter(partial(hasattr, gl), names):
        function = rewriting.MODELLED[id(getattr(gl, name))]
        setattr(Tensor, name, lambda self, *args, _f=function, **kwargs: _f(self, *args, **kwargs))


_methods()
