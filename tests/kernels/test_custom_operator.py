"""Launchers that are operators inside `torch.compile`: schema, shapes of the results, and the very same results."""

import pytest
import torch

from annotated_examples.classics import rope
from annotated_examples.common import custom_operator
from annotated_examples.common.symmetric import symmetric_memory
from annotated_examples.distributed import all_reduce
from annotated_examples.fast import low_bit
from annotated_examples.fp8 import scaled_matmul
from annotated_examples.gemlite import gemm, gemm_splitK
from annotated_examples.moe import moe_mlp
from annotated_examples.recurrences import causal_conv1d, cumsum, gated_delta_rule_step
from tests.kernels.harness import DEVICE, randn
from tests.kernels.test_gemm import problem

CHECKS = ("test_schema", "test_faketensor")
HINTS = dict(tile_order="linear", A_load_order=1, meta_evict_policy="", data_contiguous=True)


def operator(module: object, name: str):
    return getattr(getattr(torch.ops, module.__name__.replace(".", "_")), name).default


@pytest.mark.parametrize("inverse", [False, True])
def test_rope(inverse):
    q, k = randn(2, 5, 4, 6).transpose(1, 2), randn(2, 1, 5, 6)
    cos, sin = randn(5, 2), randn(5, 2)
    options = dict(interleaved=True, inverse=inverse)
    run = operator(rope, "turn")
    torch.library.opcheck(run, (q, k, cos, sin), options, test_utils=CHECKS)
    for mine, theirs in zip(run(q, k, cos, sin, **options), rope.turn(q, k, cos, sin, **options)):
        assert torch.equal(mine, theirs) and mine.stride() == theirs.stride()


def test_a_scan():
    x, run = randn(3, 5, 4), operator(cumsum, "cumsum_forward")
    torch.library.opcheck(run, (x, 1, True, False), test_utils=CHECKS)
    assert torch.equal(run(x, 1, True, False), cumsum.cumsum(x, 1, reverse=True))


def test_a_state_that_is_written_to():
    state, x, weight = randn(2, 6, 3), randn(2, 6), randn(6, 4)
    run = operator(causal_conv1d, "step_forward")
    torch.library.opcheck(run, (state.clone(), x, weight, None), dict(silu=True), test_utils=CHECKS)
    mine, theirs = state.clone(), state.clone()
    y = run(mine, x, weight, None, silu=True)
    assert torch.equal(y, causal_conv1d.causal_conv1d_step_(theirs, x, weight, activation="silu"))
    assert torch.equal(mine, theirs) and not torch.equal(mine, state)


def test_a_step_of_the_delta_rule():
    state, q, k, v = randn(2, 4, 6, 5), randn(2, 2, 1, 6), randn(2, 2, 1, 6), randn(2, 4, 1, 5)
    others = q, k, v, -torch.rand(2, 4, 1, device=DEVICE), torch.rand(2, 4, 1, device=DEVICE), None, 0.5
    run = operator(gated_delta_rule_step, "gated_delta_rule_step_launch")
    torch.library.opcheck(run, (state.clone(), *others), test_utils=CHECKS)
    mine, theirs = state.clone(), state.clone()
    assert torch.equal(run(mine, *others), gated_delta_rule_step.gated_delta_rule_step_launch(theirs, *others))
    assert torch.equal(mine, theirs) and not torch.equal(mine, state)


def test_memory_that_ranks_share():
    x, memory = randn(300), symmetric_memory(300)
    arguments = x, list(memory.buffers), list(memory.pads), 0, memory.programs
    torch.library.opcheck(operator(all_reduce, "launch"), arguments, test_utils=CHECKS)
    assert torch.equal(operator(all_reduce, "launch")(*arguments), x)


