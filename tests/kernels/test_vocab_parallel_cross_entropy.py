"""vocab_parallel_cross_entropy and _entropy with the ranks as a list in one process: cuts, options, edges, mutants.

What needs processes is in tests/distributed/test_vocab_parallel.py.
"""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import functools

import pytest
import torch

from academy.judge import accuracy
from annotated_examples.common import ranks as shared
from annotated_examples.distributed import vocab_parallel_cross_entropy as lesson
from annotated_examples.distributed import vocab_parallel_entropy as entropy
from tests.kernels import harness
from tests.kernels.harness import DEVICE, Mutant, mutant_test, randn
from tests.kernels.test_cross_entropy import assert_losses_right

EVEN, UNEVEN, EMPTY, ALONE = (0, 8, 16, 21), (0, 5, 6, 21), (0, 16, 16, 21, 21), (0, 21)
CUTS = {"even": EVEN, "uneven": UNEVEN, "empty": EMPTY, "alone": ALONE}
OPTIONS = {
    "plain": {},
    "smoothing": dict(label_smoothing=0.1),
    "z_loss": dict(z_loss=0.01),
    "capped": dict(logit_softcapping=5.0, logit_scaling=0.7),
    "all": dict(label_smoothing=0.3, z_loss=0.02, logit_softcapping=6.0, ignore_index=3),
}


class Listed(torch.autograd.Function):
    """The losses of whole logits, cut over a list of ranks; also checks that a rank's gradient is its own tensor."""

    @staticmethod
    def forward(ctx, logits, labels, module, cuts, vocab, options, block):
        smoothing, softcap, scaling, z_loss, ignore = options
        ends = list(zip(cuts, cuts[1:]))
        shards = [module.Shard(a, max(0, min(b, vocab) - a), vocab) for a, b in ends]
        parts = [logits[..., a:b] for a, b in ends]
        stats = [
            module.shard_statistics(x, labels, s, smoothing, softcap, scaling, BLOCK_N=block)
            for x, s in zip(parts, shards)
        ]
        every = torch.stack(stats)
        assert every.dtype == torch.float32 and every.shape[2] == 4, "16 bytes a row and rank"
        losses, *saved = module.merge_shards(every, labels, vocab, z_loss, ignore, BLOCK_M=2)
        ctx.parts, ctx.shards, ctx.rest = parts, shards, (labels, *saved)
        ctx.module, ctx.options, ctx.block = module, (smoothing, softcap, scaling, z_loss, ignore), block
        return losses

    @staticmethod
    def backward(ctx, dlosses):
        labels, *saved = ctx.rest
        parts = [
            ctx.module.shard_backward(dlosses, x, labels, *saved, s, *ctx.options, BLOCK_N=ctx.block)
            for x, s in zip(ctx.parts, ctx.shards)
        ]
        return torch.cat(parts, -1), *[None] * 6


def listed(module, cuts, vocab=None, block=4):
    def function(logits, labels, **given):
        names = ("label_smoothing", "logit_softcapping", "logit_scaling", "z_loss")
        options = (*(given.get(name, 0.0) for name in names), given.get("ignore_index", -100))
        return Listed.apply(logits, labels, module, cuts, vocab or cuts[-1], options, block)

    return function


def random_labels(rows=6, vocab=21, cuts=EVEN, ignore_index=-100):
    """The first and the last column of shards are among them, and an ignored label."""
    labels = torch.randint(vocab, (rows,), device=DEVICE)
    labels[:5] = torch.tensor([0, cuts[1] % vocab, cuts[1] - 1, ignore_index, vocab - 1], device=DEVICE)
    return labels


def assert_right(module, logits, labels, cuts=UNEVEN, vocab=None, upstream=None, **options):
    function = listed(module, cuts, vocab)

    def reference(logits):
        whole = logits[:, : vocab or cuts[-1]]
        return lesson.vocab_parallel_cross_entropy_reference(whole, labels, reduction="none", **options)

    upstream = randn(len(labels)) if upstream is None else upstream
    ours = lambda logits: function(logits, labels, **options)  # noqa: E731
    assert_losses_right(ours, reference, logits, labels, upstream)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
