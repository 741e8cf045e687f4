"""cross_entropy, lesson and fast: loss, gradient at the labels and elsewhere, labels, counts, in place, errors, mutants."""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import functools

import pytest
import torch

from academy.judge import accuracy
from annotated_examples.classics import cross_entropy as lesson
from annotated_examples.common import logits as shared
from annotated_examples.fast import cross_entropy as fast
from tests.kernels import harness
from tests.kernels.harness import Mutant, randn

module = harness.modules(lesson, fast)


# ---------------------------------------------------------------- judging


def in_blocks(module, block, in_place=False):
    """The public function with blocks so small that rows of a few dozen logits take several, as long rows do."""
    tiled = lambda name, **tiles: functools.partial(getattr(module, name), **tiles)  # noqa: E731

    def loss(logits, labels, logit_softcapping=0.0, logit_scaling=0.0, n_items=None, ignore_index=-100):
        if not hasattr(module, "count_labels"):  # the lesson
            backward, backward_ = (tiled(f"cross_entropy_backward{end}", BLOCK_N=block) for end in ("", "_"))
            launchers = tiled("cross_entropy_forward", BLOCK_N=block), backward, backward_ if in_place else backward
        elif logits.dtype == torch.float16:
            n_items = n_items if n_items is None else shared.items(n_items, labels, ignore_index)
            forward, backward = (tiled(f"cross_entropy_loss_{way}ward", BLOCK=block) for way in ("for", "back"))
            launchers = forward, backward, backward
        else:
            forward = "cross_entropy_forward" + "_" * (in_place and logits.is_contiguous())
            backward, backward_ = (tiled(f"cross_entropy_backward{end}", BLOCK=2 * block) for end in ("", "_"))
            launchers = tiled(forward, BLOCK=block, num_warps=4), backward, backward_
        options = logit_softcapping, logit_scaling, ignore_index
        return module.CrossEntropyLoss.apply(logits, labels, n_items, *options, *launchers)

    return loss


def random_labels(*shape, vocab, ignore=True):
    labels = torch.randint(vocab, shape, device=harness.DEVICE)
    if ignore:
        labels.view(-1)[1::4] = -100
    return labels


def assert_right(module, logits, labels, upstream=None, block=None, in_place=False, **options):
    """The 2x rule for the loss, for the gradient at the labels and, apart from it, for the gradient everywhere else.

    One tolerance for the whole gradient would pass with every entry beside the label set to 0. The loss is judged by
    what PyTorch computes in float32, for every dtype of the logits. block: of launchers in place of the tuned one.
    """
    upstream = torch.ones((), device=harness.DEVICE) if upstream is None else upstream
    public = module.cross_entropy_loss_ if in_place else module.cross_entropy_loss
    function = in_blocks(module, block, in_place) if block else public
    ours = lambda logits: function(logits, labels, **options)  # noqa: E731
    reference = lambda logits: lesson.cross_entropy_loss_reference(logits, labels, **options)  # noqa: E731
    assert_losses_right(ours, reference, logits, labels, upstream, in_place)


def assert_losses_right(ours, reference, logits, labels, upstream, in_place=False):
    """As `assert_right`, of two functions of the logits."""
    watched = {} if in_place else dict(logits=logits)
    with harness.unchanged(labels=labels, upstream=upstream, **watched), harness.fenced_allocations():
        actual = harness.gradients(ours, dict(logits=logits.clone() if in_place else logits), upstream)
    pytorch = harness.gradients(reference, dict(logits=logits), upstream)
    exact = harness.gradients(reference, dict(logits=logits.double()), upstream.double())
    accuracy.check("loss", actual["out"], reference(logits.float()), exact["out"])
    assert actual["dlogits"].shape == logits.shape and actual["dlogits"].dtype == logits.dtype
    at_label = torch.arange(logits.shape[-1], device=harness.DEVICE) == labels.long().unsqueeze(-1)
    for where, mask in (("at the labels", at_label), ("beside the labels", ~at_label)):
        accuracy.check(f"dlogits {where}", *(g["dlogits"][mask] for g in (actual, pytorch, exact)))


# ---------------------------------------------------------------- what the mutants have to get past


def capped_near_zero(module):
    assert_right(module, randn(4, 8, scale=0.02), random_labels(4, vocab=8), logit_softcapping=30.0)


