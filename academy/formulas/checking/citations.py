"""A display equation lives once, in a derivation. Everything else cites it by its tag.

Kernel notes (comments and docstrings), docs pages, notebooks and README files are searched for `[[eq: TAG]]` and
`[[tag: TAG]]`, whose tag must exist, and for display equations, which must be marked `<!-- math: prose REASON -->`.
A docs page whose front matter has `math` binds symbols, and its inline relations are checked like a derivation's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from academy import syntax
from academy.formulas.checking import equations
from academy.formulas.checking.result import Result
from academy.formulas.errors import PageError
from academy.formulas.project import Project
from academy.formulas.reading.markdown import Block, Directive, blanked, has_relation, scan
from academy.formulas.reading.page import Page
from academy.problems import Problem

CITATION = re.compile(r"\[\[(eq|tag):\s*([^\]\s]+)\s*\]\]")


@dataclass(frozen=True)
class Passage:
    """Markdown in a file. line: where it begins, from 0 (a notebook's cell: the line of its source)."""

    path: Path
    text: str
    line: int = 0

    def problem(self, position: int, message: str) -> Problem:
        found = Problem.at(self.path, self.text, position, message)
        return Problem(found.path, found.line + self.line, found.col, message, found.source)


def check(project: Project, chosen: list[Path] | None, tags: Collection[str]) -> Result:
    """Every kernel file, page and notebook (of `chosen`) against the tags that exist."""
    result = Result()
    for path in (*project.kernels(), *project.documents()):
        if chosen is None or path in chosen:
            result.counts["documents"] += 1
            for passage in passages(path, project.shown(path)):
                result.add(_passage(passage, tags))
    for path in project.derivations():
        if chosen is None or path in chosen:
            result.problems += _unknown_tags(Passage(project.shown(path), path.read_text("utf-8")), tags)
    return result


def passages(path: Path, shown: Path) -> Iterator[Passage]:
    """Where Markdown stands in a file: of Python, comments and docstrings; of a notebook, its Markdown cells."""
    text = path.read_text("utf-8")
    if path.suffix == ".py":
        yield Passage(shown, syntax.notes(text))
    elif path.suffix != ".ipynb":
        yield Passage(shown, text)
    else:
        for cell in json.loads(text).get("cells", ()):
            if cell.get("cell_type") == "markdown":
                source = "".join(cell["source"])
                first = json.dumps(source.split("\n")[0], ensure_ascii=False)[1:-1]
                yield Passage(shown, source, text.count("\n", 0, max(text.find(first), 0)))


def _passage(passage: Passage, tags: Collection[str]) -> Result:
    result = Result(_unknown_tags(passage, tags))
    result.counts["citations"] += len(CITATION.findall(passage.text))
    start = re.match(r"---\n.*?\n---[ \t]*\n", passage.text, re.S)
    binds = bool(start and re.search(r"^math:", start.group(), re.M)) and passage.path.suffix == ".md"
    events = scan(passage.text, start.end() if start else 0).events
    if binds:
        try:
            page = _without_displays(passage)
            result.problems += [error.problem for error in equations.problems(page)]
            result.counts["inline"] += page.summary()["inline"]
        except PageError as error:
            result.problems.append(error.problem)
    prose = False
    for event in events:
        if isinstance(event, Directive):
            prose = event.word == "prose" and bool(event.argument)
        elif event.display:
            if prose:
                result.counts["prose elsewhere"] += 1
            else:
                message = "a display equation has one home, a derivation in backprop_math: cite it as [[eq: TAG]], "
                message += "or mark it <!-- math: prose REASON -->"
                result.problems.append(passage.problem(event.pos, message))
            prose = False
        elif not binds and has_relation(event.source):
            result.counts["unbound"] += 1
    return result


def _without_displays(passage: Passage) -> Page:
    """The page with its display equations (each an error, or prose) blanked out."""
    text = passage.text
    for event in scan(text, 0).events:
        if isinstance(event, Block) and event.display:
            text = blanked(text, event.pos, event.end)
        elif isinstance(event, Directive) and event.word == "prose":
            text = blanked(text, event.pos, text.index("-->", event.pos) + 3)
    return Page(passage.path, text)


def _unknown_tags(passage: Passage, tags: Collection[str]) -> list[Problem]:
    masked = passage.text
    for match in re.finditer(r"```.*?```|`[^`\n]*`", passage.text, re.S):
        masked = blanked(masked, *match.span())
    return [
        passage.problem(match.start(), f"no derivation prints the tag {match.group(2)}")
        for match in CITATION.finditer(masked)
        if match.group(2) not in tags
    ]