@pytest.mark.parametrize("cuts", CUTS.values(), ids=CUTS.keys())
def test_losses_and_gradients(cuts, options):
    labels = random_labels(cuts=cuts, ignore_index=options.get("ignore_index", -100))
    assert_right(lesson, randn(6, 21, scale=3), labels, cuts, **options)


# ---------------------------------------------------------------- what the mutants have to get past


def enormous(module):
    """The lowest number, with which a maximum starts, minus these is minus infinity."""
    assert_right(module, randn(6, 21).abs() * 1e33, random_labels(cuts=UNEVEN), **OPTIONS["smoothing"])


def capped(module):
    assert_right(module, randn(6, 21, scale=3), random_labels(cuts=UNEVEN), **OPTIONS["capped"])


def labels_on_the_edges(module):
    """Every column of every shard is some row's label once; -100 and a label inside of the vocabulary are ignored."""
    labels = torch.arange(21, device=DEVICE)
    assert_right(module, randn(21, 21), labels, UNEVEN)
    assert_right(module, randn(21, 21), labels, UNEVEN, ignore_index=6)
    labels[::4] = -100
    assert_right(module, randn(21, 21), labels, EMPTY)


def nothing_but_minus_infinity(module):
    """In a whole shard, in a shard's first chunk, and beside shards without columns."""
    logits = randn(3, 21)
    logits[0, :16], logits[1, 16:], logits[2, 5:12] = (-float("inf"),) * 3
    assert_right(module, logits, torch.tensor([20, 3, 2], device=DEVICE), EMPTY)
    assert_right(module, logits, torch.tensor([20, 3, 2], device=DEVICE), UNEVEN)


def padded(module):
    """Columns behind the vocabulary hold garbage; a shard of nothing else is the last one."""
    logits = randn(6, 24)
    logits[:, 17:] = 50.0
    for cuts in ((0, 12, 24), (0, 8, 16, 20, 24)):
        assert_right(
            module, logits, random_labels(vocab=17, cuts=cuts, ignore_index=3), cuts, vocab=17, **OPTIONS["all"]
        )


def out_of_range_is_nan(module):
    """Straight to the launchers: on the CPU the public function raises before."""
    labels = torch.tensor([3, 21, -1, 2**40, 0], device=DEVICE)
    logits = harness.leaf(randn(5, 21))
    losses = listed(module, UNEVEN)(logits, labels)
    losses.sum().backward()
    assert losses.isnan().tolist() == logits.grad.isnan().all(1).tolist() == [False, True, True, True, False]
    assert not logits.grad[[0, 4]].isnan().any()


def no_valid_label(module):
    logits = harness.leaf(randn(4, 21))
    loss = module.vocab_parallel_cross_entropy(logits, torch.full((4,), -100, device=DEVICE), **OPTIONS["smoothing"])
    loss.backward()
    assert loss.item() == 0 and bool((logits.grad == 0).all()), "no valid label: loss and gradients must be 0"


def divided_by_the_number_of_all(module):
    """With other rows on other ranks, the mean divides by the labels of all: `n_items`."""
    logits, labels = randn(8, 21), random_labels(8)
    count = (labels != -100).sum()
    whole = module.vocab_parallel_cross_entropy(logits, labels)
    parts = [
        module.vocab_parallel_cross_entropy(logits[rows], labels[rows], n_items=count)
        for rows in (slice(0, 2), slice(2, 8))
    ]
    torch.testing.assert_close(sum(parts), whole)


CHECKS = [
    enormous,
    capped,
    labels_on_the_edges,
    nothing_but_minus_infinity,
    padded,
    out_of_range_is_nan,
    no_valid_label,
    divided_by_the_number_of_all,
]
test_check = harness.check_test(lesson, CHECKS)


