"""linear_attention and linear_attention_varlen: strong decay, large states, rounding, what compiles right, errors, mutants.

The traps of such kernels in use, and the check or mutant ("…") that holds each:

1. A mask after the exponential: ∞ · 0. `enormous_gates` in a chunk that isn't full, "trap 1: mask by multiplication".
2. A difference of sums is positive, or no gate isn't a gate of 0: `enormous_gates`, `test_no_gates_are_gates_of_zero`.
3. The gates' gradient by a difference: `strong_decay`, compared with the loop.
4. Factors of both signs of G: `enormous_gates`, "trap 4: two factors".
5. What passes from state to state is left out of dg, or dg is summed over heads: `test_loss_of_one_result`, the formula.
6. States in float16: `large_states_in_float16`.
7. Sums of gates over the whole sequence: `test_small_gates_over_a_long_sequence`.
8. The scale twice, or not in every gradient: `test_scale`, the formula.
9. What is left at the end, from a lane past it: `test_lengths_around_a_chunk`, the formula.
10. Gradients of grouped heads aren't summed, or rounded first: `test_varlen`, `test_hostile_inputs` of the judge; a
    program has all heads of a group, and sums in float32.
11. A gate of −∞: `reset`, at a chunk's first token, in its middle, at its last.
12. The first gate's gradient without an initial state isn't exactly 0: `test_the_first_gate_has_nothing_to_fade`.
13. Rows behind the last sequence, and nothing but empty sequences: `test_varlen`.
14. The wrong end of a sequence in a mask: `test_varlen`.
15. Tokens of two sequences meet: `test_a_sequence_of_nan_beside_others`.
16. Products of float32 in TF32: "fp32 products in tf32", on a card.
17. Chunks of other sizes disagree: `test_chunks_of_all_sizes_agree`, `test_lengths_around_a_chunk`.
18. Errors of the exponential add up in a product of forty: `exponentials`, "the hardware's exponential".
19. Tensor cores cut float32 factors off where they should be rounded: `factors_that_are_cut_off`, two mutants.

What compilers got wrong on Hopper (H1 to H11), and what holds each here and in the delta rule:

- H1, a product of a transposed tile that was just computed: `test_only_loaded_tiles_are_transposed`.
- H2, tiles 32 wide on four warps; H3, the delta rule's last kernel on four warps: `test_warps_that_compile_right`, and
    on a card `test_long_sequences_of_many_heads` of the fast versions.
- H4, an odd width of 16-bit numbers: `test_widths`. H5, a scale of the int 1: `test_scale`.
- H6, running sums after products: on a card `test_lengths_of_a_real_call`, which tries H1 to H4 as well, with all sizes
    of tiles and numbers of warps that are chosen; `test_chunks_of_all_sizes_compile_right` with those that are asked
    for. The fast versions' are `test_every_width_compiles_right` and `test_chunks_that_are_asked_for`.
- H7, more than 65,535 programs along an axis: `test_every_grid_has_one_axis`, on a card 70,000 sequences of one token.
- H8, offsets of 32 bits: tests/judge/test_public.py, on a card `test_more_than_2_to_the_31_elements`.
- H9, scans from the end: on a card `test_a_scan_compiles_right` of linear_recurrence, along both axes, in both
    directions, by 1 to 8 warps; of the kernels, `test_both_directions_compile_right` of cumsum, and
    `test_scans_of_both_directions_compile_right` of linear_recurrence.
- H10, tiles up to 32 columns wide of values that were computed, on four warps: the assembler loses where they lie.
    `test_narrow_values_are_padded`, and the machine code of every kernel in `test_every_kernel_fits`.
- H11, a tile that is both multiplied and used number by number, in two stages: the next one is copied over it while the
    tensor cores may still read it. `test_stages_that_compile_right`.
"""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import ast
import inspect
import math
import re

import pytest
import torch
import triton
import triton.language as tl

from academy.runtime import device
from academy.judge import accuracy
from academy.judge.elements import in_float64
from annotated_examples.common import chunks as common
from annotated_examples.recurrences import gated_delta_rule as delta_rule
from annotated_examples.recurrences import linear_attention as module
from tests.kernels import chunk_cases, harness
from tests.kernels.chunk_cases import Operation, packed, results, tensors, upstreams
from tests.kernels.harness import DEVICE, Mutant, randn
from tests.kernels.references import recurrence_by_steps

