"""linear_cross_entropy, lesson and fast: loss and three gradients piece by piece, what is kept, errors, mutants."""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import functools

import pytest
import torch
import torch.nn.functional as F

from academy.judge import accuracy
from annotated_examples.classics import cross_entropy
from annotated_examples.classics import linear_cross_entropy as lesson
from annotated_examples.common import logits as shared
from annotated_examples.common import vocabulary
from annotated_examples.fast import linear_cross_entropy as fast
from tests.kernels import harness
from tests.kernels.harness import Mutant, randn

module = harness.modules(lesson, fast)
DEVICE = harness.DEVICE


# ---------------------------------------------------------------- judging


def number(value):
    return torch.tensor(value, device=DEVICE)


def random_labels(*shape, vocab, ignore=True):
    labels = torch.randint(vocab, shape, device=DEVICE)
    if ignore:
        labels.view(-1)[1::4] = -100
    return labels


def pytorch(x, weight, labels, bias=None, **options):
    """As users write it: logits in the dtype of `x`, the loss in float32 (float64 in float64)."""
    z = F.linear(x, weight.to(x.dtype), None if bias is None else bias.to(x.dtype))
    z = z.reshape(1, labels.numel(), -1).to(torch.promote_types(z.dtype, torch.float32))
    return cross_entropy.cross_entropy_loss_reference(z, labels.reshape(1, -1), **options)


def in_pieces(module, COLUMNS):
    """The public function with pieces so small that a vocabulary of a few dozen takes several."""
    lesson_like = not hasattr(module, "two_rounds")

    def loss(x, weight, labels, bias=None, **options):
        options = options | {name: options.get(name, 0.0) for name in ("logit_softcapping", "logit_scaling")}
        n_items, ignore_index = options.get("n_items"), options.get("ignore_index", -100)
        if lesson_like:
            forward = functools.partial(module.linear_cross_entropy_forward, COLUMNS=COLUMNS, BLOCK_N=8)
            backward = functools.partial(module.linear_cross_entropy_backward, COLUMNS=COLUMNS, BLOCK_N=8)
            launchers = forward, backward, backward
        else:
            tiles = dict(KEPT=COLUMNS / len(weight), STEP=8, BLOCK=16, num_warps=1)
            needs = tuple(v is not None and v.requires_grad for v in (x, weight, bias))
            forward = functools.partial(module.linear_cross_entropy_forward, needs=needs, **tiles)
            scales = module.cross_entropy_backward, module.cross_entropy_backward_
            launchers = forward, *(functools.partial(module.scaled, scale) for scale in scales)
        options = n_items, options["logit_softcapping"], options["logit_scaling"], ignore_index
        return module.LinearCrossEntropy.apply(x, weight, bias, labels, *options, *launchers)

    return loss


def assert_right(module, x, weight, labels, bias=None, upstream=None, columns=None, function=None, **options):
    """The 2x rule for the loss and the gradients of everything that floats."""
    function = function or (in_pieces(module, columns) if columns else module.linear_cross_entropy)
    inputs = dict(x=x, weight=weight) | ({} if bias is None else dict(bias=bias))
    upstream = torch.ones((), device=DEVICE) if upstream is None else upstream
    ours = lambda **tensors: function(labels=labels, **tensors, **options)  # noqa: E731
    theirs = lambda **tensors: pytorch(labels=labels, **tensors, **options)  # noqa: E731
    doubles = {name: value.double() for name, value in inputs.items()}
    with harness.unchanged(**inputs, labels=labels, upstream=upstream), harness.fenced_allocations():
        actual = harness.gradients(ours, inputs, upstream)
    peer, exact = harness.gradients(theirs, inputs, upstream), harness.gradients(theirs, doubles, upstream.double())
    # The loss is one number: judged in float32, luck would decide which of two roundings of the logits is closer.
    actual["out"], peer["out"] = actual["out"].to(x.dtype), peer["out"].to(x.dtype)
    for name, value in actual.items():
        accuracy.check(name, value, peer[name], exact[name])
        if name != "out":
            assert value.shape == inputs[name[1:]].shape and value.dtype == inputs[name[1:]].dtype


# ---------------------------------------------------------------- what the mutants have to get past


def many_pieces_in_bfloat16(module):
    """The same for the sum over the pieces: it is about 8 after the first one, and the others bring a 64th each."""
    weight = (randn(400, 2).abs() + 1).bfloat16()
    weight[0] = -8
    assert_right(
        module, randn(1, 2).bfloat16() / 64, weight, torch.zeros(1, dtype=torch.long, device=DEVICE), columns=4
    )


