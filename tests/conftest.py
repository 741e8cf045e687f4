"""What every test shares: where kernels run, and memory that is poisoned before anybody writes to it."""

import gc

gc.disable()  # until tests are collected: all that is made until then stays

import logging
import os
import re
from collections import Counter
from pathlib import Path

# Small tiles, and several processes on few cores: NumPy's threads, too, would only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
import torch

from academy.runtime import device
from tests import daily
from tests.site import browser

pytest_plugins = ["tests.processes"]
if device.INTERPRET:
    # Small tensors, and several processes on few cores: PyTorch's own threads would only wait for each other.
    torch.set_num_threads(1)


def pytest_configure():
    """Bytecode, which some test leaves in these folders in any case: every test that lists one meets it."""
    for folder in ("docs/learn", "exercises"):
        bytecode = Path(__file__).resolve().parents[1] / folder / "__pycache__/kept.pyc"
        bytecode.parent.mkdir(exist_ok=True)
        bytecode.touch()


def pytest_xdist_auto_num_workers():
    """Two more than there are cores: tests wait, for a browser, a compiler or a process. With one more, two cores had
    nothing to do for a sixth of the time."""
    return len(os.sched_getaffinity(0)) + 2 if hasattr(os, "sched_getaffinity") else None


def pytest_report_header(config):
    return f"kernels: {device.describe()}"


#: Tests that fork this process a thousand times. They come first: a fork costs the more, the more memory there is.
FORKING = tuple(f"tests/judge/test_{name}" for name in ("corpus", "faults", "inputs", "configurations", "batch"))
FORKING += ("tests/exercises/",)
#: Tests that wait for a process which compiles for a minute. They begin first: last, they would keep one core waiting.
WAITING = "tests/compiler/test_every_kernel.py", "tests/guides/test_compiled_claims.py"
#: Open files that a process of the tests may come to. It keeps about a hundred for good: its own pipes, the cache, the
#: compiler's process, Python in `tests/python.py`, Chromium, fonts. A test that leaves one for each tensor or process
#: is soon beyond twice that, and a run of all of them at the limit of 1,024 that many systems have. It doubles each
#: time that it is exceeded, so that one leak is one failure.
most_open = 256
FILES = Path("/proc/self/fd")


@pytest.hookimpl(tryfirst=True)  # before `-m` looks at the marks
def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: (not item.nodeid.startswith(WAITING), not item.nodeid.startswith(FORKING)))
    daily.mark(items)
    for item in items:
        if device.INTERPRET and item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device: the interpreter can't show it"))
        if not device.INTERPRET and item.get_closest_marker("interpreted"):
            item.add_marker(pytest.mark.skip(reason="about Triton's interpreter"))


def pytest_collection_finish():
    gc.freeze()  # tests and modules stay, so that no collection need look at them
    gc.enable()
    gc.set_threshold(20_000)  # looking for cycles among what is new takes a tenth of the time, too, and finds few


def pytest_terminal_summary(terminalreporter):
    """Skipped tests are easily overlooked: say how many a browser would have run."""
    reasons = [report.longrepr[2] for report in terminalreporter.stats.get("skipped", [])]
    if count := sum(browser.MISSING in reason for reason in reasons):
        tests = "1 test was" if count == 1 else f"{count} tests were"
        terminalreporter.write_line(f"{tests} left out for want of a browser. To run them: {browser.HOW}", yellow=True)


@pytest.fixture(autouse=True)
def fresh_start():
    """`torch.empty` returns NaN (integers: the largest), so an element that a kernel forgets to write shows; and random
    numbers are the same in every order of the tests. Afterwards few files are open.

    `torch.use_deterministic_algorithms` and, on a CPU, `torch.manual_seed` would import PyTorch's compiler, through
    which every launch then goes, and take as long as a small test.
    """
    torch.set_deterministic_debug_mode("warn")
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.default_generator.manual_seed(0) if device.INTERPRET else torch.manual_seed(0)
    yield
    global most_open
    if FILES.is_dir() and len(os.listdir(FILES)) > most_open:
        most_open *= 2
        opened = Counter(re.sub(r"\d+", "", os.path.realpath(FILES / number)) for number in os.listdir(FILES))
        pytest.fail(f"{opened.total()} files are open, most often {opened.most_common(8)}")


@pytest.fixture
def logged():
    """The messages of warnings and errors that are logged from now on. (pytest's own fixture comes with a plugin that
    looks at every logger six times for each test, a third of what a small one takes.)"""
    messages: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: messages.append(record.getMessage())
    logging.getLogger().addHandler(handler)
    yield messages
    logging.getLogger().removeHandler(handler)


if not device.INTERPRET:

    @pytest.fixture(autouse=True)
    def returned_memory():
        """What PyTorch keeps of a card's memory after a large test goes back: tests may run in several processes."""
        yield
        if torch.cuda.memory_reserved() > 2**30:
            torch.cuda.empty_cache()
