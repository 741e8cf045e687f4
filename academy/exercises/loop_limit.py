"""Import a reader's text so that its loops end: every round of a loop and every item of a comprehension is counted. A
power that would be too long a number isn't computed.

Counting lines with `sys.settrace` takes as long as the rest of a check, since Python then reports every call, those of
the interpreter too. Kernels are left alone: Triton reads their text from the file, and `watch.Watcher` ends them.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

#: Rounds of all loops together after which one of them counts as endless.
LIMIT = 10_000
_COUNT, _EACH, _POWER = "__academy_round__", "__academy_each__", "__academy_power__"
#: Bits of the largest whole number that a power may give: computing a longer one never ends, and nothing can stop it.
MOST_BITS = 100_000


class Endless(Exception):
    """A loop that doesn't end, with the line at which it was stopped."""

    line = 1


class Rounds:
    """The rounds of the loops of one text, in one call. ended: the first `Endless`, which the text may have caught."""

    def __init__(self) -> None:
        self.count = 0
        self.ended: Endless | None = None

    def load(self, path: Path) -> ModuleType:
        """Import a file by its path, with counting loops. Raises SyntaxError, and what the file raises."""
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec, f"{path} can't be imported"
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        vars(module).update({_COUNT: self._round, _EACH: self._each, _POWER: _power})
        tree = ast.parse(path.read_text("utf-8"), str(path))
        code = compile(ast.fix_missing_locations(_Counting().visit(tree)), str(path), "exec")
        self.counted(lambda: exec(code, vars(module)))
        return module

    def counted(self, call: Callable[[], Any]) -> Any:
        """Call a function of the loaded file, and end it with `Endless` after `LIMIT` rounds."""
        self.count, self.ended = 0, None
        result = call()
        if self.ended is not None:
            raise self.ended
        return result

    def _round(self, function: str, line: int) -> None:
        self.count += 1
        if self.count > LIMIT:
            error = Endless(f"{function} has gone round {LIMIT} times: does a loop never end?")
            error.line = line
            self.ended = self.ended or error
            raise error

    def _each(self, items: Iterable, function: str, line: int) -> Iterator:
        for item in items:
            self._round(function, line)
            yield item


def _power(base: Any, exponent: Any) -> Any:
    """base ** exponent. Raises OverflowError where that is a whole number of more than `MOST_BITS` bits."""
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * exponent > MOST_BITS:
        digits = f"{exponent * base.bit_length() * 3 // 10:.0e}" if exponent < 1e300 else "countless"
        raise OverflowError(f"this power has about {digits} digits: no answer is such a number")
    return base**exponent


class _Counting(ast.NodeTransformer):
    function = "the file"

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        outer, self.function = self.function, node.name
        self.generic_visit(node)
        self.function = outer
        return node

    def visit_While(self, node: ast.While | ast.For) -> ast.AST:
        self.generic_visit(node)
        node.body.insert(0, ast.copy_location(ast.Expr(self._call(_COUNT, node.lineno)), node.body[0]))
        return node

    visit_For = visit_While

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        self.generic_visit(node)
        node.iter = ast.copy_location(self._call(_EACH, node.iter.lineno, node.iter), node.iter)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Pow):
            return node
        return ast.copy_location(ast.Call(ast.Name(_POWER, ast.Load()), [node.left, node.right], []), node)

    def _call(self, name: str, line: int, *arguments: ast.expr) -> ast.Call:
        return ast.Call(ast.Name(name, ast.Load()), [*arguments, ast.Constant(self.function), ast.Constant(line)], [])
