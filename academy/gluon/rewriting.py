"""From a jitted function to a generator: each call in it becomes a place where another partition may go on.

`f(x)` turns into `yield from __call__(f, x)`. There are no threads, so this works in a browser as well, and a schedule
can be repeated exactly.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
import weakref
from collections.abc import Callable, Generator
from typing import Any

from triton import JITFunction

from academy.gluon.errors import NotModelled, place
from academy.gluon.machine import machine
from academy.gluon.values import unwrap
from academy.gluon.watching import HOOK

#: id of a function of Gluon -> what stands for it. By identity: to hash a jitted function would walk through everything
#: that it uses. `academy.gluon.functions` fills it in.
MODELLED: dict[Any, Callable] = {}
#: Name -> what stands for it, where Triton has the operation and only a later release the name: until then a kernel's
#: file may define a builtin that is called so.
NAMED: dict[str, Callable] = {}
#: What a function that may have to wait returns.
Steps = Generator[Any, Any, Any]
_CACHE: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


class _Calls(ast.NodeTransformer):
    """Calls -> `yield from`; a comprehension can't hold one, so there a call must not wait."""

    def __init__(self) -> None:
        self.inside = 0

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        name = "__call_at_once__" if self.inside else "__call__"
        call = ast.Call(ast.Name(name, ast.Load()), [node.func, *node.args], node.keywords)
        return ast.copy_location(call if self.inside else ast.YieldFrom(call), node)

    def _comprehension(self, node: ast.AST) -> ast.AST:
        self.inside += 1
        self.generic_visit(node)
        self.inside -= 1
        return node

    visit_ListComp = visit_GeneratorExp = visit_SetComp = visit_DictComp = visit_Lambda = _comprehension

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is None:
            return node
        return ast.copy_location(ast.Assign([node.target], self.visit(node.value)), node)


def generator(jitted: JITFunction) -> Callable[..., Steps]:
    """The function of a `@gluon.jit` function, as one that yields."""
    function, watcher = jitted.fn, machine().watcher
    file = function.__code__.co_filename
    if watcher is not None and not watcher.follows(file):
        watcher = None
    made = _CACHE if watcher is None else watcher.generators
    if function not in made:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        ast.increment_lineno(tree, function.__code__.co_firstlineno - 1)
        definition = tree.body[0]
        if not isinstance(definition, ast.FunctionDef):
            raise NotModelled(f"{function.__name__} is no plain function")
        definition.decorator_list, definition.returns = [], None
        for argument in ast.walk(definition.args):
            if isinstance(argument, ast.arg):
                argument.annotation = None
        _Calls().visit(definition)
        if watcher is not None:
            watcher.instruments(definition, file)
        definition.body.append(ast.parse("if False: yield").body[0])
        found = inspect.getclosurevars(function).nonlocals
        scope = {name: unwrap(value) for name, value in {**function.__globals__, **found}.items()}
        scope |= {"__call__": call, "__call_at_once__": _call_at_once, "__gluon__": True, HOOK: _hook}
        exec(compile(ast.fix_missing_locations(tree), file, "exec"), scope)
        made[function] = scope[function.__name__]
    return made[function]


def _hook(*args: Any) -> Any:
    """What an instrumented function calls around its statements."""
    watcher = machine().watcher
    assert watcher is not None
    return watcher.hook(*args)


def call(function: Any, *args: Any, **kwargs: Any) -> Steps:
    """What every call in a kernel goes through."""
    function = MODELLED.get(id(function), function)
    if getattr(function, "__triton_aggregate__", False):
        return (yield from MODELLED["aggregate"](function, args, kwargs))
    if isinstance(function, JITFunction):
        return (yield from generator(function)(*args, **kwargs))
    if getattr(function, "__triton_builtin__", False):
        if function.__name__ in NAMED:
            return (yield from NAMED[function.__name__](*args, **kwargs))
        raise NotModelled(f"{place()}: the simulator doesn't have {getattr(function, '__name__', function)}")
    result = function(*args, **kwargs)
    return (yield from result) if isinstance(result, types.GeneratorType) else result


def _call_at_once(*args: Any, **kwargs: Any) -> Any:
    running = call(*args, **kwargs)
    try:
        while True:
            if next(running) is not None:
                raise NotModelled("nothing may wait inside a comprehension")
    except StopIteration as end:
        return end.value
