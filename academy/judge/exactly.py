"""The same function as the reference? Without rounding, in `academy.exact`: a procedure of `trying`.

The reference runs in float64, the function in the trial's dtype, and both carry residues. What differs is another
function of the inputs, by however little. Where the two can't be compared, the trial says why, and nothing is wrong.

A file may name helpers of its kernels that approximate a function: `ATOMS = {"newton": "rsqrt"}`, see
`academy.exact.triton.Atoms`.
"""

from __future__ import annotations

import sys
from typing import Any, TypeAlias

import torch

from academy.exact import Verdict, over_draws, without_rounding
from academy.exact.residues import literals_of_roots
from academy.judge import elements
from academy.judge.findings import Skipped, Wrong

#: Of `trying`, which imports this.
Attempt: TypeAlias = Any
#: So often inputs are drawn at most.
DRAWS = 12


def exactly(attempt: Attempt) -> None:
    subject = attempt.subject
    atoms = getattr(sys.modules.get(subject.function.__module__), "ATOMS", {})

    def once(number: int) -> tuple[dict[str, Verdict], dict[str, int]]:
        one = attempt.varied(seed=attempt.trial.seed + number)
        inputs = one.inputs()
        doubled = {name: value.double() if elements.floating(value) else value for name, value in inputs.items()}
        with without_rounding(atoms) as session:
            ours, upstreams = one.results(subject.function, inputs)
            theirs, _ = one.results(subject.reference, doubled, upstreams or None)
            pairs = {name: (value, theirs.get(name)) for name, value in ours.items() if elements.floating(value)}
            both = {name: b for name, (a, b) in pairs.items() if torch.is_tensor(b) and a.shape == b.shape}
            made = session.compare_each(
                {name: ours[name] for name in both},
                {name: session.numbers(value) for name, value in both.items()},
                again=lambda: one.results(subject.function, inputs, upstreams or None)[0],
            )
        return made, session.lost

    found = over_draws(once, DRAWS)
    # One side may have `0.1118034` where the other one has `1 / 8.944272`, or `1 / tl.sqrt(80.0)`.
    for computed in (False, True):
        if found.same is False:
            with literals_of_roots(computed):
                other = over_draws(once, DRAWS)
            found = found if other.same is False else other
    if found.same is False:
        raise Wrong(f"compared without rounding, it isn't the function that the reference is. {found}")
    if found.same is None:
        raise Skipped(str(found))


PROCEDURES = {"exactly": exactly}
