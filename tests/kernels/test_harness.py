"""tests/kernels/harness: what fails is shown at the line of the test, not in the tools."""

import importlib
from pathlib import Path

import pytest
import torch

from academy.judge import accuracy
from tests.kernels import harness


def one_too_many(x):
    return x + 1


def written_to(x):
    x.detach().add_(1)
    return x.clone()


def outside(x):
    out = torch.empty_like(x.detach())
    out.as_strided((out.numel() + 1,), (1,), out.storage_offset()).fill_(0)
    return x.clone()


@pytest.mark.parametrize(
    "function, message",
    [
        (one_too_many, "out: RMS error"),
        (written_to, "x was written to"),
        (outside, "1 elements were written outside"),
    ],
)
def test_a_failure_is_shown_at_the_line_of_the_test(function, message):
    with pytest.raises(AssertionError, match=message) as caught:
        harness.assert_right(function, torch.clone, dict(x=harness.randn(5)))
    assert_shown_here(caught)


def test_a_comparison_that_fails_is_shown_at_its_line():
    x = torch.ones(3)
    with pytest.raises(AssertionError, match="dtype") as caught:
        accuracy.check("x", x.half(), x, x.double())
    assert_shown_here(caught)


def assert_shown_here(caught):
    shown = caught.traceback.filter(caught)
    assert [Path(entry.path).name for entry in shown] == [Path(__file__).name]


def mutants_in(value):
    """All mutants in a list of them, or in tuples with other things, as a test's parameters are."""
    if isinstance(value, harness.Mutant):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from mutants_in(each)


def test_every_mutant_is_found_in_a_kernel_file():
    """Most of them run at night only; what they change has to be there every day."""
    examples = harness.ROOT / "annotated_examples"
    code = [harness.code_of(path.read_text("utf-8")) for path in sorted(examples.rglob("*.py"))]
    tests = [path for path in Path(__file__).parent.glob("test_*.py") if "Mutant(" in path.read_text("utf-8")]
    modules = [importlib.import_module(f"tests.kernels.{path.stem}") for path in tests]
    mutants = [(module, each) for module in modules for each in mutants_in([*vars(module).values()])]
    assert len(mutants) > 100
    lost = [
        f"{Path(module.__file__).name}: no kernel file has {mutant.old!r} {mutant.count} times ({mutant.name})"
        for module, mutant in mutants
        if mutant.start < 0  # by hand: the engine finds its own anew each time
        and not any(text.count(mutant.old) == mutant.count for text in code)
    ]
    assert not lost, "\n".join(lost)
