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

from academy import syntax
from academy.formulas import cases
from academy.formulas.cases import KEYWORDS, Call, Case, Comparison, Target
from academy.formulas.reading.page import Page
from academy.problems import Problem

DTYPES = ("float32", "float16", "bfloat16")
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

    def read(self) -> tuple[list[Comparison], list[Problem]]:
        problems = list(self.problems())
        if problems:
            return [], problems
        try:
            loaded = cases.load(self.path)
        except Exception as error:  # any mistake at the top level of the file
            here = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == self.where]
            return [], [self.problem_at(self.places.starts[(here or [1])[-1] - 1], f"{type(error).__name__}: {error}")]
        found: list[Comparison] = []
        for name, case in loaded.items():
            try:
                found += self.comparisons(name, case)
            except _WrongError as error:
                problems.append(self.problem(*error.args))
        return found, problems

    @property
    def where(self) -> str:
        return str(self.path)

    def problem_at(self, position: int, message: str) -> Problem:
        return Problem.at(self.shown, self.text, position, message)

    def problem(self, node: ast.AST, message: str) -> Problem:
        return self.problem_at(self.places.span(node)[0], message)

    def problems(self) -> Iterator[Problem]:
        """What is wrong with the file before it is imported."""
        body = syntax.tree(self.text).body
        for node in body:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
                for name in names:
                    if name != cases.__name__ and name.partition(".")[0] not in sys.stdlib_module_names:
                        yield self.problem(node, f"import {name or 'this'} inside of the function that needs it")
        named = [node for node in self.functions if _decorator(node)]
        for node in named:
            if node not in body or [other.name for other in named].count(node.name) > 1:
                yield self.problem(node, f"the case {node.name} stands at the top level, under a name of its own")
        if not named:
            yield self.problem_at(0, "holds no @case: nothing is compared")

    # ---------------------------------------------------------------- one case
    def comparisons(self, name: str, case: Case) -> list[Comparison]:
        """The case for each of its modules."""
        node = next(node for node in self.functions if node.name == name and _decorator(node))
        decorator = _decorator(node)
        assert isinstance(decorator, ast.Call)
        places = {keyword.arg: keyword.value for keyword in decorator.keywords}

        def checked(keyword: str, rule: Callable[..., Any], *parts: Any) -> Any:
            try:
                return rule(*parts)
            except ValueError as error:
                raise _WrongError(places.get(keyword, decorator), str(error)) from None

        def each(keyword: str, rule: Callable[[Any], Any]) -> tuple:
            value = case.said[keyword]
            return tuple(checked(keyword, rule, part) for part in (value if isinstance(value, tuple) else (value,)))

        def pairs(keyword: str, rule: Callable[[Any, Any], tuple]) -> dict:
            items = checked(keyword, _mapping, case.said[keyword])
            return dict(checked(keyword, rule, *item) for item in items)

        for keyword in (*case.given, "modules", "returns"):
            if keyword not in KEYWORDS:
                checked(keyword, _fail, f"case has no keyword {keyword}; it has {', '.join(KEYWORDS)}")
            if keyword not in case.given:
                checked(keyword, _fail, f"the case {name} needs the keyword {keyword}")
        for keyword in ("pytorch", "upstream", "values"):
            if callable(case.said[keyword]):
                checked(keyword, self.known_parameters, case.said[keyword])
            elif keyword == "values":
                pairs(keyword, lambda key, value: (self.symbol(key), _number(value)))
            elif case.said[keyword] is not None:
                checked(keyword, _number if keyword == "upstream" else _name_of_function, case.said[keyword])
        returns = each("returns", lambda text: None if text is None else self.target(text))
        gradients = pairs("gradients", lambda key, text: (self.symbol(key), self.target(text)))
        calls, explicit = tuple(self.calls(node)), _returns_gradients(node)
        checked("", self.known_parameters, case.function)
        for wrong, what in (
            (not any(returns) and not gradients, "compares nothing: no result and no gradient has a tag"),
            (case.said["forward_only"] and (gradients or explicit), "a call that is forward only has no gradients"),
            (explicit and case.said["pytorch"] is None, f"who returns gradients also says @{name}.pytorch"),
            (not calls, f"{name} calls no function of `module`"),
        ):
            if wrong:
                raise _WrongError(node, what)
        described: dict[str, Any] = dict(
            returns=returns,
            gradients=gradients,
            rows=each("rows", self.symbol),
            stable=pairs("stable", lambda one, other: (self.tag(one), self.tag(other))),
            sizes=pairs("sizes", self.size),
            dtypes=each("dtypes", _dtype),
            forward_only=case.said["forward_only"],
            explicit=explicit,
        )
        place = self.problem(node, "")
        modules = each("modules", self.module)
        return [Comparison(self.page, self.path, place, name, module, calls, **described) for module in modules]

    def calls(self, node: ast.FunctionDef, own: bool = True, seen: tuple[str, ...] = ()) -> Iterator[Call]:
        """Calls of the module's functions, in the order of the text; then those of helpers that get the module."""
        inside = [inner for inner in ast.walk(node) if isinstance(inner, ast.Call)]
        inside.sort(key=lambda call: (call.lineno, call.col_offset, -(call.end_lineno or 0), -(call.end_col_offset or 0)))
        direct = [(call, call.func.attr) for call in inside if _is_of_module(call.func)]
        nested = {id(part) for call, _ in direct for part in ast.walk(call) if part is not call}
        for call, name in direct:
            unstarred = [argument for argument in call.args if not isinstance(argument, ast.Starred)]
            text = re.sub(r"\bmodule(\.|, )", "", ast.unparse(call))
            keywords = tuple(keyword.arg for keyword in call.keywords if keyword.arg)
            yield Call(name, len(unstarred), keywords, text, own and id(call) not in nested)
        for name in dict.fromkeys(call.func.id for call in inside if isinstance(call.func, ast.Name)):
            helper = next((each for each in self.functions if each.name == name), None)
            if helper and name not in seen and "module" in {argument.arg for argument in helper.args.args}:
                yield from self.calls(helper, own and not direct, (*seen, name))

    # ---------------------------------------------------------------- rules: each raises ValueError
    def known_parameters(self, function: Callable) -> None:
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise ValueError("a parameter is a symbol's name: write each")
            _among(name, self.parameters, "the page gives no symbol {}; there are")

    def module(self, name: Any) -> str:
        return name if self.exists(str(name)) else _fail(f"there is no module {name!r} under {syntax.KERNELS}")

    def symbol(self, name: Any) -> str:
        return _among(name, self.symbols, "the page gives no symbol {}; it gives")

    def tag(self, tag: Any) -> str:
        return _among(tag, self.page.tags(), f"{self.page.path} has no tag {{}}; it has")

    def target(self, text: Any) -> Target:
        found = re.fullmatch(r"\s*([\w-]+)\s*(?:\((.*)\))?\s*", str(text), re.S)
        if not found:
            raise ValueError(f"{text!r} is no tag")
        replaced = []
        for part in re.split(r",(?![^(]*\))", found.group(2)) if found.group(2) else ():
            name, equals, other = part.partition("=")
            if not equals:
                raise ValueError(f"{text!r}: write TAG(symbol = TAG)")
            _among(name.strip(), self.page.names.values(), f"{text!r}: the page has no symbol {{}}; it has")
            replaced.append((name.strip(), self.target(other)))
        return Target(self.tag(found.group(1)), tuple(replaced))

    def size(self, dim: Any, length: Any) -> tuple[str, int | tuple[int, ...]]:
        lengths = length if isinstance(length, tuple) and dim == "rows" else (length,)
        whole = all(isinstance(each, int) and each > 0 for each in lengths)
        if dim not in (*self.page.front.dims, "rows") or not whole:
            raise ValueError(f"needs a positive length for a dim or for `rows`, got {dim}: {length}")
        return dim, length


