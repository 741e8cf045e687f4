"""Names: given values, definitions evaluated in a scope of their own, functions, the loss."""

from __future__ import annotations

from collections.abc import Callable

import torch

from academy.formulas.meaning import positions
from academy.formulas.meaning.environment import Defined, Environment, Piece, evaluate, fresh
from academy.formulas.meaning.values import Value, arranged, number, together, wrong
from academy.formulas.reading.tree import Node


def symbol(key: str, env: Environment, node: Node) -> Value:
    """The value of a name that is no function."""
    if key in env.values:
        return env.values[key]
    if key in env.dims:
        return number(env.dims[key])
    if env.loss and key == env.loss.key:
        return _loss(env, node)
    if key in env.defined and not env.defined[key].formals:
        if key not in env.memo:
            env.memo[key] = close(env.defined[key], env, node)
        return env.memo[key]
    wrong(f"{key} has no value here", node)


def _loss(env: Environment, node: Node) -> Value:
    r"""A loss whose upstream gradients are the given ones: $\sum_k \langle \nabla_{Y_k}, Y_k \rangle$."""
    total = number(0.0)
    for output, upstream in env.loss.terms if env.loss else ():
        y, gradient = symbol(output, env, node), symbol(upstream, env, node)
        product = together(y, gradient, torch.mul, node, "loss")
        axes = tuple(range(len(product.labels), product.tensor.dim()))
        term = Value(product.tensor.sum(axes) if axes else product.tensor, product.labels)
        total = together(total, term, torch.add, node, "loss")
    return total


def formals_of(key: str, env: Environment, node: Node) -> tuple[str, ...]:
    if key not in env.defined:
        wrong(f"{key} has no formula here", node)
    return env.defined[key].formals


def close(defined: Defined, env: Environment, node: Node) -> Value:
    """Evaluate a definition's right side; its indices become positional axes."""
    pieces = [piece(line, env) for line in defined.pieces]
    if len(pieces) == 1 and not pieces[0][0]:
        return pieces[0][1]
    if len({len(wheres) for wheres, _ in pieces}) != 1:
        wrong("the lines of a definition have different numbers of subscripts", defined.pieces[-1].body)
    whole = all(
        index.op == "index" and env.ranges[index.args[0]].dim for piece in defined.pieces for index in piece.indices
    )
    if len(pieces) == 1 and whole:
        return _positional(*pieces[0], env, defined.pieces[0].body)
    return positions.scatter(pieces, env, defined.pieces[0].body)


def piece(line: Piece, env: Environment) -> tuple[tuple[Value, ...], Value]:
    """(where each subscript points, the value), over fresh labels for the indices of the left side."""
    names = []
    for index in line.indices:
        inside = [index] if index.op == "index" else [part for _, part in index.args if part.op == "index"]
        if len(inside) != 1 or inside[0].args[0] in names:
            wrong("left of ':=' each subscript needs one index of its own", index)
        names.append(inside[0].args[0])
    renamed = {name: fresh(name) for name in names}
    inner = env.child(labels=dict(renamed))
    value = evaluate(line.body, inner)
    loose = [name for name, label in inner.labels.items() if label == name]
    if loose:
        wrong(f"free index {loose[0]} on the right of a definition is missing on its left", line.body)
    return tuple(positions.position(index, inner) for index in line.indices), value


def _positional(wheres, value: Value, env: Environment, node: Node) -> Value:
    if value.rank:
        wrong("a definition by components must have scalar components", node)
    own = tuple(where.labels[0] for where in wheres)
    outer = tuple(label for label in value.labels if label not in own)
    tensor = arranged(value, outer + own, 0)
    counts = tuple(where.tensor.numel() for where in wheres)
    return Value(tensor.expand((*tensor.shape[: len(outer)], *counts)), outer)


# ---------------------------------------------------------------- functions
def call(key: str, order: int, arguments: list[Node], env: Environment, node: Node) -> Value:
    """`f(x)`, `f'(x)` (order 1) …; a function of a number applied to a vector or matrix acts on each element."""
    if key in env.generic and key not in env.defined:
        if len(arguments) != 1:
            wrong("a generic function takes one argument", node)
        x = evaluate(arguments[0], env)
        return Value(nth_derivative(env.generic[key], order)(x.tensor), x.labels)
    if key not in env.defined:
        wrong(f"function {key} is not defined here", node)
    defined = env.defined[key]
    if len(arguments) != len(defined.formals):
        wrong(f"{key} takes {len(defined.formals)} arguments", node)
    values, integers, spread = _bind(defined, arguments, env, node)
    if order == 0:
        return _gathered(close(defined, env.child(values=values, integers=integers), node), spread)
    formal = defined.formals[0]
    plain = len(defined.pieces) == 1 and not defined.pieces[0].indices
    if len(defined.formals) != 1 or not plain or formal not in values or values[formal].rank:
        wrong("f' is for functions of one number", node)
    point = values[formal]

    def at(x: torch.Tensor) -> torch.Tensor:
        inner = env.child(values={**values, formal: Value(x, point.labels)}, integers=integers)
        value = close(defined, inner, node)
        return arranged(value, point.labels, 0).expand(x.shape) if value.labels != point.labels else value.tensor

    return _gathered(Value(nth_derivative(at, order)(point.tensor), point.labels), spread)


def _bind(defined: Defined, arguments: list[Node], env: Environment, node: Node):
    """Values and integers of the formal parameters, and the labels that stand for axes of an elementwise argument."""
    values, integers = dict(env.values), dict(env.integers)
    spread: tuple[str, ...] = ()
    for formal, argument in zip(defined.formals, arguments):
        if formal in env.integers:
            if argument.op != "intsym":
                wrong(f"argument {formal} of {defined.key} must be a class index", node)
            integers[formal] = env.integers[argument.args[0]]
            continue
        if argument.op in ("intsym", "index", "intlit", "affine"):
            wrong(f"argument {formal} of {defined.key} must be a value", node)
        value = evaluate(argument, env)
        expected = env.values[formal].shape if formal in env.values else ()
        if expected == () and value.rank and len(defined.formals) == 1:
            spread = tuple(fresh("axis") for _ in range(value.rank))
            value = Value(value.tensor, value.labels + spread)
        if value.shape != expected:
            wrong(f"argument {formal} of {defined.key} has shape {value.shape}, expected {expected}", node)
        values[formal] = value
    return values, integers, spread


def _gathered(value: Value, spread: tuple[str, ...]) -> Value:
    """Turn the labels of an elementwise argument back into positional axes."""
    if not spread:
        return value
    outer = tuple(label for label in value.labels if label not in spread)
    return Value(arranged(value, outer + spread, 0), outer)


def nth_derivative(function: Callable, order: int) -> Callable:
    """Of an elementwise function, by forward-mode differentiation."""
    for _ in range(order):
        function = _slope(function)
    return function


def _slope(function: Callable) -> Callable:
    return lambda x: torch.func.jvp(function, (x,), (torch.ones_like(x),))[1]
