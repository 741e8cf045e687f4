"""Put calls of a hook around every statement of a kernel's syntax tree."""

from __future__ import annotations

import ast

from academy.gluon.watching import HOOK


def assigned(statement: ast.stmt) -> set[str]:
    targets = [*getattr(statement, "targets", []), *filter(None, [getattr(statement, "target", None)])]
    return {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}


def instrument(definition: ast.FunctionDef, file: str) -> None:
    """Put a call of the hook around every statement of a function.

    Events: `enter` with the arguments; `begin` and `end` of a statement; `loop`, then `iteration` for each round (the
    loop variable is set), then `endloop`; `return` with the value, which the hook hands on.
    """

    def call(event: str, line: int, *extra: ast.expr) -> ast.Call:
        constants = [ast.Constant(value) for value in (event, definition.name, file, line)]
        variables = ast.Call(ast.Name("locals", ast.Load()), [], [])
        return ast.Call(ast.Name(HOOK, ast.Load()), [*constants, variables, *extra], [])

    def body(statements: list[ast.stmt]) -> list[ast.stmt]:
        return [new for statement in statements for new in around(statement)]

    def around(node: ast.stmt) -> list[ast.stmt]:
        def event(name: str) -> ast.stmt:
            return ast.Expr(call(name, node.lineno))

        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if docstring or isinstance(node, (ast.Break, ast.Continue, ast.FunctionDef, ast.Pass)):
            return [node]
        if isinstance(node, (ast.For, ast.While)):
            node.body = [event("iteration"), *body(node.body)]
            node.orelse = body(node.orelse)
            return [event("loop"), node, event("endloop")]
        if isinstance(node, ast.Return):
            node.value = call("return", node.lineno, node.value or ast.Constant(None))
            return [event("begin"), node]
        if isinstance(node, (ast.If, ast.With)):
            node.body = body(node.body)
            if isinstance(node, ast.If):
                node.orelse = body(node.orelse)
            return [event("begin"), node]
        return [event("begin"), node, event("end")]

    last = definition.body[-1]
    ends = [] if isinstance(last, ast.Return) else [ast.Expr(call("return", last.lineno))]
    definition.body = [ast.Expr(call("enter", definition.lineno)), *body(definition.body), *ends]
