"""gated_delta_rule and gated_delta_rule_varlen: values, states, all gradients, similar keys, borders, mutants.

The traps of such kernels in use, beside linear attention's, and the check or mutant ("…") that holds each:

1. Blocks off the diagonal without a mask of rows: `test_strong_gates_in_an_incomplete_chunk`, and "trap 1: the strict
    triangle is left out".
2. An inverse by squaring: `similar_keys`, "trap 2: an inverse by squaring".
3. An inverse, or products of float32, in TF32 or 16 bits: "trap 3: the inverse in half precision", and on a card "trap 3:
    the inverse in tf32", "trap 3: fp32 products in tf32".
4. No gates aren't gates of 0: `test_no_gates_are_gates_of_zero`.
5. A key that comes again, a β of 0 or up to 2: `test_a_value_is_overwritten`, `test_beta_of_zero_and_up_to_two`.
6. A division by β: `test_beta_of_zero_and_up_to_two`, "trap 6: beta divided out".
7. The inverse isn't transposed, or the diagonal of dA kept: "trap 7: the inverse isn't transposed", "trap 7: the diagonal
    of dA is kept".
8. A key counts once, though A has it twice: "trap 8: a key's column is left out", "trap 8: a key's row is left out".
9. The state's gradient lacks what was asked: "trap 9: the state's gradient lacks what was asked".
10. Asked before the decay: `strong_decay`, "trap 10: no decay in what is asked", "trap 10: asked before the decay,
    backward"; one token: a mutant of its step.
11. A rounded state in the step, asked, read or kept: three mutants of the step.
12. The step after a prefill isn't the long call: `test_64_tokens_after_a_prefill`.
13. Slots: states of nobody, rows without one: `test_with_slots`, three mutants of the step.
14. Keys made of length 1 in 16 bits: their normalisation sums in float32, `test_large_numbers_of_float16`.
15. Grouped heads: "trap 15: keys of another head", "trap 15: not summed over the group".
16. Widths that are no powers of two, or differ: `test_widths`, on a card `test_lengths_of_a_real_call`.
"""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import functools

import pytest
import torch
import torch.nn.functional as F

from annotated_examples.common import chunks, delta_rule
from annotated_examples.recurrences import gated_delta_rule as module
from tests.kernels import chunk_cases, harness
from tests.kernels.chunk_cases import Operation, results, upstreams, with_beta
from tests.kernels.harness import DEVICE, Mutant, randn

MUTANTS = [
    Mutant("trap 1: the strict triangle is left out", "a = tl.where(place[:, None] > place[None, :], overlap, 0.0)", "a = overlap"),
    Mutant("trap 3: the inverse in tf32", 'BLOCK_T, "ieee" if k.dtype == tl.float32 else "tf32")', 'BLOCK_T, "tf32")', gpu=True),
    Mutant("trap 3: the inverse in half precision", "    if inverse_tensor[0] is not None:", "    inverse = inverse.to(tl.bfloat16).to(tl.float32)\n    if inverse_tensor[0] is not None:"),
    Mutant("trap 3: fp32 products in tf32", "input_precision=INPUT_PRECISION)", 'input_precision="tf32")', count=4, gpu=True),
    Mutant("trap 6: beta divided out", "dbeta += tl.sum(k * asked, axis=1) - answer", "dbeta += tl.sum(k * asked, axis=1) * beta / beta - answer"),
    Mutant("trap 7: the inverse isn't transposed", "multiply_add(tl.trans(inverse), du.to(do.dtype)", "multiply_add(inverse, du.to(do.dtype)"),
    Mutant("trap 7: the diagonal of dA is kept", "da = tl.where(earlier, -da, 0.0)", "da = tl.where(place[:, None] >= place[None, :], -da, 0.0)"),
    Mutant("trap 8: a key's column is left out", "multiply_add(da_transposed.to(k.dtype), k, (asked - dk_state) * beta[:, None], INPUT_PRECISION)", "(asked - dk_state) * beta[:, None]"),
    Mutant("trap 8: a key's row is left out", "(asked - dk_state) * beta", "(0.0 - dk_state) * beta"),
    Mutant("what was asked of the state is left out of dk", "(asked - dk_state) * beta", "asked * beta"),
    Mutant("trap 9: the state's gradient lacks what was asked", "        dstate = multiply_add(tl.trans(k), asked, dstate, INPUT_PRECISION)\n", ""),
    Mutant("trap 10: no decay in what is asked", "scaled = k * (beta * decay_from_start(g))[:, None]", "scaled = k * beta[:, None]"),
    Mutant("trap 10: asked before the decay, backward", "        dk_state *= left[:, None]\n", ""),
    Mutant("trap 15: keys of another head", "h // group", "0", count=4),
    Mutant("trap 15: not summed over the group", "tl.range(0, group)", "tl.range(0, 1)"),
    Mutant("gates get no part of the system", "-beta * answer", "0.0 * answer"),
    Mutant("beta isn't in dv", "dr * beta[:, None], offs_t", "dr, offs_t"),
]  # fmt: skip
# Of what both delta rules share.
INVERSE = [
    Mutant("trap 2: an inverse by squaring", "            inverse -= tl.dot(taken, inverse, input_precision=PRECISION)\n", "            inverse = taken\n    inverse = tl.where(rows == columns, 1.0, -a)\n    for _ in tl.static_range(5):\n        a = tl.dot(a, a, input_precision=PRECISION)\n        inverse += tl.dot(inverse, a, input_precision=PRECISION)\n"),
    Mutant("halves of the inverse in the wrong order", "taken = tl.dot(inverse, cross, input_precision=PRECISION)\n            inverse -= tl.dot(taken, inverse, input", "taken = tl.dot(cross, inverse, input_precision=PRECISION)\n            inverse -= tl.dot(taken, inverse, input"),
    Mutant("the last two halves are left apart", "if 2**level < BLOCK_T:", "if 2**level < BLOCK_T // 2:"),
    Mutant("a token writes twice", "return inverse - tl.where(rows == columns, 1.0, 0.0)", "return inverse"),
]  # fmt: skip
FRAME = [
    Mutant("second derivative loses its term", "    @autograd.once_differentiable\n", ""),
]

