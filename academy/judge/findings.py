"""How a trial ends that doesn't end well: what `trying` and `calls` raise."""

from __future__ import annotations


class Wrong(AssertionError):
    """Something that a function must not do, in words. line: of the file, where it is known."""

    def __init__(self, message: str, line: int | None = None):
        super().__init__(message)
        self.line = line


class Remark(Exception):
    """Nothing wrong, and worth a line."""


class Skipped(Exception):
    """The trial doesn't fit: the reference refuses these inputs too, or a GPU is needed."""