MUTANTS = [
    (enormous, Mutant("nothing is zero times infinity", "tl.where(start > 0, start * (row_max - new_max), 0.0)", "start * (row_max - new_max)")),
    (capped, Mutant("slope forgotten", "dz * weight * slope", "dz * weight")),
    (nothing_but_minus_infinity, Mutant("an empty shard starts at minus infinity", "    row_max = LOWEST\n", '    row_max = -float("inf")\n')),
    (padded, Mutant("padding has a gradient", "counts = (offs_n < width) & ", "counts = ")),
    (out_of_range_is_nan, Mutant("a label that no rank has goes unnoticed", 'loss = tl.where((label >= 0) & (label < vocab), loss, float("nan"))', "pass")),
    (labels_on_the_edges, Mutant("ignored row has a loss", "loss = tl.where(label == ignore_index, 0.0, loss)", "pass")),
    (labels_on_the_edges, Mutant("ignored row has a gradient", " & (label != ignore_index)", "")),
    (no_valid_label, Mutant("mean over no label", "(count.clamp(min=1) if n_items is None else count)", "count")),
]  # fmt: skip
test_mutant = mutant_test(lesson, MUTANTS)


# ---------------------------------------------------------------- the entropy


def assert_entropy_right(module, logits, cuts=UNEVEN, vocab=None, scaling=0.0):
    vocab, upstream = vocab or cuts[-1], randn(len(logits))
    shards = [module.Shard(a, max(0, min(b, vocab) - a), vocab) for a, b in zip(cuts, cuts[1:])]
    parts = [(logits[:, a:b], shard) for a, b, shard in zip(cuts, cuts[1:], shards)]
    with harness.unchanged(logits=logits), harness.fenced_allocations():
        moments = [module.shard_moments(*part, scaling, BLOCK_N=4) for part in parts]
        entropies, *saved = module.merge_moments(torch.stack(moments), BLOCK_M=2)
        gradients = [module.entropy_backward(upstream, x, *saved, s, scaling, BLOCK_N=4) for x, s in parts]
    reference = lambda logits: entropy.vocab_parallel_entropy_reference(logits[:, :vocab], logit_scaling=scaling)  # noqa: E731
    pytorch = harness.gradients(reference, dict(logits=logits), upstream)
    exact = harness.gradients(reference, dict(logits=logits.double()), upstream.double())
    accuracy.check("entropies", entropies, reference(logits.float()), exact["out"])
    accuracy.check("dlogits", torch.cat(gradients, 1), pytorch["dlogits"], exact["dlogits"])


def impossible_entries(module):
    """Entries of probability 0: zero times minus infinity, forward and backward."""
    logits = randn(3, 21)
    logits[0, :16], logits[1, 16:], logits[2, 5:12] = (-float("inf"),) * 3
    for cuts in (UNEVEN, EMPTY):
        assert_entropy_right(module, logits, cuts)


def entropy_padded(module):
    assert_entropy_right(module, torch.cat([randn(4, 17), randn(4, 7) + 50], 1), (0, 8, 16, 20, 24), vocab=17)


def entropy_scaled(module):
    assert_entropy_right(module, randn(4, 21), scaling=1.7)


ENTROPY_CHECKS = [impossible_entries, entropy_padded, entropy_scaled]
test_entropy = harness.check_test(entropy, ENTROPY_CHECKS)


ENTROPY_MUTANTS = [
    (entropy_padded, Mutant("padding has a gradient", "tl.where(offs_n < width, dx, 0.0)", "dx")),
    (entropy_scaled, Mutant("slope forgotten", "slope = scaling", "slope = 1.0")),
]  # fmt: skip
test_entropy_mutant = mutant_test(entropy, ENTROPY_MUTANTS)


# ---------------------------------------------------------------- public functions, on one rank


def test_public_functions_have_the_reference_s_options():
    logits = randn(2, 3, 21)
    for options in (*OPTIONS.values(), dict(n_items=11), dict(reduction="none")):
        labels = random_labels(ignore_index=options.get("ignore_index", -100)).view(2, 3)
        ours, reference = (
            functools.partial(function, labels=labels, **options)
            for function in (lesson.vocab_parallel_cross_entropy, lesson.vocab_parallel_cross_entropy_reference)
        )
        harness.assert_right(ours, reference, dict(logits=logits))
    harness.assert_right(entropy.vocab_parallel_entropy, entropy.vocab_parallel_entropy_reference, dict(logits=logits))


