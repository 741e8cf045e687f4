"""fp8/linear: all gradients of all recipes against float64, exact ones, what is quantized how, errors, mutants.

The traps of eight-bit training, and the check or mutant ("…") that holds each:

1. Codes transposed although their scale runs along the sum: `small_rows_and_columns_survive`, "scales of rows for
   columns", "not transposed".
2. Quantized twice: `both_ways_as_apart`, "codes quantized again", "x rounded twice".
3. One dtype for all: `every_recipe`, "gradients in e4m3". Two matrices of e5m2 are never multiplied.
4. Fast accumulation in the backward pass: only the forward product asks for it, and `every_recipe` judges gradients by
   PyTorch's products without it, on a card as well.
5. The bias' gradient from codes: `bias_gets_a_plain_sum`.
6. Gradients of zeros, or of one number with strides of zero: `gradients_of_zero_and_of_one`.
7. One row, 130 rows, 24 columns, three dimensions, none: `test_hostile_inputs` of the judge.
8. A frozen input or weight is computed all the same: `what_is_not_wanted_is_not_computed`, "always both".
9. A weight that changes between the passes: `test_right_or_refused`,
   `gradients_of_what_was_multiplied`.
10. Scales of earlier steps: history of a layer that didn't run, `a_layer_that_did_not_run_forgets_nothing`; an infinite
    scale, `nothing_to_learn_from_changes_nothing`, "an infinite scale"; no saturation at the first step,
    `first_step_as_without_a_state`; counted twice under checkpointing, `run_again_in_a_step`; an outlier that is never
    forgotten, `an_outlier_saturates_once_and_is_forgotten`, "never forgotten".
11. The largest magnitude over rows of padding that hold garbage: others' code only. Here a tensor is a tensor.
"""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import functools

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from annotated_examples.common import transposed as common_transposed
from annotated_examples.common.fp8 import eps_of_sums
from annotated_examples.fp8 import linear as lesson
from annotated_examples.fp8 import quantize
from tests.kernels import harness
from tests.kernels.harness import DEVICE, DTYPES, LAYOUTS, Mutant, leaf, randn

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
RECIPES = tuple(lesson.RECIPES)
NAN = float("nan")


def layer(M=13, K=21, N=9, dtype=torch.float32):
    """Rows of very different sizes: an operand that is quantized along the wrong dimension loses the small ones."""
    sizes = 10.0 ** torch.arange(M, device=DEVICE).fmod(4)[:, None]
    x = randn(M, K) * sizes
    return dict(x=x.to(dtype), weight=randn(N, K, dtype=dtype), bias=randn(N, dtype=dtype))


def same(one, other):
    """Codes and scales, bit for bit, but that any NaN is as good as another."""
    (q, scale), (wanted, wanted_scale) = one, other
    bits = (q.view(torch.uint8) == wanted.view(torch.uint8)) | (q.float().isnan() & wanted.float().isnan())
    return (
        q.shape == wanted.shape and bool(bits.all()) and torch.equal(scale.nan_to_num(-1), wanted_scale.nan_to_num(-1))
    )


def assert_right(module, inputs, upstream=None, **options):
    harness.assert_right(
        lambda **given: module.float8_linear(**given, **options),
        lambda **given: lesson.float8_linear_reference(**given, **options),
        inputs,
        upstream,
        eps=eps_of_sums(),
    )


# ---------------------------------------------------------------- checks, which mutants have to fail


def every_recipe(module):
    for recipe in RECIPES:
        inputs = layer()
        upstream = randn(13, 9) * 10.0 ** torch.arange(13, device=DEVICE).fmod(3)[:, None]
        assert_right(module, inputs, upstream, recipe=recipe)


