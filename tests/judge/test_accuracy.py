"""academy/judge/accuracy: the rule passes what PyTorch itself gets, and nothing much worse."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from academy.judge import accuracy

EPS = torch.finfo(torch.float32).eps
ODD = (math.nan, math.inf, -math.inf)


ONES, ZEROS, UP = torch.ones(4), torch.zeros(4), torch.tensor([math.inf])
EXACT = torch.randn(1000, generator=torch.Generator().manual_seed(0)).double()
NOISE = torch.randn(1000, generator=torch.Generator().manual_seed(1)).double() * EXACT.abs().max() * 1e-3
MANY = torch.randn(100_000, generator=torch.Generator().manual_seed(2))


def changed(tensor, place, value):
    """With another value at this place."""
    return tensor.index_fill(0, torch.tensor([place]), value)


#: A result, PyTorch's, the exact one (None: PyTorch's), and what is wrong with it; None where it passes.
RESULTS = {
    "exact": (MANY, MANY, None, None),
    "PyTorch's own error": ((EXACT - NOISE).float(), (EXACT + NOISE).float(), EXACT, None),
    "three times it": ((EXACT + 3 * NOISE).float(), (EXACT + NOISE).float(), EXACT, "RMS error"),
    "one bad element": (changed(MANY, 77, MANY[77] + 20 * EPS * MANY.abs().max()), MANY, None, "largest error"),
    "ordinary rounding": (ONES + 3 * EPS, ONES, None, None),
    "more than that": (ONES + 5 * EPS, ONES, None, ""),
    "opposite infinities": (UP, -UP, None, ""),
    "shape": (torch.ones(3), ONES, None, "shape"),
    "dtype": (ONES.half(), ONES, None, "dtype"),
    "zero": (ZEROS, ZEROS, None, None),
    "beside zero": (ONES, ZEROS, None, ""),
    "empty": (ONES[:0], ONES[:0], None, None),
    **{f"{value} as PyTorch": (changed(ONES, 2, value), changed(ONES, 2, value), None, None) for value in ODD},
    **{f"{value} alone": (changed(ONES, 2, value), ONES / 3, None, f"{value} instead of 0.3333") for value in ODD},
    **{f"{value} there": (ONES, changed(ONES, 2, value), None, "element 2") for value in ODD},
}


@pytest.mark.parametrize("actual, pytorch, exact, message", RESULTS.values(), ids=RESULTS)
def test_the_rule(actual, pytorch, exact, message):
    said = accuracy.problem(actual, pytorch, pytorch.double() if exact is None else exact)
    assert said is None if message is None else message in said


@pytest.mark.parametrize("units, fine", [(3, True), (5, False)])
def test_sums_of_fewer_bits_have_a_higher_floor(units, fine):
    message = accuracy.problem(ONES + units * 2.0**-13, ONES, ONES.double(), eps=2.0**-13)
    assert (message is None) == fine


@given(st.floats(1e-30, 1e30), st.integers(1, 40))
def test_errors_do_not_depend_on_scale(scale, n):
    generator = torch.Generator().manual_seed(n)
    reference = torch.randn(n, generator=generator, dtype=torch.float64)
    actual = reference * (1 + 1e-3)
    plain, scaled = accuracy.errors(actual, reference), accuracy.errors(actual * scale, reference * scale)
    assert plain.rms == pytest.approx(scaled.rms, rel=1e-6)
    assert plain.largest == pytest.approx(scaled.largest, rel=1e-6)


@pytest.mark.parametrize("times, right", [(1.0, True), (1.8, True), (3.0, False), (float("nan"), False)])
def test_a_few_numbers_are_judged_over_several_draws(times, right):
    """In the first, PyTorch's error happens to be 0."""

    def three(seed):
        exact, generator = torch.tensor(1.0, dtype=torch.float64), torch.Generator().manual_seed(seed)
        ours, theirs = 1e-3 * torch.randn(2, generator=generator, dtype=torch.float64)
        return (exact + times * ours).float(), (exact + (theirs if seed else 0)).float(), exact

    report = accuracy.Report()
    report.compare("out", "a loss", *three(0), again=lambda: (three(seed) for seed in range(1, 16)))
    assert accuracy.problem(*three(0)) and (report.exit_status == 0) is right
    report = accuracy.Report()
    report.compare("out", "many", *(one.expand(9) for one in three(0)), again=lambda: pytest.fail("nine are enough"))
    assert report.exit_status == 1


def test_report_status_and_table(capsys):
    report = accuracy.Report()
    assert report.exit_status == 1, "nothing compared is not a success"
    x = torch.ones(3)
    report.compare("out", "n = 3", x, x, x.double())
    assert report.print() == 0
    report.compare("out", "n = 3", x + 1, x, x.double())
    assert report.print() == 1
    printed = capsys.readouterr().out
    assert "2 comparisons, 1 wrong" in printed
    assert "\nout, n = 3, float32: RMS error 1 is more than twice PyTorch's 0 " in printed, (
        "below the table, on one line"
    )
