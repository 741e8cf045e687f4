r"""Sums, products and stacks of tensors as formulas write them. A shape that gives them no meaning is a type error.

All numbers are float64 tensors: scalars, vectors, matrices. A free index is no axis of them: what carries one is
evaluated for a single element, and repeated for all (`environment.everywhere`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import torch

from academy.book.problems import FormulaError
from academy.formulas.reading.tree import Node

DTYPE = torch.float64


def wrong(message: str, node: Node) -> NoReturn:
    raise FormulaError(message, node.pos, "type")


def number(value: float) -> torch.Tensor:
    return torch.tensor(float(value), dtype=DTYPE)


def together(a: torch.Tensor, b: torch.Tensor, function: Callable, node: Node, what: str) -> torch.Tensor:
    """An elementwise function of two values: equal shapes, a scalar and anything, or a matrix and a column of sums."""
    if a.dim() and b.dim() and a.shape != b.shape:
        if not (a.dim() == b.dim() == 2 and a.shape[0] == b.shape[0] and 1 in (a.shape[1], b.shape[1])):
            wrong(f"{what} of shapes {tuple(a.shape)} and {tuple(b.shape)}", node)
    return function(a, b)


def multiply(a: torch.Tensor, b: torch.Tensor, operator: str, node: Node) -> torch.Tensor:
    r"""A product. operator: "*" (nothing is written), `\cdot`, `\times`, `\odot` or "/"."""
    if operator == r"\odot" and not (a.dim() and b.dim()):
        wrong(r"\odot needs two vectors or matrices; a scalar factor is written without it", node)
    if operator == "/":
        return a / b if not b.dim() else wrong("division by a vector or matrix", node)
    if operator == r"\odot" or not (a.dim() and b.dim()):
        return together(a, b, torch.mul, node, "product")
    if operator in (r"\cdot", r"\times"):
        wrong(r"\cdot between two vectors or matrices is ambiguous: use \odot, ^\top or indices", node)
    if a.dim() == 1 and b.dim() == 2 and b.shape[0] == 1:  # a column times a row
        return a.unsqueeze(-1) * b
    if a.dim() != 2 or a.shape[1] != b.shape[0]:
        wrong(f"product of shapes {tuple(a.shape)} and {tuple(b.shape)}: use \\odot, ^\\top or indices", node)
    product = a @ b
    return product.squeeze(0) if product.shape == (1,) else product  # a row times a vector is a number


def stacked(rows: list[list[torch.Tensor]], node: Node) -> torch.Tensor:
    """A matrix written out. Scalars: its elements (one column: a vector). One column of vectors or rows: stacked."""
    flat, width = [entry for row in rows for entry in row], len(rows[0])
    rank, shapes = flat[0].dim(), {entry.shape for entry in flat}
    if len({len(shape) for shape in shapes}) > 1 or (rank and width > 1) or (rank == 2 and len(shapes) > 1):
        wrong("the entries of a matrix must be scalars, or one column of vectors or of rows of one length", node)
    if rank == 2 and flat[0].shape[0] != 1:
        wrong("only scalars, vectors and rows can be stacked", node)
    if rank:
        return torch.cat(flat)
    return torch.stack(flat) if width == 1 else torch.stack(flat).unflatten(0, (len(rows), width))
