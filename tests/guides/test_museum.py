"""The museum of classic bugs: each exhibit is broken as the guide says, and the tool that it names finds it."""

import importlib.util
import re

import pytest
import torch

from tests import python
from tests.kernels.harness import ROOT

MUSEUM = ROOT / "docs" / "guides" / "museum"
EXHIBITS = sorted(p.stem for p in MUSEUM.glob("*.py"))
#: What `academy trace` says of those whose values look right in the interpreter (or may).
TRACED = {
    "race": r"race\.py:\d+:\d+: .*program",
    "unmasked_store": r"unmasked_store\.py:\d+:\d+: .*out",
    "unwritten_output": r"unwritten_output\.py:\d+:\d+: .*nobody",
    "zero_stride_upstream": r"zero_stride_upstream\.py:\d+:\d+: .*dy_ptr",
}


def exhibit(name):
    spec = importlib.util.spec_from_file_location(name, MUSEUM / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_at_least_twelve_and_all_in_the_guide():
    guide = (ROOT / "docs" / "guides" / "debugging.md").read_text("utf-8")
    assert len(EXHIBITS) >= 12
    assert sorted(re.findall(r"museum/(\w+)\.py:exhibit", guide)) == EXHIBITS


@pytest.mark.parametrize("name", EXHIBITS)
def test_the_mended_one_is_right(name):
    module = exhibit(name)
    torch.testing.assert_close(module.fixed(*module.inputs()), module.right(*module.inputs()))


@pytest.mark.parametrize("name", [n for n in EXHIBITS if n != "race"])
def test_the_broken_one_is_wrong(name):
    module = exhibit(name)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(module.broken(*module.inputs()), module.right(*module.inputs()))


def test_the_interpreter_hides_the_race():
    from academy.runtime import device

    if not device.INTERPRET:
        pytest.skip("compiled, a race may show or not")
    module = exhibit("race")
    torch.testing.assert_close(module.broken(*module.inputs()), module.right(*module.inputs()))


@pytest.mark.nightly
def test_every_exhibit_can_be_traced():
    from academy.traces import store

    recordings = store.load([MUSEUM / f"{name}.py" for name in EXHIBITS])
    assert [path.stem for path, recording in recordings.items() if recording.launches] == EXHIBITS


@pytest.mark.nightly
@pytest.mark.parametrize("name", TRACED)
def test_the_recorder_names_the_line(name):
    path = f"docs/guides/museum/{name}.py"
    done = python.run(["-m", "academy.cli", "trace", "--no-compile", path], ROOT, timeout=120)
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(TRACED[name], done.stdout + done.stderr), done.stdout + done.stderr


@pytest.mark.parametrize("barrier", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_the_lock_is_a_race_only_without_its_barrier(barrier, tmp_path):
    """What the guide quotes of the detector, line numbers and all."""
    text = (ROOT / "docs/guides/races/lock.py").read_text("utf-8")
    assert text.count("barrier=False") == 1
    path = tmp_path / "lock.py"
    path.write_text(text.replace("barrier=False", f"barrier={barrier}"))
    done = python.run(["-m", "academy.cli", "trace", "--no-compile", path], ROOT, timeout=120)
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == (0 if barrier else 1), said
    guide = (ROOT / "docs/guides/debugging.md").read_text("utf-8")
    quoted = " ".join(re.search(r"```text\n(race in column_sums_kernel.*?)```", guide, re.S)[1].split())
    assert (quoted in said) != barrier and ("race in" in said) != barrier
