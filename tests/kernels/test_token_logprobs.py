"""token_logprobs: impossible tokens, large logits, what isn't read, upstream gradients, errors, mutants."""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import pytest
import torch

from academy.runtime import device
from academy.judge import accuracy
from annotated_examples.classics import token_logprobs as lesson
from annotated_examples.common import logits as shared
from annotated_examples.fast import token_logprobs as fast
from tests.kernels import harness
from tests.kernels.harness import Mutant, randn

DEVICE = harness.DEVICE
INF, NAN = float("inf"), float("nan")


# ---------------------------------------------------------------- judging


def in_blocks(module, block):
    """The public function with blocks so small that rows of a few dozen logits take several."""

    tile = {"BLOCK" if hasattr(module, "tiles") else "BLOCK_N": block}

    def call(logits, tokens, temperature=1.0, ignore_index=-100):
        forward = lambda *arguments: module.token_logprobs_forward(*arguments, **tile)  # noqa: E731
        backward = lambda *arguments: module.token_logprobs_backward(*arguments, **tile)  # noqa: E731
        return module.TokenLogprobs.apply(logits, tokens, temperature, ignore_index, forward, backward)

    return call


def results(function, logits, tokens, upstream, **options):
    """Both results and the gradient. An upstream gradient may be None."""
    leaf = harness.leaf(logits)
    found = function(leaf, tokens, **options)
    used = [(each, given) for each, given in zip(found, upstream) if given is not None]
    outs, given = zip(*used)
    (gradient,) = torch.autograd.grad(outs, leaf, [up.to(out.dtype) for out, up in used], retain_graph=True)
    return dict(logprobs=found[0].detach(), entropies=found[1].detach(), dlogits=gradient)


def assert_right(module, logits, tokens, upstream=None, block=16, absolute=False, **options):
    """The 2x rule. absolute: entropies near 0 are judged by 1e-6 nats, and their gradient by the whole upstream."""
    upstream = upstream or [torch.randn(tokens.shape, device=DEVICE) for _ in range(2)]
    watched = dict(logits=logits, tokens=tokens)
    with harness.unchanged(**watched), harness.fenced_allocations():
        ours = results(in_blocks(module, block), logits, tokens, upstream, **options)
    own = results(lesson.token_logprobs_reference, logits, tokens, upstream, **options)
    exact = results(lesson.token_logprobs_reference, logits.double(), tokens, upstream, **options)
    for name, value in ours.items():
        assert torch.equal(value.isfinite(), exact[name].isfinite()), name
        finite = exact[name].isfinite()
        if absolute and name != "logprobs":
            assert (value.double() - exact[name]).abs().max() < 1e-6, name
        else:
            accuracy.check(name, value[finite], own[name][finite], exact[name][finite])


def some_tokens(*shape, vocab):
    return torch.randint(vocab, shape, device=DEVICE)


# ---------------------------------------------------------------- what the mutants have to get past


def impossible_tokens(module):
    """−∞ at every third logit, in the whole first block, and at the token: 0 · (−∞) and −∞ − (−∞)."""
    logits = randn(4, 70)
    logits[0, ::3] = logits[1, :20] = -INF
    tokens = torch.tensor([1, 50, 3, 69], device=DEVICE)
    logits[2, 3] = -INF
    assert_right(module, logits, tokens)
    ours = results(in_blocks(module, 16), logits, tokens, [torch.ones(4, device=DEVICE)] * 2)
    assert ours["logprobs"][2] == -INF and ours["entropies"].isfinite().all() and ours["dlogits"].isfinite().all()


def a_larger_logit_in_each_block(module):
    """The sums are moved from maximum to maximum."""
    assert_right(module, torch.arange(70.0, device=DEVICE).repeat(3, 1) / 8, some_tokens(3, vocab=70))


def around_ten_thousand(module):
    """Where log Z less the mean logit, or x less log Z, keep three digits after the point."""
    assert_right(module, randn(16, 500) + 1e4, some_tokens(16, vocab=500), block=128)


def lanes_past_the_end(module):
    """A row below zero that is no multiple of a block: a lane counted as e⁰ would have all of it."""
    assert_right(module, randn(3, 37) - 120, some_tokens(3, vocab=37))


def a_temperature(module):
    assert_right(module, randn(5, 40) * 3, some_tokens(5, vocab=40), temperature=0.3)


