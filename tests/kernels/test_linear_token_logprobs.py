"""linear_token_logprobs: pieces of the vocabulary, what isn't kept, what ignored rows hold, errors, mutants."""

import pytest
import torch

from academy.runtime import device
from academy.judge import accuracy
from annotated_examples.classics import linear_token_logprobs as lesson
from annotated_examples.common import vocabulary as shared
from tests.kernels import harness
from tests.kernels.harness import Mutant, randn

DEVICE = harness.DEVICE


def some_tokens(*shape, vocab, ignore=True):
    tokens = torch.randint(vocab, shape, device=DEVICE)
    if ignore:
        tokens.view(-1)[1::4] = -100
    return tokens


def in_pieces(module, COLUMNS):
    """The public function with pieces so small that a vocabulary of a few dozen takes several."""

    def call(x, weight, tokens, bias=None, temperature=1.0, ignore_index=-100):
        def tiled(launch):
            return lambda *arguments, **named: launch(*arguments, COLUMNS=COLUMNS, BLOCK_N=8, **named)

        launchers = tiled(module.linear_token_logprobs_forward), tiled(module.linear_token_logprobs_backward)
        return module.LinearTokenLogprobs.apply(x, weight, bias, tokens, temperature, ignore_index, *launchers)

    return call


def assert_right(module, x, weight, tokens, bias=None, upstream=None, columns=None, **options):
    """The 2x rule for both results and the gradients of everything that floats."""
    function = in_pieces(module, columns) if columns else module.linear_token_logprobs
    inputs = dict(x=x, weight=weight) | ({} if bias is None else dict(bias=bias))
    upstream = upstream or [torch.randn(tokens.shape, device=DEVICE) for _ in range(2)]

    def results(function, wide=False):
        leaves = {name: harness.leaf(value.double() if wide else value) for name, value in inputs.items()}
        found = function(tokens=tokens, **leaves, **options)
        outs, given = zip(*[(out, up.to(out.dtype)) for out, up in zip(found, upstream) if up is not None])
        gradients = torch.autograd.grad(outs, list(leaves.values()), given)
        return dict(zip(("logprobs", "entropies"), found)) | {f"d{n}": g for n, g in zip(leaves, gradients)}

    with harness.unchanged(**inputs, tokens=tokens), harness.fenced_allocations():
        ours = results(function)
    own, exact = (results(lesson.linear_token_logprobs_reference, wide) for wide in (False, True))
    for name, value in ours.items():
        accuracy.check(name, value.detach(), own[name].detach(), exact[name].detach())
        if name[0] == "d":
            assert value.shape == inputs[name[1:]].shape and value.dtype == inputs[name[1:]].dtype


# ---------------------------------------------------------------- what the mutants have to get past


def several_pieces(module):
    """The last one is narrower, and an upstream gradient for each result."""
    assert_right(module, randn(6, 5), randn(45, 5), some_tokens(6, vocab=45), randn(45), columns=20, temperature=0.6)


def many_pieces_in_bfloat16(module):
    """The sum over the pieces is about 8 after the first one, and the others bring a 64th each."""
    weight = (randn(400, 2).abs() + 1).bfloat16()
    weight[0] = -8
    tokens = torch.zeros(1, dtype=torch.long, device=DEVICE)
    assert_right(module, randn(1, 2).bfloat16() / 64, weight, tokens, columns=4)


def weights_are_rounded_once(module):
    """Many rows in bfloat16, all for the same token: their gradient for a weight is one product, not a sum of rounded
    parts."""
    x, tokens = (randn(400, 3).abs() + 1).bfloat16(), torch.zeros(400, dtype=torch.long, device=DEVICE)
    upstream = [torch.ones(400, device=DEVICE), None]
    assert_right(module, x, randn(3, 3, scale=0.01).bfloat16(), tokens, upstream=upstream, columns=2)


