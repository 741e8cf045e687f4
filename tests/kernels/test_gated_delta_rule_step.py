"""gated_delta_rule_step_: values, the long call after a prefill, slots, layouts, errors, mutants.

"Trap 11" and the like number the mistakes that others have made in such kernels.
"""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import math

import pytest
import torch
import torch.nn.functional as F

from academy.judge import accuracy
from academy.judge.elements import in_float64
from annotated_examples.recurrences import gated_delta_rule as whole
from annotated_examples.recurrences import gated_delta_rule_step as module
from tests.kernels import chunk_cases, harness
from tests.kernels.harness import DEVICE, DTYPES, Mutant, randn

MUTANTS = [
    Mutant("trap 10: asked before it fades", "answer = tl.sum(k * state, axis=0)", "answer = tl.sum(k * state / tl.exp(load_gates(g_tensor, b, h, 0, token, 1))[:, None], axis=0)"),
    Mutant("trap 11: asked of a rounded state", "answer = tl.sum(k * state, axis=0)", "answer = tl.sum(k * state.to(tl.bfloat16).to(tl.float32), axis=0)"),
    Mutant("trap 11: read from a rounded state", "scale * tl.sum(q * state, axis=0)", "scale * tl.sum(q * state.to(tl.bfloat16).to(tl.float32), axis=0)"),
    Mutant("trap 11: a rounded state is kept", "    store_block(matrix, state,", "    state = state.to(tl.bfloat16).to(tl.float32)\n    store_block(matrix, state,"),
    Mutant("trap 13: the row's own state", "        slot = tl.load(slots_ptr + b)\n", "        slot = b\n"),
    Mutant("trap 13: a row without a slot writes", "store_block(matrix, state, offs_d, rows, offs_e, E)", "store_block(head(state_tensor, tl.where(used, slot, 0), h, 0), state, offs_d, D, offs_e, E)"),
    Mutant("trap 13: a row without a slot is read", "o = tl.where(used, o, 0.0)", "o = o + 0.0"),
    Mutant("trap 15: keys of another head", "k_tensor, b, h // group", "k_tensor, b, 0"),
    Mutant("trap 15: queries of another head", "q_tensor, b, h // group", "q_tensor, b, 0"),
    Mutant("no scale", "o = scale * tl.sum", "o = tl.sum"),
    Mutant("the old state is read", "    state += k * u[None, :]\n", "    state += 0.0 * k * u[None, :]\n"),
    Mutant("columns of the first tile", "tile * BLOCK_E + tl.arange(0, BLOCK_E)", "tl.arange(0, BLOCK_E)"),
]  # fmt: skip


def token(B=3, Hk=2, H=4, D=5, E=40, *, dtype=torch.float32, layout=lambda values: values, states=None):
    return dict(
        state=layout(randn(B if states is None else states, H, D, E)),
        q=layout(randn(B, Hk, D, dtype=dtype)),
        k=layout(F.normalize(randn(B, Hk, D), dim=-1).to(dtype)),
        v=layout(randn(B, H, E, dtype=dtype)),
        g=layout(F.logsigmoid(randn(B, H))),
        beta=layout(torch.rand(B, H, device=DEVICE)),
    )


def results(function, inputs, **options):
    """The output and the new state; the given one is left alone."""
    state = inputs["state"].clone()
    o = function(state, **{name: x for name, x in inputs.items() if name != "state"}, **options)
    return dict(o=o, state=state)


def right(module, inputs, **options):
    reference = module.gated_delta_rule_step_reference
    given = {name: x for name, x in inputs.items() if x is not None}
    with harness.unchanged(**given), harness.fenced_allocations():
        mine = results(module.gated_delta_rule_step_, inputs, **options)
    own, exact = results(reference, inputs, **options), results(reference, in_float64(inputs), **options)
    for name, value in mine.items():
        accuracy.check(name, value, own[name], exact[name])
    return mine


def check(module):
    """Everything a mutant has to get past."""
    right(module, token(), scale=0.7)
    with_slots(module)


