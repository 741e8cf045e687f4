"""The two exceptions of this package."""

from __future__ import annotations

from pathlib import Path

from academy.book.problems import Problem


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
