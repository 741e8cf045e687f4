"""classics/cross_entropy: loss, gradient at the labels and elsewhere, options, hostile inputs, errors, mutants."""

import contextlib
import functools
import inspect

import pytest
import torch

from academy import accuracy, device
from annotated_examples.classics import cross_entropy as lesson
from tests.kernels import harness
from tests.kernels.harness import DTYPES, LAYOUTS, Mutant, randn

OPTIONS = {
    "plain": {},
    "scaling": dict(logit_scaling=1.7),
    "softcapping": dict(logit_softcapping=3.0),
    "both": dict(logit_softcapping=5.0, logit_scaling=0.4),
    "n_items": dict(n_items=11),
}

PROBABILITY = "return exp_shifted(z, shift) * scale * slope"
BODY = "body = (vocab - head) // STRIP * STRIP"
STORE = 'tl.store(dlogits_ptr + start + offs, dx, mask=mask, cache_modifier=".cs")'
EDGES = "edge_mask = edge < tl.where(lane < STRIP, head, vocab)"
NEW_TENSOR = "torch.empty(logits.shape, dtype=logits.dtype, device=logits.device) if"

MUTANTS = [
    Mutant("gradient over the logits", NEW_TENSOR, "logits if"),
    Mutant("second backward differs", "if torch._C._autograd._get_current_graph_task_keep_graph():", "if False:"),
    Mutant("ignored label gives NaN", "tl.where(ignored, 0.0, loss))", "loss)"),
    Mutant("ignored label has a gradient", "tl.where(ignored, 0, body)", "body"),
    Mutant("ignored label has a gradient at the edges", "tl.where(ignored, 0.0, dx_edge)", "dx_edge"),
    Mutant("scale flattens instead of sharpening", "x = libdevice.mul_rn(x, scaling)", "x = x / scaling"),
    Mutant("cap at 65536", BODY, "body = tl.minimum(vocab - head, 65536) // STRIP * STRIP"),
    Mutant("gradients beside the label zeroed", PROBABILITY, PROBABILITY + " * 0.0"),
    Mutant(
        "no minus one at the label", "row_shift) * scale - weight) * slope_label", "row_shift) * scale) * slope_label"
    ),
    Mutant("label without its slope", "scale - weight) * slope_label", "scale - weight)"),
    Mutant("label stored for an ignored row", "mask=in_range & ~ignored", "mask=in_range"),
    Mutant("label out of range unnoticed", 'weight, float("nan"))', "weight, weight)"),
    Mutant("sum not rescaled to the new maximum", "total * exp_shifted(shift, new_shift)", "total", count=2),
    Mutant("strips merged without their maxima", "total * exp_shifted(shift, row_shift)", "total"),
    Mutant(
        "strip of infinities gives NaN", "tl.constexpr(torch.finfo(torch.float32).min)", 'tl.constexpr(-float("inf"))'
    ),
    Mutant("exponent from large numbers", "(z - shift) * LOG2E", "z * LOG2E - shift * LOG2E"),
    Mutant("lanes past the row count", 'tl.where(mask, z, -float("inf"))', "z"),
    Mutant("gradient stored past the row", STORE, STORE.replace("mask=mask, ", "")),
    Mutant("head of a row forgotten", EDGES, "edge_mask = (lane >= STRIP) & (edge < vocab)"),
    Mutant("tail of a row forgotten", EDGES, "edge_mask = (lane < STRIP) & (edge < head)"),
    Mutant("edges not in the sum", " + tl.sum(exp_shifted(z_edge, row_shift), 0)", ""),
    Mutant("edges not in the maximum", "tl.maximum(tl.max(shift, 0), tl.max(z_edge, 0))", "tl.max(shift, 0)"),
    Mutant("sum instead of mean", "weight = 1.0 / tl.load(n_items_ptr).to(tl.float32)", "weight = 1.0"),
    Mutant("ignored labels counted", "(mask & (labels != ignore_index))", "mask"),
    Mutant("only the last labels counted", "count += (mask", "count = (mask"),
    Mutant("slope of tanh forgotten", "slope = slope * (1.0 - tanh * tanh)", "slope = slope * 1.0"),
    Mutant("slope of the scale forgotten", "slope = slope * scaling", "slope = slope * 1.0"),
    Mutant("tanh from a sigmoid", "libdevice.tanh(x / softcapping)", "2 * tl.sigmoid(2 * (x / softcapping)) - 1"),
    Mutant("rows assumed side by side", "batch * stride_xb", "batch * seq_len * stride_xs"),
    Mutant("upstream gradient dropped", "end = tl.where(dloss == 1.0, 0, n)", "end = tl.minimum(n, 0)"),
    Mutant(
        "gradient penalty loses its term", "dloss if dloss.requires_grad else dloss.detach().requires_grad_()", "dloss"
    ),
    Mutant("float16 rounds before the loss scale", "logits.dtype == torch.float16 or compiling", "compiling"),
    Mutant("labels read as contiguous", "rows, labels = labels.numel(), labels.contiguous()", "rows = labels.numel()"),
]