def pieces_of_a_vocabulary(module):
    """Each piece begins elsewhere, the token lies in one of them, and a gradient overwrites its logits."""
    logits, tokens = randn(5, 50), torch.tensor([0, 19, 20, 33, 49], device=DEVICE)
    state, found = module.empty_results(tokens)
    cuts = [(0, 20), (20, 40), (40, 50)]
    for start, end in cuts:
        module.add_piece(logits[None, :, start:end], tokens, state, found, start, 50, 0.7, -100, 8, start == 0)
    upstream, parts = [randn(5), randn(5)], [logits[:, start:end].clone() for start, end in cuts]
    for (start, _), part in zip(cuts, parts):
        module.differentiate_piece(upstream, part[None], tokens, state, part, start, 50, 0.7, -100, 8)
    exact = results(lesson.token_logprobs_reference, logits.double(), tokens, upstream, temperature=0.7)
    for name, value in dict(logprobs=found[0], entropies=found[1], dlogits=torch.cat(parts, 1)).items():
        accuracy.check(name, value, exact[name].float(), exact[name])


def out_of_range_is_nan(module):
    """Straight to the frame: on the CPU the public function raises before."""
    logits, tokens = harness.leaf(randn(5, 20)), torch.tensor([3, 20, -1, 2**40, 0], device=DEVICE)
    logprobs, entropies = in_blocks(module, 8)(logits, tokens)
    (logprobs + entropies).sum().backward()
    wrong = [False, True, True, True, False]
    assert logprobs.isnan().tolist() == entropies.isnan().tolist() == logits.grad.isnan().all(1).tolist() == wrong
    assert logits.grad[[0, 4]].isfinite().all()


def ignored_rows_are_not_read(module):
    logits, tokens = randn(4, 40), torch.tensor([3, -7, 39, -7], device=DEVICE)
    logits[1], logits[3] = NAN, INF
    ours = results(in_blocks(module, 16), logits, tokens, [torch.full((4,), NAN, device=DEVICE)] * 2, ignore_index=-7)
    assert all(bool((value[[1, 3]] == 0).all()) for value in ours.values())
    assert ours["logprobs"][[0, 2]].isfinite().all()


CHECKS = [
    impossible_tokens,
    a_larger_logit_in_each_block,
    around_ten_thousand,
    lanes_past_the_end,
    a_temperature,
    pieces_of_a_vocabulary,
    out_of_range_is_nan,
    ignored_rows_are_not_read,
]


BOTH = pytest.mark.parametrize("module", [lesson, fast], ids=["lesson", "fast"])


@BOTH
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_check(module, check):
    if module is lesson or check is not pieces_of_a_vocabulary:
        check(module)


# ---------------------------------------------------------------- mutants, each with the check that must notice it

