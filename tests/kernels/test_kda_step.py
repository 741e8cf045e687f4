"""kda_step_: values, the long call after a prefill, slots, gates of each row, errors, mutants.

What the step of every delta rule checks of its arguments, test_gated_delta_rule_step.py tries. The numbers of traps are
those of test_kda.py.
"""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import math

import pytest
import torch

from academy.judge import accuracy
from annotated_examples.recurrences import gated_delta_rule_step as one_gate
from annotated_examples.recurrences import kda as whole
from annotated_examples.recurrences import kda_step as module
from tests.kernels import harness
from tests.kernels.chunk_cases import Operation
from tests.kernels.harness import DEVICE, DTYPES, LAYOUTS, Mutant
from tests.kernels.test_gated_delta_rule_step import token as token_of_one_gate

MUTANTS = [
    Mutant("trap 8: gates of another head", "head(g_tensor, b, h, 0)", "head(g_tensor, b, 0, 0)"),
    Mutant("trap 11: gates of a head of keys", "head(g_tensor, b, h, 0)", "head(g_tensor, b, h // group, 0)"),
    Mutant("columns fade", "state *= left[:, None]", "state *= tl.min(left)"),
    Mutant("asked before it fades", "answer = tl.sum(k * state, axis=0)", "answer = tl.sum(k * load_block(matrix, offs_d, rows, offs_e, E), axis=0)"),
    Mutant("trap 12: a rounded state is kept", "    store_block(matrix, state,", "    state = state.to(tl.bfloat16).to(tl.float32)\n    store_block(matrix, state,"),
    Mutant("asked of a rounded state", "answer = tl.sum(k * state, axis=0)", "answer = tl.sum(k * state.to(tl.bfloat16).to(tl.float32), axis=0)"),
    Mutant("the row's own state", "        slot = tl.load(slots_ptr + b)\n", "        slot = b\n"),
    Mutant("a row without a slot writes", "store_block(matrix, state, offs_d, rows, offs_e, E)", "store_block(head(state_tensor, tl.where(used, slot, 0), h, 0), state, offs_d, D, offs_e, E)"),
    Mutant("a row without a slot is read", "o = tl.where(used, o, 0.0)", "o = o + 0.0"),
    Mutant("keys of another head", "k_tensor, b, h // group", "k_tensor, b, 0"),
    Mutant("queries of another head", "q_tensor, b, h // group", "q_tensor, b, 0"),
    Mutant("no scale", "o = scale * tl.sum", "o = tl.sum"),
    Mutant("the old state is read", "    state += k * u[None, :]\n", "    state += 0.0 * k * u[None, :]\n"),
    Mutant("columns of the first tile", "tile * BLOCK_E + tl.arange(0, BLOCK_E)", "tl.arange(0, BLOCK_E)"),
]  # fmt: skip


def token(D=5, **shape):
    made = token_of_one_gate(D=D, **shape)
    layout = shape.get("layout", lambda values: values)
    g = -torch.rand(*made["g"].shape, D, device=DEVICE) * 3
    return made | dict(g=layout(g))


def results(function, inputs, **options):
    """The output and the new state; the given one is left alone."""
    state = inputs["state"].clone()
    o = function(state, **{name: x for name, x in inputs.items() if name != "state"}, **options)
    return dict(o=o, state=state)


def right(module, inputs, **options):
    reference = module.kda_step_reference
    with harness.unchanged(**inputs), harness.fenced_allocations():
        mine = results(module.kda_step_, inputs, **options)
    wide = {name: x.double() for name, x in inputs.items()}
    own, exact = results(reference, inputs, **options), results(reference, wide, **options)
    for name, value in mine.items():
        accuracy.check(name, value, own[name], exact[name])
    return mine


def check(module):
    """Everything a mutant has to get past."""
    right(module, token(), scale=0.7)
    inputs, slots = token(states=5), torch.tensor([4, -1, 1], dtype=torch.int32, device=DEVICE)
    inputs["state"][[0, 2, 3]] = math.nan
    mine = results(module.kda_step_, inputs, slots=slots)
    assert mine["state"][[0, 2, 3]].isnan().all() and (mine["o"][1] == 0).all()
    rows = {name: x[[0, 2]] for name, x in inputs.items() if name != "state"}
    alone = results(module.kda_step_, rows | dict(state=inputs["state"][[4, 1]]))
    assert torch.equal(mine["o"][[0, 2]], alone["o"]) and torch.equal(mine["state"][[4, 1]], alone["state"])