ON_A_CARD = [
    Mutant("fp32 products in tf32", "INPUT_PRECISION=input_precision()", 'INPUT_PRECISION="tf32"', gpu=True),
]
#: A decay from the products of what each gate leaves.
PRODUCTS = "        left = tl.cumprod(tl.where(place[:, None] > place[None, :], decay_of(g)[:, None], 1.0), axis=0)\n"
MASKED = "        left = tl.where(place[:, None] >= place[None, :], left, 0.0)\n"
OF_SHARED = [
    Mutant("trap 2: a difference of sums", PRODUCTS, "        G = tl.cumsum(g, axis=0)\n        left = tl.exp(G[:, None] - G[None, :])\n"),
    Mutant("trap 4: two factors", PRODUCTS, "        G = tl.cumsum(g, axis=0)\n        left = tl.exp(G)[:, None] * tl.exp(-G)[None, :]\n"),
    Mutant("trap 1: mask by multiplication", PRODUCTS + MASKED, "        sums = tl.cumsum(tl.where(place[:, None] > place[None, :], g[:, None], 0.0), axis=0)\n        sums = sums - tl.cumsum(tl.where(place[:, None] < place[None, :], g[None, :], 0.0), axis=1)\n        left = (place[:, None] >= place[None, :]).to(tl.float32) * tl.exp(sums)\n"),
    Mutant("the hardware's exponential", "(1.0 + r * (1.0 + r * (0.5 + r * tail))) * tl.exp2(power)", "tl.exp(g)", gpu=True),
    Mutant("a gate of minus infinity is NaN", "g = tl.where(g < -120.0, -120.0, g)", "g = g + 0.0"),
    Mutant("too short a polynomial", "r * (1 / 720 + r * (1 / 5040))", "r / 720"),
    Mutant("ln 2 in one part", "(g - power * LN2_HIGH) - power * LN2_LOW", "g - power * (LN2_HIGH + LN2_LOW)"),
    Mutant("trap 6: states in float16", "    if rows.dtype == tl.float16:\n        product = tl.dot(rows.to(tl.float32), round_to_tf32(state), input_precision=\"tf32\")\n    else:\n", "    if True:\n"),
    Mutant("trap 19: a state is cut off", "round_to_tf32(state), input", "state, input"),
    Mutant("trap 19: what passes a gate is cut off", "inside = tl.dot(terms - coarse, ones, inside, input_precision=\"tf32\")", "inside = tl.dot(terms, ones, input_precision=\"tf32\")"),
    Mutant("trap 19: NaN isn't left alone", "tl.where(x == x, bits.to(tl.float32, bitcast=True), x)", "bits.to(tl.float32, bitcast=True)"),
]  # fmt: skip


def check(module):
    """Everything a mutant has to get past."""
    strong_decay(module)
    enormous_gates(module)
    reset(module, 33)
    large_states_in_float16(module)
    exponentials(module.decay_of_all.fn.__globals__["decay_of"])
    factors_that_are_cut_off(module)
    rounding(module.gate_gradient.fn.__globals__["round_to_tf32"])


def strong_decay(module):
    """Trap 3: taken as a difference of two sums dg keeps one digit here. PyTorch's parallel form loses digits, too."""
    inputs = tensors(T=64, D=64, E=64, Hk=1, H=1)
    inputs["g"].fill_(-10.0)
    inputs["initial_state"].zero_()
    ups = upstreams(inputs) | dict(state=None)
    mine = results(module.linear_attention, inputs, ups)
    exact = results(recurrence_by_steps, in_float64(inputs), ups)
    for name in ("o", "dg", "dq", "dk", "dv"):
        assert accuracy.errors(mine[name], exact[name]).rms < 1e-6, name


def enormous_gates(module):
    """Traps 1, 2 and 4: sums of gates of 0 and -1e7 are rounded to a multiple of 8; e^{-G} is infinite."""
    for size in (200.0, 1e7):
        inputs = tensors(T=35, H=1)
        inputs["g"].copy_(torch.where(randn(*inputs["g"].shape) > 0, -size, 0.0))
        ups = upstreams(inputs)
        Operation(module).close_to_steps(inputs, ups)


