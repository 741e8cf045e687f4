"""A display equation lives once, in a derivation. Everything else cites it by its tag.

Kernel notes (comments and docstrings), docs pages, notebooks (Python files) and README files are searched for
`[[eq: TAG]]` and `[[tag: TAG]]`, whose tag must exist, and for display equations, of which there may be none.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from academy.book import comments
from academy.book.directives import CITATION
from academy.book.maths import Block, scan, without_code
from academy.book.problems import Problem
from academy.formulas.comparing.result import Result
from academy.formulas.project import Project

_HOME = "a display equation has one home, a derivation in backprop_math: cite it as [[eq: TAG]]"


def check(project: Project, chosen: list[Path] | None, tags: Collection[str]) -> Result:
    """Every kernel file, page and notebook (of `chosen`) against the tags that exist."""
    result, derivations = Result(), project.derivations()
    for path in (*project.kernels(), *project.documents(), *derivations):
        if chosen is not None and path not in chosen:
            continue
        shown, text = project.shown(path), path.read_text("utf-8")
        # Offsets in comments and docstrings are those of the file.
        notes = comments.notes(text) if path.suffix == ".py" else text
        cited = list(CITATION.finditer(without_code(notes)))
        wrong = [
            (m.start(), f"no page of backprop_math has \\tag{{{m['argument']}}}")
            for m in cited
            if m["argument"] not in tags
        ]
        if path not in derivations:
            result.counts.update(documents=1, citations=len(cited))
            events, _ = scan(notes)
            wrong += [(event.pos, _HOME) for event in events if isinstance(event, Block) and event.display]
        result.problems += [Problem.at(shown, text, position, message) for position, message in wrong]
    return result
