"""The site is built once for all tests of this folder, as a reader builds it: strictly, in a process of its own."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.site.browser import Browser, served

ROOT = Path(__file__).resolve().parents[2]
# As the workflow that publishes the site sets them; mkdocs.yml reads them here too. test_addresses.py unsets them.
os.environ["SITE_URL"] = "https://example.org/triton-academy/"
os.environ["REPO_URL"] = "https://github.com/example/triton-academy"


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Path:
    """The folder of the built site. The first worker that needs it builds it for all.

    Chapters are executed where EXECUTE_NOTEBOOKS says so (`make site-check`): tests/learn runs their code in any case.
    """
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder, done = shared / "built-site", shared / "built-site.done"
    with open(shared / "built-site.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
            environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
            result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
            assert result.returncode == 0, result.stderr
            done.touch()
    return folder


@pytest.fixture(scope="session")
def executed():
    """For tests of what readers get: the chapters of `site` with their output."""
    assert os.environ.get("EXECUTE_NOTEBOOKS") == "true", "set EXECUTE_NOTEBOOKS=true, as `make site-check` does"


@pytest.fixture(scope="session")
def address(site):
    with served(site) as url:
        yield url


@pytest.fixture(scope="session")
def browser():
    browser = Browser()
    yield browser
    browser.close()
