r"""float64 tensors whose leading axes are free indices: the numbers that formulas are evaluated with.

`A_{ij} x_j` has the free indices i and j; they become *labels*, axes that broadcast by name. What is not subscripted
(a vector $x$, a matrix $A$) keeps *positional* axes behind them. Mixing the two wrongly is a type error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import torch

from academy.formulas.errors import FormulaError
from academy.formulas.reading.tree import Node

DTYPE = torch.float64
Labels = tuple[str, ...]


@dataclass
class Value:
    """A tensor of shape [one axis per label..., positional axes...]."""

    tensor: torch.Tensor
    labels: Labels = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the positional axes."""
        return tuple(self.tensor.shape[len(self.labels) :])

    @property
    def rank(self) -> int:
        """Number of positional axes: 0 scalar, 1 vector, 2 matrix."""
        return self.tensor.dim() - len(self.labels)

    def map(self, function: Callable[[torch.Tensor], torch.Tensor]) -> Value:
        return Value(function(self.tensor), self.labels)

    def along(self, label: str, function: Callable[[torch.Tensor, int], torch.Tensor]) -> Value:
        """`function(tensor, axis)`, which removes the axis of a label."""
        axis = self.labels.index(label)
        return Value(function(self.tensor, axis), self.labels[:axis] + self.labels[axis + 1 :])

    def arranged(self, labels: Labels, rank: int) -> torch.Tensor:
        """The tensor with exactly `labels` (a superset of its own), in that order, and `rank` positional axes."""
        own, tensor = self.labels, self.tensor
        if self.rank == 0:
            tensor = tensor.reshape(tensor.shape + (1,) * rank)
        tensor = tensor.permute([own.index(x) for x in labels if x in own] + list(range(len(own), tensor.dim())))
        return tensor[tuple(slice(None) if x in own else None for x in labels)]

    def positional(self, own: Labels) -> Value:
        """With these labels as positional axes."""
        outer = tuple(label for label in self.labels if label not in own)
        return Value(self.arranged(outer + own, self.rank), outer)


def wrong(message: str, node: Node) -> NoReturn:
    raise FormulaError(message, node.pos, "type")


def number(value: float) -> Value:
    return Value(torch.tensor(float(value), dtype=DTYPE))


def union(*values: Value | None) -> Labels:
    """All labels, in order of appearance."""
    return tuple(dict.fromkeys(label for value in values if value is not None for label in value.labels))


def broadcast(*values: Value) -> tuple[list[torch.Tensor], Labels]:
    """Tensors with the same axes in the same order, and the labels of these."""
    labels, rank = union(*values), max(value.rank for value in values)
    return [value.arranged(labels, rank) for value in values], labels


def together(a: Value, b: Value, function: Callable, node: Node, what: str) -> Value:
    """An elementwise function of two values: equal shapes, a scalar and anything, or a matrix and a column of sums."""
    if a.rank and b.rank and a.shape != b.shape:
        if not (a.rank == b.rank == 2 and a.shape[0] == b.shape[0] and 1 in (a.shape[1], b.shape[1])):
            wrong(f"{what} of shapes {a.shape} and {b.shape}", node)
    tensors, labels = broadcast(a, b)
    return Value(function(*tensors), labels)


def multiply(a: Value, b: Value, operator: str, node: Node) -> Value:
    r"""A product. operator: "*" (nothing is written), `\cdot`, `\times`, `\odot` or "/"."""
    if operator == r"\odot" and not (a.rank and b.rank):
        wrong(r"\odot needs two vectors or matrices; a scalar factor is written without it", node)
    if operator == "/":
        return together(a, b, torch.div, node, "quotient") if not b.rank else wrong("division by a vector", node)
    if operator == r"\odot" or not (a.rank and b.rank):
        return together(a, b, torch.mul, node, "product")
    if operator in (r"\cdot", r"\times"):
        wrong(r"\cdot between two vectors or matrices is ambiguous: use \odot, ^\top or indices", node)
    return matrix_product(a, b, node)


def matrix_product(a: Value, b: Value, node: Node) -> Value:
    labels = union(a, b)
    x, y = a.arranged(labels, a.rank), b.arranged(labels, b.rank)
    column_times_row = a.rank == 1 and b.rank == 2 and b.shape[0] == 1
    if column_times_row:
        return Value(x.unsqueeze(-1) * y, labels)
    if a.rank != 2 or a.shape[1] != b.shape[0]:
        wrong(f"product of shapes {a.shape} and {b.shape}: use \\odot, ^\\top or indices", node)
    if b.rank == 2:
        return Value(x @ y, labels)
    result = (x @ y.unsqueeze(-1)).squeeze(-1)
    return Value(result.squeeze(-1) if a.shape[0] == 1 else result, labels)


def stacked(rows: list[list[Value]], node: Node) -> Value:
    """A matrix written out. Scalars: its elements (one column: a vector). One column of vectors or rows: stacked."""
    flat, width = [entry for row in rows for entry in row], len(rows[0])
    labels, rank = union(*flat), flat[0].rank
    shapes = {entry.shape for entry in flat}
    if rank == 2 and any(shape[0] != 1 for shape in shapes if len(shape) == 2):
        wrong("only scalars, vectors and rows can be stacked", node)
    if len({len(shape) for shape in shapes}) > 1 or (rank and width > 1) or (rank == 2 and len(shapes) > 1):
        wrong("the entries of a matrix must be scalars, or one column of vectors or of rows of one length", node)
    parts = [entry.arranged(labels, rank) for entry in flat]
    outer = torch.broadcast_shapes(*(part.shape[: len(labels)] for part in parts))
    parts = [part.expand((*outer, *part.shape[len(labels) :])) for part in parts]
    if rank:
        return Value(torch.cat(parts, -rank), labels)
    matrix = torch.stack(parts, -1).unflatten(-1, (len(rows), width))
    return Value(matrix.squeeze(-1) if width == 1 else matrix, labels)


def merge_label(tensor: torch.Tensor, labels: Labels, axis: int, label: str) -> tuple[torch.Tensor, Labels]:
    """Turn axis `axis` (behind the labels) into `label`; if there is one of that name already, take the diagonal."""
    if label in labels:
        at = labels.index(label)
        return torch.diagonal(tensor, dim1=at, dim2=axis).movedim(-1, at), labels
    return tensor.movedim(axis, len(labels)), (*labels, label)
