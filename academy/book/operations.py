"""Is an operation complete? What CONTRIBUTING asks for beside a lesson, found by reading the files.

`academy check` and the build of the site both ask. Nothing here imports torch or triton.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from academy.book import facts, layout, syntax
from academy.book.directives import cited
from academy.book.layout import FIGURES, LEARNING_PATH, OPERATIONS
from academy.book.learning_path import LearningPath
from academy.book.maths import equations
from academy.book.problems import Problem


def incomplete(root: Path) -> list[Problem]:
    """Kernel files with an EXAMPLE but no picture or place in the learning path; derivations without a place."""
    places = LearningPath.read(root / layout.DOCS).before if (root / LEARNING_PATH).is_file() else None
    problems = []
    for path, text, name in _shown(root):
        lesson = layout.group(root, path) not in layout.NO_LESSONS
        if lesson and (root / FIGURES).is_dir() and not re.search(r"^(?:# )?\[\[figure: ", text, re.M):
            message = f"{name} shows no picture: put [[figure: script/name]] on a line of a note; {FIGURES} draws them"
            problems.append((path, message))
        page = f"kernels/{name.replace('.', '/')}.md"
        if places is not None and page not in places:
            problems.append((path, f"{name} has no place in the learning path: add {page} to {LEARNING_PATH}"))
    for path in layout.derivations(root):
        if places is not None and f"derivations/{path.name}" not in places:
            message = f"no place in the learning path: add derivations/{path.name} to {LEARNING_PATH}"
            problems.append((path, message))
    return [_problem(root, path, message) for path, message in problems]


def unfinished(root: Path) -> list[Problem]:
    """The same, and what `academy check` finds out by running: no derivation, no facts, facts about nothing."""
    tags = {each.tag for path in layout.derivations(root) for each in equations(path.read_text("utf-8"), "")}
    measured = {file: path for path in facts.measured(root) for file in facts.shown(path)}
    problems = [
        (path, f"{file}, which this names, isn't there")
        for file, path in measured.items()
        if not (root / file).is_file()
    ]
    for path, text, name in _shown(root):
        operation = path.stem
        if not tags & set(cited(text)) and not (root / layout.DERIVATIONS / f"{operation}.md").is_file():
            problems.append((path, f"{name} cites no tag of a derivation: write backprop_math/{operation}.md"))
        said = measured.get(path.relative_to(root).as_posix())
        if not said:
            message = f"{name} is LESSON, FAST or part of no operation: write {OPERATIONS}/{operation}.py"
            problems.append((path, message))
            continue
        for function in syntax.public_functions(text):
            if f'"{function}"' not in said.read_text("utf-8"):
                message = f"nothing says what {function} takes: add it to PUBLIC in {OPERATIONS}/{said.name}"
                problems.append((path, message))
    return incomplete(root) + [_problem(root, path, message) for path, message in problems]


def _shown(root: Path) -> Iterator[tuple[Path, str, str]]:
    """Kernel files with an EXAMPLE, which is run and shown: path, text, and the module's name below its package."""
    for path in layout.pages(root):
        text = path.read_text("utf-8")
        if re.search(r"^(?:def EXAMPLE\b|EXAMPLE =|from .* import .*\bEXAMPLE\b)", text, re.M):
            yield path, text, layout.module_name(root, path)


def _problem(root: Path, path: Path, message: str) -> Problem:
    return Problem.at(path.relative_to(root), path.read_text("utf-8"), 0, message)
