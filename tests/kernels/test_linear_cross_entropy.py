"""linear_cross_entropy, lesson and fast: loss and three gradients piece by piece, options, layouts, errors, mutants."""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import functools

import pytest
import torch
import torch.nn.functional as F

from academy.runtime import device
from academy.judge import accuracy
from annotated_examples.classics import cross_entropy
from annotated_examples.classics import linear_cross_entropy as lesson
from annotated_examples.common import logits as shared
from annotated_examples.fast import linear_cross_entropy as fast
from tests.kernels import harness
from tests.kernels.harness import Mutant, randn

module = harness.modules(lesson, fast)
DEVICE = harness.DEVICE

OPTIONS = {
    "plain": {},
    "scaling": dict(logit_scaling=1.7),
    "softcap": dict(logit_softcapping=3.0),
    "both": dict(logit_softcapping=5.0, logit_scaling=0.4),
    "n_items": dict(n_items=11),
}


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


def several_pieces(module, dtype=torch.float32, **options):
    """Labels in every piece, the last of which isn't full; more rows than a row of weights is long."""
    x, weight, bias = randn(9, 6, dtype=dtype), randn(45, 6, dtype=dtype), randn(45, dtype=dtype)
    labels = torch.tensor([0, -100, 7, 8, 17, 31, 32, 44, -100], device=DEVICE)
    assert_right(module, x, weight, labels, bias, number(0.7), columns=8, **options)


def scaled(module):
    several_pieces(module, logit_scaling=1.7)


def capped(module):
    several_pieces(module, **OPTIONS["both"])


def given_items(module):
    several_pieces(module, n_items=11)


def rising_pieces(module):
    """The largest logit so far changes with every piece."""
    x = torch.linspace(0.5, 1.5, 8, device=DEVICE)[:, None]
    for columns in (8, 48):
        weight = torch.arange(60.0, device=DEVICE)[:, None] / 4
        assert_right(module, x, weight, random_labels(8, vocab=60), columns=columns)


def switched_off(module):
    """Whole pieces of the vocabulary switched off by a bias of -inf."""
    bias = randn(40)
    bias[:17] = bias[24:] = -float("inf")
    x, weight, labels = randn(2, 4), randn(40, 4), torch.tensor([18, 20], device=DEVICE)
    ours = in_pieces(module, 8)(x, weight, labels, bias)
    exact = pytorch(x.double(), weight.double(), labels, bias.double())
    accuracy.check("out", ours, exact.float(), exact)


def common_offset(module):
    for offset in (1e4, -1e4):
        assert_right(module, randn(3, 4), randn(20, 4), random_labels(3, vocab=20), randn(20) + offset, columns=8)


def sure_of_the_label(module):
    """The label has probability 0.9999. In bfloat16 that is 1, and the gradient is what is missing to it."""
    x, labels = torch.eye(2, device=DEVICE).bfloat16(), torch.tensor([1, 0], device=DEVICE)
    weight = torch.tensor([[0.0, 9.5], [9.5, 0.0], [0.0, 0.0]], device=DEVICE).bfloat16()
    assert_right(module, x, weight, labels, columns=8)


def many_rows_in_bfloat16(module):
    """Summed in bfloat16 the rows' shares of the weights' gradient would be lost one after the other."""
    x = torch.full((100, 1), 1 / 64, device=DEVICE).bfloat16()
    x[0] = 8
    weight = torch.zeros(3, 1, device=DEVICE).bfloat16()
    assert_right(module, x, weight, torch.zeros(100, dtype=torch.long, device=DEVICE), columns=8)


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


def ignored_label_inside_the_vocabulary(module):
    labels = torch.tensor([0, 3, 0, 19], device=DEVICE)
    assert_right(module, randn(4, 5), randn(20, 5), labels, randn(20), columns=8, ignore_index=0)


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


def gradient_penalty_raises(module):
    labels = random_labels(3, vocab=20)
    for only in ("x", "weight", "both"):
        fixed = {"x": dict(weight=randn(20, 4)), "weight": dict(x=randn(3, 4)), "both": {}}[only]
        inputs = {name: randn(*shape) for name, shape in dict(x=(3, 4), weight=(20, 4)).items() if name not in fixed}
        function = lambda fixed=fixed, **free: module.linear_cross_entropy(labels=labels, **fixed, **free)  # noqa: E731
        harness.assert_gradient_penalty_raises(function, inputs)


