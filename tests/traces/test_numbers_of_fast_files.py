"""A fast file's notes quote numbers of its run, as a lesson's do: a minimum, so that they stay."""

import re

import pytest

from academy.book import layout
from academy.traces import faults, store

FILES = [path for path in layout.kernels(store.ROOT) if layout.group(store.ROOT, path) == faults.FAST]


@pytest.mark.parametrize("path", FILES, ids=lambda path: layout.module_name(store.ROOT, path))
def test_enough_numbers(path):
    assert faults.too_few_numbers(path.read_text("utf-8")) == ""


def test_a_fast_file_is_checked(tmp_path, monkeypatch):
    """Also one that lies in a package."""
    path = tmp_path / "annotated_examples/fast/low_bit/planes.py"
    path.parent.mkdir(parents=True)
    path.write_text("@triton.jit\ndef a_kernel(x):\n" + "    x += 1\n" * faults.LINES_FOR_A_NUMBER)
    monkeypatch.setattr(store, "ROOT", tmp_path)
    assert [problem.path for problem in faults._too_few(path)] == ["annotated_examples/fast/low_bit/planes.py"]
    assert faults._too_few(tmp_path / "elsewhere.py") == []


def test_a_file_without_its_numbers_is_reported():
    text = layout.module_path(store.ROOT, "fast.softmax").read_text("utf-8")
    silent = re.sub(r"`[^`\n]* = [^`\n]*`", "a number", text)
    assert not faults.too_few_numbers(text)
    assert "its notes quote" in faults.too_few_numbers(silent) and "need at least" in faults.too_few_numbers(silent)