def reset(module, at):
    """Trap 11: a gate of -∞ forgets what came before, and nothing is NaN. (In sums -∞ - (-∞) would be.)"""
    inputs = tensors(T=70)
    inputs["g"][0, at, 0] = -math.inf
    ups = upstreams(inputs)
    assert (Operation(module).close_to_steps(inputs, ups)["dg"][0, at, 0] == 0.0).all()


def large_states_in_float16(module):
    """Trap 6: float16 ends at 65504 and begins at 2⁻²⁴; a state does neither."""
    for size, inverse in ((2.0**17, 2.0**-12), (2.0**-30, 2.0**12)):
        inputs = tensors(T=5, dtype=torch.float16)
        inputs["initial_state"] *= size
        inputs["q"] *= inverse
        inputs["v"] *= min(inverse * size, 1.0)
        ups = upstreams(inputs)
        o = module.linear_attention(**inputs, scale=1.0)
        exact = results(recurrence_by_steps, in_float64(inputs), ups, scale=1.0)["o"]
        assert accuracy.errors(o, exact).rms < 4 * torch.finfo(torch.float16).eps


def factors_that_are_cut_off(module):
    """Trap 19. A factor of 10 bits that is cut off is too small by 3.5e-4 on average. All numbers here are positive:
    so that stays, where errors of factors that are rounded cancel, a thousand terms to the sum. Of 8 draws none was off
    by more than 8e-6, and with factors cut off by less than 1.2e-4. Beside a large initial state nearly all of the
    gates' gradient comes through products with a state."""
    for size in (1.0, 8.0):
        inputs = {n: x if n == "g" else x.abs() for n, x in tensors(T=70, D=32, E=32, dtype=torch.float16).items()}
        inputs["initial_state"] *= size
        ups = {name: x.abs() for name, x in upstreams(inputs).items()}
        with harness.tensor_cores():
            mine = results(module.linear_attention, inputs, ups)["dg"]
        exact = results(recurrence_by_steps, in_float64(inputs), ups)["dg"]
        assert accuracy.errors(mine, exact).rms < 3e-5


@triton.jit
def rounding_kernel(x_ptr, out_ptr, ROUND: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, ROUND(tl.load(x_ptr + offs)))


def rounding(round_to_tf32):
    """To the nearest of the numbers with 10 bits after the point; NaN, of all bits too, stays NaN."""
    x = randn(64)
    x[0], x[1:3] = math.inf, torch.tensor([-1, 0x7FFFFFFF], dtype=torch.int32).view(torch.float32)
    out = torch.empty_like(x)
    rounding_kernel[(1,)](x, out, ROUND=round_to_tf32, BLOCK=64)
    assert out[0] == math.inf and out[1:3].isnan().all()
    mantissa, exponent = torch.frexp(x[3:].double())
    assert torch.equal(out[3:].double(), torch.ldexp((mantissa * 2**11).round(), exponent - 11))


