"""What only Triton's interpreter can do with a kernel: other lanes behind a mask, other orders of its programs, watched
memory. And how often kernels are launched, interpreted or compiled."""

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import torch
import triton
import triton.language as tl

from academy.interpreter import memory
from academy.interpreter.bits import fp32_to_bf16
from academy.interpreter.internals import interpreter as triton_interpreter
from academy.traces import proof
from academy.traces.observer import Launch
from academy.traces.recorder import Recorder
from academy.traces.watched_memory import WatchedMemory


@functools.cache
def launch_once() -> None:
    """What a first launch imports, and looks for in `triton.language`, before processes are forked: half of the time
    of each that is begun for one trial."""
    _copy[(1,)](torch.zeros(1))


@triton.jit
def _copy(x_ptr):
    tl.store(x_ptr, tl.load(x_ptr))


@contextlib.contextmanager
def masked_lanes(value: float) -> Iterator[None]:
    """Lanes that a load masks off without `other` hold this number. It shows where NaN doesn't: a maximum drops it."""
    original = memory.undefined_lanes

    def lanes(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        payload = original(shape, dtype)
        if dtype.name == "bf16":
            payload[...] = fp32_to_bf16(np.array(value, np.float32))
        elif payload.dtype.kind == "f":
            payload[...] = np.clip(value, np.finfo(payload.dtype).min, np.finfo(payload.dtype).max)
        return payload

    with mock.patch.object(memory, "undefined_lanes", lanes):
        yield


#: How often a program may look at the same words, find the same there and do nothing else, before it waits for ever.
_LOOKS = 5_000


class WaitsForever(RuntimeError):
    """A program waits for what another one has to do, which comes later in this order."""


class _Looks:
    """Counts how often the program that runs has found the same in the same words, one time after another."""

    def __init__(self) -> None:
        self.last: tuple = ()
        self.count = 0

    def begins(self) -> None:
        self.last = ()

    def found(self, pointers: Any, result: Any) -> None:
        now = pointers.data.tobytes(), result.data.tobytes()
        self.count = self.count + 1 if now == self.last else 0
        self.last = now
        if self.count >= _LOOKS:
            raise WaitsForever(
                "this program waits for another one, and for ever if that hasn't started: a GPU promises no order. A "
                "program that takes its number from an atomic counter, as it starts, waits only for those before it"
            )


@contextlib.contextmanager
def programs_in_order(order: str) -> Iterator[dict[str, bool]]:
    """Programs of each launch run "reversed" or "shuffled". The yielded dict has `atomic` if one used an atomic.

    A GPU promises no order, and the interpreter runs programs one by one, from the first to the last.
    """
    builder = triton_interpreter.InterpreterBuilder
    set_dim, set_index = builder.set_grid_dim, builder.set_grid_idx
    numbers: list[int] = []
    used, looks = {"atomic": False}, _Looks()

    def grid_dim(self, *sizes):
        numbers[:] = range(sizes[0] * sizes[1] * sizes[2])
        if order == "reversed":
            numbers.reverse()
        elif order == "shuffled":
            random.Random(len(numbers)).shuffle(numbers)
        self.academy_grid = sizes
        return set_dim(self, *sizes)

    def grid_index(self, x, y, z):
        looks.begins()
        _, ny, nz = self.academy_grid
        number = numbers[(x * ny + y) * nz + z]
        return set_index(self, number // (ny * nz), number // nz % ny, number % nz)

    def looking(name: str) -> Callable:
        original, place = getattr(builder, name), 1 if name == "create_atomic_rmw" else 0

        def look(self, *args, **kwargs):
            used["atomic"] |= name == "create_atomic_rmw"
            result = original(self, *args, **kwargs)
            if result is None:  # of a store
                looks.begins()
            else:
                looks.found(args[place], result)
            return result

        return look

    with contextlib.ExitStack() as stack:
        patches = dict(set_grid_dim=grid_dim, set_grid_idx=grid_index)
        names = ("create_atomic_rmw", "create_atomic_cas", "create_masked_load", "create_masked_store")
        for name, method in {**patches, **{name: looking(name) for name in names}}.items():
            stack.enter_context(mock.patch.object(builder, name, method))
        yield used


def findings(files: list[str], call: Callable[[], dict[str, object]]) -> list[proof.Finding]:
    """Races, reads of memory that nobody wrote, elements of outputs that nobody writes, in all launches of a call. That
    returns its results by name.

    Raises what `watched` raises.
    """
    launches, results = watched(files, call)
    found = [finding for launch in launches for finding in proof.findings(launch)]
    returned: dict[int, list[torch.Tensor]] = {}
    for x in results.values():
        if isinstance(x, torch.Tensor):
            returned.setdefault(x.untyped_storage().data_ptr(), []).append(x)
    return found + proof.unwritten_outputs(launches, returned)


def watched(files: list[str], call: Callable[[], Any]) -> tuple[list[Launch], Any]:
    """The launches of a call, every access of theirs, and what it returns.

    Raises OutOfBounds at an access outside of a tensor, and what the call raises.
    """
    with WatchedMemory() as memory:
        recorder = Recorder(files, memory)
        with recorder.running():
            results = call()
    return recorder.launches, results


@contextlib.contextmanager
def counted_launches() -> Iterator[list[str]]:
    """Names of the kernels that are launched meanwhile, compiled ones too."""
    owners = [(triton_interpreter.GridExecutor, "__call__"), (triton.JITFunction, "run")]
    names: list[str] = []

    def counting(original: Callable) -> Callable:
        def launch(self, *args, **kwargs):
            names.append(getattr(self.fn, "__name__", "a kernel"))
            return original(self, *args, **kwargs)

        return launch

    with contextlib.ExitStack() as stack:
        for owner, name in owners:
            stack.enter_context(mock.patch.object(owner, name, counting(getattr(owner, name))))
        yield names
