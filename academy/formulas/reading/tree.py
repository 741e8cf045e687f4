"""The syntax tree of a formula, and questions about it that need no numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from academy.book.problems import FormulaError


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
    formals: keys of the parameters.
    """

    raw: tuple[str, ...]
    name: str
    formals: tuple[str, ...]
    indices: tuple[Node, ...]
    pos: int


@dataclass
class Equation:
    r"""A chain of sides joined by relations, with an optional condition.

    relations: one shorter than sides, except that a definition's list starts with ":=" for its left side.
    free: symbols after `\text{for any}`, which get random values in place of their definitions.
    """

    sides: list[Node]
    relations: list[str]
    condition: Node | None = None
    free: tuple[str, ...] = ()
    definition: Definition | None = None
    pos: int = 0


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


def nodes(tree: Any) -> Sequence[Node]:
    """All nodes of a tree."""
    if not isinstance(tree, Node):
        return [node for child in children(tree) for node in nodes(child)]
    kept = tree.__dict__.get("_nodes")  # as for `free_indices`
    if kept is None:
        kept = tree.__dict__["_nodes"] = (tree, *nodes(tree.args))
    return kept


def mentioned(node: Any) -> set[str]:
    """Keys of the symbols that occur in a tree."""
    return {part.args[0] for part in nodes(node) if part.op in ("sym", "class", "call", "bare")}


def free_indices(node: Any) -> dict[str, int]:
    """name -> offset of the first occurrence, in order, of indices that no sum, max … of the tree binds."""
    if isinstance(node, Node):  # which is asked again for each evaluation, and never changed
        kept = node.__dict__.get("_free")
        if kept is None:
            kept = node.__dict__["_free"] = _free_indices(node)
        return kept
    return _free_indices(node)


def _free_indices(node: Any) -> dict[str, int]:
    found: dict[str, int] = {}

    def look(node: Any, bound: frozenset[str]) -> None:
        if isinstance(node, Node):
            if node.op == "index" and node.args[0] not in bound:
                found.setdefault(node.args[0], node.pos)
            if node.op in BINDERS:
                bound = bound | {node.args[0]}
        if isinstance(node, (Node, tuple, list)):
            for child in children(node):
                look(child, bound)

    look(node, frozenset())
    return found


def bound_indices(node: Any) -> dict[str, int]:
    """name -> offset of the indices that a sum, max … of the tree binds."""
    return {part.args[0]: part.pos for part in reversed([*nodes(node)]) if part.op in BINDERS}


def whole_number(node: Node, lengths: Mapping[str, int]) -> int:
    """The value of an index expression made of numbers and dimensions (a bound)."""
    if node.op == "intlit":
        return node.args[0]
    if node.op == "dim":
        return lengths[node.args[0]]
    if node.op == "affine":
        return sum(factor * whole_number(part, lengths) for factor, part in node.args)
    raise FormulaError("a bound may contain only numbers and dimensions", node.pos, "type")


def as_derivative(node: Node) -> tuple | None:
    """(operand, variable, held) when a side is nothing but a derivative."""
    if node.op == "deriv":
        return node.args
    if node.op == "call" and node.args[1] == 1 and node.args[2][0].op == "sym":
        return Node("call", (node.args[0], 0, node.args[2]), node.pos), node.args[2][0], ()
    return None


def subscripts(node: Node) -> tuple[Node, ...]:
    """The subscripts of a side that is one subscripted symbol or gradient: those of x in x_{2i}, nabla_{x_{2i}}."""
    if node.op in ("idx", "paren"):
        return node.args[1] if node.op == "idx" else subscripts(node.args[0])
    return subscripts(node.args[1]) if node.op == "deriv" else ()


def pieces(equation: Equation) -> tuple[Node, ...]:
    """Subscripts of the left side of a line that states some elements of a vector: `y_{2i} := …`."""
    return equation.definition.indices if equation.definition else subscripts(equation.sides[0])
