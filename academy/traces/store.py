"""Recordings of kernel files, kept under `.cache/traces` by content: without a change nothing is recorded again.

The key covers the code of the file and of the project's files that it builds on, without comments, docstrings and line
numbers, and the versions of triton, torch and numpy. Line numbers in a kept recording are moved to where the statements
stand now, so that editing a comment costs nothing.
"""

from __future__ import annotations

import ast
import gzip
import hashlib
import json
import os
import subprocess
import sys
from functools import lru_cache
from importlib import metadata
from pathlib import Path

from academy import syntax
from academy.traces.recording import Recording

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "traces"
#: What a recording depends on besides the kernel file.
_MACHINERY = ["device.py", "checks.py", "interpreter.py", "libdevice.py"]
_MACHINERY += [f"traces/{name}.py" for name in ("instrument", "memory", "recorder", "recording", "proof", "worker")]
_SECONDS = 600


def kernel_files(folder: Path | None = None) -> list[Path]:
    """Every kernel file with an EXAMPLE under `annotated_examples` (or another folder), sorted."""
    return [path for path in sorted((folder or ROOT / "annotated_examples").rglob("*.py")) if has_example(path)]


def has_example(path: Path) -> bool:
    """Whether the file has a function EXAMPLE. Raises SyntaxError, which names the file, if it is no Python."""
    return any(isinstance(node, ast.FunctionDef) and node.name == "EXAMPLE" for node in _parsed(path).body)


def load(paths: list[Path]) -> dict[Path, Recording]:
    """The recording of each file, from the cache where it is there, else made now, all in one subprocess."""
    cached = {path.resolve(): _cached(path.resolve()) for path in map(Path, paths)}
    failed = _record({path: out for path, out in cached.items() if not out.exists()})
    return {
        path: Recording(complete({"error": failed[path]})) if path in failed else _read(out)
        for path, out in cached.items()
    }


def is_cached(path: Path) -> bool:
    """Whether the file's recording is there, and still its own."""
    return _cached(path.resolve()).exists()


def forget(path: Path) -> None:
    """Remove what is kept of a file's recording."""
    _cached(path.resolve()).unlink(missing_ok=True)


def built_on(path: Path) -> list[Path]:
    """The file and the other kernel files that it imports, directly or not."""
    found = [path]
    for current in found:
        _parsed(current)  # names the file if it is no Python
        found += [file for file in sorted(syntax.imported_kernels(current.read_text(), ROOT)) if file not in found]
    return found


def shorten(path: str | Path) -> str:
    """A path relative to the project where it lies inside, as recordings store it."""
    path = Path(path)
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def name(path: Path) -> str:
    """Dotted: `annotated_examples.classics.layernorm`."""
    return shorten(path).removesuffix(".py").strip("/").replace("/", ".")


def statement_lines(path: Path) -> list[int]:
    """The line of every statement and function but docstrings, in an order that only code can change."""
    return _code(path.read_text())[1]


def _parsed(path: Path) -> ast.Module:
    try:
        return syntax.tree(path.read_text())
    except SyntaxError as error:
        error.filename = shorten(path)
        raise


@lru_cache(maxsize=256)
def _code(text: str) -> tuple[str, list[int]]:
    """Of the code without comments and docstrings: a hash without positions, and the line of each statement."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            if isinstance(body[0].value, ast.Constant):
                del body[0]
    digest = hashlib.sha256(ast.dump(tree).encode()).hexdigest()
    return digest, [node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt)]


def _key(path: Path) -> str:
    versions = [f"{package} {metadata.version(package)}" for package in ("triton", "torch", "numpy")]
    files = [*built_on(path), *(ROOT / "academy" / file for file in _MACHINERY)]
    parts = [*versions, f"python {sys.version_info[:2]}", *(_code(file.read_text())[0] for file in files)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _cached(path: Path) -> Path:
    return CACHE / f"{name(path)}-{_key(path)}.json.gz"


def _record(outs: dict[Path, Path]) -> dict[Path, dict]:
    """Run the worker for these files. A file that it dies on (a kernel can crash the process) is named, not kept."""
    failed, paths = {}, list(outs)
    while paths:
        CACHE.mkdir(parents=True, exist_ok=True)
        reason = _run_worker(
            [{"path": str(p), "files": [str(f) for f in built_on(p)], "out": str(outs[p])} for p in paths]
        )
        left = [path for path in paths if not outs[path].exists()]
        for path in set(paths) - set(left):
            for old in set(CACHE.glob(f"{name(path)}-*.json.gz")) - {outs[path]}:
                old.unlink(missing_ok=True)
        if left:  # jobs run in order, so the first without a result is the one that failed
            failed[left[0]] = {"file": shorten(left[0]), "line": 1, "message": " ".join(reason.split())}
        paths = left[1:]
    return failed


def _run_worker(jobs: list[dict]) -> str:
    """Record these jobs in one subprocess. Returns what to say of a job that is not done afterwards."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    command = [sys.executable, "-m", "academy.traces.worker"]  # `-m` looks for academy in `cwd` first
    options: dict = dict(capture_output=True, text=True, env=environment, cwd=ROOT, timeout=_SECONDS)
    try:
        finished = subprocess.run(command, input=json.dumps(jobs), **options)
    except subprocess.TimeoutExpired:
        return f"recording took longer than {_SECONDS} s"
    return f"the recording process ended with status {finished.returncode}: {finished.stderr.strip()[-800:]}"


def complete(data: dict) -> dict:
    """A recording's data with every entry that a reader expects."""
    empty: dict = {"files": {}, "findings": [], "warnings": [], "launches": [], "places": [], "pool": [], "traffic": {}}
    return {**empty, "error": None, "printed": "", **data}


def write(out: Path, data: dict) -> None:
    """Write a recording's data so that a reader never sees half of it."""
    temporary = out.with_suffix(f".{os.getpid()}")
    temporary.write_bytes(gzip.compress(json.dumps(complete(data), separators=(",", ":")).encode(), 6))
    temporary.replace(out)


@lru_cache(maxsize=64)
def _kept(cached: Path, written: int) -> dict:
    return json.loads(gzip.decompress(cached.read_bytes()))


def _read(out: Path) -> Recording:
    data = _kept(out, out.stat().st_mtime_ns)
    return Recording(
        data, {file: dict(zip(lines, statement_lines(ROOT / file))) for file, lines in data["files"].items()}
    )
