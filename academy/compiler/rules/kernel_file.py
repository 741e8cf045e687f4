"""A kernel file as a syntax tree, with the parts that the rules ask for, and what a rule finds in it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache

from academy.book import syntax
from academy.book.comments import lines_of_tokens


@dataclass(frozen=True)
class Found:
    """A place that breaks a rule. function, code: of what an entry of `practice.toml` may name."""

    line: int
    message: str
    function: str = ""
    code: str = ""


@dataclass(frozen=True)
class KernelFile:
    """text: valid Python. name: as in `classics/layernorm.py`. size: what `house_rules.LESSON_SIZE` is for others."""

    text: str
    name: str = "classics/a.py"
    size: tuple[int, int, int] | None = None

    @cached_property
    def tree(self) -> ast.Module:
        return syntax.tree(self.text)

    @cached_property
    def functions(self) -> list[ast.FunctionDef]:
        return [node for node in self.tree.body if isinstance(node, ast.FunctionDef)]

    @cached_property
    def jitted(self) -> list[ast.FunctionDef]:
        return [function for function in self.functions if syntax.is_jitted(function)]

    @cached_property
    def kernels(self) -> list[ast.FunctionDef]:
        """What is launched: named `…_kernel`, or else called by no other jitted function."""
        named = [function for function in self.jitted if function.name.endswith("_kernel")]
        return named or [each for each in self.jitted if not any(calls(other, each.name) for other in self.jitted)]

    @cached_property
    def launchers(self) -> list[ast.FunctionDef]:
        ends = re.compile(r"_(forward|backward)$")
        return [function for function in self.functions if function not in self.jitted and ends.search(function.name)]

    @cached_property
    def public_functions(self) -> list[ast.FunctionDef]:
        """What a reader imports: functions with a docstring, other than launchers and helpers."""
        described = [each for each in self.functions if "Args:" in (ast.get_docstring(each) or "")]
        return [function for function in described if function not in self.launchers]


def calls(tree: ast.AST, *names: str) -> list[ast.Call]:
    """The calls of functions that are written so, as in `tl.load`."""
    return [call for name, call in _calls(tree) if name in names]


@lru_cache(maxsize=1024)
def _calls(tree: ast.AST) -> list[tuple[str, ast.Call]]:
    """Each call and what is called: every rule asks for its own."""
    return [(ast.unparse(node.func), node) for node in syntax.walk(tree) if isinstance(node, ast.Call)]


def keywords(call: ast.Call) -> set[str]:
    return {keyword.arg for keyword in call.keywords if keyword.arg}


def names_in(node: ast.AST) -> set[str]:
    return {each.id for each in syntax.walk(node) if isinstance(each, ast.Name)}


def assignments(function: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    """Name, and source of the value, of each assignment in a function."""
    for node in syntax.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                for name in sorted(names_in(target)):
                    yield name, ast.unparse(node.value)


@cache
def code_lines(text: str) -> frozenset[int]:
    """Numbers of the lines that count where the size of a file or of a function is limited.

    Signatures with their decorators, docstrings, comments and blank lines don't count.
    """
    lines = set(lines_of_tokens(text))
    for node in syntax.statements(syntax.tree(text)):
        if isinstance(node, syntax.DEFINITION):
            first = syntax.first_line(node)
            lines -= set(range(first, max(node.body[0].lineno, first + 1)))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines -= set(range(node.lineno, syntax.last_line(node) + 1))
    return frozenset(lines)
