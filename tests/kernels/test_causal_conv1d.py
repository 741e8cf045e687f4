"""recurrences/causal_conv1d and fast/causal_conv1d: taps that cancel, infinities, few taps and many, what a chunk costs.

The traps of such convolutions in use, and what holds each. "The formula" is the comparison with it, of all results and
gradients; "the judge" tries batches, packed sequences and single steps with the states before and after them, in
`test_hostile_inputs`.

1. Fewer tokens than the state is long: final state and gradients. The formula; `test_other_numbers_of_taps`.
2. A product is rounded before it is added: `taps_that_cancel`, "product rounded before the sum".
3. x or its upstream gradient isn't contiguous: `test_hostile_inputs` of the judge.
4. The state's gradient is missed at a chunk's border: the formula.
5. Taps reach into another sequence: the judge. Offsets and a batch at once, which have spoilt the filter's gradient,
    can't be passed here: packed tokens have no batch.
6. The filter's gradient by atomics, with other bits each time: `test_hostile_inputs` of the judge.
7. The slope of the SiLU from its result: the formula.
8. Taps in the other order: the formula.
9. Steps after a prefill differ from the long call: the judge's state after a step and after a call.
10. What an earlier request left in memory is seen: `test_without_a_state_zeros_are_seen`.
11. Offsets of 32 bits: the judge, at night, and on a card in `test_hostile_inputs`.
"""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import functools

import pytest
import torch

from academy import compiler
from annotated_examples.fast import causal_conv1d as fast
from annotated_examples.recurrences import causal_conv1d as lesson
from operations import causal_conv1d as benchmark
from tests.kernels import chunk_cases, harness
from tests.kernels.harness import DEVICE, Mutant, randn

module = harness.modules(lesson, fast)

LESSON_MUTANTS = [
    Mutant("product rounded before the sum", "z += w[None, :] * x", "z += (w[None, :] * x).to(weight_ptr.dtype.element_ty).to(tl.float32)"),
]  # fmt: skip

FAST_MUTANTS = [
    Mutant("an infinity times 0", "tl.where(counted, dz * window[u + j], 0.0)", "tl.where(counted, dz, 0.0) * window[u + j]"),
]  # fmt: skip


def walked(module):
    """The public function with the kernels that walk, in small chunks."""
    size = dict(LENGTH=4, ROWS=2, BLOCK_D=4)
    launchers = [functools.partial(f, **size) for f in (module.causal_conv1d_forward, module.causal_conv1d_backward)]
    return lambda x, weight, bias, initial_state, return_final_state: module.call(
        x, weight, bias, initial_state, None, None, return_final_state, launchers
    )


def everything(B, T, D, W=4, dtype=torch.float32):
    shapes = dict(x=(B, T, D), weight=(D, W), bias=(D,), initial_state=(B, D, W - 1))
    return {name: randn(*shape, dtype=dtype) for name, shape in shapes.items()}


def assert_right(function, inputs, **options):
    """Result, final state and all gradients."""
    ups = dict(o=randn(*inputs["x"].shape), state=randn(*inputs["initial_state"].shape))
    chunk_cases.assert_right(function, lesson.causal_conv1d_reference, inputs, ups, **options)


def infinities(module):
    """At the borders of chunks and at the end, where rows are looked at that count for nothing."""
    for place in range(10):
        inputs = everything(1, 10, 2)
        inputs["x"][0, place, 0] = float("inf")
        assert_right(walked(module), inputs)


def taps_that_cancel(module):
    """Trap 2: (1 + 2^-7)^2 - (1 + 2^-6) is 2^-14, and 0 if the product is rounded to bfloat16."""
    x = torch.tensor([1 + 2.0**-6, 1 + 2.0**-7], device=DEVICE).bfloat16().view(1, 2, 1)
    weight = torch.tensor([[-1.0, 1 + 2.0**-7]], device=DEVICE).bfloat16()
    assert module.causal_conv1d(x, weight)[0, 1, 0] == 2.0**-14


test_check = harness.check_test(fast, [infinities, taps_that_cancel])


test_mutant_of_the_lesson_is_caught = harness.mutant_test(lesson, LESSON_MUTANTS, taps_that_cancel)
test_mutant_of_the_fast_version_is_caught = harness.mutant_test(fast, FAST_MUTANTS, infinities)


def test_tokens_of_a_chunk():
    """Few tokens make short chunks, so that there are programs enough."""
    for shape, tokens in (
        ((8, 4096, 4096), 1024),
        ((1, 65536, 8192), 1024),
        ((1, 4096, 2048), 64),
        ((2, 20000, 1280), 256),
    ):
        assert fast.length_of(torch.empty((), device="meta").expand(shape), 128) == tokens


