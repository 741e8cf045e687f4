"""Names: given values, definitions evaluated in a scope of their own, functions, the loss."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

from academy.formulas.meaning import positions
from academy.formulas.meaning.environment import Environment, evaluate, every_position, everywhere
from academy.formulas.meaning.transforms import elementwise_slope, for_each
from academy.formulas.meaning.values import DTYPE, number, together, wrong
from academy.formulas.reading.tree import (
    BINDERS,
    Equation,
    Node,
    children,
    free_indices,
    mentioned,
    nodes,
    pieces,
    whole_number,
)


def symbol(key: str, env: Environment, node: Node) -> torch.Tensor:
    """The value of a name that is no function."""
    if key in env.values:
        return env.values[key]
    if key in env.dims:
        return number(env.dims[key])
    if env.loss and key == env.loss.key:
        # Its upstream gradients are the given ones.
        pairs = [[symbol(name, env, node) for name in pair] for pair in env.loss.terms]
        return torch.stack([together(y, upstream, torch.mul, node, "loss").sum() for y, upstream in pairs]).sum()
    if key not in env.defined or _formals(env.defined[key]):
        wrong(f"{key} has no value here", node)
    if key not in env.memo:
        env.memo[key] = iterated(key, env) if recursive(key, env) else close(env.defined[key], env)
    return env.memo[key]


def recursive(key: str, env: Environment) -> bool:
    """Whether the definition of a name mentions that name."""
    return key in mentioned([line.sides[0] for line in env.defined[key]])


def iterated(key: str, env: Environment, start: float = 0.0) -> torch.Tensor:
    """The value of a recursive definition: its right side, evaluated again and again, at first with `start` everywhere.

    Each round settles the elements that are made of settled ones, so there are as many rounds as a chain of different
    elements can have links. A fixed number, and not "until nothing changes": so it can be differentiated and batched.
    Where all chains lead one way along an axis, a round settles one place of it, and evaluates no other.
    """
    env = env.child(memo=env.memo, chosen={})
    lines = _inhabited(env.defined[key], env, pieces)
    places = zip(*(_places(pieces(line), env) for line in lines))
    shape = [max(int(where.max()) for where in axis) + 1 for axis in places]
    value = torch.full(shape, start, dtype=DTYPE)
    # What else the lines mention was defined before this name and can't depend on it, so the memo stays. (A derivative
    # can depend on it.)
    derived = any(node.op == "deriv" for node in nodes([line.sides for line in lines]))
    steps = list(_steps(key, lines, env))
    walked = one_way(shape, steps)
    for done in range(rounds(shape, steps)):
        memo = {} if derived else env.memo
        inner = env.child(memo=memo, values={**env.values, key: value})
        if walked and done:
            axis, sign = walked
            value = _settled(lines, inner, value, axis, done if sign < 0 else shape[axis] - 1 - done)
        else:
            value = close(lines, inner)  # also finds what is wrong with the lines
    return value


def _settled(lines: list[Equation], env: Environment, value: torch.Tensor, axis: int, place: int) -> torch.Tensor:
    """The value with one place along an axis evaluated again."""
    parts = []
    for line in lines:
        indices = pieces(line)
        (here,) = torch.nonzero(_places(indices, env)[axis].reshape(-1) == place, as_tuple=True)
        if len(here):
            chosen = {}
            for name in free_indices(indices[axis]):
                counted, subscripts = every_position(name, env)
                chosen[name] = counted[here], subscripts[here]
            where, part = _placed(indices, line.sides[0], env, chosen)
            parts.append(([at for other, at in enumerate(where) if other != axis], part.select(axis, 0)))
    made = positions.scatter(parts, env, lines[0].sides[0]).unsqueeze(axis)
    before, _, after = value.split([place, 1, value.shape[axis] - place - 1], axis)
    return torch.cat([before, made, after], axis)


def settles(key: str, env: Environment) -> bool:
    """Whether a recursive definition determines every element, wherever its iteration starts."""
    return torch.equal(symbol(key, env, env.defined[key][0].sides[0]), iterated(key, env, start=1.7))


def rounds(shape: list[int], steps: list[list[int | None]]) -> int:
    """How many links a chain of elements can have, given where the steps from one to the next lead.

    Where all steps lead the same way along an axis, a chain has as many links as the axis has places. Otherwise it can
    have one for each element along all axes that a step leads along.
    """
    if walked := one_way(shape, steps):
        return shape[walked[0]]
    return math.prod(size for axis, size in enumerate(shape) if any(step[axis] != 0 for step in steps))


def one_way(shape: list[int], steps: list[list[int | None]]) -> tuple[int, int] | None:
    """The shortest axis along which all steps lead the same way, and the way's sign; None if there is none."""
    found = []
    for axis, size in enumerate(shape):
        shifts = [step[axis] for step in steps]
        known = [shift for shift in shifts if shift is not None]
        if known and len(known) == len(shifts) and (min(known) > 0 or max(known) < 0):
            found.append((size, axis, 1 if min(known) > 0 else -1))
    return min(found)[1:] if found else None


