"""Shared memory and the barriers in it.

Names: `Shared`, `Barrier`, `allocate()`, and what `mbarrier` offers: `init`, `expect`, `arrive`, `wait`, `invalidate`.
"""

from __future__ import annotations

import dataclasses
import re
from types import SimpleNamespace
from typing import Any

import numpy as np
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from academy.gluon import arrays, layouts
from academy.gluon.errors import Miscount, NotModelled, Place, Race, WrongLayout, need, place
from academy.gluon.machine import Agent, Gate, machine
from academy.gluon.rewriting import Steps
from academy.gluon.values import Tensor, numpy_type, size_in_bytes, tensor_of, unwrap
from academy.gluon.watching import Party

#: Bytes of shared memory that one program may have on Hopper.
LIMIT = 227 << 10


class Shared:
    """A buffer, or a part of one. name: for messages, `a_buffers[1]`."""

    def __init__(self, dtype: Any, array: np.ndarray, layout: Any, allocation: str, name: str, barriers: dict | None):
        self.dtype, self.array, self.layout, self.allocation, self.name = dtype, array, layout, allocation, name
        self.barriers = barriers

    @property
    def shape(self) -> list[int]:
        return list(self.array.shape)

    @property
    def rank(self) -> int:
        return self.array.ndim

    @property
    def numel(self) -> int:
        return self.array.size

    @property
    def type(self) -> SimpleNamespace:
        return SimpleNamespace(shape=self.shape, layout=self.layout, element_ty=self.dtype)

    def _part(self, array: np.ndarray, name: str, layout: Any = None) -> Shared:
        return Shared(self.dtype, array, layout or self.layout, self.allocation, name, self.barriers)

    def index(self, index: Any) -> Shared:
        number = int(unwrap(index))
        need(0 <= number < self.shape[0], f"{self.name} has {self.shape[0]} buffers; there is no number {number}")
        return self._part(self.array[number], f"{self.name}[{number}]")

    def slice(self, start: Any, length: Any, dim: Any = 0) -> Shared:
        start, length, dim = int(unwrap(start)), int(unwrap(length)), int(unwrap(dim))
        inside = 0 <= start and start + length <= self.shape[dim]
        need(inside, f"{self.name} has {self.shape[dim]} along {dim}; {start} to {start + length} reaches beyond it")
        part = (slice(None),) * dim + (slice(start, start + length),)
        return self._part(self.array[part], f"{self.name}[{', '.join([':'] * dim + [f'{start}:{start + length}'])}]")

    def permute(self, order: Any) -> Shared:
        axes = tuple(int(unwrap(axis)) for axis in order)
        layout = self.layout
        if isinstance(layout, gl.NVMMASharedLayout) and axes == (1, 0):
            layout = dataclasses.replace(layout, transposed=not layout.transposed)
        return self._part(self.array.transpose(axes), self.name, layout)

    def reshape(self, shape: Any) -> Shared:
        sizes = [int(unwrap(size)) for size in shape]
        need(int(np.prod(sizes)) == self.numel, f"{self.name} is {self.shape}, which can't be reshaped to {sizes}")
        layout = self.layout
        if isinstance(layout, gl.NVMMASharedLayout):
            layout = dataclasses.replace(layout, rank=len(sizes))
        view = self.array.reshape(tuple(sizes))
        need(np.shares_memory(view, self.array), f"{self.name} can't be reshaped to {sizes} in place")
        return self._part(view, self.name, layout)

    def load(self, layout: Any) -> Steps:
        yield
        layout, now = unwrap(layout), machine().now
        layouts.check(layout, tuple(self.shape), now.warps)
        machine().access(now, self, write=False, ordinary=True, what="load")
        return Tensor(self.array.copy(), self.dtype, layout)

    def store(self, value: Tensor) -> Steps:
        yield
        need(isinstance(value, Tensor), f"store takes a tensor, not {type(value).__name__}")
        fits = value.shape == self.shape and value.dtype == self.dtype
        need(fits, f"a tensor {value.dtype}{value.shape} can't be stored to {self.name}, {self.dtype}{self.shape}")
        machine().access(machine().now, self, write=True, ordinary=True, what="store")
        self.array[...] = value.values

    def standing(self) -> str | None:
        """Of one barrier: its phase and what it lacks, in words; None of several, or before `init`."""
        barrier = self.barriers.get(_key(self)) if self.barriers and self.numel == 1 else None
        return barrier and f"barrier in phase {barrier.phase}, {barrier.lacks(places=False)}"

    def _keep_alive(self) -> None: ...

    def _reinterpret(self, *_: Any) -> None:
        raise NotModelled("the simulator can't reinterpret shared memory")

    gather = scatter = reinterpret = _reinterpret


