"""What other processes make for a build: their answers are right, their end harms nobody, and none of them stays."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from academy.book.layout import ROOT
from academy.files import cache
from academy.site import background, markdown_copies, project_parts, worker

PAGE = "<h1>Title</h1><p>A <em>word</em>.</p>"
#: Does the jobs `sleep` for as long as they say, and ends at `die`; answers with the job otherwise.
STAND_IN = """
import json, os, sys, time
for line in sys.stdin:
    kind, about = json.loads(line)
    if kind == "die":
        os._exit(3)
    time.sleep(float(about) if kind == "sleep" else 0)
    print(json.dumps([kind, about]), flush=True)
"""


@pytest.fixture
def helpers(monkeypatch):
    """One process that does as it is told."""
    popen = subprocess.Popen
    monkeypatch.setattr(
        background.subprocess, "Popen", lambda _, **options: popen([sys.executable, "-c", STAND_IN], **options)
    )
    background.begin(1)
    yield background
    background.end()


def begun(kind: str, about: str) -> None:
    """Wait until the process works on this."""
    while not (background._jobs[kind, about].running() or background._jobs[kind, about].done()):
        time.sleep(0.01)


def made(kind: str, about: str):
    """What another process answers that works on it already."""
    background.ask(kind, about)
    begun(kind, about)
    return background.answer(kind, about)


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize(
    ("kind", "about", "answer"),
    [
        ("copy", PAGE, "# Title\n\nA *word*."),
        ("marks", "backprop_math/no_such_page.md", None),  # what goes wrong there is no answer,
        ("copy", "<p>next</p>", "next"),  # and the next one comes
    ],
)
def test_an_answer(kind, about, answer):
    assert made(kind, about) == answer == (markdown_copies.converted(about) if kind == "copy" else None)


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize(("kind", "about"), [("marks", "backprop_math/vector_add.md"), ("results", "vector_add")])
def test_what_is_kept_is_there_for_this_process(kind, about, monkeypatch):
    made(kind, about)
    monkeypatch.setattr(project_parts, "kept", lambda name, key, make, keep: cache.get(name, key))
    assert getattr(project_parts, kind)(about), "nothing is kept under this key"


def test_what_is_being_made_is_waited_for_and_what_is_not_begun_is_left_to_the_caller(helpers):
    helpers.ask("sleep", "0.3", "30", "31")
    begun("sleep", "0.3")
    left = helpers._jobs["sleep", "31"]
    assert helpers.answer("sleep", "31") is None and helpers.answer("sleep", "never asked for") is None
    assert helpers.answer("sleep", "0.3") == ["sleep", "0.3"]
    begun("sleep", "30")
    assert left.cancelled(), "a job that the caller does is done twice"


def test_a_process_that_ends_before_its_time_leaves_its_jobs_to_the_caller(helpers):
    helpers.ask("die", "")
    helpers.ask("echo", "after")
    begun("die", "")
    assert helpers.answer("die", "") is None and helpers.answer("echo", "after") is None


def test_without_a_process_the_caller_makes_everything():
    background.begin(0)
    background.ask("copy", PAGE)
    assert background.answer("copy", PAGE) is None
    background.end()
    assert background.answer("copy", PAGE) is None


@pytest.fixture(scope="module")
def real():
    background.begin(1)
    yield background
    background.end()


def test_every_kind_that_is_asked_for_is_known():
    text = "".join(path.read_text("utf-8") for path in sorted((ROOT / "academy/site").glob("*.py")))
    asked, answered = (set(re.findall(rf'background\.{what}\("(\w+)"', text)) for what in ("ask", "answer"))
    assert asked == answered == set(worker.MAKES)


BUILD = """
import sys, time
from academy.site import background
background.begin(1)
background.ask("verified", "docs")
while not any(job.running() for job in background._jobs.values()):
    time.sleep(0.01)
print(background._processes[0].pid, flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_stays_however_the_build_ends(how):
    build = subprocess.Popen(
        [sys.executable, "-c", BUILD], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    pid = int(build.stdout.readline())
    assert lives(pid)
    build.send_signal(how)
    build.communicate(timeout=60)
    started = time.monotonic()
    while lives(pid):
        assert time.monotonic() - started < 60, "it works on for nobody"
        time.sleep(0.05)


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
