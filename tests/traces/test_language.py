"""What people write in a kernel does here, recorded too, what it does in Triton's interpreter without any repair."""

import json
import os
from pathlib import Path

import pytest

from academy.runtime import device

if not device.INTERPRET:
    pytest.skip("compiled kernels don't pass through the interpreter", allow_module_level=True)

from academy.traces.recorder import Recorder
from academy.traces.watched_memory import WatchedMemory
from tests import python
from tests.traces import language_cases


@pytest.fixture(scope="module")
def plainly() -> dict[str, list | str]:
    """By case: what Triton gives."""
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    finished = python.run(["-m", language_cases.__name__], root, environment, timeout=120, check=True)
    return json.loads(finished.stdout)


def expected(name: str, plainly: dict[str, list | str]) -> list:
    if isinstance(wanted := plainly[name], str):
        if name not in language_cases.RIGHT:
            pytest.skip(f"Triton's interpreter can't do it in this version, or with this NumPy: {wanted}")
        return language_cases.data(language_cases.RIGHT[name]())
    return wanted


@pytest.mark.parametrize("name", language_cases.CASES)
def test_as_in_triton(name, plainly):
    assert language_cases.given(name) == expected(name, plainly)


@pytest.mark.parametrize("name", language_cases.CASES)
def test_as_in_triton_while_it_is_recorded(name, plainly):
    with WatchedMemory() as watched:
        recorder = Recorder(language_cases.FILES, watched)
        with recorder.running():
            found = language_cases.given(name)
    assert found == expected(name, plainly)
    launched = name != "warmup_launches_nothing"
    assert bool(recorder.launches) == launched and all(launch.touches for launch in recorder.launches[:1])


def test_most_of_it_is_compared_with_triton(plainly):
    """Where Triton itself fails there is little to compare."""
    failed = [name for name, found in plainly.items() if isinstance(found, str)]
    assert len(failed) < len(plainly) / 5, failed
