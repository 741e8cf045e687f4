"""Which kernel files `benchmarks/<op>.py` measures: read without importing anything."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from academy.book import layout


def files(root: Path) -> list[Path]:
    """The files of `benchmarks/` that say what to measure: those with a `BENCH`."""
    return [path for path in layout.benchmarks(root) if "\nBENCH = " in path.read_text("utf-8")]


def kernels(benchmark: Path) -> dict[str, str]:
    """Provider ("lesson", "fast") -> the kernel file that a benchmark file names."""
    named = re.findall(r'^(LESSON|FAST) = "([\w.]+)"', benchmark.read_text("utf-8"), re.M)
    return {provider.lower(): _file(benchmark, name) for provider, name in named}


def axes(benchmark: Path) -> tuple[str, ...]:
    """The names of a shape's axes: `AXES`, here or in the file that it is imported from. None: an empty tuple."""
    text = axes_home(benchmark).read_text("utf-8") if benchmark.is_file() else ""
    said = re.search(r"^AXES = (\(.*?\))$", text, re.M | re.S)
    return ast.literal_eval(said[1]) if said else ()


def axes_home(benchmark: Path) -> Path:
    """The file of `benchmarks/` that says what the axes of its shapes are."""
    taken = re.search(r"^from benchmarks\.(\w+) import [^#\n]*\bAXES\b", benchmark.read_text("utf-8"), re.M)
    folder = benchmark.parent if benchmark.parent.name == "benchmarks" else benchmark.parents[1]
    return folder / f"{taken[1]}.py" if taken else benchmark


def shown(benchmark: Path) -> list[str]:
    """Those, the file that `BACKWARD` names, and those in `PARTS`: parts of a version that have files of their own."""
    text = benchmark.read_text("utf-8")
    lines = re.findall(r"^(?:BACKWARD = |PARTS = \[)(.*)$", text, re.M)
    parts = [_file(benchmark, name) for line in lines for name in re.findall(r'"([\w.]+)"', line)]
    return [*kernels(benchmark).values(), *parts]


def _file(benchmark: Path, name: str) -> str:
    root = benchmark.resolve().parents[1]
    return layout.module_path(root, name).relative_to(root).as_posix()


def module_name(kernel_file: str) -> str:
    """`classics.layernorm` of `annotated_examples/classics/layernorm.py`."""
    return layout.dotted(kernel_file.removeprefix(f"{layout.KERNELS}/"))
