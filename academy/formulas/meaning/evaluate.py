"""Syntax tree -> float64 value. Anything without a clear meaning (shapes, ranges, scopes) is a type error."""

from __future__ import annotations

import math

import torch

from academy.formulas.errors import FormulaError
from academy.formulas.meaning import differentiate, names, positions
from academy.formulas.meaning.environment import RULES, Environment, evaluate
from academy.formulas.meaning.values import DTYPE, Value, multiply, number, stacked, together, wrong
from academy.formulas.reading.tree import Node

_FUNCTIONS = {name: getattr(torch, name) for name in "log exp tanh sinh cosh sin cos erf sigmoid".split()}


# ---------------------------------------------------------------- arithmetic
def _add(node: Node, env: Environment) -> Value:
    terms = [evaluate(part, env).map(torch.neg if sign == "-" else torch.positive) for sign, part in node.args]
    total = terms[0]
    for value, (_, part) in zip(terms[1:], node.args[1:]):
        # A vector plus a scalar is allowed (X - mu): the scalar is spread over all elements.
        total = together(total, value, torch.add, part, "sum")
    return total


def _mul(node: Node, env: Environment) -> Value:
    total, kinds = evaluate(node.args[0][1], env), set()
    for operator, part in node.args[1:]:
        value = evaluate(part, env)
        if total.rank and value.rank:
            kinds.add(operator == r"\odot")
            if len(kinds) == 2:
                wrong(r"\odot and a matrix product in one term need parentheses", part)
        total = multiply(total, value, operator, part)
    return total


def _function(node: Node, env: Environment) -> Value:
    name, argument = node.args
    value = evaluate(argument, env)
    if name != "rowsum":
        return value.map(_FUNCTIONS[name])
    return value.map(lambda t: t.sum(-1, keepdim=True)) if value.rank == 2 else wrong("rowsum needs a matrix", node)


def _power(node: Node, env: Environment) -> Value:
    base, exponent = (evaluate(part, env) for part in node.args)
    if base.rank:
        wrong("power of a vector or matrix", node)
    if node.args[1].op == "num" and node.args[1].args[0].is_integer():
        return base.map(lambda tensor: tensor ** int(node.args[1].args[0]))
    return together(base, exponent, torch.pow, node, "power")


def _transpose(node: Node, env: Environment) -> Value:
    value = evaluate(node.args[0], env)
    if value.rank == 0:
        wrong("transpose of a scalar", node)
    return value.map(lambda tensor: tensor.unsqueeze(-2) if value.rank == 1 else tensor.transpose(-1, -2))


# ---------------------------------------------------------------- running over an index
#: What is done over the index, and what a condition puts in place of what it leaves out.
_RUNNING = {"sum": (torch.sum, 0.0), "prod": (torch.prod, 1.0), "mean": (torch.mean, 0.0)}
_RUNNING |= {"max": (torch.amax, -math.inf), "min": (torch.amin, math.inf)}


def _running(node: Node, env: Environment) -> Value:
    (value, label), (reduce, neutral) = positions.running_body(node, env), _RUNNING[node.op]
    if node.args[2]:
        mask = env.under(node.args[0], label, positions.condition, node.args[2])
        filler = torch.tensor(neutral, dtype=DTYPE)
        value = together(value, mask, lambda v, m: torch.where(m, v, filler), node, "condition")
    return value.along(label, reduce)


def _expectation(node: Node, env: Environment) -> Value:
    name, weights, body = node.args
    if weights is None:
        return _running(Node("mean", (name, None, None, body), node.pos), env)
    weight = evaluate(weights, env)
    if weight.rank != 1:
        wrong(f"an expectation over {name} needs a vector of probabilities", weights)
    total = weight.tensor.sum(-1)
    if not env.batched and not (torch.allclose(total, torch.ones_like(total)) and bool((weight.tensor >= 0).all())):
        raise FormulaError("these weights are no probabilities: they don't sum to 1", weights.pos, "value")
    index = Node("index", (name,), node.pos)
    product = Node("mul", (("", Node("idx", (weights, (index,)), node.pos)), ("*", body)), node.pos)
    return _running(Node("sum", (name, None, None, product), node.pos), env)


def _extremum(node: Node, env: Environment) -> Value:
    kind, parts = node.args
    function = torch.maximum if kind == "max" else torch.minimum
    total = evaluate(parts[0], env)
    for part in parts[1:]:
        total = together(total, evaluate(part, env), function, part, kind)
    return total


# ---------------------------------------------------------------- conditions as numbers
def _indicator(condition: Node, env: Environment) -> Value:
    return positions.condition(condition, env).map(lambda holds: holds.to(DTYPE))


def _cases(node: Node, env: Environment) -> Value:
    total, covered = number(0.0), number(0.0)
    for body, condition in node.args:
        here = _indicator(condition, env) if condition else covered.map(lambda covered: 1 - covered)
        covered = together(covered, here, torch.add, node, "cases")
        value = evaluate(body, env)
        if value.rank:
            wrong("cases of vectors", node)
        value = together(value, here, lambda v, m: torch.where(m > 0, v, torch.zeros_like(v)), node, "cases")
        total = together(total, value, torch.add, node, "cases")
    if not env.batched and not bool((covered.tensor == 1).all()):
        raise FormulaError("the cases overlap or leave a gap", node.pos, "value")
    return total


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
    "sqrt": lambda node, env: evaluate(node.args[0], env).map(torch.sqrt),
    "fn": _function,
    "pow": _power,
    "transpose": _transpose,
    "idx": lambda node, env: positions.take_all(evaluate(node.args[0], env), node.args[1], 0, node, env),
    "matrix": lambda node, env: stacked([[evaluate(entry, env) for entry in row] for row in node.args], node),
    **dict.fromkeys(("sum", "prod", "max", "min"), _running),
    "expect": _expectation,
    "extremum": _extremum,
    "indicator": lambda node, env: _indicator(node.args[0], env),
    "cases": _cases,
    "deriv": differentiate.derivative,
}
