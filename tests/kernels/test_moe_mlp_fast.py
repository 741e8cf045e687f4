"""fast/moe_mlp: values and every gradient, with rows that are copied into order, and products by descriptors.

What every layer of experts has to stand is in `test_moe_mlp`, most of which runs with both files; its checks run here.
What is new: rows behind the last expert's hold anything at all, since nobody copies them, `dropped_slots` and
`rows_that_nobody_wrote`. A row longer than a block, and where a weight's gradient is stored, the formulas hold.
"""

import pytest
import torch

from annotated_examples.fast import moe_mlp as fast
from tests.kernels import harness, test_moe_mlp
from tests.kernels.harness import randn
from tests.kernels.test_moe_mlp import chosen, layer

NAMES = ("x", "weights", "gate_up", "down")
HALF = (torch.bfloat16, torch.float16)


# ---------------------------------------------------------------- checks, which mutants have to fail


def by_descriptors(module):
    """16-bit numbers in aligned rows: the products of the fast version, with dropped slots and an expert of nobody."""
    for dtype in HALF:
        inputs, experts = layer(37, 3, 4, H=24, N=16, dtype=dtype), chosen(37, 3)
        test_moe_mlp.assert_right(module, inputs, experts)


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


CHECKS = [by_descriptors, rows_that_nobody_wrote]
OF_BOTH = [
    test_moe_mlp.experts_of_any_kind,
    test_moe_mlp.dropped_slots,
    test_moe_mlp.rows_of_others,
    test_moe_mlp.weights_in_float32,
]
test_check = harness.check_test(fast, [*CHECKS, *OF_BOTH])


@pytest.mark.gpu
@pytest.mark.parametrize("T, k, E, H, N", [(700, 6, 16, 512, 704), (5000, 4, 12, 768, 512), (64, 2, 8, 256, 384)])
def test_sizes_that_fill_a_card(T, k, E, H, N):
    """Every choice of tiles, with dropped slots and experts of nobody."""
    inputs = layer(T, k, E, H, N, dtype=torch.bfloat16)
    inputs |= dict(gate_up=inputs["gate_up"] * 2 / H**0.5, down=inputs["down"] * 2 / N**0.5)
    test_moe_mlp.assert_right(fast, inputs, chosen(T, k, E))
