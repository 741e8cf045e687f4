"""policy_loss: masks, overflow, which side is clipped, the three means, digits near the reference, errors, mutants."""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import pytest
import torch
import torch.nn.functional as F

from academy.judge import accuracy
from annotated_examples.classics import policy_loss as lesson
from annotated_examples.common import shares
from tests.kernels import harness
from tests.kernels.harness import Mutant, randn

DEVICE = harness.DEVICE
INF, NAN = float("inf"), float("nan")
B, T = 4, 37


# ---------------------------------------------------------------- judging


def rollouts(far=0.3):
    """Log-probabilities, those of before and of the reference, one advantage of each sign, and a mask."""
    logprobs = -torch.rand(B, T, device=DEVICE) * 5
    near = torch.logspace(-6, 0, T, device=DEVICE)
    return dict(
        logprobs=logprobs,
        old_logprobs=logprobs + randn(B, T, scale=far),
        ref_logprobs=logprobs + randn(B, T) * near,
        advantages=torch.tensor([1.0, -0.7, 0.0, 2.0], device=DEVICE),
        mask=torch.rand(B, T, device=DEVICE) > 0.3,
    )


def results(function, values, upstream=1.0, wide=False, **options):
    """The loss and its gradient."""
    values = {n: v.double() if wide and v is not None and v.is_floating_point() else v for n, v in values.items()}
    leaf = harness.leaf(values.pop("logprobs"))
    loss = function(leaf, **values, **options)
    (gradient,) = torch.autograd.grad(loss, leaf, torch.full_like(loss, upstream))
    return dict(loss=loss.detach(), gradient=gradient)


def assert_right(module, values, upstream=1.0, **options):
    given = {name: value for name, value in values.items() if value is not None}
    with harness.unchanged(**given), harness.fenced_allocations():
        ours = results(module.grpo_loss, values, upstream, **options)
    own = results(lesson.grpo_loss_reference, values, upstream, **options)
    exact = results(lesson.grpo_loss_reference, values, upstream, wide=True, **options)
    for name, value in ours.items():
        accuracy.check(name, value, own[name], exact[name])


def expm1_less(d):
    """e^d − 1 − d in float64, by as many terms as it takes."""
    d, total, term = d.double(), torch.zeros_like(d.double()), d.double()
    for n in range(2, 60):
        term = term * d / n
        total = total + term
    return total


# ---------------------------------------------------------------- what the mutants have to get past


def advantages_of_sequences_and_tokens(module):
    """A batch whose sequences outnumber its tokens, and an advantage for each token."""
    values = {name: value[:, :3] if value.dim() == 2 else value for name, value in rollouts().items()}
    assert_right(module, values)
    each = randn(B, 3)
    assert_right(module, values | dict(advantages=each))
    assert_right(module, values | dict(advantages=each[:, :1].expand(B, 3)))
    assert_right(module, values | dict(advantages=randn(3, B).T))


def a_ratio_of_infinity(module):
    """Without an advantage, and behind the clip of a good token: 0, where a product would be 0 · ∞."""
    values = rollouts()
    values["mask"][:] = True
    values["old_logprobs"][2, 3] = values["old_logprobs"][0, 5] = -1e4
    found = results(module.grpo_loss, values)
    assert found["loss"].isfinite() and found["gradient"].isfinite().all()
    assert found["gradient"][2, 3] == found["gradient"][0, 5] == 0
    values["old_logprobs"][1, 7] = -1e4  # of a bad token it is the truth
    assert results(module.grpo_loss, values)["loss"] == INF


def an_impossible_token(module):
    """−∞ now, when it was written, or for the reference: 0 · ∞ and ∞ − ∞. PyTorch's answer for A = 0 is 0 where the
    ratio is, and its slope for an impossible token of the reference is finite."""
    one = lambda y, o, a, **more: results(  # noqa: E731
        module.grpo_loss,
        dict(logprobs=y.view(1, 1), old_logprobs=o.view(1, 1), advantages=a.view(1)) | more,
        beta=0.5 if more else 0.0,
    )
    of = lambda *values: torch.tensor(values, device=DEVICE)  # noqa: E731
    for y, o in ((-INF, -1.0), (-1.0, -INF), (-1e4, -1.0), (-1.0, -1e4)):
        found = one(of(y), of(o), of(0.0))
        assert found["loss"] == 0 and found["gradient"] == 0, (y, o)
    for a, loss in ((2.0, 0.0), (-2.0, 1.6)):
        found = one(of(-INF), of(-1.0), of(a))
        assert found["loss"].item() == pytest.approx(loss) and found["gradient"] == 0
    for a in (0.0, 2.0):  # what says nothing stays so
        for y, o in ((NAN, -1.0), (-1.0, NAN), (-INF, -INF)):
            found = one(of(y), of(o), of(a))
            assert found["loss"].isnan() and found["gradient"].isnan(), (a, y, o)
    found = one(of(-1.0), of(-1.0), of(NAN))
    assert found["loss"].isnan() and found["gradient"].isnan()
    found = one(of(-1.0), of(-1.0), of(2.0), ref_logprobs=of(-INF).view(1, 1))
    assert found["loss"] == INF and found["gradient"].item() == pytest.approx(-2.0 + 0.5)
    found = one(of(-INF), of(-1.0), of(2.0), ref_logprobs=of(-1.0).view(1, 1))
    assert not found["loss"].isfinite() and found["gradient"] == -INF


