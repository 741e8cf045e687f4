"""Derivatives on the page -> autograd of the definitions on the same page."""

from __future__ import annotations

import torch

from academy.formulas.errors import FormulaError
from academy.formulas.meaning import names, positions
from academy.formulas.meaning.environment import Environment, evaluate
from academy.formulas.meaning.values import Value, wrong
from academy.formulas.reading.tree import Node


def derivative(node: Node, env: Environment) -> Value:
    """Value of a `deriv` node: (operand, variable, names held fixed).

    Everything defined on the page is recomputed from the variable, so d/dx passes through it; a name that is held
    fixed keeps its value, and must matter: otherwise the bar on the page says nothing.
    """
    operand, variable, held = node.args
    name, indices = (variable, ()) if variable.op == "sym" else variable.args
    key = name.args[0]
    if key in held:
        wrong("differentiating by a variable that is held fixed", node)
    point = names.symbol(key, env, name)
    if point.labels:
        wrong("derivative by a value that carries free indices", node)
    fixed = {name: names.symbol(name, env, node) for name in held}
    result = _jacobian(node, key, point, indices, fixed, env)
    for name in held:
        _must_matter(name, node, key, point, indices, fixed, env, result)
    return result


def _must_matter(name, node, key, point, indices, fixed, env, result) -> None:
    rest = {other: value for other, value in fixed.items() if other != name}
    try:
        without = _jacobian(node, key, point, indices, rest, env)
    except FormulaError:
        return
    if torch.allclose(result.tensor, without.tensor):
        wrong(f"holding {name} fixed changes nothing", node)


def _jacobian(node: Node, key: str, point: Value, indices: tuple, fixed: dict, env: Environment) -> Value:
    operand, shape = node.args[0], Value(point.tensor)

    def at(x: torch.Tensor) -> torch.Tensor:
        inner = env.child(values={**env.values, **fixed, key: Value(x)}, labels=dict(env.labels))
        value = evaluate(operand, inner)
        shape.tensor, shape.labels = value.tensor, value.labels
        env.adopt(inner)
        return value.tensor

    scalar = at(point.tensor).dim() == 0
    jacobian = (torch.func.grad if scalar else torch.func.jacrev)(at)(point.tensor)
    value, rank = Value(jacobian, shape.labels), shape.rank
    if indices:
        return positions.take_all(value, indices, rank, node, env)
    if rank and not (rank == 1 and point.rank <= 1):
        wrong("this derivative needs indices", node)
    return value
