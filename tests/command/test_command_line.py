"""What every subcommand does when it is stopped, when nobody reads on, and with files that it can't take."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path

import pytest

from academy.runtime import device
from academy import cli
from academy.command import progress

ROOT = Path(__file__).resolve().parents[2]

# A subcommand `work` that gives two processes something which never ends, in the two ways in which ours do that.
WORK = """
import multiprocessing, os, signal, sys, threading, types
from academy import cli
from academy.judge import process as processes
processes.WORKERS = 2

def never_ends(*_):
    os.write(int(sys.argv[2]), f"{os.getpid()} ".encode())
    while True:
        pass

def check(_):
    return processes.in_parallel(never_ends, [1, 2])

def mutate(_):
    from academy.formulas.mutation import engine
    judge = types.SimpleNamespace(together=1, verdict=never_ends)
    return list(engine.verdicts(judge, [1, 2]))

def start(process, whole=multiprocessing.process.BaseProcess.start):
    for number in signals:
        os.kill(os.getpid(), number)
    whole(process)

if __name__ == "__main__":  # a process of a server imports this file again
    if sys.argv[3] == "another thread":  # its system call is ended by a signal, that of the main thread is not
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        signal.pthread_sigmask(signal.SIG_BLOCK, processes._STOPS)
    elif sys.argv[3] != "the main thread":
        signals = iter([int(sys.argv[4])])
        if sys.argv[3] == "fork":
            os.register_at_fork(after_in_parent=lambda: [os.kill(os.getpid(), number) for number in signals])
        else:
            server = multiprocessing.get_context("forkserver")
            processes.context = lambda: server
            multiprocessing.process.BaseProcess.start = start
    sys.modules["work"] = types.SimpleNamespace(main=vars()[sys.argv[1]])
    cli._PASSED_ON["work"] = "work"
    sys.exit(cli.main(["work"]))
"""


def ended(pid):
    """Whether a process has ended; what is left of one whose parent is gone counts as ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="asks /proc which processes still run")
@pytest.mark.parametrize(
    ("work", "name", "receiver"),
    [
        ("check", "SIGINT", "another thread"),
        ("mutate", "SIGTERM", "another thread"),
        pytest.param("check", "SIGTERM", "the main thread", marks=pytest.mark.nightly),
        pytest.param("mutate", "SIGINT", "the main thread", marks=pytest.mark.nightly),
    ],
)
def test_stopping_a_command_stops_its_processes(work, name, receiver, tmp_path):
    """Also by a signal that does not end the system call in which the command waits: one that has come just before."""
    reading, writing = os.pipe()
    script = tmp_path / "work.py"
    script.write_text(WORK)
    command = [sys.executable, str(script), work, str(writing), receiver, name]
    options = {"pass_fds": [writing], "start_new_session": True, "stderr": subprocess.PIPE, "text": True}
    running = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, **options)
    os.close(writing)
    workers = b""
    while len(workers.split()) < 2 or not workers.endswith(b" "):
        new = os.read(reading, 100)
        assert new, running.communicate()[1]
        workers += new
    if name == "SIGINT":
        os.killpg(running.pid, signal.SIGINT)  # Ctrl-C reaches every process of the terminal
    else:
        running.terminate()
    try:
        errors = running.communicate(timeout=30)[1]
        end = time.monotonic() + 20
        while not all(map(ended, workers.split())) and time.monotonic() < end:
            time.sleep(0.05)
        assert all(map(ended, map(int, workers.split())))
    finally:
        os.close(reading)
        for each in (running.pid, *map(int, workers.split())):
            if not ended(each):
                os.kill(each, signal.SIGKILL)
    assert running.returncode == 128 + signal.Signals[name]
    assert errors == ("\nacademy work: stopped\n" if name == "SIGINT" else "")


@pytest.mark.parametrize(
    ("work", "start"),
    [
        ("check", "fork"),
        ("mutate", "fork"),
        pytest.param("check", "forkserver", marks=pytest.mark.nightly),  # as where there is a GPU
        pytest.param("mutate", "forkserver", marks=pytest.mark.nightly),
    ],
)
def test_a_signal_in_the_middle_of_a_fork_is_not_lost(work, start, tmp_path):
    """What a handler raises there, Python drops: the command went on for ever."""
    reading, writing = os.pipe()
    (tmp_path / "work.py").write_text(WORK)
    command = [sys.executable, str(tmp_path / "work.py"), work, str(writing), start, str(int(signal.SIGINT))]
    options = {"pass_fds": [writing], "start_new_session": True, "stderr": subprocess.PIPE, "text": True}
    running = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, **options)
    try:
        errors = running.communicate(timeout=60)[1]
    finally:
        os.close(reading), os.close(writing)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
    assert running.returncode == 130 and errors == "\nacademy work: stopped\n"


