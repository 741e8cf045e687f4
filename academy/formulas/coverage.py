"""Tags and kernels matched both ways: each tag has a kernel that is compared with it, each public function its tags."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

from academy import syntax
from academy.formulas.cases import Call, Comparison
from academy.formulas.page import Page
from academy.formulas.project import Project
from academy.formulas.tree import mentioned
from academy.problems import Problem

#: Endings of functions that are no public entry of a lesson.
_INNER = ("_forward", "_backward", "_reference", "_forward_", "_backward_")
_FIXED = ("EXAMPLE", "contract")
#: The folder of what several lessons share: its kernels are compared through them.
_SHARED = "common"


def uncompared_tags(page: Page, comparisons: list[Comparison]) -> list[Problem]:
    """Tags of a page that no case is compared with."""
    compared = set().union(*(comparison.tags() for comparison in comparisons))
    compared |= _definitions_behind(page, compared)
    return [
        Problem.at(page.path, page.text, steps[0].pos, f"tag {tag}: no case compares a kernel with it")
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


def uncovered_module(project: Project, path: Path, comparisons: Iterable[Comparison]) -> list[Problem]:
    """What is missing for one module of annotated_examples: a case, a public function in one, an argument of one."""
    text, shown, name = path.read_text("utf-8"), project.shown(path), project.module_name(path)
    functions = {node.name: node for node in syntax.tree(text).body if isinstance(node, ast.FunctionDef)}
    here = [comparison for comparison in comparisons if comparison.module == name]
    problems = [
        comparison.problem(f"{name} has no function {call.function}")
        for comparison in here
        for call in comparison.calls
        if call.function not in _names(text)
    ]
    kernels = any(function.endswith("_kernel") for function in functions) and path.parent.name != _SHARED
    if not here and (public_functions(text) or kernels):
        message = f"no case names {name}: nothing compares it with a printed formula"
        return [Problem.at(shown, text, 0, message)]
    for function in public_functions(text):
        node = functions[function]
        position = sum(len(line) + 1 for line in text.split("\n")[: node.lineno - 1])
        calls = [call for comparison in here for call in comparison.calls if call.function == function]
        if not calls:
            message = f"{function} returns tensors that no case compares with a tag"
            problems.append(Problem.at(shown, text, position, message))
            continue
        for argument in sorted(_arguments(node) - set().union(*(_bound(node, call) for call in calls))):
            message = f"no case passes {argument} to {function}"
            problems.append(Problem.at(shown, text, position, message))
    return problems


def _names(text: str) -> set[str]:
    """What a module's functions and imports are called."""
    found = set()
    for node in syntax.tree(text).body:
        if isinstance(node, syntax.DEFINITION):
            found.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


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


def _bound(node: ast.FunctionDef, call: Call) -> set[str]:
    positional = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
    return {*positional[: call.positional], *call.keywords}
