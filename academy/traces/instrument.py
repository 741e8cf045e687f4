"""Put calls of a hook around every statement of a kernel's syntax tree."""

from __future__ import annotations

import ast

#: Name of the hook among the kernel's globals.
HOOK = "__academy_trace__"


def assigned(statement: ast.stmt) -> set[str]:
    targets = list(getattr(statement, "targets", []))
    targets += [statement.target] if hasattr(statement, "target") else []
    return {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}


class Instrument:
    """Puts a call of the hook around every statement of one function.

    Events: `enter` with the arguments; `begin` and `end` of a statement; `loop`, then `iteration` for each round (the
    loop variable is set), then `endloop`; `return` with the value, which the hook hands on.
    """

    def __init__(self, function: str, file: str):
        self.name, self.file = function, file

    def function(self, definition: ast.FunctionDef) -> None:
        body = [self._event("enter", definition.lineno), *self._body(definition.body)]
        if not isinstance(definition.body[-1], ast.Return):
            body.append(ast.Expr(self._call("return", definition.body[-1].lineno)))
        definition.body = body

    def _call(self, event: str, line: int, *extra: ast.expr) -> ast.Call:
        constants = [ast.Constant(value) for value in (event, self.name, self.file, line)]
        variables = ast.Call(ast.Name("locals", ast.Load()), [], [])
        return ast.Call(ast.Name(HOOK, ast.Load()), [*constants, variables, *extra], [])

    def _event(self, event: str, line: int) -> ast.stmt:
        return ast.Expr(self._call(event, line))

    def _body(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        return [new for statement in statements for new in self._statement(statement)]

    def _statement(self, node: ast.stmt) -> list[ast.stmt]:
        line = node.lineno
        if isinstance(node, (ast.For, ast.While)):
            node.body = [self._event("iteration", line), *self._body(node.body)]
            node.orelse = self._body(node.orelse)
            return [self._event("loop", line), node, self._event("endloop", line)]
        if isinstance(node, (ast.If, ast.With)):
            node.body = self._body(node.body)
            if isinstance(node, ast.If):
                node.orelse = self._body(node.orelse)
            return [self._event("begin", line), node]
        if isinstance(node, ast.Return):
            node.value = self._call("return", line, node.value or ast.Constant(None))
            return [self._event("begin", line), node]
        if isinstance(node, (ast.Break, ast.Continue, ast.FunctionDef)):
            return [node]
        if isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            return [node]
        return [self._event("begin", line), node, self._event("end", line)]