def small_rows_and_columns_survive(module):
    """No scale is shared with what the product doesn't sum. Rows and columns smaller and smaller, to 1e-20."""
    small = 10.0 ** -(4 * torch.arange(6, device=DEVICE))
    weight = randn(9, 21)
    near = lambda found, wanted, axis: (found - wanted).norm(dim=axis) < 0.1 * wanted.norm(dim=axis)  # noqa: E731
    for recipe in ("row", "row_gw_hp", "block"):
        linear = lambda **given: module.float8_linear(**given, recipe=recipe)  # noqa: E731, B023
        x, dy = randn(6, 21) * small[:, None], randn(6, 9) * small[:, None]
        found = harness.gradients(linear, dict(x=x, weight=weight), dy)
        assert bool(near(found["out"], x @ weight.t(), 1).all()) and bool(near(found["dx"], dy @ weight, 1).all()), (
            recipe
        )
        x, dy = randn(13, 21), randn(13, 6) * small
        found = harness.gradients(linear, dict(x=x, weight=weight[:6]), dy)
        assert bool(near(found["dweight"], dy.t() @ x, 1).all()), recipe


def both_ways_as_apart(module):
    """One read gives the codes and scales of two: zeros, NaN, infinities, tails, strides, random bits."""
    x = randn(21, 13)
    x[3], x[:, 4], x[9, 9], x[17, 2] = 0, 0, NAN, float("inf")
    for dtype in (E4M3, E5M2):
        for powers, seed in ((False, None), (True, None), (False, 2**40 + 3)):
            for layout in LAYOUTS.values():
                along, across = module.quantize_both_ways(layout(x), dtype, powers, seed, GROUP=8)
                for found, matrix in ((along, x), (across, x.t())):
                    apart = quantize.quantize_tiles_forward(matrix, dtype, powers, seed, each_row=True, GROUP=8)
                    assert same(found, apart), (dtype, powers, seed)
                    assert found[1].stride() == (1, len(matrix))


def turned(module):
    """Any layout, codes and numbers, sizes that end inside of a square, in memory that is fenced; nothing at all."""
    for dtype in (torch.float32, torch.bfloat16, E4M3):
        for layout in LAYOUTS.values():
            x = layout(randn(21, 13)).to(dtype)
            with harness.fenced_allocations():
                found = module.transposed(x, BLOCK=8)
            assert found.is_contiguous() and torch.equal(found.float(), x.float().t())
            wide = torch.full((13, 32), 7.0, device=DEVICE).to(dtype)
            module.transposed(x, wide[:, :21], BLOCK=8)
            assert torch.equal(wide[:, :21].float(), x.float().t()) and bool((wide[:, 21:].float() == 7).all())
    assert module.transposed(randn(0, 5)).shape == (5, 0)


def what_is_not_wanted_is_not_computed(module):
    """A frozen input, a frozen weight: the product of its gradient and both casts are left out."""
    encoded, multiplied = [], []
    encode, product, both = module.encode, module.product, module.quantize_both_ways
    once = module.quantize_tensor_forward
    module.encode = lambda *given, **options: encoded.append(1) or encode(*given, **options)
    module.quantize_tensor_forward = lambda *given, **options: encoded.append(1) or once(*given, **options)
    module.quantize_both_ways = lambda *given: encoded.extend((1, 1)) or both(*given)
    module.product = lambda *given, **options: multiplied.append(1) or product(*given, **options)
    try:
        for recipe in ("tensor", "row", "block"):
            for needs in ((True, True), (True, False), (False, True), (False, False)):
                encoded.clear(), multiplied.clear()
                tensors = layer()
                tensors = {n: leaf(v) if n == "bias" or needs[n == "weight"] else v for n, v in tensors.items()}
                module.float8_linear(**tensors, recipe=recipe).sum().backward()
                casts = 2 + any(needs) if recipe == "tensor" else 2 + 2 * sum(needs)
                assert len(multiplied) == 1 + sum(needs) and len(encoded) == casts, (recipe, needs)
                assert [tensors[n].grad is not None for n in ("x", "weight")] == list(needs)
    finally:
        module.encode, module.product, module.quantize_both_ways = encode, product, both
        module.quantize_tensor_forward = once


def gradients_of_zero_and_of_one(module):
    """Nothing comes back but zeros, or one number shown many times with strides of zero; one row only."""
    for recipe in RECIPES:
        linear = lambda **given: module.float8_linear(**given, recipe=recipe)  # noqa: E731, B023
        for M in (1, 5):
            inputs = layer(M)
            assert_right(module, inputs, torch.ones((), device=DEVICE).expand(M, 9), recipe=recipe)
            found = harness.gradients(linear, inputs, torch.zeros(M, 9, device=DEVICE))
            assert not any(bool(found[f"d{name}"].any()) for name in inputs), recipe


