"""The page for those who write with an assistant: each command on it runs, and its words are those of the tools."""

import json
import os
import re
import shutil

import pytest

from academy.compiler import available, rules
from academy.judge import report
from tests import python
from tests.kernels.harness import ROOT

PAGE = (ROOT / "docs/guides/for-assistants.md").read_text("utf-8")
COMMANDS = [
    line.partition("#")[0].strip()
    for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S)
    for line in block.strip().split("\n")
]


#: Every trial and the mutants take as long as all of the others, and tests/guides/test_judged.py runs them at night.
WHOLE = "academy judge my_softmax.py --json report.json"


@pytest.mark.parametrize(
    "command", [pytest.param(each, marks=[pytest.mark.nightly] * (each == WHOLE)) for each in COMMANDS]
)
def test_each_command_ends_well(command, tmp_path):
    name, *arguments = command.split()
    if not available() and "compile" in arguments:
        pytest.skip("Triton's compiler isn't installed")
    shutil.copy(ROOT / "docs/guides/judged/my_softmax.py", tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = python.run(["-m", f"{name}.cli", *arguments], tmp_path, environment, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    if "report.json" in arguments:
        trials = json.loads((tmp_path / "report.json").read_text("utf-8"))
        assert {"right", "group"} <= set(re.findall(r"\w+", json.dumps(trials)))


def test_every_tool_is_there():
    assert len(COMMANDS) >= 5 and WHOLE in COMMANDS
    assert {command.split()[1] for command in COMMANDS} == {"check", "compile", "trace", "judge"}


def test_the_verdicts_are_those_of_the_judge():
    source = (ROOT / report.__file__).read_text("utf-8")
    for word in ("right", "wrong", "refused", "remark", "not tried", "survived"):
        assert re.search(rf"^\| (?:\*n\* )?{word} \|", PAGE, re.M), word
        assert word in source


def test_the_rules_of_a_kernel_are_on_the_page():
    guide = (ROOT / "docs/guides/best-practice.md").read_text("utf-8")
    listed = guide.split("[start:rules]")[1].split("[end:rules]")[0]
    assert '--8<-- "docs/guides/best-practice.md:rules"' in PAGE
    assert sum(f"| {name} |" in listed for name in rules.every_rule()) >= 12
