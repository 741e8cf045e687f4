"""The switch, and the verdict: are two results the same function of the inputs?"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from academy.exact import array
from academy.exact import residues as r
from academy.exact.array import Numbers
from academy.exact.memory import Memory
from academy.exact.triton import Atoms, Following, following

if TYPE_CHECKING:
    from academy.exact.torch import Carrier

#: The page that messages name.
EXPLAINED = "docs/guides/without-a-tolerance.md says what that means"


@dataclass(frozen=True)
class Verdict:
    """same: True, False, or None where nothing decides. where: index of the first element that differs, or None. mask:
    which elements were decided, by at least one prime. primes: those that decided some."""

    same: bool | None
    mask: np.ndarray = field(repr=False, compare=False)
    primes: tuple[int, ...]
    where: tuple[int, ...] | None = None

    @property
    def decided(self) -> int:
        return int(self.mask.sum())

    @property
    def elements(self) -> int:
        return self.mask.size

    def with_another(self, other: Verdict) -> Verdict:
        """Of the same two functions at other inputs: what either has decided."""
        same = False if False in (self.same, other.same) else self.same or other.same
        primes = tuple(p for p in r.PRIMES if p in self.primes + other.primes)
        return Verdict(same, self.mask | other.mask, primes, self.where or other.where)

    def __str__(self) -> str:
        if self.same is False:
            return f"another function: element {self.where} differs"
        if self.same is None:
            return f"not decided: {self.decided} of {self.elements} elements have residues on both sides"
        some = f"{self.decided} of {self.elements}" if self.decided < self.elements else f"all {self.elements}"
        return f"the same function: {some} elements, modulo powers of {', '.join(map(str, self.primes))}"


def compared(ours: np.ndarray, theirs: np.ndarray) -> Verdict:
    """Two arrays of residues, of one shape. An element is decided by a prime if both have a residue there, or one an
    infinity or NaN; and by any prime if one of them does. A difference modulo any prime is a difference.

    Raises:
        ValueError: the shapes differ.
    """
    if ours.shape != theirs.shape:
        raise ValueError(f"a result of shape {ours.shape[:-1]} is compared with one of shape {theirs.shape[:-1]}")
    unknown = (ours == r.NAR) | (theirs == r.NAR)
    wrong, mask = (~_equal(ours, theirs) & ~unknown).any(-1), (~unknown).any(-1)
    primes = tuple(p for p, some in zip(r.PRIMES, (~unknown).reshape(-1, r.COUNT).any(0)) if some)
    if not wrong.any():
        return Verdict(True if mask.any() else None, mask, primes)
    where = np.unravel_index(int(wrong.reshape(-1).argmax()), wrong.shape)
    return Verdict(False, mask, primes, tuple(map(int, where)))


def _equal(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    special = r.marked(ours) | r.marked(theirs)
    return np.where(special, ours == theirs, (ours & r.NUMBER) % r.COMPARED == (theirs & r.NUMBER) % r.COMPARED)


def compared_each(
    ours: Mapping[str, Numbers],
    theirs: Mapping[str, Numbers],
    others: Callable[[], Mapping[str, np.ndarray]],
    retry: bool = True,
) -> dict[str, Verdict]:
    """As `compared`, of several results by name. others: makes our residues once more. If `retry`, it is called where
    one differs, to see what the other signs of the roots make of it."""
    made = {name: compared(each.residues, theirs[name].residues) for name, each in ours.items()}
    if retry and any(each.same is False for each in made.values()):
        with array.other_roots():
            other = others()
        signed = _with_the_signs_of(theirs, ours, other)
        made = {name: compared(each, theirs[name].residues) for name, each in signed.items()}
    return made


def _with_the_signs_of(
    theirs: Mapping[str, Numbers], ours: Mapping[str, Numbers], other: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Our residues, each with that sign of its roots that theirs have, if the floats are near each other: so a sign
    that is wrong stays wrong.

    Modulo one prime a row's root may have the same sign on both sides, and another row's not. Then what is neither, may
    be a sum over such rows, and is no residue modulo that prime.

    Where a root is written differently, as √(a²b) and a√b, its sign differs in about half of all rows and primes. If it
    differs in all of them, a minus may be wrong, in a term too small for the floats. Then such elements aren't decided
    at these inputs.

    Args:
        theirs, ours: results by name. other: our residues with the other roots.
    """
    same = {name: _equal(each.residues, theirs[name].residues) for name, each in ours.items()}
    others_same = {name: _equal(each, theirs[name].residues) for name, each in other.items()}

    def somewhere(some: Mapping[str, np.ndarray], rather: Mapping[str, np.ndarray]) -> np.ndarray:
        """Modulo which primes an element is the same with these roots, and not with those."""
        return np.any([(some[name] & ~rather[name]).reshape(-1, r.COUNT).any(0) for name in ours], 0)

    varying = somewhere(same, others_same) & somewhere(others_same, same)
    by_chance = somewhere(same, others_same).any()
    out = {}
    for name, (floats, residues) in ours.items():
        with np.errstate(all="ignore"):
            away, size = np.abs(floats - theirs[name].floats), np.abs(theirs[name].floats)
            near = away <= (size + np.sqrt(np.mean(size * size))) / 32
        known = same[name] | r.marked(residues)
        made = np.where(varying & ~known & ~others_same[name], r.NAR, residues)
        with_others = other[name] if by_chance else r.NAR
        out[name] = np.where(others_same[name] & ~known & near[..., None], with_others, made)
    return out


