"""What was checked, for the site: a mark at each equation, and the table of everything that is verified."""

from __future__ import annotations

import html
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from academy.book import facts, front_matter
from academy.book.layout import ROOT
from academy.book.problems import PageError
from academy.book.tex import bare
from academy.formulas import cases
from academy.formulas.cases import Comparison
from academy.formulas.comparing import case_reader, decided, equations
from academy.formulas.project import Project
from academy.formulas.reading.page import Step
from academy.formulas.reading.tree import nodes

log = logging.getLogger("mkdocs.academy.formulas")


@dataclass
class Checked:
    """One formula of a page. points: numbers compared, over all random points. reference: the second source of a
    definition. comparisons: cases that are compared with its tag. decided: without rounding, of both its sides."""

    step: Step
    points: int
    comparisons: list[Comparison]
    reference: str
    decided: decided.Decided | None = None

    @property
    def derivative(self) -> bool:
        """Whether autograd was compared."""
        found = nodes(self.step.equation.sides)
        return any(node.op == "deriv" or (node.op == "call" and node.args[1] > 0) for node in found)


@dataclass
class Report:
    """A page: problem is "" if everything holds. exempt: no file of `operations/` names it."""

    path: str
    title: str
    problem: str = ""
    checked: list[Checked] = field(default_factory=list)
    exempt: bool = False


def report(path: str | Path, root: Path | None = None) -> Report:
    """What was checked on a derivation; made once as long as nothing changes."""
    project = Project(root) if root else Project.here()
    return _report(project, project.root / path, tuple(file.read_text("utf-8") for file in sources(path, project.root)))


def sources(path: str | Path, root: Path) -> list[Path]:
    """The files that the report of a derivation is made from: the page, and the files with its cases."""
    return [root / path, *facts.of_derivation(root, Path(path).stem)]


@cache
def _report(project: Project, path: Path, texts: tuple[str, ...]) -> Report:
    made, comparisons = Report(project.shown(path).as_posix(), path.stem, exempt=len(texts) == 1), list[Comparison]()
    try:
        page = project.page(path)
        points = equations.checked(page)
    except PageError as error:
        made.problem = str(error.problem)
        return made
    for file in sources(path, project.root)[1:]:
        found, problems = case_reader.read(file, project.shown(file), page, project.has_module)
        comparisons += found
        made.problem = made.problem or "".join(map(str, problems[:1]))
    settled = decided.of_steps(page, project.root)
    made.title = str(front_matter.values(page.text).get("title", path.stem))
    for at, step in enumerate(page.steps):
        if step.equation:
            compared = [comparison for comparison in comparisons if step.tag in comparison.tags()]
            reference = page.front.reference.get("".join(step.keys), "")
            made.checked.append(Checked(step, points[at], compared, reference, settled.get(at)))
    return made


def _calls(comparisons: list[Comparison]) -> list[tuple[str, str]]:
    """The calls of some comparisons, each with the modules that it was made of: a lesson and its fast file."""
    modules: dict[str, dict[str, None]] = {}
    for comparison in comparisons:
        modules.setdefault(comparison.call, {})[comparison.module] = None
    return [(", ".join(named), call) for call, named in modules.items()]


# ---------------------------------------------------------------- on the page
def marks(path: str) -> list[list]:
    """[the formula (`academy.book.tex.bare`), its tag, HTML] for each display equation of a derivation that holds, else
    nothing. The HTML is a quiet mark that opens to say what was checked."""
    made, found = report(path), []
    shown: dict[str, list[Checked]] = {}
    for entry in made.checked if not made.problem else ():
        shown.setdefault(bare(entry.step.block.source), []).append(entry)
    for formula, entries in shown.items():
        for tag in dict.fromkeys(entry.step.tag for entry in entries):
            said = "; ".join(_said([entry for entry in entries if entry.step.tag in (None, tag)]))
            mark = f'<details class="eq-check"><summary>checked</summary><p>{said}.</p></details>'
            found.append([formula, tag, mark])
    return found


def unmarked(path: str, tex: str) -> str:
    """HTML in the place of a mark, for a page that doesn't hold or an equation that the checker never saw. The warning
    that is logged fails a strict build."""
    problem = report(path).problem
    log.warning(problem or f"{path}: the checker has not seen the equation {tex.strip()[:80]}")
    return f'<span class="academy-problem">{"this page fails its check" if problem else "not checked"}</span>'


