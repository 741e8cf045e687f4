"""Which comparison sees a mutant of a kernel: the one in floats (at most twice PyTorch's error), the one without
rounding, both, or neither. `academy mutate --seen` prints the table.

A mutant that only the first sees is as exact a formula, but less accurate, or wrong in its memory; one that only the
second sees changes the function by less than rounding does.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from academy.command import trouble
from academy.formulas.comparing import exactly
from academy.formulas.mutation.engine import SAMPLE, Kernels, judges, verdicts
from academy.formulas.project import Project
from academy.judge.mutants import Mutant, import_source, sample

KINDS = ("both", "floats alone", "exact alone", "neither", "stopped")


@dataclass
class Seen(Kernels):
    """known: what the formulas give without rounding, for all mutants."""

    known: dict = field(default_factory=dict)

    def verdict(self, mutant: Mutant, walls: bool = True) -> str:
        """One of KINDS."""
        floats = super().verdict(mutant, walls)
        if floats.startswith("error"):
            return "stopped"
        return {(True, True): "both", (True, False): "floats alone", (False, True): "exact alone"}.get(
            (floats == "value", self.refused(mutant)), "neither"
        )

    def refused(self, mutant: Mutant) -> bool:
        """Whether a case is another function than its formula."""
        try:
            module = import_source(mutant.apply(self.text), "mutant")
            outcomes = (exactly.run(each, module, self.known) for each in self.comparisons)
            return any(outcome.kind == "refused" or outcome.error for outcome in outcomes)
        except Exception as error:
            trouble.let_through(error)
            return True


def counted(project: Project, files: list[str] | None = None, count: int = SAMPLE) -> dict[str, Counter[str]]:
    """File -> how many mutants of a sample each of KINDS has. (One that crashes or never ends is "stopped".)"""
    found = {}
    for judge in judges(project, only="kernels"):
        if isinstance(judge, Kernels) and (files is None or judge.path.as_posix() in files):
            seen = Seen(judge.path, judge.text, judge.comparisons)
            made = verdicts(seen, sample(seen.mutants(), count))
            found[judge.path.as_posix()] = Counter(what if what in KINDS else "stopped" for _, what in made)
    return found


def table(found: dict[str, Counter[str]]) -> list[str]:
    """Markdown: a row for each file, and the sum."""
    total = sum(found.values(), Counter[str]())
    rows = [("file", KINDS), ("---", ["---:"] * len(KINDS))]
    rows += [(file, [str(counts[kind]) for kind in KINDS]) for file, counts in [*found.items(), ("all", total)]]
    return [f"| {' | '.join([file, *cells])} |" for file, cells in rows]
