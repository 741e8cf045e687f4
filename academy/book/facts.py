"""What `operations/<op>.py` says of kernel files and derivations: read without importing anything."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from academy.book import layout


def measured(root: Path) -> list[Path]:
    """The files of `operations/` that say what to measure: those with a `BENCH`."""
    return [path for path in layout.operations(root) if "\nBENCH = " in path.read_text("utf-8")]


def of_derivation(root: Path, name: str) -> list[Path]:
    """The files with calls that are compared with the formulas of `backprop_math/<name>.md`."""
    return [path for path in layout.operations(root) if derivation(path) == name]


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
    root = file.parents[1] if file.parent.name == layout.OPERATIONS else file.parents[2]
    return root / layout.OPERATIONS / f"{taken[1]}.py" if taken else file


def shown(file: Path) -> list[str]:
    """Those, the file that `BACKWARD` names, and those in `PARTS`: parts of a version that have files of their own."""
    text = file.read_text("utf-8")
    lines = re.findall(r"^(?:BACKWARD = |PARTS = \[)(.*)$", text, re.M)
    parts = [_file(file, name) for line in lines for name in re.findall(r'"([\w.]+)"', line)]
    return [*kernels(file).values(), *parts]


def _file(file: Path, name: str) -> str:
    root = file.resolve().parents[1]
    return layout.module_path(root, name).relative_to(root).as_posix()


def module_name(kernel_file: str) -> str:
    """`classics.layernorm` of `annotated_examples/classics/layernorm.py`."""
    return layout.dotted(kernel_file.removeprefix(f"{layout.KERNELS}/"))
