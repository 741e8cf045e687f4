"""What names mean while a page is evaluated, and the definitions it has made so far."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch

from academy.formulas.meaning.transforms import for_each
from academy.formulas.reading.page import Step
from academy.formulas.reading.tree import Equation, Loss, Node, Range, free_indices, mentioned


@dataclass
class Environment:
    """dims: name -> length. ranges: index name -> Range. values: key -> value (given, or overridden by a derivative).
    integers: key -> (0-based position as an int64 tensor, dimension). generic: key -> function of one tensor.
    origin: number of an axis' first element. defined: key -> the lines that define it.
    positions: index name -> its value where this is evaluated, counted from `origin`, and as a subscript, which counts
    from 0 and has one element. chosen: of an index that takes some of its values only, these. bound: indices of sums.
    memo: values of what is defined, and whole derivatives, found so far; none of them depends on `positions`.
    """

    dims: dict[str, int]
    ranges: dict[str, Range]
    values: dict[str, torch.Tensor]
    integers: dict[str, tuple[torch.Tensor, str]]
    generic: dict[str, Callable[[torch.Tensor], torch.Tensor]] = field(default_factory=dict)
    loss: Loss | None = None
    origin: int = 1
    defined: dict[str, list[Equation]] = field(default_factory=dict)
    positions: dict[str, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)
    chosen: dict[str, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)
    bound: frozenset[str] = frozenset()
    memo: dict[Any, torch.Tensor] = field(default_factory=dict)

    def child(self, **changes) -> Environment:
        # `dataclasses.replace` takes ten times as long, and this is needed for every element of a sum.
        made = object.__new__(Environment)
        made.__dict__.update(self.__dict__, memo={})
        made.__dict__.update(changes)
        return made

    def varied(self, values: dict[str, torch.Tensor]) -> Environment:
        """The same with other values of some names; what has nothing to do with them stays known."""
        stays = {
            key: value
            for key, value in self.memo.items()
            if isinstance(key, str) and self.reached(key).isdisjoint(values)
        }
        return self.child(values={**self.values, **values}, memo=stays)

    def reached(self, key: str) -> frozenset[str]:
        """The names that the value of a defined name is made of, itself included."""
        found, coming = set[str](), [key]
        while coming:
            if (name := coming.pop()) not in found:
                found.add(name)
                coming += _mentioned_by(self.defined.get(name, []))
                if self.loss and name == self.loss.key:
                    coming += [part for pair in self.loss.terms for part in pair]
        return frozenset(found)

    def enter(self, step: Step) -> None:
        """A definition begins, or what is defined is forgotten."""
        if step.kind == "forget":
            self.defined = {key: lines for key, lines in self.defined.items() if key not in step.keys}
            self.memo.clear()
        elif step.kind == "define" and not step.continues:
            if step.keys[0] in self.defined or step.keys[0] in self.values:  # else nothing known is made of it
                self.memo.clear()
            self.defined = {**self.defined, step.keys[0]: step.lines}


def _mentioned_by(lines: list[Equation]) -> list[str]:
    return [name for line in lines for name in mentioned([line.sides, line.condition])]


#: Kind of node -> its value. `rules` fills it: a rule evaluates the parts of its node.
RULES: dict[str, Callable[[Node, Environment], torch.Tensor]] = {}


def evaluate(node: Node, env: Environment) -> torch.Tensor:
    """The value of an expression, at one position of each of its free indices.

    Raises:
        FormulaError: it has no meaning.
    """
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

    def at(*position: torch.Tensor) -> torch.Tensor:
        here = env.child(memo=env.memo, positions={**env.positions, names[0]: position})
        return everywhere(node, here, names[1:], rule)

    return for_each(at, *every_position(names[0], env))


def every_position(name: str, env: Environment) -> tuple[torch.Tensor, torch.Tensor]:
    """All that `positions` may hold of an index."""
    if name in env.chosen:
        return env.chosen[name]
    return _counted(env.ranges[name].first, env.ranges[name].last, env.origin)


@cache
def _counted(first: int, last: int, origin: int) -> tuple[torch.Tensor, torch.Tensor]:
    counted = torch.arange(first, last + 1)
    return counted, (counted - origin).unsqueeze(1)
