"""The kernels of fast.linear_attention, fast.gated_delta_rule and fast.kda, for 16-bit tensors that a descriptor fits:
values, gradients beside the lessons' kernels, packed sequences, resets, what is left to the lessons, mutants."""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import math

import pytest
import torch
import torch.nn.functional as F

from academy.runtime import device
from academy.judge import accuracy
from academy.judge.elements import in_float64
from annotated_examples.common import chunks as common
from annotated_examples.common import delta_rule
from annotated_examples.fast import gated_delta_rule as delta
from annotated_examples.fast import kda
from annotated_examples.fast import linear_attention as linear
from operations._packed import sequences_of
from tests.kernels import chunk_cases, harness
from tests.kernels.chunk_cases import Operation, results, upstreams
from tests.kernels.harness import Mutant, randn
from tests.kernels.references import recurrence_by_steps
from tests.kernels.test_kda import earlier_outputs_keep_their_bits

BF16 = torch.bfloat16
#: Of the error, where the recurrence in float64 is the measure.
MOST = 4 * torch.finfo(BF16).eps
LINEAR_MUTANTS = [
    Mutant("the next sequence's rows aren't cleared", "length, PACKED, BLOCK_T, BLOCK_D)", "length, False, BLOCK_T, BLOCK_D)", count=3),
    Mutant("keys of another head", "h // group", "0", count=3),
    Mutant("keys of another sequence", "entry = 0 if PACKED else b", "entry = 0", count=2),
    Mutant("parts: gradients from the first part on", "n = parts - 1 - passed if REVERSE else passed", "n = passed"),
]  # fmt: skip
DELTA_MUTANTS = [
    Mutant("the strict triangle is left out", "a = tl.where(place[:, None] > place[None, :], overlap, 0.0)", "a = overlap"),
    Mutant("asked before the decay", 'state_product(k, state, "ieee") * left[:, None]) * beta', 'state_product(k, state, "ieee")) * beta'),
    Mutant("the whole difference is written", ") * beta[:, None]\n        u =", ")\n        u ="),
    Mutant("outputs from the state after the chunk", "* (left * scale)[:, None]\n            o =", "* (kept * scale)[:, None]\n            o ="),
    Mutant("the inverse isn't transposed", "tl.dot(tl.trans(inverse), du", "tl.dot(inverse, du"),
    Mutant("the state's gradient lacks what was asked", '        dstate = tl.dot(tl.trans(k), asked, dstate, input_precision="ieee")\n', ""),
    Mutant("walk back begins at the first chunk", "n = chunks - 1 - passed", "n = passed"),
    Mutant("what was asked of the state is left out of dk", "dk += (asked - dk_state) * beta", "dk += asked * beta"),
    Mutant("beta gets nothing of the state's answer", "tl.sum(k * asked, axis=1) - answer", "tl.sum(k * asked, axis=1)"),
    Mutant("gates get nothing of the state's answer", "sums_from(-beta * answer)", "sums_from(-beta * answer) * 0.0"),
    Mutant("gates get nothing of the system", "            passed += da * tl.dot(k, tl.trans(k), input_precision=\"ieee\")\n", ""),
    Mutant("a key's column is left out", 'dk += tl.dot(da.to(k.dtype), k, dk_state, input_precision="ieee")', "dk += dk_state"),
    Mutant("a key's row is overwritten", "    dk += load_block(head(dk_tensor, b, hk, start), offs_t, length, offs_d, D)\n", ""),
    Mutant("not summed over the group", "tl.range(0, group)", "tl.range(0, 1)", count=2),
    Mutant("the next sequence's rows aren't cleared", "length, PACKED, BLOCK_T, BLOCK_D)", "length, False, BLOCK_T, BLOCK_D)", count=5),
    Mutant("parts: gradients through the matrix, not its transpose", "passed.mT, dfinal", "passed, dfinal"),
    Mutant("parts: the keys take nothing off", "along(tensor(ones), tensor(passed)", "along(tensor(0.0 * ones), tensor(passed)"),
    Mutant("parts: walk back at the start of the sequence", "start_t = begin + n * BLOCK_T", "start_t = n * BLOCK_T"),
]  # fmt: skip
KDA_MUTANTS = [
    Mutant("a border is a row too early", "| 1) << level) - 1", "| 1) << level) - 2"),
    Mutant("a writer's factor is above 1", "sums - border, border - sums", "sums - border, sums - border"),
    Mutant("preparing, a writer's factor is above 1", "1.0, -1.0)[:, None]", "1.0, 1.0)[:, None]"),
    Mutant("pairs of other blocks", "-1) == (writer >> level) + 1", "-1) >= (writer >> level) + 1"),
    Mutant("the last two halves are left apart", "LEVELS=T.bit_length() - 1", "LEVELS=T.bit_length() - 2"),
    Mutant("gates of another head", "head(g_tensor, b, h, start)", "head(g_tensor, b, 0, start)"),
    Mutant("keys of another head", "h // group", "0", count=6),
    Mutant("a gate below −100 isn't cut off", "tl.where(g < -100.0, -100.0, g) * LOG2E", "g * LOG2E"),
    Mutant("a token doesn't read itself", "tl.where(rows == columns, own[:, None], p) * scale", "p * scale"),
    Mutant("beta isn't in the system", "    a *= load_gates(beta_tensor, b, h, start, offs_t, length)[:, None]\n", ""),
    Mutant("a key writes as if at its own time", "k * tl.exp2(whole - sums), place", "k, place"),
    Mutant("the state doesn't fade", "u, state * whole[:, None], input", "u, state, input"),
    Mutant("the state's gradient doesn't fade", "do, dstate * whole[:, None], input", "do, dstate, input"),
    Mutant("the inverse isn't transposed", "closely(tl.trans(inverse), du", "closely(inverse, du"),
    Mutant("scores aren't transposed", "tl.dot(tl.trans(p), do", "tl.dot(p, do"),
    Mutant("what rounding leaves is left out", "    return tl.dot(factor, rest, sums, input_precision=\"ieee\")", "    return sums"),
    Mutant("beta isn't in dv", "dr * beta, offs_t", "dr, offs_t"),
    Mutant("what was asked has the wrong sign", "dr * -beta, dstate", "dr * beta, dstate"),
    Mutant("walk back begins at the first chunk", "(chunks - 1 - passed)", "passed"),
    Mutant("a reader doesn't pass its own gate", "from_here = columns >= rows", "from_here = columns > rows"),
    Mutant("a writer passes its own gate", "(columns < rows).to", "(columns <= rows).to"),
    Mutant("from state to state no gate gets anything", "BLOCK_T - 1), offs_d, D)) * through", "BLOCK_T - 1), offs_d, D)) * (through * 0.0)"),
    Mutant("what passes all gates is a token's that isn't there", "last = tl.minimum(length, start_t + BLOCK_T) - 1", "last = start_t + BLOCK_T - 1"),
    Mutant("what was written isn't taken off", "offs_d, D) - terms", "offs_d, D)"),
    Mutant("gates get nothing of the state's answer", "dg = q * read + k * (beta * down) +", "dg = q * read +"),
    Mutant("gates get nothing of the system", "dg += query * read + asks * asked", "dg += query * read"),
    Mutant("a key's row is overwritten", "    dk += load_block(head(dk_tensor, b, h, start), offs_t, length, offs_d, D)\n", ""),
    Mutant("told by queries alone", "told = tl.dot(tl.where(pair, alpha, 0.0), asks, told", "told = tl.dot(tl.where(pair, 0.0 * alpha, 0.0), asks, told"),
    Mutant("not summed over the group", ".sum(2)) for", "[:, :, 0]) for"),
    Mutant("the next sequence's rows aren't cleared", "start_t, length, PACKED, BLOCK_T", "start_t, length, False, BLOCK_T", count=2),
    (lambda module: of(module).right(of(module).tensors(T=20, D=72)), Mutant("beta gets its values once for each block of channels", "if block == 0:", "if block >= 0:")),
    (earlier_outputs_keep_their_bits, Mutant("trap 2: factors from the chunk's middle", "load_block(sums_head, last,", "load_block(sums_head, 0 * last + 32,")),
    (lambda module: strong_gates(module, STRONG["of −20"]), Mutant("trap 1: factors from the chunk's middle, backward", "load_block(matrix, last,", "load_block(matrix, 0 * last + 32,")),
]  # fmt: skip
OF_PARTS = [
    Mutant("what came before is lost", "round_to_tf32(state), own, input", "round_to_tf32(0.0 * state), own, input"),
    Mutant("gradients from the first part on", "part = b * parts + (parts - 1 - n if REVERSE else n)", "part = b * parts + n"),
    Mutant("the state after the part", "        store_block(head(states_tensor, part, h, 0), state, offs_d", "        store_block(head(states_tensor, part, h, 0), state + own, offs_d"),
]  # fmt: skip
OF_SHARED = [
    Mutant("a reset is a difference of infinities", "tl.where(g < -100.0, -100.0, g) * LOG2E", "g * LOG2E"),
    Mutant("powers of 2 of natural logarithms", "tl.where(g < -100.0, -100.0, g) * LOG2E", "tl.where(g < -100.0, -100.0, g)"),
    Mutant("later tokens are seen", "left = tl.where(place[:, None] >= place[None, :], tl.exp2(sums", "left = tl.where(place[:, None] >= 0 * place[None, :], tl.exp2(sums"),
    Mutant("the transposed decay isn't", "left = tl.where(place[None, :] >= place[:, None], tl.exp2(sums", "left = tl.where(place[None, :] <= place[:, None], tl.exp2(sums"),
]  # fmt: skip


