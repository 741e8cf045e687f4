"""The comments, docstrings and names of a Python text: what its tokens say that its syntax tree doesn't."""

from __future__ import annotations

import re
import tokenize
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

from academy.book import syntax

#: What a comment or a docstring begins with.
_NOTE = re.compile(r"#|[rR]?(?P<quote>'''|\"\"\"|'|\")")
#: Comments for tools, and the markers of notebook cells: neither notes nor code that teaches.
DIRECTIVE = re.compile(r"#\s*(type:|noqa|fmt:|ruff:|pragma|pylint:|isort:|mypy:|pyright:|%%|!/)")
#: Tokens without code on their lines.
_LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


@dataclass(frozen=True)
class Comment:
    """line, column: of its `#`; lines count from 1. text: with the `#`. alone: no code before it on its line.
    inside: between brackets, so in the middle of a statement."""

    line: int
    column: int
    text: str
    alone: bool
    inside: bool

    @property
    def for_tools(self) -> bool:
        return bool(DIRECTIVE.match(self.text))

    @property
    def body(self) -> str:
        """What a reader reads of it."""
        return re.sub(r"^#:? ?", "", self.text).rstrip()


def comments(text: str) -> tuple[Comment, ...]:
    """The comments of a text, in order."""
    return _read(text)[0]


def names(text: str) -> Counter[str]:
    """How often each name stands in the code of a text. Not to be changed."""
    return _read(text)[1]


def lines_of_tokens(text: str) -> frozenset[int]:
    """Numbers of the lines on which more than a comment stands, those inside of a long string too."""
    return _read(text)[2]


@lru_cache(maxsize=256)
def _read(text: str) -> tuple[tuple[Comment, ...], Counter[str], frozenset[int]]:
    """All in one walk: the tokenizer takes longer than all that is done with its tokens."""
    found, names, lines, depth = [], Counter[str](), set[int](), 0
    for token in syntax.tokens(text):
        if token.type not in _LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
        if token.type == tokenize.OP:
            depth += (token.string in "([{") - (token.string in ")]}")
        elif token.type == tokenize.NAME:
            names[token.string] += 1
        elif token.type == tokenize.COMMENT:
            line, column = token.start
            found.append(Comment(line, column, token.string, not token.line[:column].strip(), depth > 0))
    return tuple(found), names, frozenset(lines)


@lru_cache(maxsize=256)
def notes(text: str) -> str:
    """The text with everything but comments and docstrings blanked, and their delimiters too; offsets don't change."""
    out, places = [c if c == "\n" else " " for c in text], syntax.Places(text)
    spans = [(places.starts[each.line - 1] + each.column, each.text) for each in comments(text)]
    spans += [(places.span(node)[0], text[slice(*places.span(node))]) for node in syntax.docstrings(text)]
    for start, note in spans:
        mark = _NOTE.match(note)
        assert mark
        end = len(note) - len(mark["quote"] or "")
        out[start + mark.end() : start + end] = note[mark.end() : end]
    return "".join(out)
