"""What the simulator finds wrong, and where in the kernel.

Names: `GluonError` and its kinds `Race`, `MissingFence`, `Deadlock`, `Miscount`, `InFlight`, `WrongLayout`, `WrongUse`,
`NotModelled`; `Place`, `place()`, `need()`.
"""

from __future__ import annotations

import sys
from types import FrameType

from academy.gluon.watching import GluonError, Place

__all__ = ["Deadlock", "GluonError", "InFlight", "MissingFence", "Miscount", "NotModelled", "Place", "Race"]
__all__ += ["WrongLayout", "WrongUse", "kernel_frame", "need", "place"]


class Race(GluonError):
    """Two accesses of the same shared memory, one of them a write, that nothing orders."""


class MissingFence(GluonError):
    """An ordinary access and one of the async proxy that are ordered, but without `fence_async_shared` between them."""


class Deadlock(GluonError):
    """Every partition waits."""


class Miscount(GluonError):
    """More arrivals or bytes at a barrier than it was told to expect."""


class InFlight(GluonError):
    """A copy or a product that nothing waits for before the kernel ends."""


class WrongLayout(GluonError):
    """Layouts that don't go together, or don't fit the warps, the tile or the instruction."""


class WrongUse(GluonError):
    """A call that Gluon's compiler or the hardware would refuse: a wrong shape, dtype, index or argument."""


class NotModelled(GluonError):
    """A part of Gluon that the simulator doesn't have."""


def kernel_frame() -> FrameType | None:
    """The innermost frame that runs a kernel's rewritten code."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and "__gluon__" not in frame.f_globals:
        frame = frame.f_back
    return frame


def place() -> Place | None:
    """The line of the kernel that is being executed; None outside of one."""
    frame = kernel_frame()
    return frame and Place(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def need(condition: object, message: str, kind: type[GluonError] = WrongUse) -> None:
    """Raise an error of this kind, with the line, unless the condition holds."""
    if not condition:
        here = place()
        raise kind(f"{here}: {message}" if here else message, here)