def _said(found: list[Checked]) -> Iterator[str]:
    """Phrases about one display (several lines of which may be equations of their own)."""
    points = sum(entry.points for entry in found)
    what = "both sides" if points else "a definition,"
    yield f"{what} evaluated in float64 at random points" + (f", {points:,} numbers compared" if points else "")
    if equal := [entry.decided for entry in found if entry.decided]:
        yield f"both sides are {_SAME}, without rounding: {decided.said(decided.together(equal))}"
    if any(entry.derivative for entry in found):
        yield "derivatives compared with autograd of the definitions on this page"
    for entry in found:
        if entry.reference:
            yield f"compared with <code>{html.escape(entry.reference)}</code>"
    for said, comparisons in _verdicts([each for entry in found for each in entry.comparisons]).items():
        calls = [f"<code>{html.escape(f'{modules}: {call}')}</code>" for modules, call in _calls(comparisons)]
        known = [kept for each in comparisons if (kept := decided.of_case(each, ROOT))]
        elements = decided.said(decided.together(known)) if len(known) == len(comparisons) else "every element"
        yield f"{said.replace(_ELEMENTS, elements)} {', '.join(calls)}"


#: With a link to both verdicts' page.
_SAME = '<a href="/guides/without-a-tolerance.md"><em>the same function</em></a>'
_ELEMENTS = "ELEMENTS"
#: What is said of a result in floats, after what is said of it without rounding.
_ACCURATE = "<em>as accurate as</em> PyTorch (at most twice its error)"


def _verdicts(comparisons: list[Comparison]) -> dict[str, list[Comparison]]:
    """Both verdicts, in words, and the comparisons that have them: the same function? how accurate? That they hold is
    what `academy check` finds out."""
    found: dict[str, list[Comparison]] = {}
    for comparison in comparisons:
        if reason := comparison.listed:
            said = f"{_ACCURATE}, not compared without rounding ({html.escape(reason)}):"
        else:
            atoms = cases.without_rounding(comparison.path)["atoms"]
            names = [f"<code>{html.escape(atom.rpartition('.')[2])}</code>" for atom in atoms]
            taken = f", {' and '.join(names)} taken for what is approximated there" if names else ""
            said = f"{_SAME} ({_ELEMENTS}, without rounding{taken}) and {_ACCURATE}:"
        found.setdefault(said, []).append(comparison)
    return found


# ---------------------------------------------------------------- the table
def table(root: Path | None = None, home: Callable[[str], str | None] = lambda tag: None) -> list[str]:
    """Markdown: one section per derivation, one row per tag. `home(tag)` gives the link of a tag, or None."""
    project, lines = Project(root) if root else Project.here(), []
    for made in (report(project.shown(path), project.root) for path in project.derivations()):
        lines += ["", f"## {made.title}", "", *(_problem(made) if made.problem else _section(made, home)), ""]
    lines.append(
        "Each row is a test: `tests/formulas/test_pages.py` evaluates the equations, runs the kernels on hostile "
        "inputs and compares. `academy check` does the same, `academy mutate` shows that a change would be noticed."
    )
    return [*lines, ""]


def _problem(made: Report) -> Iterator[str]:
    log.warning(made.problem)
    yield f"This page fails its check: {made.problem.splitlines()[0]}"


def _section(made: Report, home: Callable[[str], str | None]) -> Iterator[str]:
    relations = sum(len(entry.step.equation.relations) for entry in made.checked)
    points = sum(entry.points for entry in made.checked)
    yield f"{relations} relations and definitions, {points:,} numbers compared in float64. `{made.path}`"
    yield ""
    if made.exempt:
        yield "No kernel computes this page yet, so its tagged formulas are compared with autograd only."
        yield ""
    yield "| equation | autograd | kernel calls compared with it |"
    yield "|---|---|---|"
    for tag in dict.fromkeys(entry.step.tag for entry in made.checked if entry.step.tag):
        entries = [entry for entry in made.checked if entry.step.tag == tag]
        compared = [comparison for entry in entries for comparison in entry.comparisons]
        link = f"[({tag})]({home(tag)})" if home(tag) else f"({tag})"
        shown = "<br>".join(f"{m}: `{c.replace('|', '&#124;')}`" for m, c in _calls(compared))
        shown = shown or ("none yet" if made.exempt else "those of the formulas that use it")
        derived = "yes" if any(entry.derivative for entry in entries) else "\N{EN DASH}"
        yield f"| {link} | {derived} | {shown} |"
