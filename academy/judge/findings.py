"""How a trial ends that doesn't end well: what `trying` and `calls` raise."""

from __future__ import annotations


class Wrong(AssertionError):
    """Something that a function must not do, in words."""


class Remark(Exception):
    """Nothing wrong, and worth a line."""


class Skipped(Exception):
    """The trial doesn't fit: the reference refuses these inputs too, or a GPU is needed."""