def allocate(element_ty: Any, shape: Any, layout: Any, value: Any = None) -> Steps:
    """`gl.allocate_shared_memory`. Floats start as NaN: shared memory holds what the last program left there."""
    yield
    dtype, layout, now = unwrap(element_ty), unwrap(layout), machine()
    sizes = [int(unwrap(size)) for size in unwrap(shape)]
    here = place()
    found = re.match(r"(\w+)\s*(?::[^=]*)?=[^=]", here.source if here else "")
    base = found.group(1) if found else "shared memory"
    now.names[base] = now.names.get(base, 0) + 1
    name = base if now.names[base] == 1 else f"{base} (number {now.names[base]})"
    if isinstance(layout, gl.NVMMASharedLayout):
        bits, bytes_ = dtype.primitive_bitwidth, sizes[-1] * dtype.primitive_bitwidth // 8
        contiguous = bytes_ if not layout.transposed else sizes[-2] * bits // 8
        need(layout.element_bitwidth == bits, f"{layouts.short(layout)} is not for {dtype}", WrongLayout)
        need(
            contiguous >= layout.swizzle_byte_width,
            f"{name}: rows of {contiguous} bytes are too short for {layouts.short(layout)}; "
            "gl.NVMMASharedLayout.get_default_for(block_shape, dtype) chooses one that fits",
            WrongLayout,
        )
    now.shared_bytes += size_in_bytes(sizes, dtype)
    need(now.shared_bytes <= LIMIT, f"{name}: {now.shared_bytes:,} bytes of shared memory so far, Hopper has {LIMIT:,}")
    kind = numpy_type(dtype)
    array = arrays.full(sizes, np.nan if dtype.is_floating() else 0, kind)
    barriers: dict | None = {} if isinstance(layout, mbarrier.MBarrierLayout) else None
    buffer = Shared(dtype, array, layout, f"{name} #{len(now.names)}.{now.names[base]}", name, barriers)
    if unwrap(value) is not None:
        yield from buffer.store(value)
    return buffer


