"""Which kernel files `benchmarks/<op>.py` measures: read without importing anything."""

from __future__ import annotations

import re
from pathlib import Path

from academy.book import layout


def files(root: Path) -> list[Path]:
    """The files of `benchmarks/` that say what to measure: those with a `BENCH`."""
    return [path for path in layout.benchmarks(root) if "\nBENCH = " in path.read_text("utf-8")]


def kernels(benchmark: Path) -> dict[str, str]:
    """Provider ("lesson", "fast") -> the kernel file that a benchmark file names."""
    named = re.findall(r'^(LESSON|FAST) = "([\w.]+)"', benchmark.read_text("utf-8"), re.M)
    return {provider.lower(): f"{layout.KERNELS}/{name.replace('.', '/')}.py" for provider, name in named}


def shown(benchmark: Path) -> list[str]:
    """Those, and the file that `BACKWARD` names: the half of a version that stands in a file of its own."""
    half = re.findall(r'^BACKWARD = "([\w.]+)"', benchmark.read_text("utf-8"), re.M)
    return [*kernels(benchmark).values(), *(f"{layout.KERNELS}/{name.replace('.', '/')}.py" for name in half)]


def module_name(kernel_file: str) -> str:
    """`classics.layernorm` of `annotated_examples/classics/layernorm.py`."""
    return kernel_file.removeprefix(f"{layout.KERNELS}/").removesuffix(".py").replace("/", ".")
