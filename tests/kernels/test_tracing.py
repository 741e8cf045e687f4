"""torch.compile traces the public functions without a graph break, at a second and a third size, too. No GPU is needed.

What is traced is what a GPU would get, except for one launcher's schedule; see trace_without_gpu.py. That the results
are right, test_compile.py shows on a GPU. From the second call on a size that changed is a symbol.
"""

import json

import pytest

from tests.kernels import harness


def traced(name, *cases):
    """For each case (what changes, whether there are gradients, `dynamic`) and each shape, "traced" or the error."""
    return harness.without_gpu("trace_without_gpu.py", *map(json.dumps, (name, *cases)))


@pytest.mark.nightly  # a minute each
@pytest.mark.parametrize("name", ["fast.softmax", "fast.layernorm", "swiglu", "geglu", "fast.cross_entropy"])
def test_any_size(name):
    """With gradients, PyTorch being told nothing; and, where only the width changes, what a user may tell it."""
    changes = ("rows", True, None), ("columns", True, None), ("both", True, None)
    told = ("columns", True, True), ("columns", True, False)
    for outcomes in traced(name, *changes, *told, ("columns", False, None)):
        assert set(outcomes) == {"traced"}


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["softmax", "layernorm", "cross_entropy"])
def test_lessons_at_any_size(name):
    for outcomes in traced(name, ("both", True, None), ("columns", False, None)):
        assert set(outcomes) == {"traced"}


@pytest.mark.parametrize("name", ["fast.softmax", pytest.param("fast.layernorm", marks=pytest.mark.nightly)])
def test_rows_and_columns_that_change(name):
    (outcomes,) = traced(name, ("both", True, None))
    assert set(outcomes) == {"traced"}
