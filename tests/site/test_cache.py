"""Kept pieces: the same as fresh ones, made again exactly when something that they were made from has changed."""

import logging
import subprocess
import sys

import pytest

from academy import cache

ANSWERS = {"a": "one", "b": "two"}


@cache.question
def answer(word: str) -> str:
    return ANSWERS[word]


@cache.question
def joined() -> str:
    return answer("a") + answer("b")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "FOLDER", tmp_path / "pieces")
    monkeypatch.setattr(cache, "ENOUGH", 10**9)  # no second process
    for word in ANSWERS:
        monkeypatch.setitem(ANSWERS, word, ANSWERS[word])
    cache.begin(None)
    return tmp_path / "pieces"


class Piece:
    """Something to keep, and how often it was made."""

    def __init__(self, make):
        self.make, self.made = make, 0

    def __call__(self, key: list | None = None):
        def counted():
            self.made += 1
            return self.make()

        cache.begin(None)  # a new build
        return cache.kept("test", key or [], counted)


def test_a_piece_is_made_once():
    piece = Piece(lambda: ["<p>é", {"x": [1, None]}])
    assert piece() == piece() == ["<p>é", {"x": [1, None]}]
    assert piece.made == 1


def test_another_key_is_another_piece():
    piece = Piece(lambda: 1)
    piece(["a"]), piece(["b"]), piece(["a"])
    assert piece.made == 2


def test_only_what_a_piece_asked_for_makes_it_stale():
    piece = Piece(lambda: answer("a"))
    assert piece() == "one"
    ANSWERS["b"] = "three"
    assert piece() == "one" and piece.made == 1
    ANSWERS["a"] = "four"
    assert piece() == "four" and piece.made == 2


def test_a_question_that_asks_others_counts_by_its_answer():
    piece = Piece(joined)
    assert piece() == "onetwo"
    ANSWERS["a"], ANSWERS["b"] = "on", "etwo"
    assert piece() == "onetwo" and piece.made == 1
    ANSWERS["b"] = "e"
    assert piece() == "one" and piece.made == 2


def test_an_answer_that_is_gone_makes_a_piece_stale():
    piece = Piece(lambda: ANSWERS.get("a") and answer("a"))
    piece()
    del ANSWERS["a"]
    assert piece() is None and piece.made == 2


def test_a_piece_within_a_piece_hands_on_what_it_asked_for():
    inner = Piece(lambda: answer("a"))
    outer = Piece(lambda: cache.kept("inner", [], inner.make))
    assert outer() == "one"
    ANSWERS["a"] = "five"
    assert outer() == "five"


def test_a_piece_that_warned_warns_again(caplog):
    def warn():
        logging.getLogger("mkdocs.academy.site").warning("bad")
        return 1

    piece = Piece(warn)
    piece(), piece()
    assert piece.made == 2
    assert [record.getMessage() for record in caplog.records] == ["bad", "bad"]


@pytest.mark.parametrize("content", [b"", b"nonsense", None], ids=["empty", "nonsense", "half"])
def test_a_damaged_file_counts_as_missing(folder, content):
    piece = Piece(lambda: "x" * 1000)
    piece()
    (file,) = folder.iterdir()
    file.write_bytes(file.read_bytes()[:-9] if content is None else content)
    assert piece() == "x" * 1000 and piece.made == 2
    assert piece() == "x" * 1000 and piece.made == 2


def test_nothing_is_kept_where_nothing_can_be_written(folder):
    folder.write_text("a file in the folder's place")
    piece = Piece(lambda: 1)
    assert piece() == piece() == 1 and piece.made == 2


def test_the_folder_stays_below_its_size(folder, monkeypatch):
    piece = Piece(lambda: 1)
    for number in range(20):
        piece([number])
    size = sum(path.stat().st_size for path in folder.iterdir())
    cache.trim()
    assert len(list(folder.iterdir())) == 20
    monkeypatch.setattr(cache, "MAX_BYTES", size - 1)
    cache.trim()
    assert sum(path.stat().st_size for path in folder.iterdir()) <= size // 2
    piece([19])
    assert piece.made == 20  # the newest are there


def test_a_second_process_makes_what_is_missing(tmp_path):
    """The first process makes pieces 0, 1, 2 and then waits: the last ones appear all the same."""
    script = f"""
import time
from pathlib import Path
from academy import cache
cache.FOLDER = Path({str(tmp_path / "pieces")!r})
cache.os.cpu_count = lambda: 2
jobs = [lambda n=n: cache.kept("test", [n], lambda: n) for n in range(12)]
cache.expect(jobs)
for job in jobs[:3]:
    job()
end = time.monotonic() + 60
while len(list(cache.FOLDER.glob("test-*"))) < 12 and time.monotonic() < end:
    time.sleep(0.02)
made = len(list(cache.FOLDER.glob("test-*")))
cache.arrived()
print(made, cache._second)
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=cache.ROOT)
    assert result.stdout.split() == ["12", "None"], result.stderr
