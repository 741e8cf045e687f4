"""What a kernel file takes from annotated_examples/common: each helper, and the line that first uses it."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

from academy.book import layout, syntax
from academy.book.texts import read

HEADING = re.compile(r"#( #+ .*)?$")
COMMON = f"{layout.KERNELS}.common"


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
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(COMMON):
            for alias in node.names:
                whole = node.module == COMMON
                target = (f"{COMMON}.{alias.name}", "") if whole else (node.module, alias.name)
                imported[alias.asname or alias.name] = target
    found: dict[tuple[str, str], int] = {}
    for used in ast.walk(tree):
        name, member = (used.value, used.attr) if isinstance(used, ast.Attribute) else (used, "")
        module, there = imported.get(name.id, ("", "")) if isinstance(name, ast.Name) else ("", "")
        if isinstance(name, ast.Name) and module and (there or member):
            key, line = (module, there or member), name.lineno
            found[key] = min(line, found.get(key, line))
    uses: dict[int, list[Helper]] = {}
    for (module, member), line in sorted(found.items(), key=lambda item: item[1]):
        if helper := _definition(root, module.replace(".", "/") + ".py", member):
            uses.setdefault(line, []).append(helper)
    return uses


def _definition(root: Path, path: str, name: str) -> Helper | None:
    text = read(root / path) if (root / path).is_file() else ""
    lines = text.split("\n")
    for node in syntax.tree(text).body:
        names = [target.id for target in getattr(node, "targets", ()) if isinstance(target, ast.Name)]
        if getattr(node, "name", "") == name or name in names:
            first = syntax.first_line(node) if isinstance(node, syntax.DEFINITION) else node.lineno
            while lines[first - 2].startswith("#"):
                first -= 1
            while HEADING.match(lines[first - 1]):  # that of a part of the shared file, and the empty line below it
                first += 1
            return Helper(name, path, text, range(first, syntax.last_line(node) + 1))
    return None
