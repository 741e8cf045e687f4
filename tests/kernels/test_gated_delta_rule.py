"""gated_delta_rule and gated_delta_rule_varlen: similar keys, strong gates, what β may be, products on a card.

The traps of such kernels in use, beside linear attention's, and what holds each. "The formula" is the comparison with
it, of all results and gradients, in floats and without rounding:

1. Blocks off the diagonal without a mask of rows: `test_strong_gates_in_an_incomplete_chunk`, the formula.
2. An inverse by squaring: `similar_keys`, "trap 2: an inverse by squaring".
3. An inverse, or products of float32, in TF32 or 16 bits: the formula, and on a card "trap 3: the inverse in tf32",
    "trap 3: fp32 products in tf32".
4. No gates aren't gates of 0: `test_no_gates_are_gates_of_zero`.
5. A key that comes again, a β of 0 or up to 2: `test_a_value_is_overwritten`, `test_beta_of_zero_and_up_to_two`.
6. A division by β: `test_beta_of_zero_and_up_to_two`, the formula without rounding.
7. The inverse isn't transposed, or the diagonal of dA kept: the formula.
8. A key counts once, though A has it twice: the formula.
9. The state's gradient lacks what was asked: the formula.
10. Asked before the decay: the formula; one token: a mutant of its step.
11. A rounded state in the step, asked, read or kept: three mutants of the step.
12. The step after a prefill isn't the long call: `test_64_tokens_after_a_prefill`.
13. Slots: states of nobody, rows without one: `with_slots`, three mutants of the step.
14. Keys made of length 1 in 16 bits: their normalisation sums in float32, `test_large_numbers_of_float16`.
15. Grouped heads: `test_varlen`, `test_hostile_inputs` of the judge.
16. Widths that are no powers of two, or differ: `test_widths`, on a card `test_lengths_of_a_real_call`.
"""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import functools

import pytest
import torch
import torch.nn.functional as F

from annotated_examples.common import chunks
from annotated_examples.recurrences import gated_delta_rule as module
from tests.kernels import chunk_cases, harness
from tests.kernels.chunk_cases import Operation, upstreams, with_beta
from tests.kernels.harness import DEVICE, Mutant, randn

ON_A_CARD = [
    Mutant("trap 3: the inverse in tf32", 'BLOCK_T, "ieee" if k.dtype == tl.float32 else "tf32")', 'BLOCK_T, "tf32")', gpu=True),
    Mutant("trap 3: fp32 products in tf32", "input_precision=INPUT_PRECISION)", 'input_precision="tf32")', count=4, gpu=True),
]  # fmt: skip
# Of what both delta rules share.
INVERSE = [
    Mutant("trap 2: an inverse by squaring", "            inverse -= tl.dot(taken, inverse, input_precision=PRECISION)\n", "            inverse = taken\n    inverse = tl.where(rows == columns, 1.0, -a)\n    for _ in tl.static_range(5):\n        a = tl.dot(a, a, input_precision=PRECISION)\n        inverse += tl.dot(inverse, a, input_precision=PRECISION)\n"),
]  # fmt: skip
right = functools.partial(chunk_cases.assert_right, module.gated_delta_rule, module.gated_delta_rule_reference)


def tensors(most=1.0, **shape):
    return with_beta(chunk_cases.tensors(**shape), most)


def similar_keys(module, dtype=torch.float32):
    """Trap 2: keys with a cosine of about a half, all of each difference written, and little decay."""
    inputs = tensors(T=64, D=32, E=16, H=1, dtype=dtype)
    direction = F.normalize(randn(32), dim=0)
    inputs["k"].copy_(F.normalize(inputs["k"].float() + direction, dim=-1))
    inputs["beta"].fill_(1.0)
    inputs["g"] *= 0.01
    chunk_cases.assert_right(module.gated_delta_rule, module.gated_delta_rule_reference, inputs, upstreams(inputs))


test_mutant_of_the_inverse_is_caught = harness.mutant_test(chunks, INVERSE, similar_keys, within=module)
test_mutant_on_a_card_is_caught = harness.mutant_test(module, ON_A_CARD, similar_keys)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=harness.dtype_name)
def test_similar_keys(dtype):
    """Trap 2 and trap 3."""
    similar_keys(module, dtype)


def test_strong_gates_in_an_incomplete_chunk():
    """Trap 1."""
    inputs = tensors(T=32 + 17, H=1)
    inputs["g"].fill_(-20.0)
    Operation(module).close_to_steps(inputs, upstreams(inputs))


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
