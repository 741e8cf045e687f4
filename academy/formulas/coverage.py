"""Tags and kernels matched both ways: each tag has a kernel that is compared with it, each public function its tags."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

from academy import syntax
from academy.formulas.kernels import Comparison, called
from academy.formulas.page import Page
from academy.formulas.tree import mentioned
from academy.problems import Problem

#: Endings of functions that are no public entry of a lesson.
_INNER = ("_forward", "_backward", "_reference", "_forward_", "_backward_")
_FIXED = ("main", "EXAMPLE", "cost")


def uncompared_tags(page: Page, entries: list[Comparison]) -> list[Problem]:
    """Tags of a page that no entry under `kernel` is compared with."""
    compared = set().union(*(entry.tags() for entry in entries))
    compared |= _definitions_behind(page, compared)
    return [
        Problem.at(page.path, page.text, steps[0].pos, f"tag {tag}: no entry under `kernel` compares a kernel with it")
        for tag, steps in page.tags().items()
        if tag not in compared
    ]


def _definitions_behind(page: Page, compared: set[str]) -> set[str]:
    """Tags of definitions that compared formulas are made of: change one, and the comparison sees it."""
    behind, tags = set(), page.tags()
    for tag in compared:
        last = page.steps.index(tags[tag][-1])
        wanted, reached = [mentioned([step.equation.sides[-1] for step in tags[tag]])], set()
        while wanted:
            for key in wanted.pop() - reached:
                reached.add(key)
                lines = [s for s in page.steps[: last + 1] if s.kind == "define" and s.keys == (key,)]
                wanted += [mentioned(step.equation.sides[0]) for step in lines]
                behind |= {step.tag for step in lines if step.tag}
    return behind


def uncovered_module(path: Path, shown: Path, name: str, entries: Iterable[Comparison]) -> list[Problem]:
    """What is missing for one module of annotated_examples: an entry, a public function, an argument of one."""
    text = path.read_text("utf-8")
    here = [entry for entry in entries if entry.module == name]
    if not here:
        message = f"no derivation names {name} under `kernel`: nothing compares it with a printed formula"
        return [Problem.at(shown, text, 0, message)]
    functions = {node.name: node for node in syntax.tree(text).body if isinstance(node, ast.FunctionDef)}
    problems = []
    for entry in here:
        if entry.function not in functions:
            position = entry.page.front.offsets.get(("kernel", entry.number, "call"), 0)
            message = f"front matter: {name} has no function {entry.function}"
            problems.append(Problem.at(entry.page.path, entry.page.text, position, message))
    for function in public_functions(text):
        node = functions[function]
        position = sum(len(line) + 1 for line in text.split("\n")[: node.lineno - 1])
        calls = [call for entry in here for call in called(entry.call) if call.func.id == function]
        if not calls:
            message = f"{function} returns tensors that no derivation's `kernel` entry compares with a tag"
            problems.append(Problem.at(shown, text, position, message))
            continue
        for argument in sorted(_arguments(node) - set().union(*(_bound(node, call) for call in calls))):
            message = f"no `kernel` entry passes {argument} to {function}"
            problems.append(Problem.at(shown, text, position, message))
    return problems


def public_functions(text: str) -> list[str]:
    """Functions that readers call: documented with what they raise, and no kernel, launcher or reference."""
    found = []
    for node in syntax.tree(text).body:
        if not isinstance(node, ast.FunctionDef) or node.name.startswith("_") or node.name in _FIXED:
            continue
        documented = "Raises:" in (ast.get_docstring(node) or "")
        if documented and not node.decorator_list and not node.name.endswith(_INNER):
            found.append(node.name)
    return found


def _arguments(node: ast.FunctionDef) -> set[str]:
    """Positional parameters; keyword-only ones choose tiles and the like, and no formula depends on them."""
    return {argument.arg for argument in (*node.args.posonlyargs, *node.args.args)}


def _bound(node: ast.FunctionDef, call: ast.Call) -> set[str]:
    positional = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
    return {*positional[: len(call.args)], *(keyword.arg for keyword in call.keywords)}
