"""What the comparison without rounding has decided, kept in a file for the pages: they name primes and count elements,
and are built where no kernel can run.

    python -m academy.formulas.comparing.decided               # compares everything once more, and writes the file
    python -m academy.formulas.comparing.decided softmax       # one page and its cases; the others stay as they are

`academy check` and the tests compare each case and each page with it. A page that has changed since says nothing of its
equations.
"""

from __future__ import annotations

import argparse
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
    kept = kept_of_case(comparison, root)
    return (kept[0], tuple(kept[1])) if kept else None


def of_steps(page: Page, root: Path) -> dict[int, Decided]:
    """Step of a page -> what was decided of its equation; nothing where the page has changed."""
    kept = kept_of_page(page, root) or {}
    if kept.get("text") != digest(page):
        return {}
    return {int(step): (count, tuple(primes)) for step, (count, primes) in kept["steps"].items()}


def kept_of_case(comparison: Comparison, root: Path) -> list | None:
    return _kept(root)["cases"].get(str(comparison))


def kept_of_page(page: Page, root: Path) -> dict[str, Any] | None:
    return _kept(root)["pages"].get(page.path.stem)


def stale(page: Page) -> str:
    """What is said where something else is decided than the file has."""
    name = page.path.stem
    renew = f"python -m academy.formulas.comparing.decided {name}"
    return f"{FILE} is older than {name} or its kernels: {renew} renews it, and `make test` fails until then"


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


def _kept(root: Path) -> dict[str, Any]:
    file = root / FILE
    return _read(file, file.stat().st_mtime_ns) if file.is_file() else {"cases": {}, "pages": {}}


@cache
def _read(file: Path, time: int) -> dict[str, Any]:
    return json.loads(file.read_text("utf-8"))


def renew(names: Iterable[str] = ()) -> None:
    """Compare the pages with these names and their cases once more, or all, and write the file.

    Raises:
        ValueError: there is no derivation of a name.
    """
    from academy.runtime import device  # noqa: F401  before anything imports triton
    from academy.formulas.comparing import both_sides, coverage, exactly
    from academy.formulas.project import Project

    project = Project.here()
    pages, _ = project.pages()
    found = coverage.declared(project, pages)[0]
    cases = {page.path.stem: found.get(page.path, []) for page in pages}
    if unknown := set(names) - set(cases):
        raise ValueError(f"there is no derivation backprop_math/{min(unknown)}.md")
    chosen = [page for page in pages if not names or page.path.stem in names]
    there = {"cases": {str(each) for some in found.values() for each in some}, "pages": set(cases)}
    kept = {kind: {n: each for n, each in _kept(project.root)[kind].items() if n in there[kind]} for kind in there}
    for page in chosen:
        known, before = dict[tuple, Any](), ""
        for comparison in cases[page.path.stem]:
            if comparison.case != before:  # what the formulas give is the same for a lesson and its fast version
                known, before = {}, comparison.case
            kept["cases"].pop(str(comparison), None)
            if case := case_as_kept(exactly.run(comparison, project.module(comparison.module), known)):
                kept["cases"][str(comparison)] = case
        kept["pages"][page.path.stem] = page_as_kept(page, both_sides.compare(page))
    parts = []
    for kind, entries in kept.items():
        lines = (f"{json.dumps(name)}: {json.dumps(each)}" for name, each in sorted(entries.items()))
        parts.append(f"{json.dumps(kind)}: {{\n" + ",\n".join(lines) + "\n}")
    (project.root / FILE).write_text("{\n" + ",\n".join(parts) + "\n}\n", "utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m academy.formulas.comparing.decided", description=f"Write {FILE}.")
    parser.add_argument("page", nargs="*", help="name of a derivation, such as softmax (default: all)")
    asked = parser.parse_args()
    try:
        renew(asked.page)
    except ValueError as error:
        parser.error(str(error))