def nan_where_ignored(module):
    """What a hidden row holds that isn't asked about comes into no gradient, those of the weights included; and nothing
    that the weights hold comes into that row's."""
    x, weight, tokens = randn(6, 5), randn(30, 5), some_tokens(6, vocab=30)
    ignored = tokens == -100
    clean = [harness.leaf(value) for value in (x, weight)]
    spoilt = [harness.leaf(value) for value in (x.masked_fill(ignored[:, None], float("nan")), weight)]
    hopeless = [harness.leaf(value) for value in (x, weight.index_fill(0, tokens[:1], float("inf")))]
    for leaves in (clean, spoilt, hopeless):
        found = in_pieces(module, 8)(*leaves, tokens)
        (found[0] + found[1]).sum().backward()
    for before, after in zip(clean, spoilt):
        assert torch.equal(before.grad, after.grad)
    assert (hopeless[0].grad[ignored] == 0).all() and hopeless[0].grad[~ignored].isnan().all()


CHECKS = [several_pieces, many_pieces_in_bfloat16, weights_are_rounded_once, nan_where_ignored]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_check(check):
    check(lesson)


# ---------------------------------------------------------------- mutants, each with the check that must notice it

MUTANTS = [
    (several_pieces, Mutant("the bias of the first piece", "bias[start : start + COLUMNS]", "bias[: len(part)]")),
    (several_pieces, Mutant("the bias is overwritten", "add=bias is not None", "add=False")),
    (
        several_pieces,
        Mutant(
            "each piece is the first", "*options, first=start == 0)\n    return", "*options, first=True)\n    return"
        ),
    ),
    (
        nan_where_ignored,
        Mutant(
            "ignored rows are multiplied",
            "rows.masked_fill(ignored, 0.0)",
            "matrix_of(x)",
        ),
    ),
    (nan_where_ignored, Mutant("ignored rows are products", "gradients[0].masked_fill_(ignored, 0.0)", "pass")),
]
SHARED_MUTANTS = [
    (
        many_pieces_in_bfloat16,
        Mutant("dX summed in bfloat16", "make(rows.shape, dtype=torch.float32", "make(rows.shape, dtype=rows.dtype"),
    ),
    (
        weights_are_rounded_once,
        Mutant(
            "dW summed over pieces of rows",
            "product_into(dweight[start:end], g.T, rows)",
            "dweight[start:end] = 0\n        for at in range(len(rows)):\n"
            "            dweight[start:end] += g[at, :, None] * rows[at]",
        ),
    ),
]


test_mutant_of_the_lesson_is_caught = harness.mutant_test(lesson, MUTANTS)
test_mutant_of_the_shared_pieces_is_caught = harness.mutant_test(shared, SHARED_MUTANTS, within=lesson)


# ---------------------------------------------------------------- values


def test_leading_dimensions():
    assert_right(lesson, randn(2, 3, 2, 5), randn(20, 5), some_tokens(2, 3, 2, vocab=20), columns=8)
    assert_right(lesson, randn(5), randn(20, 5), torch.tensor(3, device=DEVICE))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=harness.dtype_name)
def test_weights_in_float32(dtype):
    """As under autocast: the gradients of the weights are float32, and not rounded before."""
    x, weight, bias = randn(5, 12, dtype=dtype), randn(57, 12), randn(57)
    assert_right(lesson, x, weight, some_tokens(5, vocab=57), bias)


@pytest.mark.parametrize("missing", [0, 1])
def test_a_missing_upstream_gradient(missing):
    upstream = [randn(6), randn(6)]
    upstream[missing] = None
    assert_right(lesson, randn(6, 5), randn(45, 5), some_tokens(6, vocab=45), randn(45), upstream, columns=20)


def test_logits_never_exist(monkeypatch):
    """All tensors that are allocated, forward and backward, are smaller together than the logits. A loop under autograd
    would keep every piece."""
    rows, hidden, vocab = 16, 4, 120
    sizes, real = [], torch.empty

    def empty(*size, **options):
        made = real(*size, **options)
        sizes.append(made.numel())
        return made

    x, weight = harness.leaf(randn(rows, hidden)), harness.leaf(randn(vocab, hidden))
    tokens = some_tokens(rows, vocab=vocab)
    monkeypatch.setattr(torch, "empty", empty)
    found = in_pieces(lesson, 16)(x, weight, tokens)
    (found[0] + found[1]).sum().backward()
    assert max(sizes) == vocab * hidden and sum(sizes) < vocab * rows


