"""The same function? A case's calls compared with the printed formulas without rounding, in `academy.exact`.

The formula is evaluated from the very inputs of the kernel, with residues, once for all modules and for all cases with
these inputs. About half of all numbers have a root modulo a prime, so inputs are drawn until every element of every
formula is decided: row by row where the formulas go row by row, else anew, at most `DRAWS` times. Numbers that a call
is handed as such (a scale, an eps) are short fractions: what a caller folds into one of them, as in `scale * LOG2E`, is
still known for what it is.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections import Counter
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import _disable_current_modes

from academy.book.problems import Problem
from academy.command import trouble
from academy.exact import residues as r
from academy.exact.array import Numbers
from academy.exact.compare import EXPLAINED, Found, Session, Verdict, over_draws, without_rounding
from academy.exact.memory import Memory
from academy.formulas import cases
from academy.formulas.cases import Comparison, Target
from academy.formulas.comparing.kernels import Inputs, _Run

#: Blocks of 16 and a part of one; no length that a prime divides, and none beyond 22: a softmax of n columns has a
#: denominator that is n modulo each prime.
LENGTHS = (2, 17, 19, 5, 13, 10)
DRAWS, TRIALS = 24, 6


@dataclass
class Outcome:
    """What was found of a case for one module: of each result and gradient, by name. atoms: that the kernels used.
    listed: why it can't be decided. error: what stopped it."""

    comparison: Comparison
    found: Found = field(default_factory=Found)
    atoms: tuple[str, ...] = ()
    listed: str = ""
    error: str = ""

    @property
    def same(self) -> bool | None:
        """As of `Found`; None: not decided."""
        return None if self.error else self.found.same

    @property
    def kind(self) -> str:
        """`exact`, `up to atoms`, `listed`, `refused` or `not decided`."""
        if self.listed:
            return "listed"
        if self.same is None:
            return "not decided"
        return "refused" if not self.same else "up to atoms" if self.atoms else "exact"

    def problems(self) -> list[Problem]:
        """What is wrong: a result that is another function than its formula, or one that isn't decided, unlisted."""
        if self.kind not in ("refused", "not decided"):
            return []
        why = "" if self.same is False else ". If that can't be helped, say why under `listed` of WITHOUT_ROUNDING"
        case, said = self.comparison, self.error or self.found
        return [case.problem(f"{case}: {case.call}, compared without rounding: {said}{why} ({EXPLAINED})")]


@dataclass
class Expected:
    """What the formulas of a case give, by result, for these inputs, whose own residues are `known`. (Not the memory of
    the session: it holds every number on the way, which for a recurrence are gigabytes.)"""

    inputs: dict[str, Any]
    results: dict[str, Numbers]
    known: dict[str, np.ndarray]
    lost: dict[str, int]
    dims: dict[str, int]
    row_shape: tuple[int, ...]


