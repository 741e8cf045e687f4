"""Python that no kernel can have, found in the syntax tree: where no compiler is installed, as in a browser.

The interpreter runs a kernel as Python, so a list, a dictionary or `try` works there; Triton's compiler refuses them.
Listed is only what it refuses whatever the types are, and what a later release takes until that one is installed. Each
entry of the list is tested against the compiler, and so is what must pass. A branch that hangs on a `tl.constexpr`
argument may be left out by the compiler, so it is passed over.

Names: `problems`, `in_file`, `release`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from academy.book import syntax
from academy.book.problems import Problem
from academy.command import misspelt

_RUNNING = "keep a running block or number instead, as in acc += x; for a few fixed values use a tuple"
_WHERE = "tl.where(condition, a, b) chooses for each lane"
_STOP = "let the loop's bounds or its `while` condition say when it ends, or skip the work with `if`"
#: Statements and expressions that have no meaning on a GPU -> what to do.
_NODES: dict[type[ast.AST], str] = {
    ast.Dict: f"a kernel has no dictionaries: {_RUNNING}",
    ast.Set: f"a kernel has no sets: {_RUNNING}",
    ast.DictComp: f"a kernel has no dictionaries: {_RUNNING}",
    ast.SetComp: f"a kernel has no sets: {_RUNNING}",
    ast.GeneratorExp: "a kernel has no generators: write a loop that adds to a running block",
    ast.Yield: "a kernel can't yield: it returns nothing, and stores its results",
    ast.YieldFrom: "a kernel can't yield: it returns nothing, and stores its results",
    ast.Await: "a kernel can't await",
    ast.Lambda: "a kernel has no lambda: write a function of its own, decorated with @triton.jit",
    ast.FunctionDef: "a function can't be defined inside of a kernel: move it out, and decorate it with @triton.jit",
    ast.AsyncFunctionDef: "a kernel has no coroutines",
    ast.ClassDef: "a class can't be defined inside of a kernel",
    ast.Try: "a GPU raises no exceptions, so a kernel has no try: mask the lanes that must not take part",
    ast.Raise: "a GPU raises no exceptions: check on the host before the launch, or use tl.device_assert",
    ast.Global: "a kernel can't change global variables: give it a pointer to store to",
    ast.Nonlocal: "a kernel can't change variables of another function: give it a pointer to store to",
    ast.Import: "import at the top of the file, not inside of a kernel",
    ast.ImportFrom: "import at the top of the file, not inside of a kernel",
    ast.Delete: "a kernel has no del: leave it out",
    ast.NamedExpr: "a kernel has no := expression: assign in a line of its own",
    ast.Match: "a kernel has no match: write if and elif",
    ast.Break: f"a kernel has no break: {_STOP}",
    ast.Continue: f"a kernel has no continue: {_STOP}",
    ast.Starred: "",  # only where it is assigned to, see `_assigned`
}
if hasattr(ast, "TryStar"):
    _NODES[ast.TryStar] = _NODES[ast.Try]
#: The first release of Triton that takes it.
_SINCE: dict[type[ast.AST], tuple[int, ...]] = {ast.NamedExpr: (3, 8), ast.Compare: (3, 9)}
#: Functions of Python that the compiler doesn't know -> what to do. (It knows len, range, int, float, min, max, print.)
_FUNCTIONS = {
    "list": _RUNNING, "dict": _NODES[ast.Dict], "set": _NODES[ast.Set], "frozenset": _NODES[ast.Set],
    "tuple": "write (a, b) instead", "sum": "tl.sum(x, axis=0) adds the lanes of a block", "abs": "write tl.abs(x)",
    "any": "write tl.max(mask, axis=0)", "all": "write tl.min(mask, axis=0)", "round": "write tl.floor(x + 0.5)",
    "sorted": "write tl.sort(x)", "reversed": "count with range(n - 1, -1, -1), or use tl.flip(x)",
    "enumerate": "count with range or tl.static_range", "zip": "count with tl.static_range, and take each by its index",
    "map": "write a loop, or x * 2 for all lanes at once", "filter": _WHERE, "bool": "write x != 0",
    "str": "a kernel has no text", "repr": "a kernel has no text", "type": "x.dtype is a block's dtype",
    "pow": "write tl.exp2(y * tl.log2(x))", "divmod": "write a // b and a % b", "input": "give the kernel an argument",
    "open": "a kernel has no files", "iter": "write a loop over range", "next": "write a loop over range",
    "id": "a pointer is an argument of the kernel", "callable": "leave it out", "super": "a kernel has no classes",
    "eval": "leave it out", "exec": "leave it out", "complex": "use two blocks",
}  # fmt: skip
_OF_LISTS = ("append", "extend", "insert", "pop", "remove", "setdefault", "items", "keys", "values", "update", "clear")
#: What a program reads of itself or of memory; what is computed of it isn't known when the kernel is compiled.
_RUNTIME = ("load", "program_id", "num_programs", "arange", "atomic_add", "atomic_max", "atomic_cas", "rand", "randint")


def problems(text: str, path: str = "") -> list[Problem]:
    """What Triton's compiler refuses in the jitted functions of a text, in the order of the lines.

    Raises SyntaxError if the text isn't valid Python.
    """
    lines = text.split("\n")
    names = _Globals(syntax.tree(text))
    found: dict[tuple[int, int], Problem] = {}
    for function in filter(_is_tritons, syntax.jitted_functions(text)):
        for node, message in _Kernel(function, names).problems():
            at = getattr(node, "lineno", function.lineno), getattr(node, "col_offset", 0)
            found.setdefault(at, Problem(path, at[0], at[1] + 1, message, lines[at[0] - 1]))
    return [found[at] for at in sorted(found)]


@lru_cache(1)
def release() -> tuple[int, ...]:
    """Triton's; where it isn't installed, as in a browser, which lacks modules that it takes to look, the oldest that
    kernels here run on."""
    try:
        from importlib import metadata

        return tuple(map(int, metadata.version("triton").split(".")[:2]))
    except ModuleNotFoundError:  # PackageNotFoundError is one
        return 3, 6


@lru_cache(maxsize=64)
def in_file(path: str) -> list[Problem]:
    """The same for a file; empty if it can't be read."""
    try:
        return problems(Path(path).read_text("utf-8"), path)
    except (OSError, SyntaxError, UnicodeDecodeError):
        return []