# ---------------------------------------------------------------- judging


@contextlib.contextmanager
def small_tiles(module, block=8):
    """Rows of a few dozen logits take several blocks, as rows of 100,000 do with the tuned ones."""
    tuned, module.tiles = module.tiles, lambda vocab, itemsize: (block, 4)
    try:
        yield
    finally:
        module.tiles = tuned


def random_labels(*shape, vocab, ignore=True):
    labels = torch.randint(vocab, shape, device=harness.DEVICE)
    if ignore:
        labels.view(-1)[1::4] = -100
    return labels


def assert_right(module, logits, labels, upstream=None, function="cross_entropy_loss", **options):
    """The 2x rule for the loss, for the gradient at the labels and, apart from it, for the gradient everywhere else.

    One tolerance for the whole gradient would pass with every entry beside the label set to 0. The loss is judged by
    what PyTorch computes in float32, for every dtype of the logits.
    """
    upstream = torch.ones((), device=harness.DEVICE) if upstream is None else upstream
    ours = lambda logits: getattr(module, function)(logits, labels, **options)  # noqa: E731
    reference = lambda logits: lesson.cross_entropy_loss_reference(logits, labels, **options)  # noqa: E731
    watched = {} if function.endswith("_") else dict(logits=logits)
    with harness.unchanged(labels=labels, upstream=upstream, **watched), harness.fenced_allocations():
        given = logits if not function.endswith("_") else logits.clone()
        actual = harness.gradients(ours, dict(logits=given), upstream)
    pytorch = harness.gradients(reference, dict(logits=logits), upstream)
    exact = harness.gradients(reference, dict(logits=logits.double()), upstream.double())
    accuracy.check("loss", actual["out"], reference(logits.float()), exact["out"])
    assert actual["dlogits"].shape == logits.shape and actual["dlogits"].dtype == logits.dtype
    at_label = torch.arange(logits.shape[-1], device=harness.DEVICE) == labels.long().unsqueeze(-1)
    for where, mask in (("at the labels", at_label), ("beside the labels", ~at_label)):
        accuracy.check(f"dlogits {where}", *(g["dlogits"][mask] for g in (actual, pytorch, exact)))


def check(module):
    """Everything a mutant has to get past."""
    with small_tiles(module):
        for options in OPTIONS.values():
            logits = harness.sliced(randn(2, 3, 21, scale=2))[:, :2]
            assert_right(
                module, logits, random_labels(2, 2, vocab=21), torch.tensor(0.7, device=harness.DEVICE), **options
            )
        assert_right(module, harness.nan_fenced(randn(5, 21, scale=30)), random_labels(5, vocab=21, ignore=False))
        assert_right(module, randn(4, 50) - 1e4, random_labels(4, vocab=50))
        assert_right(module, randn(3, 3), random_labels(3, vocab=3))
        inside = torch.tensor([0, 3, 0, 19], device=harness.DEVICE)
        assert_right(module, randn(4, 20), inside, ignore_index=0)
        labels = random_labels(2, 6, vocab=24)[:, 1::2]
        assert_right(module, randn(2, 3, 24), labels)
        small = randn(4, 8, scale=0.02)
        assert_right(module, small, random_labels(4, vocab=8), logit_softcapping=30.0)
        labels = random_labels(200, vocab=9)
        assert module.count_labels(labels, -100, BLOCK=1).item() == (labels != -100).sum().item()
        no_valid_label(module)
        masked_entries(module)
        out_of_range_is_nan(module)
        second_backward(module)
        loss_scale_in_float16(module)
        gradient_penalty_raises(module)
    wide = randn(1, 70_001)
    assert_right(module, wide, torch.tensor([70_000], device=harness.DEVICE))


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
    assert_right(module, logits, torch.tensor([30, 18], device=harness.DEVICE))


