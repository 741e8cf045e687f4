"""The syntax tree of a source text, parsed once for all parts of the project that ask."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from academy.problems import Problem

#: The package of the kernel files.
KERNELS = "annotated_examples"
#: The nodes of functions and classes.
DEFINITION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@lru_cache(maxsize=256)
def tree(text: str) -> ast.Module:
    """The parsed text. Not to be changed: others get the same one. Raises SyntaxError."""
    return ast.parse(text)


def problem(text: str, path: str) -> Problem | None:
    """Where and why the text of a file is no Python; None if it is."""
    try:
        tree(text)
    except SyntaxError as error:
        line = error.lineno or 1
        return Problem(path, line, error.offset or 1, error.msg, text.split("\n")[line - 1])
    return None


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """All statements inside of `node`, those of nested functions and branches too, in the order of the text."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        if isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            yield from statements(child)


def first_line(definition: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> int:
    """The line where it begins, decorators included."""
    return min([definition.lineno, *(decorator.lineno for decorator in definition.decorator_list)])


def is_jitted(function: ast.FunctionDef) -> bool:
    """Whether it is decorated with `triton.jit`, among other decorators or not."""
    return any("jit" in ast.unparse(decorator) for decorator in function.decorator_list)


@lru_cache(maxsize=256)
def jitted_functions(text: str) -> tuple[ast.FunctionDef, ...]:
    """The jitted functions of a text, nested ones too, in its order. Not to be changed, like `tree`."""
    functions = [node for node in statements(tree(text)) if isinstance(node, ast.FunctionDef)]
    return tuple(function for function in functions if is_jitted(function))


def imported_kernels(text: str, root: Path) -> list[Path]:
    """The kernel files under `root` that a text imports, such as gemm for gemm_splitK, in the order of the text."""
    files = [root / (name.replace(".", "/") + ".py") for name in _imports(text)] if KERNELS in text else []
    return [file for file in files if file.is_file()]


@lru_cache(maxsize=256)
def _imports(text: str) -> list[str]:
    """Dotted names of kernel modules, and of what is taken from them, which may be modules too."""
    names: list[str] = []
    for node in statements(tree(text)):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return [name for name in dict.fromkeys(names) if name.startswith(f"{KERNELS}.")]


@lru_cache(maxsize=256)
def code_lines(text: str) -> frozenset[int]:
    """Numbers of the lines that count where the size of a file or of a function is limited.

    Signatures with their decorators, docstrings, comments and blank lines don't count.
    """
    layout = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = {n for t in tokens if t.type not in layout for n in range(t.start[0], t.end[0] + 1)}
    for node in statements(tree(text)):
        if isinstance(node, DEFINITION):
            lines -= set(range(first_line(node), max(node.body[0].lineno, first_line(node) + 1)))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines -= set(range(node.lineno, node.end_lineno + 1))
    return frozenset(lines)