def every_second_label(module):
    assert_right(module, randn(6, 4), randn(24, 4), random_labels(2, 6, vocab=24).flatten()[::2], columns=8)


def one_gradient_at_a_time(module):
    x, weight, bias, labels = randn(4, 5), randn(30, 5), randn(30), random_labels(4, vocab=30)
    exact = [harness.leaf(value.double()) for value in (x, weight, bias)]
    pytorch(exact[0], exact[1], labels, exact[2]).backward()
    for wanted in range(3):
        values = [harness.leaf(v) if at == wanted else v for at, v in enumerate((x, weight, bias))]
        with harness.fenced_allocations():
            in_pieces(module, 8)(values[0], values[1], labels, values[2]).backward()
        assert [value.grad is not None for value in values] == [at == wanted for at in range(3)]
        accuracy.check("gradient", values[wanted].grad, exact[wanted].grad.float(), exact[wanted].grad)


CHECKS = [
    several_pieces,
    scaled,
    capped,
    given_items,
    rising_pieces,
    switched_off,
    common_offset,
    sure_of_the_label,
    many_rows_in_bfloat16,
    many_pieces_in_bfloat16,
    no_valid_label,
    ignored_label_inside_the_vocabulary,
    out_of_range_is_nan,
    second_backward,
    loss_scale_in_float16,
    gradient_penalty_raises,
    every_second_label,
    one_gradient_at_a_time,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_check(module, check):
    check(module)


# ---------------------------------------------------------------- mutants, each with the check that must notice it

PROBABILITY = "p = tl.exp(z - tl.load(row_max_ptr + row)) / tl.load(row_sum_ptr + row)"
OF_WEIGHTS = "product_into(dweight[start:end], g.T, rows)"
ROW_BY_ROW = (
    "dweight[start:end].zero_(); "
    "[product_into(dweight[start:end], g[r : r + 1].T, rows[r : r + 1], add=True) for r in range(len(rows))]"
)
LESSON_MUTANTS = [
    (many_rows_in_bfloat16, Mutant("dW summed in bfloat16", OF_WEIGHTS, ROW_BY_ROW)),
    (many_pieces_in_bfloat16, Mutant("dX summed in bfloat16", "make(rows.shape, dtype=torch.float32", "make(rows.shape, dtype=rows.dtype")),
    (sure_of_the_label, Mutant("minus one after rounding", PROBABILITY, f"{PROBABILITY}\n    p = p.to(tl.bfloat16).to(tl.float32)")),
    (several_pieces, Mutant("mean over the labels of a piece", "flat, n_items, state, start, vocab", "flat, ((flat >= start) & (flat < end)).sum(), state, start, vocab")),
    (given_items, Mutant("n_items ignored forward", "(row_max - z_label)) / tl.load(n_items_ptr).to(tl.float32)", "(row_max - z_label)) / 7.0")),
    (given_items, Mutant("n_items ignored backward", "weight = 1.0 / tl.load(n_items_ptr).to(tl.float32)", "weight = 1.0 / 7.0")),
    (capped, Mutant("derivative of the cap forgotten", "dz * weight * slope", "dz * weight")),
    (rising_pieces, Mutant("sum not rescaled to the new maximum", "row_sum * tl.exp(row_max - new_max)", "row_sum")),
    (several_pieces, Mutant("every piece starts anew", "row_sum = tl.load(row_sum_ptr + row)", "row_sum = 0.0")),
    (several_pieces, Mutant("label counted from the piece", "(start + offs_n == label)", "(offs_n == label)")),
    (several_pieces, Mutant("label of another piece", "tl.where(in_piece, z_here,", "tl.where(width > 0, z_here,")),
    (several_pieces, Mutant("bias of the first piece", "bias[start:end]", "bias[: end - start]", 2)),
    (several_pieces, Mutant("bias dropped", "if bias_ptr is not None:", "if bias_ptr is None:")),
    (several_pieces, Mutant("pieces don't add up", "add=not first", "add=False")),
    (several_pieces, Mutant("lanes past the piece count", 'tl.where(mask, z, -float("inf"))', "z")),
    (several_pieces, Mutant("upstream gradient dropped", "weight *= tl.load(dloss_ptr)", "pass")),
    (several_pieces, Mutant("ignored label has a gradient", "tl.where(label == ignore_index, 0.0, dz", "(dz")),
    (no_valid_label, Mutant("ignored label gives NaN", "tl.where(label == ignore_index, 0.0, loss)", "loss")),
    (out_of_range_is_nan, Mutant("label out of range unnoticed", '(label < vocab), weight, float("nan"))', "(label < vocab), weight, weight)")),
    (gradient_penalty_raises, Mutant("gradient penalty loses its term", "    @autograd.once_differentiable\n", "")),
    (every_second_label, Mutant("labels read as contiguous", "labels.reshape(-1).contiguous()", "labels.reshape(-1)", 2)),
    (several_pieces, Mutant("small sums stay", "row_max = tl.load(row_max_ptr + row)", "row_max = LOWEST")),
]  # fmt: skip
FAST_MUTANTS = [
    (second_backward, Mutant("second backward differs", "(cross_entropy_backward, cross", "(cross_entropy_backward_, cross")),
    (loss_scale_in_float16, Mutant("float16 rounds before the loss scale", "x.dtype == torch.float16 or ", "")),
    (several_pieces, Mutant("logits over the weights' gradient", "memory[begin : begin + rows", "memory[: rows")),
    (several_pieces, Mutant("room counted without the rows", "(rows * itemsize + row_bytes) // STEP", "row_bytes // STEP", error="RuntimeError: shape")),
    (several_pieces, Mutant("second round with stale logits", "if number >= len(stay)", "if number > len(stay)")),
    (several_pieces, Mutant("first piece adds to what was there", "first=number == 0", "first=False")),
    (rising_pieces, Mutant("strips not rescaled", "total * exp_shifted(shift, new_shift)", "total")),
    (rising_pieces, Mutant("strips merged without their maxima", "total * exp_shifted(shift, row_max)", "total")),
    (rising_pieces, Mutant("pieces merged without their maxima", " * exp_shifted(before, row_max)", "")),
    (several_pieces, Mutant("lanes past the piece count", 'tl.where(mask, z, -float("inf"))', "z")),
    (several_pieces, Mutant("upstream gradient dropped", "(scale(dloss, g) if need", "(g if need")),
    (every_second_label, Mutant("labels read as contiguous", "labels.reshape(-1).contiguous()", "labels.reshape(-1)")),
    (switched_off, Mutant("infinities give NaN", "LOWEST, tl.float32", '-float("inf"), tl.float32')),
]  # fmt: skip
SHARED_MUTANTS = [
    (capped, Mutant("cap before the scale", "slope = slope * (1.0 - tanh * tanh)", "slope = slope * 1.0")),
    (scaled, Mutant("slope of the scale forgotten", "slope = slope * scaling", "slope = slope * 1.0")),
]


test_mutant_of_the_lesson_is_caught = harness.mutant_test(lesson, LESSON_MUTANTS)
test_mutant_of_fast_is_caught = harness.mutant_test(fast, FAST_MUTANTS)
test_mutant_of_the_shared_file_is_caught = harness.mutant_test(shared, SHARED_MUTANTS, within=lesson)


# ---------------------------------------------------------------- values


def test_leading_dimensions(module):
    assert_right(module, randn(2, 3, 2, 5), randn(20, 5), random_labels(2, 3, 2, vocab=20), columns=8)
    assert_right(module, randn(5), randn(20, 5), number(3))


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


@pytest.mark.parametrize("n_items", [3, 2.5, torch.tensor(3), torch.tensor(2.5)], ids=str)
def test_n_items(module, n_items):
    value = float(n_items)
    n_items = n_items.to(DEVICE) if isinstance(n_items, torch.Tensor) else n_items
    x, weight, labels = harness.leaf(randn(4, 5)), randn(20, 5), random_labels(4, vocab=20)
    module.linear_cross_entropy(x, weight, labels, n_items=n_items).backward()
    exact = harness.leaf(x.detach().double())
    pytorch(exact, weight.double(), labels, n_items=value).backward()
    accuracy.check("dx", x.grad, exact.grad.float(), exact.grad)


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


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("error", "name", "change"),
    [
        (TypeError, "x", dict(x=[1.0])),
        (TypeError, "x", dict(x=torch.ones(3, 4, dtype=torch.float64))),
        (ValueError, "x", dict(x=torch.tensor(1.0))),
        (TypeError, "weight", dict(weight=torch.ones(20, 4, dtype=torch.float16))),
        (ValueError, "weight", dict(weight=torch.ones(20, 5))),
        (ValueError, "weight", dict(weight=torch.ones(20))),
        (ValueError, "weight", dict(weight=torch.ones(0, 4))),
        (TypeError, "bias", dict(bias=3.0)),
        (ValueError, "bias", dict(bias=torch.ones(4))),
        (TypeError, "bias", dict(bias=torch.ones(20, dtype=torch.bfloat16))),
        (TypeError, "labels", dict(labels=torch.ones(3))),
        (ValueError, "labels", dict(labels=torch.ones(4, dtype=torch.long))),
        (ValueError, "labels", dict(labels=torch.ones(3, 1, dtype=torch.long))),
        (ValueError, "logit_softcapping", dict(logit_softcapping=-1.0)),
        (ValueError, "logit_scaling", dict(logit_scaling=-1.0)),
        (ValueError, "logit_scaling", dict(logit_scaling=float("inf"))),
        (TypeError, "ignore_index", dict(ignore_index=1.0)),
        (ValueError, "n_items", dict(n_items=-1)),
        (ValueError, "n_items", dict(n_items=torch.ones(2))),
        (TypeError, "n_items", dict(n_items="all")),
    ],
)
def test_bad_arguments(module, error, name, change):
    arguments = dict(x=torch.ones(3, 4), weight=torch.ones(20, 4), labels=torch.ones(3, dtype=torch.long)) | change
    arguments = {n: v.to(DEVICE) if isinstance(v, torch.Tensor) else v for n, v in arguments.items()}
    with pytest.raises(error, match=rf"^{name} "):
        module.linear_cross_entropy(**arguments)


