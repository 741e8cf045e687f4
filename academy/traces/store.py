"""Recordings of kernel files, kept by content (`academy.files.cache`): without a change nothing is recorded again.

The key covers the code of the file and of the project's files that it builds on, without comments, docstrings and line
numbers, and the versions of triton, torch and numpy. Line numbers in a kept recording are moved to where the statements
stand now, so that editing a comment costs nothing.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

from academy.book import layout, syntax
from academy.book.layout import ROOT
from academy.command import trouble
from academy.command.parent import Lifeline
from academy.files import cache, dependencies
from academy.traces.recording import Recording, failed

KIND = "recording"
#: What records and what runs a Gluon kernel: with all that they import, and all that the kernel files import, they
#: decide what a recording says.
_RECORDERS = ("academy.traces.worker", "academy.gluon.simulator")
_SECONDS = 600
#: Starting a process takes as long as recording a few files.
FILES_A_PROCESS, MOST_PROCESSES = 8, 8
_read: dict[Path, tuple[tuple, dict]] = {}


def kernel_files(folder: Path | None = None) -> list[Path]:
    """Every kernel file with an EXAMPLE under `annotated_examples` (or another folder), sorted."""
    files = sorted(folder.rglob("*.py")) if folder else layout.kernels(ROOT)
    return [path for path in files if has_example(path)]


def has_example(path: Path) -> bool:
    """Whether the file has a function EXAMPLE. Raises SyntaxError, which names the file, if it isn't valid Python."""
    return any(isinstance(node, ast.FunctionDef) and node.name == "EXAMPLE" for node in _parsed(path).body)


def load(paths: Iterable[Path], again: bool = False, processes: int = 0) -> dict[Path, Recording]:
    """The recording of each file: the kept one, unless `again`, else made now, those of many files in a few processes
    (at most `processes`, if given).

    A file that the process dies on (a kernel can crash it) has a recording that says so, and which is not kept.
    """
    keys = {path.resolve(): _key(path.resolve()) for path in map(Path, paths)}
    found = {path: None if again else _kept(path, key) for path, key in keys.items()}
    missing = [path for path, data in found.items() if data is None]
    most = processes or min(os.cpu_count() or 1, MOST_PROCESSES)
    shares = min(most, -(-len(missing) // FILES_A_PROCESS))
    with ThreadPoolExecutor(max(shares, 1)) as pool, Lifeline() as line:
        parts = [missing[share::shares] for share in range(shares)]
        for made, reasons in pool.map(_all_recorded, parts, [line] * shares):
            for path, data in made.items():
                cache.put(KIND, keys[path], data)
                _read.pop(path, None)
            found |= made | {path: failed(shorten(path), reason) for path, reason in reasons.items()}
    return {path: _moved(data) for path, data in found.items() if data is not None}


def _all_recorded(paths: list[Path], line: Lifeline) -> tuple[dict[Path, dict], dict[Path, str]]:
    """What was recorded of each file, and why not of the others. When a process dies, another takes the next files."""
    made: dict[Path, dict] = {}
    reasons: dict[Path, str] = {}
    while left := [path for path in paths if path not in made and path not in reasons and not line.is_cut]:
        data, reason = _record(left, line)
        made |= dict(zip(left, data))
        if len(data) < len(left):
            reasons[left[len(data)]] = reason
    return made, reasons


def is_kept(path: Path) -> bool:
    """Whether the file's recording is there, and still its own."""
    return _kept(path.resolve(), _key(path.resolve())) is not None


def _kept(path: Path, key: list[str]) -> dict | None:
    """Read once in a process: a site asks for the same recordings many times."""
    if _read.get(path, ((), {}))[0] != (cache.FILE, key):
        data = cache.get(KIND, key)
        if data is None:
            return None
        _read[path] = (cache.FILE, key), data
    return _read[path][1]


def _moved(data: dict) -> Recording:
    """With line numbers moved to where the statements stand now."""
    moved = {file: dict(zip(lines, statement_lines(ROOT / file))) for file, lines in data["files"].items()}
    return Recording(data, moved)


def built_on(path: Path) -> list[Path]:
    """The file and the other kernel files that it imports, directly or not."""
    _parsed(path)  # names the file if it is no Python
    return syntax.built_on([path], ROOT)


def shorten(path: str | Path) -> str:
    """A path relative to the project where it lies inside, as recordings store it."""
    path = Path(path)
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def name(path: Path) -> str:
    """Dotted: `annotated_examples.classics.layernorm`."""
    return layout.dotted(shorten(path))


@lru_cache(maxsize=256)
def _statement_lines(text: str) -> list[int]:
    docstrings = syntax.docstrings(text)
    nodes = [
        node
        for node in syntax.statements(syntax.tree(text))
        if not (isinstance(node, ast.Expr) and node.value in docstrings)
    ]
    # A kernel is said to be where its decorator stands.
    return [each.lineno for node in nodes for each in (*getattr(node, "decorator_list", ()), node)]


def statement_lines(path: Path) -> list[int]:
    """The line of every statement, decorator and function but docstrings, in an order that only code can change."""
    return _statement_lines(path.read_text("utf-8"))


def _parsed(path: Path) -> ast.Module:
    try:
        return syntax.tree(path.read_text())
    except SyntaxError as error:
        error.filename = shorten(path)
        raise


@lru_cache(maxsize=256)
def _code(text: str) -> str:
    """A hash of the code without comments, docstrings and positions."""
    return hashlib.sha256(ast.dump(syntax.bare(text)).encode()).hexdigest()


def _key(path: Path) -> list[str]:
    files = built_on(path)
    code = [_code(file.read_text()) for file in files]
    return [name(path), f"python {sys.version_info[:2]}", dependencies.made_by(*machinery(files)), *code]


def machinery(files: Iterable[Path]) -> list[str]:
    """The modules of `academy` that decide what a run of these kernel files leaves behind: for `made_by`."""
    used = {module for file in files for module in dependencies.of_academy(file.read_text("utf-8"))}
    return [*_RECORDERS, *sorted(used)]


def _record(paths: list[Path], line: Lifeline) -> tuple[list[dict], str]:
    """Record these files in one process: the data of each until one kills it, and what to say of that one.

    Raises Trouble."""
    jobs = json.dumps([{"path": str(path), "files": [str(file) for file in built_on(path)]} for path in paths])
    python_path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": python_path}
    command = [sys.executable, "-m", "academy.traces.worker", str(line.pipe)]  # `-m` looks for academy in `cwd` first
    options: dict = dict(capture_output=True, env=environment, cwd=ROOT, timeout=_SECONDS, pass_fds=[line.pipe])
    try:
        finished = subprocess.run(command, input=jobs.encode(), **options)
        out, said = finished.stdout, finished.stderr.decode(errors="replace").strip()[-800:]
        if -finished.returncode in trouble.OUTSIDE:
            raise trouble.Trouble.of_process("the process that records", -finished.returncode)
        reason = f"the recording process ended with status {finished.returncode}: {' '.join(said.split())}"
    except subprocess.TimeoutExpired as error:
        out, reason = error.stdout or b"", f"recording took longer than {_SECONDS} s"
    data = [json.loads(each) for each in out.split(b"\n")[:-1]]
    if found := next((each["trouble"] for each in data if "trouble" in each), None):
        raise trouble.Trouble(found)
    return data, reason
