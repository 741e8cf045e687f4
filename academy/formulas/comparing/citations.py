"""A display equation lives once, in a derivation. Everything else cites it by its tag.

Kernel notes (comments and docstrings), docs pages, notebooks (Python files) and README files are searched for
`[[eq: TAG]]` and `[[tag: TAG]]`, whose tag must exist, and for display equations, of which there may be none. Where a
list begins by mistake, that is said as well, before a site is built.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from academy.book import comments, front_matter, lists
from academy.book.directives import CITATION
from academy.book.maths import Block, scan, without_code
from academy.book.problems import Problem
from academy.book.splitter import SourceError, split
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
        for lines in _texts(path, text) if path.parent != project.root else ():  # README's is GitHub's Markdown
            found = lists.lists_after_text(lines) if lines else ()
            result.problems += [Problem.on(shown, text, line, message) for line, message in found]
    return result


def _texts(path: Path, text: str) -> list[list[tuple[int, str]]]:
    """What of a page or a kernel file is Markdown: (line of the file, text) for each of its lines."""
    if path.suffix == ".md":
        body, cut = front_matter.below(text)
        return [list(enumerate(body.split("\n"), cut + 1))]
    if "# %%" in text:  # a notebook: a build of the site looks at its cells
        return []
    try:
        module = split(text, path.stem)
    except SourceError:  # which is said elsewhere
        return []
    return [[line for line in each.lines if line[0]] for each in (module.intro, *(row.note for row in module.rows))]
