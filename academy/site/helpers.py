"""What a kernel file takes from annotated_examples/common: each helper, and the line that first uses it."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from academy import syntax
from academy.site.texts import read

COMMON = f"{syntax.KERNELS}.common"


@dataclass(frozen=True)
class Helper:
    """A definition of a shared file: `lines` counts from 1 and includes the comment above it."""

    name: str
    path: str
    text: str
    lines: range


def first_uses(text: str, root: Path) -> dict[int, list[Helper]]:
    """Line -> the helpers that the code of a kernel file uses there for the first time, in the order of the text."""
    tree = syntax.tree(text)
    imported: dict[str, tuple[str, str]] = {}  # name here -> module, name there ("" for the module itself)
    for node in syntax.statements(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(COMMON):
            for alias in node.names:
                whole = node.module == COMMON
                target = (f"{COMMON}.{alias.name}", "") if whole else (node.module, alias.name)
                imported[alias.asname or alias.name] = target
    found: dict[tuple[str, str], int] = {}
    for node in ast.walk(tree):
        name = node.value if isinstance(node, ast.Attribute) else node
        module, there = imported.get(name.id, ("", "")) if isinstance(name, ast.Name) else ("", "")
        key = (module, there or (node.attr if isinstance(node, ast.Attribute) else ""))
        if module and key[1]:
            found[key] = min(node.lineno, found.get(key, node.lineno))
    uses: dict[int, list[Helper]] = {}
    for (module, name), line in sorted(found.items(), key=lambda item: item[1]):
        if helper := _definition(root, module.replace(".", "/") + ".py", name):
            uses.setdefault(line, []).append(helper)
    return uses


def _definition(root: Path, path: str, name: str) -> Helper | None:
    if not (root / path).is_file():
        return None
    text = read(root / path)
    lines = text.split("\n")
    for node in syntax.tree(text).body:
        names = [target.id for target in getattr(node, "targets", ()) if isinstance(target, ast.Name)]
        if getattr(node, "name", "") == name or name in names:
            first = syntax.first_line(node) if isinstance(node, syntax.DEFINITION) else node.lineno
            while lines[first - 2].startswith("#"):
                first -= 1
            return Helper(name, path, text, range(first, node.end_lineno + 1))
    return None
