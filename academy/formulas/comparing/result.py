"""What a check has looked at, and what it found."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from academy.book.problems import Problem

#: The lines of a summary: each count, and what one of it is called; `(s)` becomes an s where there are several.
SUMMARY = {
    "equations": {
        "pages": "derivation(s)",
        "tags": "tag(s)",
        "display": "display(s)",
        "inline": "inline relation(s)",
        "relations": "relation(s) and definition(s) evaluated",
        "equal": "'=' with the same function on both sides",
    },
    "kernels": {"cases": "case(s) compared with the printed formulas"},
    "without rounding": {
        "exact": "case(s) the same function in every element",
        "up to atoms": "case(s) the same up to helpers that are taken for a function",
        "listed": "case(s) not compared, each with its reason",
    },
    "notes, pages and notebooks": {"documents": "file(s)", "citations": "citation(s) of tags"},
}
_NOTHING = "nothing to check: no derivation, operation, kernel, page or notebook of the project"


@dataclass
class Result:
    """problems: all that is wrong. counts: what was looked at. exempt: derivations without a kernel. notes: lines to be
    said that are no problems."""

    problems: list[Problem] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    exempt: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, other: Result) -> None:
        self.problems += other.problems
        self.counts.update(other.counts)
        self.notes += other.notes

    def summary(self) -> str:
        """What there was to look at, a line for each kind."""
        lines = []
        for kind, names in SUMMARY.items():
            found = [(self.counts[key], name) for key, name in names.items() if self.counts[key]]
            parts = [f"{count} {name.replace('(s)', '' if count == 1 else 's')}" for count, name in found]
            lines += [f"{kind}: {', '.join(parts)}"] if found else []
        if self.exempt:
            lines.append(f"without a kernel (no file of operations/ names it): {', '.join(sorted(self.exempt))}")
        return "\n".join(lines) or _NOTHING
