"""classics/layernorm and fast/layernorm: parameters of another dtype or left out, modules, errors, mutants."""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import types

import pytest
import torch
from torch.nn import functional as F

from academy.judge import accuracy
from annotated_examples.classics import layernorm as lesson
from annotated_examples.fast import layernorm as fast
from tests.kernels import harness
from tests.kernels.harness import DEVICE, Mutant, randn

module = harness.modules(lesson, fast)

LESSON_MUTANTS = [
    Mutant("product and average not cancelled", "tl.fma(g, tl.load(weight_ptr + offs_n, mask=mask, other=0.0).to(tl.float32), 0.0)", "g * tl.load(weight_ptr + offs_n, mask=mask, other=0.0).to(tl.float32)", count=2, gpu=True),
    Mutant("parameter gradients in the dtype of x", ".to(weight.dtype)", ".to(x.dtype)"),
]  # fmt: skip

FAST_MUTANTS = [
    Mutant("product and average not cancelled", "tl.fma(dy, weight[None, :], 0.0)", "dy * weight[None, :]", gpu=True),
]  # fmt: skip


def pytorch(x, weight=None, bias=None, eps=1e-5):
    """PyTorch's own operation. It wants one dtype: with parameters in another one, everything goes through float32."""
    mixed = any(p is not None and p.dtype != x.dtype for p in (weight, bias))
    to = lambda v: v if v is None or not mixed else v.float()  # noqa: E731
    return F.layer_norm(to(x), x.shape[-1:], to(weight), to(bias), eps).to(x.dtype)


def rows_and_parameters(*shape, dtype=torch.float32, scale=1.0, shift=0.0, parameters=None):
    """`x`, `weight`, `bias` for a call; `parameters` is another dtype for the last two."""
    x = (torch.randn(*shape, device=DEVICE) * scale + shift).to(dtype)
    return dict(
        x=x, weight=randn(shape[-1], dtype=parameters or dtype), bias=randn(shape[-1], dtype=parameters or dtype)
    )


def check(module):
    """One column, where product and average cancel; parameters of another dtype."""
    harness.assert_right(module.layernorm, pytorch, rows_and_parameters(9, 1), randn(9, 1))
    for parameters in (torch.float32, torch.float16):
        inputs = rows_and_parameters(3, 50, dtype=torch.bfloat16, parameters=parameters)
        harness.assert_right(module.layernorm, pytorch, inputs, randn(3, 50, dtype=torch.bfloat16))


def test_check_passes(module):
    check(module)


test_mutant_of_the_lesson_is_caught = harness.mutant_test(lesson, LESSON_MUTANTS, check)
test_mutant_of_the_fast_version_is_caught = harness.mutant_test(fast, FAST_MUTANTS, check)


@pytest.mark.parametrize("given", [(), ("weight",), ("bias",)], ids=["neither", "weight", "bias"])
def test_optional_parameters(module, given):
    inputs = rows_and_parameters(3, 50)
    inputs = {n: v for n, v in inputs.items() if n == "x" or n in given}
    harness.assert_right(module.layernorm, pytorch, inputs, randn(3, 50))


def test_worked_example_has_a_gradient(module, monkeypatch):
    """A worked example whose dx is exactly zero shows nothing. Each call in it allocates one result like its input."""
    results, empty_like = [], torch.empty_like
    monkeypatch.setattr(torch, "empty_like", lambda *a, **k: results.append(empty_like(*a, **k)) or results[-1])
    module.EXAMPLE()
    results = [result for result in results if result.dim() > 1]
    assert len(results) in (2, 4)
    for dx in results[1::2]:
        assert (dx.abs() > 1e-3).float().mean() > 0.5


# ---------------------------------------------------------------- modules


@pytest.mark.parametrize("options", [{}, dict(elementwise_affine=False), dict(bias=False), dict(eps=0.1)], ids=str)
@pytest.mark.parametrize("shape", [(12,), (2, 3, 2)], ids=str)
def test_apply_to_a_module(module, shape, options):
    layer = harness.random_layer(torch.nn.LayerNorm, shape, **options)
    x, dy = randn(5, *shape), randn(5, *shape)
    harness.assert_right(lambda x: module.apply_layernorm(layer, x), layer_like(layer), dict(x=x), dy)
    parameters = list(layer.parameters())
    if parameters:
        ours, theirs = (
            torch.autograd.grad(y, parameters, dy) for y in (module.apply_layernorm(layer, x), layer(x))
        )  # fmt: skip
        for a, b in zip(ours, theirs):
            torch.testing.assert_close(a, b)


def layer_like(layer):
    """`layer` in the dtype of its input."""
    to = lambda v, x: v if v is None else v.to(x.dtype)  # noqa: E731
    return lambda x: F.layer_norm(x, layer.normalized_shape, to(layer.weight, x), to(layer.bias, x), layer.eps)


def test_module_that_calls_eps_variance_epsilon(module):
    layer = types.SimpleNamespace(weight=randn(20), bias=randn(20), variance_epsilon=0.3)
    reference = lambda x: F.layer_norm(x, (20,), layer.weight.to(x.dtype), layer.bias.to(x.dtype), 0.3)  # noqa: E731
    harness.assert_right(lambda x: module.apply_layernorm(layer, x), reference, dict(x=randn(4, 20)), randn(4, 20))


def test_module_without_parameters_or_shape(module):
    x = randn(4, 20)
    y = module.apply_layernorm(types.SimpleNamespace(eps=0.1), x)
    accuracy.check("y", y, F.layer_norm(x, (20,), eps=0.1), F.layer_norm(x.double(), (20,), eps=0.1))


# ---------------------------------------------------------------- errors


SHAPE = r"x must end in the module's normalized_shape, \(4, 3\), got shape \(2, 3, 4\)"
NEITHER = "module must have eps or variance_epsilon, and Linear has neither"
test_bad_modules = harness.raises_test(
    [row for each in (lesson, fast) for row in [
        (lambda each=each: each.apply_layernorm(harness.random_layer(torch.nn.LayerNorm, (4, 3)), randn(2, 3, 4)), ValueError, SHAPE),
        (lambda each=each: each.apply_layernorm(torch.nn.Linear(3, 3), randn(2, 3)), TypeError, NEITHER),
    ]]
)  # fmt: skip


test_bad_arguments = harness.refused_test(
    "change, error, words",
    [
        (dict(x=torch.ones(1).expand(2**31)), ValueError, "x must have rows of fewer than 2147467264 elements"),
        (dict(weight=torch.ones(4)), ValueError, r"weight must have shape \(3,\) .*last dimension of x.*, got \(4,\)"),
        (dict(eps=-1.0), ValueError, "eps must be at least 0, got -1.0"),
    ],
    dict(x=torch.ones(2, 3)),
    *(each.layernorm for each in (lesson, fast)),
)
TILES = ("BLOCK_M", "BLOCK_N", "COLUMNS")
SAVED = dict(dy=torch.ones(2, 3), x=torch.ones(2, 3), weight=None, bias=None, mean=torch.ones(2), rstd=torch.ones(2))


def no_powers_of_two(*names):
    return [({name: 3}, ValueError, "must be a power of two") for name in names]


test_bad_tiles = harness.refused_test(
    "change, error, words",
    no_powers_of_two("BLOCK_M", "BLOCK_N", "num_warps"),
    dict(x=torch.ones(2, 3)),
    fast.layernorm_forward,
)
test_bad_tiles_backward = harness.refused_test(
    "change, error, words", no_powers_of_two(*TILES), SAVED, *(each.layernorm_backward for each in (lesson, fast))
)
