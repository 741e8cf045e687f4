"""The name that was meant: swapped letters are one mistake, and nothing is suggested where nothing is near."""

import pytest

from academy.command import misspelt

KNOWN = ["load", "store", "arange", "program_id", "sum", "dot", "zeros", "_private", "mask"]


@pytest.mark.parametrize(
    "name, meant",
    [("laod", "load"), ("stroe", "store"), ("arnage", "arange"), ("progam_id", "program_id"), ("msk", "mask")]
    + [("xyz", None), ("private", None), ("", None)],
)
def test_the_nearest_name(name, meant):
    assert misspelt.near(name, KNOWN) == meant


def test_an_error_without_a_name_near_it_says_nothing():
    assert misspelt.suggestion(NameError("no name")) == "" == misspelt.suggestion(ValueError("laod"))
