"""A command that is ended from outside, while nobody reads on, leaves nothing behind, whenever that happens."""

import os
import random
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="asks /proc which processes still run")

# A command whose processes are all the time in the middle of a message: the three ways in which ours work for another.
WORK = """
import sys, types
from unittest import mock
from academy import cli
from academy.judge import process

process.WORKERS = 4
if sys.argv[2] == "forkserver":  # as where there is a GPU
    process.context = mock.patch("torch.cuda.is_available", lambda: True)(process.context)

def short(number):
    return "x" * 200_000

def many(number):
    while True:
        yield "x" * 200_000

def begun(told=[]):
    if not told:
        told.append(print("begun", flush=True))

def check(_):
    while True:
        process.in_parallel(short, list(range(300)), begun)

def mutate(_):
    for item in process.stream(many, [1, 2, 3]):
        begun()

if __name__ == "__main__":
    sys.modules["work"] = types.SimpleNamespace(main=globals()[sys.argv[1]])
    cli._PASSED_ON["work"] = "work"
    sys.exit(cli.main(["work"]))
"""


def living(mark: str) -> list[int]:
    """The processes that have inherited this variable."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if mark.encode() in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
            except OSError:  # it has ended, or is somebody else's
                pass
    return found


def stopped(command: list[str], moment: float, how: int, begun: bool = False) -> int:
    """Start it, end its whole group after so many seconds, while nobody reads its output; return its exit status."""
    mark = uuid.uuid4().hex
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "ACADEMY_TEST": mark}
    options: dict = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, start_new_session=True)
    running = subprocess.Popen(command, **options)
    if begun:
        assert running.stdout.readline() == b"begun\n", running.stderr.read()
    time.sleep(moment)
    running.stdout.close(), running.stderr.close()
    if how == signal.SIGKILL:  # of the process alone
        running.kill()
    elif running.poll() is None:
        os.killpg(running.pid, how)
    end = time.monotonic() + 10
    try:
        while (left := living(mark)) and time.monotonic() < end:
            running.poll()
            time.sleep(0.05)
        assert not left, f"ended after {moment:.2f} s: {len(left)} processes live on"
        return running.wait(5)
    finally:
        for pid in living(mark):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("way", "start", "how"),
    [
        pytest.param(way, start, how, marks=[] if (way, how) in quick else pytest.mark.nightly)
        for start, quick in (
            ("fork", [("check", signal.SIGTERM), ("mutate", signal.SIGKILL)]),
            ("forkserver", [("mutate", signal.SIGTERM)]),
        )
        for way in ("check", "mutate")
        for how in (signal.SIGTERM, signal.SIGKILL)
    ],
)
def test_nothing_lives_on(way, start, how, tmp_path):
    (tmp_path / "work.py").write_text(WORK)
    status = stopped([sys.executable, str(tmp_path / "work.py"), way, start], random.uniform(0.1, 1), how, begun=True)
    # Whoever writes at that moment may find first that nobody reads on.
    assert status in ((-how,) if how == signal.SIGKILL else (143, 141)), status


COMMANDS = {
    "check": ["annotated_examples/tutorials/vector_add.py"],
    "mutate": ["annotated_examples/tutorials/vector_add.py"],
    "judge": ["tests/judge/kernels/rows.py"],
    "trace": ["tests/corpus/rows_that_are_left_out_fixed.py"],
    "compile": ["docs/guides/judged/my_softmax.py"],
    "simulate": ["annotated_examples/gluon/flash_attention.py"],
    "exercise": ["check", "exercises/first_kernel/reverse.py"],
}


@pytest.mark.nightly
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_no_command_lives_on(command, how):
    words = [each if each == "check" else str(ROOT / each) for each in COMMANDS[command]]
    for _ in range(8):
        stopped([sys.executable, "-m", "academy.cli", command, *words], random.uniform(0.5, 6), how)
