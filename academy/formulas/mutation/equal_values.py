r"""Mutants that change no value: where $\nabla_x = \nabla_z$ holds, putting one name for the other is no mistake.

Only exchanges of a name inside a derivative or a function call are looked at, and only when that derivative or call has
the same value at every random point. Everything else that survives is judged by a person.
"""

from __future__ import annotations

import torch

from academy.book.problems import FormulaError
from academy.formulas.comparing import equations
from academy.formulas.meaning.environment import Environment, everywhere
from academy.formulas.reading.page import Page
from academy.formulas.reading.tree import Node, free_indices


def same_value(original: Page, changed: Page, pos: int) -> bool:
    """Whether the display at offset `pos` differs only in derivatives or calls of equal value."""
    before, after = ([s.equation for s in page.steps if s.pos == pos and s.equation] for page in (original, changed))
    sides = [tuple(tuple(equation.sides) for equation in equations) for equations in (before, after)]
    pairs: list[tuple[Node, Node]] = []
    if any(equation.definition for equation in before) or not _differences(sides[0], sides[1], pairs) or not pairs:
        return False
    try:
        return all(_equal(original, pos, pairs, seed) for seed in (11, 12))
    except FormulaError:
        return False


def _differences(a: object, b: object, pairs: list[tuple[Node, Node]]) -> bool:
    """Collect the outermost derivatives and calls that differ; False if anything else differs."""
    if isinstance(a, Node) and isinstance(b, Node) and repr(a) != repr(b):
        if {a.op, b.op} in ({"deriv"}, {"call"}, {"deriv", "sym"}):
            pairs.append((a, b))
            return True
        return a.op == b.op and _differences(a.args, b.args, pairs)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(_differences(x, y, pairs) for x, y in zip(a, b))
    return repr(a) == repr(b)


def _equal(page: Page, pos: int, pairs: list[tuple[Node, Node]], seed: int) -> bool:
    env = equations.random_point(page, seed)
    for step in page.steps:
        if step.pos < pos:
            env.enter(step)
    return all(_same(a, b, env) for a, b in pairs)


def _same(a: Node, b: Node, env: Environment) -> bool:
    if set(free_indices(a)) != set(free_indices(b)):
        return False
    x, y = (everywhere(node, env, free_indices(a)) for node in (a, b))
    return x.shape == y.shape and torch.allclose(x, y, rtol=1e-9, atol=1e-12)
