"""Syntax tree -> float64 value. Anything without a clear meaning (shapes, ranges, scopes) is a type error."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from academy.formulas.errors import FormulaError
from academy.formulas.meaning import differentiate, names, positions
from academy.formulas.meaning.environment import RULES, evaluate
from academy.formulas.meaning.values import DTYPE, Value, elementwise, multiply, number, stacked, together, wrong
from academy.formulas.reading.tree import Node

_FUNCTIONS = {name: getattr(torch, name) for name in "log exp tanh sinh cosh sin cos erf sigmoid".split()}


# ---------------------------------------------------------------- arithmetic
def _add(node, env):
    total = None
    for sign, part in node.args:
        value = evaluate(part, env)
        value = elementwise(value, torch.neg) if sign == "-" else value
        # A vector plus a scalar is allowed (X - mu): the scalar is spread over all elements.
        total = value if total is None else together(total, value, torch.add, part, "sum")
    return total


def _mul(node, env):
    total, kinds = evaluate(node.args[0][1], env), set()
    for operator, part in node.args[1:]:
        value = evaluate(part, env)
        if total.rank and value.rank:
            kinds.add(operator == r"\odot")
            if len(kinds) == 2:
                wrong(r"\odot and a matrix product in one term need parentheses", part)
        total = multiply(total, value, operator, part)
    return total


def _function(node, env):
    name, argument = node.args
    value = evaluate(argument, env)
    if name != "rowsum":
        return elementwise(value, _FUNCTIONS[name])
    if value.rank != 2:
        wrong("rowsum needs a matrix", node)
    return Value(value.tensor.sum(-1, keepdim=True), value.labels)


def _power(node, env):
    base, exponent = (evaluate(part, env) for part in node.args)
    if base.rank:
        wrong("power of a vector or matrix", node)
    if node.args[1].op == "num" and node.args[1].args[0].is_integer():
        return Value(base.tensor ** int(node.args[1].args[0]), base.labels)
    return together(base, exponent, torch.pow, node, "power")


def _transpose(node, env):
    value = evaluate(node.args[0], env)
    if value.rank == 1:
        return Value(value.tensor.unsqueeze(-2), value.labels)
    if value.rank != 2:
        wrong("transpose of a scalar", node)
    return Value(value.tensor.transpose(-1, -2), value.labels)


def _subscripted(node, env):
    value = evaluate(node.args[0], env)
    return positions.take_all(value, node.args[1], 0, node, env)


def _matrix(node, env):
    return stacked([[evaluate(entry, env) for entry in row] for row in node.args], node)


# ---------------------------------------------------------------- running over an index
_NEUTRAL = {"sum": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}
_REDUCE = {"sum": torch.sum, "prod": torch.prod, "max": torch.amax, "min": torch.amin}


def _running(node, env):
    value, label, _ = positions.running_body(node, env)
    if node.args[2] is not None:
        inner = replace(env, labels={**env.labels, node.args[0]: label})
        mask = positions.condition(node.args[2], inner)
        env.adopt(inner, except_for=node.args[0])
        neutral = torch.tensor(_NEUTRAL[node.op], dtype=DTYPE)
        value = together(value, mask, lambda v, m: torch.where(m, v, neutral), node, "condition")
    axis = value.labels.index(label)
    return Value(_REDUCE[node.op](value.tensor, axis), value.labels[:axis] + value.labels[axis + 1 :])


def _expectation(node, env):
    name, weights, body = node.args
    if weights is None:
        value, label, here = positions.running_body(Node("expectation", (name, None, None, body), node.pos), env)
        axis = value.labels.index(label)
        return Value(value.tensor.sum(axis) / here.count, value.labels[:axis] + value.labels[axis + 1 :])
    weight = evaluate(weights, env)
    if weight.rank != 1:
        wrong(f"an expectation over {name} needs a vector of probabilities", weights)
    if not env.batched and not _probabilities(weight.tensor):
        raise FormulaError("these weights are no probabilities: they don't sum to 1", weights.pos, "value")
    index = Node("index", (name,), node.pos)
    product = Node("mul", (("", Node("idx", (weights, (index,)), node.pos)), ("*", body)), node.pos)
    return evaluate(Node("sum", (name, None, None, product), node.pos), env)


def _probabilities(weights: torch.Tensor) -> bool:
    total = weights.sum(-1)
    return torch.allclose(total, torch.ones_like(total)) and bool((weights >= 0).all())


def _extremum(node, env):
    kind, parts = node.args
    total = evaluate(parts[0], env)
    for part in parts[1:]:
        function = torch.maximum if kind == "max" else torch.minimum
        total = together(total, evaluate(part, env), function, part, kind)
    return total


# ---------------------------------------------------------------- conditions as numbers
def _indicator(node, env):
    return elementwise(positions.condition(node.args[0], env), lambda holds: holds.to(DTYPE))


def _cases(node, env):
    total, covered = number(0.0), number(0.0)
    for body, condition in node.args:
        if condition is None:
            here = elementwise(covered, lambda covered: 1 - covered)
        else:
            here = elementwise(positions.condition(condition, env), lambda holds: holds.to(DTYPE))
        covered = together(covered, here, torch.add, node, "cases")
        value = evaluate(body, env)
        if value.rank:
            wrong("cases of vectors", node)
        value = together(value, here, lambda v, m: torch.where(m > 0, v, torch.zeros_like(v)), node, "cases")
        total = together(total, value, torch.add, node, "cases")
    if not env.batched and not bool((covered.tensor == 1).all()):
        raise FormulaError("the cases overlap or leave a gap", node.pos, "value")
    return total


def _bare(node, env):
    """A function's name without arguments: applied to its own formal parameters."""
    formals = names.formals_of(node.args[0], env, node)
    arguments = [Node("intsym" if name in env.integers else "sym", (name,), node.pos) for name in formals]
    return names.call(node.args[0], 0, arguments, env, node)


RULES |= {
    "num": lambda node, env: number(node.args[0]),
    "pi": lambda node, env: number(math.pi),
    "dim": lambda node, env: number(env.dims[node.args[0]]),
    "paren": lambda node, env: evaluate(node.args[0], env),
    "sym": lambda node, env: names.symbol(node.args[0], env, node),
    "bare": _bare,
    "call": lambda node, env: names.call(node.args[0], node.args[1], list(node.args[2]), env, node),
    "add": _add,
    "mul": _mul,
    "frac": lambda node, env: multiply(evaluate(node.args[0], env), evaluate(node.args[1], env), "/", node),
    "sqrt": lambda node, env: elementwise(evaluate(node.args[0], env), torch.sqrt),
    "fn": _function,
    "pow": _power,
    "transpose": _transpose,
    "idx": _subscripted,
    "matrix": _matrix,
    **dict.fromkeys(("sum", "prod", "max", "min"), _running),
    "expect": _expectation,
    "extremum": _extremum,
    "indicator": _indicator,
    "cases": _cases,
    "deriv": differentiate.derivative,
}
