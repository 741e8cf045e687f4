"""What was checked, for the site: a mark at each equation, and the table of everything that is verified.

Results are kept in `.cache/formulas`, by the content of the page, its case file and this package, so that a build of
the site checks only what has changed.
"""

from __future__ import annotations

import hashlib
import html
import json
import logging
import re
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

from academy.formulas import case_reader
from academy.formulas.cases import Comparison
from academy.formulas.errors import PageError
from academy.formulas.markdown import Block, scan
from academy.formulas.page import Page, Step
from academy.formulas.project import Project
from academy.formulas.tree import Node, children

log = logging.getLogger("mkdocs.academy.formulas")
_TAG = re.compile(r"\\tag\{[^}]*\}")


@dataclass
class Checked:
    """One formula of a page. points: numbers compared, over all random points. derivative: autograd was compared.

    reference: the second source of a definition. kernels: calls that were compared with its tag.
    """

    source: str
    line: int
    kind: str
    display: bool
    points: int = 0
    relations: int = 0
    derivative: bool = False
    reference: str = ""
    tag: str = ""
    kernels: list[dict[str, str]] = field(default_factory=list)


@dataclass
class Report:
    """A page: problem is "" if everything holds. first: its first display equation, where a problem is reported."""

    path: str
    title: str
    checked: list[Checked]
    exempt: bool
    problem: str = ""
    first: str = ""


def report(path: str | Path, root: Path | None = None) -> Report:
    """What was checked on a derivation, from the cache if nothing has changed."""
    project = Project(root) if root else Project.here()
    texts = tuple(file.read_text("utf-8") for file in sources(path, project.root))
    return _report(project, project.root / path, texts)


def sources(path: str | Path, root: Path) -> list[Path]:
    """The files that the report of a derivation is made from: the page, and its case file if it has one."""
    project = Project(root)
    return [project.root / path, *(file for file in project.case_files() if file.stem == Path(path).stem)]


@cache
def _report(project: Project, path: Path, texts: tuple[str, ...]) -> Report:
    kept = project.root / ".cache" / "formulas" / f"{path.stem}-{_key(texts)}.json"
    if kept.exists():
        data = json.loads(kept.read_text("utf-8"))
        return Report(**{**data, "checked": [Checked(**entry) for entry in data["checked"]]})
    made = _check(project, path)
    kept.parent.mkdir(parents=True, exist_ok=True)
    for old in kept.parent.glob(f"{path.stem}-*.json"):
        old.unlink(missing_ok=True)
    partial = kept.with_suffix(".part")
    partial.write_text(json.dumps(asdict(made)), "utf-8")
    partial.replace(kept)
    return made


@cache
def _own_sources() -> bytes:
    return b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))


def _key(texts: tuple[str, ...]) -> str:
    return hashlib.sha256(b"\0".join([_own_sources(), *(text.encode() for text in texts)])).hexdigest()[:24]


def _check(project: Project, path: Path) -> Report:
    from academy.formulas import verify

    shown = project.shown(path).as_posix()
    case_files = sources(path, project.root)[1:]
    try:
        page = project.page(path)
        tallies = verify.check(page)
    except PageError as error:
        return _broken(path, shown, str(error.problem))
    comparisons = []
    for file in case_files:
        comparisons, problems = case_reader.read(file, project.shown(file), page, project.has_module)
        if problems:
            return _broken(path, shown, str(problems[0]))
    checked = [
        _checked(page, step, tallies[at].points, comparisons)
        for at, step in enumerate(page.steps)
        if step.kind in ("define", "claim", "prose")
    ]
    return Report(shown, str(page.front.data.get("title", path.stem)), checked, not case_files)


def _broken(path: Path, shown: str, problem: str) -> Report:
    displays = [event for event in scan(path.read_text("utf-8")).events if isinstance(event, Block) and event.display]
    first = _bare(displays[0].source) if displays else ""
    return Report(shown, path.stem, [], False, problem, first)


def _checked(page: Page, step: Step, points: int, comparisons: list[Comparison]) -> Checked:
    line = page.text.count("\n", 0, step.pos) + 1
    found = Checked(_bare(step.block.source), line, step.kind, step.display, points, tag=step.tag or "")
    if step.equation:
        found.relations = len(step.equation.relations)
        found.derivative = any(_has_derivative(side) for side in step.equation.sides)
        found.reference = page.front.reference.get(step.keys[0], "") if step.keys else ""
    if step.tag:
        found.kernels = [{"module": c.module, "call": c.call} for c in comparisons if step.tag in c.tags()]
    return found


