"""A copy of this project, of which nothing is kept from before: for measuring what a build of the site costs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = ["academy", "annotated_examples", "backprop_math", "benchmarks", "operations", "docs", "tests/kernels"]
PARTS += ["exercises", "mkdocs.yml", "pyproject.toml", "CONTRIBUTING.md", "LICENSE"]


def copied(folder: Path) -> Path:
    """The project under `folder`, with a cache of its own. Recorded runs are there; pages, plots and formulas haven't
    been made yet."""
    for part in PARTS:
        (folder / part).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / part, folder / part)
    run(folder, "-c", "from academy.traces import store; store.load(store.kernel_files())")
    assert [path.name for path in (folder / ".cache").glob("*.sqlite")] == ["academy.sqlite"]
    return folder


def run(folder: Path, *arguments: str, **options) -> subprocess.CompletedProcess:
    """Python in the copy; its `academy`, not this one's."""
    result = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment(folder), text=True, capture_output=True, **options
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(folder), "NO_MKDOCS_2_WARNING": "1", "EXECUTE_NOTEBOOKS": "false"}