def _steps(key: str, lines: list[Equation], env: Environment) -> Iterator[list[int | None]]:
    """For each mention of the name in its own definition: how far it leads along each axis, None if that varies in
    sign. (Where it varies in length only, as in a sum over `j < i`, one step.)"""
    for line in lines:
        left = pieces(line)
        for subscripts, sums in _mentions(key, line.sides[0]):  # an axis without a subscript: all of it
            shifts = [_shift(at, start, env, sums) for start, at in zip(left, subscripts)]
            yield shifts + [None] * (len(left) - len(shifts))


def _mentions(key: str, tree: Any, sums: tuple[Node, ...] = ()) -> Iterator[tuple[tuple[Node, ...], tuple[Node, ...]]]:
    """The subscripts of each mention of a name in a tree, and the sums and the like around it."""
    inner = children(tree)
    if isinstance(tree, Node):
        sums = (*sums, tree) if tree.op in BINDERS else sums
        of, subscripts = tree.args if tree.op == "idx" else (tree, ())
        if of.op == "sym" and of.args[0] == key:
            yield subscripts, sums
            inner = iter(subscripts)
    for child in inner:
        yield from _mentions(key, child, sums)


def _shift(at: Node, start: Node, env: Environment, sums: tuple[Node, ...]) -> int | None:
    """`at` - `start`, two subscripts, if it is the same number for all values of their indices; -1 or 1 if a sum's
    condition keeps `at` on one side of `start`."""
    number, factors = 0, Counter[str]()
    for sign, index in ((1, at), (-1, start)):
        for factor, part in index.args if index.op == "affine" else [(1, index)]:
            if part.op in ("intlit", "dim"):
                number += sign * factor * whole_number(part, env.dims)
            else:
                factors[repr(part)] += sign * factor
    if not any(factors.values()):
        return number
    conditions = [each.args[2] for each in sums if len(each.args) == 4]
    strict = {repr(Node("rel", (sign, at, start))): way for sign, way in (("<", -1), (">", 1))}
    return next((strict[text] for text in map(repr, conditions) if text in strict), None)


def _formals(lines: list[Equation]) -> tuple[str, ...]:
    definition = lines[0].definition
    return definition.formals if definition else ()


def close(lines: list[Equation], env: Environment) -> torch.Tensor:
    """Evaluate a definition's right side; its indices become axes."""
    value = assembled([(pieces(line), line.sides[0]) for line in lines], env)
    if pieces(lines[0]) and value.dim() != len(pieces(lines[0])):
        wrong("a definition by components must have scalar components", lines[0].sides[0])
    return value


def assembled(lines: list[tuple[tuple[Node, ...], Node]], env: Environment) -> torch.Tensor:
    """The value whose elements are stated by lines of (subscripts, body); without subscripts, the body's value."""
    if len({len(indices) for indices, _ in lines}) != 1:
        wrong("the lines of a definition have different numbers of subscripts", lines[-1][1])
    parts = [_placed(indices, body, env, {}) for indices, body in _inhabited(lines, env, lambda line: line[0])]
    return positions.scatter(parts, env, lines[0][1]) if lines[0][0] else parts[0][1]


