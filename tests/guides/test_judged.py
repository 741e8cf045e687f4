"""The guide "Test your own kernel": what it says that the command prints is what the command prints."""

import os
import re
import subprocess
import sys

import pytest

from academy.runtime import device
from academy.judge.subject import Tensor
from academy.judge.trials import GROUPS
from tests.kernels.harness import ROOT

FOLDER = ROOT / "docs/guides/judged"
GUIDE = (ROOT / "docs/guides/test-your-own-kernel.md").read_text("utf-8")


def lines(text):
    """Without times, and without the machine's own line."""
    return [re.sub(r"\([\d.]+ s\)", "", line).rstrip() for line in text.strip().split("\n")[:-1]]


@pytest.mark.nightly
@pytest.mark.skipif(not device.INTERPRET, reason="the guide shows the interpreter's report")
@pytest.mark.parametrize("name, status", [("my_softmax", 0), ("my_rmsnorm", 1), ("my_swiglu", 1)])
def test_the_guide_shows_what_is_printed(name, status):
    command = [sys.executable, "-m", "academy.cli", "judge", f"{name}.py"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    done = subprocess.run(command, cwd=FOLDER, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == status, done.stderr
    assert lines(done.stdout) == lines((FOLDER / f"{name}.txt").read_text("utf-8"))


def test_every_file_is_shown():
    shown = re.findall(r'^--8<-- "docs/guides/judged/([\w.]+)"$', GUIDE, re.M)
    assert sorted({*shown, "my_rmsnorm.py", "my_swiglu.py"}) == sorted([path.name for path in FOLDER.glob("my_*")])
    for name in ("my_rmsnorm.py", "my_swiglu.py"):
        assert f"](judged/{name})" in GUIDE
    for line in re.findall(r"^```python\n(    .*)$", GUIDE, re.M):
        assert line in (FOLDER / "my_rmsnorm.py").read_text("utf-8")


def test_groups_and_strings_are_those_that_there_are():
    assert re.findall(r"^\| ([a-z-]+) \|", GUIDE.partition("| group |")[2], re.M) == list(GROUPS)
    for text in re.findall(r'"([^"\n]*)"', GUIDE.partition("| what you write")[2].partition("`SIZES")[0]):
        Tensor.parse("x", text)
