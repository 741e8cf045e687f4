"""classics/rmsnorm and fast/rmsnorm: values, gradients, the residual, offsets, hostile inputs, modules, errors, mutants."""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import types

import pytest
import torch
from torch.nn import functional as F

from academy.judge import accuracy
from annotated_examples.classics import rmsnorm as lesson
from annotated_examples.common import norms
from annotated_examples.fast import rmsnorm as fast
from tests.kernels import harness
from tests.kernels.harness import DEVICE, DTYPES, Mutant, randn

module = harness.modules(lesson, fast)

LOAD_WEIGHT = "offset + tl.load(weight_ptr + offs_n, mask=mask, other=0.0).to(tl.float32)"
LESSON_MUTANTS = [
    Mutant("weight cast before the product", f"y *= {LOAD_WEIGHT}", f"y = y.to(y_ptr.dtype.element_ty).to(tl.float32) * ({LOAD_WEIGHT})"),
    Mutant("offset added in the dtype of the weight", f"y *= {LOAD_WEIGHT}", f"y *= ({LOAD_WEIGHT}).to(weight_ptr.dtype.element_ty).to(tl.float32)"),
    Mutant("norm of the unrounded sum", ".to(s_ptr.dtype.element_ty)", "", count=2),
    Mutant("rounding left in rows of one column", "if N == 1:", "if N == 0:"),
    Mutant("gradient of the weight in the dtype of x", ".to(weight.dtype)", ".to(x.dtype)"),
]  # fmt: skip

LOAD_SCALE = "offset + tl.load(weight_ptr + vector_n, mask=mask_n, other=0.0).to(tl.float32)"
FAST_MUTANTS = [
    Mutant("weight cast before the product", f"y *= ({LOAD_SCALE})[None, :]", f"y = y.to(y_ptr.dtype.element_ty).to(tl.float32) * ({LOAD_SCALE})[None, :]"),
    Mutant("offset added in the dtype of the weight", f"y *= ({LOAD_SCALE})[None, :]", f"y *= ({LOAD_SCALE}).to(weight_ptr.dtype.element_ty).to(tl.float32)[None, :]"),
    Mutant("norm of the unrounded sum", ".to(s_ptr.dtype.element_ty)", ""),
    Mutant("rounding left in rows of one column", "if N == 1:", "if N == 0:"),
    Mutant("gradient of the weight in the dtype of x", "dtype=weight.dtype", "dtype=x.dtype"),
]  # fmt: skip


def pytorch(x, weight=None, eps=1e-6, offset=0.0):
    """PyTorch's own operation. It wants one dtype: with a weight in another one, everything goes through float32."""
    if weight is not None and weight.dtype != x.dtype:
        return F.rms_norm(x.float(), x.shape[-1:], offset + weight.float(), eps).to(x.dtype)
    return F.rms_norm(x, x.shape[-1:], weight if weight is None else offset + weight, eps)


def pytorch_sum(x, residual, weight=None, eps=1e-6, offset=0.0):
    """Both results of the sum's norm, stacked."""
    s = x + residual
    return torch.stack([pytorch(s, weight, eps, offset), s])


def stacked(module, **options):
    """`add_rmsnorm` with both results in one tensor, so that one upstream gradient serves both."""
    return lambda x, residual, weight=None: torch.stack(module.add_rmsnorm(x, residual, weight, **options))


def rows_and_weight(*shape, dtype=torch.float32, scale=1.0, weight=None, residual=False):
    """`x`, perhaps `residual`, and `weight` for a call; `weight` is another dtype for that one."""
    tensors = dict(x=randn(*shape, dtype=dtype, scale=scale))
    if residual:
        tensors |= dict(residual=randn(*shape, dtype=dtype, scale=scale))
    return tensors | dict(weight=randn(shape[-1], dtype=weight or dtype))


def rounded_once(module):
    """bfloat16 hides a lot below its 8 bits. Nearly every result must be the bfloat16 number nearest to the right one,
    which a factor or a normalised row that was rounded on the way would not give."""
    x, residual = randn(8, 200, dtype=torch.bfloat16), randn(8, 200, dtype=torch.bfloat16)
    for weight, offset in ((randn(200), 0.0), (randn(200, dtype=torch.bfloat16, scale=0.01), 1.0)):
        y, s = module.add_rmsnorm(x, residual, weight, offset=offset)
        exact = pytorch(s.double(), weight.double(), offset=offset)
        assert torch.equal(s, x + residual)
        assert (y == exact.to(torch.bfloat16)).float().mean() > 0.99