def of(module):
    return Operation(module, dtype=BF16, D=8, E=8)


def check(module):
    """Everything a mutant has to get past."""
    operation = of(module)
    operation.right(operation.tensors(B=2, T=70, Hk=2, H=4, E=72), scale=0.7)
    beside_nan(operation)
    reset(operation, 33)
    in_parts(operation, 8, 64)


def in_parts(operation, D, LENGTH):
    inputs = operation.tensors(B=2, T=200, Hk=1, H=2, D=D, E=72, decay=0.01)
    function = operation.with_sizes(LENGTH=LENGTH)
    chunk_cases.assert_right(function, operation.reference, inputs, upstreams(inputs))


def beside_nan(operation):
    """A sequence of NaN between two others, which cross into it with their last tiles. Rows of no sequence are 0."""
    inputs = operation.packed([5, 3, 66], behind=4, Hk=1, H=2)
    for name in ("q", "k", "v"):
        inputs[name][5:8] = math.nan
    ups = upstreams(inputs)
    mine = results(operation.varlen, inputs, ups)
    clean = {n: torch.where(x.isnan(), 0, x) if x.is_floating_point() else x for n, x in inputs.items()}
    exact = results(sequences_of(recurrence_by_steps), in_float64(clean), ups)
    for name in ("o", "dq", "dk", "dv", "dg"):
        for rows in (slice(0, 5), slice(8, None)):
            assert accuracy.errors(mine[name][rows], exact[name][rows]).rms < 4 * torch.finfo(BF16).eps, name
        assert (mine[name][74:] == 0).all(), name


