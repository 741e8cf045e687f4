"""recurrences/causal_conv1d and fast/causal_conv1d: values, gradients, states, packed sequences, one token, traps, errors, mutants.

The traps of such convolutions in use, and the check or mutant ("…") that holds each:

1. Fewer tokens than the state is long: final state and gradients. `test_values_and_gradients` with 1 and W - 1 tokens,
    "final state of short sequences".
2. A product is rounded before it is added: `taps_that_cancel`, "product rounded before the sum".
3. x or its upstream gradient isn't contiguous: `test_hostile_inputs` of the judge.
4. The state's gradient is missed at a chunk's border: `test_packed_sequences`, "gradient of the state from the state alone".
5. Taps reach into another sequence: `test_packed_sequences`, "taps cross into the sequence before". Offsets and a batch
    at once, which have spoilt the filter's gradient, can't be passed here: packed tokens have no batch.
6. The filter's gradient by atomics, with other bits each time: `test_hostile_inputs` of the judge.
7. The slope of the SiLU from its result: `test_large_sums`, "slope from the result".
8. Taps in the other order: `test_values_and_gradients`, "taps in the wrong order".
9. Steps after a prefill differ from the long call: `one_token_after_another`, `test_steps_after_a_prompt_of_any_length`.
10. What an earlier request left in memory is seen: `test_without_a_state_zeros_are_seen`.
11. Offsets of 32 bits: on a card `test_offsets_past_32_bits`.
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
from tests.kernels.harness import DEVICE, DTYPES, Mutant, randn

module = harness.modules(lesson, fast)

NAN = float("nan")

LESSON_MUTANTS = [
    Mutant("taps in the wrong order", "w = tl.load(weight_ptr + offs_d * W + j, mask=mask_d, other=0.0)", "w = tl.load(weight_ptr + offs_d * W + (W - 1 - j), mask=mask_d, other=0.0)"),
    Mutant("looks one token ahead", "t - (W - 1 - j), row - (W - 1 - j), length, offs_d, D, W)\n        z", "t - (W - 2 - j), row - (W - 2 - j), length, offs_d, D, W)\n        z"),
    Mutant("taps cross into the sequence before", "(t >= 0) & (t < length))[:, None] & mask_d, other=0.0).to(tl.float32)\n    if", "(row >= 0) & (t < length))[:, None] & mask_d, other=0.0).to(tl.float32)\n    if"),
    Mutant("state ignored", "x += tl.load(columns, mask=before, other=0.0).to(tl.float32)", "x += 0.0"),
    Mutant("product rounded before the sum", "z += w[None, :] * x", "z += (w[None, :] * x).to(weight_ptr.dtype.element_ty).to(tl.float32)"),
    Mutant("slope from the result", "z = taps(x_tensor, state_ptr, weight_ptr, bias_ptr, b, t, row, length, offs_d, D, W)\n        sigmoid", "z = taps(x_tensor, state_ptr, weight_ptr, bias_ptr, b, t, row, length, offs_d, D, W)\n        z = z * sigmoid_of(z)\n        sigmoid"),
    Mutant("gradient with the filter not turned round", "offs_d * W + (W - 1 - k)", "offs_d * W + k"),
    Mutant("a tap of NaN times the zero of no output", "dx += tl.where(((t + k >= 0) & (t + k < length))[:, None], w[None, :] * dz, 0.0)", "dx += w[None, :] * dz"),
    Mutant("gradient of the final state dropped", "dx += tl.load(columns, mask=kept, other=0.0).to(tl.float32)", "dx += 0.0"),
    Mutant("gradient of the state from the state alone", "state_gradient_kernel[(batch", "dstate.zero_()\n        False and state_gradient_kernel[(batch"),
    Mutant("final state of short sequences", "t = length - (W - 1) + column", "t = tl.maximum(length - (W - 1), 0) + column"),
    Mutant("last tile's filter gradient lost", "dweight.sum(0)", "dweight[:-1].sum(0)"),
    Mutant("step writes the new input nowhere", "tl.store(columns + (W - 2) * stride_sw, new, mask=mask)", ""),
    Mutant("step doesn't move the columns", "(j - 1) * stride_sw, old", "j * stride_sw, old"),
]  # fmt: skip

FAST_MUTANTS = [
    Mutant("taps in the wrong order", "z += weights[j] * window[u + j]", "z += weights[W - 1 - j] * window[u + j]"),
    Mutant("looks at the wrong rows", "t = begin - (W - 1) + j", "t = begin - W + j"),
    Mutant("taps cross into the sequence before", "mask=mask_d & (t >= 0) & (t < length), other=0.0)", "mask=mask_d & (start + t >= 0) & (t < length), other=0.0)"),
    Mutant("state ignored", "x = tl.where(t < 0, tl.load(column", "x = tl.where(t < -W, tl.load(column"),
    Mutant("state of the first sequence", "column = state_ptr + (b * D + offs_d)", "column = state_ptr + offs_d"),
    Mutant("product rounded before the sum", "z += weights[j] * window[u + j]", "z += (weights[j] * window[u + j]).to(tl.bfloat16).to(tl.float32)"),
    Mutant("sigmoid the other way round", "share = sigmoid_of(z)", "share = sigmoid_of(-z)"),
    Mutant("bias ignored", "bias = tl.load(bias_ptr + offs_d, mask=offs_d < D, other=0.0).to(tl.float32)", "bias = bias"),
    Mutant("the same rows again", "x_ptrs += ROWS * step_x\n        for", "for"),
    Mutant("the same upstream rows again", "dy_ptrs += ROWS * step_dy\n        for", "for"),
    Mutant("half of the slope", "share + z * (share - share * share)", "share + z * share"),
    Mutant("a group forgets what was seen", "y_ptrs += ROWS * step_y\n        seen = window[ROWS:]", "y_ptrs += ROWS * step_y\n        seen = window[: W - 1]"),
    Mutant("past the end of the chunk", "tl.store(y_ptrs + u * step_y, y, mask=mask_d & (t + u < end))", "tl.store(y_ptrs + u * step_y, y, mask=mask_d)"),
    Mutant("slope from the result", "share = sigmoid(z, dy.dtype)", "z = z * sigmoid(z, dy.dtype)\n        share = sigmoid(z, dy.dtype)"),
    Mutant("gradient with the filter not turned round", "weights[W - 1 - k] * dzs[k], 0.0)", "weights[k] * dzs[k], 0.0)"),
    Mutant("walk ends with the chunk", "range(whole, end + W - 1, W - 1)", "range(whole, end, W - 1)"),
    Mutant("gradients one row late", "(t + u - begin >= W - 1)", "(t + u - begin >= W)"),
    Mutant("the next chunk's outputs counted twice", "window, u, row < end, W)", "window, u, row < length, W)"),
    Mutant("the next chunk's outputs in the bias", "dbias += tl.where(row < end, dz, 0.0)", "dbias += tl.where(row < length, dz, 0.0)"),
    Mutant("a tap of NaN times the zero of no output", "tl.where(k < there, weights[W - 1 - k] * dzs[k], 0.0)", "weights[W - 1 - k] * dzs[k]"),
    Mutant("an infinity times 0", "tl.where(counted, dz * window[u + j], 0.0)", "tl.where(counted, dz, 0.0) * window[u + j]"),
    Mutant("gradient of the final state dropped", "mask=mask_d & (past >= 0) & (past < W - 1)", "mask=mask_d & (past >= W)"),
    Mutant("gradients of tokens behind the last", " & (row < end + W - 1))", ")"),
    Mutant("part of another chunk", "part = (chunk.to(tl.int64) * D + offs_d) * W", "part = offs_d * W"),
    Mutant("last chunk's filter gradient lost", "add_partial_sums(dweight.flatten(1)", "add_partial_sums(dweight[:-1].flatten(1)"),
    Mutant("final state left out", "launch(final_state_kernel, grid,", "final.zero_()\n        False and launch(final_state_kernel, grid,"),
    Mutant("gradient of the state left out", "if state is not None:", "dstate.zero_()\n        if False:"),
]  # fmt: skip


def walked(module, packed=False):
    """The public function with the kernels that walk, in small chunks."""
    size = dict(LENGTH=4, ROWS=2, BLOCK_D=4)
    launchers = [functools.partial(f, **size) for f in (module.causal_conv1d_forward, module.causal_conv1d_backward)]

    def function(
        x, weight, bias=None, cu_seqlens=None, *, initial_state=None, activation=None, return_final_state=False
    ):
        given = x, weight, bias, initial_state, cu_seqlens, activation, return_final_state
        return module.call(*given, launchers)

    return function


def everything(B, T, D, W=4, dtype=torch.float32):
    shapes = dict(x=(B, T, D), weight=(D, W), bias=(D,), initial_state=(B, D, W - 1))
    return {name: randn(*shape, dtype=dtype) for name, shape in shapes.items()}


def packed(*lengths, D=3, W=4, behind=0):
    ends = torch.tensor([0, *lengths], dtype=torch.int32, device=DEVICE).cumsum(0, dtype=torch.int32)
    given = everything(len(lengths), 1, D, W)
    return given | dict(x=randn(sum(lengths) + behind, D), cu_seqlens=ends)


def assert_right(function, reference, inputs, upstream=None, **options):
    """Result, final state and all gradients."""
    if upstream is None:
        W, states = inputs["weight"].shape[1], inputs["initial_state"].shape
        upstream = randn(*inputs["x"].shape), randn(*states[:2], W - 1)
    chunk_cases.assert_right(function, reference, inputs, dict(zip(("o", "state"), upstream)), **options)


def check_fast(module):
    """Everything a mutant of the fast version has to get past."""
    walk = walked(module)
    for T, W in ((1, 4), (5, 4), (8, 4), (11, 4), (7, 2), (9, 7)):
        for activation in (None, "silu"):
            assert_right(walk, lesson.causal_conv1d_reference, everything(2, T, 5, W), activation=activation)
    assert_right(walk, lesson.causal_conv1d_reference, everything(1, 9, 3, dtype=torch.bfloat16), activation="silu")
    for lengths in ((5, 0, 1, 9), (4, 8, 3), (0, 0)):
        assert_right(walk, lesson.causal_conv1d_varlen_reference, packed(*lengths, behind=2), activation="silu")
    assert_right(module.causal_conv1d, lesson.causal_conv1d_reference, everything(2, 70, 3), activation="silu")
    taps_that_cancel(walk)
    infinities(walk)
    taps_of_nan(walk)
    without_a_state(walk)


def without_a_state(function):
    inputs = packed(5, 3, 9)
    del inputs["initial_state"]
    theirs = lesson.causal_conv1d_varlen_reference(**inputs, activation="silu")
    torch.testing.assert_close(function(**inputs, activation="silu"), theirs, rtol=1e-5, atol=1e-5)


def infinities(function):
    """At the borders of chunks and at the end, where rows are looked at that count for nothing."""
    for place in range(10):
        inputs = everything(1, 10, 2)
        inputs["x"][0, place, 0] = float("inf")
        assert_right(function, lesson.causal_conv1d_reference, inputs, activation=None)


def taps_of_nan(function):
    """A tap reaches the gradients of the tokens that it was multiplied with: not those behind which the text ends."""
    for tap in range(4):
        inputs = everything(1, 6, 2)
        inputs["weight"][0, tap] = float("nan")
        assert_right(function, lesson.causal_conv1d_reference, inputs, activation=None)


def check(module):
    """Everything a mutant of the lesson has to get past."""
    for T in (1, 2, 7):
        for activation in (None, "silu"):
            assert_right(
                module.causal_conv1d, lesson.causal_conv1d_reference, everything(2, T, 5), activation=activation
            )
    assert_right(module.causal_conv1d, lesson.causal_conv1d_reference, everything(1, 70, 3), activation="silu")
    inputs = packed(5, 0, 1, 8, behind=2)
    assert_right(module.causal_conv1d_varlen, lesson.causal_conv1d_varlen_reference, inputs, activation="silu")
    taps_that_cancel(module.causal_conv1d)
    taps_of_nan(module.causal_conv1d)
    one_token_after_another(module)


def taps_that_cancel(causal_conv1d):
    """Trap 2: (1 + 2^-7)^2 - (1 + 2^-6) is 2^-14, and 0 if the product is rounded to bfloat16."""
    x = torch.tensor([1 + 2.0**-6, 1 + 2.0**-7], device=DEVICE).bfloat16().view(1, 2, 1)
    weight = torch.tensor([[-1.0, 1 + 2.0**-7]], device=DEVICE).bfloat16()
    assert causal_conv1d(x, weight)[0, 1, 0] == 2.0**-14


def one_token_after_another(module):
    """Trap 9: five steps after a prefill give what the long call gives."""
    inputs = everything(2, 9, 5)
    y, final = lesson.causal_conv1d_reference(**inputs, activation="silu", return_final_state=True)
    x, state = inputs.pop("x"), inputs.pop("initial_state")
    _, state = module.causal_conv1d(x[:, :4], **inputs, initial_state=state, return_final_state=True)
    for t in range(4, 9):
        step = module.causal_conv1d_step_(state, x[:, t], **inputs, activation="silu")
        torch.testing.assert_close(step, y[:, t], rtol=1e-5, atol=1e-5)
    assert torch.equal(state, final)


def test_check_passes():
    check(lesson)


def test_check_of_the_fast_version_passes():
    check_fast(fast)


test_mutant_of_the_lesson_is_caught = harness.mutant_test(lesson, LESSON_MUTANTS, check)
test_mutant_of_the_fast_version_is_caught = harness.mutant_test(fast, FAST_MUTANTS, check_fast)


@pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
def test_fast_as_a_user_calls_it(dtype):
    """With the chunks that a user gets, several of them, and just as many tokens as the lesson is left with."""
    for B, T, D in ((2, 15, 3), (2, 16, 3), (1, 300, 70)):
        inputs = everything(B, T, D, dtype=dtype)
        upstream = randn(B, T, D, dtype=dtype), randn(B, D, 3, dtype=dtype)
        assert_right(fast.causal_conv1d, lesson.causal_conv1d_reference, inputs, upstream, activation="silu")


def test_fast_many_packed_sequences():
    inputs = packed(40, 16, 0, 70, 1, behind=3)
    assert_right(fast.causal_conv1d_varlen, lesson.causal_conv1d_varlen_reference, inputs, activation="silu")
    assert not fast.few_tokens(inputs["x"], inputs["cu_seqlens"])
    assert fast.few_tokens(inputs["x"][:70], inputs["cu_seqlens"]) and fast.few_tokens(randn(0, 40, 3), None)


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


def test_bad_sizes_of_the_fast_version():
    x, weight = randn(2, 20, 3), randn(3, 4)
    for size in (dict(LENGTH=5), dict(ROWS=3), dict(BLOCK_D=6), dict(num_warps=3)):
        with pytest.raises(ValueError, match=f"{next(iter(size))} must be a power of two"):
            fast.causal_conv1d_forward(x, weight, None, None, None, silu=True, **size)


@pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
@pytest.mark.parametrize("W", [2, 4, 8])
def test_values_and_gradients(W, dtype):
    """Trap 1: also where a sequence is shorter than the state. Trap 8: no two taps are alike."""
    for T in (1, W - 1, W, 20):
        assert_right(
            lesson.causal_conv1d, lesson.causal_conv1d_reference, everything(2, T, 3, W, dtype), activation="silu"
        )


@pytest.mark.parametrize("tokens", [0, 1, 2, 3, 5])
def test_steps_after_a_prompt_of_any_length(tokens):
    """Trap 9: a prompt shorter than the state, then token by token."""
    inputs = everything(2, 8, 3)
    y, final = lesson.causal_conv1d_reference(**inputs, activation="silu", return_final_state=True)
    x, state = inputs.pop("x"), inputs.pop("initial_state")
    start, state = lesson.causal_conv1d(
        x[:, :tokens], **inputs, initial_state=state, activation="silu", return_final_state=True
    )
    outs = [lesson.causal_conv1d_step_(state, x[:, t], **inputs, activation="silu") for t in range(tokens, 8)]
    torch.testing.assert_close(torch.cat([start, torch.stack(outs, 1)], 1), y, rtol=1e-5, atol=1e-5)
    assert torch.equal(state, final)


@pytest.mark.parametrize("lengths", [(5, 0, 1, 80), (0, 0), (1,) * 9], ids=str)
def test_packed_sequences(module, lengths):
    """Trap 5: no tap crosses a border. Trap 4: the state's gradient belongs to the first tokens of each."""
    for behind in (0, 3):
        inputs = packed(*lengths, behind=behind)
        assert_right(module.causal_conv1d_varlen, lesson.causal_conv1d_varlen_reference, inputs, activation="silu")
    inputs["x"][sum(lengths) :] = NAN
    y, final = module.causal_conv1d_varlen(**inputs, return_final_state=True)
    assert y[sum(lengths) :].eq(0).all() and y.isfinite().all() and final.isfinite().all()