def one_column(module):
    """1 − x²/(x² + eps) is eps/(x² + eps), a millionth here. Computed as a difference it would be rounding alone."""
    x, dy, weight = randn(20, 1) + 3, randn(20, 1), randn(1)
    dx = harness.gradients(module.rmsnorm, dict(x=x, weight=weight), dy)["dx"].double()
    exact = (dy * weight).double() * 1e-6 * (x.double() ** 2 + 1e-6) ** -1.5
    assert accuracy.errors(dx, exact).largest < 1e-6


def weight_of_another_dtype(module):
    for weight in (torch.float32, torch.float16):
        inputs = rows_and_weight(3, 50, dtype=torch.bfloat16, weight=weight)
        harness.assert_right(module.rmsnorm, pytorch, inputs, randn(3, 50, dtype=torch.bfloat16))


def check(module):
    """Everything a mutant has to get past."""
    rounded_once(module)
    one_column(module)
    weight_of_another_dtype(module)


def test_check_passes(module):
    check(module)


test_mutant_of_the_lesson_is_caught = harness.mutant_test(lesson, LESSON_MUTANTS, check)
test_mutant_of_the_fast_version_is_caught = harness.mutant_test(fast, FAST_MUTANTS, check)


def check_partial_sums(module):
    """What `common.norms` adds up, in more than one round of its kernel."""
    partial = randn(35, 40)
    for of_weight, of_bias in ((True, True), (True, False), (False, True)):
        results = [
            torch.full((40,), float("nan"), device=DEVICE) if wanted else None for wanted in (of_weight, of_bias)
        ]
        given = [partial * k if wanted else None for k, wanted in ((1, of_weight), (2, of_bias))]
        with harness.fenced_allocations():
            module.add_partial_sums(*given, *results)
        for value, partials in zip(results, given):
            if value is not None:
                accuracy.check("sum", value, partials.sum(0), partials.double().sum(0))


def test_partial_sums():
    check_partial_sums(norms)


SUMS = [
    Mutant("only the first ones added", "tl.range(0, P, BLOCK_P)", "tl.range(0, BLOCK_P, BLOCK_P)"),
    Mutant("those of the bias for the weight", "tl.load(partial_dweight_ptr +", "tl.load(partial_dbias_ptr +"),
]
test_mutant_of_the_partial_sums_is_caught = harness.mutant_test(norms, SUMS, check_partial_sums)


@pytest.mark.parametrize("N", [9001, 20501])
def test_long_rows(module, N):
    """With the tiles that a user gets; in the fast version, backward alone is the lesson's, then both passes are."""
    inputs = rows_and_weight(2, N, dtype=torch.bfloat16, residual=True)
    harness.assert_right(stacked(module), pytorch_sum, inputs, randn(2, 2, N, dtype=torch.bfloat16))


def test_without_a_weight_the_offset_has_no_effect(module):
    x = randn(3, 50)
    assert torch.equal(module.rmsnorm(x, offset=1.0), module.rmsnorm(x))
    dx = [harness.gradients(lambda x: module.rmsnorm(x, offset=c), dict(x=x), x)["dx"] for c in (0.0, 1.0)]  # noqa: B023
    assert torch.equal(*dx)


@pytest.mark.parametrize("used", [0, 1], ids=["y", "s"])
def test_only_one_result_used(module, used):
    """What the loss doesn't see has an upstream gradient of zero."""
    function = lambda **inputs: module.add_rmsnorm(**inputs)[used] * 1.0  # noqa: E731
    reference = lambda **inputs: pytorch_sum(**inputs)[used] * 1.0  # noqa: E731
    harness.assert_right(function, reference, rows_and_weight(3, 50, residual=True), randn(3, 50))


@pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
def test_eps_none_is_that_of_the_module(module, dtype):
    """Float32's, for 16-bit numbers too."""
    inputs = rows_and_weight(3, 20, dtype=dtype, scale=0.01)
    function = lambda x, weight: module.rmsnorm(x, weight, None)  # noqa: E731
    reference = lambda x, weight: pytorch(x, weight, 2.0**-23)  # noqa: E731
    harness.assert_right(function, reference, inputs, randn(3, 20, dtype=dtype))
    layer = torch.nn.RMSNorm(20, device=DEVICE, dtype=dtype)  # its eps is None
    torch.testing.assert_close(module.apply_rmsnorm(layer, inputs["x"]), layer(inputs["x"]))


# ---------------------------------------------------------------- modules


