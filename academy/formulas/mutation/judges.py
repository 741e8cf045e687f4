"""Who judges the mutants of a file: the page's own equations, or the comparison of a kernel with its printed formula.

A judge is made once for a file and sent to the processes in which the mutants run. Kernels run in Triton's
interpreter, which shows what a GPU may hide: a read behind the end of a tensor, a masked lane without `other`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from academy.formulas.cases import Comparison
from academy.formulas.checking import equations as checked_equations
from academy.formulas.checking import kernels as compared_kernels
from academy.formulas.errors import PageError
from academy.formulas.mutation import equations, kernels
from academy.formulas.mutation.equal_values import same_value
from academy.formulas.mutation.mutant import Mutant
from academy.formulas.project import import_source
from academy.formulas.reading.page import Page


@dataclass
class Equations:
    """path: as messages show it. together: how many mutants share a process."""

    path: Path
    text: str
    together: int = 16

    def mutants(self) -> list[Mutant]:
        return equations.of_page(Page(self.path, self.text))

    def verdict(self, mutant: Mutant, walls: bool = True) -> str:
        """How it was caught (syntax, type or value), "survived", or "same value": it changes nothing."""
        original = Page(self.path, self.text)
        pos = max((block.pos for block in original.blocks if block.pos <= mutant.start), default=0)
        try:
            page = Page(self.path, mutant.apply(self.text))
            checked_equations.check(page, start=pos)
        except PageError as error:
            return error.kind
        return "same value" if same_value(original, page, pos) else "survived"


@dataclass
class Kernels:
    """comparisons: those that call the module. memo: what PyTorch and the formulas give, for all mutants."""

    path: Path
    text: str
    comparisons: list[Comparison]
    memo: dict = field(default_factory=dict)
    #: A kernel without its mask writes where it likes.
    together: int = 1

    def mutants(self) -> list[Mutant]:
        # A result of 16 bits doesn't show that something was rounded to 16 bits on the way.
        wide = any("float32" in comparison.dtypes for comparison in self.comparisons)
        return [mutant for mutant in kernels.of_source(self.text) if wide or mutant.operator != "narrow cast"]

    def verdict(self, mutant: Mutant, walls: bool = True) -> str:
        """ "survived", or how it was caught: value (another result) or error. With `walls` it may kill the process."""
        changed = mutant.apply(self.text)
        try:
            module = import_source(changed, "mutant_" + hashlib.sha256(changed.encode()).hexdigest()[:16])
            for comparison in self.comparisons:
                found = compared_kernels.run(comparison, module, first_only=True, memo=self.memo, walls=walls)
                if found:
                    what = found[0].message
                    return "value" if any(w in what for w in ("instead of", "prints", "outside")) else f"error: {what}"
        except Exception as error:
            return f"error: {type(error).__name__}"
        return "survived"