def reset(operation, at):
    """A gate of −∞ forgets what came before, and nothing is NaN."""
    inputs = operation.tensors(T=70)
    inputs["g"][0, at, 0] = -math.inf
    operation.close_to_steps(inputs, most=MOST)


MODULES = pytest.mark.parametrize("module", [linear, delta, kda], ids=["linear attention", "delta rule", "kda"])


@pytest.fixture(params=MODULES.args[1], ids=MODULES.kwargs["ids"])
def operation(request):
    return of(request.param)


@MODULES
def test_check_passes(module):
    check(module)


test_linear_mutant_is_caught = harness.mutant_test(linear, LINEAR_MUTANTS, check)
test_delta_mutant_is_caught = harness.mutant_test(delta, DELTA_MUTANTS, check)
test_kda_mutant_is_caught = harness.mutant_test(kda, KDA_MUTANTS, check)
test_shared_mutant_is_caught = harness.mutant_test(common, OF_SHARED, check, within=delta)
test_mutant_of_parts_is_caught = harness.mutant_test(delta_rule, OF_PARTS, check, within=delta)


@pytest.mark.parametrize(("D", "E", "dtype"), [(8, 8, torch.float16), (40, 72, BF16), (128, 16, torch.float16)])
def test_widths(operation, dtype, D, E):
    operation.right(operation.tensors(T=66, dtype=dtype, D=D, E=E))


