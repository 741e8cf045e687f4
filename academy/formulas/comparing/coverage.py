"""The cases of pages. Each tag has a kernel that is compared with it, each public function has its tags."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

from academy.book import facts, layout, syntax
from academy.book.problems import Problem
from academy.formulas.cases import Comparison
from academy.formulas.comparing import case_reader
from academy.formulas.project import Project
from academy.formulas.reading.page import Page, Step
from academy.formulas.reading.tree import mentioned


def declared(project: Project, pages: list[Page]) -> tuple[dict[Path, list[Comparison]], list[Problem]]:
    """The cases of each page that some file of an operation names, and what is wrong with them before they are run."""
    found: dict[Path, list[Comparison]] = {}
    problems: list[Problem] = []
    owners: dict[str, Path] = {}
    files = {path: facts.derivation(path) for path in project.case_files()}
    for page in pages:
        wrong, mine = list[Problem](), [path for path, name in files.items() if name == page.path.stem]
        for file in mine:
            cases, mistakes = case_reader.read(file, project.shown(file), page, project.has_module)
            found.setdefault(page.path, []).extend(cases)
            wrong += mistakes
        # A case that can't be read would make each of its tags one more problem.
        problems += wrong or (uncompared_tags(page, found[page.path]) if mine else [])
        for tag, steps in page.tags().items():
            if owners.setdefault(tag, page.path) != page.path:
                message = f"tag {tag} is also on {owners[tag]}: a tag has one home"
                problems.append(Problem.at(page.path, page.text, steps[0].pos, message))
    known = {path.stem for path in project.derivations()}
    for path, name in files.items():
        if name not in known:
            text = path.read_text("utf-8")
            message = f"there is no derivation backprop_math/{name}.md" if name else "DERIVATION names no page"
            problems.append(Problem.on(project.shown(path), text, syntax.line_of(text, "DERIVATION"), message))
    return found, problems


def uncompared_tags(page: Page, comparisons: list[Comparison]) -> list[Problem]:
    """Tags of a page that no case is compared with, nor with a formula that is made of their definition."""
    tags, compared = page.tags(), set().union(*(comparison.tags() for comparison in comparisons))
    behind = {tag for each in compared for tag in _definitions_behind(page, tags[each])}
    return [
        Problem.at(page.path, page.text, steps[0].pos, f"tag {tag}: no case compares a kernel with it")
        for tag, steps in tags.items()
        if tag not in compared | behind
    ]


def _definitions_behind(page: Page, steps: list[Step]) -> set[str | None]:
    """Tags of definitions that a formula is made of: change one, and the comparison sees it."""
    before = page.steps[: page.steps.index(steps[-1]) + 1]
    used, made_of = mentioned([step.equation.sides[-1] for step in steps]), list[Step]()
    for step in reversed(before):
        if step.kind == "define" and step.keys[0] in used:
            made_of.append(step)
            used |= mentioned(step.equation.sides[0])
    return {step.tag for step in made_of}


def uncovered_module(project: Project, path: Path, comparisons: Iterable[Comparison]) -> list[Problem]:
    """What is missing for one module of annotated_examples: a case, a public function in one, an argument of one."""
    text, shown, name = path.read_text("utf-8"), project.shown(path), project.module_name(path)
    functions = {node.name: node for node in syntax.tree(text).body if isinstance(node, ast.FunctionDef)}
    # What lessons share is compared through the lessons: a function there may raise errors and still be a part.
    is_part = layout.group(project.root, path) in layout.WITHOUT_PAGES
    public = [] if is_part else syntax.public_functions(text)
    here = [comparison for comparison in comparisons if comparison.module == name]
    kernels = not is_part and any(function.endswith("_kernel") for function in functions)
    if not here and (public or kernels):
        message = f"no case names {name}: nothing compares it with a printed formula; a case stands in "
        return [Problem.at(shown, text, 0, message + "operations/<op>.py")]
    problems, named = [], _names(text)
    calls = [(comparison, call) for comparison in here for call in comparison.calls]
    for comparison, call in calls:
        if call.function not in named:
            problems.append(comparison.problem(f"{name} has no function {call.function}"))
    for function in public:
        # Keyword-only parameters choose tiles and the like, and no formula depends on them.
        found = functions[function].args
        arguments = [argument.arg for argument in (*found.posonlyargs, *found.args)]
        passed = [(*arguments[: call.positional], *call.keywords) for _, call in calls if call.function == function]
        missing = sorted(set(arguments).difference(*passed))
        messages = [f"no case passes {argument} to {function}" for argument in missing]
        if not passed:
            messages = [f"{function} returns tensors that no case compares with a tag"]
        problems += [Problem.on(shown, text, syntax.line_of(text, function), message) for message in messages]
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
