"""kda and kda_varlen: values, states, all gradients, gates of each channel, borders, mutants.

What linear attention and the delta rules have to stand alike is in test_chunks.py. The traps of such kernels in use, and
the check or mutant ("…") that holds each:

1. e^G times e^−G: `strong_decay`, "trap 1: two factors from the chunk's start".
2. A middle anchor reads the future: `earlier_outputs_keep_their_bits`, "trap 2: factors from the chunk's middle".
3. An exponential before its mask, finite forward and NaN backward: `strong_decay`, `test_gates_of_zero_and_minus_90`.
4. A gate's gradient by difference: `strong_decay`, "trap 4: the gates' gradient by difference".
5. A sum of what came before as the running sum less oneself: "trap 5: a running sum less oneself", which only the
   recurrence's tolerance shows.
6. An inverse by squaring: `test_equal_keys`; its mutants are the gated delta rule's.
7. Gates in another base: "trap 7: gates to base 2". A clamped gate: the contract says the layer's two formulas.
8. A gate's offset without its head: five mutants of trap 8, the second in "the walk".
9. Products in TF32: on a card "trap 9: fp32 products in tf32".
10. Tails that differ from run to run: `test_the_same_bits`.
11. Gates are those of heads of v: `check`, with two of them for each head of k, and the mutants of trap 8.
12. A state in 16 bits: `test_chunks.py::test_in_pieces`, "trap 12: a rounded state is handed on".
"""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import math

import numpy as np
import pytest
import torch

from academy.runtime import device
from annotated_examples.common import halves
from annotated_examples.recurrences import gated_delta_rule
from annotated_examples.recurrences import kda as module
from tests.kernels import chunk_cases, harness
from tests.kernels.chunk_cases import Operation, results, upstreams
from tests.kernels.harness import Mutant
from tests.kernels.references import recurrence_by_steps

G_HEAD = "head(g_tensor, b, h, start)"
MUTANTS = [
    *(
        Mutant(f"trap 8: gates of another head, {kernel}", old, old.replace("b, h, start)", "b, 0, start)"))
        for kernel, old in (
            ("before the state is known", f"    g_head = {G_HEAD}\n    beta ="),
            ("the walk", f"head(k_tensor, b, h // group, start), {G_HEAD}\n    w_head"),
            ("outputs", f"    left = what_is_left(load_block({G_HEAD}"),
            ("the walk back", f"g_head, do_head = {G_HEAD}"),
            ("gradients", f"        g_head = {G_HEAD}"),
        )
    ),
    Mutant("keys of another head", "h // group", "0", count=6),
    Mutant("not summed over the group", "tl.range(hk * group, (hk + 1) * group)", "tl.range(hk * group, hk * group + 1)"),
    Mutant("the next gate is this one", "offs_t + 1, end", "offs_t, end", count=4),
    Mutant("a chunk's last token has a next gate", "tl.minimum(length, start_t + BLOCK_T)", "length", count=3),
    Mutant("beta isn't in the system", "faded_products(q, k * beta, k", "faded_products(q, k, k"),
    Mutant("a token doesn't read itself", "own[:, None], p) * scale", "0.0, p) * scale"),
    Mutant("no decay in what is asked", "asked = k * beta * tl.cumprod(left, axis=0)", "asked = k * beta"),
    Mutant("trap 12: a rounded state is handed on", "        offs_t, end = start_t + tl.arange", "        state = state.to(tl.bfloat16).to(tl.float32)\n        offs_t, end = start_t + tl.arange"),
    Mutant("the inverse isn't transposed", "turned(head(inverse_tensor, first + n, h, 0))", "head(inverse_tensor, first + n, h, 0)"),
    Mutant("scores aren't transposed", "turned(head(p_tensor, first + n, h, 0))", "head(p_tensor, first + n, h, 0)"),
    Mutant("what was asked has the wrong sign", "* -beta[None, :]", "* beta[None, :]"),
    Mutant("the state's gradient lacks what was asked", "        dstate = multiply_add(asks, dr.to(k.dtype), dstate, INPUT_PRECISION)\n", ""),
    Mutant("beta isn't in dv", "dr * beta[:, None], offs_t", "dr, offs_t"),
    Mutant("what was told is left out of dk", "dk += dk_here + own * q", "dk += own * q"),
    Mutant("what was asked is left out of dk", "        down += asked\n", ""),
    Mutant("a token's own score is left out", "dq += dq_here + own * k + read", "dq += dq_here + read"),
    Mutant("from state to state no gate gets anything", "        dg += (left_of_all(left, 0) * through)[None, :]\n", ""),
    Mutant("trap 4: the gates' gradient by difference", "        down += asked\n", "        dg = tl.cumsum(q * (dq_here + own * k) + own_k * down - k * (dk_here + own * q), axis=0, reverse=True)\n        down += asked\n"),
    Mutant("trap 5: a running sum less oneself", "sums_across((rows > columns).to(tl.float32), k * written, k.dtype)", "tl.cumsum(k * written, axis=0) - k * written"),
    Mutant("beta gets its values once for each block of channels", "if block == 0:", "if block >= 0:"),
    Mutant("trap 9: fp32 products in tf32", "INPUT_PRECISION=input_precision()", 'INPUT_PRECISION="tf32"', gpu=True),
]  # fmt: skip

