"""Tags and kernels matched both ways: each tag has a kernel that is compared with it, each public function its tags."""

from __future__ import annotations

import ast
import re
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


def incomplete_operations(project: Project) -> list[Problem]:
    """What a lesson (a file with an EXAMPLE) lacks beside its case: a test file, and its page in the learning path."""
    path_file, tests = project.root / "docs/learn/index.md", project.root / "tests/kernels"
    learning_path = path_file.read_text("utf-8") if path_file.is_file() else None
    tested = "\n".join(file.read_text("utf-8") for file in tests.glob("*.py"))
    problems = []
    for path in project.kernels():
        text, name = path.read_text("utf-8"), project.module_name(path)
        if "EXAMPLE" not in _names(text):
            continue
        group, _, operation = name.rpartition(".")
        missing = []
        imported = rf"{re.escape(group)} import .*\b{operation}\b|\b{re.escape(name)}\b|\b{group}/{operation}\b"
        if tests.is_dir() and not (tests / f"test_{operation}.py").is_file() and not re.search(imported, tested):
            missing.append(f"no test: write tests/kernels/test_{operation}.py")
        page = f"kernels/{name.replace('.', '/')}"
        if learning_path is not None and page not in learning_path:
            missing.append(f"no place in the learning path: add {page}.md to docs/learn/index.md")
        problems += [Problem.at(project.shown(path), text, 0, f"{name} has {what}") for what in missing]
    for path in project.derivations():
        if learning_path is not None and f"derivations/{path.stem}" not in learning_path:
            message = f"no place in the learning path: add derivations/{path.name} to docs/learn/index.md"
            problems.append(Problem.at(project.shown(path), path.read_text("utf-8"), 0, message))
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
