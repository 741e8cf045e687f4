"""What the site serves for the playground, besides the scripts in static/: the runtime, each file under a name that
holds its digest, and `runtime.json`, which names them.

Such a file never changes, so the browser keeps it. A new version of a lesson changes one file, `academy.zip`. Archives
are compressed as a whole: files that are like one another take less together, `academy.zip` by a quarter, and Python
need not inflate each module that it imports. Digests are of what a file holds: some hosts inflate a .gz file on its
way.
"""

from __future__ import annotations

import gzip
import json
import zipfile
from base64 import b64decode, b64encode
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from academy.book.comments import comments
from academy.book.layout import KERNELS, ROOT
from academy.compiler import advice
from academy.files import cache, dependencies
from academy.files.vendored import sha256
from academy.playground.vendor import FOLDER as VENDOR
from academy.playground.vendor import zipped

RUNTIME = Path(__file__).parent / "runtime"
#: Name in runtime.json -> vendored file.
_VENDORED = {
    name.removesuffix(".gz"): VENDOR / name
    for name in (
        "pyodide.js",
        "pyodide.asm.wasm.gz",
        "pyodide.asm.mjs.gz",
        "python_stdlib.zip",
        "numpy.zip",
        "triton.zip",
    )
}
#: Served as .gz; the worker inflates them.
_INFLATED = ("pyodide.asm.wasm", "pyodide.asm.mjs", "python_stdlib.zip", "numpy.zip", "triton.zip", "academy.zip")
#: What of academy runs in the browser.
_ACADEMY = [
    "academy/__init__.py",
    "academy/book/*.py",
    "academy/command/*.py",
    "academy/files/*.py",
    "academy/interpreter/*.py",
    "academy/interpreter/quick/*.py",
    "academy/traces/*.py",
    "academy/exercises/*.py",
    "academy/gluon/*.py",
    "academy/playground/run.py",
    "academy/playground/without_rounding.py",
    "academy/exact/*.py",
    "academy/runtime/*.py",
]
_ACADEMY += [f"academy/judge/{name}.py" for name in ("__init__", "accuracy", "layouts", "elements")]
_ACADEMY += [f"academy/compiler/rules/{name}.py" for name in ("allowed", "refused")]
_ACADEMY += ["academy/compiler/advice.py"]
_LEFT_OUT = ["academy/command/progress.py", "academy/command/setup_environment.py", "academy/exercises/limited.py"]
_LEFT_OUT += ["academy/book/reviewed.py", "academy/exact/torch.py", "academy/exact/gluon.py"]
_LEFT_OUT += ["academy/files/size.py", "academy/files/vendored.py"]
_LEFT_OUT += ["academy/gluon/command.py", "academy/traces/native_memory.py"]
_TEXTS = ["annotated_examples/**/*.py", "exercises/**/*.py"]
# They have nothing to watch, and what they import isn't there.
_LEFT_OUT += ["annotated_examples/capstone/", "annotated_examples/integrations/"]


def published(root: Path = ROOT) -> dict[str, bytes]:
    """Each file and its content, by its place under assets/playground."""
    files = {name: _vendored(path) for name, path in _VENDORED.items()} | {"academy.zip": _smaller(academy(root))}
    placed, digests = {}, {}
    for name, content in files.items():
        packed = ".gz" if name in _INFLATED else ""
        stem, _, suffix = name.rpartition(".")
        digests[name] = _digest(content, bool(packed))
        placed[name] = f"runtime/{stem}.{digests[name][:32]}.{suffix}{packed}"
    listed = {
        name: {"place": place, "bytes": len(files[name]), "sha256": digests[name]} for name, place in placed.items()
    }
    return {
        **{placed[name]: content for name, content in files.items()},
        "runtime.json": json.dumps({"files": listed}, indent=1).encode(),
        "codemirror.js": (VENDOR / "codemirror.js").read_bytes(),
    }


def megabytes(root: Path = ROOT) -> int:
    """What the first run downloads, rounded up."""
    files = published(root)
    return -(-sum(len(content) for name, content in files.items() if name != "codemirror.js") // 1_000_000)


def academy(root: Path) -> bytes:
    """This project's own modules, kernels without comments, and what stands in for torch and for Triton's C++ part."""
    paths = sorted(path for glob in [*_ACADEMY, *_TEXTS] for path in root.glob(glob))
    names = {path.relative_to(root).as_posix(): path for path in paths}
    entries = {name: path.read_bytes() for name, path in names.items() if not name.startswith(tuple(_LEFT_OUT))}
    entries |= {name: _without_comments(text) for name, text in entries.items() if name.startswith(f"{KERNELS}/")}
    entries |= {f"torch/{path.name}": path.read_bytes() for path in sorted((RUNTIME / "torch").glob("*.py"))}
    entries["triton/_C/__init__.py"] = b""
    entries["triton/_C/libtriton.py"] = (RUNTIME / "libtriton.py").read_bytes()
    entries["academy/compiler/advice.json"] = json.dumps(advice.table(), ensure_ascii=False).encode()
    for folder in ("playground", "compiler", "compiler/rules"):
        entries[f"academy/{folder}/__init__.py"] = b""
    return _packed(tuple(entries.items()))


@lru_cache(maxsize=512)
def _without_comments(content: bytes) -> bytes:
    """A kernel file without its comments, which nothing reads there. Its lines keep their numbers."""
    text = content.decode()
    lines = text.split("\n")
    for each in comments(text):
        lines[each.line - 1] = lines[each.line - 1][: each.column].rstrip()
    return "\n".join(lines).encode()


@lru_cache(maxsize=8)
def _digest(content: bytes, is_packed: bool) -> str:
    return sha256(gzip.decompress(content) if is_packed else content)


@lru_cache(maxsize=8)
def _vendored(path: Path) -> bytes:
    if path.suffix != ".zip":
        return path.read_bytes()

    def entries() -> bytes:
        with zipfile.ZipFile(path) as file:
            return zipped({name: file.read(name) for name in file.namelist()}, zipfile.ZIP_STORED)

    return _compressed([path.name, sha256(path.read_bytes())], entries)


@lru_cache(maxsize=2)
def _packed(entries: tuple[tuple[str, bytes], ...]) -> bytes:
    return zipped(dict(entries), zipfile.ZIP_STORED)


@lru_cache(maxsize=2)
def _smaller(content: bytes) -> bytes:
    return _compressed([sha256(content)], lambda: content)


def _compressed(key: list[str], content: Callable[[], bytes]) -> bytes:
    """The content in the gzip format, kept under a key that says what it is."""

    def made() -> str:
        return b64encode(gzip.compress(content(), 9, mtime=0)).decode()

    return b64decode(cache.kept("packed", [*key, dependencies.made_by("academy.playground.bundle")], made))