class Barrier:
    """An mbarrier. Phase 0 is complete when `count` arrivals and all expected bytes are there; then phase 1 begins."""

    def __init__(self, name: str, count: int):
        self.name, self.count, self.missing = name, count, count
        self.phase = self.bytes = 0
        #: What has arrived so far, and what had arrived when the last phase was completed: clock, and clock of fences.
        self.ahead: tuple[dict, dict] = ({}, {})
        self.seen: tuple[dict, dict] = ({}, {})
        self.arrivals: list[tuple[str, Place | None]] = []
        self.completed: list[tuple[str, Place | None]] = []  # the arrivals of the last phase that is complete
        self.passed: list[tuple[int, Agent, int]] = []  # phases that were waited for: by whom, and at which step
        self.made: tuple[Agent, int, Place | None] | None = None

    def known_to(self, agent: Agent, what: str) -> None:
        """`init` must come before any use."""
        if self.made is not None and agent.clock.get(self.made[0], 0) < self.made[1]:
            here = place()
            raise Race(
                f"race on {self.name}: the {what} at {here} (partition {agent.partition.what}) isn't ordered after "
                f"mbarrier.init at {self.made[2]}. Initialise barriers before warp_specialize",
                Party(here, agent.partition.what, what), Party(self.made[2], self.made[0].what, "mbarrier.init"),
            )  # fmt: skip

    def update(self, agent: Agent, arrivals: int = 0, bytes_: int = 0, what: str = "arrive") -> None:
        self.known_to(agent, what)
        for mine, theirs in zip(self.ahead, (agent.clock, agent.fenced)):
            for other, time in theirs.items():
                if mine.get(other, 0) < time:
                    mine[other] = time
        if arrivals:
            self.arrivals.append((agent.partition.what, place()))
            before = [(who, step) for phase, who, step in self.passed if phase == self.phase - 1]
            if self.phase and what != "expect" and not any(agent.clock.get(who, 0) >= step for who, step in before):
                machine().suspect(
                    f"{agent.partition.what} arrives at {self.name} at {place()} in phase {self.phase}, and can't know "
                    f"that anybody has waited for phase {self.phase - 1}. Is it an arrival too many, or at the wrong "
                    "barrier?"
                )
        self.missing -= arrivals
        self.bytes += bytes_
        self.note()
        if self.missing < 0:
            earlier = "; ".join(f"{who} at {at}" for who, at in self.arrivals[:-1]) or "none"
            here = place()
            raise Miscount(
                f"too many arrivals at {self.name} in phase {self.phase}: its count is {self.count}, and {here} "
                f"(partition {agent.partition.what}) is one too many. Earlier in this phase: {earlier}. Correct the "
                "count in mbarrier.init, or arrive once for each wait of the other side",
                Party(here, agent.partition.what, what), *(Party(at, who, "arrive") for who, at in self.arrivals[:-1]),
            )  # fmt: skip
        if self.missing == 0 and self.bytes == 0:
            machine().note(agent.partition.what, "phase", barrier=self.name, phase=self.phase)
            self.completed = self.arrivals
            self.phase, self.missing, self.arrivals = self.phase + 1, self.count, []
            self.seen = dict(self.ahead[0]), dict(self.ahead[1])
            self.note()

    def note(self) -> None:
        """Where it stands, for whoever draws the run."""
        state = dict(phase=self.phase, arrived=self.count - self.missing, count=self.count, bytes=self.bytes)
        machine().note("", "barrier", barrier=self.name, **state)

    def lacks(self, places: bool = True) -> str:
        came = self.count - self.missing
        arrived = "; ".join(f"{who} at {at}" for who, at in self.arrivals) if places else ""
        text = f"{came} of {self.count} arrivals" + (f" ({arrived})" if arrived else "")
        if self.bytes > 0:
            text += f", {self.bytes:,} bytes still to come"
        return text + (f", {-self.bytes:,} bytes more than expected" if self.bytes < 0 else "")


def barrier_of(buffer: Any) -> Barrier:
    """The barrier in a buffer of one. Raises WrongUse if it hasn't been initialised."""
    need(
        isinstance(buffer, Shared) and buffer.barriers is not None,
        "this needs a barrier: shared memory with MBarrierLayout",
    )
    need(buffer.numel == 1, f"{buffer.name} holds {buffer.numel} barriers: choose one with .index(i)")
    found = buffer.barriers.get(_key(buffer))
    need(
        found is not None, f"{buffer.name} has not been initialised: mbarrier.init({buffer.name}, count=…) comes first"
    )
    return found


def _key(buffer: Shared) -> int:
    return buffer.array.__array_interface__["data"][0]


def init(mbarrier: Shared, count: Any) -> Steps:
    yield
    need(isinstance(mbarrier, Shared) and mbarrier.barriers is not None, "init needs shared memory with MBarrierLayout")
    number = int(unwrap(count))
    need(number > 0, f"{mbarrier.name}: a count of {number}; it must be at least 1")
    now = machine().now
    barrier = Barrier(mbarrier.name, number)
    barrier.made = (now, now.clock[now], place())
    assert mbarrier.barriers is not None
    mbarrier.barriers[_key(mbarrier)] = barrier
    machine().note(now.what, "init", barrier=barrier.name, count=number)
    barrier.note()
    now.tick()


def invalidate(mbarrier: Shared) -> Steps:
    yield
    barrier_of(mbarrier).known_to(machine().now, "invalidate")
    assert mbarrier.barriers is not None
    del mbarrier.barriers[_key(mbarrier)]


