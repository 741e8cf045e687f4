"""academy/judge/accuracy: the rule passes what PyTorch itself gets, and nothing much worse."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from academy.judge import accuracy

EPS = torch.finfo(torch.float32).eps


def test_the_exact_result_passes():
    x = torch.randn(100)
    assert accuracy.problem(x, x, x.double()) is None


def test_pytorchs_own_error_passes_and_three_times_it_fails():
    reference = torch.randn(1000).double()
    noise = torch.randn(1000).double() * reference.abs().max() * 1e-3
    pytorch = (reference + noise).float()
    assert accuracy.problem((reference - noise).float(), pytorch, reference) is None
    assert "RMS error" in accuracy.problem((reference + 3 * noise).float(), pytorch, reference)


def test_one_bad_element_among_many_fails():
    reference = torch.randn(100_000).double()
    actual = reference.float()
    actual[77] += 20 * EPS * reference.abs().max()
    assert "largest error" in accuracy.problem(actual, reference.float(), reference)


def test_floor_allows_ordinary_rounding():
    reference = torch.ones(10).double()
    assert accuracy.problem(torch.full((10,), 1 + 3 * EPS), torch.ones(10), reference) is None
    assert accuracy.problem(torch.full((10,), 1 + 5 * EPS), torch.ones(10), reference) is not None


def test_sums_of_fewer_bits_have_a_higher_floor():
    ones, reference = torch.ones(10), torch.ones(10).double()
    for units, fine in ((3, True), (5, False)):
        message = accuracy.problem(torch.full((10,), 1 + units * 2.0**-13), ones, reference, eps=2.0**-13)
        assert (message is None) == fine


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_must_sit_where_pytorchs_does(value):
    finite, special = torch.ones(4), torch.ones(4)
    special[2] = value
    assert accuracy.problem(special, special, special.double()) is None
    assert "element 2" in accuracy.problem(special, finite, finite.double())
    assert accuracy.problem(special, finite / 3, finite.double() / 3).endswith(f"{value} instead of 0.3333")
    assert "element 2" in accuracy.problem(finite, special, special.double())


def test_opposite_infinities_differ():
    up, down = torch.tensor([math.inf]), torch.tensor([-math.inf])
    assert accuracy.problem(up, down, down.double()) is not None


def test_shape_and_dtype_must_agree():
    x = torch.ones(3)
    assert "shape" in accuracy.problem(torch.ones(4), x, x.double())
    assert "dtype" in accuracy.problem(x.half(), x, x.double())


def test_zero_reference_is_judged_absolutely():
    zero = torch.zeros(5)
    assert accuracy.problem(zero, zero, zero.double()) is None
    assert accuracy.problem(zero + 1, zero, zero.double()) is not None


def test_empty_is_right():
    assert accuracy.problem(torch.ones(0), torch.ones(0), torch.ones(0).double()) is None


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