@pytest.mark.skipif(not device.INTERPRET, reason="CUDA tensors aren't looked at")
@pytest.mark.parametrize("label", [-1, 20])
def test_label_out_of_range(module, label):
    with pytest.raises(ValueError, match=r"^labels must be in \[0, 20\)"):
        module.linear_cross_entropy(torch.ones(2, 4), torch.ones(20, 4), torch.tensor([3, label]))


def test_bad_tiles(module):
    arguments = torch.ones(3, 4, device=DEVICE), torch.ones(20, 4, device=DEVICE), random_labels(3, vocab=20)
    tiles = dict(BLOCK_N=24) if module is lesson else dict(BLOCK=24)
    with pytest.raises(ValueError, match="BLOCK"):
        module.linear_cross_entropy_forward(*arguments, **tiles)
    tiles = dict(COLUMNS=0) if module is lesson else dict(STEP=0)
    with pytest.raises(ValueError, match="COLUMNS|STEP"):
        module.linear_cross_entropy_forward(*arguments, **tiles)


@pytest.mark.parametrize("with_bias", [True, False])
def test_inside_torch_compile(module, with_bias):
    """Its launchers are operators there, so Dynamo doesn't meet the interpreter."""
    labels, bias = random_labels(4, vocab=30), randn(30) if with_bias else None

    def model(x, weight):
        return module.linear_cross_entropy(x * 2, weight, labels, bias, logit_softcapping=3.0, n_items=3) * 3

    torch.compiler.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    inputs, upstream = dict(x=randn(4, 5), weight=randn(30, 5)), number(0.5)
    expected, actual = (harness.gradients(function, inputs, upstream) for function in (model, compiled))
    for name, value in expected.items():
        torch.testing.assert_close(actual[name], value)
