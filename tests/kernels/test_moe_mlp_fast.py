"""fast/moe_mlp: values and every gradient, with rows that are copied into order, and products by descriptors.

What every layer of experts has to stand is in `test_moe_mlp`, most of which runs with both files; its checks run here. What is new, and what
holds it: rows behind the last expert's hold anything at all, since nobody copies them, `dropped_slots` and
`rows_that_nobody_wrote`; a row longer than a block, `long_rows`; a weight's
gradient is stored at its slot, "stored in the order of rows".
"""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import pytest
import torch

from annotated_examples.fast import moe_mlp as fast
from annotated_examples.moe import moe_mlp as lesson
from tests.kernels import harness, test_moe_mlp
from tests.kernels.harness import Mutant, randn
from tests.kernels.test_moe_mlp import NAMES, chosen, layer, on

HALF = (torch.bfloat16, torch.float16)


# ---------------------------------------------------------------- checks, which mutants have to fail


def by_descriptors(module):
    """16-bit numbers in aligned rows: the products of the fast version, with dropped slots and an expert of nobody."""
    for dtype in HALF:
        inputs, experts = layer(37, 3, 4, H=24, N=16, dtype=dtype), chosen(37, 3)
        test_moe_mlp.assert_right(module, inputs, experts)


def long_rows(module):
    """Blocks shorter than a row, in memory that is fenced; a row that ends inside of a block."""
    inputs, experts = layer(H=24, N=40, dtype=torch.float16), chosen()
    plan, upstream = module.sorted_by_expert(experts, 4), randn(11, 24, dtype=torch.float16)
    with harness.unchanged(**inputs), harness.fenced_allocations():
        out, h = module.mlp_forward(*(inputs[n] for n in NAMES), *plan, BLOCK=16)
        found = module.mlp_backward(upstream, *(inputs[n] for n in NAMES), h, *plan, BLOCK=16)
    wanted = harness.gradients(
        on(experts, lesson.moe_mlp_reference), {n: v.float() for n, v in inputs.items()}, upstream.float()
    )
    for name, value in zip(("out", *(f"d{n}" for n in NAMES)), (out, *found)):
        torch.testing.assert_close(
            value.float(), wanted[name], rtol=2e-2, atol=2e-2, msg=lambda m, name=name: f"{name}: {m}"
        )


def rows_that_nobody_wrote(module):
    """Most slots dropped: what lies in the rows behind, NaN in fenced memory, reaches no result."""
    inputs, experts = layer(40, 2, 4, H=24, N=16, dtype=torch.bfloat16), chosen(40, 2)
    experts[5:] = -1
    plan, upstream = module.sorted_by_expert(experts, 4), randn(40, 24, dtype=torch.bfloat16)
    with harness.fenced_allocations():
        out, h = module.mlp_forward(*(inputs[n] for n in NAMES), *plan)
        found = module.mlp_backward(upstream, *(inputs[n] for n in NAMES), h, *plan)
    assert not out[5:].any() and all(bool(value.isfinite().all()) for value in (out, *found))
    assert not found[0][5:].any() and not found[1][5:].any()


CHECKS = [by_descriptors, long_rows, rows_that_nobody_wrote]
OF_BOTH = [
    test_moe_mlp.every_dtype,
    test_moe_mlp.experts_of_any_kind,
    test_moe_mlp.dropped_slots,
    test_moe_mlp.rows_of_others,
    test_moe_mlp.weights_in_float32,
]
test_check = harness.check_test(fast, [*CHECKS, *OF_BOTH])


MUTANTS = [
    Mutant("gathered by row", "token = tl.load(order_ptr + row).to(tl.int64) // TOP_K", "token = row // TOP_K"),
    Mutant("columns of the first block", "x_ptr + token * stride_xt + offs * stride_xc", "x_ptr + token * stride_xt + (offs - start) * stride_xc"),
    Mutant("gate and up exchanged", "gate * sigmoid_of(gate) * up, mask", "up * sigmoid_of(up) * gate, mask"),
    Mutant("up is the gate again", "h_ptr + row * 2 * N + N + offs, mask=mask, other=0.0).to(tl.float32)\n            tl.store", "h_ptr + row * 2 * N + offs, mask=mask, other=0.0).to(tl.float32)\n            tl.store"),
    Mutant("derivative of the activation", "sigmoid * (1.0 + gate * (1.0 - sigmoid))", "sigmoid * (1.0 + gate * sigmoid)"),
    Mutant("weighted gradient of the weight", "total += u * a", "total += weight * u * a"),
    Mutant("gradient of the last block alone", "total += u * a", "total = u * a"),
    Mutant("stored in the order of rows", "tl.store(dweights_ptr + slot,", "tl.store(dweights_ptr + row,"),
    Mutant("weight missing in the gates", "u *= weight\n", "u *= 1.0\n"),
    Mutant("weight missing in the matrix", "weight * a, mask=mask", "a, mask=mask"),
    Mutant("weight of another slot", "slot % TOP_K * stride_wk", "(slot + 1) % TOP_K * stride_wk"),
    Mutant("both factors of down", "grouped_sums_forward(upstream.t(), wa,", "grouped_sums_forward(gathered(x, plan).t(), wa,"),
]  # fmt: skip
DROPPED = Mutant(
    "dropped slots not written",
    "tl.store(dweights_ptr + slot, tl.sum(total, 0))",
    "tl.store(dweights_ptr + slot, tl.sum(total, 0), mask=kept)",
)

test_mutant_is_caught = harness.mutant_test(fast, [*MUTANTS, (rows_that_nobody_wrote, DROPPED)], long_rows)


@pytest.mark.gpu
@pytest.mark.parametrize("T, k, E, H, N", [(700, 6, 16, 512, 704), (5000, 4, 12, 768, 512), (64, 2, 8, 256, 384)])
def test_sizes_that_fill_a_card(T, k, E, H, N):
    """Every choice of tiles, with dropped slots and experts of nobody."""
    inputs = layer(T, k, E, H, N, dtype=torch.bfloat16)
    inputs |= dict(gate_up=inputs["gate_up"] * 2 / H**0.5, down=inputs["down"] * 2 / N**0.5)
    test_moe_mlp.assert_right(fast, inputs, chosen(T, k, E))
