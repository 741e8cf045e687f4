"""`academy mutate --seen`: which comparison notices a mutant of a kernel.

In floats (at most twice PyTorch's error), without rounding, both, or neither: as `academy check` has it, which also
reports what can no longer be decided. One that only the first sees is the same function, less accurate or wrong in its
memory. One that only the second sees changes the function by less than rounding does. What neither sees is on the
reviewed list, or a check is missing.

With `--fine` the changes are of the size of rounding. What neither sees of these is the same function (a maximum that
is subtracted and cancels), or lies where residues follow the floats.
"""

from __future__ import annotations

import datetime
import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from academy.command import trouble
from academy.formulas.comparing import exactly
from academy.formulas.mutation.engine import UNCHANGED, Kernels, judges, possible, with_progress
from academy.formulas.project import Project
from academy.judge import kernel_mutants
from academy.judge.mutants import Mutant, import_source, sample
from academy.results import changes

KINDS = ("both", "floats alone", "exact alone", "neither", "stopped")


@dataclass
class Seen(Kernels):
    """known: what the formulas give without rounding, for all mutants of a process. fine: changes of the size of
    rounding."""

    together: int = 8
    known: dict = field(default_factory=dict)
    fine: bool = False

    def mutants(self) -> list[Mutant]:
        return kernel_mutants.of_source(self.text, fine=True) if self.fine else super().mutants()

    def verdict(self, mutant: Mutant, walls: bool = True) -> str:
        """One of KINDS. "stopped": it raised an error before there was anything to compare."""
        floats = super().verdict(mutant, walls)
        if floats.startswith("error"):
            return "stopped"
        seen = floats == "value", self.reported(mutant)
        return {(True, True): "both", (True, False): "floats alone", (False, True): "exact alone"}.get(seen, "neither")

    def reported(self, mutant: Mutant) -> bool:
        """Whether it is another function than the formula, in any case, or can no longer be told."""
        try:
            module = import_source(mutant.apply(self.text), "mutant")
            return any(exactly.run(each, module, self.known).problems() for each in self.comparisons)
        except Exception as error:
            trouble.let_through(error)
            return False


def looked_at(
    project: Project, files: set[Path] | None, count: int | None, fine: bool = False
) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Each kernel file, how many mutants of a sample each of KINDS has, and the names of those that one comparison or
    none sees. (A mutant that crashes or never ends is "stopped".)"""
    for judge in judges(project, only="kernels"):
        if isinstance(judge, Kernels) and (files is None or judge.path in files):
            seen = Seen(judge.path, judge.text, judge.comparisons, fine=fine)
            if not (mutants := possible(project, seen)):
                continue
            # In this process, of which the others are copies: so they know what PyTorch and the formulas give.
            if (before := seen.verdict(UNCHANGED, walls=False)) != "neither":
                raise ValueError(f"{judge.path}: before any change it is seen already, by {before}")
            mutants = mutants if count is None else sample(mutants, count)
            made = [(each, what if what in KINDS else "stopped") for each, what in with_progress(seen, mutants)]
            names = {kind: [each.name for each, what in made if what == kind] for kind in KINDS[1:4]}
            counts = Counter(what for _, what in made)
            yield judge.path, {"counts": {kind: counts[kind] for kind in KINDS}, **names}


def table(found: dict[str, Any]) -> list[str]:
    """Markdown: a row for each file, and the sum."""
    rows = [(file, [each["counts"][kind] for kind in KINDS]) for file, each in found.items()]
    rows.append(("all", [sum(column) for column in zip(*(counts for _, counts in rows))]))
    head = [f"| file | {' | '.join(KINDS)} |", "|---|" + "---:|" * len(KINDS)]
    return head + [f"| {file} | {' | '.join(map(str, counts))} |" for file, counts in rows]


def main(project: Project, files: set[Path] | None, count: int | None, write: bool, fine: bool = False) -> int:
    """Print a line for each mutant that not both see, and the table. count: of mutants of a file, None for all. write:
    keep it for pages, with date and commit."""
    kind = "fine" if fine else "coarse"
    found: dict[str, Any] = {}
    for path, each in looked_at(project, files, count, fine):
        found[path.as_posix()] = each
        for seen_by in KINDS[1:4]:
            print(
                *(f"{path}: {seen_by}: {name}" for name in each[seen_by]), sep="\n", end="\n" if each[seen_by] else ""
            )
    if not found:
        print("no kernel of these files is compared with a formula")
        return 1
    print(*table(found), sep="\n", flush=True)
    if write:
        kept = changes.read(kind, project.root) | {file: each | _now(project.root) for file, each in found.items()}
        (project.root / changes.FILES[kind]).write_text(
            json.dumps(dict(sorted(kept.items())), indent=1, ensure_ascii=False) + "\n"
        )
    return 0


def _now(root: Path) -> dict[str, str]:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=root, capture_output=True, text=True).stdout
    return {"date": datetime.date.today().isoformat(), "commit": commit.strip()}
