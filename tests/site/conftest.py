"""The site is built once for all tests of this folder, as a reader builds it: strictly, in a process of its own.

The build takes minutes, so it begins when the tests have been collected, beside the tests of other folders.
"""

import atexit
import contextlib
import fcntl
import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import processes
from tests.site.browser import CHROMIUM, MISSING, Browser, served

ROOT = Path(__file__).resolve().parents[2]
# As the workflow that publishes the site sets them; mkdocs.yml reads them here too. test_addresses.py unsets them.
os.environ["SITE_URL"] = "https://example.org/triton-academy/"
os.environ["REPO_URL"] = "https://github.com/example/triton-academy"


#: A build that takes longer hangs. A busy machine may need a multiple of the minutes that it takes alone.
BUILD_SECONDS = 3600
#: Fixtures that build the site.
BUILT = {"site", "unpublished"}


def pytest_collection_modifyitems(items):
    """The limit of a test, `timeout` in pyproject.toml or its own, is for what it does itself: the build that it waits
    for takes as long as the machine's other work lets it."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if "browser" in fixtures and not CHROMIUM:  # said before the site is built for it
            item.add_marker(pytest.mark.skip(reason=MISSING))
        if BUILT & fixtures:
            mark = item.get_closest_marker("timeout")
            item.add_marker(pytest.mark.timeout(*(mark.args if mark else ()), func_only=True), append=False)


def pytest_collection_finish(session):
    items = [item for item in session.items if not item.get_closest_marker("skip")]
    wanted = any("site" in getattr(item, "fixturenames", ()) for item in items)
    if wanted and not session.config.option.collectonly:
        processes.beside.append(functools.partial(_begin, session.config._tmp_path_factory))


def _begin(factory) -> None:
    with contextlib.suppress(AssertionError):  # of which the fixture speaks
        built(factory)


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Path:
    """The folder of the built site.

    Chapters are executed where EXECUTE_NOTEBOOKS says so (`make site-check`): tests/learn runs their code in any case.
    """
    return built(tmp_path_factory)


def built(factory) -> Path:
    """The first worker that comes builds it for all, the others wait."""
    shared = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # on a machine with a card
        shared = shared.parent
    folder, done = shared / "built-site", shared / "built-site.done"
    with open(shared / "built-site.lock", "w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)  # a fork doesn't inherit it
        if not done.exists():
            command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
            environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
            building = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            atexit.register(building.terminate)  # which does nothing once it has ended
            try:
                errors = building.communicate(timeout=BUILD_SECONDS)[1]
            except subprocess.TimeoutExpired:
                building.kill()
                errors = f"the build took longer than {BUILD_SECONDS} s"
            assert building.wait() == 0, errors
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
