"""`pytest -n 2`: each test runs once, and what a process of the tests says, or how it ends, the first one tells."""

import re
import selectors

import pytest

from academy.book.layout import ROOT
from tests import python

pytestmark = pytest.mark.interpreted
TESTS = """
import os, warnings, pytest

@pytest.fixture(scope="session")
def shared():
    yield
    print("given back")

@pytest.mark.parametrize("number", range(12))
def test_numbered(number, tmp_path, shared):
    tmp_path.joinpath("mine").touch(exist_ok=False)
    if number == 3:
        os._exit(7)
    if number == 5:
        warnings.warn("five")
    if number == 8:
        print("printed before", number)
        pytest.fail("eight")
    if number == 9:
        pytest.skip("nine")
"""


def ran(folder, tests, *options):
    """What pytest prints for a file of tests that two processes run."""
    (folder / "test_some.py").write_text(tests)
    (folder / "conftest.py").write_text('pytest_plugins = ["tests.processes"]')
    (folder / "x.ini").touch()
    return python.run(["-m", "pytest", "-n", "2", "-c", folder / "x.ini", *options, folder], cwd=ROOT).stdout


def test_each_test_runs_once_and_all_is_told(tmp_path):
    said = ran(tmp_path, TESTS, "-rA")
    assert "2 failed, 9 passed, 1 skipped, 1 warning in" in said
    assert sorted(map(int, re.findall(r"^(?:PASSED|FAILED) .*\[(\d+)\]", said, re.M))) == [*range(9), 10, 11]
    assert "The process of this test ended with status 7" in said
    assert "UserWarning: five" in said and "printed before 8" in said and ": nine" in said and "given back" in said


def test_the_first_failure_ends_all(tmp_path):
    said = ran(tmp_path, "import pytest\n@pytest.mark.parametrize('n', range(400))\ndef test(n):\n    assert n\n", "-x")
    assert "stopping after 1 failures" in said
    assert sum(map(int, re.findall(r"(\d+) passed", said))) < 300


def test_a_job_that_nobody_waits_for_any_more_is_not_answered_in_place_of_the_next(monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(selectors.DefaultSelector, "select", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        python.run(["-c", "print('the first')"])
    done = python.run(["-c", "print('the second'), exit(3)"])
    assert (done.returncode, done.stdout) == (3, "the second\n")
