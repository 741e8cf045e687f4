"""Names: given values, definitions evaluated in a scope of their own, functions, the loss."""

from __future__ import annotations

from collections.abc import Callable

import torch

from academy.formulas.meaning import positions
from academy.formulas.meaning.environment import Environment, evaluate, fresh
from academy.formulas.meaning.values import Labels, Value, number, together, wrong
from academy.formulas.reading.tree import Equation, Node, pieces


def symbol(key: str, env: Environment, node: Node) -> Value:
    """The value of a name that is no function."""
    if key in env.values:
        return env.values[key]
    if key in env.dims:
        return number(env.dims[key])
    if env.loss and key == env.loss.key:
        return _loss(env, node)
    if key not in env.defined or _formals(env.defined[key]):
        wrong(f"{key} has no value here", node)
    if key not in env.memo:
        env.memo[key] = close(env.defined[key], env)
    return env.memo[key]


def _loss(env: Environment, node: Node) -> Value:
    r"""A loss whose upstream gradients are the given ones: $\sum_k \langle \nabla_{Y_k}, Y_k \rangle$."""
    total = number(0.0)
    for output, upstream in env.loss.terms if env.loss else ():
        product = together(symbol(output, env, node), symbol(upstream, env, node), torch.mul, node, "loss")
        axes = tuple(range(len(product.labels), product.tensor.dim()))
        term = Value(product.tensor.sum(axes) if axes else product.tensor, product.labels)
        total = together(total, term, torch.add, node, "loss")
    return total


def _formals(lines: list[Equation]) -> tuple[str, ...]:
    definition = lines[0].definition
    return definition.formals if definition else ()


def close(lines: list[Equation], env: Environment) -> Value:
    """Evaluate a definition's right side; its indices become positional axes."""
    return assembled([(pieces(line), line.sides[0]) for line in lines], env)


def assembled(lines: list[tuple[tuple[Node, ...], Node]], env: Environment) -> Value:
    """The value whose elements are stated by lines of (subscripts, body); without subscripts, the body's value."""
    if len({len(indices) for indices, _ in lines}) != 1:
        wrong("the lines of a definition have different numbers of subscripts", lines[-1][1])
    found = [_piece(indices, body, env) for indices, body in lines]
    return positions.scatter(found, env, lines[0][1]) if lines[0][0] else found[0][1]


def _piece(indices: tuple[Node, ...], body: Node, env: Environment) -> tuple[list[Value], Value]:
    """(where each subscript points, the value), over fresh labels for the indices of the left side."""
    names: list[str] = []
    for index in indices:
        inside = [index] if index.op == "index" else [part for _, part in index.args if part.op == "index"]
        if len(inside) != 1 or inside[0].args[0] in names:
            wrong("left of ':=' each subscript needs one index of its own", index)
        names.append(inside[0].args[0])
    inner = env.child(labels={name: fresh(name) for name in names})
    value = evaluate(body, inner)
    for name, label in inner.labels.items():
        if label == name:
            wrong(f"free index {name} on the right of a definition is missing on its left", body)
    return [positions.position(index, inner) for index in indices], value


# ---------------------------------------------------------------- functions
def call(node: Node, env: Environment) -> Value:
    """`f(x)`, `f'(x)` (order 1) …; a function of a number applied to a vector or matrix acts on each element."""
    key, order, arguments = node.args
    lines = env.defined.get(key, [])
    if not lines and key not in env.generic:
        wrong(f"function {key} is not defined here", node)
    formals = _formals(lines) if lines else ("",)
    if len(arguments) != len(formals):
        wrong(f"{key} takes {len(formals)} arguments", node)
    if not lines:
        return evaluate(arguments[0], env).map(nth_derivative(env.generic[key], order))
    values, integers, spread = _bind(key, formals, arguments, env, node)
    if order == 0:
        return close(lines, env.child(values=values, integers=integers)).positional(spread)
    if len(formals) != 1 or pieces(lines[0]) or formals[0] not in values or values[formals[0]].rank:
        wrong("f' is for functions of one number", node)
    point = values[formals[0]]

    def at(x: torch.Tensor) -> torch.Tensor:
        inner = env.child(values={**values, formals[0]: Value(x, point.labels)}, integers=integers)
        value = close(lines, inner)
        return value.arranged(point.labels, 0).expand(x.shape) if value.labels != point.labels else value.tensor

    return point.map(nth_derivative(at, order)).positional(spread)


def bare(node: Node, env: Environment) -> Value:
    """A function's name without arguments: applied to its own formal parameters."""
    key = node.args[0]
    if key not in env.defined:
        wrong(f"{key} has no formula here", node)
    formals = _formals(env.defined[key])
    arguments = (Node("class" if name in env.integers else "sym", (name,), node.pos) for name in formals)
    return call(Node("call", (key, 0, tuple(arguments)), node.pos), env)


def _bind(key: str, formals: tuple[str, ...], arguments: tuple[Node, ...], env: Environment, node: Node):
    """Values and integers of the formal parameters, and the labels that stand for axes of an elementwise argument."""
    values, integers, spread = dict(env.values), dict(env.integers), Labels()
    for formal, argument in zip(formals, arguments):
        if (formal in env.integers) != (argument.op == "class") or argument.op in ("index", "intlit", "affine"):
            what = "class index" if formal in env.integers else "value"
            wrong(f"argument {formal} of {key} must be a {what}", node)
        if argument.op == "class":
            integers[formal] = env.integers[argument.args[0]]
            continue
        value = evaluate(argument, env)
        expected = env.values[formal].shape if formal in env.values else ()
        if expected == () and value.rank and len(formals) == 1:
            spread = tuple(fresh("axis") for _ in range(value.rank))
            value = Value(value.tensor, value.labels + spread)
        if value.shape != expected:
            wrong(f"argument {formal} of {key} has shape {value.shape}, expected {expected}", node)
        values[formal] = value
    return values, integers, spread


def nth_derivative(function: Callable, order: int) -> Callable:
    """Of an elementwise function, by forward-mode differentiation."""
    if order == 0:
        return function
    slope = nth_derivative(function, order - 1)
    return lambda x: torch.func.jvp(slope, (x,), (torch.ones_like(x),))[1]
