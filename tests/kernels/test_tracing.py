"""torch.compile traces the public functions without a graph break, at a second and a third size, too. No GPU is needed.

What is traced is what a GPU would get, except for two launchers' schedules; see trace_without_gpu.py. That the results
are right, test_compile.py shows on a GPU.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("trace_without_gpu.py")


def traced(name, changing, gradient=True, dynamic=None):
    """For each shape, "traced" or the error."""
    arguments = map(json.dumps, (name, changing, gradient, dynamic))
    run = subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr[-2000:]
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", ["softmax", "layernorm", "swiglu", "geglu", "cross_entropy"])
@pytest.mark.parametrize("changing", ["rows", "both"])
def test_other_sizes(name, changing):
    """From the second call on a size that changed is a symbol."""
    assert set(traced(name, changing)) == {"traced"}


@pytest.mark.parametrize("name", ["swiglu", "geglu", "cross_entropy"])
def test_other_columns(name):
    assert set(traced(name, "columns")) == {"traced"}


@pytest.mark.parametrize("name", ["softmax", "layernorm"])
@pytest.mark.parametrize("options", [dict(gradient=False), dict(dynamic=True), dict(dynamic=False)], ids=str)
def test_other_columns_where_the_width_is_a_constant(name, options):
    """As the docstrings have it: without a gradient, or told whether sizes change."""
    assert set(traced(name, "columns", **options)) == {"traced"}


@pytest.mark.parametrize("name", ["softmax", "layernorm"])
def test_what_the_docstrings_warn_of(name):
    """If this fails, PyTorch has learned it: take the warning out of both docstrings and out of the guide."""
    first, *others = traced(name, "columns")
    assert first == "traced" and all("ConstantVariable" in error for error in others)
