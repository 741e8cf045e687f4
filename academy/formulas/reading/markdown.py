r"""Where mathematics stands in a Markdown text: `$$…$$`, `$…$`, and the directives `<!-- math: … -->` for the checker.

Code (fenced and in backticks) and comments are left out, position by position, so offsets stay those of the file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Block:
    """pos, end: with the dollars. source_pos, source: between them."""

    pos: int
    end: int
    source_pos: int
    source: str
    display: bool


@dataclass(frozen=True)
class Directive:
    """`<!-- math: word argument -->`"""

    pos: int
    word: str
    argument: str


class Scan(NamedTuple):
    """error: (offset, message) of mathematics that no renderer would take as such, or None."""

    events: list[Block | Directive]
    error: tuple[int, str] | None


_FENCE = re.compile(r"^(?P<indent>[ \t]*)(?P<fence>```+|~~~+)[^\n]*\n.*?^[ \t]*(?P=fence)[`~]*[ \t]*$", re.S | re.M)
_CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.S)
_COMMENT = re.compile(r"<!--(.*?)-->", re.S)
_MATH = re.compile(r"\$\$(.*?)\$\$|(?<!\\)\$(?!\s)([^$\n]*?[^$\s\\])\$(?!\d)", re.S)
_STRAY = re.compile(r"\\\[|\\\(|\\begin\{|(?<!\\)\$")
_RELATION = re.compile(r"(?<!\\)[=<>]|\\approx|\\neq?\b|\\leq?\b|\\geq?\b|\\coloneqq")


def has_relation(source: str) -> bool:
    return bool(_RELATION.search(re.sub(r"\\text\{[^}]*\}", "", source)))


def scan(text: str, start: int = 0) -> Scan:
    """All blocks and directives of `text` from offset `start` on, in order."""
    error, masked = None, " " * start + text[start:]
    for match in _FENCE.finditer(masked):
        if re.match(r"\s*(```|~~~)\s*\{?\.?math", match.group()):
            error = error or (match.start(), "use $$...$$ for display formulas, not a math fence")
    masked = _CODE.sub(_blank, _FENCE.sub(_blank, masked))
    directives = []
    for match in _COMMENT.finditer(masked):
        found = re.match(r"\s*math:\s*(\w+)\s*(.*?)\s*$", match.group(1), re.S)
        if found:
            directives.append(Directive(match.start(), found.group(1), found.group(2)))
    masked = _COMMENT.sub(_blank, masked)
    blocks = []
    for match in _MATH.finditer(masked):
        group = 1 if match.group(1) is not None else 2
        blocks.append(Block(match.start(), match.end(), match.start(group), match.group(group), group == 1))
    stray = _STRAY.search(_MATH.sub(_blank, masked))
    if stray:
        error = error or (stray.start(), "mathematics outside $...$ / $$...$$")
    return Scan(sorted([*blocks, *directives], key=lambda event: event.pos), error)


def _blank(match: re.Match) -> str:
    return re.sub(r"[^\n]", " ", match.group())


def blanked(text: str, start: int, end: int) -> str:
    """The text with spaces in place of a part of it."""
    return text[:start] + re.sub(r"[^\n]", " ", text[start:end]) + text[end:]