@triton.jit
def decay_kernel(g_ptr, out_ptr, n, DECAY: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    g = tl.load(g_ptr + offs, mask=offs < n, other=0.0)
    tl.store(out_ptr + offs, DECAY(g), mask=offs < n)


def what_a_gate_leaves(g, decay):
    out = torch.empty_like(g)
    decay_kernel[(1,)](g, out, len(g), DECAY=decay, BLOCK=triton.next_power_of_2(len(g)))
    return out


def exponentials(decay):
    """A unit in the last place at most, and as often too large as too small: dozens of them are multiplied."""
    for least in (-0.3, -2.0, -20.0, -87.0):
        g = torch.linspace(least, 0, 4097, device=DEVICE)[:-1]
        off = what_a_gate_leaves(g, decay).double() / g.double().exp() - 1
        assert off.abs().max() < 1.5e-7 and off.mean().abs() < 5e-9, (least, off.abs().max(), off.mean())
    edges = torch.tensor([0.0, -0.0, -math.inf, math.nan, -1e30, -121.0, -95.0, -1e-20], device=DEVICE)
    found = what_a_gate_leaves(edges, decay).tolist()
    assert found[:3] == [1.0, 1.0, 0.0] and math.isnan(found[3]) and found[4:6] == [0.0, 0.0] and found[7] == 1.0
    assert found[6] in (0.0, pytest.approx(math.exp(-95), rel=1e-3))  # below 2⁻¹²⁶, which a card may take for 0


def test_check_passes():
    check(module)


test_mutant_on_a_card_is_caught = harness.mutant_test(module, ON_A_CARD, strong_decay)
test_shared_mutant_is_caught = harness.mutant_test(common, OF_SHARED, check, within=module)


# ---------------------------------------------------------------- values


def test_small_gates_over_a_long_sequence():
    """Trap 7: sums of the gates over the whole sequence, not a chunk, lose digits: 5e-5 in dg. PyTorch's parallel form
    has them; so the measure is the loop."""
    inputs = tensors(T=256, H=1, D=16, E=16)
    inputs["g"].copy_(-6.5 + randn(1, 256, 1) / 10)
    chunk_cases.assert_right(module.linear_attention, recurrence_by_steps, inputs, upstreams(inputs) | dict(state=None))


# ---------------------------------------------------------------- packed sequences


@pytest.mark.parametrize("offsets", [[0, 30, 10], [-5, 10, 20], [0, 5, 10**6], [3, 10, 15]], ids=str)
def test_offsets_that_make_no_sense(offsets):
    """They raise on the CPU. Where nobody looks they read and write nothing outside."""
    inputs = packed([20, 0])
    wrong = torch.tensor(offsets, dtype=torch.int32, device=DEVICE)
    if device.INTERPRET:
        with pytest.raises(ValueError, match="cu_seqlens must rise from 0 to at most the number of rows, 20"):
            module.linear_attention_varlen(**inputs | dict(cu_seqlens=wrong, initial_state=None))
    q, k, v, g = (inputs[name].transpose(0, 1).unsqueeze(0) for name in "qkvg")
    with harness.fenced_allocations():
        o, state = module.linear_attention_forward(q, k, v, g, None, wrong, scale=1.0, BLOCK_T=16)
        grads = module.linear_attention_backward(o, state, q, k, v, g, None, wrong, scale=1.0, BLOCK_T=16)
    assert all(x.isfinite().all() for x in (o, state, *grads))


# ---------------------------------------------------------------- large tensors


@pytest.mark.parametrize("lesson", [module, delta_rule], ids=["linear attention", "delta rule"])
def test_only_loaded_tiles_are_transposed(lesson):
    """H1: on Hopper Triton 3.4 to 3.7.0 multiplies wrongly where a tile that came out of a product is transposed."""
    for function in ast.parse(inspect.getsource(lesson)).body:
        if not isinstance(function, ast.FunctionDef):
            continue
        loaded = {a.arg for a in function.args.args}
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith(("load_", "tl.load")):
                loaded.add(ast.unparse(node.targets[0]))
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
                pairs = zip(ast.walk(node.targets[0]), [node.targets[0], *node.value.elts])
                loaded |= {ast.unparse(n) for n, value in pairs if ast.unparse(value).startswith("load_")}
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "tl.trans":
                name = re.match(r"\w+", ast.unparse(node.args[0])).group()
                assert name in loaded, f"{function.name} transposes {name}, which it has not loaded"


def options_of(lesson, monkeypatch, D, dtype):
    """The numbers of warps and of stages of each kernel, forward and backward."""
    found = {}

    def kernel(name):
        class Kernel:
            def __getitem__(self, grid):
                return lambda *arguments, num_warps, num_stages, **constants: found.setdefault(
                    name, (num_warps, num_stages)
                )

        return Kernel()

    for name in [name for name in vars(lesson) if name.endswith("_kernel")]:
        monkeypatch.setattr(lesson, name, kernel(name))
    q = torch.empty(1, 1, 70, D, device=DEVICE, dtype=dtype)
    more = [torch.empty(1, 1, 70, device=DEVICE)] * (lesson is delta_rule)
    which = "gated_delta_rule" if lesson is delta_rule else "linear_attention"
    getattr(lesson, f"{which}_forward")(q, q, q, None, *more, None, None, scale=1.0)
    getattr(lesson, f"{which}_backward")(q, None, q, q, q, None, *more, None, None, scale=1.0)
    return found


@pytest.mark.parametrize("lesson", [module, delta_rule], ids=["linear attention", "delta rule"])
def test_warps_that_compile_right(lesson, monkeypatch):
    """H2: never four for tiles 32 wide. H3: two or eight for the kernel that takes a chunk's system apart."""
    narrow = options_of(lesson, monkeypatch, 32, torch.bfloat16)
    assert len(narrow) > 3 and {warps for warps, _ in narrow.values()} == {2}
    if lesson is delta_rule:
        for D in (16, 64, 128, 256):
            for dtype in (torch.bfloat16, torch.float32):
                wanted = 8 if D in (64, 128) and dtype == torch.bfloat16 else 2
                assert options_of(lesson, monkeypatch, D, dtype)["wy_backward_kernel"][0] == wanted


@pytest.mark.parametrize("lesson", [module, delta_rule], ids=["linear attention", "delta rule"])
def test_stages_that_compile_right(lesson, monkeypatch):
    """H11: one stage where tiles are both multiplied and used number by number."""
    found = options_of(lesson, monkeypatch, 128, torch.bfloat16)
    of_chunks = [found[name][1] for name in ("query_gradients_kernel", "wy_backward_kernel") if name in found]
    assert of_chunks == [1] * (1 + (lesson is delta_rule)) and found["key_gradients_kernel"] == (8, 2)


@pytest.mark.parametrize(("D", "E", "width"), [(16, 8, 16), (32, 20, 32), (33, 20, 64), (128, 16, 64), (64, 256, 32)])
def test_narrow_values_are_padded(D, E, width):
    """H10: beside keys wider than 32 numbers, which four warps multiply together."""
    q, v = (torch.empty(1, 1, 70, size, dtype=torch.float16) for size in (D, E))
    assert module.sizes(q, v, None, None)["BLOCK_E"] == width
    assert module.sizes(q.float(), v.float(), None, None)["BLOCK_E"] <= 32


# ---------------------------------------------------------------- errors

ONES = dict(q=(1, 3, 1, 8), k=(1, 3, 1, 8), v=(1, 3, 2, 9))
test_errors = harness.refused_test(
    "change, error, message",
    [
        (dict(k=torch.ones(1, 3, 1, 9)), ValueError, "k must have the shape of q, (1, 3, 1, 8), got (1, 3, 1, 9)"),
        (dict(v=torch.ones(1, 4, 2, 9)), ValueError, "v must have the tokens of q, (1, 3), got shape (1, 4, 2, 9)"),
        (dict(q=torch.ones(1, 3, 2, 8), k=torch.ones(1, 3, 2, 8), v=torch.ones(1, 3, 3, 8)), ValueError, "v must have a multiple of the heads of q, 2"),
        (dict(q=torch.ones(1, 3, 1, 257), k=torch.ones(1, 3, 1, 257)), ValueError, "q must have a head dimension of 1 to 256"),
        (dict(v=torch.ones(1, 3, 2, 257)), ValueError, "v must have a head dimension of 1 to 256"),
        (dict(g=torch.zeros(1, 3, 1)), ValueError, "g must have shape (1, 3, 2)"),
        (dict(g=torch.full((1, 3, 2), 0.5)), ValueError, "g must be at most 0, the logarithm of a decay, got 0.5"),
        (dict(initial_state=torch.zeros(1, 2, 9, 8)), ValueError, "initial_state must have shape (1, 2, 8, 9)"),
    ],
    {name: torch.ones(shape) for name, shape in ONES.items()},
    module.linear_attention,
)  # fmt: skip


test_varlen_errors = harness.refused_test(
    "change, error, message",
    [
        (dict(cu_seqlens=None), TypeError, "cu_seqlens must be a torch.Tensor, got NoneType"),
        (dict(cu_seqlens=torch.tensor([0, 25])), TypeError, "cu_seqlens must be one of int32, got int64"),
        (dict(cu_seqlens=torch.zeros(0, dtype=torch.int32)), ValueError, "cu_seqlens must have at least one element"),
        (dict(q=torch.ones(1, 3, 1, 8)), ValueError, "q must have 3 dimensions (total, H, D)"),
        (dict(initial_state=torch.zeros(3, 2, 5, 6)), ValueError, "initial_state must have shape (2, 2, 5, 6)"),
    ],
    packed([5, 20]),
    module.linear_attention_varlen,
)  # fmt: skip
