"""`academy exercise`: list, start, check, hint."""

import errno
import os

import pytest

from academy import cli
from academy.book import exercise_files
from academy.book.learning_path import LearningPath
from academy.exercises.limited import SHOWN


def run(capsys, *arguments):
    status = cli.main(["exercise", *map(str, arguments)])
    said = capsys.readouterr()
    return status, said.out + said.err


def test_list_shows_every_exercise(capsys):
    status, said = run(capsys, "list")
    shown = [line.split()[0] for line in said.splitlines() if line.startswith("  ")]
    assert status == 0 and sorted(shown) == sorted(exercise.name for exercise in exercise_files.every())
    assert "first_kernel/reverse" in said and "find the bug" in said


def test_list_follows_the_learning_path(capsys):
    _, said = run(capsys, "list")
    path = LearningPath.read(exercise_files.ROOT / "docs")
    titles = [f"{number}. {stage.title}" for number, stage in enumerate(path.stages, 1)]
    assert [line for line in said.splitlines() if line and line[0] != " "] == titles
    pages = [
        path.steps[exercise_files.named(line.split()[0]).page] for line in said.splitlines() if line.startswith("  ")
    ]
    assert pages == sorted(pages)


def test_start_writes_a_file_that_check_knows_and_never_overwrites_one(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, said = run(capsys, "start", "bytes_saved")
    path = tmp_path / "bytes_saved.py"
    assert status == 0 and "academy exercise check bytes_saved.py" in said
    text = path.read_text()
    assert text.startswith("# Exercise: first_kernel/bytes_saved\n#\n# Bytes saved\n")
    assert text.endswith("answer = None\n")
    path.write_text(text.replace("None", "4000"))
    status, said = run(capsys, "start", "bytes_saved")
    assert status == 2 and "already exists" in said and "4000" in path.read_text()
    assert run(capsys, "start", "bytes_saved", "--to", "other.py")[0] == 0
    status, said = run(capsys, "check", path)
    assert status == 1 and "answer is 4000" in said and "academy exercise hint first_kernel/bytes_saved" in said
    path.write_text(text.replace("None", "8000"))
    assert run(capsys, "check", path)[0] == 0


def test_what_a_page_shows_is_not_written_into_a_file(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for exercise in exercise_files.every():
        assert cli.main(["exercise", "start", exercise.name]) == 0
        text = (tmp_path / f"{exercise.path.stem}.py").read_text("utf-8")
        assert "[[" not in text.partition("\n\n")[0] and "[[figure" not in capsys.readouterr().out
        assert not [line for line in text.split("\n") if line != line.rstrip()], "an empty line tells where the bug is"
        (tmp_path / f"{exercise.path.stem}.py").unlink()


def test_check_names_file_and_line(capsys, tmp_path):
    path = tmp_path / "bytes_saved.py"
    path.write_text("answer = \n")
    status, said = run(capsys, "check", path)
    assert status == 1 and said.startswith(f"{path}:1: this is not valid Python")


def test_hints_come_one_by_one(capsys):
    first = run(capsys, "hint", "reverse", 1)[1]
    assert first.startswith("Hint 1 of 3: ") and "The next one: academy exercise hint first_kernel/reverse\n" in first
    second, third, again = (run(capsys, "hint", "reverse")[1] for _ in range(3))
    assert second.startswith("Hint 2 of 3: ") and third.startswith("Hint 3 of 3: ") and "The next one" not in third
    assert again == f"{third}There are no more. The solution stands on the exercise's page, folded.\n"


def test_a_print_in_every_program_shows_the_first_and_the_last_lines(capfd, tmp_path):
    path = tmp_path / "reverse.py"
    text = exercise_files.named("reverse").solution.replace("n - 1 - offsets", "n - offsets")
    path.write_text(text.replace("    mask =", "    for i in range(60):\n        print('i is', i)\n    mask ="))
    assert cli.main(["exercise", "check", str(path)]) == 1
    printed = [line for line in capfd.readouterr().out.split("\n") if line.startswith(("i is", "…"))]
    assert len(printed) <= 2 * SHOWN + 1 and "0" in printed[0] and "59" in printed[-1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("start", "nothing"), "there is no exercise 'nothing': academy exercise list"),
        (("start", "revers"), "there is no exercise 'revers'. Did you mean reverse?"),
        (("hint", "first_kernel/revrese"), "Did you mean first_kernel/reverse?"),
        (("hint", "reverse", 7), "has hints 1 to 3, not 7"),
        (("check", "nowhere.py"), "No such file"),
    ],
)
def test_bad_use_is_told(capsys, arguments, message):
    status, said = run(capsys, *arguments)
    assert status == 2 and message in said


def test_check_reads_what_an_editor_saved_and_names_what_it_cannot_read(capsys, tmp_path):
    path = tmp_path / "bytes_saved.py"
    path.write_bytes(b"\xef\xbb\xbfanswer = 8000\r\n")
    assert run(capsys, "check", path)[0] == 0
    path.write_bytes(b"# \xe4\nanswer = 8000\n")
    status, said = run(capsys, "check", path)
    assert status == 2 and f"{path}:1: this file isn't UTF-8" in said


def test_a_full_disk_leaves_no_empty_starter(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    status, said = run(capsys, "start", "bytes_saved")
    assert status == 2 and "bytes_saved.py was not written: No space left on device" in said
    assert not list(tmp_path.iterdir())