def _bare(source: str) -> str:
    return re.sub(r"\s+", "", _TAG.sub("", source))


def _has_derivative(node: object) -> bool:
    if isinstance(node, Node) and (node.op == "deriv" or (node.op == "call" and node.args[1] > 0)):
        return True
    return any(_has_derivative(child) for child in children(node))


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
    found = [entry for entry in made.checked if entry.source == _bare(tex) and entry.tag in ("", tag or "")]
    if not found:
        log.warning("%s: the checker has not seen the equation %s", path, tex.strip()[:80])
        return '<span class="academy-problem">not checked</span>'
    said = "; ".join(_said(found))
    word = "prose" if found[0].kind == "prose" else "checked"
    return f'<details class="eq-check"><summary>{word}</summary><p>{said}.</p></details>'


def _said(found: list[Checked]):
    """Phrases about one display (several lines of which may be equations of their own)."""
    points = sum(entry.points for entry in found)
    if found[0].kind == "prose":
        yield "marked as prose: not evaluated"
        return
    if points:
        yield f"both sides evaluated in float64 at random points, {points:,} numbers compared"
    else:
        yield "a definition, evaluated in float64 at random points"
    if any(entry.derivative for entry in found):
        yield "derivatives compared with autograd of the definitions on this page"
    for entry in found:
        if entry.reference:
            yield f"compared with <code>{html.escape(entry.reference)}</code>"
    calls = _calls(found)
    if calls:
        shown = ", ".join(f"<code>{html.escape(f'{modules}: {call}')}</code>" for modules, call in calls)
        yield f"the kernel&#8217;s result compared with this formula: {shown}"


def _calls(found: list[Checked]) -> list[tuple[str, str]]:
    """The calls compared with some formulas, each with the modules that it was made of: a lesson and its fast file."""
    modules: dict[str, list[str]] = {}
    for kernel in (kernel for entry in found for kernel in entry.kernels):
        named = modules.setdefault(kernel["call"], [])
        if kernel["module"] not in named:
            named.append(kernel["module"])
    return [(", ".join(named), call) for call, named in modules.items()]


# ---------------------------------------------------------------- the table
def verified(root: Path | None = None) -> list[Report]:
    """All derivations, for the generated table."""
    project = Project(root) if root else Project.here()
    return [report(project.shown(path), project.root) for path in project.derivations()]


def table(root: Path | None = None, home=lambda tag: None) -> list[str]:
    """Markdown: one section per derivation, one row per tag. `home(tag)` gives the link of a tag, or None."""
    lines: list[str] = []
    for made in verified(root):
        relations = sum(entry.relations for entry in made.checked)
        points = sum(entry.points for entry in made.checked)
        prose = sum(entry.kind == "prose" for entry in made.checked)
        lines += ["", f"## {made.title}", ""]
        if made.problem:
            log.warning(made.problem)
            lines += [f"This page does not hold: {made.problem.splitlines()[0]}", ""]
            continue
        summary = f"{relations} relations and definitions, {points:,} numbers compared in float64"
        lines += [f"{summary}{f', {prose} displays marked as prose' if prose else ''}. `{made.path}`", ""]
        if made.exempt:
            lines += ["No kernel computes this page yet, so its tagged formulas are compared with autograd only.", ""]
        lines += ["| equation | autograd | kernel calls compared with it |", "|---|---|---|"]
        seen: dict[str, list[Checked]] = {}
        for entry in made.checked:
            if entry.tag:
                seen.setdefault(entry.tag, []).append(entry)
        for tag, entries in seen.items():
            link = f"[({tag})]({home(tag)})" if home(tag) else f"({tag})"
            shown = "<br>".join(f"{m}: `{c.replace('|', '&#124;')}`" for m, c in _calls(entries))
            shown = shown or ("none yet" if made.exempt else "those of the formulas that use it")
            derived = "yes" if any(entry.derivative for entry in entries) else "\N{EN DASH}"
            lines.append(f"| {link} | {derived} | {shown} |")
        lines.append("")
    lines += [
        "",
        "Each row is a test: `tests/formulas/test_pages.py` evaluates the equations, runs the kernels on hostile "
        "inputs and compares. `academy check` does the same, `academy mutate` shows that a change would be noticed.",
        "",
    ]
    return lines
