"""The code that a measurement depends on: a kernel file, and of what it imports, the definitions that it uses."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from academy.book import layout, syntax

#: What may change in a kernel file without making its measurements stale.
NOT_MEASURED = {"EXAMPLE"}
#: What kernel files take from here lay in `academy` itself when most of them were measured, and is the same.
_RUNTIME = "academy.runtime"


def of(path: Path, root: Path) -> bytes:
    """All statements of a kernel file; of the kernel files that it imports, directly or not, those that it needs.

    A statement is needed if it binds a name that is used, or binds none. Comments, docstrings and what can't change a
    speed (`NOT_MEASURED`) don't count. The same on every Python version: fields that a later version added are left
    out while they are empty, which `ast.dump` would not do.
    """
    statements = cache(lambda file: _statements(file.read_text("utf-8")))
    taken: dict[Path, set[int]] = {path: set()}
    work: list[tuple[Path, str | None]] = [(path, None)]
    asked = set(work)
    while work:
        file, name = work.pop()
        for at, statement in enumerate(statements(file)):
            binds = statement.binds
            if at in taken.setdefault(file, set()) or not (name is None or name in binds or not binds):
                continue
            wanted = [*_imported(statement.node, root, name if name in binds else None)] if statement.imports else []
            if not _imports_kernels(statement.node):
                taken[file].add(at)
                wanted += [(file, used) for used in statement.uses]
            new = [each for each in dict.fromkeys(wanted) if each not in asked]
            asked.update(new)
            work += new
    ordered = [path, *sorted(file for file in taken if file != path)]
    code = [statements(file)[at].code for file in ordered for at in sorted(taken[file])]
    return "\n".join(code).encode()


class _Statement(NamedTuple):
    """At the top of a file: the names that it gives a value, the names in it, and whether there is an import in it."""

    node: ast.stmt
    binds: frozenset[str]
    uses: tuple[str, ...]
    imports: bool
    code: str


@lru_cache(256)
def _statements(text: str) -> tuple[_Statement, ...]:
    return tuple(_statement(node) for node in syntax.bare(text).body if not _is_excluded(node))


def _statement(node: ast.stmt) -> _Statement:
    parts = list(syntax.walk(node))
    uses = dict.fromkeys(part.id for part in parts if isinstance(part, ast.Name))
    imports = any(isinstance(part, ast.Import | ast.ImportFrom) for part in parts)
    return _Statement(node, frozenset(_bound(node)), tuple(uses), imports, _canonical(node))


def _is_excluded(node: ast.stmt) -> bool:
    if isinstance(node, ast.FunctionDef):
        return node.name in NOT_MEASURED
    if isinstance(node, ast.If):  # `if __name__ == "__main__":`
        return any(isinstance(part, ast.Name) and part.id == "__name__" for part in syntax.walk(node.test))
    return isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id in NOT_MEASURED for t in node.targets)


def _imports_kernels(node: ast.stmt) -> bool:
    """Whether it is an import from kernel files: what it takes from them counts, the statement itself doesn't."""
    return isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{layout.KERNELS}.")


def _bound(node: ast.stmt) -> set[str]:
    """The names that a statement at the top of a file gives a value."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    return {part.id for part in syntax.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}


def _imported(node: ast.stmt, root: Path, only: str | None) -> Iterator[tuple[Path, str | None]]:
    """(kernel file, name) of what a statement imports from kernel files, `None` for a file as a whole.

    only: of an import at the top of a file, the one name that is used; None for all.
    """
    for part in syntax.walk(node):
        if isinstance(part, ast.ImportFrom) and part.module and not part.level:
            for alias in part.names:
                if only is None or part is not node or (alias.asname or alias.name) == only:
                    if whole := syntax.kernel_file(f"{part.module}.{alias.name}", root):
                        yield whole, None
                    elif inside := syntax.kernel_file(part.module, root):
                        yield inside, alias.name
        elif isinstance(part, ast.Import):
            yield from ((file, None) for alias in part.names if (file := syntax.kernel_file(alias.name, root)))


def _canonical(node: object) -> str:
    if isinstance(node, ast.ImportFrom) and re.match(rf"{_RUNTIME}\b", node.module or ""):
        node = ast.ImportFrom((node.module or "").replace(_RUNTIME, "academy", 1), node.names, node.level)
    if isinstance(node, ast.AST):
        fields = [(name, value) for name, value in ast.iter_fields(node) if value not in (None, [])]
        constant = repr(node.value) if isinstance(node, ast.Constant) else ""
        return f"{type(node).__name__}({constant}{','.join(f'{n}={_canonical(v)}' for n, v in fields if n != 'kind')})"
    if isinstance(node, list):
        return f"[{','.join(map(_canonical, node))}]"
    return repr(node)
