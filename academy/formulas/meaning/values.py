r"""float64 tensors whose leading axes are free indices: the numbers that formulas are evaluated with.

`A_{ij} x_j` has the free indices i and j; they become *labels*, axes that broadcast by name. What is not subscripted
(a vector $x$, a matrix $A$) keeps *positional* axes behind them. Mixing the two wrongly is a type error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NoReturn

import torch

from academy.formulas.errors import FormulaError
from academy.formulas.reading.tree import Node

DTYPE = torch.float64


@dataclass
class Value:
    """A tensor of shape [one axis per label..., positional axes...]."""

    tensor: torch.Tensor
    labels: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the positional axes."""
        return tuple(self.tensor.shape[len(self.labels) :])

    @property
    def rank(self) -> int:
        """Number of positional axes: 0 scalar, 1 vector, 2 matrix."""
        return self.tensor.dim() - len(self.labels)


def wrong(message: str, node: Node) -> NoReturn:
    raise FormulaError(message, node.pos, "type")


def number(value: float) -> Value:
    return Value(torch.tensor(float(value), dtype=DTYPE))


def elementwise(value: Value, function: Callable[[torch.Tensor], torch.Tensor]) -> Value:
    return Value(function(value.tensor), value.labels)


def arranged(value: Value, labels: Iterable[str], rank: int) -> torch.Tensor:
    """The tensor with exactly `labels` (a superset of its own), in that order, and `rank` positional axes."""
    tensor, own = value.tensor, list(value.labels)
    if value.rank == 0 and rank:
        tensor = tensor.reshape(tensor.shape + (1,) * rank)
    labels = tuple(labels)
    tensor = tensor.permute([own.index(x) for x in labels if x in own] + list(range(len(own), tensor.dim())))
    for at, label in enumerate(labels):
        if label not in own:
            tensor = tensor.unsqueeze(at)
    return tensor


def union(*values: Value | None) -> tuple[str, ...]:
    """All labels, in order of appearance."""
    return tuple(dict.fromkeys(label for value in values if value is not None for label in value.labels))


def together(a: Value, b: Value, function: Callable, node: Node, what: str) -> Value:
    """An elementwise function of two values: equal shapes, a scalar and anything, or a matrix and a column of sums."""
    if a.rank and b.rank and a.shape != b.shape:
        column = a.rank == b.rank == 2 and a.shape[0] == b.shape[0] and 1 in (a.shape[1], b.shape[1])
        if not column:
            wrong(f"{what} of shapes {a.shape} and {b.shape}", node)
    labels, rank = union(a, b), max(a.rank, b.rank)
    return Value(function(arranged(a, labels, rank), arranged(b, labels, rank)), labels)


def multiply(a: Value, b: Value, operator: str, node: Node) -> Value:
    r"""A product. operator: "*" (nothing is written), `\cdot`, `\times`, `\odot` or "/"."""
    if operator == r"\odot":
        if a.rank == 0 or b.rank == 0:
            wrong(r"\odot needs two vectors or matrices; a scalar factor is written without it", node)
        return together(a, b, torch.mul, node, r"\odot")
    if operator == "/":
        if b.rank:
            wrong("division by a vector or matrix", node)
        return together(a, b, torch.div, node, "quotient")
    if a.rank == 0 or b.rank == 0:
        return together(a, b, torch.mul, node, "product")
    if operator in (r"\cdot", r"\times"):
        wrong(r"\cdot between two vectors or matrices is ambiguous: use \odot, ^\top or indices", node)
    return matrix_product(a, b, node)


def matrix_product(a: Value, b: Value, node: Node) -> Value:
    labels = union(a, b)
    x, y = arranged(a, labels, a.rank), arranged(b, labels, b.rank)
    if a.rank == 2 and b.rank in (1, 2) and a.shape[1] != b.shape[0]:
        what = "matrix" if b.rank == 2 else "matrix-vector"
        wrong(f"{what} product of shapes {a.shape} and {b.shape}", node)
    if a.rank == b.rank == 2:
        return Value(x @ y, labels)
    if a.rank == 2 and b.rank == 1:
        result = (x @ y.unsqueeze(-1)).squeeze(-1)
        return Value(result.squeeze(-1) if a.shape[0] == 1 else result, labels)
    if a.rank == 1 and b.rank == 2 and b.shape[0] == 1:
        return Value(x.unsqueeze(-1) * y, labels)  # a column times a row
    wrong(f"juxtaposed vectors of shapes {a.shape} and {b.shape}: use \\odot, ^\\top or indices", node)


def stacked(rows: list[list[Value]], node: Node) -> Value:
    """A matrix written out. Scalars: its elements (one column: a vector). One column of vectors or rows: stacked."""
    flat = [entry for row in rows for entry in row]
    labels, ranks = union(*flat), {entry.rank for entry in flat}
    if len(ranks) != 1:
        wrong("the entries of a matrix must be all scalars, all vectors or all rows", node)
    rank = ranks.pop()
    sizes = [max(arranged(entry, labels, rank).shape[k] for entry in flat) for k in range(len(labels))]
    full = [[arranged(e, labels, rank).expand((*sizes, *e.shape)) for e in row] for row in rows]
    if rank == 0:
        matrix = torch.stack([torch.stack(row, -1) for row in full], -2)
        return Value(matrix.squeeze(-1) if len(rows[0]) == 1 else matrix, labels)
    if len(rows[0]) != 1:
        wrong("blocks side by side are not in the grammar: stack vectors or rows in one column", node)
    column = [row[0] for row in full]
    if rank == 2 and any(entry.shape[-2] != 1 for entry in column):
        wrong("only scalars, vectors and rows can be stacked", node)
    if rank == 2 and len({entry.shape[-1] for entry in column}) > 1:
        wrong("rows of different lengths are stacked", node)
    return Value(torch.cat(column, -2 if rank == 2 else -1), labels)


def merge_label(
    tensor: torch.Tensor, labels: tuple[str, ...], axis: int, label: str
) -> tuple[torch.Tensor, tuple[str, ...]]:
    """Turn axis `axis` (behind the labels) into `label`; if there is one of that name already, take the diagonal."""
    if label in labels:
        at = labels.index(label)
        return torch.diagonal(tensor, dim1=at, dim2=axis).movedim(-1, at), labels
    return tensor.movedim(axis, len(labels)), (*labels, label)
