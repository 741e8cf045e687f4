"""The same function as the reference? Without rounding, in `academy.exact`: a procedure of `trying`.

The reference runs in float64, the function in the trial's dtype, and both carry residues. What differs is another
function of the inputs, by however little. Where the two can't be compared, the trial says why, and nothing is wrong.

A file may name helpers of its kernels that approximate a function: `ATOMS = {"newton": "rsqrt"}`, see
`academy.exact.triton.Atoms`.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any, TypeAlias

import torch

from academy.exact import Verdict, without_rounding
from academy.judge import elements
from academy.judge.findings import Skipped, Wrong

#: Of `trying`, which imports this.
Attempt: TypeAlias = Any
#: About half of all numbers have a root modulo a prime: so often inputs are drawn, until each element was decided once.
DRAWS = 6


def exactly(attempt: Attempt) -> None:
    subject, found, lost = attempt.subject, dict[str, Verdict](), set[str]()
    atoms = getattr(sys.modules.get(subject.function.__module__), "ATOMS", {})
    for draw in range(DRAWS):
        one = type(attempt)(subject, replace(attempt.trial, seed=attempt.trial.seed + draw))
        inputs = one.inputs()
        doubled = {name: value.double() if elements.floating(value) else value for name, value in inputs.items()}
        with without_rounding(atoms) as session:
            ours, upstreams = one.results(subject.function, inputs)
            theirs, _ = one.results(subject.reference, doubled, upstreams or None)
            for name, value in ours.items():
                other = theirs.get(name)
                if elements.floating(value) and torch.is_tensor(other) and value.shape == other.shape:
                    verdict = session.compare(value, other)
                    found[name] = found[name].with_another(verdict) if name in found else verdict
        lost |= {*session.lost}
        if lost or all(verdict.decided == verdict.elements for verdict in found.values()):
            break
    wrong = {name: verdict for name, verdict in found.items() if verdict.same is False}
    if wrong:
        said = "; ".join(f"{name}: {verdict}" for name, verdict in wrong.items())
        raise Wrong(f"compared without rounding, it isn't the function that the reference is. {said}")
    undecided = {name: v for name, v in found.items() if v.same is None or v.decided < v.elements}
    if undecided or not found:
        said = "; ".join(f"{name}: {verdict}" for name, verdict in undecided.items()) or "it has no result of floats"
        raise Skipped(said + (f"; no rule for {', '.join(sorted(lost))}" if lost else ""))


PROCEDURES = {"exactly": exactly}
