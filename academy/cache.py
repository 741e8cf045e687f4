"""Finished pieces of the site, kept by content under `.cache/site/pieces`: a page, its entries for the search, a plot.

A piece is made from a key (its Markdown, say) and from answers that are asked for on the way: the text of a file, the
place of an equation, a measured number. `question` marks the functions that answer; while a piece is made, what they
said is noted beside it. A kept piece is used when the same questions have the same answers now. So an edit makes again
what depends on it, and nothing else, without a list of dependencies to be kept by hand.

What makes a piece may have no other effect: it does not happen again when the piece comes from here. A piece whose
making logged a warning is not kept, so that the warning comes back in every build.

The folder can be deleted at any time. A file in it that can't be read counts as missing.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import logging
import os
import signal
import sys
import threading
import zlib
from collections.abc import Callable
from contextlib import contextmanager, suppress
from functools import lru_cache, wraps
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".cache" / "site" / "pieces"
#: The folder may grow to this size; then the pieces that were not used for longest are removed, down to half of it.
MAX_BYTES = 200 << 20
#: As many pieces have to be missing before a second process is worth its start.
ENOUGH = 3

_questions: dict[str, Callable] = {}
_library = None  # the index of the site that is being built
_said: dict[tuple, str] = {}  # what questions were answered in this build
_notes: list[dict[tuple, str]] = []  # one for each piece that is being made, the innermost last
_expected: list[Callable] = []
_missing = 0
_second: int | None = None  # the second process


def begin(library) -> None:
    """Start a build, of the site with this index (`academy.site.library.Library`)."""
    global _library
    _library = library
    _said.clear()


def end() -> None:
    """The build is over: texts that are converted now need an index of their own."""
    global _library
    _library = None


def building(root: Path):
    """The index of the site that is being built, if its project is the one under this folder."""
    return _library if _library and root.resolve() == ROOT else None


def question(function):
    """Mark a function that pieces depend on. Its arguments are strings, after the index if it is a method of that or
    has a parameter `index`. Its answer has a faithful `repr`. What it reads itself is no dependency: its answer is."""
    name = f"{function.__module__}.{function.__qualname__}"
    takes_index = next(iter(inspect.signature(function).parameters), "") in ("self", "index")
    _questions[name] = (lambda *words: function(_library, *words)) if takes_index else function

    @wraps(function)
    def ask(*arguments):
        if not _notes:
            return function(*arguments)
        _notes.append({})
        try:
            answer = function(*arguments)
        finally:
            _notes.pop()
        words = tuple(word for word in arguments if isinstance(word, str))
        _notes[-1][name, *words] = digest(answer)
        return answer

    return ask


def kept(kind: str, key: list, make: Callable[[], object]):
    """What `make()` gives, a value that JSON can hold: from the folder if it is there and would be the same now.

    kind: the first part of the file's name. key: JSON too; everything that `make` uses and doesn't ask for.
    """
    path = FOLDER / f"{kind}-{digest([_fingerprint(), key])}"
    noted, piece = _read(path)
    if noted is None or not all(_answer(*asked) == said for asked, said in noted.items()):
        _get_help()
        with _warnings() as warned:
            _notes.append({})
            try:
                piece = make()
            finally:
                noted = _notes.pop()
        if not warned:
            _write(path, noted, piece)
    if _notes:
        _notes[-1].update(noted)
    return piece


def expect(jobs: list[Callable]) -> None:
    """Announce what will be asked for. Where much of it is missing, a second process makes it too, from the last job
    on, so that it is there when it is asked for. A job's only lasting effect are the pieces that it keeps."""
    global _expected, _missing
    _expected, _missing = jobs, 0


def _get_help() -> None:
    global _missing, _second
    _missing += 1
    few = len(_expected) < 2 * ENOUGH or _missing != ENOUGH
    if few or (os.cpu_count() or 1) < 2 or not hasattr(os, "fork") or threading.active_count() > 1:
        return
    _second = os.fork()
    if _second:
        return
    try:
        for name in ("", "mkdocs"):  # the first process says it all
            logging.getLogger(name).handlers.clear()
        logging.lastResort = None
        _notes.clear()
        for job in reversed(_expected):
            with suppress(Exception):
                job()
    finally:
        os._exit(0)


def arrived() -> None:
    """Everything that was announced has been asked for."""
    global _second
    expect([])
    if _second:
        os.kill(_second, signal.SIGTERM)
        os.waitpid(_second, 0)
        for partial in FOLDER.glob(f"*.{_second}"):
            partial.unlink(missing_ok=True)
        _second = None


def digest(value: object) -> str:
    return _digest(value if isinstance(value, str) else repr(value))


@lru_cache(4096)
def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def trim() -> None:
    """Keep the folder below its size."""
    files = sorted((path.stat().st_mtime_ns, path.stat().st_size, path) for path in FOLDER.glob("*"))
    size = sum(size for _, size, _ in files)
    if size > MAX_BYTES:
        for _, length, path in files:
            path.unlink(missing_ok=True)
            size -= length
            if size <= MAX_BYTES // 2:
                break


def _answer(*asked: str) -> str:
    if asked not in _said:
        try:
            _said[asked] = digest(_questions[asked[0]](*asked[1:]))
        except Exception:  # a file that is gone: whatever the reason, it is not the answer that was noted
            _said[asked] = ""
    return _said[asked]


@contextmanager
def _warnings():
    """The warnings that are logged while the block runs."""
    seen: list[logging.LogRecord] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = seen.append
    log = logging.getLogger("mkdocs")
    log.addHandler(handler)
    try:
        yield seen
    finally:
        log.removeHandler(handler)


@lru_cache(1)
def _fingerprint() -> str:
    """The code that makes pieces: this project's as this process runs it, and every installed package's version."""
    own = [path for path in sorted((ROOT / "academy").rglob("*")) if path.suffix in (".py", ".js")]
    packages = sorted(path.name for folder in sys.path for path in Path(folder).glob("*.dist-info"))
    sums = [hashlib.sha256(path.read_bytes()).hexdigest() for path in own]
    return digest([sys.version, packages, list(map(str, own)), sums])


def _read(path: Path) -> tuple[dict | None, object]:
    try:
        os.utime(path)  # used now: see trim
        noted, piece = json.loads(zlib.decompress(path.read_bytes()))
        return {tuple(asked): said for asked, said in noted}, piece
    except (OSError, ValueError, TypeError, zlib.error):
        return None, None


def _write(path: Path, noted: dict, piece: object) -> None:
    """Whole or not at all: others may build the site at the same time."""
    text = json.dumps([[[list(asked), said] for asked, said in noted.items()], piece], ensure_ascii=False)
    partial = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(zlib.compress(text.encode("utf-8", "surrogatepass"), 1))
        partial.replace(path)
    except OSError:  # a full or read-only disk: the site is built without
        with suppress(OSError):
            partial.unlink()
