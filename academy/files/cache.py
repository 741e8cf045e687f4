"""A cache for what takes long to compute and depends only on a key: rendered formulas, plots, highlighted code, pages
of recorded runs, results of checks. Everything in it comes from this project's own directives.

In a copy of the repository it is `.cache/academy.sqlite`. An installed package writes nothing beside its code: there it
is `triton-academy/academy.sqlite` in the user's folder for caches. The file can be deleted at any time. Where it can't
be written, everything is computed again.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: A file that has grown beyond this is emptied.
MAX_BYTES = 200 << 20


def place(root: Path = ROOT) -> Path:
    """The file of the cache for code that lies in `root`."""
    if (root / "pyproject.toml").is_file() or sys.platform == "emscripten":  # a browser, whose files don't last
        return root / ".cache" / "academy.sqlite"
    from platformdirs import user_cache_path  # which a browser doesn't have

    return user_cache_path("triton-academy", appauthor=False) / "academy.sqlite"


FILE = place()


def kept(kind: str, key: list, make: Callable[[], object], keep: Callable[[object], object] = bool):
    """What `make()` returns, a value that JSON can hold, computed once for each key.

    key: JSON too, with everything that `make` uses; for code, use `academy.files.dependencies.made_by`. A value that
    `keep` rejects is not kept, so that a `make` that warns will warn again the next time.
    """
    found = get(kind, key)
    if found is None:
        found = make()
        if keep(found):
            put(kind, key, found)
    return found


def get(kind: str, key: list):
    """What is kept under this key; None if nothing is, or nothing that can be read."""
    with suppress(sqlite3.DatabaseError, ValueError, TypeError):
        if found := _store().execute("SELECT value FROM kept WHERE name = ?", (_name(kind, key),)).fetchone():
            return json.loads(found[0])
    return None


def put(kind: str, key: list, value: object) -> None:
    """Keep a value under this key, replacing any other."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    with suppress(sqlite3.DatabaseError), _store() as store:  # a full disk, another writer: it is made again
        store.execute("INSERT OR REPLACE INTO kept VALUES (?, ?)", (_name(kind, key), text))


def _name(kind: str, key: list) -> bytes:
    return hashlib.sha256(json.dumps([kind, key]).encode()).digest()


#: File, process -> its connection: SQLite doesn't allow one to be carried across a fork, nor to be closed there.
_CONNECTIONS: dict[tuple[Path, int], sqlite3.Connection] = {}


def _store() -> sqlite3.Connection:
    here = FILE, os.getpid()
    if here not in _CONNECTIONS:
        close()  # the cache has moved
        _CONNECTIONS[here] = _connected(FILE)
    return _CONNECTIONS[here]


def close() -> None:
    """Close the connection of this process. The next question opens another one."""
    for here in [each for each in _CONNECTIONS if each[1] == os.getpid()]:
        _CONNECTIONS.pop(here).close()


def _connected(file: Path) -> sqlite3.Connection:
    for attempt in ("as it is", "begun anew", "in memory"):
        try:
            if attempt == "begun anew":
                for suffix in ("", "-wal", "-shm"):
                    file.with_name(file.name + suffix).unlink(missing_ok=True)
            if attempt != "in memory":
                file.parent.mkdir(parents=True, exist_ok=True)
            return _opened(file if attempt != "in memory" else Path(":memory:"))
        except OSError:
            continue
        except sqlite3.OperationalError:  # no place to write to, or another process has it: not to be deleted
            return _opened(Path(":memory:"))
        except sqlite3.DatabaseError:  # damaged
            continue
    raise AssertionError("SQLite keeps nothing, not even in memory")


def _opened(file: Path) -> sqlite3.Connection:
    store = sqlite3.connect(file, timeout=30, check_same_thread=False)
    store.execute("PRAGMA journal_mode = WAL")
    store.execute("PRAGMA synchronous = OFF")  # it may be lost, it must not be slow
    store.execute("CREATE TABLE IF NOT EXISTS kept (name BLOB PRIMARY KEY, value TEXT NOT NULL)")
    if file.is_file() and file.stat().st_size > MAX_BYTES:
        # Deleting the file would damage it for a process that has it open.
        with store:
            store.execute("DELETE FROM kept")
        store.execute("VACUUM")
    return store