def bias_gets_a_plain_sum(module):
    """Of what came in, not of its codes, and in float32."""
    inputs = {name: leaf(value) for name, value in layer(300, 8, 4, torch.bfloat16).items()}
    upstream = (torch.ones(300, 4, device=DEVICE) * 1.0625).bfloat16()
    module.float8_linear(**inputs).backward(upstream)
    assert torch.equal(inputs["bias"].grad, torch.full((4,), 300 * 1.0625, device=DEVICE).bfloat16())


# ---------------------------------------------------------------- scales of earlier steps


def number(value):
    return torch.full((), float(value), device=DEVICE)


def after(module, *steps, history=4, margin=0, dtype=E4M3):
    """One that has recorded these magnitudes, one a step."""
    scaling = module.DelayedScaling(history, margin, dtype=dtype)
    for amax in steps:
        scaling.scale()
        scaling.record(number(amax))
        scaling.step()
    return scaling


def state_after(module, *largest):
    return tuple(after(module, amax, dtype=dtype) for amax, dtype in zip(largest, (E4M3, E4M3, E5M2)))


def first_step_as_without_a_state(module):
    inputs, upstream = layer(), randn(13, 9)
    delayed = functools.partial(module.float8_linear_delayed, state=module.DelayedScaling.of_a_layer())
    found = harness.gradients(delayed, inputs, upstream)
    wanted = harness.gradients(module.float8_linear, inputs, upstream)
    assert all(torch.equal(value, wanted[name]) for name, value in found.items())


def under_older_scales(module):
    """Too large ones, too small ones, all of them: outputs and gradients as the formulas, in each dtype."""
    for dtype in DTYPES:
        for largest in ((20.0, 30.0, 40.0), (1.5, 1.0, 0.5), (300.0, 0.1, 3.0)):
            harness.assert_right(
                functools.partial(module.float8_linear_delayed, state=state_after(module, *largest)),
                functools.partial(lesson.float8_linear_delayed_reference, state=state_after(lesson, *largest)),
                {n: v.to(dtype) for n, v in dict(x=randn(2, 5, 21), weight=randn(9, 21), bias=randn(9)).items()},
                randn(2, 5, 9, dtype=dtype),
                eps=eps_of_sums(),
            )


def an_outlier_saturates_once_and_is_forgotten(module):
    """It becomes the largest code; then the scale fits it, for as long as it is in the history."""
    state = state_after(module, 7.0, 1.0, 1.0)
    weight, scales = torch.ones(1, 4, device=DEVICE), []
    for step in range(8):
        x = torch.tensor([[448.0 if step == 1 else 7.0, 0.0, 0.0, 0.0]], device=DEVICE)
        y = module.float8_linear_delayed(leaf(x), weight, state)
        assert float(y.detach()) == pytest.approx(7.0), "448 ends at the largest code, 7; later 7 is a code again"
        y.sum().backward()
        for scaling in state:
            scaling.step()
        scales.append(float(state[0].scale()) * 448)
    assert scales == pytest.approx([7, 448, 448, 448, 448, 7, 7, 7])


def margins(module):
    for margin in (-1, 0, 3):
        assert torch.equal(after(module, 5, margin=margin).scale(), number(5 * 2.0**margin) / number(448))
    assert torch.equal(after(module, 5, dtype=E5M2).scale(), number(5) / number(57344))


def nothing_to_learn_from_changes_nothing(module):
    """Zeros, infinity, NaN and a scale beyond float32: the old scale stays; what is tiny has the smallest scale."""
    for amax in (0.0, float("inf"), NAN):
        scaling = after(module, 7, amax, history=1)
        assert torch.equal(scaling.scale(), number(7) / number(448)) and float(after(module, amax).scale()) == 1
        recorded = after(module, 7, amax).history
        assert torch.equal(recorded.nan_to_num(-1), torch.tensor([0, amax, 7, 0], device=DEVICE).nan_to_num(-1))
        assert float(after(module, 7, amax, 8).scale()) * 448 == pytest.approx(8 if amax == 0 else 7)
    assert bool(after(module, 3e38, margin=8).scale().isfinite()) and float(after(module, 1e-45).scale()) == 2.0**-126