def wide_row(module):
    assert_right(module, randn(1, 70_001), torch.tensor([70_000], device=harness.DEVICE))


def no_valid_label(module):
    for options in ({}, dict(n_items=0)):
        logits = harness.leaf(randn(3, 20))
        loss = module.cross_entropy_loss(logits, torch.full((3,), -100, device=harness.DEVICE), **options)
        loss.backward()
        assert loss.item() == 0 and bool((logits.grad == 0).all()), "no valid label: loss and gradients must be 0"


def masked_entries(module):
    """Entries switched off by -inf, whole blocks of them too, as for a padded vocabulary."""
    logits = randn(2, 40)
    logits[:, :17] = logits[1, 20:] = -float("inf")
    assert_right(module, logits, torch.tensor([30, 18], device=harness.DEVICE), block=8)


def out_of_range_is_nan(module):
    """Straight to the frame: on the CPU the public function raises before. NaN lies around the logits."""
    labels = torch.tensor([3, 20, -1, 2**40, 0], device=harness.DEVICE)
    values = randn(5, 20)
    logits = harness.leaf(harness.nan_fenced(values))
    loss = in_blocks(module, 8)(logits, labels, n_items=1)
    loss.backward()
    assert loss.isnan() and logits.grad.isnan().all(1).tolist() == [False, True, True, True, False]
    exact = harness.leaf(values[[0, 4]].double())
    lesson.cross_entropy_loss_reference(exact, labels[[0, 4]], n_items=1).backward()
    accuracy.check("rows beside", logits.grad[[0, 4]], exact.grad.float(), exact.grad)


def loss_scale_in_float16(module):
    """Probabilities below float16's range must survive when the upstream gradient (a loss scale) lifts them into it."""
    logits = randn(2, 300, dtype=torch.float16) - 9
    logits[:, 0] = 5
    labels = torch.zeros(2, dtype=torch.long, device=harness.DEVICE)
    scale = torch.tensor(32768.0, device=harness.DEVICE)

    def beside_labels(function, logits):
        return harness.gradients(function, dict(logits=logits, labels=labels), scale)["dlogits"][:, 1:]

    ours, reference = (
        functools.partial(f, n_items=64) for f in (module.cross_entropy_loss, lesson.cross_entropy_loss_reference)
    )
    exact = beside_labels(reference, logits.double())
    accuracy.check("dlogits", beside_labels(ours, logits), beside_labels(reference, logits), exact)


def in_place_variant_tells_autograd(module):
    """Whoever else needs the overwritten logits for a gradient gets an error, not a wrong gradient."""
    logits = harness.leaf(randn(3, 20)) * 1.0
    penalty = logits.pow(2).sum()
    loss = module.cross_entropy_loss_(logits, random_labels(3, vocab=20))
    try:
        (loss + penalty).backward()
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error), error
    else:
        raise AssertionError("a gradient was computed from overwritten logits")