def test_rows_are_copied_early_and_twelve_warps_fit():
    """What the notes count on. 65536 registers of an SM are 170 for each thread of twelve warps, in steps of eight."""
    code = """
import torch
from annotated_examples.fast import causal_conv1d as fast
x, weight, bias, dfinal = (
    torch.empty(shape, dtype=torch.bfloat16, device="cuda") for shape in ((1, 2048, 256), (256, 4), (256,), (1, 256, 3))
)
fast.causal_conv1d_forward(x, weight, bias, None, None, silu=True)
fast.causal_conv1d_backward(x, dfinal, x, weight, bias, None, None, silu=True)
"""
    kernels = {kernel.name: kernel for kernel in compiler.compile_code(code).kernels}
    for which, tensors in ("forward", 1), ("backward", 2):
        kernel = kernels[f"causal_conv1d_{which}_kernel"]
        assert kernel.ptx["cp.async"] >= 8 * tensors, (which, kernel.ptx)
    assert kernel.registers <= 168 and not kernel.stack, (kernel.registers, kernel.stack)


def test_the_benchmark_times_an_upstream_gradient_that_is_not_transposed():
    """It has the layout of PyTorch's result, and a transposed one costs the backward pass more than twice its time."""
    assert benchmark.eager(**benchmark.inputs((2, 20, 3), torch.float32, DEVICE)).is_contiguous()


def with_sizes(**size):
    return fast.causal_conv1d_forward(randn(2, 20, 3), randn(3, 4), None, None, None, silu=True, **size)


SIZES = dict(LENGTH=5, ROWS=3, BLOCK_D=6, num_warps=3)
test_bad_sizes_of_the_fast_version = harness.raises_test(
    [(lambda n=n, v=v: with_sizes(**{n: v}), ValueError, f"{n} must be a power of two") for n, v in SIZES.items()]
)


@pytest.mark.parametrize("W", [2, 8])
def test_other_numbers_of_taps(module, W):
    """Elsewhere there are four. Trap 1: also where a sequence is shorter than the state."""
    for T in (1, W - 1, W, 20):
        assert_right(module.causal_conv1d, everything(2, T, 3, W), activation="silu")


def test_rows_of_no_sequence(module):
    """They are NaN, and nothing of them is in what comes back: zeros in their place."""
    inputs, ends = everything(3, 85, 3), torch.tensor([0, 5, 5, 80], dtype=torch.int32, device=DEVICE)
    inputs["x"] = inputs["x"][0].index_fill(0, torch.arange(80, 85, device=DEVICE), float("nan"))
    y, final = module.causal_conv1d_varlen(**inputs, cu_seqlens=ends, return_final_state=True)
    assert y[80:].eq(0).all() and y.isfinite().all() and final.isfinite().all()


def test_a_chunk_is_worth_it():
    """With fewer tokens a sequence the lesson is left with them."""
    ends = torch.tensor([0, 40, 56, 56, 126, 127], device=DEVICE)
    assert not fast.few_tokens(randn(127, 3), ends) and fast.few_tokens(randn(70, 3), ends)
    assert fast.few_tokens(randn(0, 40, 3), None)


def test_without_a_state_zeros_are_seen(module):
    """Trap 10: and whatever was in memory before isn't."""
    inputs = everything(2, 6, 3)
    state = inputs.pop("initial_state")
    assert torch.equal(
        module.causal_conv1d(**inputs), module.causal_conv1d(**inputs, initial_state=torch.zeros_like(state))
    )


test_bad_arguments = harness.refused_test(
    "change, error, words",
    [
        (dict(weight=torch.ones(3, 9)), ValueError, "weight must have from 2 to 8 taps"),
        (dict(activation="relu"), ValueError, "activation must be one of None, 'silu', 'swish', got 'relu'"),
    ],
    dict(x=torch.ones(2, 5, 3), weight=torch.ones(3, 4)),
    *(each.causal_conv1d for each in (lesson, fast)),
)
test_bad_arguments_of_a_step = harness.refused_test(
    "change, error, words",
    [
        (dict(state=torch.ones(3, 3).expand(2, 3, 3)), ValueError, "state must not be expanded"),
        (
            dict(weight=torch.ones(3, 4).requires_grad_()),
            ValueError,
            "weight requires a gradient, but .* has no backward",
        ),
    ],
    dict(state=torch.ones(2, 3, 3), x=torch.ones(2, 3), weight=torch.ones(3, 4)),
    lesson.causal_conv1d_step_,
)
