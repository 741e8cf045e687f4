"""Tags and kernels matched both ways: each tag has a kernel that is compared with it, each public function its tags."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

from academy import syntax
from academy.formulas.cases import Comparison
from academy.formulas.project import Project
from academy.formulas.reading.page import Page
from academy.formulas.reading.tree import mentioned
from academy.problems import Problem

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
        wanted, reached = [mentioned([step.equation.sides[-1] for step in tags[tag]])], set[str]()
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
    if not here and (syntax.public_functions(text) or kernels):
        message = f"no case names {name}: nothing compares it with a printed formula; a case stands in "
        message += "tests/formulas/cases/<derivation>.py"
        return [Problem.at(shown, text, 0, message)]
    for function in syntax.public_functions(text):
        found = functions[function].args
        arguments = [argument.arg for argument in (*found.posonlyargs, *found.args)]
        calls = [call for comparison in here for call in comparison.calls if call.function == function]
        # Keyword-only parameters choose tiles and the like, and no formula depends on them.
        passed = {name for call in calls for name in (*arguments[: call.positional], *call.keywords)}
        messages = [f"no case passes {argument} to {function}" for argument in sorted(set(arguments) - passed)]
        if not calls:
            messages = [f"{function} returns tensors that no case compares with a tag"]
        position = syntax.Places(text).starts[functions[function].lineno - 1]
        problems += [Problem.at(shown, text, position, message) for message in messages]
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