class _Globals:
    """What the names of a file stand for. host: modules whose functions run on the host. plain: functions that aren't
    jitted. known: functions and what is imported. values: variables that are no tl.constexpr."""

    def __init__(self, tree: ast.Module):
        self.host: dict[str, str] = {}
        self.plain: set[str] = set()
        self.values: set[str] = set()
        self.known: set[str] = set()
        for node in tree.body:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self.known |= {alias.asname or alias.name for alias in node.names}
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name.split(".")[0] in ("torch", "numpy", "math", "random"):
                        self.host[alias.asname or alias.name.split(".")[0]] = alias.name.split(".")[0]
            elif isinstance(node, ast.FunctionDef):
                self.known.add(node.name)
                if not node.decorator_list:
                    self.plain.add(node.name)
            elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if _is_plain_value(node.value):
                    self.values |= {target.id for target in targets if isinstance(target, ast.Name)}


def _is_plain_value(node: ast.expr) -> bool:
    """A number, a text, a list or the like, or arithmetic with them: not `tl.constexpr(…)`, and no function."""
    if isinstance(node, ast.Constant):
        return node.value is not None
    if isinstance(node, (ast.List, ast.Dict, ast.Set, ast.Tuple)):
        return True
    if isinstance(node, ast.UnaryOp):
        return _is_plain_value(node.operand)
    if isinstance(node, ast.BinOp):
        return _is_plain_value(node.left) and _is_plain_value(node.right)
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("float", "int", "dict")