def nothing_from_above(module):
    """A token that doesn't count, or that a clip holds, has no gradient, also where that of the loss is no number."""
    values = rollouts(far=1.0)
    ratio, a = (values["logprobs"] - values["old_logprobs"]).exp(), values["advantages"][:, None]
    held = ((a > 0) & (ratio > 1.2)) | ((a < 0) & (ratio < 0.8))
    none = held | ~values["mask"]
    assert held.any() and not none.all()
    for upstream in (INF, -INF, NAN):
        found = results(module.grpo_loss, values, upstream)["gradient"]
        assert (found[none] == 0).all() and not found[~none & (a != 0)].isfinite().any()


def nan_where_masked(module):
    values = rollouts()
    clean = results(module.grpo_loss, values, beta=0.1)
    spoilt = {n: v.masked_fill(~values["mask"], NAN) if n.endswith("logprobs") else v for n, v in values.items()}
    found = results(module.grpo_loss, spoilt, beta=0.1)
    assert all(torch.equal(clean[name], found[name]) for name in clean)
    assert (found["gradient"][~values["mask"]] == 0).all()


def near_the_reference(module):
    """k is never negative, and as exact as a float can be, where the difference of floats is not."""
    d = torch.cat([torch.logspace(-7, -0.31, 500), torch.linspace(-3, 3, 101)]).to(DEVICE)
    d = torch.cat([d, -d])
    zero, one = torch.zeros_like(d)[:, None], torch.zeros(len(d), device=DEVICE)
    terms = module.grpo_forward(zero, None, one, None, d[:, None], (0.2, 0.2), 1.0, "constant", None, 1)
    assert (terms[1] + d[:, None]).isfinite().all()
    kept = [
        results(
            module.grpo_loss,
            dict(logprobs=zero[:1], old_logprobs=None, advantages=one[:1], ref_logprobs=x.view(1, 1)),
            beta=1.0,
        )
        for x in d[::17]
    ]
    k, exact = torch.stack([each["loss"] for each in kept]), expm1_less(d[::17])
    slope = torch.stack([each["gradient"][0, 0] for each in kept])
    assert (k >= 0).all() and ((k - exact) / exact).abs().max() < 4e-7
    true = -d[::17].double().expm1()
    assert ((slope - true) / true).abs().max() < 4e-7


def an_empty_sequence_and_an_empty_batch(module):
    values = rollouts()
    values["mask"][1] = False
    for options in ({}, dict(reduction="sequence"), dict(reduction="constant", max_length=40)):
        assert_right(module, values, beta=0.04, **options)
        none = results(module.grpo_loss, values | dict(mask=torch.zeros_like(values["mask"])), beta=0.04, **options)
        assert none["loss"] == 0 and (none["gradient"] == 0).all()


