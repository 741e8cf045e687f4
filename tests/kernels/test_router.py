"""moe/router: experts and rows exactly, weights, gradients and losses by the 2x rule; hostile rows, errors, mutants.

The traps of routers in use, and the check or mutant ("…") that holds each:

1. NaN in a row gives an expert twice, or one that isn't there: `not_a_number_in_a_row`.
2. Ties, signed zeros, infinities, one expert, all of them, numbers that are no power of two: `ties`, `sizes`.
3. Logits that are no tie until the softmax underflows: the judge's `test_hostile_inputs`.
4. The bias gets into the weights: `bias_selects_only`.
5. All sigmoids underflow, and 0 is divided by 0: `sigmoids_that_are_all_zero`, backward, too.
6. The renormalisation isn't differentiated: the printed formulas, `test_hostile_inputs`.
7. Logits that weren't selected have a gradient, or none, by the formula: the same two.
8. The choice is made in bfloat16: the printed formula.
9. Shares that sum to k instead of 1: the printed formula, `test_hostile_inputs`.
10. A softmax of a softmax: the same two.
11. Dropped slots and padding count: `dropped_slots_count_nowhere`.
12. A gradient through the counts: counts are integers, and the printed formula's gradient is compared.
13. A sort that isn't stable: `sorts`, "unstable".
14. Order and position exchanged: `sorts`, "order and position exchanged".
15. Expert or row in 16 bits: `more_than_sixteen_bits`, "rows of 16 bits".
16. A number that is no expert is counted somewhere: `numbers_that_are_no_experts`.
17. Zeroing and adding in one launch: no kernel here does; `test_every_place_is_written_once`, and on a card
    `test_the_same_bits_every_time` with 100 runs.
"""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import ast
import inspect

import pytest
import torch

from academy.judge import accuracy
from academy.judge.fences import Fences
from annotated_examples.common import experts as common
from annotated_examples.moe import router as lesson
from tests.kernels import harness
from tests.kernels.harness import DEVICE, Mutant, randn

INF, NAN = float("inf"), float("nan")
WAYS = [(score, renormalize) for score in lesson.SCORES for renormalize in (True, False)]


def make(rows, dtype=torch.float32):
    return torch.tensor(rows, dtype=dtype, device=DEVICE)


def weights_of(route, top_k, **options):
    return lambda logits: route(logits, top_k, **options)[0]


def assert_routed(module, logits, top_k, **options):
    """Experts exactly, weights and gradients by the 2x rule."""
    experts = module.route(logits, top_k, **options)[1]
    assert torch.equal(experts, lesson.route_reference(logits, top_k, **options)[1]), (top_k, options)
    upstream = torch.randn(len(logits), top_k, device=DEVICE)
    harness.assert_right(
        weights_of(module.route, top_k, **options),
        weights_of(lesson.route_reference, top_k, **options),
        dict(logits=logits),
        upstream,
    )


def random_experts(tokens, k, E):
    return torch.randint(-1, E, (tokens, k), device=DEVICE, dtype=torch.int32)


def assert_sorted(module, experts, E, **tiles):
    wanted = lesson.sort_by_expert_reference(experts, E)
    with harness.fenced_allocations():
        plan = module.sorted_by_expert(experts, E, **tiles) if tiles else module.sort_by_expert(experts, E)
    for name, ours, theirs in zip(plan._fields, plan, wanted):
        assert ours.dtype == torch.int32 and torch.equal(ours, theirs), (name, ours, theirs)


# ---------------------------------------------------------------- checks, which mutants have to fail


def sizes(module):
    """One expert, all of them, numbers that are no powers of two; no token, one, and one more than a block has."""
    for number, (tokens, E, k) in enumerate(
        ((3, 1, 1), (4, 8, 8), (5, 96, 6), (1, 160, 8), (129, 17, 1), (0, 5, 2), (3, 256, 8), (2, 1, 1), (2, 7, 7))
    ):
        for score, renormalize in (WAYS[number % 4], WAYS[(number + 1) % 4]):
            assert_routed(module, randn(tokens, E), k, score=score, renormalize=renormalize)


