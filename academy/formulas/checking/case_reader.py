"""Case files read from their syntax tree: which calls of which modules are compared with which tags.

Nothing is imported, so that the site can be built where triton is missing, and every mistake is a problem at its place.
The format is described in `academy.formulas.cases`.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from academy import syntax
from academy.formulas import cases
from academy.formulas.cases import COMPANIONS, Call, Comparison, Target
from academy.formulas.reading.page import Page
from academy.problems import Problem

DTYPES = ("float32", "float16", "bfloat16")
#: What a function of a case file may ask for beside symbols and dims.
TOOLS = ("module", "rows", "at_end")
_KEYWORDS = inspect.signature(cases.case).parameters


def read(path: Path, shown: Path, page: Page, exists: Callable[[str], bool]) -> tuple[list[Comparison], list[Problem]]:
    """The cases of a file, one for each of their modules, and what is wrong with the file. Nothing is imported.

    Args:
        shown: the path as messages show it.
        page: the derivation whose tags the file names.
        exists: whether there is a module of that name.
    """
    text = path.read_text("utf-8")
    broken = syntax.problem(text, str(shown))
    return ([], [broken]) if broken else _Reader(path, shown, text, page, exists).read()


class _WrongError(Exception):
    """A mistake at a node of the syntax tree."""


def wrong(node: ast.AST, message: str) -> NoReturn:
    raise _WrongError(node, message)


class _Reader:
    """Reads one case file."""

    def __init__(self, path: Path, shown: Path, text: str, page: Page, exists: Callable[[str], bool]):
        self.path, self.shown, self.text, self.page, self.exists = path, shown, text, page, exists
        self.tree, self.places = syntax.tree(text), syntax.Places(text)
        self.functions = {node.name: node for node in self.tree.body if isinstance(node, ast.FunctionDef)}
        self.constants = {
            node.targets[0].id: node.value
            for node in self.tree.body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        front = page.front
        self.symbols = {front.names[key] for key in (*front.given, *front.classes)}
        self.parameters = {*TOOLS, *self.symbols, *(front.names[dim] for dim in front.dims)}
        self.companions: dict[str, set[str]] = {}
        self.problems: list[Problem] = []

    def read(self) -> tuple[list[Comparison], list[Problem]]:
        found: list[Comparison] = []
        functions = [node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef) and _decorator(node)]
        functions.sort(key=lambda node: node.lineno)
        names = [node.name for node in functions]
        for statement in self.tree.body:
            self.attempt(self.check_statement, statement, names)
        for at, node in enumerate(functions):
            if node not in self.tree.body:
                self.problems.append(self.problem(node, "a case stands at the top level of its file"))
            elif node.name in names[:at]:
                self.problems.append(self.problem(node, f"there are two cases of the name {node.name}"))
            else:
                found += self.attempt(self.comparisons, node) or ()
        if not functions:
            self.problems.append(Problem.at(self.shown, self.text, 0, "holds no @case: nothing is compared"))
        return found, self.problems

    def attempt(self, action: Callable, *arguments) -> Any:
        try:
            return action(*arguments)
        except _WrongError as error:
            self.problems.append(self.problem(*error.args))

    def problem(self, node: ast.AST, message: str) -> Problem:
        return Problem.at(self.shown, self.text, self.places.span(node)[0], message)

    # ---------------------------------------------------------------- statements of the file
    def check_statement(self, node: ast.stmt, names: list[str]) -> None:
        """Imports, and functions that say something about a case."""
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            for name in found:
                if name != cases.__name__ and name.partition(".")[0] not in sys.stdlib_module_names:
                    wrong(node, f"import {name or 'this'} inside of the function that needs it")
        if not isinstance(node, ast.FunctionDef):
            return
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Attribute) and isinstance(decorator.value, ast.Name):
                name = decorator.value.id
                if name not in names:
                    wrong(decorator, f"there is no case {name}")
                if decorator.attr not in COMPANIONS:
                    wrong(decorator, f"a case has {', '.join(COMPANIONS)}, and no {decorator.attr}")
                self.check_parameters(node)
                self.companions.setdefault(name, set()).add(decorator.attr)

    def check_parameters(self, node: ast.FunctionDef) -> None:
        for extra in filter(None, (node.args.vararg, node.args.kwarg)):
            wrong(extra, "a parameter is a symbol's name: write each")
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            if argument.arg not in self.parameters:
                known = ", ".join(sorted(self.parameters))
                wrong(argument, f"the page gives no symbol {argument.arg!r}; there are {known}")

    # ---------------------------------------------------------------- one case
    def comparisons(self, node: ast.FunctionDef) -> list[Comparison]:
        """The case for each of its modules."""
        keywords = self.keywords(node, _decorator(node))
        said = self.said(node, keywords)
        values = {name: self.literal(value) for name, value in keywords.items() if name not in COMPANIONS}

        def each(name: str, check: Callable[[ast.expr, Any], Any]) -> tuple:
            value = values.get(name, ())
            return tuple(check(keywords[name], part) for part in (value if isinstance(value, tuple) else (value,)))

        def pairs(name: str, key: Callable, value: Callable) -> dict:
            at = keywords.get(name)
            return {key(at, k): value(at, v) for k, v in self.mapping(at, values.get(name, {})).items()}

        returns = each("returns", lambda at, text: None if text is None else self.target(at, text))
        gradients = pairs("gradients", self.symbol, self.target)
        forward_only = bool(values.get("forward_only"))
        if not any(returns) and not gradients:
            wrong(keywords["returns"], "compares nothing: no result and no gradient has a tag")
        if forward_only and gradients:
            wrong(keywords["forward_only"], "a call that is forward only has no `gradients`")
        self.check_parameters(node)
        if "module" not in {argument.arg for argument in node.args.args}:
            wrong(node, "a case takes `module`, the module whose functions it calls")
        calls = tuple(self.calls(node))
        if not calls:
            wrong(node, f"{node.name} calls no function of `module`")
        described: dict[str, Any] = dict(
            returns=returns,
            gradients=gradients,
            rows=each("rows", self.symbol),
            stable=pairs("stable", self.tag, self.tag),
            sizes={dim: self.size(keywords["sizes"], dim, n) for dim, n in values.get("sizes", {}).items()},
            dtypes=each("dtypes", self.dtype) or _KEYWORDS["dtypes"].default,
            forward_only=forward_only,
            explicit=self.returns_gradients(node, gradients, said, forward_only),
        )
        modules = each("modules", self.module)
        if not modules:
            wrong(keywords["modules"], "names no module")
        place = self.problem(node, "")
        return [Comparison(self.page, self.path, place, node.name, name, calls, **described) for name in modules]

    def keywords(self, node: ast.FunctionDef, decorator: ast.expr | None) -> dict[str, ast.expr]:
        if not isinstance(decorator, ast.Call) or decorator.args:
            wrong(decorator or node, "write @case(modules=…, returns=…), with keywords only")
        for keyword in decorator.keywords:
            if keyword.arg not in _KEYWORDS:
                wrong(keyword, f"case has no keyword {keyword.arg or '**'}; it has {', '.join(_KEYWORDS)}")
        keywords = {keyword.arg: keyword.value for keyword in decorator.keywords if keyword.arg}
        for name in ("modules", "returns"):
            if name not in keywords:
                wrong(decorator, f"the case {node.name} needs the keyword {name}")
        return keywords

    def said(self, node: ast.FunctionDef, keywords: dict[str, ast.expr]) -> set[str]:
        """What is said by functions of the file. Checks the keywords that may also be numbers or a name."""
        said = set(self.companions.get(node.name, ()))
        for name in COMPANIONS:
            at = keywords.get(name)
            if at is None:
                continue
            if name in said:
                wrong(at, f"{name} is said twice: here, and by a decorated function")
            if isinstance(at, ast.Name) and at.id in self.functions:
                self.check_parameters(self.functions[at.id])
                said.add(name)
                continue
            value = self.literal(at)
            if name == "values":
                for key, number in self.mapping(at, value, " of numbers, or a function of this file").items():
                    self.symbol(at, key)
                    self.number(at, number, "a number; for tensors, `values` is a function of this file")
            elif name == "upstream":
                self.number(at, value, "a number, or a function of this file")
            elif not str(value).isidentifier():
                wrong(at, "`pytorch` is a function of this file, or the name of one of the module")
        return said

    def returns_gradients(self, node: ast.FunctionDef, gradients: dict, said: set[str], forward_only: bool) -> bool:
        """Whether the case returns its gradients."""
        mapping = _returned_gradients(node)
        if mapping is None:
            return False
        if forward_only:
            wrong(mapping, "a call that is forward only returns no gradients")
        if "pytorch" not in said:
            wrong(mapping, f"who returns gradients also says what PyTorch computes: @{node.name}.pytorch")
        returned = {self.symbol(key, self.literal(key)): key for key in mapping.keys if key is not None}
        for name, key in returned.items():
            if name not in gradients:
                wrong(key, f"a gradient of {name}, and `gradients` names no tag for it")
        for name in gradients:
            if name not in returned and None not in mapping.keys:
                wrong(mapping, f"no gradient of {name}, for which `gradients` names a tag")
        return True

    def calls(self, node: ast.FunctionDef, own: bool = True, seen: tuple[str, ...] = ()) -> Iterator[Call]:
        """Calls of the module's functions, in the order of the text; then those of helpers that get the module."""
        inside = [inner for inner in ast.walk(node) if isinstance(inner, ast.Call)]
        inside.sort(
            key=lambda call: (call.lineno, call.col_offset, -(call.end_lineno or 0), -(call.end_col_offset or 0))
        )
        direct = [(c, c.func.attr) for c in inside if isinstance(c.func, ast.Attribute) and _is(c.func.value, "module")]
        nested = {id(part) for call, _ in direct for part in ast.walk(call) if part is not call}
        for call, name in direct:
            unstarred = [argument for argument in call.args if not isinstance(argument, ast.Starred)]
            text = re.sub(r"\bmodule(\.|, )", "", ast.unparse(call))
            keywords = tuple(keyword.arg for keyword in call.keywords if keyword.arg)
            yield Call(name, len(unstarred), keywords, text, own and id(call) not in nested)
        for name in dict.fromkeys(call.func.id for call in inside if isinstance(call.func, ast.Name)):
            helper = self.functions.get(name)
            if helper and name not in seen and "module" in {argument.arg for argument in helper.args.args}:
                yield from self.calls(helper, own and not direct, (*seen, name))

    # ---------------------------------------------------------------- literals
    def literal(self, node: ast.expr) -> Any:
        """The value of a literal, of a name at the top of the file that stands for one, or of parts put together."""
        if isinstance(node, ast.Name):
            if node.id not in self.constants:
                wrong(node, f"{node.id} is no literal at the top of this file")
            return self.literal(self.constants[node.id])
        if isinstance(node, (ast.Tuple, ast.List)):
            parts = [self.literal(e.value) if isinstance(e, ast.Starred) else (self.literal(e),) for e in node.elts]
            return tuple(value for part in parts for value in part)
        if isinstance(node, ast.Dict):
            found: dict = {}
            for key, value in zip(node.keys, node.values):
                found |= self.literal(value) if key is None else {self.literal(key): self.literal(value)}
            return found
        try:
            return ast.literal_eval(node)
        except ValueError:
            wrong(node, f"{ast.unparse(node)} is no literal: this is read without running the file")

    def mapping(self, at: ast.expr | None, value: Any, what: str = "") -> dict:
        return value if isinstance(value, dict) else wrong(at or self.tree, f"must be a mapping{what}, got {value!r}")

    def number(self, at: ast.expr, value: Any, wanted: str) -> None:
        if not isinstance(value, (int, float)):
            wrong(at, f"must be {wanted}, got {value!r}")

    def module(self, at: ast.expr, name: Any) -> str:
        if not isinstance(name, str) or not self.exists(name):
            wrong(at, f"there is no module {name!r} under {syntax.KERNELS}")
        return name

    def symbol(self, at: ast.expr, name: Any) -> str:
        if name not in self.symbols:
            wrong(at, f"the page gives no symbol {name!r}; it gives {', '.join(sorted(self.symbols))}")
        return name

    def tag(self, at: ast.expr, tag: Any) -> str:
        if tag not in self.page.tags():
            wrong(at, f"{self.page.path} has no tag {tag!r}; it has {', '.join(self.page.tags()) or 'none'}")
        return tag

    def target(self, at: ast.expr, text: Any) -> Target:
        found = re.fullmatch(r"\s*([\w-]+)\s*(?:\((.*)\))?\s*", str(text), re.S)
        if not found:
            wrong(at, f"{text!r} is no tag")
        replaced = []
        for part in re.split(r",(?![^(]*\))", found.group(2)) if found.group(2) else ():
            name, equals, other = part.partition("=")
            if not equals:
                wrong(at, f"{text!r}: write TAG(symbol = TAG)")
            if name.strip() not in self.page.front.names.values():
                wrong(at, f"{text!r}: the page has no symbol {name.strip()!r}")
            replaced.append((name.strip(), self.target(at, other)))
        return Target(self.tag(at, found.group(1)), tuple(replaced))

    def size(self, at: ast.expr, dim: Any, length: Any) -> int | tuple[int, ...]:
        lengths = length if isinstance(length, tuple) and dim == "rows" else (length,)
        whole = all(isinstance(each, int) and each > 0 for each in lengths)
        if dim not in (*self.page.front.dims, "rows") or not whole:
            wrong(at, f"needs a positive length for a dim or for `rows`, got {dim}: {length}")
        return length

    def dtype(self, at: ast.expr, name: Any) -> str:
        if name not in DTYPES:
            wrong(at, f"{name!r} is not among {', '.join(DTYPES)}")
        return name


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _decorator(node: ast.FunctionDef) -> ast.expr | None:
    """The decorator that makes a function a case."""
    found = (each for each in node.decorator_list if _is(each.func if isinstance(each, ast.Call) else each, "case"))
    return next(found, None)


def _returned_gradients(node: ast.FunctionDef) -> ast.Dict | None:
    """The mapping in `return outputs, {symbol: gradient}`."""
    for statement in syntax.statements(node):
        value = statement.value if isinstance(statement, ast.Return) else None
        if isinstance(value, ast.Tuple) and len(value.elts) == 2 and isinstance(value.elts[1], ast.Dict):
            return value.elts[1]
    return None
