"""What `operations/<op>.py` says of kernel files and derivations: read without importing anything, but for `load`."""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections import defaultdict
from pathlib import Path
from types import ModuleType

from academy.book import layout, syntax

#: Where the facts are: in the repository, or where academy is installed without one, in the package.
HOME = layout.ROOT if (layout.ROOT / layout.OPERATIONS).is_dir() else layout.BROUGHT


def load(path: Path) -> ModuleType:
    """Import a file of `operations/`, or of a ladder's benchmark. It may import its neighbours as
    `operations._products`, and imports no kernel by itself, so that it can be read where triton is missing."""
    return _load(path, path.stat().st_mtime_ns)


@functools.cache
def _load(path: Path, _time: int) -> ModuleType:
    root = str(_root(path))
    if root not in sys.path:
        sys.path.insert(0, root)
    return syntax.import_path(path, "_".join(path.relative_to(root).with_suffix("").parts))


def measured(root: Path) -> list[Path]:
    """The files of `operations/` that say what to measure: those with a `BENCH`."""
    return [path for path in layout.operations(root) if "\nBENCH = " in path.read_text("utf-8")]


def of_derivation(root: Path, name: str) -> list[Path]:
    """The files with calls that are compared with the formulas of `backprop_math/<name>.md`."""
    files = layout.operations(root)
    return _by_derivation(tuple(files), tuple(path.stat().st_mtime_ns for path in files)).get(name, [])


@functools.lru_cache(maxsize=8)
def _by_derivation(files: tuple[Path, ...], _times: tuple[int, ...]) -> dict[str, list[Path]]:
    found = defaultdict(list)
    for path in files:
        found[derivation(path)].append(path)
    return dict(found)


def derivation(file: Path) -> str:
    """The name of the page that `DERIVATION` names; "" if there is none."""
    said = re.search(r'^DERIVATION = "(\w+)"', file.read_text("utf-8"), re.M)
    return said[1] if said else ""


def kernels(file: Path) -> dict[str, str]:
    """Provider ("lesson", "fast") -> the kernel file that a file names."""
    named = re.findall(r'^(LESSON|FAST) = "([\w.]+)"', file.read_text("utf-8"), re.M)
    return {provider.lower(): _file(file, name) for provider, name in named}


def axes(file: Path) -> tuple[str, ...]:
    """The names of a shape's axes: `AXES`, here or in the file that it is imported from. None: an empty tuple."""
    text = axes_home(file).read_text("utf-8") if file.is_file() else ""
    said = re.search(r"^AXES = (\(.*?\))$", text, re.M | re.S)
    return ast.literal_eval(said[1]) if said else ()


def axes_home(file: Path) -> Path:
    """The file that says what the axes of its shapes are: this one, or one of `operations/`."""
    taken = re.search(r"^from operations\.(\w+) import (?:\([^)]*|[^#\n(]*)\bAXES\b", file.read_text("utf-8"), re.M)
    return _root(file) / layout.OPERATIONS / f"{taken[1]}.py" if taken else file


def shown(file: Path) -> list[str]:
    """Those, the file that `BACKWARD` names, and those in `PARTS`: parts of a version that have files of their own."""
    text = file.read_text("utf-8")
    lines = re.findall(r"^(?:BACKWARD = |PARTS = \[)(.*)$", text, re.M)
    parts = [_file(file, name) for line in lines for name in re.findall(r'"([\w.]+)"', line)]
    return [*kernels(file).values(), *parts]


def _root(file: Path) -> Path:
    """The project of a file of `operations/`, or of a ladder's benchmark."""
    return file.parents[1] if file.parent.name == layout.OPERATIONS else file.parents[2]


def _file(file: Path, name: str) -> str:
    root = file.resolve().parents[1]
    return layout.module_path(root, name).relative_to(root).as_posix()


def module_name(kernel_file: str) -> str:
    """`classics.layernorm` of `annotated_examples/classics/layernorm.py`."""
    return layout.dotted(kernel_file.removeprefix(f"{layout.KERNELS}/"))