HALVES = [
    Mutant("trap 1: two factors from the chunk's start", "return tl.reshape(upto, left.shape), tl.reshape(after, left.shape)", "return tl.cumprod(left, axis=0), 1 / tl.cumprod(left, axis=0)"),
    Mutant("trap 7: gates to base 2", "left = decay_of(g)", "left = tl.exp2(g)"),
    Mutant("a half's last token has a gate after it", "tl.where(last[:, None], 1.0, next_left)", "next_left"),
    Mutant("after a token is from the start", "axis=1, reverse=True)", "axis=1)"),
    Mutant("pairs of other blocks", "p += tl.where(pair, reads, 0.0)", "p += reads"),
    Mutant("pairs of other blocks in the system", "a += tl.where(pair, asks, 0.0)", "a += asks"),
    Mutant("the last two halves are left apart", "if 2**level < BLOCK_T:", "if 2**level < BLOCK_T // 2:", count=2),
    Mutant("a reader doesn't pass its own gate", "columns >= rows", "columns > rows"),
    Mutant("a writer passes its own gate", "columns < rows)", "columns <= rows)"),
    Mutant("gates get no part of the system", "q * dq_here + own_k * down_here + k * dk_here", "q * dq_here + k * dk_here"),
    Mutant("told by queries alone", "            dk_here += tl.dot(", "            dk_here += 0.0 * tl.dot("),
]  # fmt: skip
ANCHOR = [
    Mutant("trap 2: factors from the chunk's middle", "return tl.reshape(upto, left.shape), tl.reshape(after, left.shape)", "middle = left_of_all(tl.where(tl.arange(0, left.shape[0])[:, None] < left.shape[0] // 2, left, 1.0), 0)\n    return tl.cumprod(left, axis=0) / middle[None, :], middle[None, :] / tl.cumprod(left, axis=0)"),
]  # fmt: skip

operation = Operation(module)


def check(module):
    """Everything a mutant has to get past."""
    inputs = Operation(module).tensors(T=40, Hk=2, H=4, D=40, E=20, layout=harness.nan_fenced)
    chunk_cases.assert_right(
        module.kda,
        operation.reference,
        inputs,
        upstreams(inputs, harness.strided),
        truth=recurrence_by_steps,
        scale=0.7,
    )
    strong_decay(module)


def strong_decay(module):
    """Traps 1, 3, 4 and 5: gates of −10 and of −5 to 0, results of the recurrence to a millionth."""
    for low, high in ((-10.0, -10.0), (-5.0, 0.0)):
        inputs = operation.tensors(T=35, H=1)
        inputs["g"].uniform_(low, high)
        Operation(module).close_to_steps(inputs, upstreams(inputs), 1e-6)


def earlier_outputs_keep_their_bits(module):
    """Trap 2. Other tokens from the first half of a chunk on, and from the second."""
    inputs = operation.tensors(T=30, D=16, E=16, dtype=torch.bfloat16)
    inputs["g"] *= 4
    for at in (10, 21):
        other = {n: x.clone() for n, x in inputs.items()}
        for name in ("q", "k", "v", "g", "beta"):
            other[name][:, at:] *= 0.3
        one, two = (module.kda(**given)[:, :at] for given in (inputs, other))
        assert torch.equal(one, two), at