@pytest.mark.parametrize("T", [1, 63, 64, 65])
def test_lengths_around_a_chunk(operation, T):
    """One token's gates have so few gradients that twice PyTorch's error is a matter of luck."""
    operation.close_to_steps(operation.tensors(T=T), most=MOST)


@pytest.mark.parametrize("at", [0, 63, 64])
def test_a_reset(operation, at):
    reset(operation, at)


STRONG = {
    "from −5 to 0": lambda g: g.uniform_(-5.0, 0.0),
    "of −20": lambda g: g.fill_(-20.0),
    "0 and −90": lambda g: g.copy_(torch.where(torch.rand_like(g) > 0.7, -90.0, 0.0)),
}


def strong_gates(module, gates):
    """Traps 1, 3 and 4 of Kimi delta attention, which test_kda.py lists. A factor above 1 would be infinite."""
    inputs = of(module).tensors(B=2, T=70, Hk=2, H=4)
    gates(inputs["g"])
    of(module).close_to_steps(inputs, most=torch.finfo(BF16).eps)


@pytest.mark.parametrize("gates", STRONG.values(), ids=STRONG.keys())
def test_strong_gates_of_channels(gates):
    strong_gates(kda, gates)


def test_earlier_outputs_keep_their_bits():
    earlier_outputs_keep_their_bits(kda)


@pytest.mark.parametrize("given", [("o",), ("state",)], ids=str)
def test_one_upstream_gradient(operation, given):
    """The other result has none. What gates of one head get are few numbers that share their errors: the more heads,
    the less is twice PyTorch's error a matter of luck. A card has more of them."""
    inputs = operation.tensors(B=2 if device.INTERPRET else 16, T=66, Hk=2, H=4, D=16, E=16, decay=0.1)
    ups = {name: x if name in given else None for name, x in upstreams(inputs).items()}
    chunk_cases.assert_right(operation.function, operation.reference, inputs, ups)


def test_no_gates(operation):
    """As gates of zero: the same bits, each time. One sum is the exception: of what the state answers to a key, which
    the gradients of β and of the gates both need. Compiled without gates it is added up in another order."""
    inputs = operation.tensors(T=70)
    inputs["g"].zero_()
    ups = upstreams(inputs)
    mine = results(operation.function, inputs, ups)
    without, again = (results(operation.function, inputs | dict(g=None), ups) for _ in range(2))
    assert all(torch.equal(again[name], value) for name, value in without.items())
    for name, value in without.items():
        if name == "dbeta" and not device.INTERPRET:
            assert accuracy.errors(value, mine[name].double()).rms < 4 * torch.finfo(torch.float32).eps
        else:
            assert torch.equal(mine[name], value), name


@pytest.mark.parametrize("module", [delta, kda], ids=["delta rule", "kda"])
def test_similar_keys(module):
    """Trap 2 of the delta rule: an inverse whose powers are large. With heads as in `test_one_upstream_gradient`."""
    operation = of(module)
    inputs = operation.tensors(B=1 if device.INTERPRET else 16, T=64, D=32, E=16, H=1)
    direction = F.normalize(randn(32), dim=0)
    inputs["k"].copy_(F.normalize(inputs["k"].float() + direction, dim=-1))
    inputs["beta"].fill_(1.0)
    inputs["g"] *= 0.01
    operation.right(inputs)


