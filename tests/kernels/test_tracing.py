"""torch.compile traces the public functions without a graph break, at a second and a third size, too. No GPU is needed.

What is traced is what a GPU would get, except for two launchers' schedules; see trace_without_gpu.py. That the results
are right, test_compile.py shows on a GPU. From the second call on a size that changed is a symbol.
"""

import json

import pytest

from tests.kernels import harness


def traced(name, *cases):
    """For each case (what changes, whether there are gradients, `dynamic`) and each shape, "traced" or the error."""
    return harness.without_gpu("trace_without_gpu.py", *map(json.dumps, (name, *cases)))


@pytest.mark.parametrize("name", ["swiglu", "geglu", "cross_entropy"])
def test_any_size(name):
    for outcomes in traced(name, ("rows", True, None), ("columns", True, None), ("both", True, None)):
        assert set(outcomes) == {"traced"}


@pytest.mark.parametrize("name", ["softmax", "layernorm"])
def test_where_the_width_is_a_constant(name):
    """As the docstrings have it: another width by itself without a gradient, or told whether sizes change."""
    sizes = ("rows", True, None), ("both", True, None)
    widths = ("columns", False, None), ("columns", True, True), ("columns", True, False)
    *right, (first, *others) = traced(name, *sizes, *widths, ("columns", True, None))
    for outcomes in right:
        assert set(outcomes) == {"traced"}
    # If this fails, PyTorch has learned it: take the warning out of both docstrings and out of the guide.
    assert first == "traced" and all("ConstantVariable" in error for error in others)
