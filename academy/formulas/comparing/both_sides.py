"""Every `=` of a page, both sides compared without rounding, in `academy.exact`: are they the same function?

Autograd runs on residues as well, so a derivative is compared like any other side. Where a number has no root, or a
prime divides a denominator, another random point is tried, until each element was decided once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

import torch

from academy.book.problems import Problem
from academy.exact.compare import EXPLAINED, Verdict, without_rounding
from academy.formulas.comparing import equations
from academy.formulas.meaning.environment import Environment
from academy.formulas.reading.page import Page, Step

#: Random points with the same lengths, and how often these change: the roots of three rows are easier to have than
#: those of seven.
DRAWS, LENGTHS = 12, 6


@dataclass
class Equality:
    """What was found of one `=`. step: its number on the page; place: which relation of the step's equation. lost:
    operations without a rule."""

    step: int
    place: int
    verdict: Verdict | None = None
    lost: str = ""

    @property
    def settled(self) -> bool:
        """Refused, or equal in every element."""
        found = self.verdict
        return found is not None and (found.same is False or bool(found.same) and found.decided == found.elements)


def compare(page: Page) -> list[Equality]:
    """All equalities of a page, in its order.

    Raises:
        PageError: a formula has no meaning.
    """
    found = [
        Equality(at, place)
        for at, step in enumerate(page.steps)
        for place, relation in enumerate(equations.claims(step.equation) if step.equation else ())
        if relation == "="
    ]
    for number in range(LENGTHS):
        lengths = equations.random_point(page, number).dims
        for each in found:
            each.verdict = each.verdict if each.settled else None  # of other lengths
        for seed in range(DRAWS):
            if waiting := [each for each in found if not each.settled]:
                _at_a_point(page, 100 * number + seed, lengths, waiting)
    return found


def _at_a_point(page: Page, seed: int, lengths: dict[str, int], equalities: list[Equality]) -> None:
    env = equations.random_point(page, seed, lengths)
    with without_rounding() as session:
        for at, step in enumerate(page.steps):
            here = [each for each in equalities if each.step == at]
            with page.placed(step.block):
                env.enter(step)
                sides = partial(_sides, step, env) if here else dict
                values = sides()
            ours = {str(each.place): values[str(each.place)] for each in here}
            theirs = {str(each.place): session.numbers(values[str(each.place + 1)]) for each in here}
            made = session.compare_each(ours, theirs, again=sides)
            for each, verdict in zip(here, made.values()):
                each.verdict = each.verdict.with_another(verdict) if each.verdict else verdict
                each.lost = ", ".join(session.lost)


def _sides(step: Step, env: Environment) -> dict[str, torch.Tensor]:
    """Each side of a step's equation by its number, where its condition holds."""
    values, mask = equations.everything(step.equation, env)[2:]
    return {str(place): side if mask is None else side[mask] for place, side in enumerate(values)}


def problems(page: Page, found: Iterable[Equality]) -> list[Problem]:
    """Equations whose sides are different functions."""
    return [_said(page, each) for each in found if each.verdict and each.verdict.same is False]


def undecided(page: Page, found: Iterable[Equality]) -> list[str]:
    """Equations of which this can't tell, each with the reason."""
    return [str(_said(page, each)) for each in found if not each.settled]


def _said(page: Page, found: Equality) -> Problem:
    because = f"; no rule for {found.lost}" if found.lost else ""
    step, number = page.steps[found.step], f" number {found.place + 1}" if found.place else ""
    message = f"'='{number}, compared without rounding: {found.verdict}{because} ({EXPLAINED})"
    return Problem.at(page.path, page.text, step.pos, message)