MUTANTS = [
    (impossible_tokens, Mutant("0 · (−∞) in the gradient", "tl.where(p == 0.0, 0.0, p * (mean - z))", "p * (mean - z)")),
    (lanes_past_the_end, Mutant("a lane past the end counts as e⁰", 'tl.where(mask, z, -float("inf"))', "tl.where(mask, z, 0.0)")),
    (a_temperature, Mutant("no 1/τ in the gradient", "dz * scaling, float", "dz, float")),
    (a_temperature, Mutant("the entropy's gradient without the mean", "p * (mean - z)", "-p * z")),
    (around_ten_thousand, Mutant("x − log Z", "(z_token - row_max) - log_sum", "z_token - (row_max + log_sum)")),
    (pieces_of_a_vocabulary, Mutant("a piece begins at column 0", "(start + offs_n == token)", "(offs_n == token)")),
    (pieces_of_a_vocabulary, Mutant("the state isn't handed on", "row_max, row_sum = tl.load(state_ptr), tl.load(state_ptr + 1)", "row_max, row_sum = tl.load(state_ptr), row_sum")),
    (out_of_range_is_nan, Mutant("token out of range unnoticed", '(token < vocab), dz * scaling, float("nan"))', "(token < vocab), dz * scaling, dz)")),
    (ignored_rows_are_not_read, Mutant("ignored rows are read", "tl.where(ignored, 0.0, dx)", "dx")),
]  # fmt: skip
SHARED_MUTANTS = [
    (a_larger_logit_in_each_block, Mutant("no shift in rebase", "(weighted + shift * row_sum) * factor, weighted", "weighted * factor, weighted")),
    (impossible_tokens, Mutant("0 · (−∞) in the sum", "tl.where(e > 0.0, (z - new_max) * e, e)", "(z - new_max) * e")),
]  # fmt: skip
FAST_MUTANTS = [
    (impossible_tokens, Mutant("0 · (−∞) in the gradient", "beta * tl.maximum(t, LEAST))", "beta * t)")),
    (impossible_tokens, Mutant("0 · (−∞) in the sum", "power * tl.maximum(t, LEAST), 1)", "power * t, 1)")),
    (a_larger_logit_in_each_block, Mutant("exponents aren't moved", "(weighted + moved * total) * factor +", "weighted * factor +")),
    (lanes_past_the_end, Mutant("the head is left out", "lane < STRIP, head, width", "lane < STRIP, 0, width")),
    (lanes_past_the_end, Mutant("a strip past the end counts", "(start + strips < end)[:, None]", "(start + strips < width)[:, None]")),
    (a_temperature, Mutant("no 1/τ in the gradient", ".to(tl.float32) * scaling\n        alpha", ".to(tl.float32)\n        alpha")),
    (around_ten_thousand, Mutant("x − log Z", "(x_token - row_shift) * scaling - log_sum", "x_token * scaling - (row_shift * scaling + log_sum)")),
    (out_of_range_is_nan, Mutant("token out of range unnoticed", '(token < width), alpha, float("nan"))', "(token < width), alpha, alpha)")),
    (ignored_rows_are_not_read, Mutant("ignored rows are read", "tl.where(ignored, 0.0, dx), mask=mask", "dx, mask=mask")),
]  # fmt: skip


test_mutant_of_the_lesson_is_caught = harness.mutant_test(lesson, MUTANTS)
test_mutant_of_the_fast_version_is_caught = harness.mutant_test(fast, FAST_MUTANTS)
test_mutant_of_the_shared_sums_is_caught = harness.mutant_test(shared, SHARED_MUTANTS, within=lesson)


# ---------------------------------------------------------------- values


@BOTH
@pytest.mark.parametrize("dtype", harness.DTYPES, ids=harness.dtype_name)
@pytest.mark.parametrize("vocab", [1, 7, 117])
def test_odd_vocabularies(module, dtype, vocab):
    assert_right(module, randn(4, vocab, dtype=dtype), some_tokens(4, vocab=vocab), absolute=vocab == 1)


@BOTH
def test_where_one_logit_towers_above_all(module):
    """The entropy is near 0 there, and so is its gradient: both are judged absolutely."""
    logits, tokens = randn(6, 117) * 1e4, some_tokens(6, vocab=117)
    assert_right(module, logits, tokens, [torch.zeros(6, device=DEVICE), randn(6)], absolute=True, temperature=1.3)
    upstream = [randn(6), None]
    ours = results(in_blocks(module, 16), logits, tokens, upstream)
    own, exact = (results(lesson.token_logprobs_reference, x, tokens, upstream) for x in (logits, logits.double()))
    for name in ("logprobs", "dlogits"):
        accuracy.check(name, ours[name], own[name], exact[name])


@BOTH
@pytest.mark.parametrize("bad", [INF, NAN, -INF], ids=["a +∞", "a NaN", "nothing but −∞"])
def test_what_spoils_a_row_leaves_the_others_their_bits(module, bad):
    logits, tokens, upstream = randn(3, 40), some_tokens(3, vocab=40), [randn(3), randn(3)]
    clean = results(in_blocks(module, 16), logits, tokens, upstream)
    logits[1, slice(None) if bad == -INF else 20] = bad
    spoilt = results(in_blocks(module, 16), logits, tokens, upstream)
    for name, value in spoilt.items():
        assert torch.equal(value[[0, 2]], clean[name][[0, 2]]) and value[1].isnan().all(), name


@BOTH
@pytest.mark.parametrize("which", ["logprobs", "entropies", "expanded"])
def test_upstream_gradients(module, which):
    """Either may be missing, or one number shown many times."""
    one = torch.full((), 0.7, device=DEVICE).expand(2, 5)
    upstream = dict(logprobs=[randn(2, 5), None], entropies=[None, randn(2, 5)], expanded=[one, one])[which]
    assert_right(module, randn(2, 5, 40), some_tokens(2, 5, vocab=40), upstream)


