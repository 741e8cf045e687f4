"""The pages that mkdocstrings writes: what they are made from, and what it enters elsewhere than in the page.

A page that is kept (`academy/site/kept.py`) is not rendered again, so its entries in the tables of objects and anchors,
which other pages' links are resolved with, are noted when it is rendered, and made again in each build.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path

from academy import syntax
from academy.cache import question
from academy.site.library import exists, read

AUTODOC = re.compile(r"^(?:::: *(\S+)|\[\[reference\]\])", re.M)
PLUGIN, ANCHORS, HANDLER = "mkdocstrings", "autorefs", "python"


def depend_on_modules(markdown: str, root: Path) -> None:
    """The page is made again when what it shows of a file changes, not when the code in a function does."""
    for found in AUTODOC.finditer(markdown):
        if found[1]:
            outline(*_place(root, found[1]))
        else:
            for path in map(str, sorted((root / "annotated_examples").rglob("*.py"))):
                for name in public_functions(path):
                    outline(path, name)


def _place(root: Path, name: str) -> tuple[str, str]:
    """The file of a package, a module, or `module.function`, and the function, which may be ""."""
    base = root.joinpath(*name.split("."))
    module = next((p for p in (base.with_suffix(".py"), base / "__init__.py") if exists(str(p))), None)
    return (str(module), "") if module else (str(base.parent.with_suffix(".py")), base.name)


@question
def outline(path: str, name: str) -> str:
    """A file, or one function or class of it, without comments and without the code in its functions: signatures,
    docstrings, the order of names."""
    shown = [node for node in syntax.tree(read(Path(path))).body if not name or getattr(node, "name", "") == name]
    return "\n".join(ast.dump(_without_code(node)) for node in shown)


def _without_code(node: ast.stmt) -> ast.stmt:
    node = copy(node)
    if isinstance(node, ast.ClassDef):
        node.body = [_without_code(inner) for inner in node.body]
    elif isinstance(node, syntax.DEFINITION):
        node.body = [ast.Expr(ast.Constant(ast.get_docstring(node)))]
    return node


@question
def public_functions(path: str) -> list[str]:
    """Functions that a reader calls: documented with arguments or errors, and no launcher of one direction."""
    found = []
    for node in syntax.tree(read(Path(path))).body:
        doc = ast.get_docstring(node) or "" if isinstance(node, ast.FunctionDef) else ""
        is_launcher = doc and re.search(r"_(forward|backward|reference)_?$", node.name)
        if re.search(r"^(Args|Raises):", doc, re.M) and not is_launcher and not node.name.startswith("_"):
            found.append(node.name)
    return found


@contextmanager
def noted(config) -> Iterator[list]:
    """What is entered into the two tables while the block runs, as JSON can hold it."""
    entries: list = []
    inventory, anchors = config.plugins[PLUGIN].handlers.inventory, config.plugins[ANCHORS]
    register, register_anchor = inventory.register, anchors.register_anchor

    def note_object(*arguments, **options):
        entries.append(["object", arguments, options])
        register(*arguments, **options)

    def note_anchor(page, *arguments, **options):
        entries.append(["anchor", arguments, options])
        register_anchor(page, *arguments, **options)

    inventory.register, anchors.register_anchor = note_object, note_anchor
    try:
        yield entries
    finally:
        del inventory.register, anchors.register_anchor


def enter(entries: list, page, config) -> None:
    """Make these entries, which changes nothing where the page was rendered just now."""
    plugin = config.plugins[PLUGIN]
    if entries:
        plugin.handlers.get_handler(HANDLER)  # its style sheet and the inventory are written where it was used
    for kind, arguments, options in entries:
        if kind == "object":
            plugin.handlers.inventory.register(*arguments, **options)
        else:
            config.plugins[ANCHORS].register_anchor(page, *arguments, **options)
