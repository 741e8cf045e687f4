"""The syntax tree of a source text, parsed once for all parts of the project that ask."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import io
import itertools
import sys
import tokenize
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from academy.book import layout
from academy.book.problems import Problem

#: The nodes of functions and classes.
DEFINITION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@lru_cache(maxsize=512)  # a build of the site asks for about 450 texts, most of them twice
def tree(text: str) -> ast.Module:
    """The parsed text, which may begin with a byte order mark. Callers share it and must not change it. Raises
    SyntaxError."""
    return ast.parse(text.removeprefix("\ufeff"))


def problem(text: str, path: str) -> Problem | None:
    """Where and why the text of a file isn't valid Python; None if it is."""
    try:
        tree(text)
    except SyntaxError as error:
        line = error.lineno or 1
        return Problem(path, line, error.offset or 1, error.msg, text.split("\n")[line - 1])
    return None


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """All statements inside of `node`, those of nested functions and branches too, in the order of the text."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        if isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            yield from statements(child)


def walk(node: ast.AST) -> list[ast.AST]:
    """As `ast.walk`, in half the time."""
    found = [node]
    for each in found:  # grows while it is walked
        for value in map(each.__dict__.get, each._fields):
            if isinstance(value, ast.AST):
                found.append(value)
            elif isinstance(value, list):
                found += [item for item in value if isinstance(item, ast.AST)]
    return found


@lru_cache(maxsize=8)  # who asks for several things of a text asks for one after another
def nodes(text: str) -> list[ast.AST]:
    """`walk` of a whole text. Not to be changed, like `tree`."""
    return walk(tree(text))


def first_line(definition: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> int:
    """The line where it begins, decorators included."""
    return min([definition.lineno, *(decorator.lineno for decorator in definition.decorator_list)])


def line_of(text: str, name: str) -> int:
    """Where a module defines a function or class, or assigns a variable; 1 if it does neither."""
    for node in tree(text).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, DEFINITION) and node.name == name:
            return first_line(node)
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return node.lineno
    return 1


def last_line(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def is_jitted(function: ast.FunctionDef) -> bool:
    """Whether it is decorated with `triton.jit`, among other decorators or not."""
    return any("jit" in ast.unparse(decorator) for decorator in function.decorator_list)


@lru_cache(maxsize=256)
def jitted_functions(text: str) -> tuple[ast.FunctionDef, ...]:
    """The jitted functions of a text, nested ones too, in the order of the text. Not to be changed, like `tree`."""
    functions = [node for node in statements(tree(text)) if isinstance(node, ast.FunctionDef)]
    return tuple(function for function in functions if is_jitted(function))


@lru_cache(maxsize=256)
def loops(text: str) -> tuple[ast.For, ...]:
    """The `for` loops of a text."""
    return tuple(node for node in statements(tree(text)) if isinstance(node, ast.For))


def unguarded_backwards(text: str) -> list[ast.FunctionDef]:
    """The `backward` of each `autograd.Function` that isn't decorated with `autograd.once_differentiable`.

    PyTorch's decorator of that name won't do: it lets some gradient penalties through (see `academy.runtime.autograd`).
    """
    classes = [node for node in statements(tree(text)) if isinstance(node, ast.ClassDef)]
    functions = [
        method
        for node in classes
        if any(ast.unparse(base).split(".")[-1] == "Function" for base in node.bases)
        for method in node.body
        if isinstance(method, ast.FunctionDef) and method.name == "backward"
    ]
    decorators = {method: [ast.unparse(decorator) for decorator in method.decorator_list] for method in functions}
    return [method for method in functions if "autograd.once_differentiable" not in decorators[method]]


#: What modules whose imports are followed begin with.
_FOLLOWED = (f"{layout.KERNELS}.", f"{layout.OPERATIONS}.")


def built_on(files: Iterable[Path], root: Path) -> list[Path]:
    """These files and those of kernels and operations under `root` that they import, directly or not."""
    found = list(dict.fromkeys(files))
    for file in found:  # grows while it is walked
        found += [other for other in imported_kernels(file.read_text("utf-8"), root) if other not in found]
    return found


def imported_kernels(text: str, root: Path) -> list[Path]:
    """The files of kernels (and of operations) under `root` that a text imports, such as gemm for gemm_splitK, in the
    order of the text."""
    names = _imports(text) if layout.KERNELS in text or layout.OPERATIONS in text else []
    return [file for name in names if (file := kernel_file(name, root))]


def kernel_file(name: str, root: Path) -> Path | None:
    """The file under `root` of a kernel's (or an operation's) whole dotted name, if it is one."""
    place = root / name.replace(".", "/")
    for file in (place.with_suffix(".py"), place / "__init__.py"):
        if name.startswith(_FOLLOWED) and file.is_file() and layout.is_module(file):
            return file
    return None


@lru_cache(maxsize=256)
def _imports(text: str) -> list[str]:
    """Dotted names of modules of kernels and operations, and of what is taken from them, which may be modules too."""
    names: list[str] = []
    for node in statements(tree(text)):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return [name for name in dict.fromkeys(names) if name.startswith(_FOLLOWED)]


def imported_names(text: str) -> set[str]:
    """What a module's own imports at its top bind."""
    imports = [node for node in tree(text).body if isinstance(node, (ast.Import, ast.ImportFrom))]
    return {(alias.asname or alias.name).partition(".")[0] for node in imports for alias in node.names}


