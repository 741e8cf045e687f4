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

from academy import syntax
from academy.formulas import cases
from academy.formulas.cases import COMPANIONS, Call, Comparison, Target
from academy.formulas.page import Page
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
    if broken:
        return [], [broken]
    return _Reader(path, shown, text, page, exists).read()


class _Wrong(Exception):
    """A mistake at a node of the syntax tree."""

    def __init__(self, node: ast.AST, message: str):
        super().__init__(message)
        self.node, self.message = node, message


class _Reader:
    """Reads one case file."""

    def __init__(self, path: Path, shown: Path, text: str, page: Page, exists: Callable[[str], bool]):
        self.path, self.shown, self.lines, self.page, self.exists = path, shown, text.split("\n"), page, exists
        self.tree = syntax.tree(text)
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
        seen: set[str] = set()
        functions = [node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef) and _decorator(node)]
        names = {node.name for node in functions}
        for node in self.tree.body:
            self.attempt(lambda node=node: self.check_statement(node, names))
        for node in sorted(functions, key=lambda node: node.lineno):
            if node not in self.tree.body:
                self.problems.append(self.problem(node, "a case stands at the top level of its file"))
            elif node.name in seen:
                self.problems.append(self.problem(node, f"there are two cases of the name {node.name}"))
            else:
                found += self.attempt(lambda node=node: self.comparisons(node)) or ()
            seen.add(node.name)
        if not functions:
            self.problems.append(Problem(str(self.shown), 1, 1, "holds no @case: nothing is compared", self.lines[0]))
        return found, self.problems

    def attempt(self, action: Callable):
        try:
            return action()
        except _Wrong as wrong:
            self.problems.append(self.problem(wrong.node, wrong.message))

    def problem(self, node: ast.AST, message: str) -> Problem:
        source = self.lines[node.lineno - 1]
        column = len(source.encode()[: node.col_offset].decode()) + 1
        return Problem(str(self.shown), node.lineno, column, message, source)

    # ---------------------------------------------------------------- statements of the file
    def check_statement(self, node: ast.stmt, names: set[str]) -> None:
        """Imports, and functions that say something about a case."""
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            for name in found:
                if name != cases.__name__ and name.partition(".")[0] not in sys.stdlib_module_names:
                    raise _Wrong(node, f"import {name or 'this'} inside of the function that needs it")
        if isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Attribute) and isinstance(decorator.value, ast.Name):
                    self.add_companion(node, decorator, names)

    def add_companion(self, node: ast.FunctionDef, decorator: ast.Attribute, names: set[str]) -> None:
        name = decorator.value.id
        if name not in names:
            raise _Wrong(decorator, f"there is no case {name}")
        if decorator.attr not in COMPANIONS:
            raise _Wrong(decorator, f"a case has {', '.join(COMPANIONS)}, and no {decorator.attr}")
        self.check_parameters(node)
        self.companions.setdefault(name, set()).add(decorator.attr)

    def check_parameters(self, node: ast.FunctionDef) -> None:
        found = node.args
        for extra in filter(None, (found.vararg, found.kwarg)):
            raise _Wrong(extra, "a parameter is a symbol's name: write each")
        for argument in (*found.posonlyargs, *found.args, *found.kwonlyargs):
            if argument.arg not in self.parameters:
                known = ", ".join(sorted(self.parameters))
                raise _Wrong(argument, f"the page gives no symbol {argument.arg!r}; there are {known}")

    # ---------------------------------------------------------------- one case
    def comparisons(self, node: ast.FunctionDef) -> list[Comparison]:
        """The case for each of its modules.

        Raises:
            _Wrong: at the first mistake.
        """
        keywords = self.keywords(node, _decorator(node))
        returns = [self.optional_target(each) for each in self.elements(keywords["returns"])]
        gradients = {self.symbol(key): self.target(value) for key, value in self.pairs(keywords.get("gradients"))}
        forward_only = self.flag(keywords.get("forward_only"))
        if not any(returns) and not gradients:
            raise _Wrong(keywords["returns"], "compares nothing: no result and no gradient has a tag")
        if forward_only and gradients:
            raise _Wrong(keywords["forward_only"], "a call that is forward only has no `gradients`")
        said = self.said(node, keywords)
        self.check_parameters(node)
        if "module" not in {argument.arg for argument in node.args.args}:
            raise _Wrong(node, "a case takes `module`, the module whose functions it calls")
        calls = tuple(self.calls(node))
        if not calls:
            raise _Wrong(node, f"{node.name} calls no function of `module`")
        explicit = self.check_returned(node, gradients, said, forward_only)
        dtypes = tuple(self.dtype(each) for each in self.elements(keywords.get("dtypes")))
        described = dict(
            returns=tuple(returns),
            gradients=gradients,
            rows=tuple(self.symbol(each) for each in self.elements(keywords.get("rows"))),
            stable={self.tag(key): self.tag(value) for key, value in self.pairs(keywords.get("stable"))},
            sizes=dict(self.size(key, value) for key, value in self.pairs(keywords.get("sizes"))),
            dtypes=dtypes or _KEYWORDS["dtypes"].default,
            forward_only=forward_only,
            explicit=explicit,
        )
        modules = [self.module(each) for each in self.elements(keywords["modules"])]
        if not modules:
            raise _Wrong(keywords["modules"], "names no module")
        place = self.problem(node, "")
        return [Comparison(self.page, self.path, place, node.name, name, calls, **described) for name in modules]

    def keywords(self, node: ast.FunctionDef, decorator: ast.expr) -> dict[str, ast.expr]:
        if not isinstance(decorator, ast.Call) or decorator.args:
            raise _Wrong(decorator, "write @case(modules=…, returns=…), with keywords only")
        for keyword in decorator.keywords:
            if keyword.arg not in _KEYWORDS:
                raise _Wrong(keyword, f"case has no keyword {keyword.arg or '**'}; it has {', '.join(_KEYWORDS)}")
        keywords = {keyword.arg: keyword.value for keyword in decorator.keywords}
        for name in ("modules", "returns"):
            if name not in keywords:
                raise _Wrong(decorator, f"the case {node.name} needs the keyword {name}")
        return keywords

    def said(self, node: ast.FunctionDef, keywords: dict[str, ast.expr]) -> set[str]:
        """What is said by functions of the file. Checks the keywords that may also be numbers or a name."""
        said = set(self.companions.get(node.name, ()))
        for name in COMPANIONS:
            value = keywords.get(name)
            if value is None:
                continue
            if name in said:
                raise _Wrong(value, f"{name} is said twice: here, and by a decorated function")
            if isinstance(value, ast.Name) and value.id in self.functions:
                self.check_parameters(self.functions[value.id])
                said.add(name)
            elif name == "values":
                for key, number in self.pairs(value, "a mapping of numbers, or a function of this file"):
                    self.symbol(key)
                    self.number(number, "a number; for tensors, `values` is a function of this file")
            elif name == "upstream":
                self.number(value, "a number, or a function of this file")
            elif not str(self.constant(value) or "").isidentifier():
                raise _Wrong(value, "`pytorch` is a function of this file, or the name of one of the module")
        return said

    def check_returned(
        self, node: ast.FunctionDef, gradients: dict[str, Target], said: set[str], forward_only: bool
    ) -> bool:
        """Whether the case returns its gradients."""
        mapping = _returned_gradients(node)
        if mapping is None:
            return False
        if forward_only:
            raise _Wrong(mapping, "a call that is forward only returns no gradients")
        if "pytorch" not in said:
            raise _Wrong(mapping, f"who returns gradients also says what PyTorch computes: @{node.name}.pytorch")
        returned = [(key, self.symbol(key)) for key in mapping.keys if key is not None]
        for key, name in returned:
            if name not in gradients:
                raise _Wrong(key, f"a gradient of {name}, and `gradients` names no tag for it")
        for name in gradients:
            if name not in {name for _, name in returned} and None not in mapping.keys:
                raise _Wrong(mapping, f"no gradient of {name}, for which `gradients` names a tag")
        return True

    def calls(self, node: ast.FunctionDef, own: bool = True, seen: tuple[str, ...] = ()) -> Iterator[Call]:
        """Calls of the module's functions, in the order of the text; then those of helpers that get the module."""
        inside = [inner for inner in ast.walk(node) if isinstance(inner, ast.Call)]
        inside.sort(key=lambda call: (call.lineno, call.col_offset, -call.end_lineno, -call.end_col_offset))
        direct = [call for call in inside if _of_module(call.func)]
        nested = {id(part) for call in direct for part in ast.walk(call) if part is not call}
        for call in direct:
            unstarred = [argument for argument in call.args if not isinstance(argument, ast.Starred)]
            text = re.sub(r"\bmodule(\.|, )", "", ast.unparse(call))
            keywords = tuple(keyword.arg for keyword in call.keywords if keyword.arg)
            yield Call(call.func.attr, len(unstarred), keywords, text, own and id(call) not in nested)
        for name in dict.fromkeys(call.func.id for call in inside if isinstance(call.func, ast.Name)):
            helper = self.functions.get(name)
            if helper and name not in seen and "module" in {argument.arg for argument in helper.args.args}:
                yield from self.calls(helper, own and not direct, (*seen, name))

    # ---------------------------------------------------------------- literals
    def resolved(self, node: ast.expr) -> ast.expr:
        """What a name of the file stands for."""
        start = node
        while isinstance(node, ast.Name):
            if node.id not in self.constants:
                raise _Wrong(start, f"{node.id} is no literal at the top of this file")
            node = self.constants[node.id]
        return node

    def constant(self, node: ast.expr) -> object:
        found = self.resolved(node)
        if not isinstance(found, ast.Constant):
            raise _Wrong(node, f"{ast.unparse(node)} is no literal: this is read without running the file")
        return found.value

    def elements(self, node: ast.expr | None) -> list[ast.expr]:
        """The parts of a tuple, or the one thing that stands in its place."""
        if node is None:
            return []
        found = self.resolved(node)
        if not isinstance(found, (ast.Tuple, ast.List)):
            return [node]
        parts = [self.elements(each.value) if isinstance(each, ast.Starred) else [each] for each in found.elts]
        return [each for part in parts for each in part]

    def pairs(self, node: ast.expr | None, wanted: str = "a mapping") -> Iterator[tuple[ast.expr, ast.expr]]:
        if node is None:
            return
        found = self.resolved(node) if not (isinstance(node, ast.Name) and node.id in self.functions) else node
        if not isinstance(found, ast.Dict):
            raise _Wrong(node, f"must be {wanted}, got {ast.unparse(found)}")
        for key, value in zip(found.keys, found.values):
            if key is None:
                yield from self.pairs(value, wanted)
            else:
                yield key, value

    def number(self, node: ast.expr, wanted: str) -> None:
        found = self.resolved(node)
        found = found.operand if isinstance(found, ast.UnaryOp) else found
        if not isinstance(found, ast.Constant) or not isinstance(found.value, (int, float)):
            raise _Wrong(node, f"must be {wanted}, got {ast.unparse(node)}")

    def flag(self, node: ast.expr | None) -> bool:
        return bool(node is not None and self.constant(node))

    def module(self, node: ast.expr) -> str:
        name = self.constant(node)
        if not isinstance(name, str) or not self.exists(name):
            raise _Wrong(node, f"there is no module {name!r} under {syntax.KERNELS}")
        return name

    def symbol(self, node: ast.expr) -> str:
        name = self.constant(node)
        if name not in self.symbols:
            raise _Wrong(node, f"the page gives no symbol {name!r}; it gives {', '.join(sorted(self.symbols))}")
        return str(name)

    def tag(self, node: ast.expr) -> str:
        return self.known_tag(node, self.constant(node))

    def known_tag(self, node: ast.expr, tag: object) -> str:
        if tag not in self.page.tags():
            has = ", ".join(self.page.tags()) or "none"
            raise _Wrong(node, f"{self.page.path} has no tag {tag!r}; it has {has}")
        return str(tag)

    def optional_target(self, node: ast.expr) -> Target | None:
        return None if self.constant(node) is None else self.target(node)

    def target(self, node: ast.expr) -> Target:
        return self.parsed_target(node, self.constant(node))

    def parsed_target(self, node: ast.expr, text: object) -> Target:
        found = re.fullmatch(r"\s*([\w-]+)\s*(?:\((.*)\))?\s*", str(text), re.S)
        if not found:
            raise _Wrong(node, f"{text!r} is no tag")
        replaced = []
        for part in re.split(r",(?![^(]*\))", found.group(2)) if found.group(2) else ():
            name, equals, other = part.partition("=")
            if not equals:
                raise _Wrong(node, f"{text!r}: write TAG(symbol = TAG)")
            if name.strip() not in self.page.front.names.values():
                raise _Wrong(node, f"{text!r}: the page has no symbol {name.strip()!r}")
            replaced.append((name.strip(), self.parsed_target(node, other)))
        return Target(self.known_tag(node, found.group(1)), tuple(replaced))

    def size(self, key: ast.expr, value: ast.expr) -> tuple[str, int | tuple[int, ...]]:
        dim, several = self.constant(key), isinstance(self.resolved(value), (ast.Tuple, ast.List))
        lengths = tuple(self.constant(each) for each in self.elements(value))
        whole = all(isinstance(length, int) and length > 0 for length in lengths)
        if dim not in (*self.page.front.dims, "rows") or not whole or (several and dim != "rows"):
            raise _Wrong(key, f"needs a positive length for a dim or for `rows`, got {dim}: {ast.unparse(value)}")
        return str(dim), lengths if several else lengths[0]

    def dtype(self, node: ast.expr) -> str:
        name = self.constant(node)
        if name not in DTYPES:
            raise _Wrong(node, f"{name!r} is not among {', '.join(DTYPES)}")
        return str(name)


def _decorator(node: ast.FunctionDef) -> ast.expr | None:
    """The decorator that makes a function a case."""
    for decorator in node.decorator_list:
        function = decorator.func if isinstance(decorator, ast.Call) else decorator
        if isinstance(function, ast.Name) and function.id == "case":
            return decorator
    return None


def _of_module(function: ast.expr) -> bool:
    return (
        isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "module"
    )


def _returned_gradients(node: ast.FunctionDef) -> ast.Dict | None:
    """The mapping in `return outputs, {symbol: gradient}`."""
    for statement in syntax.statements(node):
        value = statement.value if isinstance(statement, ast.Return) else None
        if isinstance(value, ast.Tuple) and len(value.elts) == 2 and isinstance(value.elts[1], ast.Dict):
            return value.elts[1]
    return None
