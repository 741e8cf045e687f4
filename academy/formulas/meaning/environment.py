"""What names mean while a page is evaluated, and the definitions it has made so far."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch

from academy.formulas.meaning.values import Value
from academy.formulas.reading.tree import Loss, Node, Range

_serial = itertools.count()
#: Kind of node -> its value: filled in by `academy.formulas.meaning.evaluate`.
RULES: dict[str, Callable[[Node, Environment], Value]] = {}


def evaluate(node: Node, env: Environment) -> Value:
    """The value of an expression.

    Raises:
        FormulaError: of kind "type" (no meaning) or "value" (e.g. cases that overlap).
    """
    return RULES[node.op](node, env)


def fresh(name: str) -> str:
    """A label that no other index has."""
    return f"{name}#{next(_serial)}"


@dataclass
class Piece:
    """`y_{2i} := body`: one of the lines that define y (usually the only one, with plain indices)."""

    indices: tuple[Node, ...]
    body: Node


@dataclass
class Defined:
    key: str
    formals: tuple[str, ...]
    pieces: list[Piece]


@dataclass
class Environment:
    """dims: name -> length. ranges: index name -> Range. values: key -> Value (given, or overridden by a derivative).
    integers: key -> (0-based position as an int64 tensor, dimension). generic: key -> function of one tensor.
    labels: index name -> label, for the indices in scope. origin: number of an axis' first element.
    batched: evaluated under vmap, where no value may decide what is computed next.
    """

    dims: dict[str, int]
    ranges: dict[str, Range]
    values: dict[str, Value]
    integers: dict[str, tuple[torch.Tensor, str]]
    generic: dict[str, Callable[[torch.Tensor], torch.Tensor]] = field(default_factory=dict)
    loss: Loss | None = None
    origin: int = 1
    batched: bool = False
    defined: dict[str, Defined] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    memo: dict[str, Value] = field(default_factory=dict)

    def child(self, **changes) -> Environment:
        return replace(self, **{"memo": {}, **changes})

    def adopt(self, inner: Environment, except_for: str | None = None) -> None:
        """Take over the free indices that were first seen while evaluating a part of this formula."""
        for name, label in inner.labels.items():
            if name != except_for:
                self.labels.setdefault(name, label)

    def define(self, key: str, formals: tuple[str, ...], piece: Piece) -> None:
        known = self.defined.get(key)
        pieces = [*known.pieces, piece] if known else [piece]
        self.defined[key] = Defined(key, formals, pieces)
        self.memo.clear()

    def forget(self, keys) -> None:
        for key in keys:
            self.defined.pop(key, None)
        self.memo.clear()


def define(page, at: int, env: Environment) -> None:
    """Enter the definition at step `at`, with the lines that continue it."""
    step = page.steps[at]
    key, formals = step.keys[0], tuple(step.equation.definition.formals or ())
    for other in page.steps[at:]:
        if other is not step and not (other.block is step.block and other.continues):
            break
        if other.keys == step.keys:
            piece = Piece(tuple(other.equation.definition.indices or ()), other.equation.sides[0])
            env.define(key, formals, piece)
