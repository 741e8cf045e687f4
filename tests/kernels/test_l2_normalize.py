"""recurrences/l2_normalize: values, the gradient, where eps stands, widths, layouts, errors, mutants."""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import math

import torch

from academy.judge import accuracy
from annotated_examples.recurrences import l2_normalize as module
from tests.kernels import harness
from tests.kernels.harness import DEVICE, Mutant, randn

MUTANTS = [
    Mutant("squares in the dtype of x", "acc += x * x", "acc += (x * x).to(x_ptr.dtype.element_ty)"),
    Mutant("rounding left in rows of one number", "if N == 1:", "if N == 0:"),
]  # fmt: skip


def check(module):
    """Everything a mutant has to get past."""
    one_number(module)
    rounded_once(module)


def one_number(module):
    """The difference is taken by a formula: all digits are right, where PyTorch has hardly any."""
    x, dy = randn(6, 1), randn(6, 1)
    mine = harness.gradients(module.l2_normalize, dict(x=x), dy)["dx"]
    exact = harness.gradients(module.l2_normalize_reference, dict(x=x.double()), dy.double())["dx"]
    assert accuracy.errors(mine, exact).rms < 4 * torch.finfo(torch.float32).eps


def rounded_once(module):
    """bfloat16 hides a lot below its 8 bits. Nearly every result must be the bfloat16 number nearest to the right one."""
    x = randn(16, 128, dtype=torch.bfloat16)
    exact = module.l2_normalize_reference(x.double()).bfloat16()
    assert (module.l2_normalize(x) == exact).float().mean() > 0.99


def test_check_passes():
    check(module)


test_mutant_is_caught = harness.mutant_test(module, MUTANTS, check)


def test_a_row_of_zeros_stays_zero():
    x = harness.leaf(torch.zeros(2, 8, device=DEVICE))
    y = module.l2_normalize(x)
    y.sum().backward()
    assert (y == 0).all()
    torch.testing.assert_close(x.grad, torch.full_like(x, 1e3), rtol=1e-6, atol=0)


def test_large_numbers_of_float16():
    """60000² is beyond float16; the sum is float32."""
    x = torch.full((1, 4), 60000.0, dtype=torch.float16, device=DEVICE)
    assert (module.l2_normalize(x) == 0.5).all()


test_errors = harness.refused_test(
    "change, error, message",
    [
        (dict(x=None), TypeError, "x must be a torch.Tensor, got NoneType"),
        (dict(x=torch.ones(3).double()), TypeError, "x must be one of float32, float16, bfloat16, got float64"),
        (dict(x=torch.tensor(1.0)), ValueError, "x must have"),
        (dict(eps=-1.0), ValueError, "eps must be at least 0, got -1.0"),
        (dict(eps="1"), TypeError, "eps must be a number, got str"),
        (dict(eps=math.inf), ValueError, "eps must be finite, got inf"),
    ],
    dict(x=torch.ones(3), eps=1e-6),
    module.l2_normalize,
)
