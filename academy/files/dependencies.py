"""What a module of this project is made of: itself, and all that it imports, directly or not. Read, not imported.

A cache whose key names modules one by one forgets the one that somebody adds later; this finds it.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path

from academy import current
from academy.book import syntax
from academy.book.layout import ROOT
from academy.files.cache import kept

PACKAGE = "academy"


@cache
def made_of(modules: tuple[str, ...], root: Path = ROOT) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """The files of `academy` that these modules consist of, and the names of the packages from elsewhere that they use.

    Args:
        modules: dotted names, as in `("academy.traces.worker",)`.
    """
    files: dict[Path, None] = {}
    outside: set[str] = set()
    waiting = [file for name in modules for file in _files(name, root)]
    while waiting:
        file = waiting.pop()
        if file in files:
            continue
        files[file] = None
        for name in _imported(file, root):
            if name.partition(".")[0] == PACKAGE:
                waiting += _files(name, root)
            else:
                outside.add(name.partition(".")[0])
    return tuple(sorted(files)), tuple(sorted(outside - set(sys.stdlib_module_names)))


def made_by(*modules: str, root: Path | None = None) -> str:
    """A digest of code, for a key: of these modules of `academy` and all that they import, and of the versions of the
    packages from elsewhere that those use. `package:numpy` is a package that they use in another process.
    """
    return _made_by(modules, root or ROOT)


@cache
def _made_by(modules: tuple[str, ...], root: Path) -> str:
    named = {module.removeprefix("package:") for module in modules if module.startswith("package:")}
    files, outside = made_of(tuple(module for module in modules if not module.startswith("package:")), root)
    found = hashlib.sha256()
    for file in files:
        found.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    for package in sorted({*named, *outside}):
        with suppress(metadata.PackageNotFoundError):
            found.update(f"{package} {metadata.version(_DISTRIBUTIONS.get(package, package))}".encode())
    return found.hexdigest()


#: Packages that are installed under another name than they are imported by.
_DISTRIBUTIONS = {"yaml": "PyYAML", "bs4": "beautifulsoup4", "quickjs": "quickjs-ng", "material": "mkdocs-material"}


def of_academy(text: str) -> list[str]:
    """The modules of `academy` that a kernel file imports; `from academy.runtime import checks` may mean the module
    academy.runtime.checks. In an older file they have other names."""
    return [current(name) for name in imported(text, "") if name.startswith(f"{PACKAGE}.")]


def folders(root: Path = ROOT) -> dict[str, set[str]]:
    """Folder of `academy`, and `cli` -> the other folders that its modules import from, also inside of functions."""
    found: dict[str, set[str]] = {}
    for file in sorted((root / PACKAGE).rglob("*.py")):
        parts = file.relative_to(root / PACKAGE).with_suffix("").parts
        if parts[0] != "__init__" and "vendor" not in parts:
            used = {name.split(".")[1] for name in _imported(file, root) if name.startswith(f"{PACKAGE}.")}
            found.setdefault(parts[0], set()).update(used - {parts[0]})
    return {folder: used & set(found) for folder, used in found.items()}


@cache
def _files(name: str, root: Path) -> Iterable[Path]:
    """The file of a module and the `__init__.py` of the packages that it lies in; none for a name in a module."""
    path = root.joinpath(*name.split("."))
    inits = [folder / "__init__.py" for folder in [path, *path.parents] if folder.is_relative_to(root / PACKAGE)]
    return [file for file in [path.with_suffix(".py"), *inits] if file.is_file()]


def _imported(file: Path, root: Path) -> Iterable[str]:
    return imported(file.read_text("utf-8"), ".".join(file.relative_to(root).parent.parts))


@cache
def imported(text: str, package: str) -> tuple[str, ...]:
    """`_parsed`, kept: parsing all of academy takes half a second, in every process that asks what something is made
    by."""
    key = [text, package, _own_code()]
    return tuple(kept("imports", key, lambda: _parsed(text, package), keep=lambda _: True))


@cache
def _own_code() -> str:
    return Path(__file__).read_text("utf-8")


def _parsed(text: str, package: str) -> list[str]:
    """The modules that a text imports anywhere in it; `from a import b` may mean the module a.b.

    package: that the text belongs to, for imports with dots.
    """
    names: list[str] = []
    for node in syntax.statements(syntax.tree(text)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package.rsplit(".", node.level - 1)[0] if node.level else ""
            module = ".".join(filter(None, [base, node.module or ""]))
            names += [module, *(f"{module}.{alias.name}" for alias in node.names)]
    return list(dict.fromkeys(names))