def run_again_in_a_step(module):
    """Checkpointing runs the forward pass twice: the same gradients, and nothing is recorded twice."""
    inputs, found = layer(), []
    for again in (False, True):
        state = state_after(module, 1.5, 1.0, 0.5)
        linear = functools.partial(module.float8_linear_delayed, state=state)
        run = (lambda **given: checkpoint(linear, **given, use_reentrant=False)) if again else linear  # noqa: B023
        gradients = harness.gradients(run, inputs, torch.ones(13, 9, device=DEVICE))
        for scaling in state:
            scaling.step()
        found.append([*gradients.values(), *(of.history for of in state), *(of.scale() for of in state)])
    assert all(torch.equal(one, other) for one, other in zip(*found))


def micro_batches_count_together(module):
    scaling = module.DelayedScaling(4)
    scaling.scale()
    for amax in (3.0, 9.0, 5.0):
        scaling.record(number(amax))
    scaling.step()
    assert torch.equal(scaling.scale(), number(9) / number(448)) and scaling.history[:2].tolist() == [0, 9]


def a_layer_that_did_not_run_forgets_nothing(module):
    """Nor one that was only evaluated, or whose inputs are frozen: then no gradient came."""
    scaling = after(module, 7, 5)
    before = scaling.history.clone()
    scaling.step()
    assert torch.equal(scaling.history, before) and after(module).scale() is None
    state, inputs = state_after(module, 7.0, 5.0, 3.0), layer()
    module.float8_linear_delayed(inputs["x"], inputs["weight"], state)
    for scaling in state:
        scaling.step()
        assert scaling.steps == 1 and float(scaling.history[0]) == 0
    module.float8_linear_delayed(inputs["x"], inputs["weight"], state, leaf(inputs["bias"])).sum().backward()
    assert [float(scaling.history[0]) > 0 for scaling in state] == [True, True, False]


def gradients_of_what_was_multiplied(module):
    """The codes are saved, x isn't kept alive, and if it is changed afterwards that changes nothing."""
    state, upstream = state_after(module, 4.0, 3.0, 2.0), randn(13, 9)
    for linear in (module.float8_linear, functools.partial(module.float8_linear_delayed, state=state)):
        inputs, found = {name: leaf(value) for name, value in layer().items()}, []
        for change in (False, True):
            y = linear(**inputs)
            codes_of_x, codes_of_weight, weight = (tensor for tensor in y.grad_fn.saved_tensors if tensor.dim())
            assert codes_of_x.element_size() == codes_of_weight.element_size() == 1 and weight is inputs["weight"]
            if change:
                with torch.no_grad():
                    inputs["x"].mul_(2)
            found.append(torch.autograd.grad(y, list(inputs.values()), upstream))
        assert all(torch.equal(one, other) for one, other in zip(*found))


DELAYED = [
    first_step_as_without_a_state,
    under_older_scales,
    an_outlier_saturates_once_and_is_forgotten,
    margins,
    nothing_to_learn_from_changes_nothing,
    run_again_in_a_step,
    micro_batches_count_together,
    a_layer_that_did_not_run_forgets_nothing,
    gradients_of_what_was_multiplied,
]

CHECKS = [
    *DELAYED,
    every_recipe,
    small_rows_and_columns_survive,
    both_ways_as_apart,
    turned,
    what_is_not_wanted_is_not_computed,
    gradients_of_zero_and_of_one,
    bias_gets_a_plain_sum,
]
test_check = harness.check_test(lesson, CHECKS)


