"""Case files: which calls of which modules are compared with which tags. The format: `academy.formulas.cases`.

What the decorator of a case says is taken from the imported file, the calls from the syntax tree of its function. No
kernel is imported, so that the site can be built where triton is missing, and every mistake is a problem at its place.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from academy.book import layout, syntax
from academy.book.problems import Problem
from academy.formulas import cases
from academy.formulas.cases import KEYWORDS, Call, Case, Comparison, Target
from academy.formulas.reading.page import Page
from academy.judge import public

DTYPES = ("float32", "float16", "bfloat16")
#: What a file may import at its top, beside `case` and `Public`: it is read where triton is missing.
_FORMS = (cases.__name__, public.__name__)
_IMPORTED = sys.stdlib_module_names | {"torch", layout.OPERATIONS}
#: What a function of a case file may ask for beside symbols and dims.
TOOLS = ("module", "rows", "at_end")


def read(path: Path, shown: Path, page: Page, exists: Callable[[str], bool]) -> tuple[list[Comparison], list[Problem]]:
    """The cases of a file, one for each of their modules, and what is wrong with the file. No kernel is imported.

    Args:
        shown: the path as messages show it.
        page: the derivation whose tags the file names.
        exists: whether there is a module of that name.
    """
    text = path.read_text("utf-8")
    broken = syntax.problem(text, str(shown))
    return ([], [broken]) if broken else _Reader(path, shown, text, page, exists).read()


class _Reader:
    """Reads one case file."""

    def __init__(self, path: Path, shown: Path, text: str, page: Page, exists: Callable[[str], bool]):
        self.path, self.shown, self.text, self.page, self.exists = path, shown, text, page, exists
        self.places = syntax.Places(text)
        self.functions = [node for node in ast.walk(syntax.tree(text)) if isinstance(node, ast.FunctionDef)]
        front = page.front
        self.symbols = sorted(front.names[key] for key in (*front.given, *front.classes))
        self.parameters = [*TOOLS, *self.symbols, *(front.names[dim] for dim in front.dims)]
        self.problems: list[Problem] = []

    def read(self) -> tuple[list[Comparison], list[Problem]]:
        self.before_import()
        loaded = {} if self.problems else self.attempt(None, cases.load, self.path) or {}
        found = [self.comparisons(name, case) for name, case in loaded.items()]
        return [comparison for comparisons in found for comparison in comparisons], self.problems

    def problem(self, node: ast.AST | None, message: str) -> Problem:
        return Problem.at(self.shown, self.text, self.places.span(node)[0] if node else 0, message)

    def attempt(self, node: ast.AST | None, action: Callable, *arguments: Any) -> Any:
        """The result, or None and a problem at the node (without one: at the line of the file that raised)."""
        try:
            return action(*arguments)
        except Exception as error:  # any mistake of who wrote the file
            message = str(error) if isinstance(error, _WrongError) else f"{type(error).__name__}: {error}"
            problem, frames = self.problem(node, message), traceback.extract_tb(error.__traceback__)
            lines = [frame.lineno or 1 for frame in frames if frame.filename == str(self.path)]
            if node is None and lines:
                problem = Problem.at(self.shown, self.text, self.places.starts[lines[-1] - 1], message)
            self.problems.append(problem)

    def before_import(self) -> None:
        """What is wrong with the file before it is imported."""
        body = syntax.tree(self.text).body
        for node in body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or "this"] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                if name not in _FORMS and name.partition(".")[0] not in _IMPORTED:
                    self.problems.append(self.problem(node, f"import {name} inside of the function that needs it"))
        named = [node for node in self.functions if _decorator(node)]
        for node in named:
            if node not in body or [other.name for other in named].count(node.name) > 1:
                message = f"the case {node.name} stands at the top level, under a name of its own"
                self.problems.append(self.problem(node, message))
        if not named:
            self.problems.append(self.problem(None, "holds no @case: nothing is compared"))

    # ---------------------------------------------------------------- one case
    def comparisons(self, name: str, case: Case) -> list[Comparison]:
        """The case for each of its modules."""
        own = case.function.__name__  # another name is a case once `again`
        node = next(node for node in self.functions if node.name == own and _decorator(node))
        decorator = _decorator(node)
        places = {keyword.arg: keyword.value for keyword in getattr(decorator, "keywords", ())}
        before = len(self.problems)
        read = {
            keyword: self.attempt(places.get(keyword, decorator), rule, case.said[keyword])
            for keyword, rule in self.rules().items()
        }
        for function in (case.function, *filter(callable, case.said.values())):
            self.attempt(decorator, self.check_parameters, function)
        self.attempt(decorator, _check_keywords, name, case)
        calls = tuple(self.calls(node))
        if len(self.problems) == before:
            self.attempt(node, _check_case, name, case, calls, read)
        if len(self.problems) > before:
            return []
        place, modules = self.problem(node, ""), read.pop("modules")
        said: dict[str, Any] = dict(read, forward_only=case.said["forward_only"], explicit=_returns_gradients(node))
        return [Comparison(self.page, self.path, place, name, module, calls, **said) for module in modules]

    def rules(self) -> dict[str, Callable[[Any], Any]]:
        """How what is said by each keyword is read."""
        return dict(
            modules=lambda names: tuple(map(self.module, _tuple(names))),
            returns=lambda tags: tuple(tag and self.target(tag) for tag in _tuple(tags)),
            gradients=lambda tags: {self.symbol(key): self.target(tag) for key, tag in tags.items()},
            rows=lambda names: tuple(map(self.symbol, _tuple(names))),
            stable=lambda tags: {self.tag(one): self.tag(other) for one, other in tags.items()},
            sizes=lambda sizes: {dim: self.size(dim, length) for dim, length in sizes.items()},
            dtypes=lambda names: tuple(_among(name, DTYPES, "{} is not among") for name in _tuple(names)),
        )

    def calls(self, node: ast.FunctionDef, own: bool = True, seen: tuple[str, ...] = ()) -> Iterator[Call]:
        """Calls of the module's functions, in the order of the text; then those of helpers that get the module."""
        inside = [inner for inner in ast.walk(node) if isinstance(inner, ast.Call)]
        inside.sort(key=lambda call: (*self.places.span(call)[:1], -self.places.span(call)[1]))
        direct = [call for call in inside if re.fullmatch(r"module\.\w+", ast.unparse(call.func))]
        nested = {id(part) for call in direct for part in ast.walk(call) if part is not call}
        for call in direct:
            unstarred = [argument for argument in call.args if not isinstance(argument, ast.Starred)]
            text = re.sub(r"\bmodule(\.|, )", "", ast.unparse(call))
            keywords = tuple(keyword.arg for keyword in call.keywords if keyword.arg)
            name = ast.unparse(call.func).removeprefix("module.")
            yield Call(name, len(unstarred), keywords, text, own and id(call) not in nested)
        for name in dict.fromkeys(ast.unparse(call.func) for call in inside):
            helper = next((each for each in self.functions if each.name == name), None)
            if helper and name not in seen and "module" in {argument.arg for argument in helper.args.args}:
                yield from self.calls(helper, own and not direct, (*seen, name))

    # ---------------------------------------------------------------- rules
    def check_parameters(self, function: Callable) -> None:
        for name in inspect.signature(function).parameters:
            _among(name, self.parameters, "the page gives no symbol {}; there are")

    def module(self, name: Any) -> str:
        return name if self.exists(str(name)) else _wrong(f"there is no module {name!r} under {layout.KERNELS}")

    def symbol(self, name: Any) -> str:
        return _among(name, self.symbols, "the page gives no symbol {}; it gives")

    def tag(self, tag: Any) -> str:
        return _among(tag, self.page.tags(), f"{self.page.path} has no tag {{}}; it has")

    def target(self, text: Any) -> Target:
        found = re.fullmatch(r"\s*([\w-]+)\s*(?:\((.*)\))?\s*", str(text), re.S) or _wrong(f"{text!r} is no tag")
        replaced = []
        for part in re.split(r",(?![^(]*\))", found.group(2)) if found.group(2) else ():
            name, equals, other = (word.strip() for word in part.partition("="))
            if not equals or name not in self.page.names.values():
                _wrong(f"{text!r}: write TAG(symbol = TAG), with a symbol of the page")
            replaced.append((name, self.target(other)))
        return Target(self.tag(found.group(1)), tuple(replaced))

    def size(self, dim: Any, length: Any) -> int | tuple[int, ...]:
        lengths = length if isinstance(length, tuple) and dim == "rows" else (length,)
        least = 1 if dim == "rows" else 0  # a sum over nothing is zero; a formula of no rows says nothing
        whole = all(isinstance(each, int) and each >= least for each in lengths)
        if dim not in (*self.page.front.dims, "rows") or not whole:
            _wrong(f"needs a length for a dim, or a positive one for `rows`, got {dim}: {length}")
        return length


