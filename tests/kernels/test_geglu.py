"""classics/geglu: values, gradients, hostile inputs, errors, mutants. Most tests come from `GatedUnitTests`."""

import pytest
import torch

from annotated_examples.classics import geglu as lesson
from tests.kernels import gated_units, harness
from tests.kernels.gated_units import GatedUnitTests, packed
from tests.kernels.harness import DTYPES, randn


def largest_relative_error_of_the_tail(module, low=-3.0):
    """Of the exact weight for negative gates, against erfc in float64. `gelu(x) / x`, with `up` = 1."""
    gate = torch.linspace(low, -1e-3, 4000, device=harness.DEVICE)
    weight = module.geglu_forward(gate, torch.ones_like(gate)).double() / gate.double()
    exact = torch.special.erfc(-gate.double() / 2**0.5) / 2
    return ((weight - exact) / exact).abs().max().item()


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


NEITHER = "approximate must be one of 'none', 'tanh', got"
test_bad_approximate = harness.raises_test(
    [(lambda f=f, way=way: f(way), ValueError, NEITHER) for way in ("erf", "Tanh", True, None)
     for f in (lambda way: lesson.geglu(randn(2), randn(2), way), lambda way: lesson.geglu_packed(randn(2), way))]
)  # fmt: skip
