"""Each hostile answer gets a message, and never "Right"."""

import pytest

from academy.runtime import device
from academy import cli
from academy.exercises import limited
from academy.judge.process import Limits
from tests.exercises.hostile.corpus import CORPUS

pytestmark = pytest.mark.skipif(not device.INTERPRET, reason="GPU processes take seconds to start")

#: Of one answer; the terminal's are longer.
LIMITS = Limits(seconds=3, megabytes=1024)
#: In `make test`; the nightly run tries all.
SAMPLE = {
    "sys.exit", "os._exit at the top", "raise KeyboardInterrupt", "MemoryError", "while True", "recursion", "a thread",
    "equal to everything", "replacing checks", "replacing torch.empty_like", "importing the solution", "atexit",
    "the caller's frame by a generator", "infinitely nested", "a tensor on meta", "printing the verdict", "a file",
}  # fmt: skip


def test_the_corpus_is_large_and_the_sample_is_in_it():
    assert len(CORPUS) >= 100 and len({answer.name for answer in CORPUS}) == len(CORPUS)
    assert {answer.name for answer in CORPUS} >= SAMPLE


@pytest.mark.parametrize(
    "answer",
    [pytest.param(each, marks=[] if each.name in SAMPLE else pytest.mark.nightly) for each in CORPUS],
    ids=lambda answer: answer.name.replace(" ", "_"),
)
def test_a_hostile_answer_gets_a_message(answer):
    outcome = limited.marked(answer.exercise, answer.text, 1, LIMITS)
    assert outcome.state in ("failed", "error") and outcome.message.strip()
    assert answer.message in outcome.message, outcome.message


@pytest.mark.parametrize("text", ["import sys\nsys.exit(0)\n", "raise SystemExit(0)\n", "import os\nos._exit(0)\n"])
def test_the_command_exits_1_for_whatever_is_no_checked_pass(text, tmp_path, capsys, monkeypatch):
    path = tmp_path / "bytes_saved.py"
    path.write_text(f"{text}answer = 8000\n")
    assert cli.main(["exercise", "check", str(path)]) == 1
    assert capsys.readouterr().out.startswith(f"{path}:")
    monkeypatch.setattr("academy.compiler.rules.allowed.check", lambda *_: None)
    assert cli.main(["exercise", "check", str(path)]) == 1
    assert "exit" in capsys.readouterr().out.lower()