def not_a_number_in_a_row(module):
    """k different experts, NaN first; NaN where it belongs, and no other row notices."""
    clean = randn(6, 12)
    for bad in ([4], [0, 11], list(range(12))):
        logits = clean.clone()
        logits[2, bad], logits[3, bad[0]] = NAN, -NAN
        for score, renormalize in WAYS:
            for k in (3, 6):
                options = dict(score=score, renormalize=renormalize)
                weights, experts = module.route(logits, k, **options)
                assert torch.equal(experts, lesson.route_reference(logits, k, **options)[1])
                assert all(len(set(row)) == k and 0 <= min(row) <= max(row) < 12 for row in experts.tolist())
                others = [0, 1, 4, 5]
                assert torch.equal(weights[others], module.route(clean[others], k, **options)[0])
                assert bool(weights[2, 0].isnan()) and (not renormalize or bool(weights[2].isnan().all()))


def ties(module):
    """Equal logits in the order of experts; a zero is a zero; a row of minus infinity but for two."""
    rows = [[0.0] * 8, [0.0, -0.0] * 4, [-INF] * 6 + [1, 1], [2, 3, 3, 3, 2, 2, 3, 1], [1e4, -1e4] * 4, [-1e4] * 8]
    rows += [[-3.0, -1, -2, -1, -4, -0.5, -1, -9], [3e38, -3e38, 1e-45, -1e-45, 1e-38, -1e-38, 0, 1]]
    for dtype in (torch.float32, torch.bfloat16):
        for k in (2, 3, 8):
            for score, renormalize in WAYS:
                options = dict(score=score, renormalize=renormalize)
                weights, experts = module.route(make(rows, dtype), k, **options)
                wanted = lesson.route_reference(make(rows, dtype), k, **options)
                assert torch.equal(experts, wanted[1]), (dtype, k, options)
                exact = lesson.route_reference(make(rows, dtype).double(), k, **options)[0]
                accuracy.check("weights", weights, wanted[0], exact)


def bias_selects_only(module):
    """The bias moves the choice. Weights are made of the scores alone, and nothing is subtracted again."""
    logits, bias = make([[2.0, 1.0, 0.0, -1.0]]), make([-5.0, 0.0, 1e8, 1.0])
    for score, renormalize in WAYS:
        weights, experts = module.route(logits, 2, score=score, renormalize=renormalize, bias=bias)
        assert experts.tolist() == [[2, 3]]
        p = torch.softmax(logits, 1) if score == "softmax" else torch.sigmoid(logits)
        wanted = p[:, 2:] / p[:, 2:].sum() if renormalize else p[:, 2:]
        torch.testing.assert_close(weights, wanted, rtol=1e-6, atol=0)
    assert torch.equal(module.route(logits, 2, bias=harness.strided(bias))[1], make([[2, 3]], torch.int32))
    below_zero = make([-3.0, -1.0, -2.0])  # below what the fourth lane has, which is no expert
    assert module.route(randn(1, 3), 3, bias=below_zero)[1].tolist() == [[1, 2, 0]]


def sigmoids_that_are_all_zero(module):
    logits = make([[-1e4] * 6, [-200.0, -300, -150, -120, -900, -111], [1.0, 2, 3, 4, 5, 6]])
    for k in (1, 3, 6):
        weights, _ = module.route(logits, k, score="sigmoid")
        assert bool(weights.isfinite().all()) and float(weights[0].abs().max()) == 0
        assert_routed(module, logits, k, score="sigmoid")
    x = harness.leaf(logits)
    (gradient,) = torch.autograd.grad(module.load_balancing_loss(x, random_experts(3, 2, 6), score="sigmoid"), x)
    assert bool(gradient.isfinite().all())


def unselected_nan(module):
    """The slope of a sigmoid is a factor of its gradient, so PyTorch's is NaN where the sigmoid is; with softmax it is 0."""
    x = make([[NAN] * 4, [NAN, 1, 2, NAN], [-INF] * 4, [0, 1, 2, 3]])
    for score, renormalize in WAYS:
        for k in (1, 2, 3):
            options = dict(score=score, renormalize=renormalize)
            mine, theirs = (harness.leaf(x) for _ in "xx")
            (ours,) = torch.autograd.grad(module.route(mine, k, **options)[0].sum(), mine)
            (other,) = torch.autograd.grad(lesson.route_reference(theirs, k, **options)[0].sum(), theirs)
            assert torch.equal(ours.isnan(), other.isnan()), (score, renormalize, k)


def dropped_slots_count_nowhere(module):
    """Neither among the slots of an expert, nor in what they are divided by. Without a slot the loss is 0."""
    logits, experts = randn(6, 4), random_experts(6, 2, 4)
    experts[1], experts[4, 0] = -1, -1
    padded = torch.cat([experts, torch.full((6, 3), -1, dtype=torch.int32, device=DEVICE)], 1)
    assert torch.equal(module.load_balancing_loss(logits, experts), module.load_balancing_loss(logits, padded))
    nobody = torch.full((6, 2), -1, device=DEVICE)
    x = harness.leaf(logits)
    loss = module.load_balancing_loss(x, nobody)
    assert float(loss.detach()) == 0 and not torch.autograd.grad(loss, x)[0].any()


