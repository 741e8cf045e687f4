r"""Mutants that change no value: where $\nabla_x = \nabla_z$ holds, putting one name for the other is no mistake.

Only exchanges of a name inside a derivative or a function call are looked at, and only when that derivative or call has
the same value at every random point. Everything else that survives is judged by a person.
"""

from __future__ import annotations

import torch

from academy.formulas.checking import equations
from academy.formulas.errors import FormulaError
from academy.formulas.meaning.environment import Environment, define
from academy.formulas.meaning.evaluate import evaluate
from academy.formulas.meaning.values import arranged, union
from academy.formulas.reading.page import Page
from academy.formulas.reading.tree import Node


def same_value(original: Page, changed: Page, pos: int) -> bool:
    """Whether the display at offset `pos` differs only in derivatives or calls of equal value."""
    before, after = ([s for s in page.steps if s.pos == pos and s.equation] for page in (original, changed))
    if len(before) != len(after):
        return False
    pairs: list[tuple[Node, Node]] = []
    for a, b in zip(before, after):
        if a.equation.definition or len(a.equation.sides) != len(b.equation.sides):
            return False
        for left, right in zip(a.equation.sides, b.equation.sides):
            if not _differences(left, right, pairs):
                return False
    try:
        return bool(pairs) and all(_equal(original, pos, pairs, seed) for seed in (11, 12))
    except FormulaError:
        return False


def _differences(a: object, b: object, pairs: list[tuple[Node, Node]]) -> bool:
    """Collect the outermost derivatives and calls that differ; False if anything else differs."""
    if isinstance(a, Node) and isinstance(b, Node):
        if repr(a) == repr(b):
            return True
        kinds = {a.op, b.op}
        if kinds in ({"deriv"}, {"call"}, {"deriv", "sym"}):
            pairs.append((a, b))
            return True
        return a.op == b.op and _differences(a.args, b.args, pairs)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(_differences(x, y, pairs) for x, y in zip(a, b))
    return a == b


def _equal(page: Page, pos: int, pairs: list[tuple[Node, Node]], seed: int) -> bool:
    env = equations.random_point(page, seed)
    for at, step in enumerate(page.steps):
        if step.pos >= pos:
            break
        if step.kind == "forget":
            env.forget(step.keys)
        elif step.kind == "define" and not step.continues:
            define(page, at, env)
    return all(_same(a, b, env) for a, b in pairs)


def _same(a: Node, b: Node, env: Environment) -> bool:
    env.labels.clear()
    x, y = evaluate(a, env), evaluate(b, env)
    if x.shape != y.shape or set(x.labels) != set(y.labels):
        return False
    labels = union(x, y)
    return torch.allclose(arranged(x, labels, x.rank), arranged(y, labels, y.rank), rtol=1e-9, atol=1e-12)