def out_of_range_is_nan(module):
    """Straight to the launcher: on the CPU the public function raises before."""
    logits, labels = randn(5, 20), torch.tensor([3, 20, -1, 2**40, 0], device=harness.DEVICE)
    loss, dlogits = module.cross_entropy_forward(logits, labels, 1.0)
    assert loss.isnan() and dlogits.isnan().all(1).tolist() == [False, True, True, True, False]
    exact = harness.leaf(logits[[0, 4]].double())
    lesson.cross_entropy_loss_reference(exact, labels[[0, 4]], n_items=1).backward()
    accuracy.check("rows beside", dlogits[[0, 4]], exact.grad.float(), exact.grad)


def second_backward(module):
    logits, labels = harness.leaf(randn(4, 20)), random_labels(4, vocab=20)
    loss = module.cross_entropy_loss(logits, labels)
    exact = harness.leaf(logits.double())
    lesson.cross_entropy_loss_reference(exact, labels).backward()
    kept = []
    for upstream in (3.0, 1.0, 0.0, 0.5, 1.0):
        upstream = torch.tensor(upstream, device=harness.DEVICE)
        (gradient,) = torch.autograd.grad(loss, logits, upstream, retain_graph=True)
        kept.append((upstream, gradient))
    loss.backward()
    kept.append((torch.ones((), device=harness.DEVICE), logits.grad))
    for upstream, gradient in kept:  # only now: a later backward must not change what an earlier one returned
        accuracy.check("dlogits", gradient, (upstream * exact.grad).float(), upstream * exact.grad)


def loss_scale_in_float16(module):
    """Probabilities below float16's range must survive when the upstream gradient (a loss scale) lifts them into it."""
    logits = randn(2, 300, dtype=torch.float16) - 9
    logits[:, 0] = 5
    labels = torch.zeros(2, dtype=torch.long, device=harness.DEVICE)
    scale = torch.tensor(32768.0, device=harness.DEVICE)

    def beside_the_labels(function, logits):
        return harness.gradients(function, dict(logits=logits, labels=labels), scale)["dlogits"][:, 1:]

    ours, reference = (
        functools.partial(f, n_items=64) for f in (module.cross_entropy_loss, lesson.cross_entropy_loss_reference)
    )
    exact = beside_the_labels(reference, logits.double())
    accuracy.check("dlogits", beside_the_labels(ours, logits), beside_the_labels(reference, logits), exact)


def gradient_penalty_raises(module):
    labels = random_labels(3, vocab=20)
    harness.assert_gradient_penalty_raises(lambda x: module.cross_entropy_loss(x, labels), dict(x=randn(3, 20)))
    logits = harness.leaf(randn(3, 20))
    loss = module.cross_entropy_loss(logits, labels)
    (gradient,) = torch.autograd.grad(loss, logits, create_graph=True)  # the upstream gradient is a constant 1 here
    with pytest.raises(RuntimeError, match="once_differentiable"):
        (loss + gradient.pow(2).sum()).backward()


# ---------------------------------------------------------------- mutants


def test_check_passes():
    check(lesson)


