"""A fast file's notes quote numbers of its run, as a lesson's do: a minimum, so that they stay."""

import re

import pytest

from academy.traces import faults, store

FILES = sorted((store.ROOT / faults.FAST).glob("[!_]*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_enough_numbers(path):
    """A file that has enough must not be excused: the list of those that don't gets shorter, never longer."""
    too_few = faults.too_few_numbers(path.read_text("utf-8"))
    assert bool(too_few) == (path.name in faults.TOO_FEW), too_few or f"{path.name} has enough: take it off the list"


def test_a_file_without_its_numbers_is_reported():
    text = (store.ROOT / faults.FAST / "softmax.py").read_text("utf-8")
    silent = re.sub(r"`[^`\n]* = [^`\n]*`", "a number", text)
    assert not faults.too_few_numbers(text)
    assert "its notes quote" in faults.too_few_numbers(silent) and "need at least" in faults.too_few_numbers(silent)
