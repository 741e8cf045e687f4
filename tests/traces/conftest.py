"""Kernel files made up for a test, recorded in this process."""

import json
import textwrap

import pytest

from academy.runtime import device
from academy.files import cache

if not device.INTERPRET:
    collect_ignore_glob = ["test_*.py"]  # a compiled kernel can't be recorded

PREAMBLE = """
import torch
import triton
import triton.language as tl

"""


@pytest.fixture
def kernel_file(tmp_path):
    """Write a kernel file: `kernel_file(source)` -> its path. The imports are put in front."""
    count = iter(range(100))

    def write(source: str, name: str = "", folder=None):
        path = (folder or tmp_path) / f"{name or f'example_{tmp_path.name}_{next(count)}'.replace('-', '_')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PREAMBLE + textwrap.dedent(source))
        return path

    return write


@pytest.fixture
def record(kernel_file):
    """Record a kernel file: `record(source)` -> (path, Recording)."""
    from academy.traces import worker
    from academy.traces.recording import Recording

    def run(source: str):
        path = kernel_file(source)
        return path, Recording(worker.record(path, [path]))

    return run


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """An empty cache, whose files are closed afterwards."""
    monkeypatch.setattr(cache, "FILE", tmp_path / "cache" / "academy.sqlite")
    yield
    cache.close()


@pytest.fixture
def in_process(monkeypatch):
    """Record in this process, which spares a test the import of torch in another one. Returns the sizes of the runs."""
    from academy.traces import store, worker

    runs = []

    def run(paths, line):
        runs.append(len(paths))
        for path in paths:
            worker.sys.modules.pop(path.stem, None)
        recorded = [worker.record(path, store.built_on(path)) for path in paths]
        return json.loads(json.dumps(recorded)), ""

    monkeypatch.setattr(store, "_record", run)
    return runs


@pytest.fixture(autouse=True)
def not_compiled(request, monkeypatch):
    """`academy trace` compiles what it has recorded, which takes seconds; tests of that say so with a marker."""
    from academy import compiler

    if not request.node.get_closest_marker("compiles"):
        monkeypatch.setattr(compiler, "available", lambda: False)
