"""The asynchronous units: copies of tiles (TMA), copies of elements (cp.async), and the tensor cores.

Names: `Descriptor`, `Product`; `tma_load`, `tma_store`, `tma_reduce`, `store_wait`, `arrival_wait`, `have_arrived`;
`copy_elements`, `commit_group`, `wait_group`, `copies_arrive`; `product`, `product_wait`, `product_now`; `fence`.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from triton.experimental.gluon import language as gl

from academy.gluon import arrays, layouts
from academy.gluon.errors import Race, WrongLayout, need, place
from academy.gluon.machine import Agent, machine
from academy.gluon.rewriting import Steps
from academy.gluon.shared import Shared, barrier_of
from academy.gluon.values import Pointer, Tensor, dtype_of, numpy_type, rounded, unwrap
from academy.gluon.watching import Party


class Descriptor:
    """A tensor descriptor. nan: whether what lies outside of the tensor reads as NaN instead of zero."""

    def __init__(
        self, base: torch.Tensor, shape: Any, strides: Any, block_shape: Any, layout: Any, nan: bool, name: str
    ):
        self.tensor = base.as_strided([int(size) for size in shape], [int(stride) for stride in strides])
        self.shape, self.strides, self.layout, self.name, self.nan = list(shape), list(strides), layout, name, nan
        self.dtype, self.block_shape = dtype_of(base), [int(size) for size in block_shape]
        nbytes = math.prod(self.block_shape) * base.element_size()
        self.block_type = SimpleNamespace(shape=self.block_shape, nbytes=nbytes, element_ty=self.dtype)
        self.nbytes_per_cta = nbytes

    def told(self, operation: str, at: Any, values: np.ndarray) -> None:
        """Tell whoever watches which elements a copy is about to read, to write or to change. values: of the tile."""
        watcher = machine().watcher
        if watcher is None:
            return
        addresses: np.ndarray = np.asarray(self.tensor.data_ptr(), np.int64)
        active: np.ndarray = np.ones((), bool)
        for first, size, limit, stride in zip(at, self.block_shape, self.tensor.shape, self.tensor.stride()):
            index = int(unwrap(first)) + np.arange(size)
            addresses = addresses[..., None] + index * stride * self.tensor.element_size()
            active = active[..., None] & (index >= 0) & (index < limit)
        watcher.accesses(operation, addresses, active, values)

    def tile(self, at: Any) -> np.ndarray:
        """What a load brings: zeros or NaN outside of the tensor."""
        outer, inner = self.box(at)
        tile = arrays.full(self.block_shape, np.nan if self.nan else 0, numpy_type(self.dtype))
        part = self.tensor[outer]
        tile[inner] = arrays.from_torch(part.float() if self.dtype.is_floating() else part)
        return tile

    def box(self, at: Any) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """The part of the tensor, and the part of the tile, where a tile at these coordinates lies inside."""
        start = [int(unwrap(each)) for each in at]
        need(
            len(start) == len(self.shape),
            f"{self.name} has {len(self.shape)} dimensions; {len(start)} coordinates came",
        )
        outer, inner = [], []
        for first, size, limit in zip(start, self.block_shape, map(int, self.shape)):
            low, high = min(max(first, 0), limit), min(max(first + size, 0), limit)
            outer.append(slice(low, max(low, high)))
            inner.append(slice(low - first, low - first + max(0, high - low)) if high > low else slice(0, 0))
        return tuple(outer), tuple(inner)

    def fits(self, buffer: Shared) -> None:
        same = buffer.shape == self.block_shape and buffer.dtype == self.dtype
        need(
            same,
            f"{self.name} moves tiles {self.dtype}{self.block_shape}; {buffer.name} is {buffer.dtype}{buffer.shape}",
        )
        need(
            buffer.layout == self.layout,
            f"{self.name} has {layouts.short(self.layout)}, and {buffer.name} has {layouts.short(buffer.layout)}. The "
            "TMA writes a tile as the descriptor says: give both the same layout",
            WrongLayout,
        )


def tma_load(tensor_desc: Descriptor, coord: Any, barrier: Shared, result: Shared, pred: Any = True, **_: Any) -> Steps:
    """A tile from global to shared memory. Its bytes count at the barrier, when they are there."""
    yield
    if not bool(unwrap(pred)):
        return
    tensor_desc.fits(result)
    state = machine()
    agent, there = state.start("TMA load"), barrier_of(barrier)
    there.known_to(agent, "TMA load")
    tensor_desc.told("load", coord, tensor_desc.tile(coord))
    state.access(agent, result, write=True, ordinary=False, what="TMA load")

    def complete() -> None:
        result.array[...] = tensor_desc.tile(coord)
        agent.end()
        there.update(agent, bytes_=-tensor_desc.block_type.nbytes, what="TMA load")

    state.pending.append(complete)


def tma_store(tensor_desc: Descriptor, coord: Any, src: Shared) -> Steps:
    """A tile from shared to global memory."""
    return _store(tensor_desc, coord, src, "TMA store", "store", lambda old, new: new)


def tma_reduce(name: str) -> Any:
    """A tile that is combined with what global memory holds: `add`, `min`, `max`, `and`, `or`, `xor`."""
    combine = dict(add=torch.add, min=torch.minimum, max=torch.maximum, xor=torch.bitwise_xor)
    combine |= {"and": torch.bitwise_and, "or": torch.bitwise_or}

    def reduce(tensor_desc: Descriptor, coord: Any, src: Shared, **_: Any) -> Steps:
        return _store(tensor_desc, coord, src, f"TMA {name}", f"atomic_{name}", combine[name])

    return reduce


def _store(descriptor: Descriptor, coord: Any, src: Shared, what: str, operation: str, combine: Any) -> Steps:
    yield
    descriptor.fits(src)
    outer, inner = descriptor.box(coord)
    state = machine()
    agent = state.start(what)
    state.access(agent, src, write=False, ordinary=False, what=what)
    descriptor.told(operation, coord, src.array)

    def complete() -> None:
        target = descriptor.tensor[outer]
        new = arrays.to_torch(src.array[inner]).to(target.dtype)
        target.copy_(combine(target.clone(), new))
        agent.end()

    state.pending.append(complete)
    state.now.stores.append(agent)
    state.now.on_their_way.append(agent)


def store_wait(pendings: Any) -> Steps:
    """Until at most so many of this partition's copies to global memory still read shared memory.

    Whether the others have arrived there by then, nobody knows: `arrival_wait` does.
    """
    yield from _stores_wait(int(unwrap(pendings)))


def arrival_wait(pendings: int) -> Steps:
    """Until all but so many of this partition's copies have arrived in global memory."""
    yield from _stores_wait(pendings)
    now = machine().now
    now.on_their_way = now.stores[:]