right = functools.partial(chunk_cases.assert_right, module.gated_delta_rule, module.gated_delta_rule_reference)


def tensors(most=1.0, **shape):
    return with_beta(chunk_cases.tensors(**shape), most)


def check(module):
    """Everything a mutant has to get past."""
    right = functools.partial(chunk_cases.assert_right, module.gated_delta_rule, module.gated_delta_rule_reference)
    inputs = tensors(T=40, Hk=2, H=4, E=40, layout=harness.nan_fenced)
    inputs["beta"][0, 3] = 0.0
    right(inputs, upstreams(inputs, harness.strided), scale=0.7)
    similar_keys(module, torch.float32)
    strong_decay(module)
    harness.assert_gradient_penalty_raises(
        module.gated_delta_rule, {n: x for n, x in tensors(T=3).items() if n != "initial_state"}
    )


def strong_decay(module):
    """Trap 3 of linear attention, and trap 10: the gate comes before the question."""
    inputs = tensors(T=35, H=1)
    inputs["g"].fill_(-10.0)
    Operation(module).close_to_steps(inputs, upstreams(inputs) | dict(state=None), 1e-6)


def similar_keys(module, dtype):
    """Trap 2: keys with a cosine of about a half, all of each difference written, and little decay."""
    inputs = tensors(T=64, D=32, E=16, H=1, dtype=dtype)
    direction = F.normalize(randn(32), dim=0)
    inputs["k"].copy_(F.normalize(inputs["k"].float() + direction, dim=-1))
    inputs["beta"].fill_(1.0)
    inputs["g"] *= 0.01
    chunk_cases.assert_right(module.gated_delta_rule, module.gated_delta_rule_reference, inputs, upstreams(inputs))


def test_check_passes():
    check(module)


test_mutant_is_caught = harness.mutant_test(module, MUTANTS, check)
test_mutant_of_the_inverse_is_caught = harness.mutant_test(chunks, INVERSE, check, within=module)
test_mutant_of_the_frame_is_caught = harness.mutant_test(delta_rule, FRAME, check, within=module)


def test_similar_keys_in_bfloat16():
    """Trap 2 and trap 3."""
    similar_keys(module, torch.bfloat16)


def test_strong_gates_in_an_incomplete_chunk():
    """Trap 1."""
    inputs = tensors(T=32 + 17, H=1)
    inputs["g"].fill_(-20.0)
    Operation(module).close_to_steps(inputs, upstreams(inputs))


def test_the_first_gate_has_nothing_to_fade():
    """Without an initial state its gradient is 0, exactly."""
    inputs = tensors(B=2, T=40)
    inputs["initial_state"].zero_()
    assert (results(module.gated_delta_rule, inputs, upstreams(inputs))["dg"][:, 0] == 0).all()


def test_a_value_is_overwritten():
    """Trap 5: with β = 1 and no decay a key answers with what was written last; with β = 0 nothing is written."""
    k = torch.eye(3, device=DEVICE)[[0, 1, 0, 2, 1]][None, :, None]
    v, ones = randn(1, 5, 1, 4), torch.ones(1, 5, 1, device=DEVICE)
    _, state = module.gated_delta_rule(k, k, v, None, ones, scale=1.0, return_final_state=True)
    torch.testing.assert_close(state[0, 0], v[0, [2, 4, 3], 0], rtol=1e-6, atol=1e-6)
    _, state = module.gated_delta_rule(k, k, v, None, 0 * ones, scale=1.0, return_final_state=True)
    assert (state == 0).all()


@pytest.mark.parametrize("most", [0.0, 2.0], ids=str)
def test_beta_of_zero_and_up_to_two(most):
    """Traps 5 and 6."""
    inputs = tensors(most, T=40)
    mine = right(inputs, upstreams(inputs))
    assert mine["dbeta"].abs().sum() > 0


test_errors = harness.refused_test(
    "change, error, message",
    [
        (dict(beta=None), TypeError, "beta must be a torch.Tensor, got NoneType"),
        (dict(beta=torch.ones(1, 3, 1)), ValueError, "beta must have shape (1, 3, 2)"),
        (dict(beta=torch.ones(1, 3, 2).half()), TypeError, "beta must be one of float32, float32, got float16"),
        (dict(k=torch.ones(1, 3, 1, 9)), ValueError, "k must have the shape of q, (1, 3, 1, 8), got (1, 3, 1, 9)"),
        (dict(initial_state=torch.zeros(1, 2, 9, 8)), ValueError, "initial_state must have shape (1, 2, 8, 9)"),
    ],
    dict(q=torch.ones(1, 3, 1, 8), k=torch.ones(1, 3, 1, 8), v=torch.ones(1, 3, 2, 9), beta=torch.ones(1, 3, 2), g=None),
    module.gated_delta_rule,
)  # fmt: skip
