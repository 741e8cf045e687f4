"""The switch, and the verdict: are two results the same function of the inputs?"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np
import torch

from academy.exact import residues as r
from academy.exact.memory import Memory
from academy.exact.torch import Carrier, carrying
from academy.exact.triton import Atoms, Following, following


@dataclass(frozen=True)
class Verdict:
    """same: True, False, or None where no prime decides any element. decided: of how many elements, by at least one
    prime. primes: those that decided some. where: index of the first element that differs, or None."""

    same: bool | None
    decided: int
    elements: int
    primes: tuple[int, ...]
    where: tuple[int, ...] | None = None

    def __str__(self) -> str:
        if self.same is False:
            return f"another function: element {self.where} of {self.elements} differs"
        if self.same is None:
            return f"not decided: {self.decided} of {self.elements} elements have residues on both sides"
        some = f"{self.decided} of {self.elements}" if self.decided < self.elements else f"all {self.elements}"
        return f"the same function: {some} elements, modulo powers of {', '.join(map(str, self.primes))}"


def compared(ours: np.ndarray, theirs: np.ndarray) -> Verdict:
    """Two arrays of residues, of one shape. An element is decided by a prime if both have a residue there, or one an
    infinity or NaN; and by any prime if one of them does. A difference modulo any prime is a difference."""
    theirs = np.broadcast_to(theirs, ours.shape)
    unknown = (ours == r.NAR) | (theirs == r.NAR)
    special = r.marked(ours) | r.marked(theirs)
    same = np.where(special, ours == theirs, (ours & r.NUMBER) % r.COMPARED == (theirs & r.NUMBER) % r.COMPARED)
    wrong = (~same & ~unknown).any(-1)
    decided = (~unknown).any(-1)
    primes = tuple(p for p, some in zip(r.PRIMES, (~unknown).reshape(-1, r.COUNT).any(0)) if some)
    if wrong.any():
        where = tuple(int(i) for i in np.unravel_index(int(wrong.reshape(-1).argmax()), wrong.shape))
        return Verdict(False, int(decided.sum()), decided.size, primes, where)
    return Verdict(True if decided.any() else None, int(decided.sum()), decided.size, primes)


@dataclass
class Session:
    """Residues while they are carried: of tensors, and what was lost on the way."""

    memory: Memory
    carrier: Carrier
    kernels: Following

    def of(self, tensor: torch.Tensor) -> np.ndarray:
        """The residues of a tensor of floats: its shape, and the primes."""
        return self.memory.of(tensor.detach())

    @property
    def lost(self) -> Counter[str]:
        """What no rule is known for, and how often it was met."""
        found = self.carrier.lost + self.kernels.lost
        if self.memory.unseen:
            found["memory written unseen"] = self.memory.unseen
        return found

    def compare(self, ours: torch.Tensor, theirs: torch.Tensor | np.ndarray) -> Verdict:
        """Whether two tensors are the same function of what they were made of; the second one may be residues. With
        something lost on the way, a difference says nothing."""
        residues = self.of(theirs) if isinstance(theirs, torch.Tensor) else theirs
        made = compared(self.of(ours), residues)
        return replace(made, same=None) if made.same is False and self.lost else made


@contextlib.contextmanager
def without_rounding(atoms: Atoms | None = None, memory: Memory | None = None) -> Iterator[Session]:
    """The switch: while this lasts, every float in PyTorch and in interpreted kernels carries its residues.

    Args:
        atoms: helpers of kernels that approximate a function, and what they are taken for.
        memory: that of an earlier session, whose residues still hold.
    """
    memory = memory or Memory()
    with following(memory, atoms or {}) as kernels, carrying(memory) as carrier, _without_gluon(kernels):
        yield Session(memory, carrier, kernels)


@contextlib.contextmanager
def _without_gluon(kernels: Following) -> Iterator[None]:
    """Kernels below Triton run in the simulator, which carries no residues: what they write is not known."""
    simulator = sys.modules.get("academy.gluon.simulator")
    if simulator is None:
        yield
        return

    def machine(*args: Any, **kwargs: Any) -> Any:
        kernels.lost["a Gluon kernel"] += 1
        return original(*args, **kwargs)

    original = simulator.Machine
    with mock.patch.object(simulator, "Machine", machine):
        yield