@pytest.mark.parametrize("mutant", harness.mutant_parameters(MUTANTS))
def test_mutant_is_caught(mutant, tmp_path):
    def must_pass(module):
        try:
            check(module)
        except pytest.fail.Exception as error:  # `pytest.raises` that saw nothing raised
            raise AssertionError(str(error)) from error

    harness.assert_caught(lesson, mutant, must_pass, tmp_path)


# ---------------------------------------------------------------- values and gradients


@pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_options(options, dtype):
    logits, labels = randn(5, 57, dtype=dtype, scale=3), random_labels(5, vocab=57)
    with small_tiles(lesson, 16):
        assert_right(lesson, logits, labels, **options)
        assert_right(lesson, logits, labels, torch.tensor(-2.5, device=harness.DEVICE), **options)
        assert_right(lesson, logits, labels, function="cross_entropy_loss_", **options)


@pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
@pytest.mark.parametrize("shape", [(1, 1), (3, 1), (1, 64), (4, 1000), (2, 3, 129), (1, 1, 5)], ids=str)
def test_shapes(shape, dtype):
    labels = random_labels(*shape[:-1], vocab=shape[-1], ignore=False)
    assert_right(lesson, randn(*shape, dtype=dtype), labels)


@pytest.mark.parametrize("vocab", [15, 16, 17, 31, 33, 48])
def test_vocabularies_around_a_block(vocab):
    with small_tiles(lesson, 16):
        for label in (0, vocab - 1):
            labels = torch.tensor([label, -100, vocab // 2], device=harness.DEVICE)
            assert_right(lesson, harness.nan_fenced(randn(3, vocab)), labels)


@pytest.mark.parametrize("scale", [1e-4, 1e4])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_large_and_small_values(options, scale):
    with small_tiles(lesson, 16):
        assert_right(lesson, randn(4, 50, scale=scale), random_labels(4, vocab=50), **options)


@pytest.mark.parametrize("offset", [1e4, -1e4])
def test_a_common_offset(offset):
    """The log-sum-exp is about as large as the logits: subtracting it from them would lose the digits of the loss."""
    assert_right(lesson, randn(4, 50) + offset, random_labels(4, vocab=50))


def test_direction_of_the_scale():
    """Above 1 sharpens: where the label is the largest logit, the loss falls; below 1 it rises."""
    logits, label = torch.tensor([[0.0, 1.0, 3.0]], device=harness.DEVICE), torch.tensor([2], device=harness.DEVICE)
    sharp, plain, flat = (lesson.cross_entropy_loss(logits, label, logit_scaling=s).item() for s in (2.0, 0.0, 0.5))
    assert sharp < plain < flat
    assert lesson.cross_entropy_loss(logits, label, logit_scaling=1.0).item() == plain


def test_soft_cap_bounds_the_logits():
    logits, label = torch.tensor([[1e4, -1e4]], device=harness.DEVICE), torch.tensor([1], device=harness.DEVICE)
    assert abs(lesson.cross_entropy_loss(logits, label, logit_softcapping=2.0).item() - 4.0181499) < 1e-5


def test_infinities_and_nan():
    inf, nan = float("inf"), float("nan")
    rows = [[inf, 0, 1], [nan, 0, 1], [-inf, -inf, -inf], [-inf, 0, 1], [0, -inf, 1]]
    logits = torch.tensor(rows, device=harness.DEVICE)
    for row in range(len(rows)):
        assert_right(lesson, logits[row : row + 1], torch.tensor([0], device=harness.DEVICE))


def test_ignored_row_of_nan_does_not_spread():
    logits = randn(2, 20)
    logits[0] = float("nan")
    logits = harness.leaf(logits)
    loss = lesson.cross_entropy_loss(logits, torch.tensor([-100, 3], device=harness.DEVICE))
    loss.backward()
    assert loss.isfinite() and bool((logits.grad[0] == 0).all()) and bool(logits.grad[1].isfinite().all())


# ---------------------------------------------------------------- layouts


@pytest.mark.parametrize("layout", [*LAYOUTS.values()], ids=LAYOUTS.keys())
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=harness.dtype_name)
def test_layouts(layout, dtype):
    with small_tiles(lesson):
        assert_right(lesson, layout(randn(6, 21, dtype=dtype)), random_labels(6, vocab=21))
        assert_right(lesson, layout(randn(2, 3, 21, dtype=dtype)), random_labels(2, 3, vocab=21), logit_scaling=0.5)
        assert_right(
            lesson, layout(randn(6, 21, dtype=dtype)), random_labels(6, vocab=21), function="cross_entropy_loss_"
        )


def test_shifted_by_one_token_without_a_copy(monkeypatch):
    """`logits[:, :-1]` against `labels[:, 1:]`, the usual call: rows are read where they lie."""
    logits, labels = randn(2, 4, 30)[:, :-1], random_labels(2, 4, vocab=30)[:, 1:]
    assert lesson.rows_in_place(logits) is logits
    assert_right(lesson, logits, labels)


def test_transposed_batch_and_sequence():
    assert_right(lesson, randn(3, 2, 20).transpose(0, 1), random_labels(3, 2, vocab=20).t())


def test_expanded_logits():
    labels = random_labels(3, 4, vocab=17)
    assert_right(lesson, harness.expanded(3, 4, 17), labels)
    assert_right(lesson, harness.expanded(3, 4, 17), labels, function="cross_entropy_loss_")


def test_sum_backward_and_expanded_upstream():
    logits, labels = harness.leaf(randn(3, 20)), random_labels(3, vocab=20)
    (first,) = torch.autograd.grad(lesson.cross_entropy_loss(logits, labels).sum(), logits)
    (second,) = torch.autograd.grad(lesson.cross_entropy_loss(logits, labels).expand(2, 3).sum(), logits)
    torch.testing.assert_close(second, 6 * first)


@pytest.mark.parametrize("dtype", lesson.INTEGERS, ids=harness.dtype_name)
def test_labels_of_every_integer_dtype(dtype):
    ignore_index = -100 if dtype.is_signed else 99
    labels = torch.tensor([5, 19, ignore_index, 0]).to(dtype).to(harness.DEVICE)
    logits = randn(4, 20)
    ours = lesson.cross_entropy_loss(logits, labels, ignore_index=ignore_index)
    exact = lesson.cross_entropy_loss_reference(logits.double(), labels.long(), ignore_index=ignore_index)
    accuracy.check("loss", ours, exact.float(), exact)


def test_strided_labels():
    labels = random_labels(12, vocab=20)
    assert_right(lesson, randn(4, 20), labels[::3])
    assert_right(lesson, randn(4, 20), labels[7].expand(4))


def test_ignore_index_inside_the_vocabulary():
    assert_right(lesson, randn(4, 20), torch.tensor([0, 3, 0, 19], device=harness.DEVICE), ignore_index=0)


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
def test_n_items(n_items):
    logits, labels = randn(4, 20), random_labels(4, vocab=20)
    value = float(n_items)
    if isinstance(n_items, torch.Tensor):
        n_items = n_items.to(harness.DEVICE)
    loss = lesson.cross_entropy_loss(logits, labels, n_items=n_items)
    exact = lesson.cross_entropy_loss_reference(logits.double(), labels, n_items=value)
    accuracy.check("loss", loss, exact.float(), exact)


def test_n_items_on_the_host():
    logits, labels = randn(4, 20), random_labels(4, vocab=20)
    on_host = lesson.cross_entropy_loss(logits, labels, n_items=torch.tensor(7))
    assert torch.equal(on_host, lesson.cross_entropy_loss(logits, labels, n_items=7))


def test_micro_batches_add_up():
    """With one common n_items the losses and gradients of the parts add up to those of the whole."""
    logits, labels = randn(6, 20), random_labels(6, vocab=20)
    n_items = (labels != -100).sum()
    whole, parts = harness.leaf(logits.clone()), harness.leaf(logits.clone())
    lesson.cross_entropy_loss(whole, labels).backward()
    for part in (slice(0, 1), slice(1, 2), slice(2, 6)):
        lesson.cross_entropy_loss(parts[part], labels[part], n_items=n_items).backward()
    torch.testing.assert_close(parts.grad, whole.grad)


# ---------------------------------------------------------------- autograd


def test_backward_twice_without_retain_graph_raises():
    for dtype in (torch.float32, torch.float16):
        loss = lesson.cross_entropy_loss(harness.leaf(randn(2, 20, dtype=dtype)), random_labels(2, vocab=20))
        loss.backward()
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()


def test_used_twice_in_one_graph():
    logits = harness.leaf(randn(3, 20))
    a, b = random_labels(3, vocab=20), random_labels(3, vocab=20)
    (2 * lesson.cross_entropy_loss(logits, a) + lesson.cross_entropy_loss(logits * 0.5, b)).backward()
    exact = harness.leaf(logits.double())
    reference = lesson.cross_entropy_loss_reference
    (2 * reference(exact, a) + reference(exact * 0.5, b)).backward()
    accuracy.check("dlogits", logits.grad, exact.grad.float(), exact.grad)


def test_gradient_may_be_changed_by_its_owner():
    logits, labels = harness.leaf(randn(3, 20)), random_labels(3, vocab=20)
    loss = lesson.cross_entropy_loss(logits, labels)
    loss.backward(retain_graph=True)
    before = logits.grad.clone()
    logits.grad.zero_()
    loss.backward()
    assert torch.equal(logits.grad, before)


def test_no_gradient_asked_for():
    logits, labels = harness.leaf(randn(3, 20)), random_labels(3, vocab=20)
    with torch.no_grad():
        loss = lesson.cross_entropy_loss_(logits, labels)
    assert not loss.requires_grad and loss.dtype == torch.float32 and loss.shape == ()
    assert torch.equal(loss, lesson.cross_entropy_loss(logits.detach(), labels))
    with harness.unchanged(logits=logits):
        lesson.cross_entropy_loss_(logits.detach(), labels)


def test_in_place_variant_tells_autograd():
    """Whoever else needs the overwritten logits for a gradient gets an error, not a wrong gradient."""
    logits = harness.leaf(randn(3, 20)) * 1.0
    penalty = logits.pow(2).sum()
    loss = lesson.cross_entropy_loss_(logits, random_labels(3, vocab=20))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        (loss + penalty).backward()


def test_in_place_variant_needs_no_second_tensor():
    logits = harness.leaf(randn(3, 20)) * 1.0
    (gradient,) = torch.autograd.grad(lesson.cross_entropy_loss_(logits, random_labels(3, vocab=20)), logits)
    assert gradient.data_ptr() == logits.data_ptr()


def test_second_backward_of_the_in_place_variant():
    logits, labels = harness.leaf(randn(3, 20)) * 1.0, random_labels(3, vocab=20)
    loss = lesson.cross_entropy_loss_(logits, labels)
    first, second = (
        torch.autograd.grad(loss, logits, torch.tensor(u, device=harness.DEVICE), retain_graph=True)[0]
        for u in (2.0, 5.0)
    )
    torch.testing.assert_close(5 * first, 2 * second)


def test_late_gradient_is_the_early_one():
    """float16 and compiled graphs make the gradient in the backward pass: same kernel, same numbers."""
    logits, labels = randn(4, 30), random_labels(4, vocab=30)
    for n_items in (None, 2.0, torch.tensor(3, device=harness.DEVICE)):
        results = []
        for gradient_in in ("forward", "backward"):
            x = harness.leaf(logits.clone())
            loss = lesson.CrossEntropyLoss.apply(x, labels, n_items, 0.0, 0.0, -100, gradient_in, False)
            loss.backward(torch.tensor(2.0, device=harness.DEVICE))
            results.append((loss.detach(), x.grad))
        torch.testing.assert_close(results[0], results[1], rtol=0, atol=0)


def test_repeatable():
    labels = random_labels(7, vocab=100)
    with small_tiles(lesson, 32):
        function = lambda logits: lesson.cross_entropy_loss(logits, labels)  # noqa: E731
        harness.assert_bitwise_repeatable(
            function, dict(logits=randn(7, 100)), torch.tensor(0.3, device=harness.DEVICE)
        )


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_reference_gradcheck(options):
    labels = random_labels(4, vocab=7)
    harness.assert_reference_gradcheck(lambda x: lesson.cross_entropy_loss_reference(x, labels, **options), randn(4, 7))


def test_reference_is_pytorch_s():
    logits, labels = randn(4, 20), random_labels(4, vocab=20)
    torch.testing.assert_close(
        lesson.cross_entropy_loss_reference(logits, labels), torch.nn.functional.cross_entropy(logits, labels)
    )


# ---------------------------------------------------------------- edges and errors


@pytest.mark.parametrize("shape", [(0, 10), (2, 0, 10), (0, 0)], ids=str)
def test_empty(shape):
    logits = harness.leaf(randn(*shape))
    loss = lesson.cross_entropy_loss(logits, torch.empty(shape[:-1], dtype=torch.long, device=harness.DEVICE))
    loss.backward()
    assert loss.item() == 0 and logits.grad.shape == shape


LABELS = torch.zeros(2, dtype=torch.long)


@pytest.mark.parametrize(
    ("change", "error", "words"),
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
    ],
    ids=lambda v: next(iter(v)) if isinstance(v, dict) else None,
)
def test_bad_arguments(change, error, words):
    arguments = dict(logits=torch.ones(2, 4), labels=LABELS) | change
    for name, value in arguments.items():
        if isinstance(value, torch.Tensor) and value.device.type == "cpu":
            arguments[name] = value.to(harness.DEVICE)
    for function in (lesson.cross_entropy_loss, lesson.cross_entropy_loss_):
        with pytest.raises(error, match=words):
            function(**arguments)


