"""Subscripts and conditions as numbers: which element, and whether a condition holds."""

from __future__ import annotations

import torch

from academy.formulas.meaning.environment import Environment, evaluate, every_position, everywhere
from academy.formulas.meaning.transforms import axis_as_batch, batch_level
from academy.formulas.meaning.values import together, wrong
from academy.formulas.reading.tree import Node, free_indices, whole_number

COMPARE = {"=": torch.eq, r"\ne": torch.ne, "<": torch.lt, ">": torch.gt, r"\le": torch.le, r"\ge": torch.ge}


def position(node: Node, env: Environment) -> torch.Tensor:
    """An index expression's value, counted as the page counts (from `origin`)."""
    if node.op == "index":
        return env.positions[node.args[0]][0]
    if node.op == "class":
        return env.integers[node.args[0]][0] + env.origin
    if node.op in ("intlit", "dim"):
        return torch.tensor(whole_number(node, env.dims))
    if node.op == "affine":
        return sum((factor * position(part, env) for factor, part in node.args), torch.tensor(0))
    if node.op in ("argmax", "argmin"):
        values = every_value(node, env)
        return (values.argmax(0) if node.op == "argmax" else values.argmin(0)) + env.ranges[node.args[0]].first
    wrong("a slice cannot be compared", node)


def _reach(node: Node, env: Environment) -> tuple[int, int]:
    """The smallest and the largest value of an index expression without `\\arg\\max`."""
    if node.op == "affine":
        ends = [sorted(factor * end for end in _reach(part, env)) for factor, part in node.args]
        return sum(low for low, _ in ends), sum(high for _, high in ends)
    if node.op == "index":
        return env.ranges[node.args[0]].first, env.ranges[node.args[0]].last
    if node.op == "class":
        return env.origin, env.origin + env.dims[env.integers[node.args[0]][1]] - 1
    return whole_number(node, env.dims), whole_number(node, env.dims)


def every_value(node: Node, env: Environment) -> torch.Tensor:
    """The body of a sum, max … at each value of its index; what a condition leaves out has no effect."""
    name, limits, only, body = node.args
    here = env.ranges[name]
    if limits:
        low, high = (whole_number(limit, env.dims) for limit in limits)
        if (low, high) != (here.first, here.last):
            wrong(f"index {name} runs over {here}, not over {low}..{high}", node)
    if name in env.bound:
        wrong(f"index {name} is already bound by an outer sum", node)
    if name not in free_indices(body):
        wrong(f"the {node.op} does not depend on {name}", node)

    def at(body: Node, inner: Environment) -> torch.Tensor:
        value = evaluate(body, inner)
        if only is None:
            return value
        neutral = {"sum": 0.0, "prod": 1.0, "max": -torch.inf, "min": torch.inf}[node.op]
        keep = together(value, condition(only, inner), lambda _, holds: holds, node, "condition")
        return torch.where(keep, value, torch.tensor(neutral, dtype=value.dtype))

    return everywhere(body, env.child(memo=env.memo, bound=env.bound | {name}), [name], at)


def take_all(value: torch.Tensor, indices: tuple[Node, ...], axis: int, node: Node, env: Environment) -> torch.Tensor:
    """Subscript the axes from `axis` on, which must be as many as there are indices."""
    if len(indices) != value.dim() - axis:
        wrong(f"{len(indices)} subscripts on something with {value.dim() - axis} axes", node)
    subscripts = [(axis + at, index) for at, index in enumerate(indices) if index.op != "slice"]
    for at, index in subscripts:
        _check_reach(index, value.shape[at], env)
    # An axis can become a batch while no inner batch is there: those of outer indices first, then.
    left, batches = list(range(value.dim())), [_batch(index, env) for _, index in subscripts]
    for batch, (at, index) in sorted(zip(batches, subscripts), key=lambda each: each[0]):
        value = _taken(value, left.index(at), index, batch, env)
        left.remove(at)
    return value