@pytest.mark.parametrize(
    ("module", "name", "options"),
    [
        (gemm, "gemm_forward", HINTS),
        (gemm_splitK, "gemm_splitK_forward", dict(**HINTS, split_k=2, atomic_mode="relaxed")),
        (low_bit, "low_bit_forward", {}),
    ],
    ids=["gemm", "gemm_splitK", "low_bit"],
)
@pytest.mark.parametrize("zeros_are", ["a tensor", "a number"])
def test_products(module, name, options, zeros_are):
    (a, words, scales, zeros), _ = problem(4, 3, M=3, N=24, K=64, group_size=32)
    number = 0.0 if zeros_are == "a tensor" else 7.5
    modes = dict(W_nbits=4, group_size=32, W_group_mode=3, channel_scale_mode=0, out_dtype=torch.float32)
    options = modes | options
    arguments = a, words, scales, zeros if zeros_are == "a tensor" else None, number, None
    run = operator(module, name)
    torch.library.opcheck(run, arguments, options, test_utils=CHECKS)
    expected = getattr(module, name)(a, words, scales, zeros if zeros_are == "a tensor" else number, **options)
    torch.testing.assert_close(run(*arguments, **options), expected, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("recipe", scaled_matmul.RECIPES)
def test_products_of_codes(recipe):
    shapes = {"tensor": ((), ()), "row": ((5, 1), (1, 9)), "block": ((5, 2), (2, 1))}[recipe]
    a, b = (randn(*shape).to(torch.float8_e4m3fn) for shape in ((5, 200), (9, 200)))
    scales = (torch.rand(shape, device=DEVICE) + 0.5 for shape in shapes)
    arguments = (a, b.t(), *scales, randn(9), torch.float16) + (() if recipe == "block" else (True,))
    name = "block_scaled_matmul_forward" if recipe == "block" else "scaled_matmul_forward"
    run = operator(scaled_matmul, name)
    torch.library.opcheck(run, arguments, test_utils="test_faketensor")  # the other one adds, which codes can't
    assert torch.equal(run(*arguments), getattr(scaled_matmul, name)(*arguments))


@pytest.mark.parametrize("needs", [[True] * 4, [False, True, False, True], [False] * 4])
def test_experts(needs):
    x, weights, gate_up, down = randn(5, 6), randn(5, 2), randn(3, 8, 6), randn(3, 6, 4)
    plan = moe_mlp.sorted_by_expert(torch.tensor([[0, 2], [2, -1], [0, 2], [2, 2], [0, 0]], device=DEVICE), 3)
    run = operator(moe_mlp, "mlp_forward")
    torch.library.opcheck(run, (x, weights, gate_up, down, *plan), test_utils=CHECKS)
    out, h = run(x, weights, gate_up, down, *plan)
    assert torch.equal(out, moe_mlp.mlp_forward(x, weights, gate_up, down, *plan)[0])
    run, saved = operator(moe_mlp, "mlp_backward"), (randn(5, 6), x, weights, gate_up, down, h, *plan)
    torch.library.opcheck(run, saved, dict(needs=needs), test_utils=CHECKS)
    wanted = [value for value, need in zip(moe_mlp.mlp_backward(*saved), needs) if need]
    assert [torch.equal(*pair) for pair in zip(run(*saved, needs=needs), wanted, strict=True)] == [True] * sum(needs)


def test_a_compiled_call_goes_through_the_operator(monkeypatch):
    """With what its schema names; sizes of tiles, which it doesn't name, are left out."""
    seen = []

    def launch(x, *, scale, BLOCK=None):
        seen.append((scale, BLOCK))
        return x * scale

    launch.__module__ = "tests_kernels_test_opaque"
    double = custom_operator.opaque("(Tensor x, *, float scale) -> Tensor", lambda x, scale: torch.empty_like(x))(
        launch
    )
    x = torch.ones(3, device=DEVICE)
    assert torch.equal(double(x, scale=2.0, BLOCK=16), 2 * x) and seen == [(2.0, 16)]
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert torch.equal(double(x, scale=3.0, BLOCK=16), 3 * x) and seen[1:] == [(3.0, None)]