def _stores_wait(pendings: int) -> Steps:
    state, now, here = machine(), machine().now, place()
    waited = now.stores[: max(0, len(now.stores) - pendings)]
    state.note(now.what, "wait", awaits=f"all but {pendings} of its copies to global memory")
    yield (lambda: all(store.finished for store in waited)), here, lambda: "its copies to global memory"
    state.note(now.what, "go on")
    for store in waited:
        now.stores.remove(store)
        now.join(store.clock, {})


def have_arrived(operation: str, memory: str) -> None:
    """Raises Race if a partition tells others of its copies, by an atomic operation with `release`, too early."""
    now = machine().now
    if now.on_their_way:
        store = now.on_their_way[0]
        raise Race(
            f"{operation} with release on {memory} at {place()} tells other programs that {now.what} is done, and the "
            f"{store.what} issued at {store.issued} may not have arrived in global memory yet. store_wait waits until "
            "it has been read from shared memory. Wait for cp.async.bulk.wait_group before this line",
            Party(place(), now.what, operation, now.last_wait), Party(store.issued, now.what, store.what, ""),
        )  # fmt: skip


def copy_elements(smem: Shared, pointer: Pointer, mask: Any = None, *_: Any, **__: Any) -> Steps:
    """cp.async: each lane copies an element. It writes as ordinary stores do, not through the async proxy."""
    yield
    need(pointer.shape == smem.shape, f"pointers of {pointer.shape} can't be copied to {smem.name}, {smem.shape}")
    state = machine()
    agent = state.start("cp.async copy")
    state.access(agent, smem, write=True, ordinary=True, what="cp.async copy")
    values = pointer.load(mask, None if unwrap(mask) is None else 0).values

    def complete() -> None:
        smem.array[...] = values
        agent.end()

    state.pending.append(complete)
    state.now.copies.append(agent)