def _batch(index: Node, env: Environment) -> int:
    """The level of the batch of positions that a subscript with one index is evaluated for; -1: it has another form."""
    names = [*free_indices(index)] if index.op in ("index", "affine") else []
    return batch_level(env.positions[names[0]][0]) if len(names) == 1 else -1


def _taken(value: torch.Tensor, axis: int, index: Node, batch: int, env: Environment) -> torch.Tensor:
    """One element along an axis, at the place where `index` is.

    For a whole batch of places, all elements are taken at once, and their axis is the batch: the other way copies the
    value for each of them.
    """
    if batch > batch_level(value):
        (name,) = free_indices(index)
        every = env.child(positions={name: every_position(name, env)})
        places = position(index, every) - env.origin
        if index.op != "index" or len(places) != value.shape[axis]:
            value = torch.index_select(value, axis, places)
        return axis_as_batch(value, axis, batch)
    plain = index.op == "index"  # nearly always, and then known already
    where = env.positions[index.args[0]][1] if plain else (position(index, env) - env.origin).reshape(1)
    return torch.index_select(value, axis, where).squeeze(axis)


def _check_reach(node: Node, size: int, env: Environment) -> None:
    name = node.args[0] if node.args else ""
    dim = env.ranges[name].dim if node.op == "index" else env.integers[name][1] if node.op == "class" else None
    if dim and env.dims[dim] != size:
        wrong(f"index {name} runs over {dim} but this axis has another length", node)
    if node.op not in ("argmax", "argmin"):
        last = env.origin + size - 1
        for reach in _reach(node, env):
            if not env.origin <= reach <= last:
                wrong(f"this index reaches {reach}, outside {env.origin}..{last}", node)


def condition(node: Node, env: Environment) -> torch.Tensor:
    """Whether a condition holds, as a boolean (elementwise, between vectors)."""
    if node.op == "and":
        left, right = (condition(part, env) for part in node.args)
        return together(left, right, torch.logical_and, node, "and")
    relation, *sides = node.args
    if repr(sides[0]) == repr(sides[1]):
        wrong("a condition compares something with itself", node)
    if any(side.op == "real" for side in sides):
        a, b = (evaluate(side.args[0] if side.op == "real" else side, env) for side in sides)
    else:
        spans = {env.ranges[side.args[0]].dim for side in sides if side.op == "index"}
        spans |= {env.integers[side.args[0]][1] for side in sides if side.op == "class"}
        if len(spans - {None}) == 2:
            wrong(f"a condition compares indices over {' and '.join(sorted(map(str, spans)))}", node)
        a, b = (position(side, env) for side in sides)
    return together(a, b, COMPARE[relation], node, "condition")


def scatter(parts: list[tuple[list[torch.Tensor], torch.Tensor]], env: Environment, node: Node) -> torch.Tensor:
    """Assemble `y_{2i-1} := …, y_{2i} := …`: each part is (0-based positions along each axis, values at these).

    The parts must cover every element of the result exactly once.
    """
    sizes = [max(int(at.max()) for at in axis) + 1 for axis in zip(*(wheres for wheres, _ in parts))]
    if not set(sizes) <= set(env.dims.values()) or any(int(at.min()) < 0 for wheres, _ in parts for at in wheres):
        wrong("the lines of this definition end before the axis does, or begin before it", node)
    total = covered = torch.zeros(())
    for wheres, value in parts:
        seen = torch.ones([at.numel() for at in wheres])
        for axis, (at, size) in enumerate(zip(wheres, sizes)):
            value, seen = _spread(value, axis, at, size), _spread(seen, axis, at, size)
        total, covered = total + value, covered + seen
    if not bool((covered == 1).all()):
        wrong("the lines of this definition overlap or leave a gap", node)
    return total


def _spread(tensor: torch.Tensor, axis: int, at: torch.Tensor, size: int) -> torch.Tensor:
    """Put slice k of `axis` at `at[k]` of a longer axis full of zeros."""
    if len(at) == size and at.tolist() == [*range(size)]:
        return tensor
    shape = (*tensor.shape[:axis], size, *tensor.shape[axis + 1 :])
    return torch.zeros(shape, dtype=tensor.dtype).index_add(axis, at, tensor)
