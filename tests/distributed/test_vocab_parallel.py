"""The vocabulary-parallel losses in processes that talk: every rank's bits, what travels, DTensors, the layer before.

What one process can check is in tests/kernels/test_vocab_parallel_cross_entropy.py.
"""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import time
import warnings

import pytest
import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import all_reduce
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from academy.runtime import device
from academy.bench.collectives import Traffic
from academy.judge import accuracy
from academy.judge.mutants import Mutant, assert_caught, upon
from annotated_examples.common import ranks as shared
from annotated_examples.distributed import vocab_parallel_cross_entropy as lesson
from annotated_examples.distributed.vocab_parallel_entropy import (
    vocab_parallel_entropy,
    vocab_parallel_entropy_reference,
)
from tests.distributed import ranks

pytestmark = pytest.mark.skipif(not device.INTERPRET, reason="gloo's processes share no card; a card has NCCL")

ROWS, HIDDEN, VOCAB = 9, 6, 29
#: Uneven, and rank 1 of 4 has no column at all.
CUTS = {1: (0, 29), 2: (0, 13, 29), 3: (0, 5, 21, 29), 4: (0, 16, 16, 28, 29)}
OPTIONS = [{}, dict(label_smoothing=0.1, z_loss=1e-2, logit_softcapping=8.0)]


def problem(cuts):
    x, weight = torch.randn(ROWS, HIDDEN) * 3, torch.randn(VOCAB, HIDDEN)
    labels = torch.randint(VOCAB, (ROWS,))
    labels[2], labels[5], labels[6] = -100, VOCAB - 1, cuts[1] % VOCAB
    return x, weight, labels


def same_everywhere(value):
    """Bit by bit, NaN included."""
    bits = value.detach().contiguous().view(torch.int32).view(-1)
    assert all(torch.equal(bits, other) for other in shared.gathered(bits)), "not the same bits on every rank"


def losses_and_gradients(rank, world, module):
    cuts = CUTS[world]
    own = slice(cuts[rank], cuts[rank + 1])
    x, weight, labels = problem(cuts)
    for options in OPTIONS:
        results = []
        for dtype in (torch.float32, torch.float64):
            a, w = (value.clone().to(dtype).requires_grad_() for value in (x, weight))
            loss = lesson.vocab_parallel_cross_entropy_reference(a @ w.T, labels, **options)
            loss.backward()
            results.append((loss, a.grad, w.grad[own]))
        a, w = x.clone().requires_grad_(), weight[own].clone().requires_grad_()
        with Traffic() as traffic:
            loss = module.vocab_parallel_linear_cross_entropy(a, w, labels, cuts=cuts, **options)
            forward = len(traffic.calls)
            loss.backward()
        for name, ours, pytorch, exact in zip(("loss", "dx", "dweight"), (loss, a.grad, w.grad), *results):
            accuracy.check(name, ours, pytorch, exact)
        if world > 1:
            same_everywhere(loss)
            same_everywhere(a.grad)
            assert forward == 1 and traffic.counts() == dict(all_gather=1, all_reduce=1)
            assert traffic.bytes("all_gather") == 16 * ROWS * world, "16 bytes a row and rank"
            assert traffic.bytes("all_reduce") == 4 * ROWS * HIDDEN, "the gradient of the layer's input"
    return True


def entropies(rank, world):
    cuts = CUTS[world]
    logits, own = torch.randn(ROWS, VOCAB) * 2, slice(cuts[rank], cuts[rank + 1])
    upstream = torch.randn(ROWS)
    results = []
    for dtype in (torch.float32, torch.float64):
        z = logits.clone().to(dtype).requires_grad_()
        value = vocab_parallel_entropy_reference(z)
        value.backward(upstream.to(dtype))
        results.append((value, z.grad[:, own]))
    z = logits[:, own].clone().requires_grad_()
    value = vocab_parallel_entropy(z, cuts=cuts)
    value.backward(upstream)
    for name, ours, pytorch, exact in zip(("entropy", "dlogits"), (value, z.grad), *results):
        accuracy.check(name, ours, pytorch, exact)
    same_everywhere(value)