def no_tokens(module):
    x = harness.leaf(randn(0, 5))
    for loss in (module.load_balancing_loss(x, random_experts(0, 2, 5)), module.router_z_loss(x)):
        assert float(loss.detach()) == 0 and torch.autograd.grad(loss, x)[0].shape == (0, 5)


def sorts(module):
    """Exactly the stable sort, in one block and in many, with dropped slots and experts without any."""
    for tokens, k, E in ((7, 2, 6), (1, 1, 1), (0, 2, 3), (5, 0, 3), (40, 6, 96), (9, 8, 256), (129, 1, 3)):
        for dtype in (torch.int32, torch.int64):
            assert_sorted(module, random_experts(tokens, k, E).to(dtype), E)
        assert_sorted(module, random_experts(tokens, k, E), E, BLOCK=16, BLOCK_B=2)
    assert_sorted(module, torch.full((9, 2), 3, device=DEVICE), 5)
    assert_sorted(module, torch.full((9, 2), -1, device=DEVICE), 5)
    assert_sorted(module, random_experts(40, 2, 2) + 2, 5, BLOCK=16, BLOCK_B=1)


def more_than_sixteen_bits(module):
    """Neither a slot nor a row fits into 16 bits; an expert doesn't fit into 8."""
    assert_sorted(module, random_experts(34_000, 2, 3), 3, BLOCK=4096)
    assert_sorted(module, random_experts(9, 3, 300), 300)


def numbers_that_are_no_experts(module):
    """A GPU can't refuse them without waiting: they are dropped, and nothing is read or written elsewhere."""
    experts = torch.tensor([[0, 4], [3, 5], [-7, 2**31 + 1], [2**32 + 1, 1]], device=DEVICE)
    with Fences() as fences:
        plan = common.sorted_by_expert(experts, 4) if module is lesson else module.sorted_by_expert(experts, 4)
    assert not fences.broken()
    assert plan.offsets.tolist() == [1, 2, 2, 3] and plan.order.tolist() == [0, 7, 2, 1, 3, 4, 5, 6]


CHECKS = [
    sizes,
    not_a_number_in_a_row,
    ties,
    bias_selects_only,
    sigmoids_that_are_all_zero,
    unselected_nan,
    dropped_slots_count_nowhere,
    no_tokens,
    sorts,
    more_than_sixteen_bits,
    numbers_that_are_no_experts,
]
test_check = harness.check_test(lesson, CHECKS)


# ---------------------------------------------------------------- mutants, each with the check that must notice it

LOWEST_KEY = "key = tl.where(mask, sort_key(choice, e[None, :], BLOCK_E), LOWEST)"
MUTANTS = [
    (ties, Mutant("negative zero below zero", "tl.where(value == 0.0, 0.0, value).to(tl.int32, bitcast=True)", "value.to(tl.int32, bitcast=True)")),
    (ties, Mutant("negative floats backwards", "bits ^ ((bits >> 31) & 0x7FFFFFFF)", "bits")),
    (bias_selects_only, Mutant("lanes without an expert", LOWEST_KEY, "key = sort_key(choice, e[None, :], BLOCK_E)\n    key = tl.where(e[None, :] < E + 1, key, LOWEST)")),
    (unselected_nan, Mutant("unselected NaN hidden", "0.0 * p if SIGMOID else 0.0", "0.0")),
    (dropped_slots_count_nowhere, Mutant("zero divided by zero slots", "tl.maximum(tl.sum(counts, 0), 1)", "tl.sum(counts, 0)")),
    (no_tokens, Mutant("a mean over no token", "partial.sum() / max(T, 1)", "partial.sum() * (1 / T)", error="ZeroDivisionError")),
]  # fmt: skip
HELPERS = [
    (sorts, Mutant("order and position exchanged", "tl.store(position_ptr + slot, row, mask=mask)\n    tl.store(order_ptr + row, slot, mask=mask)", "tl.store(order_ptr + slot, row, mask=mask)\n    tl.store(position_ptr + row, slot, mask=mask)")),
    (sorts, Mutant("unstable", "starts[None, :] + tl.cumsum(mine, 0) - mine", "starts[None, :] + tl.sum(mine, 0)[None, :] - tl.cumsum(mine, 0)")),
    (sorts, Mutant("blocks not added up", "        start += tl.sum(counts, 0)\n", "")),
    (sorts, Mutant("dropped ones first", "(expert < 0) | (expert >= E), E, expert", "(expert < 0) | (expert >= E), 0, expert")),
    (more_than_sixteen_bits, Mutant("rows of 16 bits", "row = tl.sum(mine * (starts", "row = 0xFFFF & tl.sum(mine * (starts")),
    (numbers_that_are_no_experts, Mutant("cast before it is compared", "other=0)\n    expert = tl.where(", "other=0).to(tl.int32)\n    expert = tl.where(")),
]  # fmt: skip


