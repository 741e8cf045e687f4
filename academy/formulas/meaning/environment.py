"""What names mean while a page is evaluated, and the definitions it has made so far."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from academy.formulas.reading.page import Step
from academy.formulas.reading.tree import Equation, Loss, Node, Range, free_indices


@dataclass
class Environment:
    """dims: name -> length. ranges: index name -> Range. values: key -> value (given, or overridden by a derivative).
    integers: key -> (0-based position as an int64 tensor, dimension). generic: key -> function of one tensor.
    origin: number of an axis' first element. defined: key -> the lines that define it.
    positions: index name -> its value, counted from `origin`, where this is evaluated. bound: indices of sums.
    """

    dims: dict[str, int]
    ranges: dict[str, Range]
    values: dict[str, torch.Tensor]
    integers: dict[str, tuple[torch.Tensor, str]]
    generic: dict[str, Callable[[torch.Tensor], torch.Tensor]] = field(default_factory=dict)
    loss: Loss | None = None
    origin: int = 1
    defined: dict[str, list[Equation]] = field(default_factory=dict)
    positions: dict[str, torch.Tensor] = field(default_factory=dict)
    bound: frozenset[str] = frozenset()
    memo: dict[str, torch.Tensor] = field(default_factory=dict)

    def child(self, **changes) -> Environment:
        return replace(self, **{"memo": {}, **changes})

    def enter(self, step: Step) -> None:
        """A definition begins, or what is defined is forgotten."""
        if step.kind == "forget":
            self.defined = {key: lines for key, lines in self.defined.items() if key not in step.keys}
        elif step.kind == "define" and not step.continues:
            self.defined = {**self.defined, step.keys[0]: step.lines}
        self.memo.clear()


def evaluate(node: Node, env: Environment) -> torch.Tensor:
    """The value of an expression, at one position of each of its free indices.

    Raises:
        FormulaError: it has no meaning.
    """
    from academy.formulas.meaning.rules import RULES  # lazy: a rule evaluates the parts of its node

    return RULES[node.op](node, env)


def everywhere(
    node: Node,
    env: Environment,
    indices: Iterable[str] | None = None,
    rule: Callable[[Any, Environment], torch.Tensor] = evaluate,
) -> torch.Tensor:
    """The value at every position of `indices` (default: all free ones): an axis for each of them, in front."""
    names = list(free_indices(node) if indices is None else indices)
    if not names:
        return rule(node, env)

    def at(position: torch.Tensor) -> torch.Tensor:
        return everywhere(node, replace(env, positions={**env.positions, names[0]: position}), names[1:], rule)

    return torch.func.vmap(at)(every_position(names[0], env))


def every_position(name: str, env: Environment) -> torch.Tensor:
    return torch.arange(env.ranges[name].first, env.ranges[name].last + 1)