class _WrongError(Exception):
    """A mistake for which there are words."""


def _wrong(message: str) -> Any:
    raise _WrongError(message)


def _among(name: Any, known: Iterable[str], message: str) -> str:
    return name if name in known else _wrong(f"{message.format(repr(name))} {', '.join(known) or 'none'}")


def _tuple(value: Any) -> tuple:
    return value if isinstance(value, tuple) else (value,)


def _check_keywords(name: str, case: Case) -> None:
    for keyword in case.given:
        if keyword not in KEYWORDS:
            _wrong(f"case has no keyword {keyword}; it has {', '.join(KEYWORDS)}")
    for keyword in ("modules", "returns"):
        if keyword not in case.given:
            _wrong(f"the case {name} needs the keyword {keyword}")


def _check_case(name: str, case: Case, calls: tuple[Call, ...], read: dict[str, Any]) -> None:
    if not any(read["returns"]) and not read["gradients"]:
        _wrong("compares nothing: no result and no gradient has a tag")
    if not read["modules"]:
        _wrong("names no module")
    if case.said["forward_only"] and read["gradients"]:
        _wrong("a call that is forward only has no `gradients`")
    if not calls:
        _wrong(f"{name} calls no function of `module`")


def _decorator(node: ast.FunctionDef) -> ast.expr | None:
    """The decorator that makes a function a case."""
    return next((each for each in node.decorator_list if re.match(r"case\b", ast.unparse(each))), None)


def _returns_gradients(node: ast.FunctionDef) -> bool:
    """Whether it says `return outputs, {symbol: gradient}`."""
    values = [statement.value for statement in syntax.statements(node) if isinstance(statement, ast.Return)]
    return any(isinstance(v, ast.Tuple) and len(v.elts) == 2 and isinstance(v.elts[1], ast.Dict) for v in values)
