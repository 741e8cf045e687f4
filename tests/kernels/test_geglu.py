"""classics/geglu: values, gradients, hostile inputs, errors, mutants. Most tests come from `GatedUnitTests`."""

import functools

import pytest
import torch

from annotated_examples.classics import geglu as lesson
from tests.kernels import gated_units, harness
from tests.kernels.gated_units import GatedUnitTests, packed
from tests.kernels.harness import DTYPES, Mutant, randn

NEW_LIKE_GATE = "torch.empty_like(gate, memory_format=torch.contiguous_format)"

MUTANTS = [
    Mutant("row stride of the gate ignored", "row * stride_gate", "row * n_cols", count=2),
    Mutant("row stride of up ignored", "row * stride_up", "row * n_cols", count=2),
    Mutant("row stride of the upstream gradient ignored", "row * stride_dout", "row * n_cols"),
    Mutant("row stride of the packed gradient ignored", "row * stride_grad", "row * n_cols", count=2),
    Mutant("column stride ignored", "t if t.stride(-1) == 1 else t.contiguous()", "t"),
    Mutant("backward overwrites the gate", f"dgate = {NEW_LIKE_GATE}", "dgate = gate.detach()"),
    Mutant("backward overwrites up", "dup = torch.empty_like(dgate)", "dup = up.detach()"),
    Mutant("forward overwrites up", f"out = {NEW_LIKE_GATE}", "out = up.detach()"),
    Mutant("packed backward overwrites x", "torch.empty_like(x, memory_format=torch.contiguous_format)", "x.detach()"),
    Mutant("halves swapped", "*x.chunk(2, dim=-1)", "*x.chunk(2, dim=-1)[::-1]", count=3),
    Mutant("exact where tanh is asked for", ', approximate == "tanh")', ", False)", count=2),
    Mutant("tanh where exact is asked for", ', approximate == "tanh")', ", True)", count=2),
    Mutant(
        "backward of the other form",
        "strides[:-1], BLOCK, approximate ==",
        "strides[:-1], BLOCK, approximate !=",
    ),
    Mutant("density not normalised", "0.3989422804014327 * exponential", "exponential"),
    Mutant("tail on the wrong side", "tl.where(x < 0, tail, 1 - tail)", "tl.where(x > 0, tail, 1 - tail)"),
    Mutant("one coefficient's last digits", "0.11962930113077164", "0.11963", count=1),
    Mutant(
        "polynomial of degree seven", "p = 0.035674791783094406 * t - 0.15720313787460327", "p = -0.15720313787460327"
    ),
    Mutant(
        "tail by a difference",
        "tl.where(x < 0, tail, 1 - tail)",
        "0.5 * (1 + tl.where(x < 0, 2 * tail - 1, 1 - 2 * tail))",
    ),
    Mutant("cubic coefficient", "(1 + 0.044715 * x * x)", "(1 + 0.044 * x * x)"),
    Mutant("cubic coefficient in the slope", "0.134145", "0.044715"),
    Mutant("sigmoid of z instead of 2z", "tl.exp(-double_z)", "tl.exp(-0.5 * double_z)"),
    Mutant("tanh form with overflow", "1 / (1 + tl.exp(-double_z))", "tl.exp(double_z) / (1 + tl.exp(double_z))"),
    Mutant("slope without the weight", "slope = weight + gate * weight_slope", "slope = gate * weight_slope"),
    Mutant("slope without the gate", "slope = weight + gate * weight_slope", "slope = weight + weight_slope"),
    Mutant("gradient of the gate without up", "dgate = dactivation * slope", "dgate = dout * slope"),
    Mutant("gradient of up without the gate", "dup = dout * activation", "dup = dout * weight"),
    Mutant("no overflow in float16", "dactivation = dactivation.to(tl.float16).to(tl.float32)", "pass"),
    Mutant("grid drops the tail", "(n_cols + BLOCK - 1) // BLOCK", "max(n_cols // BLOCK, 1)"),
    Mutant("every width a multiple of sixteen", "while VECTOR > 1 and", "while False and"),
    Mutant("row strides taken for multiples", "for size in (n_cols, *strides)", "for size in (n_cols,)"),
    Mutant("every program does the first block", "(pid % blocks_per_row)", "(pid % 1)"),
    Mutant("every program does the first block of one row", "block = pid.to(", "block = (0 * pid).to("),
    Mutant("every tensor is taken for one row", "ONE_ROW=rows == 1", "ONE_ROW=True"),
    Mutant("no tensor is taken for one row, and the last row for the first", "ONE_ROW=rows == 1", "ONE_ROW=rows > 2"),
    Mutant("the rest of a long row is forgotten", "    launch(kernel, 1, rest,", "    0 and launch(kernel, 1, rest,"),
    Mutant("the rest starts too late", "t.view(-1)[n_cols:]", "t.view(-1)[n_cols + 1 :]"),
    Mutant("mask off by one", "mask = cols < n_cols", "mask = cols < n_cols - 1", count=2),
    Mutant("no mask on the store", "out, mask=mask)", "out)"),
    Mutant("no mask on the gradients' store", "dup, mask=mask)", "dup)"),
    Mutant("second derivative is silently wrong", "    @once_differentiable\n", "", count=2),
]