def test_check_passes():
    check(module)


test_mutant_is_caught = harness.mutant_test(module, MUTANTS, check)
test_mutant_of_the_halves_is_caught = harness.mutant_test(halves, HALVES, check, within=module)
test_mutant_of_the_anchor_is_caught = harness.mutant_test(
    halves, ANCHOR, earlier_outputs_keep_their_bits, within=module
)


def test_earlier_outputs_keep_their_bits():
    earlier_outputs_keep_their_bits(module)


@pytest.mark.parametrize("dtype", harness.DTYPES, ids=harness.dtype_name)
def test_gates_of_zero_and_minus_90(dtype):
    """Trap 3: no half of a chunk is without a channel that is gone and one that stays."""
    inputs = operation.tensors(T=70, D=17, E=16, dtype=dtype)
    inputs["g"] = torch.where(torch.rand_like(inputs["g"]) > 0.7, -90.0, 0.0)
    operation.right(inputs)


@pytest.mark.parametrize("at", [0, 15, 31, 32, 39])
@pytest.mark.parametrize("channels", [slice(1), slice(None)], ids=["one channel", "all"])
def test_a_gate_of_minus_infinity(at, channels):
    """At a chunk's first token, in its middle, at its last. Nothing passes it, and it gets no gradient."""
    inputs = operation.tensors(T=40)
    inputs["g"][0, at, 0, channels] = -math.inf
    mine = operation.close_to_steps(inputs)
    assert (mine["dg"][0, at, 0, channels] == 0).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=harness.dtype_name)
def test_a_reset_in_16_bits(dtype):
    """What comes before it has no part in what comes after: the same bits as without."""
    inputs = operation.tensors(T=40, D=16, E=16, dtype=dtype)
    inputs["g"][:, 32] = -math.inf
    whole, state = module.kda(**inputs, return_final_state=True)
    later = {n: x if n == "initial_state" else x[:, 32:] for n, x in inputs.items()}
    alone, alone_state = module.kda(**later, return_final_state=True)
    assert torch.equal(whole[:, 32:], alone) and torch.equal(state, alone_state)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=harness.dtype_name)
def test_equal_keys(dtype):
    """Trap 6: all of each difference written, and little decay."""
    inputs = operation.tensors(T=64, D=32, E=16, H=1, dtype=dtype)
    inputs["k"].copy_(inputs["k"][:, :1].expand_as(inputs["k"]).clone())
    inputs["beta"].fill_(1.0)
    inputs["g"] *= 0.01
    operation.right(inputs)


@pytest.mark.skipif(not device.INTERPRET, reason="about Triton's interpreter")
def test_equal_keys_summed_as_on_a_card(monkeypatch):
    """NumPy has several sums for a product. A card adds term after term, and each addition is one with its product."""
    from triton.runtime import interpreter

    def one_after_the_other(builder, a, b, sums, *rest):
        total = sums.data
        for left, right in zip(a.data.T, b.data):
            total = (total + np.outer(left.astype(np.float64), right)).astype(np.float32)
        return interpreter.TensorHandle(total, sums.dtype.scalar)

    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", one_after_the_other)
    test_equal_keys(torch.float32)


def test_equal_channels_are_the_gated_delta_rule():
    inputs = operation.tensors(T=40, Hk=1, H=2)
    g = inputs["g"][..., 0].clone()
    inputs["g"].copy_(g[..., None].expand_as(inputs["g"]))
    mine = module.kda(**inputs)
    theirs = gated_delta_rule.gated_delta_rule(**inputs | dict(g=g))
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("T", [1, 2, 7, 15, 33])
@pytest.mark.parametrize("times", harness.TIMES)
def test_the_same_bits(T, times):
    """Trap 10: tails."""
    inputs = operation.tensors(T=T, D=24, E=20, dtype=torch.bfloat16)
    ups = upstreams(inputs)
    first = results(module.kda, inputs, ups)
    for _ in range(times - 1):
        assert all(torch.equal(x, first[name]) for name, x in results(module.kda, inputs, ups).items())