CHECKS = [
    advantages_of_sequences_and_tokens,
    a_ratio_of_infinity,
    an_impossible_token,
    nothing_from_above,
    nan_where_masked,
    near_the_reference,
    an_empty_sequence_and_an_empty_batch,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_check(check):
    check(lesson)


# ---------------------------------------------------------------- DPO


def far_apart(module):
    """Where −log(sigmoid) is ∞, and sigmoid − 1 is 0."""
    margin = torch.tensor([-900.0, -200.0, -20.0, -1.0, 0.0, 1.0, 20.0, 200.0], device=DEVICE)
    zero = torch.zeros_like(margin)
    leaf = harness.leaf(margin)
    losses = module.dpo_loss(leaf, zero, zero, zero, beta=0.5, reduction="none")
    losses.sum().backward()
    wide = harness.leaf(margin.double())
    exact = F.softplus(-0.5 * wide, threshold=1e9)
    exact.sum().backward()
    assert losses.isfinite().all()
    assert ((losses - exact) / exact).abs()[:-1].max() < 4e-7
    assert ((leaf.grad - wide.grad) / wide.grad).abs()[:-1].max() < 4e-7


def pairs(module):
    given = [randn(70, scale=30) - 300 for _ in range(4)]
    for options in ({}, dict(label_smoothing=0.1), dict(reduction="sum"), dict(reduction="none", label_smoothing=1)):
        leaves = [harness.leaf(each) for each in given[:2]]
        loss = module.dpo_loss(*leaves, *given[2:], **options)
        loss.sum().backward()
        for function, dtype in ((lesson.dpo_loss_reference, torch.float64),):
            wide = [harness.leaf(each.to(dtype)) for each in given[:2]]
            exact = function(*wide, *[each.to(dtype) for each in given[2:]], **options)
            exact.sum().backward()
        accuracy.check("loss", loss, exact.float(), exact)
        for ours, true in zip(leaves, wide):
            accuracy.check("gradient", ours.grad, true.grad.float(), true.grad)


def impossible_texts(module):
    """One of the two texts is impossible, and then the loss of the pair the other way round has no weight."""
    zero = torch.zeros(1, device=DEVICE)
    for smoothing, sign in ((0.0, 1.0), (1.0, -1.0)):
        for u, loss, slope in ((INF, 0.0, 0.0), (-INF, INF, -0.1)):
            leaf = harness.leaf(torch.full((1,), sign * u, device=DEVICE))
            found = module.dpo_loss(leaf, zero, zero, zero, label_smoothing=smoothing)
            found.backward()
            assert found == loss and leaf.grad.item() == pytest.approx(sign * slope)
            own = lesson.dpo_loss_reference(leaf, zero, zero, zero, label_smoothing=smoothing)
            assert own == found and torch.autograd.grad(own, leaf)[0] == leaf.grad
    nan = torch.full((1,), NAN, device=DEVICE)
    assert all(module.dpo_loss(nan, zero, zero, zero, label_smoothing=each).isnan() for each in (0.0, 0.5, 1.0))


DPO_CHECKS = [far_apart, pairs, impossible_texts]


@pytest.mark.parametrize("check", DPO_CHECKS, ids=lambda check: check.__name__)
def test_dpo(check):
    check(lesson)


# ---------------------------------------------------------------- mutants, each with the check that must notice it

MUTANTS = [
    (a_ratio_of_infinity, Mutant("0 · ∞ without an advantage", "tl.where((a == 0.0) & (log_ratio == log_ratio), 1.0, exp(log_ratio))", "exp(log_ratio)")),
    (an_impossible_token, Mutant("0 · (−∞) without an advantage", "tl.where((a == 0.0) & (log_ratio == log_ratio), 1.0, exp(log_ratio))", "tl.where(a == 0.0, log_ratio, exp(log_ratio))")),
    (an_impossible_token, Mutant("NaN is hidden without an advantage", "(a == 0.0) & (log_ratio == log_ratio)", "a == 0.0")),
    (an_impossible_token, Mutant("∞ − ∞ in the price's slope", "tl.where(near, k + d, above)", "tl.where(near, k, above - d) + d")),
    (nothing_from_above, Mutant("0 · ∞ from above", "tl.where(slope == 0.0, 0.0, slope * factor)", "slope * factor")),
    (near_the_reference, Mutant("no series", "near = tl.abs(d) < 0.5", "near = tl.abs(d) < 0.0")),
    (nan_where_masked, Mutant("the mask is a factor", "tl.where(counts, weight * term, 0.0)", "weight * (term + tl.load(old_ptr + offs, mask=within) * 0.0)")),
    (far_apart, Mutant("log of a sum with 1", "libdevice.log1p(exp(-tl.abs(u)))", "tl.log(1.0 + exp(-tl.abs(u)))")),
    (far_apart, Mutant("sigmoid − 1", "smoothing * sigmoid_of(u) - (1.0 - smoothing) * sigmoid_of(-u)", "sigmoid_of(u) - (1.0 - smoothing)")),
    (impossible_texts, Mutant("the weight is the loss", "weighted(1.0 - smoothing, softplus(-u))", "weighted(softplus(-u), 1.0 - smoothing)")),
    (impossible_texts, Mutant("0 · ∞ without smoothing", "tl.where(weight == 0.0, 0.0, weight * x)", "weight * x")),
]  # fmt: skip


OF_MEANS = [
    (an_empty_sequence_and_an_empty_batch, Mutant("0 / 0", "tl.where(each > 0.0, 1.0 / each, 0.0)", "1.0 / each")),
    (an_empty_sequence_and_an_empty_batch, Mutant("an empty sequence isn't counted", "of_sequences(counts_ptr, offs_b, B, N, BLOCK_B, BLOCK_N) * B", "of_sequences(counts_ptr, offs_b, B, N, BLOCK_B, BLOCK_N) * 3")),
]  # fmt: skip


test_mutant_is_caught = harness.mutant_test(lesson, MUTANTS)
test_mutant_of_means_is_caught = harness.mutant_test(shares, OF_MEANS, within=lesson)


# ---------------------------------------------------------------- values


def test_the_first_step_after_a_rollout():
    """The old log-probabilities are the new ones: the gradient is −A over the number of tokens, and not 0."""
    values = rollouts()
    values |= dict(old_logprobs=None, mask=None, ref_logprobs=None)
    found = results(lesson.grpo_loss, values)
    expected = -values["advantages"][:, None].expand(B, T) / (B * T)
    torch.testing.assert_close(found["gradient"], expected)
    same = results(lesson.grpo_loss, values | dict(old_logprobs=values["logprobs"].clone()))
    assert torch.equal(found["gradient"], same["gradient"])


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.int32, torch.uint8, torch.float32, torch.bfloat16])
def test_masks(dtype):
    values = rollouts()
    assert_right(lesson, values | dict(mask=values["mask"].to(dtype)), beta=0.04)