def check(module):
    """Everything a mutant has to get past: both forms, each against its own reference."""
    for approximate in ("none", "tanh"):
        ours, packed_ours, reference, packed_reference = (
            functools.partial(f, approximate=approximate)
            for f in (module.geglu, module.geglu_packed, lesson.geglu_reference, lesson.geglu_packed_reference)
        )
        gated_units.check(ours, packed_ours, reference, packed_reference)
        inputs = dict(gate=-2 - randn(3, 30).abs(), up=randn(3, 30))
        harness.assert_right(ours, reference, inputs, randn(3, 30))
    gated_units.stores_stay_inside(module.geglu_forward_kernel, module.geglu_backward_kernel, TANH=False)
    assert largest_relative_error_of_the_tail(module) < 1e-6


def largest_relative_error_of_the_tail(module, low=-3.0):
    """Of the exact weight for negative gates, against erfc in float64. `gelu(x) / x`, with `up` = 1."""
    gate = torch.linspace(low, -1e-3, 4000, device=harness.DEVICE)
    weight = module.geglu_forward(gate, torch.ones_like(gate)).double() / gate.double()
    exact = torch.special.erfc(-gate.double() / 2**0.5) / 2
    return ((weight - exact) / exact).abs().max().item()


def test_check_passes():
    check(lesson)


@pytest.mark.parametrize("mutant", harness.mutant_parameters(MUTANTS))
def test_mutant_is_caught(mutant, tmp_path):
    harness.assert_caught(lesson, mutant, check, tmp_path)


class TestExact(GatedUnitTests):
    function = staticmethod(lesson.geglu)
    packed_function = staticmethod(lesson.geglu_packed)
    reference = staticmethod(lesson.geglu_reference)
    packed_reference = staticmethod(lesson.geglu_packed_reference)
    forward = staticmethod(lesson.geglu_forward)
    backward = staticmethod(lesson.geglu_backward)
    packed_backward = staticmethod(lesson.geglu_packed_backward)
    cost = staticmethod(lesson.cost)

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
    function = staticmethod(functools.partial(lesson.geglu, approximate="tanh"))
    packed_function = staticmethod(functools.partial(lesson.geglu_packed, approximate="tanh"))
    reference = staticmethod(functools.partial(lesson.geglu_reference, approximate="tanh"))
    packed_reference = staticmethod(functools.partial(lesson.geglu_packed_reference, approximate="tanh"))
    forward = staticmethod(functools.partial(lesson.geglu_forward, approximate="tanh"))
    backward = staticmethod(functools.partial(lesson.geglu_backward, approximate="tanh"))
    packed_backward = staticmethod(functools.partial(lesson.geglu_packed_backward, approximate="tanh"))
    cost = staticmethod(lesson.cost)

    @pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
    def test_infinities_and_nan(self, dtype):
        gate, up = gated_units.special_pairs(dtype)
        self.right(gate, up, torch.ones_like(gate))
        self.right_packed(packed(gate, up), torch.full_like(gate, float("inf")))


def test_the_two_forms_differ_and_each_matches_its_own_reference():
    """An approximate kernel compared with the exact function passes any tolerance that hides the approximation."""
    gate, up, upstream = (
        torch.linspace(-3, 3, 200, device=harness.DEVICE),
        torch.ones(200, device=harness.DEVICE),
        randn(200),
    )
    results = {
        (name, form): harness.gradients(functools.partial(f, approximate=form), dict(gate=gate, up=up), upstream)
        for name, f in (("ours", lesson.geglu), ("pytorch", lesson.geglu_reference))
        for form in ("none", "tanh")
    }
    for key in ("out", "dgate", "dup"):
        gap = (results["pytorch", "none"][key] - results["pytorch", "tanh"][key]).abs().max()
        assert gap > 1e-4
        for form in ("none", "tanh"):
            error = (results["ours", form][key] - results["pytorch", form][key]).abs().max()
            assert error < gap / 100, f"{key} of {form}: error {error:.2g} beside a gap of {gap:.2g}"
        crossed = (results["ours", "tanh"][key] - results["pytorch", "none"][key]).abs().max()
        assert crossed > gap / 2


@pytest.mark.parametrize("approximate", ["erf", "Tanh", True, None], ids=str)
def test_bad_approximate(approximate):
    for call in (
        lambda: lesson.geglu(randn(2), randn(2), approximate),
        lambda: lesson.geglu_packed(randn(2), approximate),
    ):
        with pytest.raises(ValueError, match="approximate must be one of 'none', 'tanh', got"):
            call()
