"""A display equation lives once, in a derivation. Everything else cites it by its tag.

Kernel notes (comments and docstrings), docs pages, notebooks and README files are searched for `[[eq: TAG]]` and
`[[tag: TAG]]`, whose tag must exist, and for display equations, of which there may be none.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from academy import syntax
from academy.directives import CITATION
from academy.formulas.checking.result import Result
from academy.formulas.project import Project
from academy.formulas.reading.markdown import Block, scan, without_code
from academy.problems import Problem


@dataclass(frozen=True)
class Passage:
    """Markdown in a file. line: where it begins, from 0 (a notebook's cell: the line of its source)."""

    path: Path
    text: str
    line: int = 0

    def problem(self, position: int, message: str) -> Problem:
        found = Problem.at(self.path, self.text, position, message)
        return replace(found, line=found.line + self.line)


def check(project: Project, chosen: list[Path] | None, tags: Collection[str]) -> Result:
    """Every kernel file, page and notebook (of `chosen`) against the tags that exist."""
    result, derivations = Result(), project.derivations()
    for path in (*project.kernels(), *project.documents(), *derivations):
        if chosen is not None and path not in chosen:
            continue
        result.counts["documents"] += path not in derivations
        for passage in passages(path, project.shown(path)):
            cited = list(CITATION.finditer(without_code(passage.text)))
            result.counts["citations"] += len(cited) if path not in derivations else 0
            result.problems += [
                passage.problem(match.start(), f"no derivation prints the tag {match['argument']}")
                for match in cited
                if match["argument"] not in tags
            ]
            result.problems += _displays(passage) if path not in derivations else []
    return result


def passages(path: Path, shown: Path) -> Iterator[Passage]:
    """Where Markdown stands in a file: of Python, comments and docstrings; of a notebook, its Markdown cells."""
    text = path.read_text("utf-8")
    if path.suffix != ".ipynb":
        yield Passage(shown, syntax.notes(text) if path.suffix == ".py" else text)
        return
    for cell in json.loads(text).get("cells", ()):
        if cell.get("cell_type") == "markdown":
            source = "".join(cell["source"])
            first = json.dumps(source.split("\n")[0], ensure_ascii=False)[1:-1]
            yield Passage(shown, source, text.count("\n", 0, max(text.find(first), 0)))


def _displays(passage: Passage) -> list[Problem]:
    message = "a display equation has one home, a derivation in backprop_math: cite it as [[eq: TAG]]"
    events, _ = scan(passage.text)
    return [passage.problem(event.pos, message) for event in events if isinstance(event, Block) and event.display]
