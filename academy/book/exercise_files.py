"""Reads the files under exercises/ without running them. How they are written: see `academy.exercises`."""

from __future__ import annotations

import ast
import re
import textwrap
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from academy.book import layout

#: The folder that holds `exercises` and the learning path: the repository, or what an installed package brings along.
ROOT = layout.ROOT
if not (ROOT / layout.EXERCISES / "first_kernel").is_dir():
    ROOT = ROOT / "academy/exercises/brought"
KINDS = ("fill in", "find the bug", "predict a number", "read fewer bytes")
PARTS = re.compile(r"^# %% (\w+)\n", re.M)
GAP = re.compile(r"^(?P<indent> *)# <<<\n(?P<solution>.*?)(?:^ *# ===\n(?P<starter>.*?))?^ *# >>>\n", re.M | re.S)
LAST = 99
TO_DO = "pass  # your code here"


@dataclass(frozen=True)
class Exercise:
    """name: `first_kernel/reverse`. text: what stands in the file's part `solution`, with its marks. path: of the file.
    page: uri of the page that the exercise belongs to. wrong: message and edit; right: edits. order: the easy ones of a
    page come first; those without an order come last, by name."""

    name: str
    path: Path
    title: str
    question: str
    text: str
    page: str
    kind: str
    hints: tuple[str, ...]
    why: str
    wrong: tuple[tuple[str, ...], ...]
    right: tuple[tuple[str, ...], ...]
    order: int

    @property
    def stage(self) -> str:
        return self.name.partition("/")[0]

    @property
    def uri(self) -> str:
        return f"{layout.EXERCISES}/{self.name}.md"

    @cached_property
    def solution(self) -> str:
        return GAP.sub(lambda gap: gap["solution"], self.text)

    @cached_property
    def starter(self) -> str:
        return GAP.sub(_start, self.text)

    def edited(self, edit: tuple[str, ...]) -> str:
        """The solution with an edit, the starter for none. Raises ValueError if `old` isn't there exactly once."""
        if not edit:
            return self.starter
        if len(edit) == 1:
            return GAP.sub(
                lambda gap: textwrap.indent(textwrap.dedent(edit[0]).strip("\n") + "\n", gap["indent"]), self.text
            )
        text = self.solution
        for old, new in zip(edit[::2], edit[1::2]):
            if text.count(old) != 1:
                raise ValueError(f"{self.name}: the solution has {old!r} {text.count(old)} times, not once")
            text = text.replace(old, new)
        return text


def _start(gap: re.Match) -> str:
    if gap["starter"] is None:
        return f"{gap['indent']}{TO_DO}\n"
    return re.sub(r"^( *)# ?", r"\1", gap["starter"], flags=re.M)


@lru_cache(maxsize=256)
def _read(path: Path, _changed: int) -> Exercise:
    tree = ast.parse(text := path.read_text("utf-8"), str(path))
    _, *parts = PARTS.split(text)
    named = dict(zip(parts[::2], parts[1::2]))
    title, _, question = (ast.get_docstring(tree) or "").partition("\n")
    values = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(named.get("checks", "")).body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id in (*_LITERALS, "ORDER")
    }
    missing = [name for name in _LITERALS if name not in values] + [name for name in _PARTS if name not in named]
    if missing or not title.startswith("# "):
        raise ValueError(f"{path}: no {missing[0] if missing else 'title'}; see academy.exercises")
    return Exercise(
        name=f"{path.parent.name}/{path.stem}",
        path=path,
        title=title.removeprefix("# "),
        question=question.strip("\n"),
        text=named["solution"].strip("\n") + "\n",
        **{name.lower(): values[name] for name in _LITERALS},
        order=values.get("ORDER", LAST),
    )


_PARTS = ("solution", "checks")
_LITERALS = ("PAGE", "KIND", "HINTS", "WHY", "WRONG", "RIGHT")


def read(path: Path) -> Exercise:
    """Raises ValueError or SyntaxError, naming the file, where it is not written as `academy.exercises` says."""
    return _read(path, path.stat().st_mtime_ns)


def every() -> list[Exercise]:
    """All exercises, as the learning path takes them: by stage, page, order and name."""
    from academy.book.learning_path import LearningPath  # not in a browser, which checks one exercise at a time

    path = LearningPath.read(ROOT / layout.DOCS)
    stages, steps = [stage.exercises for stage in path.stages], path.steps

    def place(exercise: Exercise) -> tuple[int, int, int, str]:
        stage = stages.index(exercise.stage) if exercise.stage in stages else len(stages)
        return stage, steps.get(exercise.page, len(steps) + 1), exercise.order, exercise.name

    return sorted((read(file) for file in layout.exercises(ROOT)), key=place)


def named(name: str, root: Path = ROOT) -> Exercise:
    """`first_kernel/reverse`, or `reverse` alone. Raises ValueError where there is none, or more than one."""
    found = [path for path in layout.exercises(root) if name in (path.stem, f"{path.parent.name}/{path.stem}")]
    if len(found) != 1:
        stages = " or ".join(f"{path.parent.name}/{path.stem}" for path in found)
        raise ValueError(f"write {stages}" if found else f"there is no exercise {name!r}: academy exercise list")
    return read(found[0])
