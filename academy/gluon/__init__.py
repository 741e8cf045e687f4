"""A simulator of Gluon kernels for Hopper, which names a missing wait.

Gluon is Triton's lower level: layouts, barriers and asynchronous copies are written by hand. `simulate` runs a
`@gluon.jit` kernel as it is, on CPU tensors:

    from academy import gluon

    gluon.simulate(kernel, (4,), x_desc, y_desc, n, BLOCK=64, num_warps=4, seed=0)

Each partition of `warp_specialize`, each copy and each product of the tensor cores is an agent, and a seeded scheduler
interleaves them. Vector clocks know what orders two accesses of shared memory. So a missing wait or fence is an error
in whatever schedule it is reached, whether or not the numbers came out wrong. Without a GPU `kernel[grid](…)` does the
same; `schedule(seed)` chooses another order for it.

What it finds: `Race`, `MissingFence`, `Deadlock`, `Miscount` (of arrivals), `InFlight` (at the end of the kernel),
`WrongLayout`, `WrongUse`. Each message names the lines, the partitions, the buffer and the phase.

What it doesn't model: time, bank conflicts, registers, clusters of several CTAs, races on global memory, races of the
threads inside a partition (Triton's compiler puts those barriers in), tensor memory of Blackwell. What a kernel uses
and the simulator lacks raises `NotModelled`.

Names: `simulate`, `schedule`, `GluonError` and its kinds.
"""

from typing import Any

NAMES = (
    "Deadlock", "GluonError", "InFlight", "Miscount", "MissingFence", "NotModelled", "Place", "Race", "WrongLayout",
    "WrongUse", "launched", "schedule", "simulate",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    """The simulator imports a part of triton that a file without Gluon kernels doesn't need. Who only watches it, or
    tells its errors from others, imports `academy.gluon.watching`."""
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from academy.gluon import simulator

    return getattr(simulator, name)
