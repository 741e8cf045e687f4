# ruff: noqa: I001  academy.runtime.device must come before triton

"""`simulate`: the programs of a Gluon kernel, one after another. `academy.gluon` says what it finds."""

from __future__ import annotations

from academy.runtime import device  # noqa: F401  before anything imports triton

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton import JITFunction

from academy.gluon import watching
from academy.command import grids
from academy.gluon import functions as _functions  # noqa: F401  fills the table that `call` looks into
from academy.gluon.errors import (
    Deadlock,
    GluonError,
    InFlight,
    Miscount,
    MissingFence,
    NotModelled,
    Place,
    Race,
    WrongLayout,
    WrongUse,
)
from academy.gluon.machine import Agent, Machine, running
from academy.gluon.rewriting import call
from academy.gluon.units import Descriptor
from academy.gluon.values import Pointer, scalar, unwrap
from academy.gluon.watching import schedule

__all__ = ["Deadlock", "GluonError", "InFlight", "MissingFence", "Miscount", "NotModelled", "Place", "Race"]
__all__ += ["WrongLayout", "WrongUse", "launched", "schedule", "simulate"]


def simulate(
    kernel: JITFunction,
    grid: Sequence[int],
    *args: Any,
    num_warps: int = 4,
    seed: int = 0,
    events: list[dict] | None = None,
    **kwargs: Any,
) -> None:
    """Run a kernel's programs one after another.

    Args:
        kernel: a `@gluon.jit` function.
        grid: number of programs, in up to three dimensions.
        args, kwargs: as for a launch. Tensors are CPU tensors.
        num_warps: of the first partition.
        seed: chooses the schedule; the same seed gives the same one.
        events: a list that gets what happens in the first program, in order, for `academy.gluon.lanes`.

    Raises:
        GluonError: something is wrong with the kernel. `str(error)` says which seed repeats the schedule.
    """
    sizes = (*map(int, grid), 1, 1)[:3]
    if much := grids.excess(sizes):
        raise grids.GridTooLarge(f"{kernel.fn.__name__}: {much}")
    names = [parameter.name for parameter in kernel.params]
    given = {**dict(zip(names, args)), **{name: kwargs[name] for name in kwargs if name in names}}
    if "num_warps" in names:
        given["num_warps"] = num_warps
    constants = {parameter.name for parameter in kernel.params if parameter.is_constexpr}
    watcher, failed = watching.watcher, None
    if watcher is not None:
        given = watcher.simulates(kernel, given, sizes)
    try:
        for program in np.ndindex(*sizes):
            machine = Machine(seed, program, sizes)
            machine.events, machine.watcher = events if program == (0, 0, 0) else None, watcher
            if watcher is not None:
                watcher.runs(machine)
            values = {name: unwrap(v) if name in constants else _argument(v, name) for name, v in given.items()}
            main = Agent("kernel", warps=num_warps)
            with running(machine):
                machine.add(main, call(kernel, **values))
                machine.run(main)
    except BaseException as error:
        failed = error
        if isinstance(error, GluonError):
            error.seed, error.program = seed, program
        raise
    finally:
        if watcher is not None:
            watcher.ends(failed)


def _argument(value: Any, name: str) -> Any:
    """What a kernel sees of an argument: a pointer, a descriptor, a run-time scalar, or a tuple of these."""
    if isinstance(value, TensorDescriptor):
        nan = getattr(value, "padding", "zero") == "nan"
        return Descriptor(value.base, value.shape, value.strides, value.block_shape, value.layout, nan, name)
    if isinstance(value, torch.Tensor):
        return Pointer.to_tensor(value, name)
    if isinstance(value, tuple):
        return tuple(_argument(each, f"{name}[{i}]") for i, each in enumerate(value))
    if isinstance(value, (bool, int, float)):
        return scalar(value)
    return value


def launched(kernel: JITFunction, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> None:
    """What `kernel[grid](…)` does where there is no GPU."""
    if callable(grid):
        names = [parameter.name for parameter in kernel.params]
        grid = grid({**dict(zip(names, args)), **kwargs})
    options = {
        name: kwargs.pop(name) for name in ("num_ctas", "num_stages", "maxnreg", "enable_fp_fusion") if name in kwargs
    }
    if options.get("num_ctas", 1) != 1:
        raise NotModelled("the simulator has no clusters: num_ctas must be 1")
    simulate(kernel, grid, *args, seed=watching.seed, **kwargs)