def no_valid_label(module):
    for options in ({}, dict(n_items=0)):
        x, weight, bias = (harness.leaf(randn(*shape)) for shape in ((3, 4), (20, 4), (20,)))
        loss = module.linear_cross_entropy(x, weight, torch.full((3,), -100, device=DEVICE), bias, **options)
        loss.backward()
        assert loss.item() == 0 and all(bool((v.grad == 0).all()) for v in (x, weight, bias))


def out_of_range_is_nan(module):
    """Straight to the frame: on the CPU the public function raises before."""
    labels = torch.tensor([3, 20, -1, 2**40, 0], device=DEVICE)
    x, weight = harness.leaf(randn(5, 4)), harness.leaf(randn(20, 4))
    loss = in_pieces(module, 8)(x, weight, labels, n_items=1)
    loss.backward()
    assert loss.isnan() and x.grad.isnan().all(1).tolist() == [False, True, True, True, False]
    assert x.grad[[0, 4]].isfinite().all()


def second_backward(module):
    """A gradient asked for again, with other upstream gradients, is what it was."""
    x, weight, labels = randn(4, 5), randn(20, 5), random_labels(4, vocab=20)
    exact = [harness.leaf(value.double()) for value in (x, weight)]
    pytorch(*exact, labels).backward()
    leaves = harness.leaf(x), harness.leaf(weight)
    loss = module.linear_cross_entropy(*leaves, labels)
    kept = []
    for upstream in (3.0, 1.0, 0.0, 0.5):
        kept.append((upstream, torch.autograd.grad(loss, leaves, number(upstream), retain_graph=True)))
    loss.backward()
    kept.append((1.0, [value.grad for value in leaves]))
    for upstream, gradients in kept:
        for gradient, leaf in zip(gradients, exact):
            accuracy.check("gradient", gradient, (upstream * leaf.grad).float(), upstream * leaf.grad)


def loss_scale_in_float16(module):
    """Gradients below float16's range must survive when the upstream gradient (a loss scale) lifts them into it."""
    x, weight = torch.ones(2, 1, device=DEVICE).half(), torch.full((300, 1), -9.0, device=DEVICE).half()
    weight[0] = 5
    labels = torch.zeros(2, dtype=torch.long, device=DEVICE)
    assert_right(module, x, weight, labels, None, number(32768.0), n_items=64)


CHECKS = [
    many_pieces_in_bfloat16,
    no_valid_label,
    out_of_range_is_nan,
    second_backward,
    loss_scale_in_float16,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_check(module, check):
    check(module)


# ---------------------------------------------------------------- mutants, each with the check that must notice it

LESSON_MUTANTS = [
    (out_of_range_is_nan, Mutant("label out of range unnoticed", '(label < vocab), weight, float("nan"))', "(label < vocab), weight, weight)")),
]  # fmt: skip
FAST_MUTANTS = [
    (second_backward, Mutant("second backward differs", "(cross_entropy_backward, cross", "(cross_entropy_backward_, cross")),
    (loss_scale_in_float16, Mutant("float16 rounds before the loss scale", "x.dtype == torch.float16 or ", "")),
]  # fmt: skip


test_mutant_of_the_lesson_is_caught = harness.mutant_test(lesson, LESSON_MUTANTS)
test_mutant_of_the_pieces_is_caught = harness.mutant_test(
    vocabulary,
    [Mutant("dX summed in bfloat16", "make(rows.shape, dtype=torch.float32", "make(rows.shape, dtype=rows.dtype")],
    many_pieces_in_bfloat16,
    within=lesson,
)
test_mutant_of_fast_is_caught = harness.mutant_test(fast, FAST_MUTANTS)


# ---------------------------------------------------------------- values


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=harness.dtype_name)
def test_weights_in_float32(module, dtype):
    """As under autocast: the gradients of the weights are float32, and not rounded before."""
    x, weight, bias = randn(5, 12, dtype=dtype), randn(57, 12), randn(57)
    assert_right(module, x, weight, random_labels(5, vocab=57), bias)
    if dtype == torch.bfloat16:
        assert_right(module, x, weight, random_labels(5, vocab=57), bias, columns=8)


