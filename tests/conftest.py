"""What every test shares: where kernels run, and memory that is poisoned before anybody writes to it."""

import gc
import os

# Small tiles, and several processes on few cores: NumPy's threads, too, would only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
import torch

from academy.runtime import device
from academy.judge.mutants import Mutant
from tests.site import browser

if device.INTERPRET:
    # Small tensors, and several processes on few cores: PyTorch's own threads would only wait for each other.
    torch.set_num_threads(1)


def pytest_report_header(config):
    return f"kernels: {device.describe()}"


@pytest.hookimpl(tryfirst=True)  # before `-m` looks at the marks
def pytest_collection_modifyitems(items):
    with_mutants = set()
    for item in items:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        if any(isinstance(value, Mutant) for value in parameters.values()):
            # 500 kernels with a mistake take minutes, and say more about the tests than about the kernels: one of each
            # list runs every time, all of them at night. test_harness.py sees to it that their text is still found.
            if item.function in with_mutants:
                item.add_marker(pytest.mark.nightly)
            if not item.get_closest_marker("gpu"):
                with_mutants.add(item.function)
    for item in items:
        if device.INTERPRET and item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device: the interpreter can't show it"))
        if not device.INTERPRET and item.get_closest_marker("interpreted"):
            item.add_marker(pytest.mark.skip(reason="about Triton's interpreter"))


def pytest_collection_finish():
    gc.freeze()  # tests and modules stay, so that no collection need look at them
    gc.set_threshold(20_000)  # looking for cycles among what is new takes a tenth of the time, too, and finds few


def pytest_terminal_summary(terminalreporter):
    """Skipped tests are easily overlooked: say how many a browser would have run."""
    reasons = [report.longrepr[2] for report in terminalreporter.stats.get("skipped", [])]
    if count := sum(browser.MISSING in reason for reason in reasons):
        tests = "1 test was" if count == 1 else f"{count} tests were"
        terminalreporter.write_line(f"{tests} left out for want of a browser. To run them: {browser.HOW}", yellow=True)


@pytest.fixture(autouse=True)
def poisoned_memory():
    """`torch.empty` returns NaN (integers: the largest), so an element that a kernel forgets to write shows."""
    before = torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(before[0])
    torch.utils.deterministic.fill_uninitialized_memory = before[1]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def returned_memory(request):
    """Large tensors go back to the card after each test that needs one: tests may run in several processes."""
    yield
    if request.node.get_closest_marker("gpu"):
        torch.cuda.empty_cache()
