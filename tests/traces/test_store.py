"""Recordings are kept by content: comments cost nothing, code does; a crash is named; nothing half-written is read."""

import multiprocessing
import time
from pathlib import Path

import pytest

from academy.book.layout import ROOT
from academy.traces import page, quotes, store
from academy.traces.recording import Recording
from tests.command.test_command_line import ended

SOURCE = """
@triton.jit
def one_kernel(x_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, {value})

def EXAMPLE():
    one_kernel[(1,)](torch.zeros(4), BLOCK=4)
"""


@pytest.fixture
def runs(own_cache, in_process):
    return in_process


def test_one_process_for_all_and_nothing_twice(runs, kernel_file, monkeypatch):
    files = [kernel_file(SOURCE.format(value=value)) for value in (1.0, 2.0)]
    recordings = store.load(files)
    assert runs == [2] and all(recordings[path].data["error"] is None for path in files)
    monkeypatch.setattr(store, "_read", {})  # as in another process
    again = store.load(files)
    assert runs == [2] and [again[path].data for path in files] == [recordings[path].data for path in files]
    store.load(files, again=True)
    assert runs == [2, 2]


def test_a_comment_is_free_and_moves_the_lines(runs, kernel_file):
    path = kernel_file(SOURCE.format(value=1.0))
    before = store.load([path])[path]
    text = path.read_text().replace(
        "    offsets =", "    # two lines more:\n    # `pid=0: offsets = [0, 1, 2, 3]`\n    offsets ="
    )
    path.write_text('"""A docstring."""\n' + text.lstrip())
    after = store.load([path])[path]
    assert runs == [1]
    lines = {step.line: step for step in after.steps(after.launches[0], (0, 0, 0))}
    store_line = next(i for i, line in enumerate(path.read_text().split("\n"), 1) if "tl.store" in line)
    assert lines[store_line].accesses and len(lines) == len(before.steps(before.launches[0], (0, 0, 0)))
    assert quotes.check(path, path.name, after) == []


def test_every_line_that_the_viewer_shows_moves():
    """Of a Gluon kernel, whose orders of steps name lines too."""
    path = ROOT / "annotated_examples/gluon/tile_copy.py"
    recording = store.load([path])[path]

    def shown(by):
        moved = {file: {line: line + by for line in lines} for file, lines in recording.data["files"].items()}
        found = []
        for launch in page.viewer_data(path, Recording(recording.data, moved))["launches"]:
            found.append(launch["line"])
            for order in launch["orders"]:
                found += [line for _, line, _ in order["told"] if line] + [
                    s["line"] for s in order["spans"] if "line" in s
                ]
        return found

    assert len(shown(0)) > 10 and shown(2) == [line + 2 for line in shown(0)]


def test_code_is_recorded_again(runs, kernel_file):
    path = kernel_file(SOURCE.format(value=1.0))
    store.load([path])
    path.write_text(path.read_text().replace("1.0", "2.0"))
    recording = store.load([path])[path]
    assert runs == [1, 1]
    assert recording.value(recording.launches[0]["tensors"][0]["after"]).tolist() == [2.0] * 4


def test_what_a_file_builds_on_counts(monkeypatch, tmp_path):
    monkeypatch.setattr(store, "ROOT", tmp_path)
    monkeypatch.setattr(store, "machinery", lambda files: [])
    folder = tmp_path / "annotated_examples"
    folder.mkdir()
    (folder / "base.py").write_text("x = 1  # one\n")
    (folder / "user.py").write_text("from annotated_examples import base\n")
    assert store.built_on(folder / "user.py") == [folder / "user.py", folder / "base.py"]
    first = store._key(folder / "user.py")
    (folder / "base.py").write_text("x = 1  # two\n")
    assert store._key(folder / "user.py") == first
    (folder / "base.py").write_text("x = 2\n")
    assert store._key(folder / "user.py") != first


ENDLESS = """
import os, pathlib
def EXAMPLE():
    pathlib.Path({told!r}).write_text(str(os.getpid()))
    while True:
        pass
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="asks /proc which processes still run")
def test_nothing_records_on_when_the_process_that_waits_is_killed(kernel_file, tmp_path):
    told = tmp_path / "pid"
    path = kernel_file(ENDLESS.format(told=str(told)))
    waiting = multiprocessing.get_context("fork").Process(target=store.load, args=[[path], True])
    waiting.start()
    wait_for(lambda: told.is_file() and told.read_text())
    waiting.kill()
    wait_for(lambda: ended(told.read_text()))


def wait_for(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_crash_is_named_and_the_others_are_recorded(own_cache, kernel_file):
    crash = kernel_file("import os\ndef EXAMPLE():\n    os.abort()\n")
    good = kernel_file(SOURCE.format(value=1.0))
    recordings = store.load([crash, good])
    assert "the recording process ended with status -6" in recordings[crash].data["error"]["message"]
    assert recordings[good].data["error"] is None
    assert not store.is_kept(crash) and store.is_kept(good)


def test_what_a_file_prints_by_any_way_is_no_result(own_cache, kernel_file):
    """The results of the recording process come through its standard output."""
    loud = (
        SOURCE.format(value=1.0)
        + '    import os, sys\n    os.write(1, b"{}\\n")\n    print("told", file=sys.__stdout__)\n'
    )
    path = kernel_file(loud)
    recording = store.load([path])[path]
    assert recording.data["error"] is None and len(recording.launches) == 1


def test_paths_in_a_recording_are_relative(runs):
    path = store.ROOT / "annotated_examples/tutorials/vector_add.py"
    data = store.load([path])[path].data
    assert list(data["files"]) == ["annotated_examples/tutorials/vector_add.py"]
    assert str(store.ROOT) not in str(data)
