"""`make test` passes on a machine without Chromium, and says what it left out there."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import conftest
from tests.site import browser

ROOT = Path(__file__).resolve().parents[1]


def test_whoever_opens_a_browser_is_skipped(monkeypatch):
    monkeypatch.setattr(browser, "CHROMIUM", None)
    with pytest.raises(pytest.skip.Exception, match=browser.MISSING):
        browser.Browser()


@pytest.mark.parametrize(("count", "said"), [(0, ""), (1, "1 test was"), (3, "3 tests were")])
def test_the_end_of_the_run_says_how_many_tests_a_browser_would_run(count, said):
    skipped = [SimpleNamespace(longrepr=("a.py", 1, f"Skipped: {browser.MISSING}"))] * count
    skipped += [SimpleNamespace(longrepr=("b.py", 1, "Skipped: needs a CUDA device"))]
    lines = []
    reporter = SimpleNamespace(stats={"skipped": skipped}, write_line=lambda line, **_: lines.append(line))
    conftest.pytest_terminal_summary(reporter)
    assert lines == ([f"{said} left out for want of a browser. To run them: {browser.HOW}"] if said else [])


def test_ci_runs_once_without_one():
    assert re.search(r"^CHROMIUM= .*pytest.* tests/site", (ROOT / ".ci/run").read_text("utf-8"), re.M)