CHECKS = [
    capped_near_zero,
    wide_row,
    no_valid_label,
    masked_entries,
    out_of_range_is_nan,
    loss_scale_in_float16,
    in_place_variant_tells_autograd,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_check(module, check):
    check(module)


def test_many_labels_are_counted_by_a_kernel_of_their_own(monkeypatch):
    """With few, every row's program counts them all: the same loss and the same gradient, bit by bit."""
    x, labels = randn(5, 20), random_labels(5, vocab=20)

    def results():
        logits = harness.leaf(x)
        loss = fast.cross_entropy_loss(logits, labels)
        return loss.detach(), *torch.autograd.grad(loss, logits), fast.cross_entropy_loss(x.half(), labels)

    counted, count = [], fast.count_labels
    monkeypatch.setattr(fast, "count_labels", lambda *a, **k: counted.append(1) or count(*a, **k))
    few = results()
    assert not counted
    monkeypatch.setattr(fast, "FEW", 4)
    for a, b in zip(few, results()):
        assert torch.equal(a, b)
    assert len(counted) == 2


# ---------------------------------------------------------------- mutants, each with the check that must notice it


LESSON_MUTANTS = [
    (masked_entries, Mutant("row that begins with infinities gives NaN", "row_max = LOWEST", 'row_max = -float("inf")')),
    (in_place_variant_tells_autograd, Mutant("overwritten logits not reported", "torch.autograd.graph.increment_version(logits)", "pass")),
    (wide_row, Mutant("cap at 65536", "tl.range(0, N, BLOCK_N)", "tl.range(0, tl.minimum(N, 65536), BLOCK_N)")),
    (out_of_range_is_nan, Mutant("label out of range unnoticed", 'weight = tl.where((label >= 0) & (label < N), weight, float("nan"))', "pass")),
]  # fmt: skip

SHARED_MUTANTS = [
    (capped_near_zero, Mutant("tanh from a sigmoid", "libdevice.tanh(x / softcap)", "2 * tl.sigmoid(2 * (x / softcap)) - 1")),
]  # fmt: skip

BODY = "body = (vocab - head) // STRIP * STRIP"

FAST_MUTANTS = [
    (wide_row, Mutant("cap at 65536", BODY, "body = tl.minimum(vocab - head, 65536) // STRIP * STRIP")),
    (out_of_range_is_nan, Mutant("label out of range unnoticed", 'weight, float("nan"))', "weight, weight)")),
    (loss_scale_in_float16, Mutant("float16 rounds before the loss scale", "logits.dtype == torch.float16 or ", "")),
    (in_place_variant_tells_autograd, Mutant("overwritten logits not reported", "torch.autograd.graph.increment_version(logits)", "pass")),
]  # fmt: skip


test_mutant_of_the_lesson_is_caught = harness.mutant_test(lesson, LESSON_MUTANTS)
test_mutant_of_the_shared_file_is_caught = harness.mutant_test(shared, SHARED_MUTANTS, within=lesson)
test_mutant_of_fast_is_caught = harness.mutant_test(fast, FAST_MUTANTS)


# ---------------------------------------------------------------- values and gradients


def test_ignored_row_of_nan_does_not_spread(module):
    logits = randn(2, 20)
    logits[0] = float("nan")
    logits = harness.leaf(logits)
    loss = module.cross_entropy_loss(logits, torch.tensor([-100, 3], device=harness.DEVICE))
    loss.backward()
    assert loss.isfinite() and bool((logits.grad[0] == 0).all()) and bool(logits.grad[1].isfinite().all())


# ---------------------------------------------------------------- layouts


def test_shifted_by_one_token():
    """`logits[:, :-1]`, the usual call: the fast file reads rows where they lie."""
    logits = randn(2, 4, 30)[:, :-1]
    assert fast.rows_in_place(logits) is logits


def test_expanded_logits_in_place(module):
    """Nothing is written to them: the gradient needs a number for each logit."""
    labels, logits = random_labels(3, 4, vocab=17), harness.expanded(3, 4, 17)
    assert_right(module, logits, labels, in_place=True)
    with harness.unchanged(logits=logits):
        module.cross_entropy_loss_(harness.leaf(logits), labels).backward()


@pytest.mark.parametrize("dtype", shared.INTEGERS, ids=harness.dtype_name)
def test_labels_of_every_integer_dtype(module, dtype):
    ignore_index = -100 if dtype.is_signed else 99
    labels = torch.tensor([5, 19, ignore_index, 0]).to(dtype).to(harness.DEVICE)
    logits = randn(4, 20)
    ours = module.cross_entropy_loss(logits, labels, ignore_index=ignore_index)
    exact = lesson.cross_entropy_loss_reference(logits.double(), labels.long(), ignore_index=ignore_index)
    accuracy.check("loss", ours, exact.float(), exact)


# ---------------------------------------------------------------- n_items


@pytest.mark.parametrize(
    "n_items",
    [
        3,
        2.5,
        torch.tensor(3),
        torch.tensor(2.5),
        torch.tensor(3, dtype=torch.int32),
        torch.tensor(3.0, dtype=torch.bfloat16),
    ],
    ids=lambda v: f"{type(v).__name__}_{getattr(v, 'dtype', '')}",
)
def test_n_items(module, n_items):
    logits, labels = randn(4, 20), random_labels(4, vocab=20)
    loss = module.cross_entropy_loss(logits, labels, n_items=n_items)  # tensors may lie on the host, too
    exact = lesson.cross_entropy_loss_reference(logits.double(), labels, n_items=float(n_items))
    accuracy.check("loss", loss, exact.float(), exact)


# ---------------------------------------------------------------- autograd


def test_gradient_may_be_changed_by_its_owner(module):
    logits, labels = harness.leaf(randn(3, 20)), random_labels(3, vocab=20)
    loss = module.cross_entropy_loss(logits, labels)
    loss.backward(retain_graph=True)
    before = logits.grad.clone()
    logits.grad.zero_()
    loss.backward()
    assert torch.equal(logits.grad, before)


def test_no_gradient_asked_for(module):
    """The in-place variant then leaves the logits alone."""
    logits, labels = randn(3, 20), random_labels(3, vocab=20)
    with harness.unchanged(logits=logits):
        assert torch.equal(module.cross_entropy_loss_(logits, labels), module.cross_entropy_loss(logits, labels))


def test_in_place_variant_needs_no_second_tensor(module):
    logits = harness.leaf(randn(3, 20)) * 1.0
    (gradient,) = torch.autograd.grad(module.cross_entropy_loss_(logits, random_labels(3, vocab=20)), logits)
    assert gradient.data_ptr() == logits.data_ptr()


# ---------------------------------------------------------------- edges and errors


LABELS = torch.zeros(2, dtype=torch.long)


def out_of_range(label):
    words = rf"labels must be in \[0, 4\) or ignore_index = -100, got {label} in row 1"
    return dict(labels=torch.tensor([0, label])), ValueError, words


test_bad_arguments = harness.refused_test(
    "change, error, words",
    [
        (dict(logits=[1.0]), TypeError, "logits must be a torch.Tensor, got list"),
        (dict(logits=None), TypeError, "logits must be a torch.Tensor, got NoneType"),
        (dict(labels=None), TypeError, "labels must be a torch.Tensor, got NoneType"),
        (
            dict(logits=torch.ones(2, 4).double()),
            TypeError,
            "logits must be one of float32, float16, bfloat16, got float64",
        ),
        (
            dict(logits=torch.ones(4)),
            ValueError,
            r"logits must be \(rows, vocab\) or \(batch, seq, vocab\), got shape \(4,\)",
        ),
        (dict(logits=torch.ones(2, 0)), ValueError, r"at least one entry a row, got shape \(2, 0\)"),
        (dict(logits=torch.ones(2, 4, device="meta")), ValueError, "logits is on meta"),
        (dict(labels=torch.ones(2)), TypeError, "labels must be one of int64.*got float32"),
        (dict(labels=torch.ones(2).bool()), TypeError, "labels must be one of int64.*got bool"),
        (dict(labels=LABELS[:1]), ValueError, r"labels must have shape \(2,\).*got \(1,\)"),
        (dict(labels=LABELS[:, None]), ValueError, r"labels must have shape \(2,\).*got \(2, 1\)"),
        (dict(logit_softcapping=-1.0), ValueError, "logit_softcapping must be at least 0, got -1.0"),
        (dict(logit_scaling=-1.0), ValueError, "logit_scaling must be at least 0, got -1.0"),
        (dict(logit_scaling=float("nan")), ValueError, "logit_scaling must be finite, got nan"),
        (dict(logit_scaling="2"), TypeError, "logit_scaling must be a number, got str"),
        (dict(n_items=-1), ValueError, "n_items must be at least 0, got -1"),
        (dict(n_items="3"), TypeError, "n_items must be a number, got str"),
        (dict(n_items=torch.ones(1)), ValueError, r"n_items must be a number or a 0-d tensor.*shape \(1,\)"),
        (dict(n_items=torch.tensor(1.0, requires_grad=True)), ValueError, "n_items requires a gradient"),
        (dict(ignore_index=1.5), TypeError, "ignore_index must be an int, got float"),
        *(out_of_range(label) for label in (4, -1, 2**40)),
    ],
    dict(logits=torch.ones(2, 4), labels=LABELS),
    *(f for module in (lesson, fast) for f in (module.cross_entropy_loss, module.cross_entropy_loss_)),
)


# ---------------------------------------------------------------- what only a GPU shows


@pytest.mark.gpu
def test_memory_is_one_gradient(module):
    """The gradient that forward made becomes `.grad` itself: no second tensor of its size, not even for a moment."""
    logits, labels = harness.leaf(randn(1024, 32768, dtype=torch.bfloat16)), random_labels(1024, vocab=32768)
    for function, tensors in ((module.cross_entropy_loss, 1), (module.cross_entropy_loss_, 0)):
        logits.grad = None
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        function(logits, labels).backward()
        extra = torch.cuda.max_memory_allocated() - before
        assert extra < (tensors + 0.1) * logits.nbytes, f"{extra / logits.nbytes:.2f} times the logits"
