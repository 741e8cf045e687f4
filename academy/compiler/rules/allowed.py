"""What an answer may not do, told from its text alone, with the line: so it runs in a browser as in the terminal.

No exercise needs files, processes, threads, Python's own insides or the judge's.
"""

from __future__ import annotations

import ast

from academy import current

#: Modules that any answer may import.
IMPORTS = set(
    """__future__ bisect cmath collections copy dataclasses decimal enum fractions functools heapq itertools math numpy
    operator random statistics torch triton typing""".split()
)
_ACADEMY = {"academy", "academy.runtime", "academy.runtime.device"}
#: Functions that reach files, other frames or Python's insides, and what ends the process.
_NAMES = {
    name: "an answer is checked by what it computes"
    for name in """__builtins__ __import__ breakpoint compile delattr eval exec getattr globals help input locals
    memoryview open setattr vars""".split()
} | {
    name: "an answer returns its result, it doesn't end the program"
    for name in "BaseException GeneratorExit KeyboardInterrupt SystemExit exit quit".split()
}
#: Modules that other modules carry as attributes, and what leads out of a function's own variables.
_ATTRIBUTES = set(
    """ag_frame asyncio atexit builtins cr_frame ctypes f_back f_builtins f_globals f_locals faulthandler gc gi_frame
    importlib inspect linecache multiprocessing os pathlib pickle resource runpy shutil signal socket subprocess sys
    tb_frame tempfile threading tofile traceback weakref""".split()
)
#: Of torch, triton and numpy: files, processes, hooks into PyTorch, compilers.
_OF_LIBRARIES = set(
    """_C classes compile cpp_extension from_file fromfile frombuffer from_blob fx hub library load_library memmap
    multiprocessing ops overrides package save savez serialization tofile torch_function utils compiler runtime backends
    knobs ctypeslib f2py distutils""".split()
)
_OF_NN = ("torch.nn", "torch.nn.functional")
_OF_TORCH = ("torch.load", "torch.save", "torch.jit", "torch.set_default_dtype", "np.load", "np.save", "numpy.load")
_DUNDERS_TO_DEFINE = {"__init__", "__call__", "__iter__", "__next__", "__len__", "__getitem__", "__repr__", "__add__"}


class Raised(Exception):
    """What a text raised. stopped: it was ended, or it did something that is wrong in itself; else it doesn't run."""

    def __init__(self, message: str, line: int | None = None, stopped: bool = True):
        super().__init__(message)
        self.message, self.line, self.stopped = message, line, stopped


def check(text: str, solution: str = "") -> None:
    """Raises `Raised` at the first line that does what an answer may not do, and SyntaxError."""
    _Text(_imports(ast.parse(solution))).visit(ast.parse(text))


def _imports(tree: ast.AST) -> set[str]:
    """`annotated_examples.tutorials.softmax` of each import."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


class _Text(ast.NodeVisitor):
    """own: modules that the solution imports."""

    def __init__(self, own: set[str]):
        self.own = own
        self.modules: set[str] = set()  # names that stand for a module
        self.libraries: set[str] = set()  # those of torch, triton, numpy

    def refuse(self, node: ast.AST, message: str) -> None:
        raise Raised(message, getattr(node, "lineno", None))

    # ---- imports

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.imported(node, current(alias.name))
            self.named(alias.asname or alias.name.partition(".")[0], alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = current(node.module or "")  # an answer may be of an earlier release
        for alias in node.names:
            whole = current(f"{module}.{alias.name}")
            self.imported(node, whole if module in ("academy", "academy.runtime") else module, level=node.level)
            if (
                alias.name in (*_ATTRIBUTES, "*")
                or module.partition(".")[0] in _LIBRARIES
                and alias.name in _OF_LIBRARIES
            ):
                self.refuse(node, f"no exercise needs {whole}")
            if whole in ("academy.runtime.device", "triton.language", *_OF_NN):
                self.named(alias.asname or alias.name, whole)

    def imported(self, node: ast.AST, name: str, level: int = 0) -> None:
        if level or not (name.partition(".")[0] in IMPORTS or name in _ACADEMY or name in self.own):
            self.refuse(node, f"no exercise needs to import {name or 'from its folder'}")
        if name.partition(".")[0] != "academy" and set(name.split(".")) & (_ATTRIBUTES | _OF_LIBRARIES):
            self.refuse(node, f"no exercise needs to import {name}")

    def named(self, name: str, module: str) -> None:
        self.modules.add(name)
        if module.partition(".")[0] in _LIBRARIES:
            self.libraries.add(name)

    # ---- names and attributes

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in _NAMES:
            self.refuse(node, f"{node.id} has no place in an answer: {_NAMES[node.id]}")
        if node.id in self.modules:
            what = "is a module, and an answer doesn't change it" if not isinstance(node.ctx, ast.Load) else ""
            self.refuse(node, f"{node.id} {what or 'is a module: write what you need of it, as in ' + node.id + '.…'}")
        if node.id.startswith("__") and node.id not in ("__name__", "__file__"):
            self.refuse(node, f"{node.id} has no place in an answer")

    def visit_Attribute(self, node: ast.Attribute) -> None:
        root = _root(node)
        if node.attr in _ATTRIBUTES or node.attr.startswith("__") and node.attr not in _DUNDERS_TO_DEFINE:
            self.refuse(node, f".{node.attr} has no place in an answer: {_NAMES['open']}")
        if root in self.modules:
            whole = ast.unparse(node)
            if not isinstance(node.ctx, ast.Load):
                self.refuse(node, f"an answer may not replace {whole}: the checks and the kernels need it")
            if node.attr.startswith("_") or root in self.libraries and node.attr in _OF_LIBRARIES:
                self.refuse(node, f"no exercise needs {whole}")
        if root in self.libraries and ast.unparse(node) in _OF_TORCH:
            self.refuse(node, f"no exercise needs {ast.unparse(node)}")
        if not (isinstance(node.value, ast.Name) and node.value.id in self.modules):
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name.startswith("__") and node.name not in _DUNDERS_TO_DEFINE:
            self.refuse(node, f"{node.name} has no place in an answer: {_NAMES['open']}")
        self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.refuse(node, "an answer has no async functions: nobody would await them")

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.type is None:
            self.refuse(node, "`except:` catches everything, also what ends an endless loop: name what you expect")
        self.generic_visit(node)


_LIBRARIES = ("torch", "triton", "numpy")


def _root(node: ast.AST) -> str:
    """`torch` of torch.nn.functional.relu; "" if it doesn't begin with a name."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