def test_check_passes():
    check(module)


test_mutant_is_caught = harness.mutant_test(module, MUTANTS, check)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_layouts(layout):
    right(module, token(layout=layout))


@pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
@pytest.mark.parametrize(("D", "E"), [(1, 1), (64, 64), (100, 33), (192, 256)])
def test_widths(D, E, dtype):
    right(module, token(B=1, D=D, E=E, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=harness.dtype_name)
def test_steps_after_a_prefill(dtype):
    """What a prefill of 37 tokens and 20 steps give is what the long call gives."""
    inputs = Operation(whole).tensors(B=2, T=57, Hk=1, H=2, D=16, E=24, dtype=dtype)
    state = inputs.pop("initial_state")
    o, final = whole.kda(**inputs, initial_state=state, return_final_state=True)
    prompt = {name: x[:, :37] for name, x in inputs.items()}
    first, state = whole.kda(**prompt, initial_state=state, return_final_state=True)
    steps = [module.kda_step_(state, **{n: x[:, t] for n, x in inputs.items()})[:, None] for t in range(37, 57)]
    most = 4 * torch.finfo(dtype).eps
    assert accuracy.errors(torch.cat([first, *steps], 1), o.double()).rms < most
    assert accuracy.errors(state, final.double()).rms < most


def test_no_gates_are_gates_of_zero():
    inputs = token()
    with_zeros = results(module.kda_step_, inputs | dict(g=torch.zeros_like(inputs["g"])))
    without = results(module.kda_step_, inputs | dict(g=None))
    assert all(torch.equal(without[name], value) for name, value in with_zeros.items())


def test_a_gate_of_minus_infinity_forgets_its_row():
    inputs = token()
    inputs["g"][..., 2] = -math.inf
    mine = results(module.kda_step_, inputs)
    inputs["state"][:, :, 2] = 0
    fresh = results(module.kda_step_, inputs)
    assert all(torch.equal(fresh[name], value) for name, value in mine.items())


def test_equal_rows_are_the_gated_delta_rule():
    """The same bits: the same arithmetic."""
    inputs = token()
    g = inputs["g"][..., 0].clone()
    mine = results(module.kda_step_, inputs | dict(g=g[..., None].expand(*g.shape, 5)))
    other = results(one_gate.gated_delta_rule_step_, inputs | dict(g=g))
    assert all(torch.equal(other[name], value) for name, value in mine.items())


def test_the_grid_has_one_axis(monkeypatch):
    """70 000 rows of 4 heads."""
    grids = harness.grids(monkeypatch, module)
    q, v = (torch.empty(70_000, H, 1, 16, device=DEVICE) for H in (2, 4))
    state = torch.empty(1, 4, 16, 16, device=DEVICE).expand(70_000, 4, 16, 16)
    module.kda_step_launch(state, q, q, v, None, v[..., 0], None, 1.0)
    assert grids == [(280_000,)]


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (dict(g=torch.zeros(2, 2)), ValueError, "g must have"),
        (dict(g=torch.zeros(2, 2, 9)), ValueError, "g must have shape (2, 1, 2, 8)"),
        (dict(g=torch.ones(2, 2, 8)), ValueError, "g must be at most 0, the logarithm of a decay, got 1"),
        (dict(beta=torch.ones(2)), ValueError, "beta must have"),
        (dict(v=torch.ones(2, 2, 9).requires_grad_()), ValueError, "v requires a gradient, but kda_step_"),
        (dict(slots=torch.tensor([1, 1], dtype=torch.int32)), ValueError, "slots must be different numbers"),
    ],
    ids=range(6),
)  # fmt: skip
def test_errors(changes, error, message, monkeypatch):
    monkeypatch.setenv("ACADEMY_DEBUG", "1")  # on a GPU values are looked at on request
    shapes = dict(state=(2, 2, 8, 9), q=(2, 1, 8), k=(2, 1, 8), v=(2, 2, 9), beta=(2, 2))
    arguments = {name: torch.ones(shape) for name, shape in shapes.items()} | dict(g=None) | changes
    harness.assert_refused(error, message, module.kda_step_, **arguments)
