"""What the simulator of Gluon kernels and those who watch it say to each other: `Watcher`, and `GluonError`.

`academy.traces` watches while it observes a run. Nothing here imports triton.
"""

from __future__ import annotations

import contextlib
import linecache
import os
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


@dataclass(frozen=True)
class Place:
    """A line of a kernel. function: the jitted function that it is in."""

    file: str
    line: int
    function: str

    @property
    def source(self) -> str:
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        return f"line {self.line}, `{self.source}`" if self.source else f"line {self.line}"


@dataclass(frozen=True)
class Party:
    """Who did what at a line that is part of a mistake. waited: for which phase the partition had waited before."""

    at: Place | None
    partition: str = ""
    what: str = ""
    waited: str = ""


class GluonError(Exception):
    """Something that is wrong whatever the numbers: the message says what, where, and what to do.

    parties: who is concerned, the one that came last first; places: their lines. seed, program: the schedule that
    showed it and the program; `simulate(…, seed=seed)` repeats it. They are set when the error leaves the simulator.
    """

    def __init__(self, message: str, *parties: Place | Party | None):
        super().__init__(message)
        self.message = message
        self.parties = [each if isinstance(each, Party) else Party(each) for each in parties if each is not None]
        self.places = [each.at for each in self.parties if each.at is not None]
        self.seed: int | None = None
        self.program: tuple[int, ...] = ()

    @property
    def file(self) -> str:
        """Of the first line concerned; "" if there is none."""
        return self.places[0].file if self.places else ""

    @property
    def line(self) -> int:
        """The first line concerned; 0 if there is none."""
        return self.places[0].line if self.places else 0

    def __str__(self) -> str:
        if self.seed is None:
            return self.message
        return f"{self.message}\n[program {self.program}; seed={self.seed} repeats this schedule]"


class Watcher(Protocol):
    """What `academy.gluon.simulate` tells about a launch, in this order."""

    def simulates(self, kernel: Any, arguments: dict[str, Any], grid: tuple[int, ...]) -> dict[str, Any]:
        """A launch begins. Returns the arguments that the kernel gets; their tensors may be elsewhere in memory."""

    def runs(self, machine: Any) -> None:
        """A program begins."""

    #: Of functions in files that are followed: what the simulator runs in their place.
    generators: MutableMapping[Callable, Callable]

    def follows(self, file: str) -> bool:
        """Whether the statements of this file are of interest."""

    def instruments(self, definition: Any, file: str) -> None:
        """Put calls of `HOOK` into the syntax tree of a function of such a file."""

    def hook(self, event: str, function: str, file: str, line: int, variables: dict, value: Any = None) -> Any:
        """What such a call does. Returns the value."""

    def accesses(
        self, operation: str, addresses: np.ndarray, active: np.ndarray, values: np.ndarray, undefined: bool = False
    ) -> None:
        """A load, a store or an atomic of global memory, about to be done by the statement that is running.

        Args:
            operation: load, store, atomic_add, …
            addresses: in bytes, of each lane; int64.
            active: which lanes take part; bool, the same shape.
            values: what is loaded, stored or added; the same shape.
            undefined: whether the other lanes of a load hold anything.
        """

    def ends(self, error: BaseException | None) -> None:
        """The launch is over, or has failed."""


#: Name of the hook among the globals of a kernel that is watched.
HOOK = "__academy_trace__"
#: The one that watches; None if nobody does.
watcher: Watcher | None = None
#: Chooses the order in which Gluon kernels that are launched as `kernel[grid](…)` run: of the environment, so that a
#: failing run can be repeated.
seed = int(os.environ.get("ACADEMY_GLUON_SEED", "0"))


@contextlib.contextmanager
def schedule(number: int) -> Iterator[None]:
    """Launches inside of this follow another order: that of this seed."""
    global seed
    before, seed = seed, number
    try:
        yield
    finally:
        seed = before
