"""classics/geglu: values, gradients, hostile inputs, errors, mutants. Most tests come from `GatedUnitTests`."""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import functools

import pytest
import torch

from annotated_examples.classics import geglu as lesson
from tests.kernels import gated_units, harness
from tests.kernels.gated_units import GatedUnitTests, packed
from tests.kernels.harness import DTYPES, Mutant, randn

MUTANTS = [
    Mutant("row stride of the gate ignored", "row_start(row, stride_gate_m,", "row_start(row, N,", count=2),
    Mutant("row stride of up ignored", "row_start(row, stride_up_m,", "row_start(row, N,", count=2),
    Mutant("exact where tanh is asked for", 'TANH=approximate == "tanh"', "TANH=False", count=3),
    Mutant("backward of the other form", "dout, gate, up, BLOCK_N, TANH=approximate ==", "dout, gate, up, BLOCK_N, TANH=approximate !="),
    Mutant("packed backward of the other form", "dout, x, BLOCK_N, TANH=approximate ==", "dout, x, BLOCK_N, TANH=approximate !="),
    Mutant("tail on the wrong side", "tl.where(x < 0, tail, 1 - tail)", "tl.where(x > 0, tail, 1 - tail)"),
    Mutant("one coefficient's last digits", "0.11962930113077164", "0.11963"),
    Mutant("tail by a difference", "tl.where(x < 0, tail, 1 - tail)", "0.5 * (1 + tl.where(x < 0, 2 * tail - 1, 1 - 2 * tail))"),
    Mutant("cubic coefficient in the slope", "0.134145", "0.044715"),
    Mutant("tanh form with overflow", "1 / (1 + exp(-double_z))", "exp(double_z) / (1 + exp(double_z))"),
    Mutant("slope without the weight", "slope = weight + gate * weight_slope", "slope = gate * weight_slope"),
    Mutant("gradient of up without the gate", "dup = dout * activation", "dup = dout * weight"),
    Mutant("the form is lost on the way to the kernel", "chunk(2, dim=-1), approximate)", "chunk(2, dim=-1))"),
]  # fmt: skip


def check(module):
    """Everything a mutant has to get past: both forms, each against its own reference."""
    for approximate in ("none", "tanh"):
        ours, packed_ours, reference, packed_reference = (
            functools.partial(f, approximate=approximate)
            for f in (module.geglu, module.geglu_packed, lesson.geglu_reference, lesson.geglu_packed_reference)
        )
        gated_units.check_values(ours, packed_ours, reference, packed_reference)
        inputs = dict(gate=-2 - randn(3, 30).abs(), up=randn(3, 30))
        harness.assert_right(ours, reference, inputs, randn(3, 30))
        gated_units.assert_the_same_without_gradients(ours, packed_ours, randn(3, 18))
    assert largest_relative_error_of_the_tail(module) < 1e-6


def largest_relative_error_of_the_tail(module, low=-3.0):
    """Of the exact weight for negative gates, against erfc in float64. `gelu(x) / x`, with `up` = 1."""
    gate = torch.linspace(low, -1e-3, 4000, device=harness.DEVICE)
    weight = module.geglu_forward(gate, torch.ones_like(gate)).double() / gate.double()
    exact = torch.special.erfc(-gate.double() / 2**0.5) / 2
    return ((weight - exact) / exact).abs().max().item()


def test_check_passes():
    check(lesson)


test_mutant_is_caught = harness.mutant_test(lesson, MUTANTS, check)


class TestExact(GatedUnitTests):
    lesson, name = lesson, "geglu"

    @pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
    def test_infinities_and_nan(self, dtype):
        """Against the formula: PyTorch's own GELU of +inf is NaN in its vectorised CPU code, and inf on a GPU."""
        gate, up = gated_units.special_pairs(dtype)
        out = lesson.geglu(gate, up)
        expected = (gate.float() * torch.special.ndtr(gate.float()) * up.float()).to(dtype)
        torch.testing.assert_close(out, expected, equal_nan=True)

    @pytest.mark.gpu
    @pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
    def test_infinities_and_nan_as_pytorch(self, dtype):
        gate, up = gated_units.special_pairs(dtype)
        self.right(gate, up, torch.ones_like(gate))
        self.right_packed(packed(gate, up), torch.full_like(gate, float("inf")))

    def test_the_tail_keeps_its_digits(self):
        """Where PyTorch's `1 + erf` has one digit left."""
        assert largest_relative_error_of_the_tail(lesson, low=-10.0) < 1e-5


class TestTanh(GatedUnitTests):
    lesson, name, options = lesson, "geglu", dict(approximate="tanh")

    @pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
    def test_infinities_and_nan(self, dtype):
        gate, up = gated_units.special_pairs(dtype)
        self.right(gate, up, torch.ones_like(gate))
        self.right_packed(packed(gate, up), torch.full_like(gate, float("inf")))


@pytest.mark.parametrize("approximate", ["erf", "Tanh", True, None], ids=str)
def test_bad_approximate(approximate):
    for call in (
        lambda: lesson.geglu(randn(2), randn(2), approximate),
        lambda: lesson.geglu_packed(randn(2), approximate),
    ):
        with pytest.raises(ValueError, match="approximate must be one of 'none', 'tanh', got"):
            call()
