"""What was checked, for the site: a mark at each equation, and the table of everything that is verified."""

from __future__ import annotations

import html
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from academy.formulas.cases import Comparison
from academy.formulas.checking import case_reader, equations
from academy.formulas.errors import PageError
from academy.formulas.project import Project
from academy.formulas.reading.markdown import Block, scan
from academy.formulas.reading.page import Step
from academy.formulas.reading.tree import Node, children

log = logging.getLogger("mkdocs.academy.formulas")


@dataclass
class Checked:
    """One formula of a page. points: numbers compared, over all random points. reference: the second source of a
    definition. comparisons: cases that are compared with its tag."""

    source: str
    step: Step
    points: int
    comparisons: list[Comparison]
    reference: str = ""

    @property
    def derivative(self) -> bool:
        """Whether autograd was compared."""
        return self.step.equation is not None and any(map(_has_derivative, self.step.equation.sides))


@dataclass
class Report:
    """A page: problem is "" if everything holds. first: its first display equation, where a problem is reported."""

    path: str
    title: str
    checked: list[Checked] = field(default_factory=list)
    exempt: bool = False
    problem: str = ""
    first: str = ""


def report(path: str | Path, root: Path | None = None) -> Report:
    """What was checked on a derivation; made once as long as nothing changes."""
    project = Project(root) if root else Project.here()
    return _report(project, project.root / path, tuple(file.read_text("utf-8") for file in sources(path, project.root)))


def sources(path: str | Path, root: Path) -> list[Path]:
    """The files that the report of a derivation is made from: the page, and its case file if it has one."""
    return [root / path, *(file for file in Project(root).case_files() if file.stem == Path(path).stem)]


@cache
def _report(project: Project, path: Path, texts: tuple[str, ...]) -> Report:
    made = Report(project.shown(path).as_posix(), path.stem)
    comparisons: list[Comparison] = []
    displays = [event for event in scan(texts[0]).events if isinstance(event, Block) and event.display]
    made.first = _bare(displays[0].source) if displays else ""
    case_files = sources(path, project.root)[1:]
    try:
        page = project.page(path)
        tallies = equations.check(page)
    except PageError as error:
        made.problem = str(error.problem)
        return made
    for file in case_files:
        comparisons, problems = case_reader.read(file, project.shown(file), page, project.has_module)
        if problems:
            made.problem = str(problems[0])
            return made
    made.title, made.exempt = str(page.front.data.get("title", path.stem)), not case_files
    for at, step in enumerate(page.steps):
        if isinstance(step.block, Block) and step.kind in ("define", "claim", "prose"):
            compared = [c for c in comparisons if step.tag and step.tag in c.tags()]
            reference = page.front.reference.get(step.keys[0], "") if step.keys else ""
            made.checked.append(Checked(_bare(step.block.source), step, tallies[at].points, compared, reference))
    return made


def _bare(source: str) -> str:
    return re.sub(r"\s+|\\tag\{[^}]*\}", "", source)


def _has_derivative(node: Any) -> bool:
    if isinstance(node, Node) and (node.op == "deriv" or (node.op == "call" and node.args[1] > 0)):
        return True
    return any(map(_has_derivative, children(node)))


def _calls(found: list[Checked]) -> list[tuple[str, str]]:
    """The calls compared with some formulas, each with the modules that it was made of: a lesson and its fast file."""
    modules: dict[str, dict[str, None]] = {}
    for comparison in (comparison for entry in found for comparison in entry.comparisons):
        modules.setdefault(comparison.call, {})[comparison.module] = None
    return [(", ".join(named), call) for call, named in modules.items()]


# ---------------------------------------------------------------- on the page
def mark(path: str, tex: str, tag: str | None) -> str:
    """HTML: a quiet mark that opens to say what was checked about one display equation of a derivation.

    A page that doesn't hold, or an equation that the checker never saw, is logged as a warning: a strict build fails.
    """
    made = report(path)
    if made.problem:
        if made.first == _bare(tex):  # once for the page
            log.warning(made.problem)
        return '<span class="academy-problem">this page does not hold</span>'
    found = [
        entry for entry in made.checked if entry.source == _bare(tex) and (entry.step.tag or "") in ("", tag or "")
    ]
    if not found:
        log.warning("%s: the checker has not seen the equation %s", path, tex.strip()[:80])
        return '<span class="academy-problem">not checked</span>'
    word = "prose" if found[0].step.kind == "prose" else "checked"
    return f'<details class="eq-check"><summary>{word}</summary><p>{"; ".join(_said(found))}.</p></details>'


def _said(found: list[Checked]) -> Iterator[str]:
    """Phrases about one display (several lines of which may be equations of their own)."""
    if found[0].step.kind == "prose":
        yield "marked as prose: not evaluated"
        return
    points = sum(entry.points for entry in found)
    what = "both sides" if points else "a definition,"
    yield f"{what} evaluated in float64 at random points" + (f", {points:,} numbers compared" if points else "")
    if any(entry.derivative for entry in found):
        yield "derivatives compared with autograd of the definitions on this page"
    for entry in found:
        if entry.reference:
            yield f"compared with <code>{html.escape(entry.reference)}</code>"
    calls = [f"<code>{html.escape(f'{modules}: {call}')}</code>" for modules, call in _calls(found)]
    if calls:
        yield f"the kernel&#8217;s result compared with this formula: {', '.join(calls)}"


# ---------------------------------------------------------------- the table
def table(root: Path | None = None, home: Callable[[str], str | None] = lambda tag: None) -> list[str]:
    """Markdown: one section per derivation, one row per tag. `home(tag)` gives the link of a tag, or None."""
    project, lines = Project(root) if root else Project.here(), []
    for made in (report(project.shown(path), project.root) for path in project.derivations()):
        lines += ["", f"## {made.title}", ""]
        if made.problem:
            log.warning(made.problem)
            lines += [f"This page does not hold: {made.problem.splitlines()[0]}", ""]
            continue
        relations = sum(len(entry.step.equation.relations) for entry in made.checked if entry.step.equation)
        points = sum(entry.points for entry in made.checked)
        prose = sum(entry.step.kind == "prose" for entry in made.checked)
        summary = f"{relations} relations and definitions, {points:,} numbers compared in float64"
        lines += [f"{summary}{f', {prose} displays marked as prose' if prose else ''}. `{made.path}`", ""]
        if made.exempt:
            lines += ["No kernel computes this page yet, so its tagged formulas are compared with autograd only.", ""]
        lines += ["| equation | autograd | kernel calls compared with it |", "|---|---|---|"]
        for tag in dict.fromkeys(entry.step.tag for entry in made.checked if entry.step.tag):
            entries = [entry for entry in made.checked if entry.step.tag == tag]
            link = f"[({tag})]({home(tag)})" if home(tag) else f"({tag})"
            shown = "<br>".join(f"{m}: `{c.replace('|', '&#124;')}`" for m, c in _calls(entries))
            shown = shown or ("none yet" if made.exempt else "those of the formulas that use it")
            derived = "yes" if any(entry.derivative for entry in entries) else "\N{EN DASH}"
            lines.append(f"| {link} | {derived} | {shown} |")
        lines.append("")
    return [
        *lines,
        "",
        "Each row is a test: `tests/formulas/test_pages.py` evaluates the equations, runs the kernels on hostile "
        "inputs and compares. `academy check` does the same, `academy mutate` shows that a change would be noticed.",
        "",
    ]
