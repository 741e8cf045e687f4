"""A copy of this project with more kernels than it has: for measuring what a build of the site costs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = ["academy", "annotated_examples", "backprop_math", "benchmarks", "docs", "tests/kernels"]
PARTS += ["cases", "exercises", "mkdocs.yml", "CONTRIBUTING.md", "LICENSE"]

# Runs in the copy: the recorded run of a kernel is its original's, under the new names.
_RECORDINGS = """
import json, sys
from pathlib import Path
from academy import cache
from academy.traces import store
pairs = [line.split() for line in sys.stdin]
recordings = store.load([Path(original).resolve() for original, _ in pairs])
for original, copy in pairs:
    text = json.dumps(recordings[Path(original).resolve()].data)
    named = text.replace(original, copy).replace(store.name(Path(original)), store.name(Path(copy)))
    cache.put(store.KIND, store._key(Path(copy).resolve()), json.loads(named))
"""


def copied(folder: Path, kernels: int) -> Path:
    """The project under `folder`, with this many kernel pages: copies of its own kernels under other names.

    Recorded runs are there, pages, plots and formulas have not been made yet.
    """
    for part in PARTS:
        (folder / part).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / part, folder / part)
    originals = sorted(path.relative_to(folder).as_posix() for path in (folder / "annotated_examples").glob("*/*.py"))
    originals = [path for path in originals if "EXAMPLE(" in (folder / path).read_text()]
    pairs = [f"{original} {original}" for original in originals]
    for number in range(kernels - len(originals)):
        original = originals[number % len(originals)]
        copy = original.removesuffix(".py") + f"_{number:03}.py"
        shutil.copy(folder / original, folder / copy)
        pairs.append(f"{original} {copy}")
    run(folder, "-c", _RECORDINGS, input="\n".join(pairs))
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