def test_both_rounds_make_the_logits_of_the_same_memory(monkeypatch):
    """A library may sum in another order where strides differ. On a card the gradient was 25 times as far off."""
    made, real = [], lesson.product_into

    def product_into(out, rows, part, add):
        made.append((rows.data_ptr(), rows.stride(), part.data_ptr(), part.stride()))
        return real(out, rows, part, add=add)

    monkeypatch.setattr(lesson, "product_into", product_into)
    x, weight = harness.leaf(randn(5, 6).T.contiguous().T), harness.leaf(randn(19, 6))
    found = in_pieces(lesson, 8)(x, weight, some_tokens(5, vocab=19), randn(19))
    (found[0] + found[1]).sum().backward()
    assert len(made) == 6 and made[:3] == made[3:]


def test_only_what_is_needed():
    """A frozen layer: the gradient of the weights isn't computed."""
    x, weight, bias = harness.leaf(randn(3, 4)), randn(20, 4), harness.leaf(randn(20))
    lesson.linear_token_logprobs(x, weight, some_tokens(3, vocab=20), bias)[0].sum().backward()
    assert x.grad is not None and bias.grad is not None and weight.grad is None


def test_all_rows_ignored():
    x, weight = harness.leaf(randn(3, 4)), harness.leaf(randn(20, 4))
    found = lesson.linear_token_logprobs(x, weight, torch.full((3,), -100, device=DEVICE))
    (found[0] + found[1]).sum().backward()
    assert all(bool((each == 0).all()) for each in (*found, x.grad, weight.grad))


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("error", "name", "change"),
    [
        (TypeError, "x", dict(x=[1.0])),
        (TypeError, "x", dict(x=torch.ones(3, 4, dtype=torch.float64))),
        (TypeError, "weight", dict(weight=torch.ones(20, 4, dtype=torch.float16))),
        (ValueError, "weight", dict(weight=torch.ones(20, 5))),
        (ValueError, "weight", dict(weight=torch.ones(0, 4))),
        (ValueError, "bias", dict(bias=torch.ones(4))),
        (TypeError, "tokens", dict(tokens=torch.ones(3))),
        (ValueError, "tokens", dict(tokens=torch.ones(4, dtype=torch.long))),
        (ValueError, "temperature", dict(temperature=0)),
        (TypeError, "ignore_index", dict(ignore_index=1.0)),
    ],
)
def test_bad_arguments(error, name, change):
    arguments = dict(x=torch.ones(3, 4), weight=torch.ones(20, 4), tokens=torch.ones(3, dtype=torch.long)) | change
    arguments = {n: v.to(DEVICE) if isinstance(v, torch.Tensor) else v for n, v in arguments.items()}
    with pytest.raises(error, match=rf"^{name} "):
        lesson.linear_token_logprobs(**arguments)


@pytest.mark.skipif(not device.INTERPRET, reason="CUDA tensors aren't looked at")
def test_token_out_of_range():
    with pytest.raises(ValueError, match=r"^tokens must be in \[0, 20\)"):
        lesson.linear_token_logprobs(torch.ones(2, 4), torch.ones(20, 4), torch.tensor([3, 20]))


def test_bad_tiles():
    arguments = randn(3, 4), randn(20, 4), some_tokens(3, vocab=20)
    with pytest.raises(ValueError, match="BLOCK_N"):
        lesson.linear_token_logprobs_forward(*arguments, BLOCK_N=24)
    with pytest.raises(ValueError, match="COLUMNS"):
        lesson.linear_token_logprobs_forward(*arguments, COLUMNS=0)


@pytest.mark.parametrize("with_bias", [True, False])
def test_inside_torch_compile(with_bias):
    """Its launchers are operators there, so Dynamo doesn't meet the interpreter."""
    tokens, bias = some_tokens(4, vocab=30), randn(30) if with_bias else None

    def model(x, weight):
        logprobs, entropies = lesson.linear_token_logprobs(x * 2, weight, tokens, bias, temperature=0.7)
        return logprobs * 3 + entropies

    torch.compiler.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    inputs, upstream = dict(x=randn(4, 5), weight=randn(30, 5)), randn(4)
    expected, actual = (harness.gradients(function, inputs, upstream) for function in (model, compiled))
    for name, value in expected.items():
        torch.testing.assert_close(actual[name], value)
