"""Autotuned kernels where nothing is timed: one configuration, each by itself, or all as the tuner runs them."""

from __future__ import annotations

import contextlib
import functools
import gc
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from triton.runtime.autotuner import Autotuner, Config
from triton.runtime.errors import OutOfResources, PTXASError

#: What a launch raises whose configuration doesn't fit the GPU.
DOES_NOT_FIT = (OutOfResources, PTXASError)

#: Every autotuned kernel of this process: those that are there now, and each that is made. (A search among all objects
#: each time would copy the memory of a fork.)
EVERY: weakref.WeakSet[Autotuner] = weakref.WeakSet(each for each in gc.get_objects() if type(each) is Autotuner)


def _remembered(original: Any) -> Any:
    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        EVERY.add(self)

    return init


Autotuner.__init__ = _remembered(Autotuner.__init__)


@dataclass
class Tuned:
    """An autotuned kernel that was launched. line: of its first decorator. total: how many configurations it has.
    every: those that its pruning leaves. again: arguments that a second run of one launch changed once more."""

    kernel: str
    line: int
    total: int
    every: list[Config]
    again: list[str] = field(default_factory=list)

    def named(self, number: int) -> str:
        """What runs where that configuration is chosen: `kernel with BLOCK=64, num_warps=4, num_stages=3`."""
        config = self.every[min(number, len(self.every) - 1)]
        values = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
        return f"{self.kernel} with {', '.join(f'{name}={value}' for name, value in values.items())}"


@contextlib.contextmanager
def chosen(number: int | None = 0) -> Iterator[dict[str, Tuned]]:
    """Inside, an autotuned kernel runs with the configuration of this number, or its last. What ran comes by name.

    number: None is what the tuner does with each kind of arguments that it hasn't seen: all configurations, several
    times each (here twice), and then the best (here the first).
    """
    found: dict[str, Tuned] = {}
    outer = Autotuner.run
    original = getattr(outer, "of_triton", outer)

    def run(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        tuner.nargs = dict(zip(tuner.arg_names, args))
        every = tuner.prune_configs(kwargs) if len(tuner.configs) > 1 else tuner.configs
        if not every:
            raise ValueError(f"prune_configs_by leaves none of the {len(tuner.configs)} configurations")
        name, line = tuner.base_fn.__name__, tuner.base_fn.__code__.co_firstlineno
        known = found.setdefault(name, Tuned(name, line, len(tuner.configs), every))
        known.every = max(known.every, every, key=len)
        tensors = {name: value for name, value in {**tuner.nargs, **kwargs}.items() if isinstance(value, torch.Tensor)}
        changes: dict = dict(cache={}, cache_results=False)
        if number is not None:
            changes = dict(configs=[every[min(number, len(every) - 1)]])
        before = {**vars(tuner)}
        try:
            vars(tuner).update(changes, do_bench=_twice(tensors, known))
            return original(tuner, *args, **kwargs)
        finally:
            vars(tuner).clear()
            vars(tuner).update(before)

    run.of_triton = original  # type: ignore[attr-defined]
    Autotuner.run = run
    try:
        yield found
    finally:
        Autotuner.run = outer


def _twice(tensors: dict[str, torch.Tensor], known: Tuned) -> Any:
    """In the place of a clock: runs a launch twice, and notes which arguments the second run changes once more."""

    def bench(call: Any, quantiles: Any = None, **_: Any) -> list[float]:
        call()
        once = {name: _bits(value) for name, value in tensors.items()}
        call()
        known.again += [name for name, bits in once.items() if name not in known.again and bits != _bits(tensors[name])]
        return [1.0] * len(quantiles or (1,))

    return bench


def _bits(value: torch.Tensor) -> bytes:
    return value.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes()
