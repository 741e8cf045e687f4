"""The syntax tree of a source text, parsed once for all parts of the project that ask."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache


@lru_cache(maxsize=256)
def tree(text: str) -> ast.Module:
    """The parsed text. Not to be changed: others get the same one. Raises SyntaxError."""
    return ast.parse(text)


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """All statements inside of `node`, those of nested functions and branches too, in the order of the text."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        if isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            yield from statements(child)
