"""Processes that may die leave nothing behind."""

import os
import tempfile

from academy.judge import process


def dies(job):
    with open(os.path.join(tempfile.mkdtemp(), "kernel.py"), "w") as file:
        file.write("x = 1")
    yield "written"
    os._exit(job)


def test_temporary_files_go_with_their_process(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    items = [item for _, item in process.stream(dies, [3, 4])]
    assert items.count("written") == 2 and [item.kind for item in items if item != "written"] == ["exit", "exit"]
    assert not left(tmp_path)


def left(folder):
    """Beside the socket of the server that is forked where there is a GPU, which lives as long as this process."""
    return [path for path in folder.iterdir() if not path.name.startswith("pymp-")]


def test_a_walk_that_is_given_up_leaves_none(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    walk = process.stream(dies, [3])
    assert next(walk)[1] == "written" and left(tmp_path)
    walk.close()
    assert not left(tmp_path)