def commit_group() -> None:
    now = machine().now
    now.groups.append(now.copies)
    now.copies = []


def wait_group(num_outstanding: Any = 0) -> Steps:
    """Until at most so many committed groups of cp.async are under way. Copies that aren't committed don't count."""
    state, now, here = machine(), machine().now, place()
    left = len(now.groups) - int(unwrap(num_outstanding))
    waited = [copy for group in now.groups[: max(0, left)] for copy in group]
    state.note(now.what, "wait", awaits=f"all but {int(unwrap(num_outstanding))} of its groups of cp.async")
    yield (lambda: all(copy.finished for copy in waited)), here, lambda: "its groups of cp.async"
    state.note(now.what, "go on")
    now.groups = now.groups[max(0, left) :]
    for copy in waited:
        now.join(copy.clock, {})


def copies_arrive(mbarrier: Shared, increment_count: Any = True) -> Steps:
    """Arrive at a barrier once this partition's cp.async copies so far are complete."""
    yield
    state = machine()
    barrier, agent = barrier_of(mbarrier), state.start("arrival of cp.async copies")
    earlier = [copy for group in [*state.now.groups, state.now.copies] for copy in group]
    if bool(unwrap(increment_count)):
        barrier.missing += 1

    def complete() -> None:
        if not all(copy.finished for copy in earlier):
            state.pending.append(complete)
            return
        for copy in earlier:
            agent.join(copy.clock, copy.fenced)
        barrier.update(agent, 1)

    state.pending.append(complete)
    state.now.copies, state.now.groups = [], []


# ---- tensor cores ----
class Product(Tensor):
    """What an asynchronous product returns: a token. Its values are there after `warpgroup_mma_wait`."""

    def __init__(self, agent: Agent, layout: Any, shape: tuple[int, ...]):
        super().__init__(np.full(shape, np.nan), gl.float32, layout)
        self.agent, self.done = agent, False

    @property
    def values(self) -> np.ndarray:
        need(False, f"the product issued at {self.agent.issued} is used before warpgroup_mma_wait has returned it")
        return self.array

    @property
    def shape(self) -> list[int]:
        return list(self.array.shape)


class Awaited(Product):
    """What `warpgroup_mma_wait` returns of a product: readable if that wait, or a later one, covered it."""

    def __init__(self, product: Product):
        self.product: Product = product.product if isinstance(product, Awaited) else product
        self.dtype, self.layout, self.agent = product.dtype, product.layout, product.agent

    @property
    def array(self) -> np.ndarray:  # type: ignore[override]
        return self.product.array

    @property
    def values(self) -> np.ndarray:
        need(
            self.product.done,
            f"the accumulator of the product issued at {self.agent.issued} is used while it is still being computed: "
            "the last warpgroup_mma_wait leaves it outstanding. Wait for fewer",
        )
        return self.product.array


def product(
    a: Any, b: Any, acc: Any, *, use_acc: Any = True, precision: Any = None, max_num_imprecise_acc: Any = None,
    is_async: Any = False,
) -> Steps:  # fmt: skip
    """wgmma: acc + a b, exact, rounded to float32 once. Operands in shared memory are read through the async proxy."""
    yield
    state = machine()
    now, layout = state.now, acc.layout
    _fits_instruction(a, b, acc, now.warps)
    if isinstance(acc, Product):
        owner = acc.agent.partition
        need(
            owner is now.partition,
            f"the accumulator belongs to {owner.what}; a product can't go on in another partition",
        )
    agent = state.start("wgmma")
    result, add = Product(agent, layout, tuple(acc.shape)), bool(unwrap(use_acc))
    for operand in (a, b):
        if isinstance(operand, Shared):
            state.access(agent, operand, write=False, ordinary=False, what="wgmma")
    left = a.values if isinstance(a, Tensor) else None

    def complete() -> None:
        start = acc.array if add else 0.0  # products are completed in order, so an accumulator in flight is there
        factor = (a.array if left is None else left).astype(np.float64)
        with np.errstate(all="ignore"):  # infinities and NaN go through a product without a word, as on the card
            result.array = rounded(factor @ b.array.astype(np.float64) + start, gl.float32)
        result.done = True
        agent.end()

    now.products.append((agent, complete))
    return result if bool(unwrap(is_async)) else (yield from product_wait(0, (result,)))


