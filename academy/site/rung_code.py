"""The code of a rung, wherever it lies: its function, the launchers that it calls, and the kernels that they launch.

A rung imports what it shares with others, so its file alone would say too little. Here the definitions are collected
from the files that have them, without comments and docstrings: what differs between two rungs is then what was changed.
Helpers of `annotated_examples/common` are left out, and so is Python that only checks arguments or chooses sizes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from difflib import SequenceMatcher
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from academy.book import layout, syntax
from academy.book.comments import comments
from academy.book.texts import read
from academy.site.helpers import COMMON
from academy.site.highlighting import highlighted

#: Lines shown around a change.
CONTEXT = 2


class Line(NamedTuple):
    """A line of code. `mark`: "+", "-", " ", or "" for lines left out. `html`: highlighted, without the mark."""

    mark: str
    text: str
    html: str


EMPTY = Line(" ", "", "")


def code_of(path: str, function: str, root: Path) -> list[Line]:
    """The code of the rung in this file, kernels before launchers. Raises ValueError if it has no `function`."""
    found: dict[tuple[str, str], list[Line]] = {}
    _collect(path, function, root, found, set())
    if not found:
        raise ValueError(f"{path} has no {function} that launches a kernel")
    kernels = [code for code in found.values() if code[0].text == "@triton.jit"]
    ordered = [*kernels, *(code for code in found.values() if code not in kernels)]
    return [line for code in ordered for line in (EMPTY, *code)][1:]


def _collect(path: str, name: str, root: Path, found: dict, seen: set) -> None:
    """Add the definition `name` of a file, after those that it uses."""
    if (path, name) in seen:
        return
    seen.add((path, name))
    text = read(root / path)
    defined, imported = _names(text)
    if name in imported:
        module, there = imported[name]
        file = module.replace(".", "/") + ".py"
        if not module.startswith(COMMON) and (root / file).is_file():  # else a whole module was imported
            _collect(file, there, root, found, seen)
    elif "." in name:
        package, there = imported.get(name.partition(".")[0], ("", ""))
        file = f"{package}.{there}".replace(".", "/") + ".py"
        if package and not package.startswith(COMMON) and (root / file).is_file():
            _collect(file, name.partition(".")[2], root, found, seen)
    elif node := defined.get(name):
        for used in _used(node):
            _collect(path, used, root, found, seen)
        if isinstance(node, ast.FunctionDef) and (syntax.is_jitted(node) or _launches(node)):
            found[path, name] = list(_lines(text, node))


@lru_cache(128)
def _names(text: str) -> tuple[dict[str, ast.stmt], dict[str, tuple[str, str]]]:
    """The functions and constants of a file, and what it imports from kernel files: name -> module, name there."""
    defined: dict[str, ast.stmt] = {}
    imported: dict[str, tuple[str, str]] = {}
    for node in syntax.tree(text).body:
        if isinstance(node, ast.FunctionDef):
            defined[node.name] = node
        elif isinstance(node, ast.Assign):
            defined |= {target.id: node for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{layout.KERNELS}."):
            imported |= {alias.asname or alias.name: (node.module or "", alias.name) for alias in node.names}
    return defined, imported


def _used(node: ast.stmt) -> list[str]:
    """The names that a definition uses, `module.name` too, in the order of the text."""
    found = [(each.lineno, each.col_offset, each.id) for each in ast.walk(node) if isinstance(each, ast.Name)]
    found += [
        (each.lineno, each.col_offset, f"{each.value.id}.{each.attr}")
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name)
    ]
    return list(dict.fromkeys(name for *_, name in sorted(found)))


def _launches(node: ast.FunctionDef) -> bool:
    """Whether a function launches kernels: it calls `kernel[grid](…)` or `launch(…)`."""
    calls = [each.func for each in ast.walk(node) if isinstance(each, ast.Call)]
    return any(isinstance(call, ast.Subscript) or isinstance(call, ast.Name) and call.id == "launch" for call in calls)


def _lines(text: str, node: ast.FunctionDef) -> Iterator[Line]:
    """The lines of a definition without comments, docstrings and blank lines."""
    ends = {comment.line: comment.column for comment in comments(text)}
    notes = {line for doc in syntax.docstrings(text) for line in range(doc.lineno, (doc.end_lineno or 0) + 1)}
    source = text.split("\n")
    numbers = [n for n in range(syntax.first_line(node), syntax.last_line(node) + 1) if n not in notes]
    kept = [source[n - 1][: ends.get(n)].rstrip() for n in numbers]
    kept = [line for line in kept if line]
    for line, html in zip(kept, highlighted("\n".join(kept))):
        yield Line(" ", line, html)


def difference(before: list[Line], after: list[Line]) -> list[Line]:
    """What changes between two rungs, as a unified diff without its head; "" marks the places of what is left out."""
    matcher = SequenceMatcher(None, [line.text for line in before], [line.text for line in after], autojunk=False)
    out: list[Line] = []
    end = 0
    for group in matcher.get_grouped_opcodes(CONTEXT):
        if group[0][3] > end:
            out.append(Line("", "", ""))
        for kind, i, j, k, m in group:
            if kind == "equal":
                out += after[k:m]
            else:
                out += [line._replace(mark="-") for line in before[i:j]]
                out += [line._replace(mark="+") for line in after[k:m]]
        end = group[-1][4]
    return [*out, Line("", "", "")] if end < len(after) else out