def test_nobody_reads_on():
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "academy.cli", "exercise", "list"]
    done = subprocess.run(command, cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(("command", "takes"), [("check", "pages under docs"), ("mutate", "derivations and kernels")])
@pytest.mark.parametrize("file", ["tests/runtime/test_checks.py", "outside"])
def test_a_file_in_which_nothing_is_checked_is_no_success(command, takes, file, tmp_path, capsys, monkeypatch):
    (tmp_path / "mine.py").write_text("x = 1\n")
    monkeypatch.chdir(ROOT)
    assert cli.main([command, file if file != "outside" else str(tmp_path / "mine.py")]) == 2
    said = capsys.readouterr().err
    assert "nothing in this file would be checked" in said and takes in said


@pytest.mark.parametrize("named", [True, False], ids=["named", "all files"])
def test_a_file_that_is_no_utf_8_is_named(named, tmp_path, capsys, monkeypatch):
    for folder in ("backprop_math", "annotated_examples"):
        (tmp_path / folder).mkdir()
    page = tmp_path / "backprop_math/sum.md"
    page.write_bytes(b"# Caf\xe9\n")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["check", *([str(page)] if named else [])]) == 2
    assert "sum.md:1: this file isn't UTF-8 (byte 0xe9)" in capsys.readouterr().err


def test_a_byte_order_mark_changes_nothing(tmp_path, capsys, monkeypatch):
    kernel = "annotated_examples/tutorials/vector_add.py"
    for name in ("backprop_math/vector_add.md", kernel):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + (ROOT / name).read_bytes())
    monkeypatch.chdir(tmp_path)
    assert cli.main(["check", "backprop_math/vector_add.md"]) == 0, capsys.readouterr()
    shutil.copy(tmp_path / kernel, tmp_path / "mine.py")
    assert cli.main(["trace", "--no-compile", "mine.py"]) == 0, capsys.readouterr()


@pytest.mark.parametrize(
    "command",
    [
        "judge --only repeats",
        *(pytest.param(each, marks=pytest.mark.nightly) for each in ("trace --no-compile", "compile")),
    ],
)
def test_a_file_of_ones_own_may_lie_in_the_clone(command):
    """In a folder from which nothing is imported, by the command as it is installed."""
    program = Path(sys.executable).with_name("academy")
    with tempfile.TemporaryDirectory(dir=ROOT, prefix=".own") as folder:
        path = Path(folder) / "mine.py"
        example = "\n\ndef EXAMPLE():\n    scaled_add(torch.ones(5), torch.ones(5), 2.0)\n"
        path.write_text((ROOT / "tests/judge/kernels/scaled.py").read_text("utf-8") + example)
        done = subprocess.run([program, *command.split(), path], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done


@pytest.mark.parametrize("command", ["trace", "compile", "simulate", "judge"])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"# \xe4\n", ":1: this file isn't UTF-8"),
        (b"\xef\xbb\xbfx = 1\ndef f(:\n", ":2:7: invalid syntax"),
        (b"x = 1\x00\n", "null bytes"),
        (None, "mine.py"),
    ],
    ids=["latin 1", "a syntax error", "null bytes", "a folder"],
)
def test_a_file_that_is_no_python_is_named_in_one_line(command, content, said, tmp_path, capsys):
    if command == "simulate" and not device.INTERPRET:
        pytest.skip("the simulator runs where kernels are interpreted")
    path = tmp_path / "mine.py"
    path.mkdir() if content is None else path.write_bytes(content)
    assert cli.main([command, str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"academy {command}: ") and said in line and str(path) in line


def test_progress_is_for_a_terminal_and_leaves_nothing_in_a_file(capsys):
    with progress.bar(threads=False) as shown:
        shown.update(shown.add_task("checking", total=2), advance=1, refresh=True)
    assert capsys.readouterr() == ("", "")


def test_progress_counts(capsys, monkeypatch):
    from rich.console import Console

    console = Console(force_terminal=True, width=80)
    with progress.bar(console, threads=False) as shown:
        shown.update(shown.add_task("checking", total=3), advance=1, refresh=True)
    assert "checking" in (said := capsys.readouterr().out) and "1/3" in said


def test_a_file_gets_a_line_of_progress_at_once_and_every_ten_seconds(capsys, monkeypatch):
    now = iter([0.0, 4.0, 11.0, 11.0, 20.0])
    monkeypatch.setattr(progress, "time", types.SimpleNamespace(monotonic=lambda: next(now)))
    with progress.counting("checking", 3) as done:
        assert capsys.readouterr() == ("", "checking: 3 parts\n")
        done(), done(), done()
    assert capsys.readouterr() == ("", "checking: 2 of 3 parts\n")


def test_security_names_every_command_that_executes_a_file():
    """`academy bench` measures files of the project only."""
    said = (ROOT / "SECURITY.md").read_text("utf-8")
    commands = {*cli._PASSED_ON, "check", "mutate"} - {"bench"}
    assert not [command for command in commands if f"`academy {command}" not in said]