def with_slots(module):
    """Trap 13: five states for three rows, of which one has none. The others' numbers may be anything."""
    inputs, slots = token(states=5), torch.tensor([4, -1, 1], dtype=torch.int32, device=DEVICE)
    inputs["state"][[0, 2, 3]] = math.nan
    mine = results(module.gated_delta_rule_step_, inputs, slots=slots)
    assert mine["state"][[0, 2, 3]].isnan().all() and (mine["o"][1] == 0).all()
    rows = {name: x[[0, 2]] for name, x in inputs.items() if name != "state"}
    alone = results(module.gated_delta_rule_step_, rows | dict(state=inputs["state"][[4, 1]]))
    assert torch.equal(mine["o"][[0, 2]], alone["o"]) and torch.equal(mine["state"][[4, 1]], alone["state"])


def test_check_passes():
    check(module)


test_mutant_is_caught = harness.mutant_test(module, MUTANTS, check)


@pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
@pytest.mark.parametrize(("D", "E"), [(1, 1), (64, 64), (100, 33), (192, 256)])
def test_widths(D, E, dtype):
    right(module, token(B=1, D=D, E=E, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=harness.dtype_name)
def test_64_tokens_after_a_prefill(dtype):
    """Trap 12: what a prefill of 37 tokens and 64 steps give is what the long call gives."""
    inputs = chunk_cases.with_beta(chunk_cases.tensors(B=2, T=101, Hk=1, H=2, D=16, E=24, dtype=dtype))
    state = inputs.pop("initial_state")
    o, final = whole.gated_delta_rule(**inputs, initial_state=state, return_final_state=True)
    prompt = {name: x[:, :37] for name, x in inputs.items()}
    first, state = whole.gated_delta_rule(**prompt, initial_state=state, return_final_state=True)
    outs = [first] + [
        module.gated_delta_rule_step_(state, **{name: x[:, t] for name, x in inputs.items()})[:, None]
        for t in range(37, 101)
    ]
    most = 4 * torch.finfo(dtype).eps
    assert accuracy.errors(torch.cat(outs, 1), o.double()).rms < most
    assert accuracy.errors(state, final.double()).rms < most


def test_no_gates_are_gates_of_zero():
    inputs = token()
    with_zeros = results(module.gated_delta_rule_step_, inputs | dict(g=torch.zeros(3, 4, device=DEVICE)))
    without = results(module.gated_delta_rule_step_, inputs | dict(g=None))
    assert all(torch.equal(without[name], value) for name, value in with_zeros.items())


def test_a_gate_of_minus_infinity_forgets():
    inputs = token()
    inputs["g"].fill_(-math.inf)
    mine = results(module.gated_delta_rule_step_, inputs)
    fresh = results(module.gated_delta_rule_step_, inputs | dict(state=torch.zeros_like(inputs["state"])))
    assert all(torch.equal(fresh[name], value) for name, value in mine.items())


def test_the_grid_has_one_axis(monkeypatch):
    """H7: 70 000 rows of 4 heads."""
    grids = harness.grids(monkeypatch, module)
    q, v = (torch.empty(70_000, H, 1, 16, device=DEVICE) for H in (2, 4))
    state = torch.empty(1, 4, 16, 16, device=DEVICE).expand(70_000, 4, 16, 16)
    module.gated_delta_rule_step_launch(state, q, q, v, None, v[..., 0], None, 1.0)
    assert grids == [(280_000,)]


SHAPES = dict(state=(2, 2, 8, 9), q=(2, 1, 8), k=(2, 1, 8), v=(2, 2, 9), beta=(2, 2))


def slots(*numbers):
    return dict(slots=torch.tensor(numbers, dtype=torch.int32))


test_errors = harness.refused_test(
    "change, error, message",
    [
        (dict(state=torch.zeros(2, 2, 9, 8)), ValueError, "state must have shape (2, 2, 8, 9)"),
        (dict(state=torch.zeros(1, 2, 8, 9, device=DEVICE).expand(2, 2, 8, 9)), ValueError, "state must not be expanded"),
        (dict(beta=torch.ones(2, 3)), ValueError, "beta must have shape"),
        (dict(v=torch.ones(2, 2, 9).requires_grad_()), ValueError, "v requires a gradient, but gated_delta_rule_step_"),
        (slots(0), ValueError, "slots must have shape (2,)"),
        (slots(1, 2), ValueError, "slots must be different numbers from 0 to 1, or -1, got [1, 2]"),
        (slots(1, 1), ValueError, "slots must be different numbers"),
    ],
    {name: torch.ones(shape) for name, shape in SHAPES.items()} | dict(g=None),
    module.gated_delta_rule_step_,
)  # fmt: skip
