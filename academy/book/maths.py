r"""Where mathematics stands in a Markdown text: `$$…$$`, `$…$`, and the directives `<!-- math: … -->` for the checker.

Code (fenced and in backticks) and comments are left out, position by position, so offsets stay those of the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from academy.book.directives import fenced, without_fences
from academy.book.tex import TAG


@dataclass(frozen=True)
class Block:
    """pos: of the dollars. source_pos, source: between them."""

    pos: int
    source_pos: int
    source: str
    display: bool


@dataclass(frozen=True)
class Equation:
    """A tagged display equation: its TeX without the tag, and the line of the tag in the derivation `path`."""

    tag: str
    tex: str
    path: str
    line: int


@dataclass(frozen=True)
class Directive:
    """`<!-- math: word argument -->`"""

    pos: int
    word: str
    argument: str


_CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.S)
_COMMENT = re.compile(r"<!--(?:\s*math:\s*(?P<word>\w+)\s*(?P<argument>.*?)\s*|.*?)-->", re.S)
#: A display formula.
DISPLAY = re.compile(r"\$\$(.*?)\$\$", re.S)
_MATH = re.compile(DISPLAY.pattern + r"|(?<!\\)\$(?!\s)([^$\n]*?[^$\s\\])\$(?!\d)", re.S)
_STRAY = re.compile(r"\\\[|\\\(|\\begin\{|(?<!\\)\$")
_RELATION = re.compile(r"(?<!\\)[=<>]|\\approx|\\neq?\b|\\leq?\b|\\geq?\b|\\coloneqq")


def has_relation(source: str) -> bool:
    return bool(_RELATION.search(re.sub(r"\\text\{[^}]*\}", "", source)))


def without_code(text: str) -> str:
    return _CODE.sub(_blank, without_fences(text))


def scan(text: str) -> tuple[list[Block | Directive], tuple[int, str] | None]:
    """All blocks and directives in order; (offset, message) of mathematics that no renderer would take as such."""
    masked = without_code(text)
    events: list[Block | Directive] = [
        Directive(match.start(), match["word"], match["argument"])
        for match in _COMMENT.finditer(masked)
        if match["word"]
    ]
    masked = _COMMENT.sub(_blank, masked)
    for match in _MATH.finditer(masked):
        group = match.lastindex or 0
        events.append(Block(match.start(), match.start(group), match.group(group), group == 1))
    stray = _STRAY.search(_MATH.sub(_blank, masked))
    error = (stray.start(), "mathematics outside $...$ / $$...$$") if stray else None
    at = 0
    for line, part in fenced(text.split("\n")):
        if part == "opens" and "math" in line:
            error = at, "use $$...$$ for display formulas, not a math fence"
        at += len(line) + 1
    return sorted(events, key=lambda event: event.pos), error


def equations(text: str, path: str) -> Iterator[Equation]:
    """The tagged display equations of a derivation's text, in order."""
    for block in scan(text)[0]:
        if isinstance(block, Block) and block.display:
            for tag in TAG.finditer(block.source):
                line = text.count("\n", 0, block.source_pos + tag.start(1)) + 1
                yield Equation(tag[1], TAG.sub("", block.source).strip(), path, line)


def _blank(match: re.Match) -> str:
    return re.sub(r"[^\n]", " ", match.group())
