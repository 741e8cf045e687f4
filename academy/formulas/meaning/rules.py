"""A rule for each kind of node: its float64 value. What has no clear meaning (shape, range, scope) is a type error."""

from __future__ import annotations

import math

import torch

from academy.formulas.meaning import names, positions
from academy.formulas.meaning.environment import RULES, Environment, evaluate
from academy.formulas.meaning.transforms import jacobian
from academy.formulas.meaning.values import DTYPE, multiply, number, stacked, together, wrong
from academy.formulas.reading.tree import Node, free_indices

_FUNCTIONS = {name: getattr(torch, name) for name in "log exp tanh sinh cosh sin cos erf sigmoid".split()}
_REDUCE = {"sum": torch.sum, "prod": torch.prod, "max": torch.amax, "min": torch.amin}


def _add(node: Node, env: Environment) -> torch.Tensor:
    terms = [-evaluate(part, env) if sign == "-" else evaluate(part, env) for sign, part in node.args]
    total = terms[0]
    for value, (_, part) in zip(terms[1:], node.args[1:]):
        # A vector plus a scalar is allowed (X - mu): the scalar is spread over all elements.
        total = together(total, value, torch.add, part, "sum")
    return total


def _mul(node: Node, env: Environment) -> torch.Tensor:
    total, kinds = evaluate(node.args[0][1], env), set()
    for operator, part in node.args[1:]:
        value = evaluate(part, env)
        if total.dim() and value.dim():
            kinds.add(operator == r"\odot")
            if len(kinds) == 2:
                wrong(r"\odot and a matrix product in one term need parentheses", part)
        total = multiply(total, value, operator, part)
    return total


def _function(node: Node, env: Environment) -> torch.Tensor:
    name, argument = node.args
    value = evaluate(argument, env)
    if name != "rowsum":
        return _FUNCTIONS[name](value)
    return value.sum(-1, keepdim=True) if value.dim() == 2 else wrong("rowsum needs a matrix", node)


def _power(node: Node, env: Environment) -> torch.Tensor:
    base, exponent = (evaluate(part, env) for part in node.args)
    if base.dim() or exponent.dim():
        wrong("power of a vector or matrix", node)
    whole = node.args[1].op == "num" and node.args[1].args[0].is_integer()
    return base ** int(node.args[1].args[0]) if whole else base**exponent


def _transpose(node: Node, env: Environment) -> torch.Tensor:
    value = evaluate(node.args[0], env)
    if value.dim() == 0:
        wrong("transpose of a scalar", node)
    return value.unsqueeze(0) if value.dim() == 1 else value.T


def _expectation(node: Node, env: Environment) -> torch.Tensor:
    name, weights, body = node.args
    if weights is None:
        return positions.every_value(Node("mean", (name, None, None, body), node.pos), env).mean(0)
    if evaluate(weights, env).dim() != 1:
        wrong(f"an expectation over {name} needs a vector of probabilities", weights)
    weight = Node("idx", (weights, (Node("index", (name,), node.pos),)), node.pos)
    product = Node("mul", (("", weight), ("*", body)), node.pos)
    return positions.every_value(Node("sum", (name, None, None, product), node.pos), env).sum(0)


def _extremum(node: Node, env: Environment) -> torch.Tensor:
    kind, parts = node.args
    function = torch.maximum if kind == "max" else torch.minimum
    total = evaluate(parts[0], env)
    for part in parts[1:]:
        total = together(total, evaluate(part, env), function, part, kind)
    return total


def case_weights(node: Node, env: Environment) -> torch.Tensor:
    """Of each case, 1 where its condition holds, else 0; `otherwise` is where none of those before it does."""
    weights: list[torch.Tensor] = []
    for _, condition in node.args:
        weights.append(positions.condition(condition, env).to(DTYPE) if condition else 1 - sum(weights, number(0.0)))
        if weights[-1].dim():
            wrong("cases of vectors", node)
    return torch.stack(weights)


def _cases(node: Node, env: Environment) -> torch.Tensor:
    total = number(0.0)
    for (body, _), weight in zip(node.args, case_weights(node, env)):
        value = evaluate(body, env)
        if value.dim():
            wrong("cases of vectors", node)
        total = total + torch.where(weight > 0, value, torch.zeros_like(value))
    return total


def _derivative(node: Node, env: Environment) -> torch.Tensor:
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
    whole = not free_indices(operand)
    known = (repr(operand), key, held)
    if not (whole and known in env.memo):
        fixed = {other: names.symbol(other, env, node) for other in held}

        def at(x: torch.Tensor) -> torch.Tensor:
            return evaluate(operand, env.varied({**fixed, key: x}))

        slopes = jacobian(at, point)
        if whole:
            env.memo[known] = slopes
    slopes = env.memo[known] if whole else slopes
    rank = slopes.dim() - point.dim()
    if variable.op == "idx":
        return positions.take_all(slopes, variable.args[1], rank, node, env)
    if rank and not (rank == 1 and point.dim() <= 1):
        wrong("this derivative needs indices", node)
    return slopes


RULES |= {
    "num": lambda node, env: number(node.args[0]),
    "pi": lambda node, env: number(math.pi),
    "dim": lambda node, env: number(env.dims[node.args[0]]),
    "paren": lambda node, env: evaluate(node.args[0], env),
    "sym": lambda node, env: names.symbol(node.args[0], env, node),
    "bare": names.bare,
    "call": names.call,
    "add": _add,
    "mul": _mul,
    "frac": lambda node, env: multiply(evaluate(node.args[0], env), evaluate(node.args[1], env), "/", node),
    "sqrt": lambda node, env: torch.sqrt(evaluate(node.args[0], env)),
    "fn": _function,
    "pow": _power,
    "transpose": _transpose,
    "idx": lambda node, env: positions.take_all(evaluate(node.args[0], env), node.args[1], 0, node, env),
    "matrix": lambda node, env: stacked([[evaluate(entry, env) for entry in row] for row in node.args], node),
    **dict.fromkeys(_REDUCE, lambda node, env: _REDUCE[node.op](positions.every_value(node, env), 0)),
    "expect": _expectation,
    "extremum": _extremum,
    "indicator": lambda node, env: positions.condition(node.args[0], env).to(DTYPE),
    "cases": _cases,
    "deriv": _derivative,
}