ROWS = '"row": (("row", "row"), ("row", "row"), ("row", "row"))'
INDEX = "offs_n[None, :] * M + offs_m[:, None]"
TWICE = "to_fp8(q.to(tl.float32) * scale[:, None] * tl.div_rn(1.0, scale_t)"
CALL = "as_matrix(x), weight, *ctx.options"
MUTANTS = [
    (every_recipe, Mutant("gradients in e4m3", "return torch.float8_e5m2 if", "return torch.float8_e4m3fn if")),
    (small_rows_and_columns_survive, Mutant("one scale for gradients", ROWS, '"row": (("row", "row"), ("tensor", "tensor"), ("row", "row"))')),
    (every_recipe, Mutant("x rounded twice", "encode(x, of_dw[1]", "encode(x.to(e4m3).to(x.dtype), of_dw[1]")),
    (every_recipe, Mutant("bias lost", "scale_b.t(), bias, out_dtype)", "scale_b.t(), None, out_dtype)")),
    (both_ways_as_apart, Mutant("scales of rows for columns", "tl.max(bits, 0), E4M3", "tl.max(bits, 1), E4M3")),
    (both_ways_as_apart, Mutant("codes quantized again", "to_fp8(x * tl.div_rn(1.0, scale_t)", TWICE)),
    (both_ways_as_apart, Mutant("scales of a tile", "tile_m.to(tl.int64) * N + offs_n", "0 * N + offs_n")),
    (both_ways_as_apart, Mutant("not transposed", INDEX, "offs_m[:, None] * N + offs_n[None, :]")),
    (bias_gets_a_plain_sum, Mutant("bias from codes", "dy.sum(0, dtype=torch.float32)", "dy.to(torch.float8_e5m2).float().sum(0)")),
    (an_outlier_saturates_once_and_is_forgotten, Mutant("the last step only", "largest = self.history.max()", "largest = self.history[0]")),
    (an_outlier_saturates_once_and_is_forgotten, Mutant("without the last step", "largest = self.history.max()", "largest = self.history[1:].max()")),
    (an_outlier_saturates_once_and_is_forgotten, Mutant("never forgotten", "self.history[0].zero_()", "self.history[0] += 0")),
    (margins, Mutant("the margin's sign", "LARGEST[dtype] / 2.0**margin", "LARGEST[dtype] * 2.0**margin")),
    (nothing_to_learn_from_changes_nothing, Mutant("a scale of zeros", "(largest > 0) & fresh", "fresh")),
    (nothing_to_learn_from_changes_nothing, Mutant("an infinite scale", "(largest > 0) & fresh.isfinite()", "(largest > 0)")),
    (nothing_to_learn_from_changes_nothing, Mutant("a scale without a reciprocal", "divisor).clamp(min=2.0**-126)", "divisor)")),
    (micro_batches_count_together, Mutant("the last one counts", "torch.maximum(self.history[0], amax)", "amax")),
    (run_again_in_a_step, Mutant("a step for each run", "self.history[0].copy_(", "self.history.copy_(self.history.roll(1)); self.history[0].copy_(")),
    (a_layer_that_did_not_run_forgets_nothing, Mutant("a step of nothing", "if self.ran:", "if True:")),
    (a_layer_that_did_not_run_forgets_nothing, Mutant("evaluation counts", "[scaling.current if scaling.steps else None for scaling in state]", "[scaling.scale() for scaling in state]")),
    (under_older_scales, Mutant("scales of x and weight swapped", "zip((x, weight), scales)\n    )\n    return product", "zip((x, weight), scales[1::-1])\n    )\n    return product")),
    (under_older_scales, Mutant("a scale of its own for dY", "*options, scale=scale)", "*options)")),
    (under_older_scales, Mutant("dX under the scale of x", "(transposed(weight), scale_w)", "(transposed(weight), scale_x)")),
    (what_is_not_wanted_is_not_computed, Mutant("always both", f"{CALL}, needs=needs[:2])", f"{CALL})")),
]  # fmt: skip

OF_TURNED = [
    (turned, Mutant("as it was", "tl.trans(x)", "x")),
    (turned, Mutant("stride of a row", "offs_m[:, None] * stride_m", "offs_m[:, None] * N")),
    (turned, Mutant("stride of the result", "offs_n[:, None] * stride_yn", "offs_n[:, None] * M")),
    (turned, Mutant("rows behind the last", "& mask_m[None, :])", "& (offs_m <= M)[None, :])")),
]
test_mutant_is_caught = harness.mutant_test(lesson, MUTANTS)
test_mutant_of_helpers_is_caught = harness.mutant_test(common_transposed, OF_TURNED, within=lesson)