@pytest.mark.parametrize("label", [4, -1, 2**40])
def test_label_out_of_range_raises(label, monkeypatch):
    monkeypatch.setenv("ACADEMY_DEBUG", "1")
    logits, labels = randn(2, 4), torch.tensor([0, label], device=harness.DEVICE)
    with harness.unchanged(logits=logits):
        with pytest.raises(
            ValueError, match=rf"labels must be in \[0, 4\) or ignore_index = -100, got {label} in row 1"
        ):
            lesson.cross_entropy_loss_(harness.leaf(logits), labels)


@pytest.mark.skipif(device.INTERPRET, reason="CPU tensors raise instead")
def test_label_out_of_range_is_nan_on_the_gpu(monkeypatch):
    monkeypatch.delenv("ACADEMY_DEBUG", raising=False)
    logits = harness.leaf(randn(3, 4))
    loss = lesson.cross_entropy_loss(logits, torch.tensor([0, 4, -100], device=harness.DEVICE))
    loss.backward()
    assert loss.isnan() and logits.grad.isnan().all(1).tolist() == [False, True, False]


def test_bad_tile_size():
    with pytest.raises(ValueError, match="BLOCK must be a power of two, got 100"):
        lesson.cross_entropy_forward(randn(1, 5), torch.zeros(1, dtype=torch.long, device=harness.DEVICE), BLOCK=100)


