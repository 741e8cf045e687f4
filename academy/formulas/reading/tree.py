"""The syntax tree of a formula, and questions about it that need no numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Node:
    """op names the kind of node; args are its parts (nodes, strings, numbers, tuples of these); pos is its offset."""

    op: str
    args: tuple = ()
    pos: int = 0

    def __repr__(self) -> str:  # without the position: two equal formulas print the same
        return f"{self.op}{list(self.args)}"


@dataclass
class Definition:
    """Left of `:=`: name [(formals)] [_{indices}].

    raw: the name's canonical tokens. name: its LaTeX, the key under which its value is kept.
    formals: keys of the parameters (None: no parameters). indices: nodes (None: none).
    """

    raw: tuple
    name: str
    formals: list[str] | None
    indices: list[Node] | None
    pos: int


@dataclass
class Equation:
    r"""A chain of sides joined by relations, with an optional condition.

    relations: one shorter than sides, except that a definition's list starts with ":=" for its left side.
    free: symbols after `\text{for any}`, which get random values in place of their definitions.
    source: the tokens' texts of each side.
    """

    sides: list[Node]
    relations: list[str]
    condition: Node | None = None
    free: tuple[str, ...] = ()
    definition: Definition | None = None
    pos: int = 0
    source: list[tuple[str, ...]] = field(default_factory=list)


@dataclass(frozen=True)
class Range:
    """The values first … first + count - 1 of an index. dim: the dimension, if it runs over a whole axis."""

    first: int
    count: int
    dim: str | None = None

    @property
    def last(self) -> int:
        return self.first + self.count - 1

    def __str__(self) -> str:
        return self.dim or f"{self.first}..{self.last}"


@dataclass(frozen=True)
class Loss:
    """key: the loss. terms: pairs of an output's key and its upstream gradient's: the loss sums their products."""

    key: str
    terms: tuple[tuple[str, str], ...]


#: Nodes that bind an index: args[0] is its name, the rest is its scope.
BINDERS = {"sum", "prod", "max", "min", "argmax", "argmin", "expect"}


def children(node: Any) -> Iterator[Any]:
    if isinstance(node, Node):
        yield from node.args
    elif isinstance(node, (tuple, list)):
        yield from node


def mentioned(node: Any) -> set[str]:
    """Keys of the symbols that occur in a tree."""
    own = {node.args[0]} if isinstance(node, Node) and node.op in ("sym", "intsym", "call", "bare") else set()
    return own.union(*map(mentioned, children(node)))


def free_indices(node: Any, bound: frozenset[str] = frozenset()) -> dict[str, int]:
    """name -> offset of the first occurrence, in order, of indices that no sum, max … of the tree binds."""
    if isinstance(node, Node):
        if node.op == "index":
            return {} if node.args[0] in bound else {node.args[0]: node.pos}
        if node.op in BINDERS:
            bound = bound | {node.args[0]}
    found: dict[str, int] = {}
    for child in children(node):
        for name, pos in free_indices(child, bound).items():
            found.setdefault(name, pos)
    return found


def bound_indices(node: Any) -> dict[str, int]:
    """name -> offset of the indices that a sum, max … of the tree binds."""
    found = {node.args[0]: node.pos} if isinstance(node, Node) and node.op in BINDERS else {}
    for child in children(node):
        for name, pos in bound_indices(child).items():
            found.setdefault(name, pos)
    return found


def as_derivative(node: Node) -> tuple | None:
    """(operand, variable, held) when a side is nothing but a derivative."""
    if node.op == "deriv":
        return node.args
    if node.op == "call" and node.args[1] == 1 and node.args[2][0].op == "sym":
        return Node("call", (node.args[0], 0, node.args[2]), node.pos), node.args[2][0], ()
    return None


def subscripts(node: Node) -> tuple[Node, ...]:
    """The subscripts of a side that is one subscripted symbol or gradient: those of x in x_{2i}, nabla_{x_{2i}}."""
    if node.op == "idx":
        return node.args[1]
    if node.op == "deriv" and node.args[1].op == "idx":
        return node.args[1].args[1]
    if node.op == "paren":
        return subscripts(node.args[0])
    return ()
