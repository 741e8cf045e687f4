"""The API reference: which functions of a kernel file belong there, and, for the copies of pages, signatures and
docstrings as Markdown. Read from the source, never imported. The pages take theirs from mkdocstrings, which writes HTML
only."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

from academy import syntax
from academy.site.kernel_page import google_sections
from academy.site.splitter import Text
from academy.site.texts import read


def public_functions(text: str) -> list[str]:
    """Functions that a reader calls: documented with arguments or errors, and no launcher of one direction."""
    found = []
    for node in syntax.tree(text).body:
        doc = ast.get_docstring(node) or "" if isinstance(node, ast.FunctionDef) else ""
        is_launcher = doc and re.search(r"_(forward|backward|reference)_?$", node.name)
        if re.search(r"^(Args|Raises):", doc, re.M) and not is_launcher and not node.name.startswith("_"):
            found.append(node.name)
    return found


def documented(root: Path, name: str) -> list[str]:
    """Markdown for `package.module`, with its public functions and classes, or for `package.module.function`."""
    parts = name.split(".")
    for cut in (len(parts), len(parts) - 1):
        base = root.joinpath(*parts[:cut])
        path = next((p for p in (base.with_suffix(".py"), base / "__init__.py") if p.is_file()), None)
        if path:
            tree = syntax.tree(read(path))
            return _module(tree) if cut == len(parts) else _member(tree, parts[-1]) or [f"`{name}`"]
    return [f"`{name}`"]


def _module(tree: ast.Module) -> list[str]:
    out = _docstring(tree)
    for node in tree.body:
        if isinstance(node, syntax.DEFINITION) and not node.name.startswith("_") and ast.get_docstring(node):
            out += _definition(node)
    return out


def _member(tree: ast.Module, name: str) -> list[str]:
    return next(
        (_definition(node) for node in tree.body if isinstance(node, syntax.DEFINITION) and node.name == name), []
    )


def _definition(node) -> list[str]:
    out = ["", "```python", _signature(node), "```", "", *_docstring(node)]
    if isinstance(node, ast.ClassDef):
        for inner in node.body:
            if isinstance(inner, syntax.DEFINITION) and not inner.name.startswith("_") and ast.get_docstring(inner):
                out += _definition(inner)
    return out


def _signature(node) -> str:
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        return f"class {node.name}({bases})" if bases else f"class {node.name}"
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"def {node.name}({ast.unparse(node.args)}){returns}"


def _docstring(node) -> list[str]:
    lines = inspect.cleandoc(ast.get_docstring(node) or "").split("\n")
    lines = [re.sub(r"^#+ ", r"##\g<0>", line) for line in lines]  # below the page's own headings
    return [line for _, line in google_sections(Text(tuple((0, line) for line in lines))).lines]
