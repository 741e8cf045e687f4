"""What is kept is what was made, until its key changes; the file may be damaged, full or missing."""

import sqlite3
import subprocess
import sys

import pytest

from academy.files import cache, dependencies


@pytest.fixture(autouse=True)
def file(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "FILE", tmp_path / "kept" / "academy.sqlite")
    yield tmp_path / "kept" / "academy.sqlite"
    cache.close()


class Piece:
    """Something to keep, and how often it was made."""

    def __init__(self, value: object):
        self.value, self.made = value, 0

    def __call__(self, key: list | None = None, kind: str = "test", **options):
        def make():
            self.made += 1
            return self.value

        return cache.kept(kind, key or [], make, **options)


def again() -> None:
    """Another process: the file is opened anew."""
    cache.close()


def test_a_value_is_made_once():
    piece = Piece(["<p>é", {"x": [1, None]}])
    assert piece() == ["<p>é", {"x": [1, None]}]
    again()
    assert piece() == ["<p>é", {"x": [1, None]}] and piece.made == 1


def test_another_key_or_kind_is_another_value():
    piece = Piece(1)
    piece(["a"]), piece(["b"]), piece(["a"]), piece(["a"], "other")
    assert piece.made == 3


def test_a_value_that_is_not_to_be_kept_is_made_again():
    piece, empty = Piece(1), Piece("")
    piece(keep=lambda value: value != 1), piece(keep=lambda value: value != 1)
    empty(["e"]), empty(["e"])
    assert piece.made == empty.made == 2


def test_other_code_is_another_key(tmp_path, monkeypatch):
    (tmp_path / "academy/part").mkdir(parents=True)
    monkeypatch.setattr(dependencies, "ROOT", tmp_path)
    found = set()
    for text in ("x = 1", "x = 2"):
        (tmp_path / "academy/part/one.py").write_text(text)
        dependencies._made_by.cache_clear(), dependencies.made_of.cache_clear()
        found |= {dependencies.made_by("academy.part.one"), dependencies.made_by("academy.part.one", "package:numpy")}
    dependencies._made_by.cache_clear(), dependencies.made_of.cache_clear()
    assert len(found) == 4
    assert dependencies.made_by("package:no-such-package") == dependencies.made_by()


@pytest.mark.parametrize("content", [b"", b"nonsense", None], ids=["empty", "nonsense", "half"])
def test_a_damaged_file_counts_as_missing(file, content):
    piece = Piece("x" * 50_000)
    piece()
    cache._store().close()
    again()
    for other in file.parent.glob("*-*"):
        other.unlink()
    file.write_bytes(file.read_bytes()[:-9000] if content is None else content)
    assert piece() == "x" * 50_000 and piece() == "x" * 50_000 and piece.made in (2, 3)


@pytest.mark.parametrize("content", ["{half", b"\xff\xfe", ""], ids=["half", "bytes", "empty"])
def test_a_value_that_is_no_json_is_made_again(file, content):
    piece = Piece({"x": 1})
    piece()
    with cache._store() as store:
        store.execute("UPDATE kept SET value = ?", (content,))
    assert piece() == {"x": 1} and piece.made == 2
    again()
    assert piece() == {"x": 1} and piece.made == 2


def test_a_file_that_another_process_has_locked_is_left_alone(file, monkeypatch):
    """It counts as missing: deleting it would take away what the other one keeps."""
    piece = Piece(1)
    piece(["before"])
    cache._store().close()
    again()
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("PRAGMA journal_mode = DELETE")
    other.execute("BEGIN EXCLUSIVE")
    connect = sqlite3.connect
    monkeypatch.setattr(cache.sqlite3, "connect", lambda place, timeout, **options: connect(place, 0.01, **options))
    assert piece(["now"]) == 1
    other.execute("COMMIT")
    assert other.execute("SELECT count(*) FROM kept").fetchone() == (1,)


def test_an_installed_package_writes_beside_no_code(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    packages = tmp_path / "site-packages"
    packages.mkdir()
    assert not cache.place(packages).is_relative_to(packages) and "triton-academy" in cache.place(packages).parts
    (packages / "pyproject.toml").touch()
    assert cache.place(packages) == packages / ".cache" / "academy.sqlite"


def test_everything_is_made_where_nothing_can_be_written(file):
    file.parent.write_text("a file in the folder's place")
    piece = Piece(1)
    assert piece() == 1
    again()
    assert piece() == 1 and piece.made == 2


def test_a_file_that_has_grown_too_large_is_begun_anew(file, monkeypatch):
    piece = Piece("x" * 10_000)
    piece()
    cache._store().close()
    again()
    monkeypatch.setattr(cache, "MAX_BYTES", 5_000)
    piece()
    assert piece.made == 2


def test_others_may_write_at_the_same_time(file):
    """Each of four processes keeps 50 values; all are there in the end."""
    script = f"""
from pathlib import Path
from academy.files import cache
import sys
cache.FILE = Path({str(file)!r})
for number in range(50):
    cache.kept("test", [sys.argv[1], number], lambda: number + 1)
"""
    command = [sys.executable, "-c", script]
    running = [subprocess.Popen([*command, str(n)], cwd=cache.ROOT, stderr=subprocess.PIPE) for n in range(4)]
    for process in running:
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    assert sqlite3.connect(file).execute("SELECT count(*) FROM kept").fetchone() == (200,)