@pytest.mark.parametrize("dtype", shared.INTEGERS, ids=harness.dtype_name)
def test_labels_of_every_integer_dtype(module, dtype):
    ignore_index = -100 if dtype.is_signed else 99
    labels = torch.tensor([5, 19, ignore_index, 0]).to(dtype).to(DEVICE)
    x, weight = randn(4, 3), randn(20, 3)
    ours = module.linear_cross_entropy(x, weight, labels, ignore_index=ignore_index)
    exact = pytorch(x.double(), weight.double(), labels.long(), ignore_index=ignore_index)
    accuracy.check("loss", ours, exact.float(), exact)


def test_logits_never_exist(module, monkeypatch):
    """All tensors that are allocated, forward and backward, are smaller together than the logits."""
    rows, hidden, vocab = 16, 4, 120
    sizes, real = [], torch.empty

    def empty(*size, **options):
        made = real(*size, **options)
        sizes.append(made.numel())
        return made

    x, weight = harness.leaf(randn(rows, hidden)), harness.leaf(randn(vocab, hidden))
    labels = random_labels(rows, vocab=vocab)
    monkeypatch.setattr(torch, "empty", empty)
    in_pieces(module, 16)(x, weight, labels).backward()
    assert max(sizes) == vocab * hidden and sum(sizes) < vocab * rows


def test_plans_fit():
    """What is kept in the weights' gradient lies behind the rows that are written while it is needed."""
    for rows, vocab, hidden, dtype in [
        (9, 45, 6, torch.float32),
        (64, 1000, 32, torch.bfloat16),
        (1, 4096, 64, torch.float32),
    ]:
        weight, itemsize = torch.empty(vocab, hidden, dtype=torch.float32), dtype.itemsize
        for kept in (0.0, 0.2, 0.65, 1.0):
            for step in (8, 128):
                inside, beside = fast.plan(rows, weight, itemsize, True, kept, step)
                assert inside + beside <= vocab and beside >= 1 and inside % step == 0
                assert fast.plan(rows, weight, itemsize, False, kept, step)[0] == 0
                if inside:
                    room = fast.room_at_the_end(weight, rows, inside, dtype)
                    ends = weight.data_ptr() + inside * hidden * 4, weight.data_ptr() + weight.numel() * 4
                    assert ends[0] <= room.data_ptr() and room.data_ptr() + room.numel() * itemsize <= ends[1]
                    assert (room.data_ptr() - weight.data_ptr()) % 128 == 0


@pytest.mark.parametrize("INSIDE", [True, False])
@pytest.mark.parametrize("KEPT", [0.0, 0.3, 1.0])
def test_wherever_logits_are_kept(INSIDE, KEPT):
    x, weight, labels = randn(9, 6), randn(45, 6), random_labels(9, vocab=45)
    with harness.fenced_allocations():
        loss, gradients = fast.linear_cross_entropy_forward(
            x, weight, labels, needs=(True, True, False), INSIDE=INSIDE, KEPT=KEPT, STEP=8, BLOCK=16, num_warps=1
        )
    exact = [harness.leaf(value.double()) for value in (x, weight)]
    pytorch(*exact, labels).backward()
    for gradient, leaf in zip(gradients, exact):
        accuracy.check("gradient", gradient, leaf.grad.float(), leaf.grad)


GIVEN = dict(x=torch.ones(3, 4), weight=torch.ones(20, 4), labels=torch.ones(3, dtype=torch.long))
test_bad_arguments = harness.refused_test(
    "error, words, change",
    [
        (ValueError, "^weight", dict(weight=torch.ones(20, 5))),
        (ValueError, "^weight", dict(weight=torch.ones(0, 4))),
        (TypeError, "^bias", dict(bias=torch.ones(20, dtype=torch.bfloat16))),
        (ValueError, "^labels", dict(labels=torch.ones(3, 1, dtype=torch.long))),
        (ValueError, r"^labels must be in \[0, 20\)", dict(labels=torch.tensor([3, 0, -1]))),
        (ValueError, r"^labels must be in \[0, 20\)", dict(labels=torch.tensor([3, 0, 20]))),
        (ValueError, "^n_items", dict(n_items=-1)),
    ],
    GIVEN,
    *(each.linear_cross_entropy for each in (lesson, fast)),
)


def tiles(module, *names):
    rows = [(ValueError, name, {name: 0}) for name in names]
    return harness.refused_test("error, name, change", rows, GIVEN, module.linear_cross_entropy_forward)


test_bad_tiles, test_bad_tiles_of_the_fast_version = tiles(lesson, "BLOCK_N", "COLUMNS"), tiles(fast, "BLOCK", "STEP")