def _fits_instruction(a: Any, b: Any, acc: Any, warps: int) -> None:
    """What wgmma asks of its operands."""
    layout, shapes = acc.layout, (list(a.shape), list(b.shape), list(acc.shape))
    hopper = isinstance(layout, gl.NVMMADistributedLayout) and layout.version[0] == 3
    need(
        hopper,
        f"the accumulator needs NVMMADistributedLayout(version=[3, 0], …), not {layouts.short(layout)}",
        WrongLayout,
    )
    layouts.check(layout, tuple(acc.shape), warps)
    need(warps % 4 == 0, f"wgmma is executed by 4, 8 or more warps; this partition has {warps}", WrongLayout)
    (m, k), (k2, n) = shapes[0], shapes[1]
    need(
        k == k2 and shapes[2] == [m, n], f"a {shapes[0]} times b {shapes[1]} doesn't give an accumulator of {shapes[2]}"
    )
    bits = a.dtype.primitive_bitwidth
    rows, columns, depth = layout.instr_shape
    need(depth * bits == 256, f"instr_shape[2] is {depth}; for {a.dtype} it must be {256 // bits}", WrongLayout)
    need(
        rows == 16 and columns % 8 == 0 and columns <= 256,
        f"wgmma has no instruction of shape {layout.instr_shape}",
        WrongLayout,
    )
    need(n % columns == 0 and m % (16 * layout.warps_per_cta[0]) == 0 and k % depth == 0,
         f"a product {m} x {n} x {k} isn't made of instructions {16 * layout.warps_per_cta[0]} x {columns} x {depth}",
         WrongLayout)  # fmt: skip
    need(isinstance(b, Shared), "the right operand of wgmma must be in shared memory")
    if isinstance(a, Tensor):
        fits = isinstance(a.layout, gl.DotOperandLayout) and a.layout.parent == layout and a.layout.operand_index == 0
        need(fits, f"a left operand in registers needs DotOperandLayout(0, {layouts.short(layout)}, {32 // bits}), and "
             f"this one has {layouts.short(a.layout)}", WrongLayout)  # fmt: skip
        need(
            a.layout.k_width == 32 // bits,
            f"k_width is {a.layout.k_width}; for {a.dtype} it must be {32 // bits}",
            WrongLayout,
        )
    for operand in (a, b):
        if isinstance(operand, Shared):
            name = operand.name
            swizzled = isinstance(operand.layout, gl.NVMMASharedLayout)
            need(
                swizzled,
                f"{name} needs NVMMASharedLayout to be an operand, not {layouts.short(operand.layout)}",
                WrongLayout,
            )
            along_k = operand.layout.transposed == (operand is b)
            need(bits == 16 or along_k, f"{name}: neighbours must lie along K for {operand.dtype}; only 16-bit ones "
                 "may be transposed", WrongLayout)  # fmt: skip


def product_wait(num_outstanding: Any = 0, deps: Any = None) -> Steps:
    """Until at most so many of this partition's products are being computed; the oldest are done first."""
    yield
    need(deps is not None, "warpgroup_mma_wait needs deps: the products whose results are used after it")
    state, now = machine(), machine().now
    state.note(now.what, "wait", awaits=f"all but {int(unwrap(num_outstanding))} of its products")
    while len(now.products) > int(unwrap(num_outstanding)):
        agent, complete = now.products.pop(0)
        complete()
        now.join(agent.clock, {})
    state.note(now.what, "go on")
    results = tuple(Awaited(each) if isinstance(each, Product) else each for each in deps)
    return results[0] if len(results) == 1 else results


def product_now(a: Tensor, b: Tensor, acc: Tensor, *_: Any, **__: Any) -> Tensor:
    """mma_v2 and dot_fma: operands and accumulator in registers."""
    for operand, index in ((a, 0), (b, 1)):
        layout = operand.layout
        fits = isinstance(layout, gl.DotOperandLayout) and layout.parent == acc.layout and layout.operand_index == index
        need(fits, f"operand {index} needs DotOperandLayout({index}, {layouts.short(acc.layout)}, …)", WrongLayout)
    exact = a.values.astype(np.float64) @ b.values.astype(np.float64) + acc.values
    return acc.like(rounded(exact, acc.dtype))


def fence(cluster: Any = False) -> None:
    """What this partition and those it has waited for wrote before, the async proxy sees from now on."""
    now = machine().now
    now.fence()
    machine().note(now.what, "fence")