def _placed(
    indices: tuple[Node, ...], body: Node, env: Environment, chosen: dict[str, tuple[torch.Tensor, torch.Tensor]]
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """What one line states: places along each axis, and the values there. chosen: as of an environment."""
    env = env.child(memo=env.memo, positions={}, bound=frozenset(), chosen=chosen)
    names = [name for index in indices for name in free_indices(index)]
    if len(set(names)) != len(names) or any(len(free_indices(index)) > 1 for index in indices):
        wrong("left of ':=' each subscript needs one index of its own", body)
    for name in free_indices(body):
        if name not in names:
            wrong(f"free index {name} on the right of a definition is missing on its left", body)
    value, where = everywhere(body, env, names), _places(indices, env)
    for axis, at in enumerate(where):
        value = value if free_indices(indices[axis]) else value.unsqueeze(axis)
        where[axis] = at.reshape(-1)
    return where, value


def _inhabited(lines: list, env: Environment, subscripts: Callable) -> list:
    """Without the lines that define nothing, because one of their indices is empty: `2..n` where n is 1."""
    empty = {name for name, here in env.ranges.items() if here.count < 1}
    return [line for line in lines if not any(name in empty for name in free_indices(subscripts(line)))]


def _places(indices: Sequence[Node], env: Environment) -> list[torch.Tensor]:
    """Which elements, counted from 0, each subscript on the left names: one for each value of its index, or one."""
    names = [name for index in indices for name in free_indices(index)]
    every = env.child(positions={name: every_position(name, env) for name in names})
    return [positions.position(index, every) - env.origin for index in indices]


# ---------------------------------------------------------------- functions
def call(node: Node, env: Environment) -> torch.Tensor:
    """`f(x)`, `f'(x)` (order 1) …; a function of a number applied to a vector or matrix acts on each element."""
    key, order, arguments = node.args
    lines = env.defined.get(key, [])
    if not lines and key not in env.generic:
        wrong(f"function {key} is not defined here", node)
    formals = _formals(lines) if lines else ("",)
    if len(arguments) != len(formals):
        wrong(f"{key} takes {len(formals)} arguments", node)
    if not lines:
        return nth_derivative(env.generic[key], order)(evaluate(arguments[0], env))
    values, integers = dict(env.values), dict(env.integers)
    for formal, argument in zip(formals, arguments):
        if (formal in env.integers) != (argument.op == "class") or argument.op in ("index", "intlit", "affine"):
            wrong(f"argument {formal} of {key} must be a {'class index' if formal in env.integers else 'value'}", node)
        if argument.op == "class":
            integers[formal] = env.integers[argument.args[0]]
        else:
            values[formal] = evaluate(argument, env)
    given = [(env.values[formal].shape if formal in env.values else (), formal) for formal in formals]
    if len(formals) == 1 and formals[0] not in integers and given[0][0] == ():
        return _elementwise(lines, formals[0], order, values[formals[0]], env)
    for expected, formal in given:
        if formal not in integers and values[formal].shape != expected:
            shape = tuple(values[formal].shape)
            wrong(f"argument {formal} of {key} has shape {shape}, expected {tuple(expected)}", node)
    return close(lines, env.child(values=values, integers=integers)) if not order else wrong("f' of no number", node)


def _elementwise(lines: list[Equation], formal: str, order: int, x: torch.Tensor, env: Environment) -> torch.Tensor:
    def of_number(x: torch.Tensor) -> torch.Tensor:
        return close(lines, env.child(values={**env.values, formal: x}))

    if order and pieces(lines[0]):
        wrong("f' is for functions of one number", lines[0].sides[0])
    function = nth_derivative(of_number, order)
    for _ in x.shape:
        function = partial(for_each, function)
    return function(x)


def bare(node: Node, env: Environment) -> torch.Tensor:
    """A function's name without arguments: applied to its own formal parameters."""
    if node.args[0] not in env.defined:
        wrong(f"{node.args[0]} has no formula here", node)
    formals = _formals(env.defined[node.args[0]])
    arguments = tuple(Node("class" if name in env.integers else "sym", (name,), node.pos) for name in formals)
    return call(Node("call", (node.args[0], 0, arguments), node.pos), env)


def nth_derivative(function: Callable, order: int) -> Callable:
    """Of an elementwise function."""
    if order == 0:
        return function
    slope = nth_derivative(function, order - 1)
    return lambda x: elementwise_slope(slope, x)
