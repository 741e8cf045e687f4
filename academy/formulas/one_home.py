"""A display equation lives once, in a derivation. Everything else cites it by its tag.

Kernel notes (comments and docstrings), docs pages, notebooks and README files are searched for `[[eq: TAG]]` and
`[[tag: TAG]]`, whose tag must exist, and for display equations, which must be marked `<!-- math: prose REASON -->`.
A docs page whose front matter has `math` binds symbols, and its inline relations are checked like a derivation's.
"""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from academy import syntax
from academy.formulas import verify
from academy.formulas.check import Result
from academy.formulas.errors import PageError
from academy.formulas.markdown import Block, Directive, has_relation, scan
from academy.formulas.project import Project
from academy.problems import Problem

CITATION = re.compile(r"\[\[(eq|tag):\s*([^\]\s]+)\s*\]\]")


@dataclass(frozen=True)
class Passage:
    """Markdown inside a file: the file's text, in which everything that is not Markdown is blank."""

    path: Path
    text: str
    #: what places in messages refer to; None: `text` itself
    source: str | None = None
    line: int = 0


@dataclass(frozen=True)
class Citation:
    """kind: eq (the equation is shown) or tag (a link to it)."""

    kind: str
    tag: str
    path: str
    line: int


def check(project: Project, chosen: list[Path] | None, tags: dict[str, Path]) -> Result:
    """Every kernel file, page and notebook (of `chosen`) against the tags that exist."""
    result = Result(counts={"documents": 0})
    for path in (*project.kernels(), *project.documents()):
        if chosen is None or path in chosen:
            result.count({"documents": 1})
            for passage in passages(path):
                result.add(_passage(passage, project.shown(path), tags))
    for path in project.derivations():
        if chosen is None or path in chosen:
            text = path.read_text("utf-8")
            result.problems += _unknown_tags(Passage(path, text), project.shown(path), tags)
    return result


def citations(project: Project) -> list[Citation]:
    """Where kernel files cite tags."""
    found = []
    for path in project.kernels():
        for passage in passages(path):
            for match in CITATION.finditer(passage.text):
                line = passage.text.count("\n", 0, match.start()) + 1
                found.append(Citation(match.group(1), match.group(2), str(project.shown(path)), line))
    return found


# ---------------------------------------------------------------- where Markdown stands
def passages(path: Path) -> Iterator[Passage]:
    text = path.read_text("utf-8")
    if path.suffix == ".py":
        yield Passage(path, _notes(text))
    elif path.suffix == ".ipynb":
        yield from _cells(path, text)
    else:
        yield Passage(path, text)


def _notes(text: str) -> str:
    """A Python file with everything but comments and docstrings blanked out; offsets stay."""
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    out = [c if c == "\n" else " " for c in text]

    def keep(start: int, end: int) -> None:
        out[start:end] = text[start:end]

    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            start = starts[token.start[0] - 1] + token.start[1]
            keep(start + 1, start + len(token.string))
    for node in ast.walk(syntax.tree(text)):
        body = getattr(node, "body", None)
        if not isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)) or not body:
            continue
        first = body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            lines = slice(first.lineno - 1, first.end_lineno)
            begin = starts[lines.start]
            passage = re.sub(
                r'^(\s*)[rR]?("""|\'\'\'|"|\')', lambda m: " " * len(m.group()), text[begin : starts[lines.stop]]
            )
            keep(begin, begin + len(passage))
            out[begin : begin + len(passage)] = re.sub(r'("""|\'\'\')(\s*)$', r"   \2", passage)
    return "".join(out)


def _cells(path: Path, text: str) -> Iterator[Passage]:
    """Markdown cells of a notebook; places are lines of the file where the cell's source begins."""
    for cell in json.loads(text).get("cells", ()):
        if cell.get("cell_type") == "markdown":
            source = cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])
            first = json.dumps(source.split("\n")[0], ensure_ascii=False)[1:-1]
            at = text.find(first)
            yield Passage(path, source, text, text.count("\n", 0, max(at, 0)))


# ---------------------------------------------------------------- one passage
def _passage(passage: Passage, shown: Path, tags: dict[str, Path]) -> Result:
    result = Result(_unknown_tags(passage, shown, tags))
    result.count({"citations": len(CITATION.findall(passage.text))})
    start = re.match(r"---\n.*?\n---[ \t]*\n", passage.text, re.S)
    binds = bool(start and re.search(r"^math:", start.group(), re.M)) and passage.path.suffix == ".md"
    if binds:
        try:
            page = _without_displays(passage, shown)
            result.problems += [error.problem for error in verify.problems(page)]
            result.count({"inline": page.summary()["inline"]})
        except PageError as error:
            result.problems.append(error.problem)
    prose = None
    for event in scan(passage.text, start.end() if start else 0).events:
        if isinstance(event, Directive):
            prose = event if event.word == "prose" and event.argument else None
        elif isinstance(event, Block) and event.display:
            if prose is None:
                message = (
                    "a display equation has one home, a derivation in backprop_math: cite it as [[eq: TAG]], "
                    "or mark it <!-- math: prose REASON -->"
                )
                result.problems.append(_problem(passage, shown, event.pos, message))
            else:
                result.count({"prose elsewhere": 1})
            prose = None
        elif isinstance(event, Block) and has_relation(event.source) and not binds:
            result.count({"unbound": 1})
    return result


def _without_displays(passage: Passage, shown: Path):
    """The page with its display equations (each an error, or prose) blanked out."""
    from academy.formulas.page import Page

    text = passage.text
    for event in scan(text, 0).events:
        if isinstance(event, Block) and event.display:
            text = text[: event.pos] + re.sub(r"[^\n]", " ", text[event.pos : event.end]) + text[event.end :]
        elif isinstance(event, Directive) and event.word == "prose":
            end = text.index("-->", event.pos) + 3
            text = text[: event.pos] + re.sub(r"[^\n]", " ", text[event.pos : end]) + text[end:]
    return Page(shown, text)


def _unknown_tags(passage: Passage, shown: Path, tags: dict[str, Path]) -> list[Problem]:
    masked = re.sub(r"(```.*?```|`[^`\n]*`)", lambda m: re.sub(r"[^\n]", " ", m.group()), passage.text, flags=re.S)
    return [
        _problem(passage, shown, match.start(), f"no derivation prints the tag {match.group(2)}")
        for match in CITATION.finditer(masked)
        if match.group(2) not in tags
    ]


def _problem(passage: Passage, shown: Path, position: int, message: str) -> Problem:
    if passage.source is None:
        return Problem.at(shown, passage.path.read_text("utf-8"), position, message)
    line = passage.line + passage.text.count("\n", 0, position)
    return Problem(str(shown), line + 1, 1, message, passage.text.split("\n")[line - passage.line])
