"""The cells under "Change it" of a chapter, as one text that runs in the page.

A cell with the tag `live` sets numbers, and the one after it uses them. What both need of the cells above comes along:
imports, functions and values, found by their names, so that the text is short and stands by itself. The second cell
becomes `EXAMPLE`, which the playground records.
"""

from __future__ import annotations

import ast
import re
import symtable
import textwrap

TAG = "live"


def is_live(cell) -> bool:
    return cell.cell_type == "code" and TAG in cell.metadata.get("tags", ())


def text(cells: list, place: int) -> str:
    """The text for the live cell at this place. Raises ValueError where no cell of code follows."""
    code = [cell.source for cell in cells[:place] if cell.cell_type == "code"]
    after = next((cell.source for cell in cells[place + 1 :] if cell.cell_type == "code"), "")
    if not after.strip():
        raise ValueError("a cell with the tag `live` has no cell of code after it")
    numbers = cells[place].source.strip()
    own = _stored(ast.parse(numbers))
    known = [piece for source in code for piece in _pieces(source)]
    example = "def EXAMPLE():\n" + textwrap.indent(_returned(after.strip()), "    ")
    # A comment may offer values to try: `other = 0.0  # 0.0, -math.inf`.
    needed = _needed(known, (set(re.findall(r"[A-Za-z_]\w*", numbers)) | _used(example)) - own)
    imports, functions = (
        [part for part, _, node in needed if isinstance(node, kinds)] for kinds in (_IMPORTS, _DEFINITIONS)
    )
    values = [part for part, *_ in needed if part not in imports + functions]  # which functions may make
    return "\n\n\n".join(filter(None, ["\n".join(imports), *functions, "\n".join([*values, numbers]), example])) + "\n"


_IMPORTS, _DEFINITIONS = (ast.Import, ast.ImportFrom), (ast.FunctionDef, ast.ClassDef)


def _pieces(source: str) -> list[tuple[str, set[str], ast.stmt]]:
    """Each statement of a cell: its text, the names that it gives, the statement."""
    lines = source.split("\n")
    found = []
    for node in ast.parse(source).body:
        first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
        found.append(("\n".join(lines[first - 1 : node.end_lineno]), _given(node), node))
    return found


def _given(node: ast.stmt) -> set[str]:
    if isinstance(node, _DEFINITIONS):
        return {node.name}
    if isinstance(node, _IMPORTS):
        return {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    return _stored(node) if isinstance(node, (ast.Assign, ast.AnnAssign)) else set()


def _needed(known: list, names: set[str]) -> list:
    """The last piece above that gives each name, and what that piece uses itself."""
    chosen: set[int] = set()
    todo = [(name, len(known)) for name in names]
    while todo:
        name, before = todo.pop()
        place = next((i for i in range(before - 1, -1, -1) if name in known[i][1]), None)
        if place is None or place in chosen:
            continue
        chosen.add(place)
        # A function looks its names up when it is called: it may use what stands below it.
        limit = len(known) if isinstance(known[place][2], _DEFINITIONS) else place
        todo += [(used, limit) for used in _used(known[place][0])]
    return [known[place] for place in sorted(chosen)]


def _used(source: str) -> set[str]:
    """The names that a text takes from outside of its functions."""
    found = set()
    tables = [symtable.symtable(source, "a cell", "exec")]
    for table in tables:
        top = table.get_type() == "module"
        found |= {each.get_name() for each in table.get_symbols() if each.is_referenced() and (top or each.is_global())}
        tables += table.get_children()
    return found


def _stored(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _returned(source: str) -> str:
    """A notebook shows the value of a cell's last line; here it is returned."""
    last = ast.parse(source).body[-1]
    lines = source.split("\n")
    if isinstance(last, ast.Expr) and not ast.unparse(last).startswith("print("):
        lines[last.lineno - 1] = f"return {lines[last.lineno - 1]}"
    return "\n".join(lines)