# ---------------------------------------------------------------- autograd, shapes, errors


def test_sums_of_halves_are_rounded_once():
    """In "row_gw_hp" the factors of a weight's gradient are bfloat16. What they add up to isn't, unless the weight is."""
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        inputs, dy = layer(dtype=dtype), randn(13, 9, dtype=dtype)
        linear = functools.partial(lesson.float8_linear, recipe="row_gw_hp")
        found = harness.gradients(linear, inputs, dy)["dweight"]
        exact = dy.bfloat16().double().t() @ inputs["x"].bfloat16().double()
        worst = (found - exact).abs().max() / exact.abs().max()
        assert worst <= {torch.float32: 2e-6}.get(dtype, torch.finfo(dtype).eps), dtype


def test_the_same_bits_twice_and_other_ones_with_another_seed():
    def weight_gradient(seed):
        torch.manual_seed(1)
        inputs = {name: leaf(value) for name, value in layer().items()}
        lesson.float8_linear(**inputs, grad_seed=seed).backward(randn(13, 9))
        return inputs["weight"].grad

    assert torch.equal(weight_gradient(3), weight_gradient(3))
    assert torch.equal(weight_gradient(3), weight_gradient(torch.tensor(3, device=DEVICE)))
    assert not torch.equal(weight_gradient(3), weight_gradient(4))


def test_saturated_elements_pass_their_gradient_on():
    """Straight through: the gradient of x doesn't know what became of x."""
    weight, upstream, found = randn(9, 21), randn(13, 9), []
    for largest in (1e-3, 1e3):
        x = leaf(randn(13, 21))
        lesson.float8_linear_delayed(x, weight, state_after(lesson, largest, 3.0, 3.0)).backward(upstream)
        found.append(x.grad)
    assert torch.equal(*found) and bool(found[0].all())


FINE = dict(x=torch.ones(4, 8, device=DEVICE), weight=torch.ones(3, 8, device=DEVICE))
STATE = lesson.DelayedScaling.of_a_layer()


test_bad_states = harness.refused_test(
    "error, name, change",
    [
        (TypeError, "state", dict(state=None)),
        (TypeError, "state", dict(state=STATE[:2])),
        (TypeError, "state", dict(state=(1, 2, 3))),
        (ValueError, "state", dict(state=STATE[::-1])),
    ],
    FINE,
    lesson.float8_linear_delayed,
)


test_bad_arguments_of_a_state = harness.refused_test(
    "error, name, change",
    [
        (TypeError, "history", dict(history=1.5)),
        (ValueError, "history", dict(history=0)),
        (TypeError, "margin", dict(margin=0.5)),
        (ValueError, "margin", dict(margin=9)),
        (ValueError, "dtype", dict(dtype=torch.float16)),
    ],
    {},
    lesson.DelayedScaling,
)


test_bad_arguments = harness.refused_test(
    "error, name, change",
    [
        (TypeError, "x", dict(x=[1.0])),
        (TypeError, "x", dict(x=torch.ones(4, 8, device=DEVICE).to(E4M3))),
        (TypeError, "weight", dict(weight=torch.ones(3, 8, dtype=torch.bfloat16, device=DEVICE))),
        (ValueError, "x", dict(x=torch.ones((), device=DEVICE))),
        (ValueError, "weight", dict(weight=torch.ones(3, 7, device=DEVICE))),
        (ValueError, "weight", dict(weight=torch.ones(8, device=DEVICE))),
        (ValueError, "bias", dict(bias=torch.ones(4, device=DEVICE))),
        (TypeError, "bias", dict(bias=torch.ones(3, dtype=torch.float16, device=DEVICE))),
        (ValueError, "recipe", dict(recipe="rows")),
        (ValueError, "power_of_two", dict(power_of_two=2)),
        (TypeError, "grad_seed", dict(grad_seed=1.0)),
        (ValueError, "grad_seed", dict(grad_seed=-1)),
    ],
    FINE,
    lesson.float8_linear,
)