def test_public_signature():
    for function in (lesson.cross_entropy_loss, lesson.cross_entropy_loss_):
        assert str(inspect.signature(function)) == (
            "(logits, labels, logit_softcapping=0.0, logit_scaling=0.0, n_items=None, ignore_index=-100)"
        )


# ---------------------------------------------------------------- what only a GPU shows


def assert_right_in_parts(logits, labels, rows=256, **options):
    """As `assert_right` for tensors too large for a float64 copy: judged by some rows at the start and at the end."""
    leaf = harness.leaf(logits)
    loss = lesson.cross_entropy_loss(leaf, labels, **options)
    loss.backward()
    count = (labels != -100).sum()
    for part in (slice(0, rows), slice(len(labels) - rows, len(labels))):
        options_of_part = dict(labels=labels[part], n_items=count, **options)
        pytorch, exact = harness.leaf(logits[part].clone()), harness.leaf(logits[part].double())
        for x in (pytorch, exact):
            lesson.cross_entropy_loss_reference(x, **options_of_part).backward()
        at_label = torch.arange(logits.shape[-1], device=harness.DEVICE) == labels[part].unsqueeze(-1)
        for mask in (at_label, ~at_label):
            accuracy.check("dlogits", leaf.grad[part][mask], pytorch.grad[mask], exact.grad[mask])
    exact = sum(
        lesson.cross_entropy_loss_reference(logits[i : i + 512].double(), labels[i : i + 512], n_items=count, **options)
        for i in range(0, len(labels), 512)
    )
    accuracy.check("loss", loss, exact.float(), exact)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(4096, 262144), (8192, 128256), (1024, 50257), (512, 201088), (999, 4097)], ids=str)
