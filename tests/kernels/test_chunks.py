"""What linear attention and both delta rules have to stand alike: the lessons' kernels, and in places the fast ones.

test_linear_attention.py lists the traps, and what compilers got wrong on Hopper (H1 to H11).
"""

import math

import pytest
import torch

from academy.runtime import device
from academy.judge import accuracy
from annotated_examples.common import chunks as common
from annotated_examples.fast import gated_delta_rule as fast_delta_rule
from annotated_examples.fast import linear_attention as fast_linear_attention
from annotated_examples.recurrences import gated_delta_rule, kda, linear_attention
from operations._packed import sequences_of
from tests.kernels import chunk_cases, harness
from tests.kernels.chunk_cases import Operation, results, upstreams
from tests.kernels.harness import DEVICE, DTYPES
from tests.kernels.references import recurrence_by_steps

BF16 = torch.bfloat16


@pytest.fixture(params=[linear_attention, gated_delta_rule, kda], ids=["linear attention", "delta rule", "kda"])
def operation(request):
    return Operation(request.param)


@pytest.mark.parametrize(
    ("D", "E"),
    [(1, 1), (33, 20), *(pytest.param(*each, marks=pytest.mark.nightly) for each in ((100, 130), (256, 16)))],
)
def test_widths(operation, D, E):
    """H4: an odd width of 16-bit numbers. D of 256 takes other tiles. What gates and states get in one head of width 1
    are few numbers that share their errors, so twice PyTorch's is a matter of luck: a card has many sequences."""
    B = 256 if E == 1 and not device.INTERPRET else 1
    operation.right(operation.tensors(B=B, T=40, D=D, E=E, dtype=BF16))


@pytest.mark.parametrize("T", [1, 32, 33, *(pytest.param(T, marks=pytest.mark.nightly) for T in (31, 70))])
def test_lengths_around_a_chunk(operation, T):
    """The chunk's last token is not the tile's last lane."""
    operation.right(operation.tensors(T=T), truth=recurrence_by_steps)


def test_chunks_of_all_sizes_agree(operation):
    inputs = operation.tensors(T=70)
    ups, (forward, backward) = upstreams(inputs), operation.launchers
    given, do = operation.heads_first(inputs), ups["o"].transpose(1, 2)
    found = [
        (*forward(*given, scale=0.3, BLOCK_T=size), *backward(do, ups["state"], *given, scale=0.3, BLOCK_T=size))
        for size in (16, 32, 64)
    ]
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=1e-5, atol=1e-5)


def test_no_gates_are_gates_of_zero(operation):
    """The same bits."""
    inputs = operation.tensors(T=40)
    inputs["g"].zero_()
    ups = upstreams(inputs)
    mine = results(operation.function, inputs, ups)
    without = results(operation.function, inputs | dict(g=None), ups)
    assert [name for name, value in without.items() if not torch.equal(mine[name], value)] == []


def test_the_first_gate_has_nothing_to_fade(operation):
    """Without an initial state its gradient is 0, exactly, and no other is."""
    inputs = operation.tensors(T=20)
    ups = upstreams(inputs) | dict(state=None)
    dg = results(operation.function, {n: x for n, x in inputs.items() if n != "initial_state"}, ups)["dg"]
    assert (dg[:, 0] == 0).all() and (dg[:, 1:] != 0).all()


@pytest.mark.parametrize("scale", [1, -0.3, 0], ids=str)
def test_scale(operation, scale):
    """The scale once, forward and backward. H5: the int 1 is not compiled into the kernel."""
    inputs = operation.tensors(T=20)
    operation.right(inputs, scale=scale)
    checked = common.contract(*(inputs[n] for n in "qkvg"), scale, None, False, per_channel=operation.channels)
    assert isinstance(checked, float)


@pytest.mark.parametrize("missing", ["o", "state"])
def test_loss_of_one_result(operation, missing):
    """A loss of the final state alone reaches every gate, of each head by itself."""
    inputs = operation.tensors(T=40, H=3)
    mine = operation.right(inputs, upstreams(inputs) | {missing: None})
    assert (mine["dg"][:, :, 0] != mine["dg"][:, :, 1]).any() and mine["dg"].abs().sum() > 0


@pytest.mark.parametrize("at", [0, 16, 31, 32])
def test_reset(operation, at):
    """At a chunk's first token, in its middle, at its last token. Nothing passes a gate of −∞."""
    inputs = operation.tensors(T=40)
    inputs["g"][0, at, 0] = -math.inf
    assert (operation.close_to_steps(inputs)["dg"][0, at, 0] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, BF16], ids=harness.dtype_name)
def test_in_pieces(operation, dtype):
    """A long sequence in one call is the same as in three, which hand on the state."""
    inputs = operation.tensors(T=100, dtype=dtype)
    state, outs = inputs.pop("initial_state"), []
    whole, final = operation.function(**inputs, initial_state=state, return_final_state=True)
    for start, end in ((0, 33), (33, 34), (34, 100)):
        piece = {n: x[:, start:end] for n, x in inputs.items()}
        o, state = operation.function(**piece, initial_state=state, return_final_state=True)
        outs.append(o)
    eps = torch.finfo(dtype).eps
    assert accuracy.errors(torch.cat(outs, 1), whole.double()).rms < 4 * eps
    assert accuracy.errors(state, final.double()).rms < 4 * eps and state.dtype == torch.float32