def test_without_a_state_zeros_are_seen(module):
    """Trap 10: and whatever was in memory before isn't."""
    inputs = everything(2, 6, 3)
    state = inputs.pop("initial_state")
    assert torch.equal(
        module.causal_conv1d(**inputs), module.causal_conv1d(**inputs, initial_state=torch.zeros_like(state))
    )


def test_large_sums(module):
    """Trap 7: the slope of the SiLU at sums around 10^4, and where it is largest."""
    for scale in (1e4, 1.0):
        inputs = everything(1, 30, 3)
        inputs["x"] = inputs["x"] * scale
        assert_right(module.causal_conv1d, lesson.causal_conv1d_reference, inputs, activation="silu")


test_bad_arguments = harness.refused_test(
    "change, error, words",
    [
        (dict(x=torch.ones(5, 3)), ValueError, "x must have 3 dimensions"),
        (dict(weight=torch.ones(3, 9)), ValueError, "weight must have from 2 to 8 taps"),
        (dict(weight=torch.ones(4, 4)), ValueError, r"weight must have shape \(3, 4\)"),
        (dict(weight=torch.ones(3, 4).half()), TypeError, "weight must have the dtype of x"),
        (dict(bias=torch.ones(4)), ValueError, r"bias must have shape \(3,\)"),
        (dict(activation="relu"), ValueError, "activation must be one of None, 'silu', 'swish', got 'relu'"),
        (dict(initial_state=torch.ones(2, 3, 4)), ValueError, r"initial_state must have shape \(2, 3, 3\)"),
    ],
    dict(x=torch.ones(2, 5, 3), weight=torch.ones(3, 4)),
    lesson.causal_conv1d,
    fast.causal_conv1d,
)


def test_bad_arguments_of_a_step():
    x, weight = randn(2, 3), randn(3, 4)
    with pytest.raises(ValueError, match="state must not be expanded"):
        lesson.causal_conv1d_step_(randn(3, 3).expand(2, 3, 3), x, weight)
    with pytest.raises(ValueError, match=r"state must have shape \(2, 3, 3\)"):
        lesson.causal_conv1d_step_(randn(2, 3, 4), x, weight)
    with pytest.raises(ValueError, match="weight requires a gradient, but causal_conv1d_step_ has no backward"):
        lesson.causal_conv1d_step_(randn(2, 3, 3), x, weight.requires_grad_())


@pytest.mark.gpu
def test_offsets_past_32_bits(module):
    """Trap 11."""
    x = torch.empty(1, 2**16 + 8, 2**15, device=DEVICE, dtype=torch.bfloat16).normal_()
    weight = randn(2**15, 4, dtype=torch.bfloat16)
    part = lesson.causal_conv1d_reference(x[:, -20:, -8:], weight[-8:])
    torch.testing.assert_close(module.causal_conv1d(x, weight)[:, -17:, -8:], part[:, 3:], rtol=2e-2, atol=2e-2)
