"""Subscripts and conditions as numbers: which element, over which free indices, and where a condition holds."""

from __future__ import annotations

import torch

from academy.formulas.meaning.environment import Environment, evaluate, fresh
from academy.formulas.meaning.values import Value, merge_label, together, union, wrong
from academy.formulas.reading.tree import Node, whole_number

COMPARE = {"=": torch.eq, r"\ne": torch.ne, "<": torch.lt, ">": torch.gt, r"\le": torch.le, r"\ge": torch.ge}


def position(node: Node, env: Environment) -> Value:
    """An index expression's value, counted as the page counts (from `origin`), over its free indices."""
    if node.op == "index":
        name = node.args[0]
        here = env.ranges[name]
        return Value(torch.arange(here.first, here.last + 1), (env.labels.setdefault(name, name),))
    if node.op == "class":
        return Value(env.integers[node.args[0]][0] + env.origin)
    if node.op in ("intlit", "dim"):
        return Value(torch.tensor(whole_number(node, env.dims)))
    if node.op == "affine":
        total = Value(torch.tensor(0))
        for factor, part in node.args:
            step = position(part, env)
            total = together(total, Value(factor * step.tensor, step.labels), torch.add, node, "index")
        return total
    if node.op in ("argmax", "argmin"):
        value, label = running_body(node, env)
        chosen = value.along(label, torch.argmax if node.op == "argmax" else torch.argmin)
        return chosen.map(lambda at: at + env.ranges[node.args[0]].first)
    wrong("a slice cannot be compared", node)


def running_body(node: Node, env: Environment) -> tuple[Value, str]:
    """The body of a sum, max … over its index, and the index' label in it."""
    name, limits, _, body = node.args
    here = env.ranges[name]
    if limits:
        low, high = (whole_number(limit, env.dims) for limit in limits)
        if (low, high) != (here.first, here.last):
            wrong(f"index {name} runs over {here}, not over {low}..{high}", node)
    if env.labels.get(name, name) != name:
        wrong(f"index {name} is already bound by an outer sum", node)
    label = fresh(name)
    value = env.under(name, label, evaluate, body)
    if label not in value.labels:
        wrong(f"the {node.op} does not depend on {name}", node)
    return value, label


def take_all(value: Value, indices: tuple[Node, ...], axis: int, node: Node, env: Environment) -> Value:
    """Subscript the positional axes from `axis` on, which must be as many as there are indices."""
    if len(indices) != value.rank - axis:
        wrong(f"{len(indices)} subscripts on something with {value.rank - axis} axes", node)
    for index in indices:
        if index.op == "slice":
            axis += 1
        else:
            value = _take(value, axis, index, env)
    return value


def _take(value: Value, axis: int, node: Node, env: Environment) -> Value:
    """Subscript positional axis number `axis`; the subscript's free indices become labels."""
    dim, name = len(value.labels) + axis, node.args[0] if node.args else ""
    size = value.tensor.shape[dim]
    over = env.ranges[name].dim if node.op == "index" else env.integers[name][1] if node.op == "class" else None
    if over and env.dims[over] != size:
        wrong(f"index {name} runs over {over} but this axis has another length", node)
    where = position(node, env)
    if node.op in ("index", "affine", "intlit", "dim"):
        last = env.origin + size - 1
        for reach in (int(where.tensor.min()), int(where.tensor.max())):
            if not env.origin <= reach <= last:
                wrong(f"this index reaches {reach}, outside {env.origin}..{last}", node)
    return _gather(value, dim, where.map(lambda at: at - env.origin))


def _gather(value: Value, dim: int, where: Value) -> Value:
    """Elements at 0-based positions `where` along tensor axis `dim`; the labels of `where` join those of `value`."""
    tensor = torch.index_select(value.tensor, dim, where.tensor.reshape(-1))
    tensor = tensor.reshape((*tensor.shape[:dim], *where.tensor.shape, *tensor.shape[dim + 1 :]))
    labels = value.labels
    for label in where.labels:
        known = label in labels
        tensor, labels = merge_label(tensor, labels, dim, label)
        # A new label moved in front of the axes that are still to be named; a diagonal removed one.
        dim += 0 if known else 1
    return Value(tensor, labels)


def condition(node: Node, env: Environment) -> Value:
    """Where a condition holds, as booleans over its free indices."""
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


def scatter(pieces: list[tuple[list[Value], Value]], env: Environment, node: Node) -> Value:
    """Assemble `y_{2i-1} := …, y_{2i} := …`: each piece is (position of each axis over one label, value).

    The pieces must cover every element of the result exactly once.
    """
    own = [tuple(where.labels[0] for where in wheres) for wheres, _ in pieces]
    outer = tuple(x for x in union(*(v for _, v in pieces)) if not any(x in labels for labels in own))
    starts = [[where.tensor - env.origin for where in wheres] for wheres, _ in pieces]
    sizes = [max(int(at.max()) for at in axis) + 1 for axis in zip(*starts)]
    if not set(sizes) <= set(env.dims.values()) or any(int(at.min()) < 0 for axes in starts for at in axes):
        wrong("the lines of this definition end before the axis does, or begin before it", node)
    total = covered = torch.zeros(())
    for axes, labels, (_, value) in zip(starts, own, pieces):
        part, counts = value.arranged(outer + labels, value.rank), [at.numel() for at in axes]
        part = part.expand((*part.shape[: len(outer)], *counts, *value.shape))
        seen = torch.ones(counts)
        for axis, (at, size) in enumerate(zip(axes, sizes)):
            part = _spread(part, len(outer) + axis, at, size)
            seen = _spread(seen, axis, at, size)
        total, covered = total + part, covered + seen
    if not bool((covered == 1).all()):
        wrong("the lines of this definition overlap or leave a gap", node)
    return Value(total, outer)


def _spread(tensor: torch.Tensor, axis: int, at: torch.Tensor, size: int) -> torch.Tensor:
    """Put slice k of `axis` at `at[k]` of a longer axis full of zeros."""
    shape = (*tensor.shape[:axis], size, *tensor.shape[axis + 1 :])
    return torch.zeros(shape, dtype=tensor.dtype).index_add(axis, at, tensor)