def tokens(text: str) -> Iterator[tokenize.TokenInfo]:
    """The tokens of a text."""
    return tokenize.generate_tokens(io.StringIO(text).readline)


class Places:
    """Offsets in a text of what the syntax tree and the tokenizer name by line and column."""

    def __init__(self, text: str):
        self.lines = text.split("\n")
        self.starts = list(itertools.accumulate((len(line) + 1 for line in self.lines), initial=0))

    def offset(self, line: int, column: int) -> int:
        """The offset of a place in the tree, whose columns count UTF-8 bytes."""
        return self.starts[line - 1] + len(self.lines[line - 1].encode()[:column].decode())

    def span(self, node: Any) -> tuple[int, int]:
        return self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset)


@lru_cache(maxsize=256)
def docstrings(text: str) -> tuple[ast.Constant, ...]:
    """The docstrings of a module, its functions and classes."""
    module = tree(text)
    owners = [module, *(node for node in statements(module) if isinstance(node, DEFINITION))]
    values = [node.body[0].value for node in owners if node.body and isinstance(node.body[0], ast.Expr)]
    return tuple(value for value in values if isinstance(value, ast.Constant) and isinstance(value.value, str))


def bare(text: str) -> ast.Module:
    """The parsed text without its docstrings, for comparing code. The caller may change this tree."""
    found = ast.parse(text.removeprefix("\ufeff"))
    for node in [found, *statements(found)]:
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            value = body[0].value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                del body[0]
    return found


def import_path(path: Path, name: str = "") -> ModuleType:
    """Import a file by its path, even if it was imported before, under its own name or another one.

    Its text is compiled each time: kept bytecode is that of the same second and size, which an edit may share."""
    loader = SourceFileLoader(name or path.stem, str(path))
    spec = importlib.util.spec_from_file_location(loader.name, path, loader=loader)
    assert spec, f"{path} can't be imported"
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    exec(loader.source_to_code(path.read_bytes(), str(path)), vars(module))
    return module


def import_file(path: Path, root: Path) -> ModuleType:
    """Import a kernel file: as part of the project at `root` where it is one, else of its own package, or by itself.

    What somebody keeps beside the project's kernels, in the same clone, is none of them."""
    if path.is_relative_to(root / layout.KERNELS):
        return importlib.import_module(".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"))
    package = path.parent
    while (package / "__init__.py").exists():
        package = package.parent
    sys.path.insert(0, str(package))
    if package != path.parent:  # its relative imports have to work
        return importlib.import_module(".".join(path.relative_to(package).with_suffix("").parts))
    return import_path(path)


#: Endings of functions that are not public functions of a lesson.
_INNER = ("_forward", "_backward", "_reference", "_forward_", "_backward_")
_FIXED = ("EXAMPLE", "contract")


def public_functions(text: str) -> list[str]:
    """Functions that readers call: documented with what they raise, and no kernel, launcher or reference."""
    found = []
    for node in tree(text).body:
        if not isinstance(node, ast.FunctionDef) or node.name.startswith("_") or node.name in _FIXED:
            continue
        documented = "Raises:" in (ast.get_docstring(node) or "")
        plain = all(ast.unparse(decorator) in ("replayed", "seeded") for decorator in node.decorator_list)
        if documented and plain and not node.name.endswith(_INNER):
            found.append(node.name)
    return found