def test_all_rows_ignored():
    logits = harness.leaf(randn(3, 20))
    found = lesson.token_logprobs(logits, torch.full((3,), -100, device=DEVICE))
    sum(each.sum() for each in found).backward()
    assert all(bool((each == 0).all()) for each in (*found, logits.grad))


@BOTH
def test_all_but_the_last_logits_are_read_where_they_are(module):
    """Two strides lead to a row: no copy is made of `logits[:, :-1]`."""
    logits, tokens = randn(3, 6, 40)[:, :-1], some_tokens(3, 5, vocab=40)
    for x in (logits, logits.transpose(0, 1), logits[1], randn(2, 3, 4, 40)[:, :, 1:], randn(40)):
        assert lesson.in_sequences(x).data_ptr() == x.data_ptr()
    assert_right(module, logits, tokens)
    assert_right(module, logits[:, :, ::2], tokens % 20)
    assert_right(module, logits[:, :1].expand(3, 5, 40), tokens)
    assert_right(module, randn(2, 3, 4, 40)[:, :, 1:], some_tokens(2, 3, 3, vocab=40))
    assert_right(module, randn(40), torch.tensor(7, device=DEVICE))


@pytest.mark.parametrize("dtype", shared.INTEGERS, ids=harness.dtype_name)
def test_tokens_of_every_integer_dtype(dtype):
    ignore_index = -100 if dtype.is_signed else 99
    tokens = torch.tensor([5, 19, ignore_index, 0]).to(dtype).to(DEVICE)
    found = lesson.token_logprobs(logits := randn(4, 20), tokens, ignore_index=ignore_index)
    exact = lesson.token_logprobs_reference(logits.double(), tokens, ignore_index=ignore_index)
    for ours, true in zip(found, exact):
        accuracy.check("result", ours, true.float(), true)


def test_gradients_that_nobody_asks_for_are_not_computed(monkeypatch):
    """The launcher is told by None."""
    given = []
    real = lesson.token_logprobs_backward
    monkeypatch.setattr(lesson, "token_logprobs_backward", lambda *args: given.append(args[:2]) or real(*args))
    logits = harness.leaf(randn(3, 20))
    lesson.token_logprobs(logits, some_tokens(3, vocab=20))[0].sum().backward()
    assert given[0][0] is not None and given[0][1] is None


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("error", "name", "change"),
    [
        (TypeError, "logits", dict(logits=[1.0])),
        (TypeError, "logits", dict(logits=torch.ones(3, 20, dtype=torch.float64))),
        (ValueError, "logits", dict(logits=torch.tensor(1.0))),
        (ValueError, "logits", dict(logits=torch.ones(3, 0))),
        (TypeError, "tokens", dict(tokens=torch.ones(3))),
        (ValueError, "tokens", dict(tokens=torch.ones(4, dtype=torch.long))),
        (ValueError, "tokens", dict(tokens=torch.ones(3, 1, dtype=torch.long))),
        (ValueError, "temperature", dict(temperature=0.0)),
        (ValueError, "temperature", dict(temperature=-1.0)),
        (ValueError, "temperature", dict(temperature=INF)),
        (TypeError, "temperature", dict(temperature=torch.tensor(1.0))),
        (TypeError, "ignore_index", dict(ignore_index=1.0)),
    ],
)
def test_bad_arguments(error, name, change):
    arguments = dict(logits=torch.ones(3, 20), tokens=torch.ones(3, dtype=torch.long)) | change
    arguments = {n: v.to(DEVICE) if isinstance(v, torch.Tensor) else v for n, v in arguments.items()}
    with pytest.raises(error, match=rf"^{name} "):
        lesson.token_logprobs(**arguments)


@pytest.mark.skipif(not device.INTERPRET, reason="CUDA tensors aren't looked at")
@pytest.mark.parametrize("token", [-1, 20])
def test_token_out_of_range(token):
    with pytest.raises(ValueError, match=r"^tokens must be in \[0, 20\)"):
        lesson.token_logprobs(torch.ones(2, 20), torch.tensor([3, token]))


def test_bad_tiles():
    with pytest.raises(ValueError, match="BLOCK_N"):
        lesson.token_logprobs_forward(randn(3, 20), some_tokens(3, vocab=20), BLOCK_N=24)