class _Exactly(_Run):
    def __init__(self, comparison: Comparison, module: ModuleType, known: dict):
        hostile = Inputs("without rounding", LENGTHS, dtype=comparison.dtypes[0])
        super().__init__(comparison, module, hostile, {}, walls=False)
        self.case = cases.load(comparison.path)[comparison.case]
        said = cases.without_rounding(comparison.path)
        sizes = {**comparison.sizes, **said["sizes"].get("", {}), **said["sizes"].get(comparison.case, {})}
        self.sizes, self.atoms, own = sizes, dict(said["atoms"]), f"{comparison.module}."
        if not f".{module.__name__}".endswith(f".{comparison.module}"):  # a copy has helpers of its own
            copied = {atom: rule for atom, rule in self.atoms.items() if atom.startswith(own)}
            self.atoms |= {f"{module.__name__}.{atom.removeprefix(own)}": rule for atom, rule in copied.items()}
        self.known, self.kept = known, dict[str, Any]()
        self.again: np.ndarray | None = None  # rows that are drawn anew
        self.used: set[str] = set()  # atoms

    def drawn(self, name: str, key: str) -> Any:
        with _disable_current_modes():  # what is drawn is data
            value = super().drawn(name, key)
        value = short(value) if isinstance(value, float) else value
        if self.again is not None:
            old = self.kept[name]
            if isinstance(value, torch.Tensor) and value.dim() and len(value) == len(self.again):
                value = torch.where(torch.from_numpy(self.again).reshape(-1, *[1] * (value.dim() - 1)), value, old)
            else:
                value = old
        self.kept[name] = value
        return value

    def targets(self) -> list[tuple[str, Target, bool]]:
        """Name, formula, and whether it is summed over the rows."""
        made = [(f"result {n}", target, False) for n, target in enumerate(self.comparison.returns) if target]
        rows = self.comparison.rows
        return made + [(name, t, bool(rows) and name not in rows) for name, t in self.comparison.gradients.items()]

    def formulas(self, start: int) -> Expected:
        """The first draw, counted from `start`, that decides every element, or the best of all."""
        best, most, self.again = None, -1.0, None
        for draw in range(start, start + DRAWS):
            self.generator.manual_seed(5000 + draw)
            self.memo.clear()
            with without_rounding() as session:
                inputs = self.draw()
                floats = {name: x for name, x in inputs.items() if torch.is_tensor(x) and x.is_floating_point()}
                known = {name: session.of(x) for name, x in floats.items()}
                found, lost = self._given(inputs, known, session)
            decided = {name: each.residues != r.NAR for name, each in found.items()}
            share = min((float(each.any(-1).mean()) for each in decided.values() if each.size), default=1.0)
            if share > most:
                unknown = {f"in the formula: {name}": count for name, count in lost.items()}
                best, most = Expected(inputs, found, known, unknown, self.dims, self.row_shape), share
            if share == 1:
                break
            self.again = _undecided_rows([decided[name] for name, _, summed in self.targets() if not summed])
        assert best is not None
        return best

    def compared_with(self, expected: Expected) -> tuple[dict[str, Verdict], dict[str, int]]:
        """Run the kernels on these inputs: the verdicts, and what was lost."""
        self.dims, self.row_shape, memory = expected.dims, expected.row_shape, Memory()
        for name, residues in expected.known.items():
            memory.put(expected.inputs[name], residues)
        with without_rounding(self.atoms, memory) as session:
            got = self._got(expected)
            made = session.compare_each(got, expected.results, again=lambda: self._got(expected))
        self.used |= session.kernels.used
        return made, {**expected.lost, **session.lost}

    def _got(self, expected: Expected) -> dict[str, torch.Tensor]:
        """Results and gradients of the kernels, by name, as far as a formula says what they are."""
        outputs, gradients = self.ours(expected.inputs)
        got = {f"result {n}": out for n, out in enumerate(outputs)} | gradients
        return {name: value for name, value in got.items() if name in expected.results}

    def _given(
        self, inputs: dict, known: dict[str, np.ndarray], session: Session
    ) -> tuple[dict[str, Numbers], Counter[str]]:
        """What the formulas give for these inputs, and what was lost. What a case asks for is known to the next."""
        about = [self.comparison.page.text, self.comparison.rows, self.row_shape, self.dims]
        seen = hashlib.sha256(repr(about).encode())
        with _disable_current_modes():
            for name, value in sorted(inputs.items()):
                number = value.double().numpy() if torch.is_tensor(value) else np.array(value)
                seen.update(repr((name, number.shape)).encode() + number.tobytes())
                seen.update(known[name].tobytes() if name in known else b"")
        found = self.known.setdefault(seen.digest(), {})
        asked = {
            name: (target, self.comparison.stable.get(target.tag), summed) for name, target, summed in self.targets()
        }
        missing = {key: None for key in asked.values() if key not in found}
        self.wanted = list(dict.fromkeys(each for target, *_ in missing for each in target.inside()))
        made = [self._numbers(target, summed, inputs, session) for target, _, summed in missing]
        found.update(zip(missing, zip(made, [session.lost] * len(made))))
        lost = functools.reduce(Counter.__or__, (found[key][1] for key in asked.values()), Counter[str]())
        return {name: found[key][0] for name, key in asked.items()}, lost

    def _numbers(self, target: Target, summed: bool, inputs: dict, session: Session) -> Numbers:
        value = self.expected(target, inputs)
        if summed:
            value = value.sum(0)
        elif self.comparison.rows:
            value = value.unflatten(0, self.row_shape)
        return session.numbers(value)


def _undecided_rows(decided: list[np.ndarray]) -> np.ndarray | None:
    """Of results with as many rows, of which the largest prime decides some: those that it doesn't decide."""
    rows: dict[int, Any] = {}
    for each in decided:
        good = np.all(each[..., -1].reshape(len(each), -1), 1) if each.ndim > 1 else np.zeros(0, bool)
        if good.any():
            rows[len(good)] = good & rows.get(len(good), good)
    return next((~good for good in rows.values() if not good.all()), None)


def short(value: float) -> float:
    """The nearest number of four binary digits: m · 2^e with m below 16."""
    if value == 0 or not math.isfinite(value):
        return value
    fraction, exponent = math.frexp(value)
    return round(fraction * 16) / 16 * 2.0**exponent


def run(comparison: Comparison, module: ModuleType, known: dict) -> Outcome:
    """Compare a case's results with its formulas, at most at `TRIALS` sets of inputs.

    Args:
        module: handed in, so that a changed copy can be compared too.
        known: keeps what the formulas give, for other modules and cases.
    """
    made = Outcome(comparison, listed=comparison.listed)
    if made.listed:
        return made
    try:
        trial = _Exactly(comparison, module, known)
        tried = known.setdefault((comparison.path, comparison.case), [])

        def once(number: int) -> tuple[dict[str, Verdict], dict[str, int]]:
            if number == len(tried):
                tried.append(trial.formulas(start=DRAWS * number))
            return trial.compared_with(tried[number])

        made.found = over_draws(once, TRIALS)
        made.atoms = tuple(sorted(trial.used))
    except Exception as error:  # the kernel's or the formula's: the other verdict says more of it
        trouble.let_through(error)
        made.error = trouble.said(error)
    return made
