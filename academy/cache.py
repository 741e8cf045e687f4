"""A cache, `.cache/academy.sqlite`, for what takes long to compute and depends only on a key: rendered formulas, plots,
highlighted code, pages of recorded runs, results of checks. Everything in it comes from this project's own directives.

The file can be deleted at any time. Where it can't be written, everything is computed again.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / ".cache" / "academy.sqlite"
#: A file that has grown beyond this is begun anew.
MAX_BYTES = 200 << 20


def kept(kind: str, key: list, make: Callable[[], object], keep: Callable[[object], object] = bool):
    """What `make()` returns, a value that JSON can hold, computed once for each key.

    key: JSON too, with everything that `make` uses; for code, use `made_by`. A value that `keep` rejects is not kept,
    so that a `make` that warns will warn again the next time.
    """
    found = get(kind, key)
    if found is None:
        found = make()
        if keep(found):
            put(kind, key, found)
    return found


def get(kind: str, key: list):
    """What is kept under this key; None if nothing is."""
    with suppress(sqlite3.DatabaseError):
        if found := _store(FILE).execute("SELECT value FROM kept WHERE name = ?", (_name(kind, key),)).fetchone():
            return json.loads(found[0])
    return None


def put(kind: str, key: list, value: object) -> None:
    """Keep a value under this key, replacing any other."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    with suppress(sqlite3.DatabaseError), _store(FILE) as store:  # a full disk, another writer: it is made again
        store.execute("INSERT OR REPLACE INTO kept VALUES (?, ?)", (_name(kind, key), text))


def _name(kind: str, key: list) -> bytes:
    return hashlib.sha256(json.dumps([kind, key]).encode()).digest()


@cache
def made_by(*parts: str) -> str:
    """A digest of code, for a key: files and folders under academy/, installed packages (`package:numpy`)."""
    found = hashlib.sha256()
    for part in parts:
        kind, _, name = part.rpartition(":")
        if kind:
            with suppress(metadata.PackageNotFoundError):
                found.update(metadata.version(name).encode())
            continue
        path = ROOT / "academy" / name
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            found.update(file.read_bytes())
    return found.hexdigest()


@cache
def _store(file: Path) -> sqlite3.Connection:
    for attempt in ("as it is", "begun anew", "in memory"):
        with suppress(sqlite3.DatabaseError, OSError):
            if attempt == "begun anew" or file.is_file() and file.stat().st_size > MAX_BYTES:
                file.unlink(missing_ok=True)
            if attempt != "in memory":
                file.parent.mkdir(parents=True, exist_ok=True)
            place = ":memory:" if attempt == "in memory" else file
            store = sqlite3.connect(place, timeout=30, check_same_thread=False)
            store.execute("PRAGMA journal_mode = WAL")
            store.execute("PRAGMA synchronous = OFF")  # it may be lost, it must not be slow
            store.execute("CREATE TABLE IF NOT EXISTS kept (name BLOB PRIMARY KEY, value TEXT NOT NULL)")
            return store
    raise AssertionError("SQLite keeps nothing, not even in memory")