@dataclass
class Found:
    """What was found of several results, by name, over all inputs that were tried. lost: as of a session."""

    verdicts: dict[str, Verdict] = field(default_factory=dict)
    lost: Counter[str] = field(default_factory=Counter)

    @property
    def same(self) -> bool | None:
        """True: all results, in every element. False: one is another function. None: not decided."""
        if self.wrong:
            return False
        return True if self.verdicts and not self.undecided else None

    @property
    def wrong(self) -> dict[str, Verdict]:
        return {name: verdict for name, verdict in self.verdicts.items() if verdict.same is False}

    @property
    def undecided(self) -> dict[str, Verdict]:
        return {name: each for name, each in self.verdicts.items() if each.same is None or each.decided < each.elements}

    def __str__(self) -> str:
        """What is wrong; else what isn't decided, and which operations have no rule."""
        said = "; ".join(f"{name}: {verdict}" for name, verdict in (self.wrong or self.undecided).items())
        lost = ", ".join(f"{name} ({count})" for name, count in sorted(self.lost.items()))
        return (said or "it has no result of floats") + (f"; no rule for {lost}" if lost and not self.wrong else "")


def over_draws(once: Callable[[int], tuple[Mapping[str, Verdict], Mapping[str, int]]], draws: int) -> Found:
    """Compare the same results at one set of inputs after the other: about half of all numbers have a root modulo a
    prime, so an element may be decided at one and not at another. It ends where each was decided once, where one
    differs, and where something was lost: that would be lost again.

    Args:
        once: the number of the draw -> verdicts by the results' names, and what was lost.
        draws: how many at most.
    """
    found = Found()
    for number in range(draws):
        verdicts, lost = once(number)
        found.lost.update(lost)
        for name, verdict in verdicts.items():
            if verdict.same is False and lost:  # that says nothing
                verdict = replace(verdict, same=None)
            before = found.verdicts.get(name)
            found.verdicts[name] = before.with_another(verdict) if before else verdict
        if found.same is not None or found.lost or not verdicts:
            break
    return found


@dataclass
class Session:
    """Residues while they are carried: of tensors, and what was lost on the way."""

    memory: Memory
    carrier: Carrier
    kernels: Following

    def of(self, tensor: torch.Tensor) -> np.ndarray:
        """The residues of a tensor of floats: its shape, and the primes."""
        return np.array(self.memory.of(tensor.detach()))

    @property
    def lost(self) -> Counter[str]:
        """What no rule is known for, and how often it was met."""
        found = self.carrier.lost + self.kernels.lost
        if self.memory.unseen:
            found["memory written unseen"] = self.memory.unseen
        return found

    def numbers(self, tensor: torch.Tensor) -> Numbers:
        """A tensor's floats, in float64, and its residues."""
        return Numbers(tensor.detach().double().numpy(), self.of(tensor))

    def compare(self, ours: torch.Tensor, theirs: torch.Tensor) -> Verdict:
        """Whether two tensors are the same function of what they were made of. With something lost on the way, a
        difference says nothing."""
        return self._told(compared(self.of(ours), self.of(theirs)))

    def compare_each(
        self,
        ours: Mapping[str, torch.Tensor],
        theirs: Mapping[str, Numbers],
        again: Callable[[], Mapping[str, torch.Tensor]],
    ) -> dict[str, Verdict]:
        """As `compare`, of several results by name. again: makes ours once more. It is called where one differs, to
        see what the other signs of the roots make of it."""
        mine = {name: self.numbers(each) for name, each in ours.items()}

        def others() -> dict[str, np.ndarray]:
            found = again()
            return {name: self.of(found[name]) for name in mine}

        return {name: self._told(each) for name, each in compared_each(mine, theirs, others, not self.lost).items()}

    def _told(self, made: Verdict) -> Verdict:
        return replace(made, same=None) if made.same is False and self.lost else made


@contextlib.contextmanager
def without_rounding(atoms: Atoms | None = None, memory: Memory | None = None) -> Iterator[Session]:
    """The switch: while this lasts, every float in PyTorch and in interpreted kernels carries its residues.

    Args:
        atoms: helpers of kernels that approximate a function, and what they are taken for.
        memory: that of an earlier session, whose residues still hold.
    """
    from torch.utils._python_dispatch import _disable_current_modes

    from academy.exact.gluon import simulated
    from academy.exact.torch import carrying  # lazy: the browser's torch has no modes

    memory = memory or Memory()
    # What the interpreter does with torch is no part of a kernel.
    with (
        following(memory, atoms or {}, _disable_current_modes) as kernels,
        carrying(memory) as carrier,
        simulated(memory, kernels.lost),
    ):
        yield Session(memory, carrier, kernels)
