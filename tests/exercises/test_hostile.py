"""Each hostile answer gets a message, and never "Right"; with the first wall down the second one holds."""

import functools
import os
import signal
import time

import pytest

from academy import cli, device
from academy.exercises import marking
from academy.exercises.apart import Apart
from academy.judge.process import Limits
from tests.exercises.hostile.corpus import CORPUS
from tests.test_command_line import ended

pytestmark = pytest.mark.skipif(not device.INTERPRET, reason="GPU processes take seconds to start")

#: Of one answer; the terminal's are longer.
START = functools.partial(Apart, limits=Limits(seconds=2, megabytes=1024))
#: In `make test`; the nightly run tries all.
SAMPLE = {
    "sys.exit", "os._exit at the top", "raise KeyboardInterrupt", "MemoryError", "while True", "recursion", "a thread",
    "equal to everything", "replacing checks", "replacing torch.empty_like", "importing the solution", "atexit",
    "the caller's frame by a generator", "infinitely nested", "a tensor on meta", "printing the verdict", "a file",
}  # fmt: skip


def _answers(only_alone=False):
    for answer in CORPUS:
        if answer.alone or not only_alone:
            marks = [] if answer.name in SAMPLE else [pytest.mark.nightly]
            yield pytest.param(answer, id=answer.name.replace(" ", "_"), marks=marks)


def test_the_corpus_is_large_and_the_sample_is_in_it():
    assert len(CORPUS) >= 100 and len({answer.name for answer in CORPUS}) == len(CORPUS)
    assert {answer.name for answer in CORPUS} >= SAMPLE


@pytest.mark.parametrize("answer", [*_answers()])
def test_a_hostile_answer_gets_a_message(answer):
    outcome = marking.mark(answer.exercise, answer.text, 1, START, compiled=False)
    assert outcome.state in ("failed", "error") and outcome.message.strip()
    assert answer.message in outcome.message, outcome.message


@pytest.mark.parametrize("answer", [*_answers(only_alone=True)])
def test_the_process_alone_is_enough_where_the_result_is_wrong(answer, monkeypatch):
    """Whatever a text does in its process, the verdict is made in another one."""
    monkeypatch.setattr("academy.exercises.allowed.check", lambda *_: None)
    monkeypatch.setattr("academy.compiler.refused.problems", lambda *_: [])
    outcome = marking.mark(answer.exercise, answer.text, 1, START, compiled=False)
    assert outcome.state in ("failed", "error") and outcome.message.strip()


@pytest.mark.parametrize("text", ["import sys\nsys.exit(0)\n", "raise SystemExit(0)\n", "import os\nos._exit(0)\n"])
def test_the_command_exits_1_for_whatever_is_no_checked_pass(text, tmp_path, capsys, monkeypatch):
    path = tmp_path / "bytes_saved.py"
    path.write_text(f"{text}answer = 8000\n")
    assert cli.main(["exercise", "check", str(path)]) == 1
    assert capsys.readouterr().out.startswith(f"{path}:")
    monkeypatch.setattr("academy.exercises.allowed.check", lambda *_: None)
    assert cli.main(["exercise", "check", str(path)]) == 1
    assert "exit" in capsys.readouterr().out.lower()


FORGED = """
import sys

frame = sys._getframe()
while "connection" not in frame.f_locals:
    frame = frame.f_back
connection = frame.f_locals["connection"]
while True:
    connection.send_bytes({reply!r})
    connection.recv_bytes()
"""


@pytest.mark.parametrize(
    "reply",
    [
        b'["value", null]', b'[{"list": ["value", true]}, []]', b'[{"list": ["value", {"Run": {"dict": []}}]}, []]',
        b"", b"{}", b"\x80\x04.", b'[{"list": ["calls", {"list": [0, {"list": []}]}]}, []]', b"[" * 100_000,
        b'[{"list": ["value", {"tuple": [{"float": "nan"}, {"float": "nan"}]}]}, []]',
        b'[{"list": ["value", {"tensor": [0, "torch.float32", [4], [1], 0]}]}, [["uint8", [1], "AA=="]]]',
    ],
)  # fmt: skip
@pytest.mark.parametrize("exercise", ["rows/merge", "first_kernel/reverse"])
def test_no_reply_that_a_text_makes_up_is_a_pass(exercise, reply, monkeypatch):
    """The text takes the connection over, and answers every question itself, with anything."""
    monkeypatch.setattr("academy.exercises.allowed.check", lambda *_: None)
    outcome = marking.mark(exercise, FORGED.format(reply=reply), 1, START, compiled=False)
    assert outcome.state in ("failed", "error") and outcome.message, outcome


HALF = """
import os, subprocess, sys, time

frame = sys._getframe()
while "connection" not in frame.f_locals:
    frame = frame.f_back
connection = frame.f_locals["connection"]
os.write(connection.fileno(), {sent!r})
{then}
"""


@pytest.mark.parametrize(
    ("sent", "then", "message"),
    [
        (b"\x00\x00\x00\xffhalf", "time.sleep(100)", "what does it wait for?"),
        (b"\x7f\xff\xff\xff", "time.sleep(100)", "the program"),
        (b"\x00\x00", "subprocess.Popen(['sleep', '9'], pass_fds=[connection.fileno()])\nos._exit(0)", "the program"),
    ],
)
def test_half_an_answer_keeps_nobody_waiting(sent, then, message, monkeypatch):
    monkeypatch.setattr("academy.exercises.allowed.check", lambda *_: None)
    start = functools.partial(Apart, limits=Limits(seconds=0.5))
    begun = time.monotonic()
    outcome = marking.mark("rows/merge", HALF.format(sent=sent, then=then), 1, start, compiled=False)
    assert outcome.state in ("failed", "error") and message in outcome.message, outcome
    assert time.monotonic() - begun < 60


def test_what_an_answer_has_started_ends_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr("academy.exercises.allowed.check", lambda *_: None)
    mark = tmp_path / "pid"
    started = f"open({str(mark)!r}, 'w').write(str(subprocess.Popen(['sleep', '99']).pid))"
    text = f"import subprocess\n\n{started}\nanswer = 8000\n"
    assert marking.mark("bytes_saved", text, 1, START).state == "passed"
    for _ in range(50):
        if ended(mark.read_text()):  # asked of /proc: a bare Debian has no `ps`
            return
        time.sleep(0.1)
    os.kill(int(mark.read_text()), signal.SIGKILL)
    raise AssertionError("a process of the answer is still there")