def tensors_that_know_their_cut(rank, world):
    """A DTensor's columns are cut as `torch.chunk` cuts: on 4 ranks the last of 29 has 5 columns, of 3 columns none."""
    mesh = init_device_mesh("cpu", (world,))
    for vocab in (VOCAB, 3):
        whole, labels = torch.randn(ROWS, vocab), torch.randint(vocab, (ROWS,))
        labels[1] = -100
        exact = whole.double().requires_grad_()
        expected = lesson.vocab_parallel_cross_entropy_reference(exact, labels, label_smoothing=0.1)
        expected.backward()
        logits = distribute_tensor(whole, mesh, [Shard(-1)]).requires_grad_()
        loss = lesson.vocab_parallel_cross_entropy(logits, labels, label_smoothing=0.1)
        assert loss.placements == (Replicate(),)
        loss.backward()
        plain = logits.detach().requires_grad_()
        plain.to_local().sum().backward()
        assert logits.grad.placements == plain.grad.placements, "cut, but torch 2.11 has gathered it"
        torch.testing.assert_close(loss.to_local().double(), expected.detach(), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(logits.grad.full_tensor().double(), exact.grad, rtol=1e-5, atol=1e-6)
        entropy = vocab_parallel_entropy(logits.detach()).to_local()
        torch.testing.assert_close(entropy, vocab_parallel_entropy_reference(whole))
    for placements in ([Shard(0)], [Replicate()]):
        with pytest.raises(ValueError, match=r"logits must be cut along its last dimension, Shard\(-1\)"):
            lesson.vocab_parallel_cross_entropy(distribute_tensor(whole, mesh, placements), labels)
    with pytest.raises(ValueError, match="group and cuts must be left out: a DTensor knows how it is cut"):
        lesson.vocab_parallel_cross_entropy(logits, labels, cuts=(0, 3))


def two_axes(rank, world):
    """Rows on one axis of a mesh, columns on the other: the mean divides by the number of all valid labels."""
    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("data", "model"))
    data, model = mesh["data"], mesh["model"]
    whole, labels = torch.randn(8, VOCAB), torch.randint(VOCAB, (8,))
    labels[0] = labels[1] = labels[7] = -100  # 2 of the first half are ignored, 1 of the second
    expected = torch.nn.functional.cross_entropy(whole, labels)
    rows, cuts = slice(4 * data.get_local_rank(), 4 * data.get_local_rank() + 4), (0, 10, VOCAB)
    columns = slice(*cuts[model.get_local_rank() : model.get_local_rank() + 2])
    count = (labels[rows] != -100).sum()
    dist.all_reduce(count, group=data.get_group())
    options = dict(group=model.get_group(), cuts=cuts)
    mine = lesson.vocab_parallel_cross_entropy(whole[rows, columns], labels[rows], n_items=count, **options)
    dist.all_reduce(mine, group=data.get_group())
    torch.testing.assert_close(mine, expected)
    local = lesson.vocab_parallel_cross_entropy(whole[rows, columns], labels[rows], **options)
    dist.all_reduce(local, group=data.get_group())
    assert not torch.isclose(local / 2, expected), "the mean of the means is another number"


def bad_cuts(rank, world):
    logits, labels = torch.randn(2, 5), torch.zeros(2, dtype=torch.long)
    for options, words in (
        ({}, f"vocab or cuts must be given: logits holds the columns of one of {world} ranks only"),
        (dict(vocab=99), "logits must have .* columns"),
        (dict(cuts=(0, 5)), f"cuts must be {world + 1} numbers"),
    ):
        with pytest.raises(ValueError, match=words):
            lesson.vocab_parallel_cross_entropy(logits, labels, **options)


def everything(rank, world):
    losses_and_gradients(rank, world, lesson)
    entropies(rank, world)
    if world > 1:
        tensors_that_know_their_cut(rank, world)
        bad_cuts(rank, world)
    if world == 4:
        two_axes(rank, world)


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_every_rank_is_right_and_has_the_same_bits(world):
    ranks.run(everything, world)


MUTANTS = [
    Mutant("the gradient of the input isn't summed", "return summed(dy, ctx.group), None", "return dy, None"),
    Mutant("ranks one below the other, read as columns", "everyones.view(world, *values.shape)", "everyones.view(*values.shape, world).movedim(-1, 0)"),
]  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_mutant(mutant, tmp_path):
    check = lambda broken: ranks.run(losses_and_gradients, 2, upon(shared, broken, lesson, tmp_path))  # noqa: E731
    assert_caught(shared, mutant, check, tmp_path)


def gradient_of_each_sum(rank, world):
    """The gradient of each rank's x, where rank r's loss is r + 1 times the sum over ranks. Right for x: 1 + 2."""

    def in_place(x):
        dist.all_reduce(y := x * 1)
        return y

    found = {}
    for name, total in (
        ("in place", in_place),
        ("ours", shared.summed_over_ranks),
        ("functional", lambda x: all_reduce(x, "sum", dist.group.WORLD)),
    ):
        x = torch.ones(1, requires_grad=True)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            ((rank + 1) * total(x)).sum().backward()
        found[name] = x.grad.item(), any("an autograd kernel was not registered" in str(each.message) for each in said)
    return found


def test_what_other_sums_do_to_a_gradient():
    """An upstream gradient is handed through, by ours on purpose; PyTorch's functional sum adds those of all ranks."""
    for rank, found in enumerate(ranks.run(gradient_of_each_sum, 2)):
        warned = {"in place": True, "ours": False, "functional": False}
        assert found == {name: (3.0 if name == "functional" else rank + 1.0, each) for name, each in warned.items()}


def alone_in_a_barrier(rank, world):
    if rank == 0:
        dist.barrier()
    time.sleep(60)


def fails_on_one(rank, world):
    if rank == 1:
        raise ValueError("only here")
    dist.barrier()


def test_a_rank_that_waits_for_ever_or_fails_is_a_failure():
    with pytest.raises(AssertionError, match="were not done after 2 s: one waits for another"):
        ranks.run(alone_in_a_barrier, 2, seconds=2)
    with pytest.raises(AssertionError, match="rank 1 of 2:(.|\n)*only here"):
        ranks.run(fails_on_one, 2)