def expect(mbarrier: Shared, bytes_: Any = None, pred: Any = True, **given: Any) -> Steps:
    """Arrive once, and announce bytes that copies will bring. The second argument has another name in each release."""
    yield
    number = int(unwrap(next(iter(given.values())) if bytes_ is None and given else bytes_))
    if bool(unwrap(pred)):
        now = machine().now
        barrier = barrier_of(mbarrier)
        machine().note(now.what, "expect", barrier=mbarrier.name, bytes=number, phase=barrier.phase)
        barrier.update(now, 1, number, "expect")
        now.tick()


def arrive(mbarrier: Shared, *, count: Any = 1, pred: Any = True, **_: Any) -> Steps:
    yield
    if bool(unwrap(pred)):
        now = machine().now
        barrier = barrier_of(mbarrier)
        machine().note(now.what, "arrive", barrier=mbarrier.name, phase=barrier.phase)
        for product, _ in now.products:
            still = [name for name in product.reads if name.partition("[")[2] == barrier.name.partition("[")[2] != ""]
            if still:
                machine().suspect(
                    f"{now.what} arrives at {barrier.name} at {place()} while its {product.what} issued at "
                    f"{product.issued} still reads {still[0]}. Does it give back the wrong buffer?"
                )
        barrier.update(now, int(unwrap(count)))
        now.tick()


def wait(mbarrier: Shared, phase: Any, pred: Any = True, deps: Any = (), **_: Any) -> Steps:
    """Until the phase that is under way has the other parity. phase: its lowest bit counts."""
    if not bool(unwrap(pred)):
        yield
        return
    barrier, now, parity = barrier_of(mbarrier), machine().now, int(tensor_of(phase)) & 1
    barrier.known_to(now, "wait")
    here = place()

    def why() -> str:
        return f"{barrier.name}, phase {barrier.phase} (parity {parity}); it has {barrier.lacks()}"

    if now.parities.get(barrier) == parity:
        machine().suspect(
            f"{now.what} waits for parity {parity} of {barrier.name} at {here} twice running, and the parity has to "
            "change from one use of a barrier to the next. Does a counter begin again, with each tile? Let it go on"
        )
    now.parities[barrier] = parity
    phase = barrier.phase - (barrier.phase & 1 != parity)  # the last one, if that is what is waited for
    machine().note(now.what, "wait", barrier=barrier.name, phase=phase, parity=parity)
    yield (lambda: barrier.phase & 1 != parity), here, why
    now.join(*barrier.seen)
    now.tick()
    barrier.passed = [*barrier.passed[-7:], (barrier.phase - 1, now, now.clock[now])]
    now.gate = Gate(barrier.name, barrier.count, tuple(barrier.completed))
    now.last_wait = f"{barrier.name}, phase {barrier.phase - 1}" if barrier.phase else f"{barrier.name} before phase 0"
    machine().note(now.what, "go on", barrier=barrier.name, phase=barrier.phase - 1)


def named_barrier(asm: Any, constraints: Any, args: Any, dtype: Any, is_pure: Any, pack: Any) -> Steps:
    """`bar.sync` and `bar.arrive` with a number, which Gluon has only as inline assembly."""
    found = re.match(r"\s*bar\.(sync|arrive)\s+(\d+)\s*,\s*(\d+)\s*;", unwrap(asm))
    if not found:
        raise NotModelled(f"{place()}: of inline assembly the simulator knows only bar.sync and bar.arrive")
    kind, number, threads = found.group(1), found.group(2), int(found.group(3))
    state, now = machine(), machine().now
    barrier = state.named_barriers.setdefault(number, Barrier(f"named barrier {number}", threads))
    phase, here = barrier.phase, place()
    yield
    barrier.update(now, 32 * now.warps)
    now.tick()
    if kind == "sync":
        yield (
            (lambda: barrier.phase != phase),
            here,
            lambda: f"{barrier.name}; it has {barrier.lacks()} (threads)",
        )
        now.join(*barrier.seen)
    return args[0] if args else None
