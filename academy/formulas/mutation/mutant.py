"""A small change of a file's text."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """The text from `start` to `end` is replaced by `new`.

    operator: the kind of change. name: how the reviewed list names it. function: the jitted function that it is in.
    """

    operator: str
    start: int
    end: int
    new: str
    name: str = ""
    function: str = ""

    def apply(self, text: str) -> str:
        return text[: self.start] + self.new + text[self.end :]


def sample(mutants: list[Mutant], count: int) -> list[Mutant]:
    """At most `count` of them, spread over functions and operators; an edit of the file changes few of the chosen."""
    groups: dict[tuple[str, str], list[Mutant]] = {}
    for mutant in sorted(mutants, key=lambda mutant: hashlib.sha256(mutant.name.encode()).digest()):
        groups.setdefault((mutant.function, mutant.operator), []).append(mutant)
    chosen: list[Mutant] = []
    while len(chosen) < min(count, len(mutants)):
        for _, group in sorted(groups.items()):
            if group and len(chosen) < count:
                chosen.append(group.pop())
    return sorted(chosen, key=lambda mutant: mutant.start)
