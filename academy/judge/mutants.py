"""Mutants: small edits of a kernel file that a test must notice, written by hand or made by the engine.

A mutated copy is imported as a module of its own, from a file of its own: Triton reads a kernel's text from its file.
"""

from __future__ import annotations

import ast
import hashlib
import re
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from unittest import mock

from academy.book import syntax
from academy.book.comments import comments


@dataclass(frozen=True)
class Mutant:
    """An edit: `new` takes the place of `old`.

    name: what the mistake is, as a trap or the reviewed list names it.
    count: how often `old` occurs in the code, where comments and docstrings are taken out; all are replaced.
    error: how a crash that stands for this mistake begins, as `ValueError: the text`. Any other crash is no catch.
    gpu: only compiled code shows it (the interpreter runs programs in order, pads masked lanes with zero …).
    interpreted: only the interpreter shows it, where tensors may lie 2³¹ elements apart without that much memory.
    start: offset in the text, of an edit that the engine made; -1 by hand. operator: the kind of change. function: the
    jitted function that it is in.
    """

    name: str
    old: str
    new: str
    count: int = 1
    error: str = ""
    gpu: bool = False
    interpreted: bool = False
    start: int = -1
    operator: str = ""
    function: str = ""

    def __str__(self) -> str:
        return self.name.replace(" ", "_")

    def apply(self, text: str) -> str:
        """The text (or, of an edit by hand, its code) with the edit made. Raises LookupError if `old` isn't there."""
        if self.start >= 0:
            return text[: self.start] + self.new + text[self.start + len(self.old) :]
        code = code_of(text)
        if code.count(self.old) != self.count:
            raise LookupError(
                f"mutant {self.name!r}: {self.old!r} occurs {code.count(self.old)} times, not {self.count}. "
                f"This says nothing about the kernel's numbers: its code was changed, so the mutant has to follow"
            )
        return code.replace(self.old, self.new)


def sample(mutants: list[Mutant], count: int) -> list[Mutant]:
    """At most `count` of them, spread over functions and operators; an edit of the file changes few of the chosen."""
    groups: dict[tuple[str, str], list[Mutant]] = {}
    for mutant in sorted(mutants, key=lambda mutant: hashlib.sha256(mutant.name.encode()).digest()):
        groups.setdefault((mutant.function, mutant.operator), []).append(mutant)
    chosen: list[Mutant] = []
    while len(chosen) < min(count, len(mutants)):
        for _, group in sorted(groups.items()):
            if group and len(chosen) < count:
                chosen.append(group.pop())
    return sorted(chosen, key=lambda mutant: mutant.start)


def code_of(text: str) -> str:
    """The source without comments, docstrings and the lines that held nothing else."""
    lines = text.splitlines(keepends=True)
    for comment in comments(text):
        lines[comment.line - 1] = lines[comment.line - 1][: comment.column].rstrip() + "\n"
    for node in [syntax.tree(text), *syntax.statements(syntax.tree(text))]:
        if isinstance(node, (ast.Module, *syntax.DEFINITION)) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            if len(node.body) > 1 or isinstance(node, ast.Module):
                lines[first.lineno - 1 : first.end_lineno] = ["\n"] * (syntax.last_line(first) - first.lineno + 1)
    return re.sub(r"\n\n+", "\n", "".join(line if line.strip() else "\n" for line in lines))


def mutated(module: ModuleType, mutant: Mutant, folder: Path | None = None) -> ModuleType:
    """Import a copy of `module` with the edit made."""
    file = Path(module.__file__ or "")
    return import_source(mutant.apply(file.read_text("utf-8")), file.stem, folder)


def import_source(source: str, stem: str, folder: Path | None = None, package: str = "") -> ModuleType:
    """Import source code as a module of its own, named by `stem` and a digest, from a file in `folder`, or in a
    temporary one that lasts as long as the process. package: that its relative imports are looked for in."""
    name = f"{stem}_{hashlib.sha256(source.encode()).hexdigest()[:16]}"
    path = (folder or Path(_scratch().name)) / f"{name}.py"
    path.write_text(source, "utf-8")
    name = f"{package}.{name}" if package else name
    try:
        return syntax.import_path(path, name)
    finally:
        sys.modules.pop(name, None)


@cache
def _scratch() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="academy-")


def upon(shared: ModuleType, broken: ModuleType, module: ModuleType, folder: Path | None = None) -> ModuleType:
    """`module`, imported once more, standing upon `broken` in place of `shared`, a file of `common`."""
    package, name = sys.modules[shared.__package__ or ""], shared.__name__.rpartition(".")[2]
    file = Path(module.__file__ or "")
    with mock.patch.dict(sys.modules, {shared.__name__: broken}), mock.patch.object(package, name, broken):
        return import_source(code_of(file.read_text("utf-8")), f"{file.stem}_upon_{broken.__name__}", folder)


def assert_caught(
    module: ModuleType, mutant: Mutant, check: Callable[[ModuleType], None], folder: Path | None = None
) -> None:
    """`check(mutated module)` must notice a wrong value, or raise what the mutant names. A crash is no catch.

    Raises AssertionError if nothing noticed the mutant, and RuntimeError if the copy crashed in another way.
    `check(module)` itself is a test of its own and must not raise.
    """
    broken = mutated(module, mutant, folder)
    try:
        check(broken)
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        if mutant.error:
            caught = message.startswith(mutant.error)
        else:
            caught = isinstance(error, AssertionError) and not _crashed(error, str(broken.__file__))
        if caught:
            return
        what = mutant.error or "a wrong value"
        raise RuntimeError(f"mutant {mutant.name!r} should show as {what}, and it crashed: {message}") from error
    raise AssertionError(f"nothing noticed the mutant {mutant.name!r}: {mutant.old!r} -> {mutant.new!r}")


def _crashed(error: AssertionError, file: str) -> bool:
    """Whether the assertion that failed is one of the mutated file, or of Triton: it judges no value."""
    place = traceback.extract_tb(error.__traceback__)[-1].filename
    return place == file or "/site-packages/triton/" in place
