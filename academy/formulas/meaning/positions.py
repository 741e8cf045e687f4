"""Subscripts and conditions as numbers: which element, over which free indices, and where a condition holds."""

from __future__ import annotations

from dataclasses import replace

import torch

from academy.formulas.meaning.environment import Environment, Range, evaluate, fresh
from academy.formulas.meaning.values import Value, arranged, merge_label, together, union, wrong
from academy.formulas.reading.tree import Node

_COMPARE = {"=": torch.eq, r"\ne": torch.ne, "<": torch.lt, ">": torch.gt, r"\le": torch.le, r"\ge": torch.ge}


def whole_number(node: Node, env: Environment) -> int:
    """The value of an index expression made of numbers and dimensions (a bound)."""
    if node.op == "intlit":
        return node.args[0]
    if node.op == "dim":
        return env.dims[node.args[0]]
    if node.op == "affine":
        return sum(factor * whole_number(part, env) for factor, part in node.args)
    wrong("a bound is made of numbers and dimensions", node)


def position(node: Node, env: Environment) -> Value:
    """An index expression's value, counted as the page counts (from `origin`), over its free indices."""
    if node.op == "index":
        name = node.args[0]
        here = env.ranges[name]
        return Value(torch.arange(here.first, here.first + here.count), (env.labels.setdefault(name, name),))
    if node.op == "intsym":
        return Value(env.integers[node.args[0]][0] + env.origin)
    if node.op in ("intlit", "dim"):
        return Value(torch.tensor(whole_number(node, env)))
    if node.op == "affine":
        total = Value(torch.tensor(0))
        for factor, part in node.args:
            step = position(part, env)
            total = together(total, Value(factor * step.tensor, step.labels), torch.add, node, "index")
        return total
    if node.op in ("argmax", "argmin"):
        value, label, here = running_body(node, env)
        axis = value.labels.index(label)
        chosen = value.tensor.argmax(axis) if node.op == "argmax" else value.tensor.argmin(axis)
        return Value(chosen + here.first, value.labels[:axis] + value.labels[axis + 1 :])
    wrong("a slice cannot be compared", node)


def running_body(node: Node, env: Environment) -> tuple[Value, str, Range]:
    """Evaluate the body of a sum, max … over its index: (value, the index' label in it, its range)."""
    name, limits, _, body = node.args
    here = env.ranges[name]
    if limits is not None:
        low, high = (whole_number(limit, env) for limit in limits)
        if (low, high) != (here.first, here.last):
            wrong(f"index {name} runs over {here}, not over {low}..{high}", node)
    if env.labels.get(name, name) != name:
        wrong(f"index {name} is already bound by an outer sum", node)
    label = fresh(name)
    inner = replace(env, labels={**env.labels, name: label})
    value = evaluate(body, inner)
    env.adopt(inner, except_for=name)
    if label not in value.labels:
        wrong(f"the {node.op} does not depend on {name}", node)
    return value, label, here


def take_all(value: Value, indices: tuple, axis: int, node: Node, env: Environment) -> Value:
    """Subscript the positional axes from `axis` on, which must be as many as there are indices."""
    if len(indices) != value.rank - axis:
        wrong(f"{len(indices)} subscripts on something with {value.rank - axis} axes", node)
    for index in indices:
        if index.op == "slice":
            axis += 1
        else:
            value = take(value, axis, index, env)
    return value


def take(value: Value, axis: int, node: Node, env: Environment) -> Value:
    """Subscript positional axis number `axis`; the subscript's free indices become labels."""
    dim = len(value.labels) + axis
    size = value.tensor.shape[dim]
    if node.op == "index":
        here = env.ranges[node.args[0]]
        if here.dim and here.count != size:
            wrong(f"index {node.args[0]} runs over {here.dim} but this axis has another length", node)
        if here.first == env.origin and here.count == size:
            label = env.labels.setdefault(node.args[0], node.args[0])
            return Value(*merge_label(value.tensor, value.labels, dim, label))
    if node.op == "intsym":
        chosen, of = env.integers[node.args[0]]
        if env.dims[of] != size:
            wrong(f"{node.args[0]} is an index into {of} but this axis has another length", node)
        return Value(torch.index_select(value.tensor, dim, chosen.reshape(1)).squeeze(dim), value.labels)
    where = position(node, env)
    if node.op != "argmax" and node.op != "argmin":
        check_range(where, size, node, env)
    return gather(value, dim, Value(where.tensor - env.origin, where.labels))


def check_range(where: Value, size: int, node: Node, env: Environment) -> None:
    low, high = int(where.tensor.min()), int(where.tensor.max())
    if low < env.origin or high > env.origin + size - 1:
        reach = low if low < env.origin else high
        wrong(f"this index reaches {reach}, outside {env.origin}..{env.origin + size - 1}", node)


def gather(value: Value, dim: int, where: Value) -> Value:
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
    relation, left, right = node.args
    if repr(left) == repr(right):
        wrong("a condition compares something with itself", node)
    if left.op == "real" or right.op == "real":
        a, b = (evaluate(side.args[0] if side.op == "real" else side, env) for side in (left, right))
    else:
        spans = {env.ranges[side.args[0]].dim for side in (left, right) if side.op == "index"}
        spans |= {env.integers[side.args[0]][1] for side in (left, right) if side.op == "intsym"}
        spans.discard(None)
        if len(spans) == 2:
            first, second = sorted(map(str, spans))
            wrong(f"a condition compares an index over {first} with one over {second}", node)
        a, b = position(left, env), position(right, env)
    return together(a, b, _COMPARE[relation], node, "condition")


def scatter(pieces: list[tuple[tuple[Value, ...], Value]], env: Environment, node: Node) -> Value:
    """Assemble `y_{2i-1} := …, y_{2i} := …`: each piece is (position of each axis over one label, scalar value).

    The pieces must cover every element of the result exactly once.
    """
    own = [tuple(where.labels[0] for where in wheres) for wheres, _ in pieces]
    outer = tuple(x for x in union(*(v for _, v in pieces)) if not any(x in labels for labels in own))
    axes = len(own[0])
    sizes = [max(int(wheres[k].tensor.max()) for wheres, _ in pieces) - env.origin + 1 for k in range(axes)]
    total = covered = None
    for (wheres, value), labels in zip(pieces, own):
        if value.rank:
            wrong("a definition by components must have scalar components", node)
        counts = tuple(where.tensor.numel() for where in wheres)
        part = arranged(value, outer + labels, 0)
        part = part.expand((*part.shape[: len(outer)], *counts))
        seen = torch.ones(counts)
        for axis, where in enumerate(wheres):
            at = where.tensor - env.origin
            if int(at.min()) < 0:
                wrong("this definition has elements before the first", node)
            part = _spread(part, len(outer) + axis, at, sizes[axis])
            seen = _spread(seen, axis, at, sizes[axis])
        total = part if total is None else total + part
        covered = seen if covered is None else covered + seen
    if covered is None or not bool((covered == 1).all()) or any(size not in env.dims.values() for size in sizes):
        wrong("the lines of this definition overlap, leave a gap or end before the axis does", node)
    return Value(total, outer)


def _spread(tensor: torch.Tensor, axis: int, at: torch.Tensor, size: int) -> torch.Tensor:
    """Put slice k of `axis` at `at[k]` of a longer axis full of zeros."""
    shape = (*tensor.shape[:axis], size, *tensor.shape[axis + 1 :])
    return torch.zeros(shape, dtype=tensor.dtype).index_add(axis, at, tensor)
