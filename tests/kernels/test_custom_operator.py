"""Launchers that are operators inside `torch.compile`: schema, shapes of the results, and the very same results."""

import torch

from annotated_examples.common import custom_operator
from annotated_examples.common.symmetric import symmetric_memory
from annotated_examples.distributed import all_reduce
from annotated_examples.recurrences import causal_conv1d, gated_delta_rule_step
from tests.kernels.harness import DEVICE, randn

CHECKS = ("test_schema", "test_faketensor")


def operator(module: object, name: str):
    return getattr(getattr(torch.ops, module.__name__.replace(".", "_")), name).default


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
