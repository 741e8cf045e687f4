"""Mutants of synchronisation: a Gluon kernel with one wait, arrival or fence left out, flipped or miscounted.

Each of them is a bug that may run for years before it shows. The simulator must name it: `caught` runs a check on the
mutated file and says what it raised.

Names: `mutants()`, `caught()`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from types import ModuleType

from academy.book import syntax
from academy.gluon import GluonError
from academy.judge.mutants import Mutant, mutated

#: Last name of a call -> position of the argument that is a count, and what a miscount makes of it.
_COUNTS = {
    "init": (1, "count", "({}) + 1"), "expect": (1, "bytes", "({}) + 16"), "warpgroup_mma_wait": (0, "", "({}) + 1"),
    "store_wait": (0, "pendings", "({}) + 1"), "wait_group": (0, "num_outstanding", "({}) + 1"),
}  # fmt: skip
_CALLS = {*_COUNTS, "wait", "arrive", "fence_async_shared", "commit_group", "mbarrier_arrive"}
#: Names that other modules use for other things: they count only after one of these.
_ONLY_OF = {"init": "mbarrier", "expect": "mbarrier", "wait": "mbarrier", "arrive": "mbarrier"}


def mutants(text: str) -> list[Mutant]:
    """Every single change of the synchronisation in the jitted functions of a Gluon file."""
    return [
        mutant
        for function in ast.walk(syntax.tree(text))
        if isinstance(function, ast.FunctionDef) and any("gluon.jit" in ast.unparse(d) for d in function.decorator_list)
        for mutant in _of_function(text, function)
    ]


def _of_function(text: str, function: ast.FunctionDef) -> Iterator[Mutant]:
    for statement in ast.walk(function):
        if isinstance(statement, ast.Expr) and (call := _synchronises(statement.value)):
            yield _edit(text, function, statement, "pass", "delete", call)
        elif isinstance(statement, ast.Assign) and (call := _synchronises(statement.value)):
            deps = next((each.value for each in call.keywords if each.arg == "deps"), None)
            if isinstance(deps, ast.Tuple):
                kept = ast.unparse(deps.elts[0] if len(deps.elts) == 1 else deps)
                yield _edit(text, function, statement.value, kept, "delete", call)
        else:
            continue
        name = _name(call)
        if name == "wait" and len(call.args) > 1:
            yield _edit(text, function, call.args[1], f"({ast.unparse(call.args[1])}) ^ 1", "flip", call)
        if name == "arrive" and not any(each.arg == "count" for each in call.keywords):
            last = (call.args + [each.value for each in call.keywords])[-1]
            yield _edit(text, function, last, f"{ast.unparse(last)}, count=2", "miscount", call)
        if name in _COUNTS:
            position, keyword, form = _COUNTS[name]
            given = call.args[position] if len(call.args) > position else None
            given = given or next((each.value for each in call.keywords if each.arg == keyword), None)
            if given is not None:
                yield _edit(text, function, given, form.format(ast.unparse(given)), "miscount", call)


def _synchronises(node: ast.expr) -> ast.Call | None:
    return node if isinstance(node, ast.Call) and _name(node) else None


def _name(call: ast.Call) -> str:
    """The last name of the function, if it orders anything; else ""."""
    *before, name = ast.unparse(call.func).split(".")
    fits = name in _CALLS and (name not in _ONLY_OF or before[-1:] == [_ONLY_OF[name]])
    return name if fits else ""


def _edit(text: str, function: ast.FunctionDef, node: ast.AST, new: str, operator: str, call: ast.Call) -> Mutant:
    start, end = _offset(text, node.lineno, node.col_offset), _offset(text, node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
    name = f"{operator} of `{ast.unparse(call)}` in line {call.lineno} of {function.name}"
    return Mutant(name, text[start:end], new, start=start, operator=operator, function=function.name)


def _offset(text: str, line: int, column: int) -> int:
    lines = text.splitlines(keepends=True)
    return sum(map(len, lines[: line - 1])) + len(lines[line - 1].encode()[:column].decode())


def caught(module: ModuleType, mutant: Mutant, check: Callable[[ModuleType], None]) -> str:
    """What `check(mutated module)` raised: the first line of the simulator's error, or of a wrong value; "" if nothing.

    check: runs the file's functions in the simulator and compares the results; `check(module)` itself must not raise.
    """
    broken = mutated(module, mutant)
    try:
        check(broken)
    except (GluonError, AssertionError) as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return ""