test_mutant_is_caught = harness.mutant_test(lesson, MUTANTS)
test_mutant_of_helpers_is_caught = harness.mutant_test(common, HELPERS, within=lesson)


# ---------------------------------------------------------------- structure, repeated calls, errors


def test_every_place_is_written_once():
    """No atomics, and no kernel that fills memory first and scatters into it afterwards: without a barrier between them
    the threads of a program come in any order, and the interpreter never shows it."""
    for module in (lesson, common):
        tree = ast.parse(inspect.getsource(module))
        for function in [node for node in tree.body if isinstance(node, ast.FunctionDef)]:
            calls = [ast.unparse(node) for node in ast.walk(function) if isinstance(node, ast.Call)]
            assert not [call for call in calls if call.startswith("tl.atomic")], function.name
            written = [call.split("_ptr")[0] for call in calls if call.startswith("tl.store(")]
            assert len(written) == len(set(written)), f"{function.name} stores twice into one tensor"


FINE = torch.ones(4, 6, device=DEVICE)
BAD = [
    (TypeError, "logits", dict(logits=[1.0])),
    (TypeError, "logits", dict(logits=FINE.double())),
    (ValueError, "logits", dict(logits=FINE[0])),
    (ValueError, "logits", dict(logits=FINE[:, :0])),
    (ValueError, "logits", dict(logits=torch.ones(1, 4097, device=DEVICE))),
    (ValueError, "logits", dict(logits=FINE.to("meta"))),
    (ValueError, "top_k", dict(top_k=0)),
    (ValueError, "top_k", dict(top_k=7)),
    (TypeError, "top_k", dict(top_k=2.0)),
    (ValueError, "score", dict(score="relu")),
    (ValueError, "renormalize", dict(renormalize=1)),
    (TypeError, "bias", dict(bias=0.5)),
    (TypeError, "bias", dict(bias=FINE[0].half())),
    (ValueError, "bias", dict(bias=FINE[0, :5])),
    (ValueError, "bias requires a gradient", dict(bias=torch.ones(6, device=DEVICE, requires_grad=True))),
    (ValueError, "scale", dict(scale=INF)),
]


test_bad_arguments = harness.refused_test(
    "error, name, change",
    BAD,
    dict(logits=FINE, top_k=2),
    lesson.route,
)


EXPERTS = torch.zeros(4, 2, dtype=torch.int32, device=DEVICE)
BAD_EXPERTS = [
    (TypeError, "experts", [[0]]),
    (TypeError, "experts", EXPERTS.short()),
    (TypeError, "experts", EXPERTS.float()),
    (ValueError, "experts", EXPERTS[0]),
    (ValueError, "experts", EXPERTS.to("meta")),
]


test_bad_experts = harness.raises_test(
    [(lambda call=call, experts=experts: call(experts), error, rf"^{name} ") for error, name, experts in BAD_EXPERTS
     for call in (lambda x: lesson.sort_by_expert(x, 6), lambda x: lesson.load_balancing_loss(FINE, x))]
)  # fmt: skip


@pytest.mark.parametrize("number", [6, -2, 2**31])
def test_an_expert_out_of_range(number, monkeypatch):
    monkeypatch.setenv("ACADEMY_DEBUG", "1")
    experts = EXPERTS.long()
    experts[2, 1] = number
    for call in (lambda: lesson.sort_by_expert(experts, 6), lambda: lesson.load_balancing_loss(FINE, experts)):
        with pytest.raises(ValueError, match=rf"^experts must be in \[0, 6\), or -1 for a dropped slot, got {number}$"):
            call()


def test_a_row_of_experts_for_each_of_logits():
    with pytest.raises(ValueError, match="^experts must have a row for each of logits, 4"):
        lesson.load_balancing_loss(FINE, EXPERTS[:3])
    for number in (0, 4097):
        with pytest.raises(ValueError, match="^num_experts "):
            lesson.sort_by_expert(EXPERTS, number)