def test_fractions_of_a_mask_count():
    values = rollouts()
    values["mask"] = torch.rand(B, T, device=DEVICE) * values["mask"]
    for options in ({}, dict(reduction="sequence"), dict(reduction="constant", max_length=50)):
        assert_right(lesson, values, beta=0.04, **options)


def test_any_strides():
    values = {
        n: (v if v.dim() == 1 else v.repeat_interleave(2, 1)[:, ::2].T.contiguous().T) for n, v in rollouts().items()
    }
    assert_right(lesson, values, beta=0.04)


@pytest.mark.parametrize("n_items", [40, 40.0, torch.tensor(40)], ids=str)
def test_a_step_of_two_batches_is_the_step_of_both(n_items):
    """Each is divided by the number of all tokens, and by nothing else."""
    values = rollouts()
    whole = results(lesson.grpo_loss, values, n_items=n_items)
    parts = [
        results(lesson.grpo_loss, {n: v[rows] for n, v in values.items()}, n_items=n_items)
        for rows in (slice(0, 1), slice(1, 4))
    ]
    torch.testing.assert_close(sum(part["loss"] for part in parts), whole["loss"])
    torch.testing.assert_close(torch.cat([part["gradient"] for part in parts]), whole["gradient"])


def test_the_means_by_hand():
    """Two answers of one and three tokens, ratio 1."""
    y = torch.zeros(2, 3, device=DEVICE)
    mask = torch.tensor([[1, 0, 0], [1, 1, 1]], device=DEVICE)
    a = torch.tensor([2.0, -1.0], device=DEVICE)
    loss = lambda **options: lesson.grpo_loss(y, None, a, mask, **options).item()  # noqa: E731
    assert loss() == pytest.approx((-2 + 3) / 4)
    assert loss(reduction="sequence") == pytest.approx((-2 + 1) / 2)
    assert loss(reduction="constant", max_length=5) == pytest.approx((-2 + 3) / 10)


def test_at_the_bound_the_slope_is_kept():
    """As torch's minimum and clamp keep it, with which libraries write the loss."""

    def written(logprobs, old_logprobs, advantages, clip):
        ratio, a = (logprobs - old_logprobs).exp(), advantages[:, None]
        return -torch.minimum(ratio * a, ratio.clamp(1 - clip[0], 1 + clip[1]) * a).mean()

    y = torch.log(torch.tensor([[1.25, 0.75]], device=DEVICE))
    for a in (1.0, -1.0):
        values = dict(
            logprobs=torch.zeros(1, 2, device=DEVICE), old_logprobs=-y, advantages=torch.tensor([a], device=DEVICE)
        )
        clip = (1 - y[0, 1].exp().item(), y[0, 0].exp().item() - 1)
        own, *others = (
            results(f, values, clip=clip)["gradient"] for f in (written, lesson.grpo_loss, lesson.grpo_loss_reference)
        )
        for each in others:
            torch.testing.assert_close(each, own)


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 0)])
def test_no_tokens(shape):
    y = harness.leaf(torch.zeros(shape, device=DEVICE))
    for options in ({}, dict(reduction="sequence"), dict(reduction="constant", max_length=4)):
        loss = lesson.grpo_loss(y, None, torch.ones(shape[0], device=DEVICE), **options)
        loss.backward()
        assert loss == 0


