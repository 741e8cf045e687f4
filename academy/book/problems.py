"""One form for everything that a check finds: where, and what. Printed as `path:line:col: message`, the line and a
caret. And the two exceptions that carry one from where a formula or a page is read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, order=True)
class Problem:
    """Something wrong at a place in a file.

    path: relative to the project where that is possible. line, col: count from 1. message: one sentence, no newline.
    source: the text of that line; `str(problem)` shows it with a caret under `col`.
    """

    path: str
    line: int
    col: int
    message: str
    source: str | None = None

    @classmethod
    def at(cls, path: str | Path, text: str, position: int, message: str) -> Problem:
        """The problem at an offset in a file's text."""
        position = min(position, len(text))
        line = text.count("\n", 0, position) + 1
        col = position - (text.rfind("\n", 0, position) + 1) + 1
        lines = text.split("\n")
        return cls(str(path), line, col, message, lines[line - 1])

    @classmethod
    def on(cls, path: str | Path, text: str, line: int, message: str) -> Problem:
        """The problem with a whole line of a file's text."""
        source = text.split("\n")[line - 1]
        return cls(str(path), line, len(source) - len(source.lstrip()) + 1, message, source)

    def __str__(self) -> str:
        first = f"{self.path}:{self.line}:{self.col}: {self.message}"
        if not self.source or not self.source.strip():
            return first
        # A tab keeps its width in front of the caret.
        indent = "".join(c if c == "\t" else " " for c in self.source[: self.col - 1])
        return f"{first}\n    {self.source}\n    {indent}^"


def report(problems: Iterable[Problem]) -> int:
    """Print each problem, sorted by place. Exit status: 0 if there is none, else 1."""
    found = sorted(set(problems), key=lambda p: (p.path, p.line, p.col, p.message))
    for problem in found:
        print(problem)
    return 1 if found else 0


class FormulaError(Exception):
    """Something wrong at an offset of a formula's source.

    kind: "syntax" (it can't be read), "type" (read, but without meaning) or "value" (read, and false).
    """

    def __init__(self, message: str, position: int = 0, kind: str = "syntax"):
        super().__init__(message)
        self.message, self.position, self.kind = message, position, kind


class PageError(Exception):
    """A `FormulaError`, or an error in a page's front matter or directives, at its place in the file."""

    def __init__(self, path: str | Path, text: str, position: int, message: str, kind: str = "syntax"):
        super().__init__(path, text, position, message, kind)  # as it crosses process borders
        self.problem = Problem.at(path, text, position, message)
        self.kind, self.message = kind, message

    def __str__(self) -> str:
        return str(self.problem)