class _Kernel:
    """One jitted function. constants, runtime: its names for what is known, and isn't, when it is compiled."""

    def __init__(self, function: ast.FunctionDef, names: _Globals):
        self.function, self.globals = function, names
        arguments = function.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        self.constants = {arg.arg for arg in every if arg.annotation and "constexpr" in ast.unparse(arg.annotation)}
        self.runtime: set[str] = {arg.arg for arg in every} - self.constants if _is_launched(function) else set()
        self.local, self.counters = {arg.arg for arg in every}, set[str]()
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self.local.add(node.id)
            if isinstance(node, ast.For) and isinstance(node.target, ast.Name):
                self.counters.add(node.target.id)
        changed = True
        while changed:  # what is computed from runtime values is one, however far down
            before = len(self.runtime)
            for node in ast.walk(function):
                if isinstance(node, (ast.Assign, ast.AugAssign)) and self._at_runtime(node.value):
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    self.runtime |= {target.id for target in targets if isinstance(target, ast.Name)}
            changed = len(self.runtime) > before

    def problems(self) -> Iterator[tuple[ast.AST, str]]:
        arguments = self.function.args
        if arguments.vararg and arguments.kwarg or arguments.kwarg:
            yield self.function, "a kernel has no **kwargs: name each argument"
        for statement in self.function.body:
            yield from self._of(statement, loop=False)

    def _of(self, node: ast.AST, loop: bool) -> Iterator[tuple[ast.AST, str]]:
        if isinstance(node, (ast.If, ast.IfExp)) and self._decided_before(node.test):
            yield from self._of(node.test, loop)
            return
        message = self._refused(node, loop)
        if message:
            yield node, message
            return
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return
        inside = (
            loop or isinstance(node, (ast.For, ast.While)) and not _calls(getattr(node, "iter", None), "static_range")
        )
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from self._of(child, inside)

    def _refused(self, node: ast.AST, loop: bool) -> str:
        """What to do instead of this node; "" if the compiler takes it."""
        taken = type(node) in _SINCE and release() >= _SINCE[type(node)]
        for kind, message in _NODES.items():
            if isinstance(node, kind) and message and not taken:
                return message
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if loop and isinstance(node, ast.Return):
            return f"a kernel can't return from inside of a loop: {_STOP}"
        return method(node) if method else ""

    def _call(self, node: ast.Call) -> str:
        function = node.func
        if isinstance(function, ast.Attribute):
            return self._method(node, function)
        name = function.id if isinstance(function, ast.Name) else ""
        if name in self.local:
            return ""
        if name == self.function.name and not any(isinstance(n, (ast.If, ast.IfExp)) for n in ast.walk(self.function)):
            return "a kernel can't call itself without end: write a loop"
        if name in self.globals.plain:
            return f"a kernel calls jitted functions only: decorate {name} with @triton.jit"
        if name in _FUNCTIONS and name not in self.globals.known:
            return f"the compiler doesn't know Python's {name}(): {_FUNCTIONS[name]}"
        if name in ("int", "float") and any(map(self._at_runtime, node.args)):
            return f"{name}() is for numbers that are known beforehand: write x.to(tl.{name}32)"
        return _printed(name, node) if name == "print" else ""

    def _method(self, node: ast.Call, function: ast.Attribute) -> str:
        owner = function.value
        if isinstance(owner, (ast.Constant, ast.JoinedStr)) and isinstance(getattr(owner, "value", ""), str):
            return "a kernel has no text to work with: put it together on the host"
        if isinstance(owner, ast.Name) and owner.id in self.local and function.attr in _OF_LISTS:
            return f"a kernel's lists can't change: {_RUNNING}"
        if ast.unparse(function) == "tl.device_print":
            return _printed("tl.device_print", node)
        if self._module(owner) in ("math", "random") and any(map(self._at_runtime, node.args)):
            return f"{ast.unparse(function)} takes one number of Python: write tl.{function.attr}(x), if there is one"
        return ""

    def _attribute(self, node: ast.Attribute) -> str:
        if isinstance(node.ctx, ast.Store):
            return "a kernel can't set attributes: use a variable"
        module = self._module(node.value)
        if module in ("torch", "numpy"):
            return misspelt.host_only(ast.unparse(node.value), node.attr)
        return ""

    def _module(self, node: ast.AST) -> str:
        """Which of the host's modules a name stands for."""
        name = node.id if isinstance(node, ast.Name) and node.id not in self.local else ""
        return self.globals.host.get(name, "")

    def _name(self, node: ast.Name) -> str:
        if isinstance(node.ctx, ast.Load) and node.id not in self.local and node.id in self.globals.values:
            return (
                f"a kernel can't read the global {node.id}, which may change: write {node.id} = tl.constexpr(…) at the "
                "top of the file, or pass it as an argument"
            )
        return ""

    def _listcomp(self, node: ast.ListComp) -> str:
        over = node.generators[0]
        if (
            len(node.generators) > 1
            or over.ifs
            or not isinstance(over.iter, (ast.Tuple, ast.List, ast.Name, ast.Attribute))
        ):
            return f"a kernel has no list comprehension over range: {_RUNNING}"
        return ""

    def _joinedstr(self, node: ast.JoinedStr) -> str:
        values = [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
        if any(map(self._at_runtime, values)):
            return 'a kernel has no text at run time: tl.device_print("x", x) prints values'
        return ""

    def _for(self, node: ast.For) -> str:
        if node.orelse:
            return "a loop of a kernel has no else"
        if not isinstance(node.iter, ast.Call):
            return "a kernel's loops go over range, tl.range or tl.static_range: take each value by its index"
        return ""

    def _while(self, node: ast.While) -> str:
        return "a loop of a kernel has no else" if node.orelse else ""

    def _with(self, node: ast.With) -> str:
        roots = [item.context_expr.func for item in node.items if isinstance(item.context_expr, ast.Call)]
        names = [ast.unparse(root).split(".")[0] for root in roots]
        return "" if names and set(names) <= {"tl", "gl", "ttgl"} else "a kernel has no with: leave it out"

    def _assign(self, node: ast.Assign) -> str:
        if len(node.targets) > 1:
            return "a kernel assigns one name at a time: write a = x, then b = a"
        return self._assigned(node.targets[0])

    def _augassign(self, node: ast.AugAssign) -> str:
        return self._assigned(node.target)

    def _assigned(self, target: ast.expr) -> str:
        if isinstance(target, ast.Subscript):
            return f"a block's elements can't be assigned to: {_WHERE}, and tl.store writes to memory"
        if isinstance(target, (ast.Tuple, ast.List)) and any(isinstance(item, ast.Starred) for item in target.elts):
            return "a kernel has no starred assignment: name each value"
        return ""

    def _compare(self, node: ast.Compare) -> str:
        if len(node.ops) > 1 and release() < _SINCE[ast.Compare]:
            return "a kernel has no chained comparison: write (a < x) & (x < b)"
        if isinstance(node.ops[0], (ast.In, ast.NotIn)):
            return "a kernel has no `in`: compare with each value, a == 1 or a == 2"
        return ""

    def _binop(self, node: ast.BinOp) -> str:
        if isinstance(node.op, ast.MatMult):
            return "a kernel multiplies matrices with tl.dot(a, b)"
        if isinstance(node.op, ast.Pow) and self._at_runtime(node.left):
            return "a kernel has no ** for what it has loaded: write x * x, or tl.exp2(y * tl.log2(x))"
        if isinstance(node.op, ast.Mod) and isinstance(node.left, ast.Constant) and isinstance(node.left.value, str):
            return "a kernel has no text to work with: put it together on the host"
        return ""

    def _unaryop(self, node: ast.UnaryOp) -> str:
        return (
            "a kernel has no unary +: leave it out" if isinstance(node.op, ast.UAdd) and self._at_runtime(node) else ""
        )

    def _constant(self, node: ast.Constant) -> str:
        if isinstance(node.value, bytes):
            return "a kernel has no text to work with: put it together on the host"
        return "a kernel has no complex numbers: use two blocks" if isinstance(node.value, complex) else ""

    def _subscript(self, node: ast.Subscript) -> str:
        if isinstance(node.value, ast.Name) and node.value.id.endswith("_ptr") and isinstance(node.ctx, ast.Load):
            return f"a pointer has no brackets: tl.load({node.value.id} + i) reads what {node.value.id}[i] is in C"
        return ""

    def _at_runtime(self, node: ast.AST) -> bool:
        """Whether a value certainly comes from a runtime argument, from memory or from the number of the program."""
        for each in ast.walk(node):
            if isinstance(each, ast.Attribute) and each.attr in ("shape", "dtype", "type", "numel"):
                return False  # known beforehand, whatever the block holds
            if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr in _RUNTIME:
                return True
        return any(isinstance(each, ast.Name) and each.id in self.runtime for each in ast.walk(node))

    def _decided_before(self, test: ast.expr) -> bool:
        """Whether a condition is about constexpr arguments, so that one branch may never be compiled."""
        names = {each.id for each in ast.walk(test) if isinstance(each, ast.Name)} & self.local
        return bool(names) and not names & (self.runtime | self.counters)


def _printed(name: str, node: ast.Call) -> str:
    """What is wrong with a `print`, which Triton takes for `tl.device_print`."""
    text = bool(node.args) and isinstance(node.args[0], (ast.Constant, ast.JoinedStr))
    if text and (name != "print" or not node.keywords):
        return ""
    given = [ast.unparse(each) for each in node.args[text:]] or ["x"]
    return f'on a GPU a print is a text, and then what is to be shown: {name}("{given[0]}", {", ".join(given)})'


def _is_tritons(function: ast.FunctionDef) -> bool:
    """Other compilers have a `jit`, too."""
    names = [ast.unparse(getattr(node, "func", node)) for node in function.decorator_list]
    return bool({"jit", "triton.jit", "gluon.jit"} & set(names))


def _is_launched(function: ast.FunctionDef) -> bool:
    """Whether the arguments that aren't tl.constexpr are pointers and numbers: a helper may get constants, too."""
    return any(arg.arg.endswith("_ptr") for arg in function.args.args)


def _calls(node: ast.AST | None, name: str) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == name
