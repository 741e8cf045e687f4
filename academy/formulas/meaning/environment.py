"""What names mean while a page is evaluated, and the definitions it has made so far."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch

from academy.formulas.meaning.values import Value
from academy.formulas.reading.page import Step
from academy.formulas.reading.tree import Equation, Loss, Node, Range

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
class Environment:
    """dims: name -> length. ranges: index name -> Range. values: key -> Value (given, or overridden by a derivative).
    integers: key -> (0-based position as an int64 tensor, dimension). generic: key -> function of one tensor.
    labels: index name -> label, for the indices in scope. origin: number of an axis' first element.
    batched: evaluated under vmap, where no value may decide what is computed next.
    defined: key -> the lines that define it.
    """

    dims: dict[str, int]
    ranges: dict[str, Range]
    values: dict[str, Value]
    integers: dict[str, tuple[torch.Tensor, str]]
    generic: dict[str, Callable[[torch.Tensor], torch.Tensor]] = field(default_factory=dict)
    loss: Loss | None = None
    origin: int = 1
    batched: bool = False
    defined: dict[str, list[Equation]] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    memo: dict[str, Value] = field(default_factory=dict)

    def child(self, **changes) -> Environment:
        return replace(self, **{"memo": {}, **changes})

    def under(self, name: str, label: str, rule: Callable[[Node, Environment], Value], node: Node) -> Value:
        """A part of this formula in which an index has a label of its own."""
        inner = replace(self, labels={**self.labels, name: label})
        value = rule(node, inner)
        self.adopt({other: label for other, label in inner.labels.items() if other != name})
        return value

    def adopt(self, labels: dict[str, str]) -> None:
        """Take over the free indices that were first seen while evaluating a part of this formula."""
        for name, label in labels.items():
            self.labels.setdefault(name, label)

    def enter(self, step: Step) -> None:
        """A definition begins, or what is defined is forgotten."""
        if step.kind == "forget":
            self.defined = {key: lines for key, lines in self.defined.items() if key not in step.keys}
        elif step.kind == "define" and not step.continues:
            self.defined = {**self.defined, step.keys[0]: step.lines}
        self.memo.clear()