@pytest.mark.parametrize("options", [{}, dict(logit_softcapping=30.0, logit_scaling=1.5)], ids=["plain", "both"])
def test_large(shape, options):
    labels = random_labels(shape[0], vocab=shape[1])
    assert_right_in_parts(randn(*shape, dtype=torch.bfloat16), labels, rows=64, **options)


@pytest.mark.gpu
def test_row_offsets_past_two_to_the_31():
    shape = (16_640, 131_072)
    assert shape[0] * shape[1] > 2**31
    assert_right_in_parts(
        torch.randn(shape, dtype=torch.bfloat16, device="cuda"), random_labels(shape[0], vocab=shape[1]), rows=64
    )


@pytest.mark.gpu
def test_nobody_waits_for_the_gpu():
    logits, labels = harness.leaf(randn(8, 100)), random_labels(8, vocab=100)
    n_items = torch.tensor(5, device="cuda")
    lesson.cross_entropy_loss(logits, labels).backward()
    torch.cuda.set_sync_debug_mode("error")
    try:
        lesson.cross_entropy_loss(logits, labels).backward()
        lesson.cross_entropy_loss(logits, labels, n_items=n_items).backward()
        (lesson.cross_entropy_loss(logits.half(), labels, n_items=3) * 0.5).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
def test_memory_is_one_gradient():
    """The gradient that forward made becomes `.grad` itself: no second tensor of its size, not even for a moment."""
    logits, labels = harness.leaf(randn(1024, 32768, dtype=torch.bfloat16)), random_labels(1024, vocab=32768)
    for function, tensors in ((lesson.cross_entropy_loss, 1), (lesson.cross_entropy_loss_, 0)):
        logits.grad = None
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        function(logits, labels).backward()
        extra = torch.cuda.max_memory_allocated() - before
        assert extra < (tensors + 0.1) * logits.nbytes, f"{extra / logits.nbytes:.2f} times the logits"