class _WrongError(Exception):
    """A mistake at a node of the syntax tree."""


def _fail(message: str) -> Any:
    raise ValueError(message)


def _among(name: Any, known: Iterable[str], message: str) -> str:
    return name if name in known else _fail(f"{message.format(repr(name))} {', '.join(known) or 'none'}")


def _dtype(name: Any) -> str:
    return _among(name, DTYPES, "{} is not among")


def _number(value: Any) -> float:
    return value if isinstance(value, (int, float)) else _fail(f"must be a number or a function, got {value!r}")


def _mapping(value: Any) -> Iterable[tuple[Any, Any]]:
    return value.items() if isinstance(value, dict) else _fail(f"must be a mapping, got {value!r}")


def _name_of_function(value: Any) -> None:
    if not str(value).isidentifier():
        raise ValueError("`pytorch` is a function of this file, or the name of one of the module")


def _is_of_module(function: ast.expr) -> bool:
    return isinstance(function, ast.Attribute) and ast.unparse(function.value) == "module"


def _decorator(node: ast.FunctionDef) -> ast.expr | None:
    """The decorator that makes a function a case."""
    return next((each for each in node.decorator_list if re.match(r"case\b", ast.unparse(each))), None)


def _returns_gradients(node: ast.FunctionDef) -> bool:
    """Whether it says `return outputs, {symbol: gradient}`."""
    values = [statement.value for statement in syntax.statements(node) if isinstance(statement, ast.Return)]
    return any(isinstance(v, ast.Tuple) and len(v.elts) == 2 and isinstance(v.elts[1], ast.Dict) for v in values)
