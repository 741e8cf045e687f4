"""What names mean while a page is evaluated, and the definitions it has made so far."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch

from academy.formulas.tree import Node
from academy.formulas.values import Value

_serial = itertools.count()


def fresh(name: str) -> str:
    """A label that no other index has."""
    return f"{name}#{next(_serial)}"


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


@dataclass(frozen=True)
class Loss:
    """key: the loss. terms: pairs of an output's key and its upstream gradient's: the loss sums their products."""

    key: str
    terms: tuple[tuple[str, str], ...]


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