def test_the_first_gate_has_nothing_to_fade():
    """Without an initial state its gradient is 0, exactly."""
    inputs = operation.tensors(B=2, T=40)
    inputs["initial_state"].zero_()
    assert (results(module.kda, inputs, upstreams(inputs))["dg"][:, 0] == 0).all()


def test_blocks_of_channels_agree():
    """The parts of β's gradient, and scores that are sums over blocks."""
    inputs = operation.tensors(T=40, D=50, E=20)
    ups = upstreams(inputs)
    (forward, backward), given = operation.launchers, operation.heads_first(inputs)
    one, other = (
        (
            *forward(*given, scale=0.3, BLOCK_D=size),
            *backward(ups["o"].transpose(1, 2), ups["state"], *given, scale=0.3, BLOCK_D=size),
        )
        for size in (16, 64)
    )
    for mine, its in zip(one, other):
        torch.testing.assert_close(mine, its, rtol=1e-5, atol=1e-5)


def a_decay_keeps_its_digits(module):
    """One token, and channels whose gates come to −80: what is left of each, relative to itself."""
    inputs = operation.tensors(T=1, H=1)
    inputs["beta"].zero_()
    inputs["g"].copy_(torch.linspace(-80, -0.1, inputs["g"].shape[-1]))
    state = module.kda(**inputs, return_final_state=True)[1].double()
    exact = inputs["initial_state"].double() * inputs["g"].double().exp().view(*state.shape[:-1], 1)
    assert ((state - exact) / exact).abs().max() < 5e-7


def test_a_decay_keeps_its_digits():
    a_decay_keeps_its_digits(module)


test_mutant_of_decays_is_caught = harness.mutant_test(
    halves,
    [Mutant("float32 is decayed as 16 bits are", "if dtype == tl.float32:\n        left", "if False:\n        left")],
    a_decay_keeps_its_digits,
    within=module,
)


def test_what_only_a_decayed_state_leaves():
    """The contract: exact to a millionth of what the state was."""
    inputs = operation.tensors(T=8, H=1)
    inputs["v"].zero_()
    inputs["beta"].zero_()
    inputs["g"].fill_(-9.0)
    o, state = module.kda(**inputs, return_final_state=True)
    exact = inputs["initial_state"].double() * math.exp(-72)
    assert (state - exact).abs().max() < 1e-6 * inputs["initial_state"].abs().max() and o.isfinite().all()


@pytest.mark.parametrize(
    "changes, error, message",
    [
        (dict(g=torch.zeros(1, 3, 2)), ValueError, "g must have shape (1, 3, 2, 8)"),
        (dict(g=torch.zeros(1, 3, 1, 8)), ValueError, "g must have shape (1, 3, 2, 8)"),
        (dict(g=torch.zeros(1, 3, 2, 8).half()), TypeError, "g must be one of float32, float32, got float16"),
        (dict(beta=None), TypeError, "beta must be a torch.Tensor, got NoneType"),
        (dict(beta=torch.ones(1, 3, 1)), ValueError, "beta must have shape (1, 3, 2)"),
        (dict(initial_state=torch.zeros(1, 2, 9, 8)), ValueError, "initial_state must have shape (1, 2, 8, 9)"),
    ],
    ids=range(6),
)  # fmt: skip
def test_errors(changes, error, message):
    made = dict(q=(1, 3, 1, 8), k=(1, 3, 1, 8), v=(1, 3, 2, 9), beta=(1, 3, 2))
    arguments = {name: torch.ones(shape) for name, shape in made.items()} | dict(g=None) | changes
    harness.assert_refused(error, message, module.kda, **arguments)


def test_a_gate_above_zero_is_an_error(monkeypatch):
    monkeypatch.setenv("ACADEMY_DEBUG", "1")  # on a GPU values are looked at on request
    inputs = operation.tensors(T=3)
    inputs["g"][0, 1, 0, 2] = 0.5
    with pytest.raises(ValueError, match="g must be at most 0, the logarithm of a decay, got 0.5"):
        module.kda(**inputs)