@pytest.mark.gpu
def test_cuda_graph():
    logits, labels = harness.leaf(randn(64, 1000, dtype=torch.bfloat16)), random_labels(64, vocab=1000)

    def step():
        return torch.autograd.grad(lesson.cross_entropy_loss(logits, labels), logits)[0]

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        gradient = step()
    with torch.no_grad():
        logits.copy_(randn(64, 1000, dtype=torch.bfloat16))
    graph.replay()
    assert torch.equal(gradient, step())


@pytest.mark.gpu
@pytest.mark.parametrize("function", [lesson.cross_entropy_loss, lesson.cross_entropy_loss_], ids=["plain", "in_place"])
@pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
def test_torch_compile(dtype, function):
    labels = random_labels(16, vocab=100)

    def model(x, labels, weight):
        return function(x @ weight, labels, logit_scaling=0.5) * 3

    x, weight = randn(16, 32, dtype=dtype), randn(32, 100, dtype=dtype, scale=0.2)
    results = []
    for call in (model, torch.compile(model, fullgraph=True)):
        a, b = harness.leaf(x.clone()), harness.leaf(weight.clone())
        loss = call(a, labels, b)
        loss.backward()
        results.append((loss.detach(), a.grad, b.grad))
    for eager, compiled in zip(*results):
        torch.testing.assert_close(
            compiled, eager, rtol=8 * torch.finfo(dtype).eps, atol=1e-2 * eager.abs().max().item()
        )