def test_smoothing_is_pytorch_s():
    logits, labels = randn(6, 21), random_labels()
    ours = lesson.vocab_parallel_cross_entropy(logits, labels, label_smoothing=0.2)
    torch.testing.assert_close(ours, torch.nn.functional.cross_entropy(logits, labels, label_smoothing=0.2))


@pytest.mark.parametrize(
    ("columns", "world", "cuts"), [(10, 4, (0, 3, 6, 9, 10)), (3, 4, (0, 1, 2, 3, 3)), (0, 1, (0, 0))]
)
def test_cuts_are_those_of_chunk(columns, world, cuts):
    assert shared.even_cuts(columns, world) == cuts
    widths = [len(part) for part in torch.arange(columns).chunk(world)]
    assert [b - a for a, b in zip(cuts, cuts[1:])][: len(widths)] == widths


test_bad_arguments = harness.refused_test(
    "change, error, words",
    [
        (dict(logits=[1.0]), TypeError, "logits must be a torch.Tensor, got list"),
        (dict(logits=torch.ones(2, 4).double()), TypeError, "logits must be one of float32"),
        (dict(logits=torch.ones(2, 0)), ValueError, r"logits must have at least one column in all, got shape \(2, 0\)"),
        (dict(labels=torch.ones(2)), TypeError, "labels must be one of int64"),
        (dict(labels=torch.zeros(3, dtype=torch.long)), ValueError, r"labels must have shape \(2,\)"),
        (
            dict(labels=torch.tensor([0, 4])),
            ValueError,
            r"labels must be in \[0, 4\) or ignore_index = -100, got 4 in row 1",
        ),
        (dict(vocab=5), ValueError, r"logits must have 5 columns \(columns 0 to 5 for rank 0 of 1\)"),
        (dict(vocab=0), ValueError, "vocab must be at least 1, got 0"),
        (dict(cuts=(0, 2, 4)), ValueError, r"cuts must be 2 numbers that begin with 0 and never fall, got \(0, 2, 4\)"),
        (dict(cuts=(1, 5)), ValueError, "cuts must be 2 numbers that begin with 0"),
        (dict(cuts=(0, 4.0)), TypeError, "cuts must be an int, got float"),
        (dict(cuts=(0, 4), vocab=9), ValueError, "vocab must be at most 4, the last of cuts, got 9"),
        (dict(label_smoothing=1.5), ValueError, "label_smoothing must be at most 1, got 1.5"),
        (dict(label_smoothing=-0.1), ValueError, "label_smoothing must be at least 0"),
        (dict(z_loss="1"), TypeError, "z_loss must be a number, got str"),
        (dict(reduction="sum"), ValueError, "reduction must be one of"),
        (dict(group="tp"), ValueError, "group needs torch.distributed.init_process_group"),
    ],
    dict(logits=torch.ones(2, 4), labels=torch.zeros(2, dtype=torch.long)),
    lesson.vocab_parallel_cross_entropy,
)


LABELS = torch.zeros(2, dtype=torch.long, device=DEVICE)
test_bad_arguments_of_the_others = harness.raises_test(
    [
        (lambda: lesson.vocab_parallel_linear_cross_entropy(randn(2, 3), randn(7, 4), LABELS), ValueError,
         r"x must have shape \(2, 4\) \(as wide as weight\)"),
        (lambda: entropy.vocab_parallel_entropy(randn(2, 3).double()), TypeError, "logits must be one of float32"),
        (lambda: lesson.shard_statistics(randn(2, 3), LABELS, lesson.Shard(0, 3, 3), BLOCK_N=3), ValueError,
         "BLOCK_N must be a power of two, got 3"),
    ]
)  # fmt: skip