def test_in_parts(operation):
    """Few heads: parts of a sequence at the same time. The last part isn't full, and the gates forget slowly."""
    in_parts(operation, 40, 128)


def test_length_of_parts():
    """A power of two, 512 at least; about 256 programs. Many heads, and packed sequences, aren't cut."""
    chosen = [
        common.length_of_parts(*given, None) for given in ((16384, 32), (65536, 32), (2048, 2), (4096, 256), (0, 1))
    ]
    assert chosen == [2048, 8192, 512, 4096, 512]
    assert common.length_of_parts(16384, 32, torch.zeros(3)) == 16384


@pytest.mark.parametrize("kind", ["float32", "wide", "sliced"])
def test_what_is_left_to_the_lesson(operation, kind):
    """The same bits as the lesson's."""
    shape = dict(T=20, D=136) if kind == "wide" else dict(T=20)
    layout = harness.strided if kind == "sliced" else lambda values: values
    inputs = operation.tensors(dtype=torch.float32 if kind == "float32" else BF16, layout=layout, **shape)
    ups = upstreams(inputs)
    mine, lesson = results(operation.function, inputs, ups), results(operation.lesson, inputs, ups)
    assert all(torch.equal(mine[name], value) for name, value in lesson.items())


def test_an_upstream_gradient_at_an_odd_address(operation):
    """Of a single head it is contiguous as the kernels want it, and no descriptor fits."""
    inputs = operation.tensors(T=20, Hk=1, H=1, D=16, E=16, dtype=BF16)
    ups = upstreams(inputs, layout=harness.offset)
    chunk_cases.assert_right(operation.function, operation.reference, inputs, ups)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, BF16], ids=harness.dtype_name)
@pytest.mark.parametrize("E", [16, 32, 64, 128])
@pytest.mark.parametrize("D", [16, 32, 64, 128])
def test_every_width_compiles_right(operation, D, E, dtype):
    """H1 to H4, H6, with all sizes of tiles and numbers of warps that are chosen."""
    operation.right(operation.tensors(dtype=dtype, B=2, T=300, Hk=2, H=4, D=D, E=E, decay=0.1))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, BF16], ids=harness.dtype_name)
@pytest.mark.parametrize("D", [16, 128])
@pytest.mark.parametrize("sizes", [dict(BLOCK_T=16), dict(BLOCK_T=32), dict(LENGTH=64), dict(LENGTH=128)], ids=str)
def test_chunks_that_are_asked_for(operation, sizes, D, dtype):
    """H1 to H4, H6 again: other sizes of chunks, and parts of a sequence."""
    inputs = operation.tensors(dtype=dtype, B=2, T=300, Hk=2, H=4, D=D, E=64, decay=0.1)
    function = operation.with_sizes(**sizes)
    chunk_cases.assert_right(function, operation.reference, inputs, upstreams(inputs))


@pytest.mark.gpu
def test_long_sequences_of_many_heads(operation):
    """H11: in two stages one kernel of the delta rule raced, now and then, in a chunk of thousands. The lesson's results
    within what 16 bits round, and the same bits each time."""
    inputs = operation.tensors(B=4, T=4096, Hk=16, H=16, D=128, E=128, decay=0.1)
    ups = upstreams(inputs)
    lesson, mine = (results(function, inputs, ups) for function in (operation.lesson, operation.function))
    for name, value in mine.items():
        assert accuracy.errors(value, lesson[name].double()).rms < 2 * torch.finfo(BF16).eps, name
    for _ in range(5):
        again = results(operation.function, inputs, ups)
        assert all(torch.equal(again[name], value) for name, value in mine.items())
