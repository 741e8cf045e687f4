"""Derivatives on the page -> autograd of the definitions on the same page."""

from __future__ import annotations

import torch

from academy.formulas.meaning import names, positions
from academy.formulas.meaning.environment import Environment, evaluate
from academy.formulas.meaning.values import wrong
from academy.formulas.reading.tree import Node


def derivative(node: Node, env: Environment) -> torch.Tensor:
    """Value of a `deriv` node: (operand, variable, names held fixed).

    Everything defined on the page is recomputed from the variable, so d/dx passes through it; a name that is held
    fixed keeps its value.
    """
    operand, variable, held = node.args
    name = variable.args[0] if variable.op == "idx" else variable
    key = name.args[0]
    if key in held:
        wrong("differentiating by a variable that is held fixed", node)
    point = names.symbol(key, env, name)
    fixed = {other: names.symbol(other, env, node) for other in held}

    def at(x: torch.Tensor) -> torch.Tensor:
        return evaluate(operand, env.child(values={**env.values, **fixed, key: x}))

    rank = at(point).dim()
    jacobian = (torch.func.jacrev if rank else torch.func.grad)(at)(point)
    if variable.op == "idx":
        return positions.take_all(jacobian, variable.args[1], rank, node, env)
    if rank and not (rank == 1 and point.dim() <= 1):
        wrong("this derivative needs indices", node)
    return jacobian
