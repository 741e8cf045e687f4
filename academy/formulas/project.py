"""The project that a command works on: the one that the current directory is in, so that it works in any clone."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from academy.book import layout
from academy.book.problems import PageError, Problem
from academy.files.textfiles import read_text
from academy.formulas.reading.page import Page


@dataclass(frozen=True)
class Project:
    root: Path

    @classmethod
    def here(cls, start: Path | None = None) -> Project:
        """The project around `start` (default: the current directory).

        Raises:
            FileNotFoundError: neither it nor a folder above it holds backprop_math and annotated_examples.
        """
        start = (start or Path.cwd()).resolve()
        for folder in (start, *start.parents):
            if (folder / layout.DERIVATIONS).is_dir() and (folder / layout.KERNELS).is_dir():
                return cls(folder)
        missing = f"{start} is not inside a project: no folder with backprop_math and annotated_examples"
        raise FileNotFoundError(f"{missing}. For a kernel file of your own: academy trace FILE")

    def shown(self, path: Path) -> Path:
        """The path as messages show it: relative to the project."""
        path = path.resolve()
        return path.relative_to(self.root) if path.is_relative_to(self.root) else path

    # ---------------------------------------------------------------- files
    def derivations(self) -> list[Path]:
        return layout.derivations(self.root)

    def kernels(self) -> list[Path]:
        """Every module of annotated_examples."""
        return layout.kernels(self.root)

    def case_files(self) -> list[Path]:
        """Each names calls of kernels that are compared with the formulas of its `DERIVATION`."""
        return layout.operations(self.root)

    def documents(self) -> list[Path]:
        """Other pages and notebooks, in which a formula may be cited but not typed."""
        return layout.documents(self.root)

    def checked_files(self) -> list[Path]:
        """All of these: what `academy check` takes."""
        return [*self.derivations(), *self.kernels(), *self.case_files(), *self.documents()]

    def among(self, files: Iterable[Path] | None, problems: Iterable[Problem]) -> list[Problem]:
        """Those of some files; all of them for None."""
        shown = None if files is None else {str(self.shown(path)) for path in files}
        return [problem for problem in problems if shown is None or problem.path in shown]

    def page(self, path: Path) -> Page:
        """A derivation whose errors show its path relative to the project."""
        return Page(self.shown(path), read_text(path))

    def pages(self) -> tuple[list[Page], list[PageError]]:
        """All derivations that can be read, and the errors of those that can't."""
        pages, errors = [], []
        for path in self.derivations():
            try:
                pages.append(self.page(path))
            except PageError as error:
                errors.append(error)
        return pages, errors

    # ---------------------------------------------------------------- modules
    def module_name(self, path: Path) -> str:
        """`classics.layernorm` of annotated_examples/classics/layernorm.py."""
        return layout.module_name(self.root, path.resolve())

    def module_path(self, name: str) -> Path:
        return layout.module_path(self.root, name)

    def has_module(self, name: str) -> bool:
        return self.module_path(name).is_file()

    def module(self, name: str) -> ModuleType:
        """Import a module of annotated_examples, from this project and from nowhere else."""
        if str(self.root) not in sys.path:
            sys.path.insert(0, str(self.root))
        module = importlib.import_module(f"annotated_examples.{name}")
        if Path(module.__file__ or "").resolve() != self.module_path(name):
            raise ImportError(f"annotated_examples.{name} was imported from {module.__file__}, not from {self.root}")
        return module