@pytest.mark.parametrize("options", [{}, dict(elementwise_affine=False), dict(eps=0.1)], ids=str)
@pytest.mark.parametrize("shape", [(12,), (2, 3, 2)], ids=str)
def test_apply_to_a_module(module, shape, options):
    layer = harness.random_layer(torch.nn.RMSNorm, shape, **options)
    x, dy = randn(5, *shape), randn(5, *shape)
    eps = torch.finfo(torch.float32).eps if layer.eps is None else layer.eps
    weight = lambda x: None if layer.weight is None else layer.weight.to(x.dtype)  # noqa: E731
    reference = lambda x: F.rms_norm(x, shape, weight(x), eps)  # noqa: E731
    harness.assert_right(lambda x: module.apply_rmsnorm(layer, x), reference, dict(x=x), dy)
    torch.testing.assert_close(module.apply_rmsnorm(layer, x), layer(x))
    if parameters := list(layer.parameters()):
        ours, theirs = (torch.autograd.grad(y, parameters, dy) for y in (module.apply_rmsnorm(layer, x), layer(x)))
        torch.testing.assert_close(ours, theirs)


def test_module_that_calls_eps_variance_epsilon(module):
    layer = types.SimpleNamespace(weight=randn(20), variance_epsilon=0.3)
    reference = lambda x: pytorch(x, layer.weight.to(x.dtype), 0.3)  # noqa: E731
    harness.assert_right(lambda x: module.apply_rmsnorm(layer, x), reference, dict(x=randn(4, 20)), randn(4, 20))


# ---------------------------------------------------------------- errors


BAD = [
    (dict(x=[1.0]), TypeError, "x must be a torch.Tensor, got list"),
    (dict(x=torch.ones(2, 3).double()), TypeError, "x must be one of float32, float16, bfloat16, got float64"),
    (dict(x=torch.ones(())), ValueError, "x must have at least 1 dimensions"),
    (dict(x=torch.ones(1).expand(2**31)), ValueError, "x must have rows of fewer than 2147467264 elements"),
    (dict(weight=torch.ones(4)), ValueError, r"weight must have shape \(3,\) .*last dimension of x.*, got \(4,\)"),
    (dict(weight=torch.ones(3).int()), TypeError, "weight must be one of"),
    (dict(weight=1.0), TypeError, "weight must be a torch.Tensor, got float"),
    (dict(weight=torch.ones(3, device="meta")), ValueError, "weight is on meta"),
    (dict(eps=-1.0), ValueError, "eps must be at least 0, got -1.0"),
    (dict(eps=float("nan")), ValueError, "eps must be finite"),
    (dict(eps="1e-5"), TypeError, "eps must be a number, got str"),
    (dict(offset=float("inf")), ValueError, "offset must be finite"),
    (dict(offset=None), TypeError, "offset must be a number, got NoneType"),
]
BAD_SUMS = [
    *((change | dict(residual=change["x"]) if "x" in change else change, *said) for change, *said in BAD),
    (dict(residual=None), TypeError, "residual must be a torch.Tensor, got NoneType"),
    (dict(residual=torch.ones(3)), ValueError, r"residual must have the shape of x, \(2, 3\), got \(3,\)"),
    (dict(residual=torch.ones(2, 3).half()), TypeError, "residual must have the dtype of x, float32, got float16"),
]
GIVEN = dict(x=torch.ones(2, 3), residual=torch.ones(2, 3))
test_bad_arguments = harness.refused_test(
    "change, error, words", BAD, dict(x=torch.ones(2, 3)), lesson.rmsnorm, fast.rmsnorm
)
test_bad_sums = harness.refused_test("change, error, words", BAD_SUMS, GIVEN, lesson.add_rmsnorm, fast.add_rmsnorm)
back = lambda each, **size: each.rmsnorm_backward(randn(2, 3), randn(2, 3), None, randn(2), **size)  # noqa: E731
SIZES = dict(BLOCK_M=3, BLOCK_N=100, COLUMNS=5)
test_bad_tile_size = harness.raises_test(
    [(lambda each=each, n=n, v=v: back(each, **{n: v}), ValueError, f"{n} must be a power of two")
     for each in (lesson, fast) for n, v in SIZES.items()]
    + [(lambda each=each: each.rmsnorm_forward(randn(2, 3), BLOCK_N=100), ValueError, "BLOCK_N must be a power of two")
       for each in (lesson, fast)]
)  # fmt: skip


SHAPE = r"x must end in the module's normalized_shape, \(4, 3\), got shape \(2, 3, 4\)"
NEITHER = "module must have eps or variance_epsilon, and Linear has neither"
test_bad_modules = harness.raises_test(
    [row for each in (lesson, fast) for row in [
        (lambda each=each: each.apply_rmsnorm(harness.random_layer(torch.nn.RMSNorm, (4, 3)), randn(2, 3, 4)), ValueError, SHAPE),
        (lambda each=each: each.apply_rmsnorm(torch.nn.Linear(3, 3), randn(2, 3)), TypeError, NEITHER),
    ]]
)  # fmt: skip


# ---------------------------------------------------------------- on a GPU only