# ---------------------------------------------------------------- packed sequences


@pytest.mark.parametrize("lengths", [[32, 32], [5, 0, 33, 1, 0], [0, 0, 0], []], ids=str)
def test_varlen(operation, lengths):
    """Every sequence has its own end. Rows behind the last one are 0, also without tokens, or without sequences."""
    inputs = operation.packed(lengths, 4, layout=harness.nan_fenced, Hk=2, H=4)
    ups = upstreams(inputs)
    if sum(lengths):
        mine = chunk_cases.assert_right(operation.varlen, sequences_of(operation.reference), inputs, ups)
    else:
        mine = results(operation.varlen, inputs, ups)
        assert torch.equal(mine["state"], inputs["initial_state"])
    for name in mine.keys() - {"state", "dinitial_state"}:
        assert (mine[name][sum(lengths) :] == 0).all(), name


def test_a_sequence_of_nan_beside_others(operation):
    """Tokens of two sequences never meet, and NaN behind the last sequence reaches nothing."""
    inputs = operation.packed([20, 20, 20], behind=3)
    for name in "qkv":
        inputs[name][20:40], inputs[name][60:] = math.nan, math.nan
    mine = results(operation.varlen, inputs, upstreams(inputs))
    for name in ("o", "dq", "dk", "dv"):
        bad = mine[name].isnan().flatten(1).all(1)
        assert torch.equal(bad.nonzero().flatten(), torch.arange(20, 40, device=DEVICE)), name
        assert mine[name][~bad].isfinite().all(), name


# ---------------------------------------------------------------- large tensors


def test_every_grid_has_one_axis(operation, monkeypatch):
    """H7: axes 1 and 2 end at 65,535, and there are more sequences of one token than that."""
    grids = harness.grids(monkeypatch, operation.module)
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)  # nobody reads all the states
    q, v = (torch.empty(70_000, H, 1, 1, device=DEVICE) for H in (2, 4))
    given = q, q, v, None, *([torch.empty(70_000, 4, 1, device=DEVICE)] if operation.delta else []), None, None
    forward, backward = operation.launchers
    forward(*given, scale=1.0)
    backward(v, None, *given, scale=1.0)
    kernels = {"linear_attention": (4, 2), "gated_delta_rule": (6, 3), "kda": (6, 1)}[operation.name]
    assert grids == [(280_000,)] * kernels[0] + [(140_000,)] * kernels[1]


@pytest.mark.gpu
@pytest.mark.parametrize(
    "module", [linear_attention, gated_delta_rule, fast_linear_attention, fast_delta_rule], ids=lambda m: m.__name__
)
def test_more_than_2_to_the_31_elements(module):
    """H8: more elements than 32 bits count, in v and in the states, of which the last rows are compared."""
    operation, T = Operation(module, dtype=BF16), 2**18 + 64
    inputs = operation.tensors(T=T, H=1, D=64, E=8)
    more = {n: x.expand(1, T, 64) for n, x in inputs.items() if n in ("g", "beta")}
    v = torch.randn(1, T, 64, 128, device=DEVICE, dtype=BF16)
    given = [inputs["q"], inputs["k"], v, more["g"] - 0.5, *([more["beta"]] if operation.delta else [])]
    assert v.numel() >= 2**31
    o = operation.function(*given)
    alone = operation.function(*(x[:, -512:] for x in given))
    torch.testing.assert_close(o[:, -128:], alone[:, -128:], rtol=2e-2, atol=2e-2)


@pytest.mark.gpu
def test_70_000_sequences_of_one_token(operation):
    """H7. Of one token the state is its value, which the delta rule writes by a share of beta."""
    q, k, v = (torch.randn(70_000, 1, 2, 16, device=DEVICE, dtype=BF16) for _ in range(3))
    share = [torch.rand(70_000, 1, 2, device=DEVICE)] if operation.delta else []
    o = operation.function(q, k, v, None, *share, scale=1.0)
    exact = (q.double() * k.double()).sum(-1, keepdim=True) * v.double()
    exact *= share[0].double()[..., None] if share else 1
    torch.testing.assert_close(o.double(), exact, rtol=2e-2, atol=5e-2)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
@pytest.mark.parametrize(("D", "E"), chunk_cases.WIDTHS)
def test_lengths_of_a_real_call(operation, D, E, dtype):
    """H1 to H4, H6: where compilers are known to go wrong. All sizes of tiles and numbers of warps that are chosen."""
    operation.right(operation.tensors(B=2, T=500, Hk=2, H=4, D=D, E=E, dtype=dtype, decay=0.1))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
@pytest.mark.parametrize("D", [16, 64])
@pytest.mark.parametrize("BLOCK_T", [16, 32, 64])
def test_chunks_of_all_sizes_compile_right(operation, BLOCK_T, D, dtype):
    """H1 to H4, H6 again: sizes of chunks that a caller of the launchers may ask for."""
    inputs = operation.tensors(B=2, T=200, Hk=2, H=4, D=D, E=64, dtype=dtype, decay=0.1)
    function = operation.with_sizes(BLOCK_T=BLOCK_T)
    chunk_cases.assert_right(function, operation.reference, inputs, upstreams(inputs))