def test_sums_of_sequences():
    logprobs = harness.leaf(randn(3, 5).masked_fill(torch.eye(3, 5, device=DEVICE) > 0, NAN))
    mask = (torch.eye(3, 5, device=DEVICE) == 0) & torch.tensor([[True], [True], [False]], device=DEVICE)
    sums, means = (lesson.sequence_logprobs(logprobs, mask, average) for average in (False, True))
    (sums.sum() + means.sum()).backward()
    rows = [row[keep] for row, keep in zip(logprobs.detach(), mask)]
    torch.testing.assert_close(sums, torch.stack([row.sum() for row in rows]))
    torch.testing.assert_close(means[:2], torch.stack([row.mean() for row in rows[:2]]))
    assert means[2] == 0 and logprobs.grad.isfinite().all() and (logprobs.grad[~mask] == 0).all()


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("error", "name", "change"),
    [
        (TypeError, "logprobs", dict(logprobs=[1.0])),
        (TypeError, "logprobs", dict(logprobs=torch.zeros(2, 3, dtype=torch.bfloat16))),
        (ValueError, "logprobs", dict(logprobs=torch.zeros(3))),
        (ValueError, "old_logprobs", dict(old_logprobs=torch.zeros(2, 4))),
        (TypeError, "old_logprobs", dict(old_logprobs=torch.zeros(2, 3).double())),
        (ValueError, "advantages", dict(advantages=torch.zeros(3))),
        (ValueError, "advantages", dict(advantages=torch.zeros(2, 1))),
        (ValueError, "mask", dict(mask=torch.ones(2))),
        (TypeError, "mask", dict(mask=torch.ones(2, 3, dtype=torch.complex64))),
        (TypeError, "clip", dict(clip=0.2)),
        (ValueError, "clip", dict(clip=(0.2, -0.1))),
        (ValueError, "beta", dict(beta=-1.0)),
        (ValueError, "ref_logprobs", dict(beta=0.1)),
        (ValueError, "reduction", dict(reduction="mean")),
        (ValueError, "n_items", dict(n_items=0)),
        (ValueError, "n_items", dict(n_items=3, reduction="sequence")),
        (ValueError, "max_length", dict(reduction="constant")),
        (ValueError, "max_length", dict(reduction="constant", max_length=0)),
        (ValueError, "max_length", dict(max_length=5)),
    ],
)
def test_bad_arguments(error, name, change):
    arguments = dict(logprobs=torch.zeros(2, 3), old_logprobs=None, advantages=torch.zeros(2)) | change
    arguments = {n: v.to(DEVICE) if isinstance(v, torch.Tensor) else v for n, v in arguments.items()}
    with pytest.raises(error, match=rf"^{name} "):
        lesson.grpo_loss(**arguments)


@pytest.mark.parametrize(
    ("error", "name", "change"),
    [
        (TypeError, "chosen", dict(chosen=torch.zeros(3).double())),
        (ValueError, "chosen", dict(chosen=torch.zeros(3, 1))),
        (ValueError, "ref_rejected", dict(ref_rejected=torch.zeros(2))),
        (ValueError, "beta", dict(beta=0.0)),
        (ValueError, "label_smoothing", dict(label_smoothing=1.5)),
        (ValueError, "reduction", dict(reduction="token")),
    ],
)
def test_bad_pairs(error, name, change):
    names = "chosen", "rejected", "ref_chosen", "ref_rejected"
    arguments = {each: torch.zeros(3, device=DEVICE) for each in names} | change
    arguments = {n: v.to(DEVICE) if isinstance(v, torch.Tensor) else v for n, v in arguments.items()}
    with pytest.raises(error, match=rf"^{name} "):
        lesson.dpo_loss(**arguments)


def test_bad_tiles():
    y = torch.zeros(2, 3, device=DEVICE)
    with pytest.raises(ValueError, match="BLOCK"):
        lesson.grpo_forward(y, None, y[:, 0], None, None, (0.2, 0.2), 0.0, "token", None, None, BLOCK=24)
