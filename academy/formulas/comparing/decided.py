"""What the comparison without rounding has decided, kept in a file for the pages: they name primes and count elements,
and are built where no kernel can run.

    python -m academy.formulas.comparing.decided      # compares everything once more, and writes the file

The tests compare each case and each page with it. A page that has changed since says nothing of its equations.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from academy.formulas.cases import Comparison
from academy.formulas.reading.page import Page

FILE = "backprop_math/decided.json"
#: How many elements were decided, and by which primes.
Decided = tuple[int, tuple[int, ...]]


def together(found: Iterable[Decided]) -> Decided:
    """Of several results: all elements, and every prime that decided some."""
    found = list(found)
    return sum(count for count, _ in found), tuple(sorted({prime for _, primes in found for prime in primes}))


def said(found: Decided) -> str:
    """`all 1,368 elements, modulo powers of 3, 7, 11 and 23`; of a single one, `its only element, …`."""
    count, primes = found
    *first, last = map(str, primes)
    elements = f"all {count:,} elements" if count > 1 else "its only element"
    return f"{elements}, modulo powers of {', '.join(first)}{' and ' if first else ''}{last}"


def of_case(comparison: Comparison, root: Path) -> Decided | None:
    kept = _read(root, _time(root)).get("cases", {}).get(str(comparison))
    return (kept[0], tuple(kept[1])) if kept else None


def of_steps(page: Page, root: Path) -> dict[int, Decided]:
    """Step of a page -> what was decided of its equation; nothing where the page has changed."""
    kept = _read(root, _time(root)).get("pages", {}).get(page.path.stem, {})
    if kept.get("text") != digest(page):
        return {}
    return {int(step): (count, tuple(primes)) for step, (count, primes) in kept["steps"].items()}


def digest(page: Page) -> str:
    return hashlib.sha256(page.text.encode()).hexdigest()[:12]


def case_as_kept(outcome: Any) -> list | None:
    """outcome: of `exactly.run`; None where it decides nothing."""
    if outcome.same is None:
        return None
    count, primes = together((each.decided, each.primes) for each in outcome.found.verdicts.values())
    return [count, list(primes)]


def page_as_kept(page: Page, equalities: Iterable[Any]) -> dict[str, Any]:
    """equalities: of `both_sides.compare`."""
    steps: dict[str, list[Decided]] = {}
    for each in equalities:
        if each.settled:
            steps.setdefault(str(each.step), []).append((each.verdict.decided, each.verdict.primes))
    sums = {step: together(found) for step, found in steps.items()}
    return {"text": digest(page), "steps": {step: [count, list(primes)] for step, (count, primes) in sums.items()}}


@cache
def _read(root: Path, time: int) -> dict[str, Any]:
    return json.loads((root / FILE).read_text("utf-8")) if time else {}


def _time(root: Path) -> int:
    return (root / FILE).stat().st_mtime_ns if (root / FILE).is_file() else 0


def main() -> None:
    from academy.runtime import device  # noqa: F401  before anything imports triton
    from academy.formulas.comparing import both_sides, exactly
    from academy.formulas.project import Project
    from academy.formulas.verify import declared

    project = Project.here()
    pages, _ = project.pages()
    kept: dict[str, dict] = {"cases": {}, "pages": {}}
    for comparisons in declared(project, pages)[0].values():
        known, before = dict[tuple, Any](), ""
        for comparison in comparisons:
            if comparison.case != before:  # what the formulas give is the same for a lesson and its fast version
                known, before = {}, comparison.case
            if case := case_as_kept(exactly.run(comparison, project.module(comparison.module), known)):
                kept["cases"][str(comparison)] = case
    for page in pages:
        kept["pages"][page.path.stem] = page_as_kept(page, both_sides.compare(page))
    parts = []
    for kind, found in kept.items():
        entries = (f"{json.dumps(name)}: {json.dumps(each)}" for name, each in sorted(found.items()))
        parts.append(f"{json.dumps(kind)}: {{\n" + ",\n".join(entries) + "\n}")
    (project.root / FILE).write_text("{\n" + ",\n".join(parts) + "\n}\n", "utf-8")


if __name__ == "__main__":
    main()
