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
    _, variable, held = node.args
    name = variable.args[0] if variable.op == "idx" else variable
    if name.args[0] in held:
        wrong("differentiating by a variable that is held fixed", node)
    if names.symbol(name.args[0], env, name).labels:
        wrong("derivative by a value that carries free indices", node)
    result = _jacobian(node, name, held, env)
    for each in held:
        try:
            without = _jacobian(node, name, tuple(other for other in held if other != each), env)
        except FormulaError:
            continue
        if torch.allclose(result.tensor, without.tensor):
            wrong(f"holding {each} fixed changes nothing", node)
    return result


def _jacobian(node: Node, name: Node, held: tuple[str, ...], env: Environment) -> Value:
    (operand, variable, _), key = node.args, name.args[0]
    point = names.symbol(key, env, name)
    fixed = {other: names.symbol(other, env, node) for other in held}
    result = Value(point.tensor)

    def at(x: torch.Tensor) -> torch.Tensor:
        inner = env.child(values={**env.values, **fixed, key: Value(x)}, labels=dict(env.labels))
        value = evaluate(operand, inner)
        result.tensor, result.labels = value.tensor, value.labels
        env.adopt(inner.labels)
        return value.tensor

    scalar = at(point.tensor).dim() == 0
    jacobian = Value((torch.func.grad if scalar else torch.func.jacrev)(at)(point.tensor), result.labels)
    if variable.op == "idx":
        return positions.take_all(jacobian, variable.args[1], result.rank, node, env)
    if result.rank and not (result.rank == 1 and point.rank <= 1):
        wrong("this derivative needs indices", node)
    return jacobian
